/* emulate.cc: see the header. Compiled without ThreadSanitizer's instrumentation: the memory that fibers share through
 * the emulator is no access of the kernel's. The emulator tells their order with __tsan_acquire and __tsan_release. */
#include "tests/cuda/emulated.h"
#include "kernels/cuda/shared.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif
#ifdef EMULATE_TSAN
#include <sanitizer/tsan_interface.h>
#else
static void __tsan_acquire(void *) {}
static void __tsan_release(void *) {}
static void *__tsan_get_current_fiber() { return nullptr; }
static void *__tsan_create_fiber(unsigned) { return nullptr; }
static void __tsan_destroy_fiber(void *) {}
static void __tsan_switch_to_fiber(void *, unsigned) {}
enum { __tsan_switch_to_fiber_no_sync };
#endif

/* ---- a switch between stacks ---- */

#if defined(__x86_64__) && !defined(EMULATE_UCONTEXT)
typedef void *context;
extern "C" void emulate_switch(context *save, context *to) __attribute__((visibility("hidden")));
asm(R"(
    .text
    .hidden emulate_switch
    .globl emulate_switch
    .type emulate_switch, @function
emulate_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq (%rsi), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulate_switch, .-emulate_switch
)");

static void context_begin(context *c, char *stack, size_t bytes, void (*main)())
{
    void **top = (void **)(stack + bytes);
    *--top = nullptr; /* main returns nowhere */
    *--top = (void *)main;
    for (int saved = 0; saved < 6; saved++)
        *--top = nullptr;
    *c = top;
}
#else
#include <ucontext.h>
typedef ucontext_t context;
static void emulate_switch(context *save, context *to) { swapcontext(save, to); }
static void context_begin(context *c, char *stack, size_t bytes, void (*main)())
{
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = bytes;
    c->uc_link = nullptr;
    makecontext(c, main, 0);
}
#endif

/* ---- what there is ---- */

enum { WARP = 32, SETS = 2, THREADS_MAX = 1024, GUARD = 64, GUARD_BYTE = 0xa5 };
#if defined(__SANITIZE_ADDRESS__) || defined(EMULATE_TSAN)
static const size_t stack_bytes = 256 << 10;
#else
static const size_t stack_bytes = 64 << 10;
#endif
static const size_t shared_max = 227 << 10; /* of a block on sm_90 */

enum waits { RUNS, AT_BARRIER, IN_WARP, AT_WARP_BARRIER, ENDED };

struct fiber {
    context at;
    char *stack = nullptr;
    void *tsan = nullptr;
    waits state = ENDED;
    const char *file = nullptr;
    int line = 0, kind = 0, by = 0;
    uint64_t bits = 0; /* given to the warp, then taken from it */
    alignas(8) unsigned char given[EMULATE_GIVEN_MOST], taken[EMULATE_GIVEN_MOST]; /* by the whole warp */
    emulate_made *made = nullptr;
};

struct array {
    const char *file;
    int line;
    const char *name;
    unsigned char *first;
    size_t bytes;
};

struct machine {
    std::vector<fiber> fibers[SETS];
    fiber *set = nullptr; /* of this block */
    std::vector<int> ready;
    std::vector<array> arrays;
    std::unique_ptr<unsigned char[]> shared;
    size_t shared_used = 0;
    const emulate_grid *grid = nullptr;
    void (*thread)(void *) = nullptr;
    void *data = nullptr;
    context scheduler;
    void *scheduler_tsan = nullptr, *janitor = nullptr;
    char *begins = nullptr, *orders = nullptr, *ends = nullptr; /* addresses that ThreadSanitizer knows orders by */
    emulate_place place = {};
    int running = -1, at_barrier = 0, ended = 0;
    bool broken = false;
    uint64_t seed = 1, random = 0, grids = 0;
    char fault[512] = "";
    ~machine();
};

static thread_local machine own;

/* The calling thread's, while it runs a grid: found without a call, as kernels ask for it all the time. */
static thread_local machine *here __attribute__((tls_model("initial-exec")));

machine::~machine()
{
    for (auto &each : fibers)
        for (fiber &f : each) {
            munmap(f.stack - getpagesize(), stack_bytes + (size_t)getpagesize());
            if (f.tsan)
                __tsan_destroy_fiber(f.tsan);
        }
    if (janitor)
        __tsan_destroy_fiber(janitor);
}

