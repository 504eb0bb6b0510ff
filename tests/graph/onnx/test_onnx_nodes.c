/* The node tests of Debian's libonnx-testdata, where it is installed. Those that pass are listed in passing.txt, which only grows:
 * `make onnx` shows all of them, and what the others lack. */
#include "tests/support/onnx_case.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

Test(onnx_nodes, those_of_the_list_pass, .timeout = 300)
{
    FILE *list = fopen("tests/graph/onnx/passing.txt", "r");
    char name[256], folder[512], why[1024];
    int passed = 0;
    cr_assert(list);
    if (access(ONNX_CASES, R_OK))
        cr_skip_test("libonnx-testdata is not installed");
    while (fscanf(list, "%255s", name) == 1) {
        snprintf(folder, sizeof folder, "%s/%s", ONNX_CASES, name);
        const enum onnx_outcome outcome = onnx_case_run(folder, why, sizeof why);
        cr_expect_eq(outcome, ONNX_PASSED, "%s: %s", name, why);
        passed += outcome == ONNX_PASSED;
    }
    fclose(list);
    cr_expect_gt(passed, 0);
}
