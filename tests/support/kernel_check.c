/* kernel_check.c: see the header. Every buffer lies between two guards of GUARD bytes whose pattern is looked at after
 * each call: a kernel that writes out of bounds is found without a sanitizer. */
#include "tests/support/kernel_check.h"
#include "graph/base/base.h"
#include "graph/base/dtype.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, GUARD_BYTE = 0xA5 };

/* ---- buffers ---- */

static size_t round_up(size_t bytes)
{
    return (bytes + GUARD - 1) / GUARD * GUARD;
}

/* At `by` bytes, less than GUARD, beyond a multiple of GUARD. */
static void *buffer_beyond(size_t by, size_t bytes, int fill)
{
    const size_t room = round_up(bytes) + 3 * GUARD;
    char *all = aligned_alloc(GUARD, room);
    cr_assert_not_null(all);
    memset(all, GUARD_BYTE, room);
    memset(all + GUARD + by, fill, bytes);
    return all + GUARD + by;
}

static void *buffer_new(size_t bytes, int fill)
{
    return buffer_beyond(0, bytes, fill);
}

static void buffer_free(void *data)
{
    if (data)
        free((char *)data - GUARD - (uintptr_t)data % GUARD);
}

static void buffer_check(const void *data, size_t bytes, const char *op, const char *what, int index)
{
    const unsigned char *all = (const unsigned char *)data - GUARD;
    for (size_t i = 0; i < GUARD; i++)
        cr_assert_eq(all[i], GUARD_BYTE, "%s wrote before its %s %d", op, what, index);
    for (size_t i = GUARD + bytes; i < round_up(bytes) + 2 * GUARD; i++)
        cr_assert_eq(all[i], GUARD_BYTE, "%s wrote behind its %s %d", op, what, index);
}

static size_t view_bytes(const weir_view *view)
{
    return (size_t)weir_shape_count(&view->shape) * weir_dtype_bytes(view->dtype);
}

weir_view kernel_view_new(weir_type type, int fill)
{
    weir_view view = {.dtype = type.dtype, .shape = type.shape, .global = type.shape};
    view.data = buffer_new(view_bytes(&view), fill);
    return view;
}

void kernel_view_free(weir_view *view)
{
    buffer_free(view->data);
    view->data = NULL;
}

static void *copy_of(const weir_view *view)
{
    void *copy = buffer_new(view_bytes(view), 0);
    memcpy(copy, view->data, view_bytes(view));
    return copy;
}

/* ---- random inputs ---- */

/* splitmix64 (Steele et al. 2014) */
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double kernel_random(uint64_t *state)
{
    return (double)(random_next(state) >> 11) * 0x1p-53;
}