/* splitmix64 (Steele et al. 2014) */
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int64_t random_below(machine *m, int64_t count)
{
    return (int64_t)(random_next(&m->random) % (uint64_t)count);
}

/* ---- faults ---- */

__attribute__((format(printf, 2, 3))) static void fault(machine *m, const char *format, ...)
{
    m->broken = true;
    if (*m->fault)
        return;
    const char *name = m->grid->name; /* as the launch has it, perhaps in brackets */
    const int brackets = *name == '(';
    int at = snprintf(m->fault, sizeof m->fault, "kernel %.*s, block %u: ", (int)strlen(name) - 2 * brackets,
                      name + brackets, m->place.block.x);
    va_list more;
    va_start(more, format);
    vsnprintf(m->fault + at, sizeof m->fault - (size_t)at, format, more);
    va_end(more);
}

bool emulate_fault(char *error, size_t error_bytes)
{
    const bool some = *own.fault;
    if (some && error_bytes)
        snprintf(error, error_bytes, "%s", own.fault);
    *own.fault = 0;
    return some;
}

/* ---- fibers ---- */

/* AddressSanitizer is not told of switches: only its search for uses after return needs that, which is not switched on,
 * and it would take as long as the kernels. */
static void to_scheduler(machine *m)
{
    fiber *f = &m->set[m->running];
    __tsan_switch_to_fiber(m->scheduler_tsan, __tsan_switch_to_fiber_no_sync);
    emulate_switch(&f->at, &m->scheduler);
}

static void fiber_main()
{
    machine *m = here;
    __tsan_acquire(m->begins);
    m->thread(m->data);
    __tsan_release(m->ends);
    m->set[m->running].state = ENDED;
    m->ended++;
    to_scheduler(m);
    abort();
}

static void fiber_run(machine *m, int which)
{
    fiber *f = &m->set[which];
    m->running = which;
    m->place.thread.x = (unsigned)which;
    __tsan_switch_to_fiber(f->tsan, __tsan_switch_to_fiber_no_sync);
    emulate_switch(&m->scheduler, &f->at);
    m->running = -1;
}

/* Waits until the scheduler goes on with this fiber. */
static fiber *wait_as(machine *m, waits state, const char *file, int line)
{
    fiber *f = &m->set[m->running];
    f->state = state;
    f->file = file;
    f->line = line;
    to_scheduler(m);
    return f;
}

[[noreturn]] static void never_again(machine *m)
{
    to_scheduler(m);
    abort();
}

