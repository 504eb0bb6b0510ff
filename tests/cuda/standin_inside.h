/* tests/cuda/standin_inside.h: the parts of the stand-in among each other. Everything is under `standin.lock`, but
 * for the kernels and copies that the engine runs. */
#ifndef TESTS_CUDA_STANDIN_INSIDE_H
#define TESTS_CUDA_STANDIN_INSIDE_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

#include "tests/cuda/standin.h"

struct memory {
    struct memory *next;
    void *at;
    size_t bytes;
    int card;         /* -1: pinned; -2: registered */
};

enum run_kind { RUN_KERNEL, RUN_COPY, RUN_RECORD, RUN_WAIT, RUN_WRITE, RUN_MEET };

struct run {
    struct run *next;
    enum run_kind kind;
    struct CUevent_st *event;
    uint64_t number;  /* of the event's records */
    void *to;
    const void *from;
    size_t bytes;
    uint64_t value;
    bool (*step)(void *);      /* of what goes on until it says that it is over; then, with the lock, comes `call` */
    void (*call)(void *);
    void *data;
};

/* The definitions that the toolkit's headers leave open. */
struct CUstream_st {
    struct CUstream_st *next;
    int card;
    bool running, gone;
    bool marked;               /* the host's word was to be written */
    struct run *first, **last;
};

struct CUevent_st {
    bool timed;
    uint64_t recorded, passed; /* numbers of records */
    int64_t passed_ns;
    uint32_t awaited;          /* by so many waits that are enqueued */
};

struct standin {
    pthread_mutex_t lock;
    pthread_cond_t work, rest;
    pthread_t engine;
    bool works;                /* there is an engine */
    bool ends;
    standin_options is;
    standin_seen seen;
    uint64_t random;
    cudaError_t sticky;
    struct memory *memory;
    struct CUstream_st *streams;
};
extern struct standin standin;

void standin_misuse(const char *what);

/* Begins a call: takes the lock; and its end. false: it fails, with standin_error. */
bool standin_enter(const char *name);
cudaError_t standin_leave(cudaError_t error);
extern _Thread_local cudaError_t standin_error, standin_last;
extern _Thread_local int standin_card;

/* Whether so many bytes there are all of one thing, or of memory that is not the device's. */
bool standin_owns(const void *at, size_t bytes);

/* ---- streams ---- */

void standin_enqueue(struct CUstream_st *stream, struct run run);
void standin_rest(struct CUstream_st *stream); /* NULL: all of them; until they have nothing to do */
void standin_fault(const char *why);           /* of a kernel that runs: the device's error */

#endif