double kernel_random_normal(uint64_t *state)
{
    double u = 1 - kernel_random(state), v = kernel_random(state);
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

static void fill_random(const weir_view *view, uint64_t *state)
{
    for (int64_t i = 0; i < weir_shape_count(&view->shape); i++) {
        double value = weir_dtype_real(view->dtype) ? kernel_random_normal(state) : kernel_random(state);
        kernel_set(view, i, weir_dtype_real(view->dtype) ? value : value * (view->dtype == WEIR_U8 ? 2 : 10));
    }
}

/* ---- the check ---- */

weir_shape kernel_shape(const int64_t *dims, int rank)
{
    weir_shape shape = {.rank = rank};
    for (int d = 0; d < rank; d++)
        shape.dim[d] = dims[d];
    return shape;
}

kernel_check kernel_check_new(const weir_op *op, const void *attrs, uint64_t seed)
{
    return (kernel_check){.op = op, .attrs = attrs, .random = seed, .key = seed};
}

weir_view *kernel_check_in(kernel_check *c, weir_dtype dtype, weir_shape shape)
{
    cr_assert_lt(c->in_count, KERNEL_CHECK_MAX);
    weir_view *view = &c->in[c->in_count++];
    *view = kernel_view_new((weir_type){dtype, shape}, 0);
    fill_random(view, &c->random);
    return view;
}

__attribute__((weak)) weir_device_kind kernel_check_kind(void)
{
    return WEIR_CPU;
}

__attribute__((weak)) weir_kernel_fn kernel_check_kernel(const weir_op *op)
{
    return op_kernel(op, WEIR_CPU);
}

static int types_of(const weir_view *view, int view_count, weir_type *type)
{
    for (int i = 0; i < view_count; i++)
        type[i] = (weir_type){view[i].dtype, view[i].shape};
    return view_count;
}

void kernel_check_call(const kernel_check *c, const weir_view *in, const weir_view *out, const weir_view *state,
                       bool accumulate)
{
    weir_type in_type[KERNEL_CHECK_MAX], out_type[KERNEL_CHECK_MAX];
    types_of(in, c->in_count, in_type);
    types_of(out, c->out_count, out_type);
    weir_op_args rule = {c->op, in_type, c->in_count, out_type, c->out_count, c->attrs};
    size_t bytes = c->op->workspace ? c->op->workspace(&rule, kernel_check_kind()) : 0;
    void *workspace = buffer_new(bytes, KERNEL_GARBAGE);
    const weir_clock clock = {.firing = c->firing, .step = c->step};
    char error[256] = "";
    weir_kernel_args args = {
        .in = in, .in_count = c->in_count, .out = out, .out_count = c->out_count,
        .state = state, .state_count = c->state_count, .attrs = c->attrs,
        .workspace = workspace, .workspace_bytes = bytes, .key = c->key, .firing = c->firing, .step = c->step,
        .clock = &clock, .accumulate = accumulate, .error = error, .error_bytes = sizeof error,
    };
    weir_status status = kernel_check_kernel(c->op)(&args);
    cr_assert_eq(status, WEIR_OK, "%s failed: %s", c->op->name, error);
    buffer_check(workspace, bytes, c->op->name, "workspace", 0);
    for (int i = 0; i < c->in_count; i++)
        buffer_check(in[i].data, view_bytes(&in[i]), c->op->name, "input", i);
    for (int i = 0; i < c->out_count; i++)
        buffer_check(out[i].data, view_bytes(&out[i]), c->op->name, "output", i);
    for (int i = 0; i < c->state_count; i++)
        buffer_check(state[i].data, view_bytes(&state[i]), c->op->name, "state", i);
    buffer_free(workspace);
}

static void make_outputs(kernel_check *c)
{
    weir_type in[KERNEL_CHECK_MAX], out[KERNEL_CHECK_MAX] = {0}, state[4] = {0};
    types_of(c->in, c->in_count, in);
    cr_assert(c->in_count >= c->op->in_min && c->in_count <= c->op->in_max, "%s takes not %d inputs", c->op->name,
              c->in_count);
    kernel_check_infers(c->op, c->attrs, in, c->in_count, out);
    c->out_count = c->op->out_count;
    for (int i = 0; i < c->out_count; i++)
        c->out[i] = kernel_view_new(out[i], KERNEL_GARBAGE);
    weir_op_args rule = {c->op, in, c->in_count, out, c->out_count, c->attrs};
    c->state_count = c->op->states ? c->op->states(&rule, state) : 0;
    for (int i = 0; i < c->state_count; i++)
        c->state[i] = kernel_view_new(state[i], 0);
}

static void same_bits(const kernel_check *c, const weir_view *again, int out, const char *when)
{
    cr_assert_eq(memcmp(again->data, c->out[out].data, view_bytes(again)), 0, "%s: output %d differs %s", c->op->name,
                 out, when);
}

/* Calls again with fresh outputs and states; in[shared] lies in the memory of out[0] when shared >= 0. */
static void call_again(const kernel_check *c, int shared)
{
    weir_view in[KERNEL_CHECK_MAX], out[KERNEL_CHECK_MAX], state[KERNEL_CHECK_MAX];
    memcpy(in, c->in, sizeof in);
    for (int i = 0; i < c->out_count; i++) {
        out[i] = c->out[i];
        out[i].data = buffer_new(view_bytes(&out[i]), KERNEL_GARBAGE);
    }
    for (int i = 0; i < c->state_count; i++) {
        state[i] = c->state[i];
        state[i].data = buffer_new(view_bytes(&state[i]), 0);
    }
    if (shared >= 0) {
        memcpy(out[0].data, in[shared].data, view_bytes(&in[shared]));
        in[shared].data = out[0].data;
    }
    kernel_check_call(c, in, out, state, false);
    for (int i = 0; i < c->out_count; i++)
        same_bits(c, &out[i], i, shared >= 0 ? "in place" : "in a second call");
    for (int i = 0; i < c->out_count; i++)
        buffer_free(out[i].data);
    for (int i = 0; i < c->state_count; i++)
        buffer_free(state[i].data);
}

/* Calls again with all operands an element beyond where they were, so that no address is a multiple of more than that. */
static void call_elsewhere(const kernel_check *c)
{
    weir_view in[KERNEL_CHECK_MAX], out[KERNEL_CHECK_MAX], state[KERNEL_CHECK_MAX];
    for (int i = 0; i < c->in_count; i++) {
        in[i] = c->in[i];
        in[i].data = buffer_beyond(weir_dtype_bytes(in[i].dtype), view_bytes(&in[i]), 0);
        memcpy(in[i].data, c->in[i].data, view_bytes(&in[i]));
    }
    for (int i = 0; i < c->out_count; i++) {
        out[i] = c->out[i];
        out[i].data = buffer_beyond(weir_dtype_bytes(out[i].dtype), view_bytes(&out[i]), KERNEL_GARBAGE);
    }
    for (int i = 0; i < c->state_count; i++) {
        state[i] = c->state[i];
        state[i].data = buffer_new(view_bytes(&state[i]), 0);
    }
    kernel_check_call(c, in, out, state, false);
    for (int i = 0; i < c->out_count; i++)
        same_bits(c, &out[i], i, "at other addresses");
    for (int i = 0; i < c->in_count; i++)
        buffer_free(in[i].data);
    for (int i = 0; i < c->out_count; i++)
        buffer_free(out[i].data);
    for (int i = 0; i < c->state_count; i++)
        buffer_free(state[i].data);
}

/* Sharing needs equal sizes; the compiler looks at them too. */
static void check_inplace(const kernel_check *c)
{
    int shared = c->op->inplace - 1;
    if (shared >= 0 && shared < c->in_count && view_bytes(&c->in[shared]) == view_bytes(&c->out[0]))
        call_again(c, shared);
}

/* From `start` in out[0], an accumulating call must give start + value. */
static void check_accumulates(const kernel_check *c)
{
    if (!c->op->accumulates || c->out[0].dtype != WEIR_F32)
        return;
    weir_view out[KERNEL_CHECK_MAX];
    memcpy(out, c->out, sizeof out);
    for (int i = 0; i < c->out_count; i++)
        out[i].data = copy_of(&c->out[i]);
    uint64_t random = c->random;
    fill_random(&out[0], &random);
    float *start = copy_of(&out[0]);
    kernel_check_call(c, c->in, out, c->state, true);
    for (int64_t i = 0; i < weir_shape_count(&out[0].shape); i++) {
        double want = (double)start[i] + kernel_at(&c->out[0], i);
        cr_assert(kernel_near(kernel_at(&out[0], i), want, 1e-4), "%s accumulates wrongly at %ld", c->op->name,
                  (long)i);
    }
    buffer_free(start);
    for (int i = 0; i < c->out_count; i++)
        buffer_free(out[i].data);
}

void kernel_check_run(kernel_check *c)
{
    void *before[KERNEL_CHECK_MAX];
    make_outputs(c);
    for (int i = 0; i < c->in_count; i++)
        before[i] = copy_of(&c->in[i]);
    kernel_check_call(c, c->in, c->out, c->state, false);
    for (int i = 0; i < c->in_count; i++) {
        cr_assert_eq(memcmp(before[i], c->in[i].data, view_bytes(&c->in[i])), 0, "%s changed input %d", c->op->name, i);
        buffer_free(before[i]);
    }
    call_again(c, -1);
    if (strncmp(c->op->name, "attention", 9) != 0) /* of halves: by tensor cores where addresses allow that */
        call_elsewhere(c);
    check_inplace(c);
    check_accumulates(c);
}

double kernel_at(const weir_view *view, int64_t i)
{
    return dtype_get(view->dtype, view->data, i);
}

void kernel_set(const weir_view *view, int64_t i, double value)
{
    dtype_set(view->dtype, view->data, i, value);
}

/* digits, least exponent of the last digit, largest value */
static const struct format {
    int digits, least;
    double most;
} formats[WEIR_DTYPES] = {
    [WEIR_F32] = {24, -149, 0x1.fffffep127}, [WEIR_F16] = {11, -24, 65504}, [WEIR_BF16] = {8, -133, 0x1.fep127}};

double kernel_round(weir_dtype dtype, double x)
{
    const struct format *f = &formats[dtype];
    int exponent;
    if (!isfinite(x) || x == 0)
        return x;
    frexp(x, &exponent);
    int last = exponent - f->digits < f->least ? f->least : exponent - f->digits;
    double rounded = ldexp(nearbyint(ldexp(x, -last)), last);
    return fabs(rounded) > f->most ? copysign(INFINITY, x) : rounded;
}

double kernel_digit(weir_dtype dtype)
{
    return dtype == WEIR_F16 || dtype == WEIR_BF16 ? ldexp(1, -formats[dtype].digits) : 0;
}

bool kernel_near(double got, double want, double tolerance)
{
    if (isnan(want) || isinf(want))
        return isnan(want) ? isnan(got) : got == want;
    return fabs(got - want) <= tolerance * (1 + fabs(want));
}

void kernel_check_near(const kernel_check *c, int out, kernel_reference reference, double tolerance)
{
    const weir_view *view = &c->out[out];
    int64_t count = weir_shape_count(&view->shape);
    double *want = calloc((size_t)count + 1, sizeof *want);
    cr_assert_not_null(want);
    reference(c, out, want);
    if (tolerance > 0)
        tolerance += kernel_digit(view->dtype);
    for (int64_t i = 0; i < count; i++)
        cr_assert(kernel_near(kernel_at(view, i), want[i], tolerance), "%s: output %d is %.9g at %ld, not %.9g",
                  c->op->name, out, kernel_at(view, i), (long)i, want[i]);
    free(want);
}

void kernel_check_free(kernel_check *c)
{
    for (int i = 0; i < c->in_count; i++)
        buffer_free(c->in[i].data);
    for (int i = 0; i < c->out_count; i++)
        buffer_free(c->out[i].data);
    for (int i = 0; i < c->state_count; i++)
        buffer_free(c->state[i].data);
    *c = (kernel_check){0};
}

/* ---- infer ---- */

void kernel_check_infers(const weir_op *op, const void *attrs, const weir_type *in, int in_count, weir_type *out)
{
    char error[256] = "";
    weir_op_args args = {op, in, in_count, out, op->out_count, attrs};
    bool accepted = op->infer(&args, error, sizeof error);
    cr_assert(accepted, "%s refused: %s", op->name, error);
}

void kernel_check_refuses(const weir_op *op, const void *attrs, const weir_type *in, int in_count, const char *sentence)
{
    char error[256] = "";
    weir_type out[KERNEL_CHECK_MAX] = {0};
    weir_op_args args = {op, in, in_count, out, op->out_count, attrs};
    bool accepted = op->infer(&args, error, sizeof error);
    cr_assert(!accepted, "%s accepted what it should refuse: %s", op->name, sentence);
    cr_assert(strstr(error, sentence), "%s said \"%s\", not \"%s\"", op->name, error, sentence);
}