static bool fibers_make(machine *m, size_t count)
{
    const size_t page = (size_t)getpagesize();
    for (auto &each : m->fibers)
        while (each.size() < count) {
            char *all = (char *)mmap(nullptr, stack_bytes + page, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (all == MAP_FAILED || mprotect(all, page, PROT_NONE))
                return false;
            fiber f;
            f.stack = all + page;
            f.tsan = __tsan_create_fiber(0);
            each.push_back(f);
        }
    return true;
}

/* ---- what kernels call ---- */

const emulate_place *emulate_self()
{
    return &here->place;
}

/* Not memcpy, which ThreadSanitizer would take for an access of the thread. By words: warps that gather do little else. */
__attribute__((optimize("no-tree-loop-distribute-patterns"))) static void copy(void *to, const void *from, size_t bytes)
{
    typedef uint64_t word __attribute__((may_alias, aligned(1)));
    size_t i = 0;
    for (; i + sizeof(word) <= bytes; i += sizeof(word))
        *(word *)((unsigned char *)to + i) = *(const word *)((const unsigned char *)from + i);
    for (; i < bytes; i++)
        ((unsigned char *)to)[i] = ((const unsigned char *)from)[i];
}

void emulate_barrier(const char *file, int line)
{
    machine *m = here;
    __tsan_release(m->orders);
    m->at_barrier++;
    wait_as(m, AT_BARRIER, file, line);
    __tsan_acquire(m->orders);
}

/* What orders the lanes of the running fiber's warp. */
static char *warp_orders(machine *m)
{
    return m->orders + 1 + m->running / WARP;
}

void emulate_warp_barrier(const char *file, int line)
{
    machine *m = here;
    char *orders = warp_orders(m);
    __tsan_release(orders);
    wait_as(m, AT_WARP_BARRIER, file, line);
    __tsan_acquire(orders);
}

uint64_t emulate_exchange(uint64_t bits, int kind, int by, const char *file, int line)
{
    machine *m = here;
    fiber *f = &m->set[m->running];
    f->bits = bits;
    f->kind = kind;
    f->by = by;
    return wait_as(m, IN_WARP, file, line)->bits;
}

unsigned emulate_ballot(bool condition, const char *file, int line)
{
    return (unsigned)emulate_exchange(condition, -1, 0, file, line);
}

/* Nothing of the warp changes what lanes have given before all have come to their next exchange; so `taken` is enough. */
void emulate_gather(const void *given, size_t bytes, void *all, const char *file, int line)
{
    machine *m = here;
    fiber *f = &m->set[m->running];
    copy(f->given, given, bytes);
    f->kind = EMULATE_ALL;
    f = wait_as(m, IN_WARP, file, line);
    const int lane = m->running % WARP;
    for (int l = 0; l < WARP; l++)
        copy((unsigned char *)all + (size_t)l * bytes, f[l - lane].taken, bytes);
}

void emulate_together(const void *given, size_t bytes, void *taken, size_t taken_bytes, emulate_made *made,
                      const char *file, int line)
{
    machine *m = here;
    fiber *f = &m->set[m->running];
    copy(f->given, given, bytes);
    f->kind = EMULATE_TOGETHER;
    f->made = made;
    f = wait_as(m, IN_WARP, file, line);
    copy(taken, f->taken, taken_bytes);
}

void emulate_trap(const char *file, int line)
{
    machine *m = here;
    fault(m, "thread %d traps at %s:%d", m->running, file, line);
    never_again(m);
}

void emulate_outside(const char *array, int64_t index, int64_t count)
{
    machine *m = here;
    fault(m, "thread %d uses element %ld of the shared array %s, which has %ld", m->running, (long)index, array,
          (long)count);
    never_again(m);
}

/* Not memset: ThreadSanitizer would take that for an access of the thread. */
__attribute__((optimize("no-tree-loop-distribute-patterns"))) static void fill(unsigned char *to, size_t bytes, int with)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)with;
}

static size_t padded(size_t bytes)
{
    return (bytes + GUARD - 1) / GUARD * GUARD;
}

/* Of the arrays that a kernel declares, without the rest. */
static size_t arrays_bytes(const machine *m)
{
    size_t bytes = 0;
    for (const array &a : m->arrays)
        bytes += a.file ? a.bytes : 0;
    return bytes;
}

void *emulate_shared(const char *name, const char *file, int line, size_t bytes)
{
    machine *m = here;
    for (const array &a : m->arrays)
        if (a.line == line && a.file == file && a.name == name)
            return a.first;
    size_t used = GUARD;
    for (const array &a : m->arrays)
        used += padded(a.bytes);
    if (used - GUARD * (m->arrays.size() + 1) + bytes > shared_max) {
        fault(m, "more than %zu bytes of shared memory with %s", shared_max, name);
        never_again(m);
    }
    const size_t rest = m->grid->rest, arrays = arrays_bytes(m) + (file ? bytes : 0);
    if (arrays + rest > SHARED_UNASKED && !shared_asks(arrays, rest)) {
        fault(m, "%zu bytes of shared arrays and %zu besides are more than 48 KiB, and the launch did not ask for them",
              arrays, rest);
        never_again(m);
    }
    used += m->arrays.size() * GUARD;
    unsigned char *first = m->shared.get() + used;
    fill(first, bytes, 0xff);
    fill(first + bytes, padded(bytes) - bytes + GUARD, GUARD_BYTE);
    m->arrays.push_back({file, line, name, first, bytes});
    return first;
}

size_t emulate_rest_bytes()
{
    return here->grid->rest;
}

/* ---- blocks ---- */

static void shuffle(const uint64_t *given, fiber *lane, int own_lane)
{
    const int from = lane->kind == EMULATE_XOR ? own_lane ^ lane->by
                   : lane->kind == EMULATE_DOWN ? own_lane + lane->by
                                                : lane->by & (WARP - 1);
    lane->bits = given[from < 0 || from >= WARP ? own_lane : from];
}

