/* tests/test_locale.c: numbers and texts of weir are those of the C locale in a program that calls setlocale().
 *
 * All that the library reads and writes as text is made twice, as files in a folder: once in the C locale, once in
 * another. The files are the same, byte for byte.
 */
#define _GNU_SOURCE
#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "graph/base/text.h"
#include "transport/meet/env.h"
#include "tests/support/folder.h"
#include "tests/support/json.h"
#include "tests/support/learner.h"
#include "tests/support/locales.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <locale.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/checkpoint.h>
#include <weir/weir.h>

TestSuite(locale, .init = folder_make, .fini = folder_remove, .timeout = 300);

#define assert_ok(call) cr_assert_eq(call, WEIR_OK, "%s: %s", #call, weir_error())

/* ---- what is written ---- */

static FILE *file_new(const char *folder, const char *name)
{
    FILE *file = fopen(folder_path("%s/%s", folder, name), "w");
    cr_assert_not_null(file, "no file %s/%s", folder, name);
    return file;
}

/* Each call makes a file by one of the library's functions that write to a stream. */
static void write_plan(const char *folder, const char *name, const weir_plan *plan)
{
    char text[256];
    const weir_list_opts lists[] = {{.size = sizeof lists[0], .tensors = true},
                                    {.size = sizeof lists[0], .tensors = true, .json = true},
                                    {.size = sizeof lists[0], .filter = "*[a-z]?ate*", .device = "cpu:[0-1]"}};
    cr_assert_not_null(plan, "%s: %s", name, weir_error());
    assert_ok(weir_plan_save(plan, folder_path("%s/%s.plan", folder, name)));
    FILE *file = file_new(folder, name);
    assert_ok(weir_plan_show(plan, file));
    assert_ok(weir_plan_picture(plan, file));
    assert_ok(weir_plan_dot(plan, file));
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        assert_ok(weir_plan_list_at(plan, file, &lists[l]));
    weir_plan_limited(plan, text, sizeof text);
    fprintf(file, "%s\n", text);
    fclose(file);
    snprintf(text, sizeof text, "%s.json", name);
    file = file_new(folder, text);
    assert_ok(weir_plan_json(plan, file));
    fclose(file);
    char *json = json_read(folder_path("%s/%s", folder, text));
    cr_expect(json_valid(json), "%s of %s is no JSON", text, folder);
    free(json);
}

static void write_plans(const char *folder)
{
    weir_plan *plans[] = {
        learner_plan(.dp = 2, .zero = true, .compile = {.memory = "1.5GiB", .link = "2.5Gbit 0.5ms"}),
        learner_plan(.pp = 2, .micro = 2, .compile = {.memory = "0.5 MB", .offload = "disk:/tmp", .precision = WEIR_F16,
                                                      .loss_scale = 1024.5}),
    };
    const char *const names[] = {"limited", "offloaded"};
    for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
        write_plan(folder, names[p], plans[p]);
        weir_plan_free(plans[p]);
    }
    weir_plan *loaded = weir_plan_load(folder_path("%s/limited.plan", folder));
    write_plan(folder, "loaded", loaded);
    weir_plan_free(loaded);
}

/* Sentences with numbers: of the model, of an op's rule, of the user's own, of the compiler's. */
static void write_errors(const char *folder)
{
    FILE *file = file_new(folder, "errors");
    for (int which = 0; which < 6; which++) {
        weir_graph *g = weir_graph_new("wrong");
        weir_tensor *x = weir_linear(weir_input(g, WEIR_F32, {4, 4}, .name = "x"), 4, .name = "y");
        if (which == 0)
            weir_train(weir_mean(x), weir_sgd(.lr = -0.25));
        if (which == 1)
            weir_dropout(x, 1.75);
        if (which == 2)
            weir_param(g, WEIR_F32, {4}, .name = "p", .init = WEIR_NORMAL(-1.5));
        if (which == 3)
            weir_mistake(x, WEIR_HERE, "mine is %.2f", 2.75);
        if (which == 4)
            weir_layernorm(x, .eps = -0.5);
        weir_fetch(weir_mean(x), .name = "mean");
        cr_expect_null(weir_compile(g, .memory = which == 5 ? "1.5kB" : NULL));
        fprintf(file, "%s\n", weir_error());
        weir_graph_free(g);
    }
    fclose(file);
}

