/* tests/fuzz/fuzz_onnx.c: bytes that claim to be an ONNX file. A graph that is made of them, if it is small, is compiled. */
#define _GNU_SOURCE
#include "tests/fuzz/file.h"

#include <stdio.h>
#include <unistd.h>
#include <weir/weir.h>

const char *const fuzz_corpus = "tests/fuzz/corpus/onnx";

/* Sizes in the file may ask for gigabytes: a plan may not. */
static void compile(const weir_graph *graph)
{
    weir_plan *plan = weir_compile(graph, .memory = "cpu=64MiB");
    weir_plan_free(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    int fd = fuzz_file(data, size, path);
    if (fd < 0)
        return 0;
    weir_graph *graph = weir_graph_from_onnx(path, .fetch = true);
    if (graph)
        compile(graph);
    else if (!*weir_error())
        __builtin_trap();
    weir_graph_free(graph);
    close(fd);
    return 0;
}