static void together(fiber *lane)
{
    const unsigned char *given[WARP];
    unsigned char *taken[WARP];
    for (int l = 0; l < WARP; l++) {
        given[l] = lane[l].given;
        taken[l] = lane[l].taken;
    }
    lane->made(given, taken);
}

/* Goes on with the warp of fiber `of` when all its lanes wait at one place. False: they never will. */
static bool warp_goes_on(machine *m, int of)
{
    const int first = of / WARP * WARP, threads = (int)m->grid->threads;
    fiber *lane = m->set + first;
    uint64_t given[WARP], votes = 0;
    if (first + WARP > threads) {
        fault(m, "thread %d is at %s:%d with a whole warp, and its warp has %d threads", of, m->set[of].file,
              m->set[of].line, threads - first);
        return false;
    }
    for (int l = 0; l < WARP; l++) {
        if (lane[l].state != lane[of - first].state || lane[l].line != lane[of - first].line ||
            lane[l].file != lane[of - first].file)
            return true;
        given[l] = lane[l].bits;
        votes |= (uint64_t)(lane[l].bits & 1) << l;
    }
    if (lane->state == IN_WARP && lane->kind == EMULATE_TOGETHER)
        together(lane);
    for (int l = 0; l < WARP; l++) {
        if (lane[l].state == IN_WARP && lane[l].kind < 0)
            lane[l].bits = votes;
        else if (lane[l].state == IN_WARP && lane[l].kind == EMULATE_ALL)
            copy(lane[l].taken, lane[l].given, sizeof lane[l].given);
        else if (lane[l].state == IN_WARP && lane[l].kind != EMULATE_TOGETHER)
            shuffle(given, &lane[l], l);
        lane[l].state = RUNS;
        m->ready.push_back(first + l);
    }
    return true;
}

static void barrier_opens(machine *m)
{
    const int threads = (int)m->grid->threads;
    for (int t = 1; t < threads; t++)
        if (m->set[t].line != m->set[0].line || strcmp(m->set[t].file, m->set[0].file)) {
            fault(m, "thread 0 is at the barrier at %s:%d, and thread %d at that at %s:%d", m->set[0].file,
                  m->set[0].line, t, m->set[t].file, m->set[t].line);
            return;
        }
    m->at_barrier = 0;
    for (int t = 0; t < threads; t++) {
        m->set[t].state = RUNS;
        m->ready.push_back(t);
    }
}

/* Nothing can go on, and not all have ended. */
static void stuck(machine *m)
{
    static const char *const names[] = {"runs", "is at the barrier", "waits for its warp", "waits for its warp", "has ended"};
    int waiting = 0, other = 0;
    while (m->set[waiting].state == ENDED)
        waiting++;
    const fiber *w = &m->set[waiting];
    if (w->state != AT_BARRIER)
        other = waiting / WARP * WARP;
    while (m->set[other].state == w->state && m->set[other].line == w->line)
        other++;
    const fiber *o = &m->set[other];
    if (o->state == ENDED)
        fault(m, "thread %d %s at %s:%d, and thread %d has ended", waiting, names[w->state], w->file, w->line, other);
    else
        fault(m, "thread %d %s at %s:%d, and thread %d %s at %s:%d", waiting, names[w->state], w->file, w->line, other,
              names[o->state], o->file, o->line);
}

static void guards_check(machine *m)
{
    for (const array &a : m->arrays)
        for (size_t i = a.bytes; i < padded(a.bytes) + GUARD; i++)
            if (a.first[i] != GUARD_BYTE) {
                fault(m, "a write behind the shared array %s, which has %zu bytes", a.name, a.bytes);
                return;
            }
}

/* Shared memory and what orders are new for each block, so that ThreadSanitizer sees no races between blocks in them. */
static void block_begin(machine *m, int64_t block, int set)
{
    const int threads = (int)m->grid->threads;
    m->place.block.x = (unsigned)block;
    m->set = m->fibers[set].data();
    m->orders = (char *)malloc(64);
    m->arrays.clear();
#ifdef EMULATE_TSAN
    m->shared.reset(new unsigned char[shared_max + 64 * GUARD]);
#else
    if (!m->shared)
        m->shared.reset(new unsigned char[shared_max + 64 * GUARD]);
#endif
    m->ready.clear();
    m->at_barrier = m->ended = 0;
    for (int t = 0; t < threads; t++) {
        fiber *f = &m->set[t];
#ifdef __SANITIZE_ADDRESS__
        if (f->state != ENDED) /* it was left where a fault was, and its frames are marked */
            __asan_unpoison_memory_region(f->stack, stack_bytes);
#endif
        f->state = RUNS;
        context_begin(&f->at, f->stack, stack_bytes, fiber_main);
        m->ready.push_back(t);
    }
    __tsan_release(m->begins);
}