/* ---- what is read ---- */

/* A .safetensors file of another program's, with numbers that weir has no use for. */
static void read_foreign(const char *folder)
{
    static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1.5e-3},"
                                 "\"__metadata__\":{\"scale\":0.25}}";
    unsigned char bytes[8 + sizeof header - 1 + 4] = {sizeof header - 1};
    memcpy(bytes + 8, header, sizeof header - 1);
    folder_write(folder_path("%s/foreign.safetensors", folder), bytes, sizeof bytes);
    FILE *file = file_new(folder, "foreign");
    weir_checkpoint *c = weir_checkpoint_open(folder_path("%s/foreign.safetensors", folder));
    const char *error = weir_error(), *name = strstr(error, "foreign.");
    fprintf(file, "%s\n", c ? "is read" : name ? name : error);
    weir_checkpoint_close(c);
    fclose(file);
}

static void save_and_load(const char *folder)
{
    weir_plan *plan = learner_plan(.dp = 2);
    weir_session *s = weir_session_open(plan, .trace = folder_path("%s/trace", folder));
    cr_assert_not_null(s, "%s", weir_error());
    assert_ok(weir_session_run(s, 3));
    assert_ok(weir_session_save(s, folder_path("%s/saved", folder), .name = "one"));
    assert_ok(weir_session_run(s, 1));
    assert_ok(weir_session_load(s, folder_path("%s/saved/one", folder)));
    cr_expect_eq(weir_session_step(s), 3);
    assert_ok(weir_session_close(s));
    weir_plan_free(plan);
    char *trace = json_read(folder_path("%s/trace", folder));
    cr_expect(json_valid(trace), "the trace of %s is no JSON", folder);
    free(trace);
    weir_checkpoint *c = weir_checkpoint_open(folder_path("%s/saved/one", folder));
    cr_assert_not_null(c, "%s", weir_error());
    assert_ok(weir_checkpoint_verify(c, NULL, NULL));
    weir_checkpoint_close(c);
}

static void read_environment(const char *folder)
{
    static const char *const values[] = {"0.25", "0,25", "2"};
    FILE *file = file_new(folder, "environment");
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        struct cluster_env env;
        setenv("WEIR_STALL", values[v], 1);
        weir_status status = cluster_env_read(NULL, &env);
        fprintf(file, "%s: %d %s\n", values[v], status, status ? weir_error() : "");
    }
    unsetenv("WEIR_STALL");
    fclose(file);
}

/* ---- in every locale ---- */

static void make_all(const char *folder)
{
    cr_assert(mkdir(folder_path("%s", folder), 0700) == 0);
    write_plans(folder);
    write_errors(folder);
    read_foreign(folder);
    save_and_load(folder);
    read_environment(folder);
}

static void expect_same(const char *name, const char *folder)
{
    char command[4096];
    snprintf(command, sizeof command, "cmp %s %s", folder_path("C/%s", name), folder_path("%s/%s", folder, name));
    cr_expect(system(command) == 0, "%s differs in %s", name, folder);
}

Test(locale, everything_is_read_and_written_as_in_the_C_locale)
{
    static const char *const files[] = {"limited", "limited.plan", "limited.json", "offloaded", "offloaded.plan",
                                        "offloaded.json", "loaded", "loaded.plan", "loaded.json", "errors", "foreign",
                                        "environment", "saved/one/rank-0000.safetensors"};
    make_all("C");
    for (int l = 0; l < LOCALES; l++) {
        char folder[32];
        if (!locales_enter(l))
            continue;
        snprintf(folder, sizeof folder, "in-%s", locales[l].name);
        make_all(folder);
        cr_expect_str_eq(setlocale(LC_ALL, NULL), locales[l].name, "the program's locale is another");
        locales_leave();
        for (size_t f = 0; f < sizeof files / sizeof *files; f++)
            expect_same(files[f], folder);
    }
}

/* ---- the functions ---- */

