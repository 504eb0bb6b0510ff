/* tests/cuda/standin.h: what stands in for CUDA's runtime where no card is: those of its calls that regst/cuda uses,
 * with the toolkit's own headers for types. It is linked into the emulated plugin (Makefile) in the place of libcudart.
 *
 *     host  ---copies, launches, records, waits---> streams, each a list
 *                                                      one thread, the engine, takes the head of one at random
 *
 * Device memory is the host's, filled with 0xff when it is given. Enqueued work happens when it is taken, and not
 * before; a stream stands still at an event that was recorded and has not passed. The order among streams follows from
 * a seed. Sentences and errors are as the runtime's: an asynchronous error is returned by every call from then on, and
 * nothing of a stream runs any more.
 *
 * NCCL is stood in for by tests/cuda/standin_nccl.c, between processes, too.
 *
 * It counts what no caller may do (`misuse`): a launch on a stream of a card that is not the thread's, one of a kernel that
 * was not loaded there before, memory that is
 * freed twice, a call on a thread that was given none of several cards, an event that is destroyed while a stream is to wait for it, a copy outside of what was given.
 *
 * A test finds these functions in the plugin with dlsym(). Set before the first call of the runtime; any thread. The
 * environment's STANDIN_CARDS and STANDIN_SEED are for programs that are run.
 */
#ifndef TESTS_CUDA_STANDIN_H
#define TESTS_CUDA_STANDIN_H

#include <stdbool.h>
#include <stdint.h>

enum { STANDIN_CARDS = 16, STANDIN_TEXT = 200 };

typedef struct standin_options {
    uint64_t seed;
    int cards;          /* [1]; -1: none */
    int driver;         /* version [13000]; 0 with no_driver */
    bool no_driver;
    uint64_t bytes;     /* of a card's memory [8 GB] */
    int arch;           /* [90] */
    bool no_peers;      /* cards do not reach each other's memory */
    bool no_write_value; /* cuStreamWriteValue64 is not there */
    uint64_t fail_call; /* the call with this number fails, once; the first is 1; 0: none */
    int fail_with;      /* [cudaErrorUnknown] */
    uint64_t fail_run;  /* so many things a stream did, then comes an error of the device's; 0: none */
    int fail_run_with;  /* [cudaErrorIllegalAddress] */
    uint64_t fail_nccl; /* so does the call of NCCL's with this number; 0: none */
    bool no_nccl;       /* its library is not there */
    uint64_t fail_blas; /* so does the call of cuBLASLt's with this number; 0: none */
    bool no_products;   /* it has no way for any product; */
    bool no_epilogues;  /* or for none with an epilogue but the bias of one product */
    bool refuses_epilogues; /* it says that it has a way for one, and refuses it when it is to be made */
    const char *no_blas; /* a call that cuBLASLt lacks; "": it is not there at all */
    bool nccl_error;    /* every communicator says that something is wrong elsewhere */
    int64_t record_ns;  /* an event is about so much later than the one before it, by the device's clock; 0: by the host's */
    int launch_ms;      /* so long a group of calls takes to be launched [some questions] */
    bool abort_hangs;   /* who aborts a communicator waits as long as this is so */
    int cudnn;          /* version of that library [what STANDIN_CUDNN says, or -1: it is not there] */
    uint64_t fail_cudnn; /* so fails the call of cuDNN's with this number; 0: none */
    int fail_cudnn_with; /* [CUDNN_STATUS_EXECUTION_FAILED] */
    int64_t cudnn_more; /* so much more workspace all its engines want */
} standin_options;

typedef struct standin_seen {
    uint64_t calls;     /* that can fail, */
    uint64_t nccl_calls; /* of these NCCL's, */
    uint64_t blas_calls; /* beside those */
    uint64_t descriptors; /* of cuBLASLt's, that were not destroyed; */
    uint64_t ways, sums; /* and so often it was asked for a way, of these with a bias's gradient as epilogue */
    uint64_t gathers, sends; /* of these all_gathers, rehearsals too, and sends, */
    uint64_t runs;      /* things that streams did, */
    uint64_t cudnn_calls, cudnn_runs; /* that can fail; graphs that it was asked to compute */
    int64_t cudnn_engine; /* of the last one */
    int64_t cudnn_descriptors; /* that were not destroyed */
    uint64_t cudnn_plans; /* and so often a plan was made */
    uint64_t kernels, copies, waits;
    int64_t clock_ns;   /* the device's, when the newest event passed; where record_ns is set */
    uint64_t loaded;    /* kernels, on some card */
    uint64_t spaces, pinned, registered, streams, events, comms; /* that were not given back */
    uint64_t bytes;     /* of device memory, now */
    uint64_t misuses;
    char misuse[STANDIN_TEXT]; /* the first */
    char failed[48];    /* the call that was made to fail */
} standin_seen;

#pragma GCC visibility push(default)
void standin_set(const standin_options *options); /* NULL: all as it is without */
standin_seen standin_look(void);
void standin_call(void *stream, void (*call)(void *), void *data); /* as a kernel of a program's that is emulated */
#pragma GCC visibility pop

#endif
