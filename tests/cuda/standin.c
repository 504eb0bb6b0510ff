/* tests/cuda/standin.c: the stand-in's calls for cards, memory and errors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/emulated.h"
#include "tests/cuda/standin_cudnn.h"
#include "tests/cuda/standin_inside.h"

struct standin standin = {.lock = PTHREAD_MUTEX_INITIALIZER,
                          .work = PTHREAD_COND_INITIALIZER,
                          .rest = PTHREAD_COND_INITIALIZER};
_Thread_local cudaError_t standin_error, standin_last;
_Thread_local int standin_card;
static _Thread_local bool has_card; /* or else it is the first */

/* ---- what it is ---- */

static int told(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

static int cards(void)
{
    int count = standin.is.cards ? standin.is.cards : told("STANDIN_CARDS", 1);
    return count < 0 ? 0 : count;
}

static uint64_t memory_bytes(void)
{
    return standin.is.bytes ? standin.is.bytes : UINT64_C(8000000000);
}

void standin_set(const standin_options *options)
{
    pthread_mutex_lock(&standin.lock);
    standin.is = options ? *options : (standin_options){0};
    standin.random = standin.is.seed ? standin.is.seed : (uint64_t)told("STANDIN_SEED", 1);
    standin.seen.calls = standin.seen.nccl_calls = standin.seen.blas_calls = standin.seen.ways = standin.seen.runs = 0;
    standin.seen.cudnn_calls = standin.seen.cudnn_runs = standin.seen.cudnn_plans = 0;
    standin.seen.failed[0] = 0;
    standin.sticky = cudaSuccess;
    pthread_mutex_unlock(&standin.lock);
}

standin_seen standin_look(void)
{
    pthread_mutex_lock(&standin.lock);
    standin_seen seen = standin.seen;
    pthread_mutex_unlock(&standin.lock);
    return seen;
}

void standin_misuse(const char *what)
{
    if (!standin.seen.misuses++)
        snprintf(standin.seen.misuse, sizeof standin.seen.misuse, "%s", what);
}

/* ---- errors ---- */

/* Calls that open no context. */
static bool needs_card(const char *name)
{
    static const char *const not[] = {"cudaSetDevice", "cudaGetDevice", "cudaGetDeviceCount", "cudaGetDeviceProperties",
                                      "cudaDriverGetVersion", "cudaRuntimeGetVersion", "cudaDeviceCanAccessPeer",
                                      "cudaDeviceGetP2PAttribute", "cudaGetDriverEntryPointByVersion"};
    for (size_t i = 0; i < sizeof not / sizeof *not; i++)
        if (!strcmp(name, not[i]))
            return false;
    return !strncmp(name, "cuda", 4);
}

bool standin_enter(const char *name)
{
    pthread_mutex_lock(&standin.lock);
    if (!has_card && cards() > 1 && needs_card(name)) {
        char what[STANDIN_TEXT];
        snprintf(what, sizeof what, "%s on a thread that has no card opens a context on the first", name);
        standin_misuse(what);
    }
    standin_error = standin.sticky;
    if (++standin.seen.calls == standin.is.fail_call) {
        standin_error = standin.is.fail_with ? (cudaError_t)standin.is.fail_with : cudaErrorUnknown;
        snprintf(standin.seen.failed, sizeof standin.seen.failed, "%s", name);
    }
    return !standin_error;
}

cudaError_t standin_leave(cudaError_t error)
{
    pthread_mutex_unlock(&standin.lock);
    if (error)
        standin_last = error;
    return error;
}

bool standin_blas_call(const char *name)
{
    pthread_mutex_lock(&standin.lock);
    bool fails = ++standin.seen.blas_calls == standin.is.fail_blas;
    if (fails)
        snprintf(standin.seen.failed, sizeof standin.seen.failed, "cublasLt: %s", name);
    pthread_mutex_unlock(&standin.lock);
    return !fails;
}

bool standin_blas_has(bool plain, bool sums)
{
    pthread_mutex_lock(&standin.lock);
    bool has = !standin.is.no_products && (plain || !standin.is.no_epilogues);
    standin.seen.ways++;
    standin.seen.sums += sums;
    pthread_mutex_unlock(&standin.lock);
    return has;
}

bool standin_blas_refuses(void)
{
    pthread_mutex_lock(&standin.lock);
    bool refuses = standin.is.refuses_epilogues;
    pthread_mutex_unlock(&standin.lock);
    return refuses;
}

void standin_blas_made(int by)
{
    pthread_mutex_lock(&standin.lock);
    standin.seen.descriptors += (uint64_t)by;
    pthread_mutex_unlock(&standin.lock);
}

#define ENTER()                     \
    if (!standin_enter(__func__))   \
    return standin_leave(standin_error)

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = cudaPeekAtLastError();
    standin_last = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    pthread_mutex_lock(&standin.lock);
    cudaError_t error = standin.sticky ? standin.sticky : standin_last;
    pthread_mutex_unlock(&standin.lock);
    return error;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {{cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
              {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
              {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
              {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
              {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
              {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
              {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
              {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
               "CUDA driver version is insufficient for CUDA runtime version"},
              {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"}};

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return errors[i].text;
    return error ? "an error that the stand-in has no words for" : "no error";
}

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return errors[i].name;
    return error ? "cudaErrorOther" : "cudaSuccess";
}

/* ---- cards ---- */

cudaError_t cudaDriverGetVersion(int *version)
{
    ENTER();
    *version = standin.is.no_driver ? 0 : standin.is.driver ? standin.is.driver : CUDART_VERSION;
    return standin_leave(cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    ENTER();
    *version = CUDART_VERSION;
    return standin_leave(cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    ENTER();
    *count = cards();
    if (standin.is.no_driver || (standin.is.driver && standin.is.driver < CUDART_VERSION / 1000 * 1000))
        return standin_leave(cudaErrorInsufficientDriver);
    return standin_leave(*count ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *is, int card)
{
    ENTER();
    if (card >= cards())
        return standin_leave(cudaErrorInvalidDevice);
    int arch = standin.is.arch ? standin.is.arch : 90;
    *is = (struct cudaDeviceProp){.totalGlobalMem = memory_bytes(), .major = arch / 10, .minor = arch % 10,
                                  .pciBusID = 16 + card, .multiProcessorCount = 2, .warpSize = 32, .l2CacheSize = 1 << 20};
    snprintf(is->name, sizeof is->name, "stand-in");
    return standin_leave(cudaSuccess);
}

cudaError_t cudaSetDevice(int card)
{
    ENTER();
    if (card < 0 || card >= cards())
        return standin_leave(cudaErrorInvalidDevice);
    standin_card = card;
    has_card = true;
    return standin_leave(cudaSuccess);
}

cudaError_t cudaGetDevice(int *card)
{
    ENTER();
    *card = standin_card;
    return standin_leave(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *bytes)
{
    ENTER();
    *bytes = memory_bytes();
    *free_bytes = *bytes > standin.seen.bytes ? *bytes - standin.seen.bytes : 0;
    return standin_leave(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int card, int peer)
{
    ENTER();
    *can = card != peer && !standin.is.no_peers;
    return standin_leave(cudaSuccess);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    ENTER();
    (void)flags;
    return standin_leave(peer == standin_card || standin.is.no_peers ? cudaErrorInvalidDevice : cudaSuccess);
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int from, int to)
{
    ENTER();
    *value = attribute == cudaDevP2PAttrNativeAtomicSupported && from != to && !standin.is.no_peers;
    return standin_leave(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER();
    *least = 0;
    *greatest = -5;
    return standin_leave(cudaSuccess);
}

/* ---- memory ---- */

/* Whether all of it lies in one thing, or none of it in any. */
bool standin_owns(const void *at, size_t bytes)
{
    const char *from = at;
    for (const struct memory *m = standin.memory; m; m = m->next) {
        const char *first = m->at;
        if (m->card >= 0 && from < first + m->bytes && from + bytes > first)
            return from >= first && from + bytes <= first + m->bytes;
    }
    return true;
}

static cudaError_t give(void **made, size_t bytes, int card)
{
    struct memory *memory = calloc(1, sizeof *memory);
    void *at = card == -2 ? *made : NULL;
    bool room = card < 0 || standin.seen.bytes + bytes <= memory_bytes();
    if (!memory || !room || (card != -2 && posix_memalign(&at, 512, bytes))) {
        free(memory);
        return cudaErrorMemoryAllocation;
    }
    if (card != -2)
        memset(at, 0xff, bytes);
    *memory = (struct memory){standin.memory, at, bytes, card};
    standin.memory = memory;
    standin.seen.bytes += card >= 0 ? bytes : 0;
    *(card >= 0 ? &standin.seen.spaces : card == -1 ? &standin.seen.pinned : &standin.seen.registered) += 1;
    *made = at;
    return cudaSuccess;
}

static cudaError_t take_back(void *at, int most, int least)
{
    struct memory **link = &standin.memory;
    while (*link && ((*link)->at != at || (*link)->card > most || (*link)->card < least))
        link = &(*link)->next;
    struct memory *memory = *link;
    if (!memory) {
        standin_misuse("memory is given back that was not given");
        return cudaErrorInvalidValue;
    }
    *link = memory->next;
    standin.seen.bytes -= memory->card >= 0 ? memory->bytes : 0;
    *(memory->card >= 0 ? &standin.seen.spaces : memory->card == -1 ? &standin.seen.pinned : &standin.seen.registered) -= 1;
    if (memory->card != -2)
        free(memory->at);
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **made, size_t bytes)
{
    ENTER();
    return standin_leave(give(made, bytes, standin_card));
}

cudaError_t cudaHostAlloc(void **made, size_t bytes, unsigned flags)
{
    ENTER();
    (void)flags;
    return standin_leave(give(made, bytes, -1));
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags)
{
    ENTER();
    (void)flags;
    return standin_leave(give(&at, bytes, -2));
}

/* A call that frees does so whatever it returns; and waits for all enqueued work. */
static cudaError_t give_back(const char *name, void *at, int most, int least)
{
    standin_enter(name);
    cudaError_t error = standin_error;
    standin_rest(NULL);
    cudaError_t mine = at ? take_back(at, most, least) : cudaSuccess;
    return standin_leave(error ? error : mine);
}

cudaError_t cudaFree(void *at)
{
    return give_back(__func__, at, STANDIN_CARDS, 0);
}

cudaError_t cudaFreeHost(void *at)
{
    return give_back(__func__, at, -1, -1);
}

cudaError_t cudaHostUnregister(void *at)
{
    return give_back(__func__, at, -2, -2);
}

cudaError_t cudaMemset(void *at, int byte, size_t bytes)
{
    ENTER();
    if (!standin_owns(at, bytes))
        standin_misuse("what is set is not all of one space");
    memset(at, byte, bytes);
    return standin_leave(cudaSuccess);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    ENTER();
    (void)kind;
    if (!standin_owns(to, bytes) || !standin_owns(from, bytes))
        standin_misuse("what is copied is not all of one space");
    memcpy(to, from, bytes);
    standin.seen.copies++;
    return standin_leave(cudaSuccess);
}

/* ---- cuDNN: what its stand-in (C++) has here ---- */

int standin_cudnn_version(void)
{
    pthread_mutex_lock(&standin.lock);
    int version = standin.is.cudnn ? standin.is.cudnn : told("STANDIN_CUDNN", 0);
    pthread_mutex_unlock(&standin.lock);
    return version < 0 ? 0 : version;
}

int standin_cudnn_major(void)
{
    pthread_mutex_lock(&standin.lock);
    int arch = standin.is.arch ? standin.is.arch : 90;
    pthread_mutex_unlock(&standin.lock);
    return arch / 10;
}

int standin_cudnn_enter(const char *name)
{
    pthread_mutex_lock(&standin.lock);
    int status = 0;
    if (++standin.seen.cudnn_calls == standin.is.fail_cudnn) {
        snprintf(standin.seen.failed, sizeof standin.seen.failed, "%s", name);
        status = standin.is.fail_cudnn_with ? standin.is.fail_cudnn_with : STANDIN_CUDNN_FAILED;
    }
    pthread_mutex_unlock(&standin.lock);
    return status;
}

int64_t standin_cudnn_more(void)
{
    pthread_mutex_lock(&standin.lock);
    int64_t more = standin.is.cudnn_more;
    pthread_mutex_unlock(&standin.lock);
    return more;
}

void standin_cudnn_planned(void)
{
    pthread_mutex_lock(&standin.lock);
    standin.seen.cudnn_plans++;
    pthread_mutex_unlock(&standin.lock);
}

void standin_cudnn_touches(const void *at, int64_t bytes)
{
    pthread_mutex_lock(&standin.lock);
    if (!standin_owns(at, (size_t)bytes))
        standin_misuse("what cuDNN is given is not all of one space");
    pthread_mutex_unlock(&standin.lock);
}

void standin_cudnn_count(int64_t more)
{
    pthread_mutex_lock(&standin.lock);
    standin.seen.cudnn_descriptors += more;
    pthread_mutex_unlock(&standin.lock);
}

void standin_cudnn_ran(int64_t engine)
{
    pthread_mutex_lock(&standin.lock);
    standin.seen.cudnn_runs++;
    standin.seen.cudnn_engine = engine;
    pthread_mutex_unlock(&standin.lock);
}
