/* apps/weir/bench/peers/hand.h: what `weir bench actors` stands beside: programs that do the same by hand, with threads that
 * spin and atomics, and nothing else. Each does the least that could do the job; they are the floor, not competitors:
 * none can sleep, be stopped, fail or be watched, and what each does is written into it.
 *
 *     ring       one thread: a bounded ring between stages, so that backpressure is there, one indirect call a stage
 *     pingpong   two threads: a bounded ring each way; seconds there and back
 *     handoff    the same with one word each way
 *     columns    two threads, every second column each. In each step a column waits until those around it that it
 *                reads have done the step before, calls its kernel and counts its own steps up. A column is read by those
 *                that it reads: so one that has done a step has done with what it read, and nothing has to be freed
 *
 * Also the kernels of the benchmark. All functions may block for as long as they measure; 0 when there is no thread.
 */
#ifndef APPS_WEIR_BENCH_HAND_H
#define APPS_WEIR_BENCH_HAND_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/op.h>

#define BENCH_STAGES 8 /* of a chain */
#define BENCH_SLOTS 64
#define BENCH_COLUMNS_MAX 8

/* How long kernels spin by the clock, in microseconds. */
#define BENCH_SPIN_LIST(X) X(1) X(10) X(50) X(200)

weir_status bench_empty(const weir_kernel_args *args);
#define X(us) weir_status bench_##us##us(const weir_kernel_args *args);
BENCH_SPIN_LIST(X)
#undef X
weir_status bench_44us(const weir_kernel_args *args); /* one in five takes 25 us longer */

/* Columns that each read those at most `reach` away, themselves too. */
struct bench_columns {
    uint32_t columns, reach;
    weir_kernel_fn call;
};

bool bench_columns_read(const struct bench_columns *shape, uint32_t reader, uint32_t column);

/* Seconds per token, or per step. */
double bench_hand_ring(int64_t tokens);
double bench_hand_pingpong(int64_t tokens);
double bench_hand_handoff(int64_t tokens);
double bench_hand_columns(const struct bench_columns *shape, int64_t steps);

#endif
