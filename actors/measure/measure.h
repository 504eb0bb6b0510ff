/* actors/measure/measure.h: the parts of weir_measure(): calls of kernels, messages, and whether the machine is quiet enough.
 *
 * All of it runs on the calling thread, but for messages, which a session with two workers passes, and threads that keep the other
 * cores busy meanwhile (beside.c). Times are of the monotonic clock; a sample in which the system let the thread wait for its core does
 * not count (/proc/thread-self/schedstat).
 */
#ifndef ACTORS_MEASURE_MEASURE_H
#define ACTORS_MEASURE_MEASURE_H

#include <weir/op.h>

#include "graph/plan/form/plan.h"
#include "graph/time/rates.h"

/* ---- samples (sample.c) ---- */

enum { SAMPLES = 9 };

typedef struct sampler {
    char *stream;          /* owned: memory that is larger than all caches, a part for each core; this thread's is the first */
    uint64_t part_bytes, parts;
    uint64_t l2, l3;       /* bytes of the caches: of a core, of all of them */
    int schedstat;         /* a file, or -1: nobody knows how long the thread waited */
} sampler;

/* E_MEMORY. */
weir_status sampler_open(sampler *s);
void sampler_close(sampler *s);

/* Pushes what the caches hold out of them: nothing, out of the core's own; or these bytes out of all. */
void sampler_push_out(const sampler *s, time_place place, const void *bytes, uint64_t count);

/* Bytes of the cache of all cores that reading is fast from, which other machines on the same processor leave: beyond it reading is nearer to
 * the rate of memory than to that of the cache. At most what the system says; a power of two times the core's own cache below that. Takes up
 * to a second. */
uint64_t sampler_shared_cache(const sampler *s);

/* Nanoseconds that this thread waited for a core so far; 0 where nobody knows. */
uint64_t sampler_waited(const sampler *s);

/* The median; sorts. */
uint64_t sampler_median(uint64_t *values, int count);

/* How much a fixed piece of work is disturbed: thousandths of its 10th percentile. */
void sampler_noise(uint64_t *p50, uint64_t *p90);

/* ---- neighbours (beside.c) ---- */

typedef enum beside_kind { BESIDE_NOBODY, BESIDE_STREAM, BESIDE_ARITHMETIC } beside_kind;
typedef struct beside beside;

/* Threads for all other cores; they sleep. NULL: no memory. The sampler is borrowed. */
beside *beside_new(const sampler *s);
void beside_free(beside *b); /* also NULL */

/* So many of them work from now on. Returns when they do. */
void beside_set(beside *b, beside_kind kind, uint32_t threads);

/* Bytes, or products and sums, a second of so many threads together, this one among them. 0: it was disturbed all the time. */
uint64_t beside_rate(beside *b, const sampler *s, beside_kind kind, uint32_t threads);

/* ---- calls (call.c) ---- */

/* The neighbours beside which calls are measured. */
typedef struct measure_beside {
    beside *beside;        /* borrowed */
    bool stream, arithmetic; /* whether such neighbours slow anything on this machine */
} measure_beside;

/* Measures a kernel's call, whose text is given. False: it cannot be called with made-up values, or there is no memory; it is left
 * out then. */
bool measure_call(const sampler *s, const measure_beside *by, const weir_plan *plan, uint32_t kernel, time_call *to);

/* A kernel's call with made-up values, in memory of this machine or of a card. */
enum { MEASURED_PIECES = 3 * WEIR_ARGS_MAX };
typedef struct measured_piece {
    uint32_t space;
    uint64_t begin, end;   /* in its arena */
    uint64_t offset;       /* in the block */
} measured_piece;

typedef struct measured_call {
    const weir_plan *plan;
    const plan_kernel *kernel;
    measured_piece pieces[MEASURED_PIECES];
    uint32_t piece_count;
    uint64_t bytes;        /* of all pieces, and of the workspace behind them */
    char *image;           /* owned: what is put into the block before a sample; of the workspace nothing */
    char *block;           /* owned by the caller: what the call works on */
    weir_view in[WEIR_ARGS_MAX], out[WEIR_ARGS_MAX], state[WEIR_ARGS_MAX];
    weir_kernel_args args;
    weir_kernel_fn call;
    char error[256];
} measured_call;

/* False: there is no memory. The caller chooses its `call`. Then, with a block of its `bytes`, the arguments are set. */
bool measured_call_open(measured_call *m, const weir_plan *plan, uint32_t kernel);
void measured_call_set(measured_call *m, void *block);
void measured_call_close(measured_call *m);

/* ---- cards (card.c) ---- */

typedef struct card card;

/* Opens the first device of an accelerator's kind, and its queues. NULL: this machine has none. */
card *card_new(weir_device_kind kind);
void card_free(card *c); /* also NULL */

/* The cost of launches and copies, by calls of this kernel. False: it cannot be called, or the card failed. */
bool card_measure(card *c, const weir_plan *plan, uint32_t kernel, time_card *to);

/* Measures a kernel's call on the card, as measure_call() does on a CPU. */
bool card_measure_call(card *c, const weir_plan *plan, uint32_t kernel, time_call *to);

/* ---- messages (hand.c) ---- */

/* The cost of a firing without kernels, and of a message to another worker. */
weir_status measure_hand(weir_rates *rates);

#endif