static void block_end(machine *m)
{
    guards_check(m);
    for (int t = 0; m->broken && t < (int)m->grid->threads; t++) {
        __tsan_switch_to_fiber(m->set[t].tsan, __tsan_switch_to_fiber_no_sync);
        __tsan_release(m->ends);
        __tsan_switch_to_fiber(m->scheduler_tsan, __tsan_switch_to_fiber_no_sync);
    }
    __tsan_switch_to_fiber(m->janitor, __tsan_switch_to_fiber_no_sync);
    __tsan_acquire(m->ends);
#ifdef EMULATE_TSAN
    m->shared.reset();
#endif
    __tsan_switch_to_fiber(m->scheduler_tsan, __tsan_switch_to_fiber_no_sync);
    free(m->orders);
}

static void block_run(machine *m, int64_t block, int set)
{
    const int threads = (int)m->grid->threads;
    block_begin(m, block, set);
    while (!m->broken && m->ended < threads) {
        if (m->ready.empty()) {
            stuck(m);
            break;
        }
        const size_t at = (size_t)random_below(m, (int64_t)m->ready.size());
        const int which = m->ready[at];
        m->ready[at] = m->ready.back();
        m->ready.pop_back();
        fiber_run(m, which);
        const waits state = m->set[which].state;
        if (state == IN_WARP || state == AT_WARP_BARRIER)
            warp_goes_on(m, which);
        else if (state == AT_BARRIER && m->at_barrier == threads)
            barrier_opens(m);
    }
    block_end(m);
}

static void blocks_run(machine *m)
{
    const int64_t blocks = m->grid->blocks;
    std::vector<unsigned> order((size_t)blocks);
    for (int64_t b = 0; b < blocks; b++)
        order[(size_t)b] = (unsigned)b;
    for (int64_t b = 0; b < blocks && !m->broken; b++) {
        std::swap(order[(size_t)b], order[(size_t)(b + random_below(m, blocks - b))]);
        block_run(m, order[(size_t)b], (int)(b % SETS));
    }
}

static uint64_t seed_of(machine *m, const char *name)
{
    uint64_t seed = m->seed * 0x100000001b3u + m->grids++;
    while (*name)
        seed = (seed ^ (unsigned char)*name++) * 0x100000001b3u;
    return seed;
}

void emulate_seed(uint64_t seed)
{
    own.seed = seed;
    own.grids = 0;
}

void emulate_run(const emulate_grid *grid, void (*thread)(void *), void *data)
{
    machine *m = here = &own;
    m->grid = grid;
    m->thread = thread;
    m->data = data;
    m->broken = false;
    m->random = seed_of(m, grid->name);
    m->place.threads.x = (unsigned)grid->threads;
    m->place.blocks.x = (unsigned)grid->blocks;
    if (grid->threads < 1 || grid->threads > THREADS_MAX || grid->blocks > INT32_MAX ||
        !fibers_make(m, (size_t)grid->threads)) {
        fault(m, "a grid of %ld blocks of %ld threads", (long)grid->blocks, (long)grid->threads);
        return;
    }
    if (!m->janitor)
        m->janitor = __tsan_create_fiber(0);
    m->scheduler_tsan = __tsan_get_current_fiber();
    m->begins = (char *)malloc(64);
    m->ends = (char *)malloc(64);
    blocks_run(m);
    __tsan_acquire(m->ends);
    free(m->begins);
    free(m->ends);
}

__attribute__((weak)) void standin_launch(void *, void (*run)(void *), void *data)
{
    run(data);
}

__attribute__((weak)) void standin_uses(void *, const void *, const char *)
{
}

__attribute__((weak)) bool standin_no_blas(const char *)
{
    return false;
}

__attribute__((weak)) bool standin_refused(char *, size_t)
{
    return false;
}