Test(locale, a_call_leaves_the_threads_own_locale_as_it_was)
{
    char text[32], *end;
    for (int l = 0; l < LOCALES; l++) {
        if (!locales_enter(l))
            continue;
        locale_t own = newlocale(LC_ALL_MASK, locales[l].name, (locale_t)0);
        for (int thread = 0; thread < 2; thread++) { /* the process's, then one of the thread's own */
            if (thread)
                uselocale(own);
            const locale_t before = uselocale((locale_t)0);
            cr_expect_eq(text_print(text, sizeof text, "%.2f %g", 1234.5, 1e-7), 13);
            cr_expect_str_eq(text, "1234.50 1e-07");
            cr_expect_eq(number_read("1.5GiB", &end), 1.5);
            cr_expect_str_eq(end, "GiB");
            cr_expect_eq(number_read("1,5", &end), 1);
            cr_expect_str_eq(end, ",5");
            cr_expect(glob_fits("h[0-9]/?", "h1/q") && !glob_fits("?", "\xc3\xa4"));
            error_set(WEIR_E_IO, "%.1f", 0.5);
            cr_expect_str_eq(weir_error(), "0.5");
            cr_expect_eq(uselocale((locale_t)0), before);
        }
        uselocale(LC_GLOBAL_LOCALE);
        freelocale(own);
        locales_leave();
    }
}

Test(locale, letters_and_digits_are_those_of_ASCII)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for (int l = -1; l < LOCALES; l++) {
        if (l >= 0 && !locales_enter(l))
            continue;
        for (int c = 0; c < 256; c++) {
            cr_expect_eq(is_digit((char)c), c >= '0' && c <= '9');
            cr_expect_eq(is_alnum((char)c), c && c < 128 && strchr(letters, c));
        }
        locales_leave();
    }
}

/* A program may change its locale on one thread while weir writes on another. */
static void *write_numbers(void *stop)
{
    char text[32];
    bool same = true;
    while (!atomic_load((atomic_bool *)stop)) {
        text_print(text, sizeof text, "%.2f", 0.25);
        same &= !strcmp(text, "0.25") && number_read("0.25", NULL) == 0.25;
    }
    return same ? stop : NULL;
}

Test(locale, numbers_stay_the_same_while_another_thread_calls_setlocale)
{
    pthread_t thread;
    atomic_bool stop = false;
    void *same = NULL;
    if (!locales_enter(0))
        return;
    cr_assert(pthread_create(&thread, NULL, write_numbers, &stop) == 0);
    for (int i = 0; i < 2000; i++)
        setlocale(LC_ALL, i % 2 ? "C" : locales[0].name);
    atomic_store(&stop, true);
    pthread_join(thread, &same);
    cr_expect_not_null(same);
    locales_leave();
}

/* ---- the user's own code ---- */

static weir_status write_half(void *ctx, const weir_view *value, int64_t step, int micro)
{
    char *text = ctx;
    (void)value, (void)step, (void)micro;
    snprintf(text, 8, "%.1f", 0.5);
    return WEIR_OK;
}

static ssize_t count_points(void *ctx, const char *bytes, size_t count)
{
    char text[8];
    (void)bytes;
    snprintf(text, sizeof text, "%.1f", 0.5);
    *(int *)ctx += !strcmp(text, "0.5");
    return (ssize_t)count;
}

Test(locale, callbacks_and_streams_of_the_program_run_in_the_programs_locale)
{
    char said[8] = "";
    int points = 0;
    if (!locales_enter(0))
        return;
    weir_graph *g = weir_graph_new("own");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 4}, .name = "x", .source = write_half, .ctx = said);
    weir_fetch(weir_mean(weir_linear(x, 4, .name = "y")), .name = "mean", .sink = write_half, .ctx = said);
    weir_plan *plan = weir_compile(g, .memory = "1.5GiB");
    cr_assert_not_null(plan, "%s", weir_error());
    FILE *stream = fopencookie(&points, "w", (cookie_io_functions_t){.write = count_points});
    setvbuf(stream, NULL, _IONBF, 0);
    assert_ok(weir_plan_show(plan, stream));
    assert_ok(weir_plan_json(plan, stream));
    fclose(stream);
    cr_expect_eq(points, 0, "%d writes to the program's stream were in another locale", points);
    weir_session *s = weir_session_open(plan);
    assert_ok(weir_session_run(s, 1));
    assert_ok(weir_session_close(s));
    cr_expect_str_eq(said, "0,5");
    weir_plan_free(plan);
    weir_graph_free(g);
    locales_leave();
}
