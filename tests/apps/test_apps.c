/* tests/apps/test_apps.c: the programs, run as a user runs them: their command lines, their logs, their plans. */
#define _GNU_SOURCE
#include "tests/support/effort.h"
#include "tests/support/json.h"

#include <criterion/criterion.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <weir/weir.h>

#define OUTPUT_BYTES (1 << 20)
#define TINY_GPT APPS_BIN "/weir-gpt --layers 2 --dim 16 --heads 2 --seq 16 --batch 8 --text README.md --sample 20"

static char folder[] = "/tmp/weir-apps-XXXXXX";

static void make_folder(void)
{
    cr_assert(mkdtemp(folder), "no folder for the test's files");
    setenv("TSAN_OPTIONS", "suppressions=tests/support/tsan.supp", 0);
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect(system(command) == 0);
}

TestSuite(apps, .init = make_folder, .fini = remove_folder, .timeout = 120);

/* Runs a shell command in the test's folder's name as $T; what it prints on stdout and stderr goes to `output`. */
static int run(const char *command, char output[OUTPUT_BYTES])
{
    setenv("T", folder, 1);
    FILE *pipe = popen(command, "r");
    cr_assert(pipe, "cannot run %s", command);
    size_t count = fread(output, 1, OUTPUT_BYTES - 1, pipe);
    output[count] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void must_run(const char *command, char output[OUTPUT_BYTES])
{
    int status = run(command, output);
    cr_assert(status == 0, "%s: status %d: %s", command, status, output);
}

static char *new_output(void)
{
    char *output = calloc(1, OUTPUT_BYTES);
    cr_assert(output);
    return output;
}

/* ---- command lines ---- */

/* The command must fail with this status, say this on stderr in one line, and print nothing else. */
static void refuses(const char *arguments, int status, const char *says)
{
    char command[1024], *output = new_output();
    snprintf(command, sizeof command, APPS_BIN "/%s 2>&1 >$T/out; status=$?; test -s $T/out && exit 99; exit $status",
             arguments);
    int got = run(command, output);
    cr_expect(got == status, "%s: status %d, not %d: %s", arguments, got, status, output);
    cr_expect(strstr(output, says), "%s: says \"%s\", not \"%s\"", arguments, output, says);
    char *end = strchr(output, '\n');
    cr_expect(end && !end[1], "%s: not one line: %s", arguments, output);
    free(output);
}

Test(apps, wrong_options_get_one_line_and_status_2)
{
    refuses("weir-gpt --dp 0", 2, "weir-gpt: --dp must be between 1 and 65536, not 0");
    refuses("weir-gpt --dp 1024 --tp 65 --batch 1024", 2, "--dp 1024 times --tp 65 times --pp 1 is more than 65536 devices");
    refuses("weir-gpt --steps 0", 2, "weir-gpt: --steps must be at least 1, not 0");
    refuses("weir-gpt --lr fast", 2, "--lr takes a number, not \"fast\"");
    refuses("weir-gpt --layers 1.5", 2, "--layers takes a whole number, not \"1.5\"");
    refuses("weir-gpt --layer 2", 2, "unknown option --layer (did you mean --layers?)");
    refuses("weir-gpt --steps", 2, "--steps needs a value");
    refuses("weir-gpt --seed -1", 2, "--seed takes a whole number from 0 up, not \"-1\"");
    refuses("weir-gpt --zero=yes", 2, "--zero takes no value");
    refuses("weir-gpt book.txt", 2, "takes no further argument, but got \"book.txt\"");
    refuses("weir-gpt --dim 10 --heads 3", 2, "--dim 10 cannot be cut into --heads 3 equal parts");
    refuses("weir-gpt --batch 16 --micro 3", 2, "--batch 16 cannot be cut into --micro 3 equal parts");
    refuses("weir-gpt --layers 2 --pp 3", 2, "--pp must be at most the number of layers, 2, not 3");
    refuses("weir-gpt --batch 4 --micro 4 --dp 2", 2, "a micro-batch of 1 rows is too small for --dp 2");
    refuses("weir-digits --dropout 1", 2, "--dropout must be between 0 and 0.99, not 1");
    refuses("weir", 2, "weir: needs a verb");
    refuses("weir fly", 2, "there is no verb \"fly\"");
    refuses("weir check", 2, "weir check: needs PLAN");
    refuses("weir keygen /nowhere/key", 2, "weir keygen: cannot write /nowhere/key: No such file or directory");
    refuses("weir bench nothing", 2, "there is no benchmark \"nothing\"");
    refuses("weir bench scale --pp 5", 2, "weir bench: --pp must be at most the number of layers, 4, not 5");
    refuses("weir bench gpt --dp 2", 2, "weir bench: --devices, --layers, --dp, --tp and --pp work only with scale");
    refuses("weir bench gpt --tcp", 2, "weir bench: --bytes, --shm and --tcp work only with link and allreduce");
    refuses("weir bench link --ranks 2", 2, "--ranks only with allreduce");
    refuses("weir bench link --shm --tcp", 2, "weir bench: --shm and --tcp do not work together; give one of them");
}

/* It must end with this status, and say so among what else it says. */
static void fails(const char *arguments, int status, const char *says)
{
    char command[1024], *output = new_output();
    snprintf(command, sizeof command, APPS_BIN "/%s 2>&1", arguments);
    int got = run(command, output);
    cr_expect(got == status, "%s: status %d, not %d: %s", arguments, got, status, output);
    cr_expect(strstr(output, says), "%s: says \"%s\", not \"%s\"", arguments, output, says);
    free(output);
}

Test(apps, a_loss_that_is_no_number_ends_training_with_an_error)
{
#define LOST "--layers 1 --dim 16 --heads 2 --seq 16 --batch 4 --text README.md --steps 300 --lr 100 --f16"
    fails("weir-gpt " LOST, 1, "is NaN; --check-finite names the op that first makes such a value");
    fails("weir-gpt " LOST " --check-finite", 1, "; its inputs are finite");
    fails("weir-digits --steps 2 --check-finite", 0, "2 steps in ");
}

/* The root of what comes in. */
static void save_root(void)
{
    char path[64];
    weir_graph *g = weir_graph_new("root");
    weir_fetch(weir_sqrt(weir_input(g, WEIR_F32, {2}, .name = "x"), .name = "root"), .name = "y");
    weir_plan *plan = weir_compile(g);
    snprintf(path, sizeof path, "%s/root", folder);
    cr_assert_eq(weir_plan_save(plan, path), WEIR_OK, "%s", weir_error());
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(apps, a_plan_that_is_run_may_be_asked_for_its_first_nan)
{
    char *output = new_output();
    save_root();
    must_run("printf '\\223NUMPY\\1\\0v\\0%-117s\\n' "
             "\"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }\" >$T/less.npy; "
             "for step in 0 1; do printf '\\0\\0\\200\\077\\0\\0\\200\\277'; done >>$T/less.npy",
             output); /* 1 and -1 */
    fails("weir run $T/root --steps 2 --feed x=$T/less.npy", 0, "step 1  y (mean)");
    fails("weir run $T/root --steps 2 --feed x=$T/less.npy --check-finite", 1,
          ": root (sqrt) failed on cpu:0 in step 0: output 0 is NaN at [1] of f32 [2]; its inputs are finite");
    free(output);
}

Test(apps, keygen_makes_another_secret_each_time_and_keeps_files_private)
{
    char *first = new_output(), *second = new_output();
    must_run(APPS_BIN "/weir keygen", first);
    must_run(APPS_BIN "/weir keygen", second);
    cr_expect(strlen(first) == WEIR_KEY_BYTES && strcmp(first, second) != 0, "%s%s", first, second);
    must_run("umask 0; " APPS_BIN "/weir keygen $T/key && stat -c %a $T/key && wc -c <$T/key", first);
    cr_expect_str_eq(first, "600\n41\n");
    cr_expect(run(APPS_BIN "/weir keygen $T/key 2>&1", first) == 2, "a key was overwritten");
    free(first), free(second);
}

Test(apps, files_that_cannot_be_read_or_written_get_one_line_and_status_2)
{
    refuses("weir-gpt --text /nowhere/book.txt", 2, "cannot read /nowhere/book.txt: No such file or directory");
    refuses("weir-gpt --text /tmp", 2, "weir-gpt: cannot read /tmp: it is a folder, not a regular file");
    refuses("weir-gpt --text /dev/null", 2, "weir-gpt: cannot read /dev/null: it is a device, not a regular file");
    refuses("weir-digits --data /nowhere.csv", 2, "weir-digits: cannot read /nowhere.csv: No such file or directory");
    refuses("weir-digits --data README.md", 2, "README.md:1: not 64 pixels (0..16) and a digit");
    refuses("weir-digits --log /nowhere/log", 2, "--log: cannot write /nowhere/log: No such file or directory");
    refuses("weir-digits --plan /nowhere/plan", 2, "--plan: cannot write /nowhere/plan: No such file or directory");
    refuses("weir check /nowhere", 2, "weir check: cannot read /nowhere: No such file or directory");
    refuses("weir show /dev/null", 2, "weir show: cannot read /dev/null: it is a device, not a regular file");
}

/* A file of these bytes, as printf takes them, must be refused so. */
static void place_refuses(const char *bytes, const char *says)
{
    char command[512], *output = new_output();
    snprintf(command, sizeof command, "printf '%s' >$T/blocks.csv", bytes);
    must_run(command, output);
    refuses("weir bench place $T/blocks.csv", 2, says);
    free(output);
}

Test(apps, bench_place_refuses_a_wrong_file_with_its_line)
{
    refuses("weir bench place", 2, "weir bench: place needs a FILE");
    refuses("weir bench gpt blocks.csv", 2, "weir bench: gpt takes no file");
    refuses("weir bench place /nowhere.csv", 2, "weir bench: cannot read /nowhere.csv: No such file or directory");
    refuses("weir bench place /tmp", 2, "weir bench: cannot read /tmp: it is a folder, not a regular file");
    refuses("weir bench place /dev/null", 2, "weir bench: cannot read /dev/null: it is a device, not a regular file");
    refuses("weir bench place README.md", 2, "README.md:1: the header is ");
    place_refuses("id,lower,upper,size\\na,0,1\\n", "blocks.csv:2: 3 columns, not the 4 of ");
    place_refuses("id,lower,upper,size\\na,0,1,2,3\\n", "blocks.csv:2: 5 columns, not the 4 of ");
    place_refuses("id,lower,upper,size\\na,0,1,2\\nb,0,x,2\\n", "blocks.csv:3: upper: \"x\" is not a whole number");
    place_refuses("id,lower,upper,size\\na,0,1,-2\\n", "blocks.csv:2: size: -2 is less than 0");
    place_refuses("id,lower,upper,size\\na,0,1,1.5\\n", "blocks.csv:2: size: \"1.5\" is not a whole number");
    place_refuses("id,lower,upper,size\\na,0,1,99999999999999999999\\n", "is more than 64 bits hold");
    place_refuses("id,lower,upper,size\\na,7,3,2\\n", "blocks.csv:2: block a ends at 3, before it begins at 7");
    place_refuses("id,lower,upper,size\\na,0,1,2\\nb,0,1,2\\na,3,4,5\\n", "blocks.csv:4: id: \"a\" stands on line 2 too");
    place_refuses("id,lower,upper,size\\n,0,1,2\\n", "blocks.csv:2: id: it is empty");
    place_refuses("id,lower,upper,size\\na,0,1,9000000000000000000\\nb,0,1,9000000000000000000\\n",
                  "blocks.csv:3: the sizes up to here are more than 64 bits hold");
}

Test(apps, a_memory_limit_that_cannot_be_met_gets_one_line_and_status_1)
{
    refuses("weir-digits --memory 100KiB", 1, "weir-digits: ");
}

Test(apps, help_lists_the_options)
{
    char *output = new_output();
    must_run(APPS_BIN "/weir-gpt --help", output);
    cr_expect(strstr(output, "--layers") && strstr(output, "--zero") && strstr(output, "--sample"), "%s", output);
    must_run(APPS_BIN "/weir-digits --help", output);
    cr_expect(strstr(output, "--data") && strstr(output, "--tp"), "%s", output);
    must_run(APPS_BIN "/weir --help", output);
    cr_expect(strstr(output, "show") && strstr(output, "bench"), "%s", output);
    must_run(APPS_BIN "/weir run --help", output);
    cr_expect(strstr(output, "--feed"), "%s", output);
    free(output);
}

/* ---- digits ---- */

/* Reads a log of `steps` steps to `loss`, checking every line; returns its summary line. */
static char *read_log(const char *name, const char *items, int steps, double *loss)
{
    char path[128], wanted[64], *line = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(wanted, sizeof wanted, "{\"step\": %%d, \"loss\": %%lf, \"seconds\": %%lf, \"%s_per_s\": %%lf}", items);
    FILE *file = fopen(path, "r");
    cr_assert(file, "no log %s", path);
    for (int i = 0; i < steps; i++) {
        int step = -1;
        double seconds = -1, rate = -1;
        cr_assert(getline(&line, &room, file) > 0, "%s ends at step %d", path, i);
        int read = sscanf(line, wanted, &step, &loss[i], &seconds, &rate);
        cr_assert(read == 4 && step == i && isfinite(loss[i]) && seconds >= 0 && rate > 0, "%s: %s", path, line);
    }
    do
        cr_assert(getline(&line, &room, file) > 0, "%s has no summary", path);
    while (!strncmp(line, "{\"steps\": ", 10)); /* what the program finds of it */
    cr_assert(!strncmp(line, "{\"summary\": true", 16), "%s: %s", path, line);
    fclose(file);
    return line;
}

Test(apps, digits_log_has_a_line_per_step_and_a_summary)
{
    char *output = new_output(), *summary;
    double loss[30];
    must_run(APPS_BIN "/weir-digits --steps 30 --log $T/log 2>&1", output);
    cr_expect(strstr(output, "step 30/30  loss "), "%s", output);
    cr_expect(strstr(output, "memory: planned "), "%s", output);
    cr_expect(strstr(output, "test accuracy "), "%s", output);
    summary = read_log("log", "samples", 30, loss);
    cr_expect(json_valid(summary), "%s", summary);
    cr_expect(loss[29] < loss[0], "loss went from %g to %g", loss[0], loss[29]);
    cr_expect(json_member(summary, "planned_bytes") == json_member(summary, "arena_bytes"), "%s", summary);
    cr_expect(json_member(summary, "peak_rss_bytes") > json_member(summary, "planned_bytes"), "%s", summary);
    cr_expect(json_member(summary, "seconds_per_step") > 0, "%s", summary);
    double busy = json_member(summary, "cpu:0"), accuracy = json_member(summary, "test_accuracy");
    cr_expect(busy > 0 && busy <= 1, "%s", summary);
    cr_expect(accuracy > 0.3 && accuracy <= 1, "%s", summary);
    free(summary);
    free(output);
}

/* With --conv the test reads averages, which the checkpoint has, and the rate falls to a half. */
Test(apps, digits_with_convolutions_are_tested_by_averages)
{
    char *output = new_output(), *summary;
    double loss[60];
    must_run(APPS_BIN "/weir-digits --conv --steps 60 --batch 64 --log $T/log --save $T/c 2>&1", output);
    summary = read_log("log", "samples", 60, loss);
    cr_expect(json_member(summary, "test_accuracy") > 0.5, "%s", summary);
    free(summary);
    must_run("sed -n 60p $T/log", output);
    cr_expect(json_member(output, "learning_rate") > 0.001 && json_member(output, "learning_rate") < 0.00101, "%s", output);
    must_run(APPS_BIN "/weir checkpoint ls $T/c/best", output);
    cr_expect(strstr(output, "conv0/weight.ema") && strstr(output, "h0/fc/bias.ema"), "%s", output);
    must_run(APPS_BIN "/weir-digits --conv --ema 0 --steps 2 --batch 8 --save $T/d 2>&1; " APPS_BIN "/weir checkpoint ls $T/d/best", output);
    cr_expect(!strstr(output, ".ema"), "%s", output);
    free(output);
}

/* The smallest limit that the program says would do. */
static unsigned long long smallest_limit(const char *command)
{
    static const char words[] = "The smallest limit that would do is ";
    char tight[256], *output = new_output();
    snprintf(tight, sizeof tight, APPS_BIN "/%s --memory 1KiB 2>&1", command);
    cr_expect(run(tight, output) == 1, "%s", output);
    const char *said = strstr(output, words);
    cr_assert(said, "%s", output);
    unsigned long long bytes = strtoull(said + strlen(words), NULL, 10);
    free(output);
    return bytes;
}

Test(apps, digits_learn_the_same_within_a_limit)
{
    static const char *const layout[] = {"", "--dp 2 --zero", "--pp 2 --micro 4"};
    char command[256], small[128], *output = new_output();
    double want[5], loss[5];
    for (size_t l = 0; l < sizeof layout / sizeof *layout; l++) {
        snprintf(small, sizeof small, "weir-digits --batch 512 --steps 5 %s", layout[l]);
        snprintf(command, sizeof command, APPS_BIN "/%s --log $T/whole 2>&1", small);
        must_run(command, output);
        cr_expect(!strstr(output, "kept to"), "%s", output);
        free(read_log("whole", "samples", 5, want));
        snprintf(command, sizeof command, APPS_BIN "/%s --memory %llu --log $T/small 2>&1", small, smallest_limit(small));
        must_run(command, output);
        cr_expect(strstr(output, "weir-digits: kept to "), "%s", output);
        free(read_log("small", "samples", 5, loss));
        for (int i = 0; i < 5; i++)
            cr_expect(loss[i] == want[i], "%s: step %d: %.9g and %.9g", layout[l], i, loss[i], want[i]);
    }
    free(output);
}

/* Sanitizers need several times the memory; a limit under them is the business of the test above. */
#if EFFORT(1, 0, 0)
/* Memory outside the plan is that of the program and the libraries: text, code, packed weights. */
static void gpt_keeps_a_limit(const char *precision)
{
    enum { OTHER = 64 << 20 };
    char gpt[128], command[256], *output = new_output();
    double want[2], loss[2];
    snprintf(gpt, sizeof gpt, "weir-gpt%s --layers 6 --dim 128 --batch 64 --steps 2 --sample 1 --validate LICENSE", precision);
    unsigned long long limit = smallest_limit(gpt);
    snprintf(command, sizeof command, APPS_BIN "/%s --log $T/whole 2>&1", gpt);
    must_run(command, output);
    char *whole = read_log("whole", "tokens", 2, want);
    snprintf(command, sizeof command, APPS_BIN "/%s --memory %llu --log $T/small 2>&1", gpt, limit);
    must_run(command, output);
    char *small = read_log("small", "tokens", 2, loss);
    cr_expect(loss[0] == want[0] && loss[1] == want[1], "%.9g %.9g", loss[0], loss[1]);
    cr_expect(json_member(small, "planned_bytes") <= (double)limit, "%s", small);
    cr_expect(json_member(small, "planned_bytes") < json_member(whole, "planned_bytes") / 2, "%s", small);
    cr_expect(json_member(small, "peak_rss_bytes") < (double)limit + OTHER, "%s", small);
    free(whole), free(small);
    free(output);
}

Test(apps, gpt_within_a_limit_takes_no_more_than_that)
{
    gpt_keeps_a_limit("");
}

Test(apps, gpt_in_bf16_within_a_limit_takes_no_more_than_that)
{
    gpt_keeps_a_limit(" --bf16");
}
#endif

static void digits_learn_the_same(const char *options, int steps)
{
    static const char *const layout[] = {"--dp 2", "--tp 2 --micro 2", "--dp 2 --tp 2 --pp 2 --micro 4 --zero"};
    char command[256], *output = new_output();
    double want[10], loss[10];
    snprintf(command, sizeof command, APPS_BIN "/weir-digits %s --steps %d --dropout 0 --log $T/one 2>&1", options, steps);
    must_run(command, output);
    free(read_log("one", "samples", steps, want));
    for (int l = 0; l < 3; l++) {
        snprintf(command, sizeof command, APPS_BIN "/weir-digits %s --steps %d --dropout 0 %s --log $T/log 2>&1", options, steps,
                 layout[l]);
        must_run(command, output);
        free(read_log("log", "samples", steps, loss));
        for (int i = 0; i < steps; i++)
            cr_expect(fabs(loss[i] - want[i]) < 1e-4 * want[i], "%s: step %d: %g, not %g", layout[l], i, loss[i],
                      want[i]);
    }
    free(output);
}

Test(apps, digits_learn_the_same_on_every_layout)
{
    digits_learn_the_same("", 10);
}

Test(apps, a_convolutional_net_learns_the_same_on_every_layout)
{
    digits_learn_the_same("--conv --dim 32 --batch 32", 5);
}

#if EFFORT(1, 0, 0)
Test(apps, digits_are_read_with_97_percent_accuracy)
{
    char *output = new_output();
    double percent = 0;
    must_run("cd / && \"$OLDPWD\"/" APPS_BIN "/weir-digits 2>/dev/null", output);
    cr_assert(sscanf(output, "test accuracy %lf %% of 360 images", &percent) == 1, "%s", output);
    cr_expect(percent >= 97, "%s", output);
    free(output);
}
#endif

/* ---- gpt and its plan ---- */

Test(apps, gpt_writes_the_same_text_again)
{
    char *first = new_output(), *second = new_output();
    must_run(TINY_GPT " --steps 5 --seed 3 2>/dev/null", first);
    must_run(TINY_GPT " --steps 5 --seed 3 2>/dev/null", second);
    cr_expect(!strncmp(first, "/* ", 3) && strlen(first) > 4 && first[strlen(first) - 1] == '\n', "%s", first);
    cr_expect(!strcmp(first, second), "%s and %s", first, second);
    free(first);
    free(second);
}

/* Reads the next line that does not tell of a step; its number of steps goes to `steps`. */
static double validation_loss(FILE *log, int *steps)
{
    char line[4096];
    double loss = NAN;
    while (fgets(line, sizeof line, log))
        if (sscanf(line, "{\"steps\": %d, \"validation_loss\": %lf}", steps, &loss) == 2)
            return loss;
    return NAN;
}

Test(apps, gpt_finds_its_loss_on_held_out_text_as_it_trains)
{
    char *output = new_output(), path[128];
    double loss[3];
    must_run(TINY_GPT " --steps 25 --eval-every 10 --log $T/log 2>&1", output);
    cr_expect(strstr(output, " held out; ") && strstr(output, "validation loss "), "%s", output);
    snprintf(path, sizeof path, "%s/log", folder);
    FILE *log = fopen(path, "r");
    cr_assert(log);
    for (int i = 0, steps = 0; i < 3; i++) {
        loss[i] = validation_loss(log, &steps);
        cr_expect_eq(steps, i < 2 ? 10 * (i + 1) : 25);
        cr_expect(loss[i] > 1 && loss[i] < 5.6 && (i == 0 || loss[i] < loss[i - 1]), "%g", loss[i]);
    }
    fclose(log);
    must_run("grep summary $T/log", output);
    cr_expect_eq(json_member(output, "validation_loss"), loss[2], "%s", output);

    must_run(TINY_GPT " --steps 5 --validate LICENSE --log $T/log 2>&1", output);
    cr_expect(strstr(output, "validation loss "), "%s", output);
    must_run("head -c 30 README.md >$T/short", output);
    must_run(APPS_BIN "/weir-gpt --seq 16 --text $T/short --steps 1 --sample 0 2>&1", output);
    cr_expect(!strstr(output, "validation loss"), "too short to hold something out: %s", output);
    refuses("weir-gpt --seq 16 --text $T/short --eval-every 1", 2, "too short to hold some of it out for --eval-every");
    refuses("weir-gpt --validate /nowhere", 2, "weir-gpt: cannot read /nowhere: No such file or directory");
    refuses("weir-gpt --validate /dev/null", 2, "weir-gpt: cannot read /dev/null: it is a device, not a regular file");
    free(output);
}

Test(apps, a_saved_plan_is_checked_shown_and_run_by_weir)
{
    char *output = new_output(), *again = new_output(), *summary;
    double loss[12];
    must_run(TINY_GPT " --dp 2 --micro 2 --steps 12 --plan $T/plan --log $T/log --trace $T/trace 2>&1", output);
    summary = read_log("log", "tokens", 12, loss);
    cr_expect(loss[11] < loss[0] - 0.1, "loss went from %g to %g", loss[0], loss[11]);
    cr_expect(json_member(summary, "cpu:1") > 0, "%s", summary);
    must_run("cat $T/trace", output);
    cr_expect(json_valid(output), "the trace is no JSON");

    must_run(APPS_BIN "/weir check $T/plan", output);
    cr_expect(strstr(output, "live"), "%s", output);
    must_run(APPS_BIN "/weir show $T/plan", output);
    cr_expect(strstr(output, "cpu:1") && strstr(output, "2 micro-batches"), "%s", output);
    must_run(APPS_BIN "/weir show --json $T/plan", output);
    cr_expect(json_valid(output), "the plan is no JSON");
    must_run(APPS_BIN "/weir show $T/plan --tensors --filter 'h1/*'", output);
    cr_expect(strstr(output, "h1/q/weight ") && strstr(output, "gpt.c:") && !strstr(output, "h0/"), "%s", output);
    must_run(APPS_BIN "/weir show $T/plan --json --device cpu:1", output);
    cr_expect(json_valid(output) && !strstr(output, "\"cpu:0\""), "%s", output);
    must_run(APPS_BIN "/weir show $T/plan --ranks 2", output);
    cr_expect(strstr(output, "receive slots") && strstr(output, "received in place"), "%s", output);
    must_run(APPS_BIN "/weir show $T/plan --ranks 2 --json", output);
    cr_expect(strstr(output, "\"rank\": 1, \"transfer_bytes\": ") && !strstr(output, "transfer_bytes\": 0"), "%s", output);
    cr_expect(!strstr(output, "send_bytes\": 0") && strstr(output, "\"in_place_bytes\": "), "%s", output);
    refuses("weir show $T/plan --ranks 1 --devices 1", 1, "but the last of 1 rank with 1 device");
    refuses("weir show $T/plan --filter nothing", 2, "weir show: no actor, and no kernel, there is called \"nothing\"");
    must_run(APPS_BIN "/weir show $T/plan --dot $T/dot --every && grep -c digraph $T/dot", output);
    must_run(APPS_BIN "/weir show $T/plan --svg $T/svg && cat $T/svg", output);
    cr_expect(strstr(output, "<svg") && strstr(output, "h0 .. h1") && strstr(output, "between devices"), "%s", output);
    must_run(TINY_GPT " --layers 4 --pp 4 --micro 4 --steps 1 --sample 0 --plan $T/four >/dev/null && " APPS_BIN "/weir show $T/four --svg $T/svg && "
             "grep -o 'x=\"[0-9.]*\"[^>]*>stage [0-9]' $T/svg | sort -t'\"' -k2 -n | grep -o '[0-9]$' | tr -d '\\n'", output);
    cr_expect(!strcmp(output, "1234"), "stages from left to right: %s", output);
    cr_expect(run("PATH=/nowhere " APPS_BIN "/weir show $T/plan --svg $T/svg 2>&1", output) == 1);
    cr_expect(strstr(output, "--svg: cannot run dot, which is of the Debian package graphviz: No such file"), "%s", output);
    refuses("weir show $T/plan --svg /nowhere/a.svg", 2, "--svg: cannot write /nowhere/a.svg: No such file or directory");

    must_run(APPS_BIN "/weir run $T/plan --made-up --steps 3 2>/dev/null", output);
    must_run(APPS_BIN "/weir run $T/plan --made-up --steps 3 --workers 1 2>/dev/null", again);
    cr_expect(strstr(output, "step 0  loss 5.5") && strstr(output, "step 2  loss "), "%s", output);
    cr_expect(!strcmp(output, again), "%s and %s", output, again);
    free(summary);
    free(again);
    free(output);
}

/* On one of several cores there is one worker where two devices would have two: it is said once. Nothing is said when
 * libgomp has bound the first thread, which takes no core away, or when the user has chosen. */
Test(apps, a_mask_that_takes_workers_away_is_told_in_one_line)
{
    char *output = new_output(), says[128];
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t mask;
    bool all = !sched_getaffinity(0, sizeof mask, &mask) && CPU_COUNT(&mask) == online;
    const char train[] = TINY_GPT " --dp 2 --steps 2 --pin --plan $T/masked 2>&1";
    const char *const quiet[] = {"OMP_PROC_BIND=true ", "taskset -c $core ", " --workers 2"};
    const char *const set = "core=$(taskset -pc $$ | sed 's/.*[ ,-]//'); ";
    char command[1024];
    snprintf(command, sizeof command, "%staskset -c $core %s", set, train);
    must_run(command, output);
    snprintf(says, sizeof says, "1 worker for 2 devices: this process may use 1 of %ld cores\n", online);
    cr_expect(json_count(output, says) == (online > 1), "%s", output);
    snprintf(command, sizeof command, "%staskset -c $core " APPS_BIN "/weir run $T/masked --made-up --steps 2 2>&1", set);
    must_run(command, output);
    cr_expect(json_count(output, says) == (online > 1), "%s", output);
    for (int i = all ? 0 : 1; i < 2; i++) {
        snprintf(command, sizeof command, "%s%s" APPS_BIN "/weir run $T/masked --made-up --steps 2%s 2>&1", set, quiet[i],
                 i ? quiet[2] : "");
        must_run(command, output);
        cr_expect(!strstr(output, "this process may use"), "%s", output);
    }
    free(output);
}

Test(apps, two_saved_plans_of_a_model_are_proven_to_compute_the_same)
{
    char *output = new_output();
    const char *const small = APPS_BIN "/weir-gpt --layers 1 --dim 16 --heads 2 --seq 16 --batch 4 --text LICENSE --sample 0 --steps 1 ";
    const char *const layouts[] = {"--plan $T/one", "--tp 2 --micro 2 --bf16 --plan $T/two", "--lr 0.5 --plan $T/other"};
    for (int i = 0; i < 3; i++) {
        char command[1024];
        snprintf(command, sizeof command, "%s%s 2>&1", small, layouts[i]);
        must_run(command, output);
    }
    must_run(APPS_BIN "/weir check $T/one --same-as $T/two --program main", output);
    cr_expect(strstr(output, "/one: computes the same as ") && strstr(output, "/two\n"), "%s", output);
    refuses("weir check $T/one --same-as $T/other --program main", 1, "gpt.c:");
    refuses("weir check $T/one --same-as $T/other --program main", 1, "is not the same in both plans after 1 step");
    refuses("weir check $T/one --same-as $T/two --program mian", 1, "the plan \"gpt\" has no program \"mian\"");
    refuses("weir check $T/one --program main", 2, "--program main: give it with --same-as PLAN");
    refuses("weir check $T/one --same-as /nowhere", 2, "cannot read /nowhere");
    refuses("weir check --local $T/one", 2, "--local: give it with --graph");
    free(output);
}

Test(apps, a_plan_that_was_damaged_gets_one_line_and_status_1)
{
    char *output = new_output();
    must_run(TINY_GPT " --steps 1 --sample 0 --plan $T/plan 2>&1", output);
    must_run("head -c 1000 $T/plan >$T/short", output);
    must_run("(head -c 2000 $T/plan; printf weir; tail -c +2005 $T/plan) >$T/changed", output);
    refuses("weir check $T/short", 1, "weir check: ");
    refuses("weir check $T/changed", 1, "weir check: ");
    refuses("weir run README.md", 1, "weir run: ");
    free(output);
}

/* ---- several ranks ---- */

static int count_text(const char *in, const char *text)
{
    int count = 0;
    for (const char *at = in; (at = strstr(at, text)); at += strlen(text))
        count++;
    return count;
}

static void expect_count(const char *output, const char *text, int count)
{
    cr_expect(count_text(output, text) == count, "\"%s\" is there %d times, not %d: %s", text, count_text(output, text),
              count, output);
}

Test(apps, of_several_ranks_one_speaks)
{
    char *output = new_output();
    must_run(APPS_BIN "/weir launch -n 2 -- " TINY_GPT " --dp 2 --steps 3 --plan $T/plan --log $T/log "
             "--trace $T/t.json 2>&1", output);
    expect_count(output, "weir-gpt: 1 file", 1);
    expect_count(output, "step 3/3", 1);
    expect_count(output, "3 steps in", 1);
    expect_count(output, "[0] /* ", 1);
    expect_count(output, "[1] ", 0);
    must_run("wc -l <$T/log; ls $T", output);
    cr_expect_str_eq(output, "5\nlog\nplan\nt.rank0.json\nt.rank1.json\n");
    must_run(APPS_BIN "/weir launch -n 2 -- " APPS_BIN "/weir run $T/plan --made-up --steps 2 2>&1", output);
    expect_count(output, "step 0  loss", 1);
    expect_count(output, "step 1  loss", 1);
    expect_count(output, "2 steps in", 1);
    must_run(APPS_BIN "/weir run $T/plan --made-up --steps 2 2>/dev/null | sort >$T/alone; for n in 1 2 3; do " APPS_BIN
             "/weir launch --no-prefix -n $n -- " APPS_BIN "/weir run $T/plan --made-up --steps 2 2>/dev/null | sort | "
             "cmp - $T/alone || exit 1; done; wc -l <$T/alone", output);
    cr_expect_str_eq(output, "2\n");
    must_run(APPS_BIN "/weir launch -n 3 -- " TINY_GPT " --dp 2 --steps 1 2>&1", output);
    expect_count(output, "[0] step 1/1", 1);
    expect_count(output, "[2] ", 0);
    must_run(APPS_BIN "/weir launch -n 2 -- sh -c 'exec " APPS_BIN "/weir run $([ $RANK = 0 ] && echo $T/plan || "
             "echo /nowhere) --made-up --steps 1' 2>&1", output);
    expect_count(output, "[0] step 0  loss", 1);
    cr_expect(run(APPS_BIN "/weir launch -n 2 --liveness 0.1 -- " APPS_BIN "/weir run /nowhere 2>&1", output) == 2);
    expect_count(output, "cannot read /nowhere", 1);
    cr_expect(run(APPS_BIN "/weir launch -n 2 --liveness 0.1 -- " APPS_BIN "/weir run $T/plan --feed nothing=README.md "
                  "2>&1", output) == 2);
    cr_expect(strstr(output, "weir run: --feed: \"nothing\" is no input"), "%s", output);
    free(output);
}

/* ---- the example ---- */

static char *read_whole(const char *path)
{
    char *content = new_output();
    FILE *file = fopen(path, "r");
    cr_assert(file, "cannot read %s", path);
    size_t count = fread(content, 1, OUTPUT_BYTES - 1, file);
    content[count] = '\0';
    fclose(file);
    return content;
}

Test(apps, the_example_works_and_is_the_one_in_the_readme)
{
    char *output = new_output(), *readme = read_whole("README.md"), *example = read_whole("apps/examples/ten_lines.c");
    must_run(APPS_BIN "/ten_lines", output);
    cr_expect(!strcmp(output, "two devices learned that y = 3.000 x + ...\n"), "%s", output);
    cr_expect(strstr(readme, example), "README.md does not show apps/examples/ten_lines.c as it is");
    free(example);
    free(readme);
    free(output);
}

/* More lines than the plan has room for, in two pieces. */
Test(apps, the_event_loop_takes_lines_and_gives_their_values)
{
    char *output = new_output();
    must_run("{ printf '1\\n2\\n3\\n4\\n5\\n6\\n'; sleep 0.1; printf '7\\n8\\n'; } | " APPS_BIN "/event_loop", output);
    cr_expect(!strcmp(output, "3.5\n6.5\n9.5\n12.5\n15.5\n18.5\n21.5\n24.5\n"), "%s", output);
    free(output);
}
