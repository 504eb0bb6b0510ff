/* tests/apps/test_foreign_apps.c: names of strangers' files, as programs print them; and names of what is no file. */
#define _GNU_SOURCE
#include "graph/base/foreign.h"
#include "graph/plan/form/plan.h"
#include "tests/apps/shell.h"
#include "tests/support/json.h"

#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <weir/weir.h>

TestSuite(foreign_apps, .init = folder_make, .fini = folder_remove, .timeout = 120);

static void expect_says(const char *words)
{
    cr_expect(strstr(output, words), "\"%s\" is not in: %s", words, output);
}

/* Nothing but lines of characters that a terminal shows. */
static void expect_shown(const char *command)
{
    run(command);
    for (const char *at = output; *at;) {
        uint32_t code;
        int bytes = foreign_next(at, &code);
        cr_assert(code == '\n' || !foreign_acts(code), "%s prints U+%x: %s", command, code, output);
        at += bytes;
    }
}

/* A safetensors file with this header and so many bytes. */
static void write_tensors(const char *path, const char *header, size_t data_bytes)
{
    char bytes[4096] = {0};
    size_t length = strlen(header);
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(length >> 8 * i);
    memcpy(bytes + 8, header, length);
    folder_write(path, bytes, 8 + length + data_bytes);
}

#define ESC "\\u001b[31m"
#define TWO_LINES "h0\\u000a12 tensors"
#define REVERSED "\\u202ethgiew"

static const char hostile[] =
    "{\"__metadata__\":{\"weir.program\":\"p" ESC "\\u009b\",\"weir.source:0:s" ESC "\":\"00\"},"
    "\"" ESC "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
    "\"" TWO_LINES "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},"
    "\"" REVERSED "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}";

Test(foreign_apps, names_of_a_checkpoint_reach_the_terminal_as_escapes)
{
    write_tensors(folder_path("m.safetensors"), hostile, 12);
    expect_shown("weir checkpoint ls $T/m.safetensors");
    expect_says("\\x1b[31m ");
    expect_says("h0\\x0a12 tensors ");
    expect_says("\\u202ethgiew");
    expect_says("by p\\x1b[31m\\u009b,");
    expect_says("source s\\x1b[31m of rank 0");
    expect_shown("weir checkpoint ls --json $T/m.safetensors");
    cr_expect(json_valid(output), "%s", output);
    expect_says("\"\\u001B[31m\"");
    expect_shown("weir checkpoint verify $T/m.safetensors");
    expect_shown("weir checkpoint convert $T/m.safetensors $T/$(printf 'x\\033y') --all");
    expect_says("x\\x1by: 3 tensors");
    expect_shown("weir checkpoint ls $T");
    expect_says("x\\x1by");
    expect_shown("weir checkpoint ls $T --json");
    cr_expect(json_valid(output), "%s", output);
    expect_shown("weir checkpoint ls $T/$(printf 'x\\033y')");
}

Test(foreign_apps, paths_that_are_not_utf8_are_valid_json)
{
    write_tensors(folder_path("\xff\x1b.safetensors"), hostile, 12);
    expect_shown("weir checkpoint ls --json $T/*.safetensors");
    cr_expect(json_valid(output) && !json_count(output, "null"), "%s", output);
    expect_says("\\uFFFD\\u001B.safetensors");
}

Test(foreign_apps, sentences_about_strangers_names_are_one_line)
{
    write_tensors(folder_path("m.safetensors"),
                  "{\"a" TWO_LINES ESC "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4);
    expect_shown("weir checkpoint ls $T/m.safetensors");
    expect_says("tensor ah0\\x0a12 tensors\\x1b[31m: has 4 bytes");
    cr_expect_eq(json_count(output, "\n"), 1);
    expect_shown("weir checkpoint ls $T/$(printf 'no\\033ne')");
    expect_says("no\\x1bne");
    expect_shown("weir checkpoint $(printf '\\033c')");
    expect_says("there is no verb \"\\x1bc\"");
}

/* ---- plans ---- */

#define BAD "n\x1b[2J\xff\xe2\x80\xae\nx"

/* A plan in which nearly everything is called BAD. */
static weir_plan *hostile_plan(void)
{
    weir_graph *g = weir_graph_new(BAD);
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 2}, .name = BAD "x", .sbp = {WEIR_S(0)}, .micro = true);
    weir_tensor *y = weir_linear(x, 2, .name = BAD "l");
    weir_fetch(y, .name = BAD "y");
    weir_plan *plan = weir_compile(g, .micro_batches = 2);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

