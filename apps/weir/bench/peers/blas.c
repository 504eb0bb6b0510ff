/* apps/weir/bench/peers/blas.c: see the header. */
#include "apps/weir/bench/peers/blas.h"

#include <dlfcn.h>
#include <stdbool.h>

#include "graph/base/error.h"
#include "graph/base/library.h"

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define ONEDNN_MAJOR TEXT(DNNL_VERSION_MAJOR) /* whose structures these are */

static blas_calls calls;
static bool loaded;

static void *open_one(const char *title, const char *name, const char *package)
{
    char why[256];
    void *library = library_open(name, why, sizeof why);
    if (!library)
        error_set(WEIR_E_UNSUPPORTED, "gpt compares with %s, which cannot be loaded: %s; Debian's package %s has it", title, why,
                  package);
    return library;
}

static bool find(void *library, const char *title, const char *name, void *call)
{
    *(void **)call = dlsym(library, name);
    if (!*(void **)call)
        error_set(WEIR_E_UNSUPPORTED, "gpt compares with %s, which has no function %s() here", title, name);
    return *(void **)call;
}

const blas_calls *blas_load(void)
{
    static const char openblas[] = "OpenBLAS", onednn[] = "oneDNN";
    if (loaded)
        return &calls;
    void *blas = open_one(openblas, "libopenblas.so.0", "libopenblas0");
    void *dnnl = blas ? open_one(onednn, "libdnnl.so." ONEDNN_MAJOR, "libdnnl" ONEDNN_MAJOR) : NULL;
    bool all = blas && dnnl;
#define X(name) all = all && find(blas, openblas, #name, &calls.name);
    BLAS_OPENBLAS(X)
#undef X
#define X(name) all = all && find(dnnl, onednn, #name, &calls.name);
    BLAS_ONEDNN(X)
#undef X
    if (all)
        *(void **)&calls.omp_set_num_threads = dlsym(dnnl, "omp_set_num_threads"); /* in what it rests on */
    loaded = all;
    return all ? &calls : NULL;
}
