/* tests/support/kernel_check.h: one op, called as the runtime calls it, held against a slow and plain reference.
 *
 *     kernel_check c = kernel_check_new(&op_add, NULL, 42);      // 42: seed of the random inputs
 *     kernel_check_in(&c, WEIR_F32, SHAPE(3, 4));
 *     kernel_check_in(&c, WEIR_F32, SHAPE(4));
 *     kernel_check_run(&c);                                      // infer, workspace, states, kernel[WEIR_CPU]
 *     kernel_check_near(&c, 0, reference_add, 1e-6);             // output 0
 *     kernel_check_free(&c);
 *
 * Inputs are whole logical tensors, filled with N(0, 1) (f32, f16, bf16), 0..9 (i32) or 0..1 (u8); a test may change them between
 * kernel_check_in and kernel_check_run. Running also checks what every op promises:
 *   - outputs are wholly written (they are filled with garbage first) and nothing beside outputs and workspace is;
 *   - inputs are left alone; a second call with the same arguments gives the same bits, and so does one whose operands
 *     lie at addresses that are multiples of an element's bytes alone (attention is exempt);
 *   - an op with .inplace gives the same bits when out[0] shares memory with that input;
 *   - an op with .accumulates adds to out[0] when asked to.
 * A fault fails the Criterion test. States start as zeros and keep what the first call left in them.
 *
 * The kernels are the CPU's (of a portable build, those of the level that WEIR_CPU_LEVEL names), unless a suite is linked with what finds others: tests/cuda/again.c.
 */
#ifndef TESTS_SUPPORT_KERNEL_CHECK_H
#define TESTS_SUPPORT_KERNEL_CHECK_H

#include <weir/op.h>

#define KERNEL_CHECK_MAX 16

typedef struct kernel_check {
    const weir_op *op;
    const void *attrs; /* borrowed */
    uint64_t random;   /* state of the generator */
    int in_count, out_count, state_count;
    weir_view in[KERNEL_CHECK_MAX]; /* their data is owned, between guard bytes */
    weir_view out[KERNEL_CHECK_MAX];
    weir_view state[KERNEL_CHECK_MAX];
    uint64_t key; /* as in weir_kernel_args; may be set before run */
    int64_t firing, step;
} kernel_check;

/* The kernels that are called: of which kind, and that of an op. Both are weak. */
weir_device_kind kernel_check_kind(void);
weir_kernel_fn kernel_check_kernel(const weir_op *op);

/* Fills want[] with what output `out` should hold, in row-major order. */
typedef void (*kernel_reference)(const kernel_check *c, int out, double *want);

/* SHAPE() is a scalar, SHAPE(2, 0) is empty. */
#define SHAPE(...) kernel_shape((const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / 8))
weir_shape kernel_shape(const int64_t *dims, int rank);

kernel_check kernel_check_new(const weir_op *op, const void *attrs, uint64_t seed);
weir_view *kernel_check_in(kernel_check *c, weir_dtype dtype, weir_shape shape);
void kernel_check_run(kernel_check *c);
void kernel_check_near(const kernel_check *c, int out, kernel_reference reference, double tolerance);
void kernel_check_free(kernel_check *c);

/* |got - want| <= tolerance * (1 + |want|), where kernel_check_near adds kernel_digit() of the output's dtype to the
 * tolerance (unless that is 0: then they are equal); equal when both are NaN or the same infinity. */
bool kernel_near(double got, double want, double tolerance);

/* Element i of a view as a double, whatever its dtype. */
double kernel_at(const weir_view *view, int64_t i);
void kernel_set(const weir_view *view, int64_t i, double value);

/* The nearest value of a real dtype, ties to even; worked out in double. */
double kernel_round(weir_dtype dtype, double x);

/* The tolerance for one rounding to the dtype: half of the last digit. 0 for f32 and integers. */
double kernel_digit(weir_dtype dtype);

/* The op accepts (refuses) these inputs; a refusal must contain `sentence`. */
void kernel_check_infers(const weir_op *op, const void *attrs, const weir_type *in, int in_count, weir_type *out);
void kernel_check_refuses(const weir_op *op, const void *attrs, const weir_type *in, int in_count,
                          const char *sentence);

/* A uniform double in [0, 1), and a sample of N(0, 1), of the check's own generator. */
double kernel_random(uint64_t *state);
double kernel_random_normal(uint64_t *state);

/* The parts, for other harnesses: a tensor between guard bytes, every byte of it `fill` (0, or KERNEL_GARBAGE: NaN as
 * f32); and one call with its own workspace, after which all guards have been looked at. */
enum { KERNEL_GARBAGE = 0xFF };
weir_view kernel_view_new(weir_type type, int fill);
void kernel_view_free(weir_view *view);
void kernel_check_call(const kernel_check *c, const weir_view *in, const weir_view *out, const weir_view *state,
                       bool accumulate);

#endif
