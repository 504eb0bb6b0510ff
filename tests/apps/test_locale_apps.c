/* tests/apps/test_locale_apps.c: programs read and write numbers as in the C locale, though a library that is loaded
 * with them calls setlocale(). */
#define _GNU_SOURCE
#include "tests/apps/shell.h"

#include <string.h>
#include <weir/weir.h>

#include "tests/support/json.h"
#include "tests/support/locales.h"

TestSuite(locale_apps, .init = folder_make, .fini = folder_remove, .timeout = 300);

/* Sanitizers want to be loaded before all others. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

/* Makes $T/set.so, which puts the program into the locale of the environment before main(). */
static bool make_library(void)
{
    if (!locales_enter(0))
        return false;
    locales_leave();
    must_run("echo '#include <locale.h>\n"
             "__attribute__((constructor)) static void set(void) { setlocale(LC_ALL, \"\"); }' >$T/set.c && "
             "cc -shared -fPIC $T/set.c -o $T/set.so");
    return true;
}

static char *said_by(const char *before, const char *command)
{
    char all[2048];
    snprintf(all, sizeof all, "%s %s", before, command);
    int status = run(all);
    cr_expect_eq(status, 0, "%s: %s", all, output);
    return strdup(output);
}

static void expect_same(const char *command)
{
    char *usual = said_by("LC_ALL=C", command), *other = said_by("LD_PRELOAD=$T/set.so LC_ALL=de_DE.UTF-8", command);
    cr_expect(*usual, "%s says nothing", command);
    cr_expect_str_eq(other, usual, "%s says, in de_DE:\n%s\nand in C:\n%s", command, other, usual);
    free(usual);
    free(other);
}

static void make_plan(void)
{
    weir_graph *g = weir_graph_new("halves");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {8, 4}, .name = "x", .sbp = {WEIR_S(0)});
    weir_tensor *loss = weir_mean(weir_linear(x, 4, .name = "y"));
    weir_train(loss, weir_adamw(.lr = 0.05));
    weir_fetch(loss, .name = "loss");
    weir_plan *plan = weir_compile(g, .memory = "1.5MiB");
    cr_assert(plan && !weir_plan_save(plan, folder_path("p")), "%s", weir_error());
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(locale_apps, programs_have_points_in_numbers_whatever_a_preloaded_library_set)
{
    if (!make_library())
        return;
    make_plan();
    expect_same(APPS_BIN "/weir show $T/p");
    expect_same(APPS_BIN "/weir show $T/p --json");
    expect_same(APPS_BIN "/weir show $T/p --tensors");
    expect_same(APPS_BIN "/weir run $T/p --steps 2 --made-up 2>/dev/null");
    expect_same(APPS_BIN "/weir-digits --help");
    expect_same(APPS_BIN "/weir launch -n 1 --liveness 0.75 -- sh -c 'echo $WEIR_LIVENESS'");
    must_run("LD_PRELOAD=$T/set.so LC_ALL=de_DE.UTF-8 " APPS_BIN "/weir-digits --steps 3 --lr 0.05 --log $T/log "
             "--trace $T/trace && sed 's/$/,/; 1s/^/[/; $s/,$/]/' $T/log >$T/log.json");
    const char *const files[] = {"log.json", "trace"};
    for (int f = 0; f < 2; f++) {
        char *text = json_read(folder_path("%s", files[f]));
        cr_expect(json_valid(text), "%s is no JSON:\n%.400s", files[f], text);
        free(text);
    }
    cr_expect_null(strstr(output, ",0"), "%s", output);
}

#else
Test(locale_apps, programs_are_tried_without_sanitizers)
{
    cr_expect(true);
}
#endif
