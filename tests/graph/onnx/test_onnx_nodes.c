/* The node tests of Debian's libonnx-testdata, where it is installed. passing.txt lists those that pass; the list only grows. The
 * importer refuses all others: none may give a wrong result. `make onnx` prints the sums, and what is not supported;
 * WEIR_TEST_WRITE=1 writes the list. */
#include "tests/support/onnx_case.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIST "tests/graph/onnx/passing.txt"

enum { CASES_MAX = 2000 };

static char *listed[CASES_MAX]; /* owned */
static int listed_count, counts[3];

static void read_list(void)
{
    char name[256];
    FILE *list = fopen(LIST, "r");
    cr_assert(list, "%s is not there", LIST);
    while (listed_count < CASES_MAX && fscanf(list, "%255s", name) == 1)
        listed[listed_count++] = strdup(name);
    fclose(list);
}

static bool is_listed(const char *name)
{
    for (int i = 0; i < listed_count; i++)
        if (!strcmp(listed[i], name))
            return true;
    return false;
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* "these operators are not supported: Loop (1: node 3 )" -> the operators, without what comes before. */
static const char *in_short(const char *why)
{
    const char *colon = strstr(why, "supported: ");
    return colon ? colon + strlen("supported: ") : why;
}

static void try_case(const char *name, FILE *write)
{
    char folder[512], why[1024] = "";
    snprintf(folder, sizeof folder, "%s/%s", ONNX_CASES, name);
    const enum onnx_outcome outcome = onnx_case_run(folder, why, sizeof why);
    counts[outcome]++;
    if (outcome == ONNX_PASSED && write)
        fprintf(write, "%s\n", name);
    if (outcome == ONNX_REFUSED && getenv("WEIR_TEST_TELL"))
        fprintf(stderr, "%s: %s\n", name, in_short(why));
    cr_expect_neq(outcome, ONNX_FAILED, "%s: %s", name, why);
    if (is_listed(name) && !write)
        cr_expect_eq(outcome, ONNX_PASSED, "%s: %s", name, why);
}

Test(onnx_nodes, those_of_the_list_pass_and_the_others_are_refused, .timeout = 300)
{
    struct dirent **cases;
    const int count = scandir(ONNX_CASES, &cases, visible, alphasort);
    if (count < 0)
        cr_skip_test("libonnx-testdata is not installed");
    read_list();
    FILE *write = getenv("WEIR_TEST_WRITE") ? fopen(LIST, "w") : NULL;
    for (int i = 0; i < count; i++) {
        try_case(cases[i]->d_name, write);
        free(cases[i]);
    }
    free(cases);
    if (write)
        fclose(write);
    for (int i = 0; i < listed_count; i++)
        free(listed[i]);
    fprintf(stderr, "%d passed, %d unsupported, %d failed\n", counts[ONNX_PASSED], counts[ONNX_REFUSED], counts[ONNX_FAILED]);
    cr_expect_geq(counts[ONNX_PASSED], listed_count);
}
