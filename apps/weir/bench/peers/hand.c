/* apps/weir/bench/peers/hand.c: see the header. */
#include "apps/weir/bench/peers/hand.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <weir/weir.h>

#include "apps/common/measure.h"
#include "graph/base/base.h"
#include "transport/mail/park.h"

#define US 1000 /* ns */

/* ---- kernels ---- */

static weir_status spin_for(int64_t ns)
{
    int64_t end = park_now_ns() + ns;
    while (park_now_ns() < end)
        park_pause();
    return WEIR_OK;
}

weir_status bench_empty(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

#define X(us)                                              \
    weir_status bench_##us##us(const weir_kernel_args *args) \
    {                                                      \
        (void)args;                                        \
        return spin_for(us * US);                          \
    }
BENCH_SPIN_LIST(X)
#undef X

weir_status bench_44us(const weir_kernel_args *args)
{
    static _Thread_local uint64_t draws;
    uint32_t word[4];
    (void)args;
    weir_philox(44, (uint64_t)(uintptr_t)&draws, ++draws, word); /* each thread draws for itself */
    return spin_for((word[0] % 5 ? 44 : 69) * US);
}

/* ---- one thread by hand ---- */

struct ring {
    uint32_t head, tail; /* tail - head values are in it */
};

struct stage {
    struct ring *in, *out; /* NULL at the ends */
    weir_kernel_fn call;
};

static bool stage_fire(struct stage *stage, const weir_kernel_args *args)
{
    if (stage->in && stage->in->head == stage->in->tail)
        return false;
    if (stage->out && stage->out->tail - stage->out->head == BENCH_SLOTS)
        return false;
    if (stage->call(args))
        return false;
    if (stage->in)
        stage->in->head++;
    if (stage->out)
        stage->out->tail++;
    return true;
}

double bench_hand_ring(int64_t tokens)
{
    struct ring rings[BENCH_STAGES - 1] = {0};
    struct stage stages[BENCH_STAGES];
    weir_kernel_args args = {0};
    weir_kernel_fn volatile call = bench_empty; /* the compiler is not to see through it */
    for (int i = 0; i < BENCH_STAGES; i++)
        stages[i] = (struct stage){i ? &rings[i - 1] : NULL, i + 1 < BENCH_STAGES ? &rings[i] : NULL, call};
    double start = measure_seconds();
    for (int64_t done = 0; done < tokens;)
        for (int i = 0; i < BENCH_STAGES; i++)
            done += stage_fire(&stages[i], &args) && i + 1 == BENCH_STAGES;
    return (measure_seconds() - start) / (double)tokens;
}

/* ---- two threads by hand ---- */

#define PLACES 64

/* One producer, one consumer (Lamport 1983): each owns an index, and keeps a copy of the other's that it renews when
 * it has to. */
struct spsc {
    _Alignas(APART_BYTES) _Atomic uint64_t tail; /* producer's */
    uint64_t head_seen;
    _Alignas(APART_BYTES) _Atomic uint64_t head; /* consumer's */
    uint64_t tail_seen;
    _Alignas(APART_BYTES) uint64_t place[PLACES];
};

static void spsc_put(struct spsc *ring, uint64_t value)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed); /* own index */
    while (tail - ring->head_seen == PLACES)
        ring->head_seen = atomic_load_explicit(&ring->head, memory_order_acquire); /* pairs with spsc_take()'s store */
    ring->place[tail % PLACES] = value;
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release); /* pairs with spsc_take()'s load */
}

static uint64_t spsc_take(struct spsc *ring)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed); /* own index */
    /* acquire: pairs with the store in spsc_put() */
    while ((ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire)) == head)
        park_pause();
    uint64_t value = ring->place[head % PLACES];
    atomic_store_explicit(&ring->head, head + 1, memory_order_release); /* pairs with spsc_put()'s load */
    return value;
}

/* The least there is: one word, full or empty. */
struct word {
    _Alignas(APART_BYTES) _Atomic uint64_t value; /* 0: empty */
};

