/* library.cu: see the header. */
#include "kernels/cuda/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "graph/base/library.h"

static blas_calls calls;
static char trouble[256]; /* "": none */
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define TEXT(number) #number
#define LIBRARY(major) "libcublasLt.so." TEXT(major)

/* The two are weak: where a stand-in is linked, they are its own. The loader's own sentence names the library. */
extern "C" __attribute__((weak)) void *blas_open(char *why, size_t bytes)
{
    static const char *const names[] = {LIBRARY(CUBLAS_VER_MAJOR), "/usr/local/cuda/lib64/" LIBRARY(CUBLAS_VER_MAJOR)};
    void *library = nullptr;
    for (int i = 0; i < 2 && !library; i++)
        library = library_open(names[i], why, bytes);
    return library;
}

extern "C" __attribute__((weak)) void *blas_call(void *library, const char *name)
{
    return dlsym(library, name);
}

template <class F> static void find(void *library, const char *name, F *call)
{
    *call = library ? (F)blas_call(library, name) : nullptr;
    if (library && !*call)
        snprintf(trouble, sizeof trouble, "%s has no %s", LIBRARY(CUBLAS_VER_MAJOR), name);
}

static void fill()
{
    char why[160] = "";
    void *library = blas_open(why, sizeof why);
    if (!library)
        snprintf(trouble, sizeof trouble, "cuBLASLt, which products need, cannot be loaded: %s", why);
#define X(name) find(library, "cublasLt" #name, &calls.name);
    BLAS_CALLS(X)
#undef X
}

const blas_calls *blas_library(const weir_kernel_args *args)
{
    pthread_once(&once, fill);
    if (!*trouble)
        return &calls;
    if (args->error_bytes)
        snprintf(args->error, args->error_bytes, "%s", trouble);
    return nullptr;
}