Test(foreign_apps, names_of_a_plan_reach_the_terminal_as_escapes)
{
    static const char *const commands[] = {
        "weir show $T/p", "weir show $T/p --tensors", "weir show $T/p --filter '*'", "weir show $T/p --device 'x'",
        "weir show $T/p --json", "weir show $T/p --tensors --json", "weir show $T/p --filter '*' --json",
        "weir show $T/p --ranks 2", "weir check $T/p", "weir run $T/p --steps 2 --made-up", "weir run $T/p --steps 2",
        "weir run $T/p --feed nothing=x", "weir show $T/p --dot $T/d && cat $T/d",
        "weir show $T/p --every --dot $T/d && cat $T/d",
    };
    weir_plan *plan = hostile_plan();
    cr_assert(!weir_plan_save(plan, folder_path("p")), "%s", weir_error());
    weir_plan_free(plan);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        expect_shown(commands[i]);
        if (strstr(commands[i], "--json"))
            cr_expect(json_valid(output), "%s: %s", commands[i], output);
        else if (!strstr(commands[i], "check") && !strstr(commands[i], "'x'") && !strstr(commands[i], "--ranks"))
            expect_says("n\\");
    }
    if (!system("command -v dot xmllint >/dev/null")) {
        must_run("weir show $T/p --svg $T/s.svg && xmllint --noout $T/s.svg");
        must_run("weir show $T/p --every --svg $T/s.svg && xmllint --noout $T/s.svg");
    }
}

Test(foreign_apps, a_trace_of_names_that_are_not_utf8_is_json)
{
    float x[8] = {0}, y[8];
    weir_plan *plan = hostile_plan();
    weir_session *s = weir_session_open(plan, .trace = folder_path("trace"));
    cr_assert(s, "%s", weir_error());
    cr_assert(!weir_session_start(s, 1));
    for (int i = 0; i < 2; i++)
        cr_assert(!weir_session_push(s, BAD "x", &(weir_array){x, WEIR_F32, {2, {4, 2}}}, -1), "%s", weir_error());
    for (int i = 0; i < 2; i++)
        cr_assert(!weir_session_pull(s, BAD "y", &(weir_array){y, WEIR_F32, {2, {4, 2}}}, -1), "%s", weir_error());
    cr_assert(!weir_session_close(s), "%s", weir_error());
    weir_plan_free(plan);
    char *text = json_read(folder_path("trace"));
    cr_expect(json_valid(text));
    cr_expect(strstr(text, "\\ufffd\\u202e\\u000a"), "%s", text);
    for (const char *at = text; *at;) {
        uint32_t code;
        at += foreign_next(at, &code);
        cr_assert(code == '\n' || !foreign_acts(code));
    }
    free(text);
}

/* ---- files that are none ---- */

/* The command fails at once, and says this. */
static void expect_refused(const char *command, const char *words)
{
    int status = run(command);
    cr_expect(status == 1 || status == 2, "%s: %d: %s", command, status, output);
    expect_says(words);
}

#define IS_FIFO "it is a FIFO, not a regular file"