static void word_put(struct word *word, uint64_t value)
{
    atomic_store_explicit(&word->value, value, memory_order_release); /* pairs with the load in word_take() */
}

static uint64_t word_take(struct word *word)
{
    uint64_t value;
    while (!(value = atomic_load_explicit(&word->value, memory_order_acquire))) /* pairs with word_put() */
        park_pause();
    atomic_store_explicit(&word->value, 0, memory_order_relaxed); /* the answer tells the other side */
    return value;
}

struct rally {
    struct spsc ring[2]; /* there and back */
    struct word word[2];
    int64_t tokens;
};

static void *answer_ring(void *argument)
{
    struct rally *rally = argument;
    for (int64_t i = 0; i < rally->tokens; i++)
        spsc_put(&rally->ring[1], spsc_take(&rally->ring[0]));
    return NULL;
}

static void *answer_word(void *argument)
{
    struct rally *rally = argument;
    for (int64_t i = 0; i < rally->tokens; i++)
        word_put(&rally->word[1], word_take(&rally->word[0]));
    return NULL;
}

static void play_ring(struct rally *rally)
{
    for (int64_t i = 0; i < rally->tokens; i++) {
        spsc_put(&rally->ring[0], 1);
        spsc_take(&rally->ring[1]);
    }
}

static void play_word(struct rally *rally)
{
    for (int64_t i = 0; i < rally->tokens; i++) {
        word_put(&rally->word[0], 1);
        word_take(&rally->word[1]);
    }
}

/* Seconds per token, there and back; 0 when there is no thread. */
static double time_rally(int64_t tokens, void (*play)(struct rally *), void *(*answer)(void *))
{
    struct rally rally = {.tokens = tokens};
    pthread_t thread;
    if (pthread_create(&thread, NULL, answer, &rally))
        return 0;
    double start = measure_seconds();
    play(&rally);
    double seconds = (measure_seconds() - start) / (double)tokens;
    pthread_join(thread, NULL);
    return seconds;
}

double bench_hand_pingpong(int64_t tokens)
{
    return time_rally(tokens, play_ring, answer_ring);
}

double bench_hand_handoff(int64_t tokens)
{
    return time_rally(tokens, play_word, answer_word);
}

/* ---- columns ---- */

/* How many steps a column has done. */
struct column {
    _Alignas(APART_BYTES) _Atomic int64_t done;
};

struct columns {
    const struct bench_columns *shape;
    int64_t steps;
    struct column column[BENCH_COLUMNS_MAX];
};

bool bench_columns_read(const struct bench_columns *shape, uint32_t reader, uint32_t column)
{
    uint32_t apart = reader > column ? reader - column : column - reader;
    return column < shape->columns && apart <= shape->reach;
}

/* Until all that column c reads have done `step` steps. */
static void columns_wait(struct columns *columns, uint32_t c, int64_t step)
{
    for (uint32_t i = 0; i < columns->shape->columns; i++)
        /* acquire: pairs with the store in columns_run() */
        while (bench_columns_read(columns->shape, c, i) &&
               atomic_load_explicit(&columns->column[i].done, memory_order_acquire) < step)
            park_pause();
}

/* Every second column, from `first` on. */
static void columns_run(struct columns *columns, uint32_t first)
{
    weir_kernel_args args = {0};
    weir_kernel_fn volatile call = columns->shape->call;
    for (int64_t step = 0; step < columns->steps; step++)
        for (uint32_t c = first; c < columns->shape->columns; c += 2) {
            columns_wait(columns, c, step);
            call(&args);
            atomic_store_explicit(&columns->column[c].done, step + 1, memory_order_release);
        }
}

static void *columns_other(void *argument)
{
    columns_run(argument, 1);
    return NULL;
}

double bench_hand_columns(const struct bench_columns *shape, int64_t steps)
{
    struct columns columns = {.shape = shape, .steps = steps};
    pthread_t thread;
    if (pthread_create(&thread, NULL, columns_other, &columns))
        return 0;
    double start = measure_seconds();
    columns_run(&columns, 0);
    pthread_join(thread, NULL);
    return (measure_seconds() - start) / (double)steps;
}
