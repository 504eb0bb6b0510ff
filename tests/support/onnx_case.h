/* tests/support/onnx_case.h: one of the node tests that Debian's libonnx-testdata has: a folder with model.onnx and
 * test_data_set_0/input_0.pb, output_0.pb and so on. It imports the model, runs a step on the inputs and compares the outputs.
 *
 * Inputs on which sizes depend have to be known at import. If the importer says so, the case gives the values of all inputs but
 * the first one at import, and then of all of them.
 */
#ifndef TESTS_SUPPORT_ONNX_CASE_H
#define TESTS_SUPPORT_ONNX_CASE_H

#include <stddef.h>

#define ONNX_CASES "/usr/share/libonnx-testdata/data/node"

enum onnx_outcome {
    ONNX_PASSED,
    ONNX_REFUSED, /* the importer does not support it: `why` has its sentence */
    ONNX_FAILED   /* it does, and what comes out is wrong, or nothing comes out */
};

enum onnx_outcome onnx_case_run(const char *folder, char *why, size_t why_bytes);

#endif