Test(foreign_apps, a_fifo_in_the_place_of_a_file_is_refused_and_nobody_waits, .timeout = 60)
{
    char program[512];
    static const char *const commands[] = {
        "weir show $T/fifo", "weir check $T/fifo", "weir run $T/fifo", "weir checkpoint ls $T/fifo",
        "weir checkpoint verify $T/fifo", "weir checkpoint convert $T/fifo $T/out",
        "weir checkpoint ls $T/root/step-00000001", "weir checkpoint ls $T/root", "weir checkpoint verify $T/root",
        "weir launch -n 2 --key $T/fifo -- true", "%s/weir-words $T/fifo",
    };
    mkdir(folder_path("root"), 0777);
    mkdir(folder_path("root/step-00000001"), 0777);
    cr_assert(!mkfifo(folder_path("fifo"), 0600) && !mkfifo(folder_path("root/step-00000001/index.json"), 0600));
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        snprintf(program, sizeof program, commands[i], APPS_BIN);
        expect_refused(program, IS_FIFO);
    }
    cr_expect_null(weir_plan_load(folder_path("fifo")));
    cr_expect(strstr(weir_error(), IS_FIFO), "%s", weir_error());
    cr_expect_null(weir_checkpoint_open(folder_path("fifo")));
    cr_expect(strstr(weir_error(), IS_FIFO), "%s", weir_error());
    cr_expect_null(weir_plan_load("/dev/zero"));
    cr_expect(strstr(weir_error(), "it is a device, not a regular file"), "%s", weir_error());
    cr_expect_null(weir_plan_load("/tmp"));
    cr_expect(strstr(weir_error(), "it is a folder, not a regular file"), "%s", weir_error());
}

Test(foreign_apps, a_fifo_in_the_place_of_shards_is_refused, .timeout = 60)
{
    float value = 1;
    weir_checkpoint_writer *w = weir_checkpoint_create(folder_path("c"), .step = 1);
    weir_checkpoint_add(w, &(weir_checkpoint_value){.name = "a", .value = {&value, WEIR_F32, {1, {1}}}});
    cr_assert(!weir_checkpoint_finish(w), "%s", weir_error());
    must_run("rm $T/c/*.safetensors && mkfifo $T/c/rank-0000.safetensors");
    expect_refused("weir checkpoint verify $T/c", IS_FIFO);
    expect_refused("weir checkpoint convert $T/c $T/out", IS_FIFO);
    must_run("mkdir $T/n && mkfifo $T/n/a.npy && mkfifo $T/map");
    cr_expect_neq(run("weir checkpoint convert $T/n $T/out"), 0);
}

/* What is read from its beginning to its end may be a pipe, so there the first byte is waited for, but not for ever. */
Test(foreign_apps, a_fifo_that_nobody_writes_is_refused_after_a_while, .timeout = 60)
{
    write_tensors(folder_path("m.safetensors"), hostile, 12);
    cr_assert(!mkfifo(folder_path("fifo"), 0600));
    must_run("(" APPS_BIN "/weir-gpt --text $T/fifo; " "echo status $?) >$T/1 2>&1 & "
             "(" APPS_BIN "/weir-digits --data $T/fifo; echo status $?) >$T/2 2>&1 & "
             "weir checkpoint convert $T/m.safetensors $T/out --map $T/fifo >$T/3 2>&1; echo status $? >>$T/3; wait; "
             "cat $T/1 $T/2 $T/3");
    cr_expect_eq(json_count(output, "it is a FIFO that nobody writes to"), 3, "%s", output);
    cr_expect_eq(json_count(output, "status 0"), 0, "%s", output);
}

Test(foreign_apps, a_text_may_come_from_a_pipe, .timeout = 60)
{
    write_tensors(folder_path("m.safetensors"), hostile, 12);
    must_run("echo 'a = h0' >$T/map; cat $T/map | weir checkpoint convert $T/m.safetensors $T/out --map /dev/stdin "
             "|| true");
    expect_says("/dev/stdin:1: there is no tensor h0");
    must_run("yes 'to be or not to be' | head -500 | " APPS_BIN "/weir-gpt --text /dev/stdin --seq 16 --dim 16 --layers 1 "
             "--heads 2 --steps 1 --sample 0 --batch 2");
}
