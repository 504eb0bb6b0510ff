/* tests/graph/verify/rule_check.h: a rule over doubles, held against the op's CPU kernel.
 *
 *     rule_check c = check_new("add", seed);
 *     check_in(&c, WEIR_F32, SHAPE(3, 4));      // random values
 *     check_in(&c, WEIR_F32, SHAPE(4));
 *     check_out(&c, WEIR_F32, SHAPE(3, 4));     // random values too: both start from the same
 *     check_run(&c);                            // calls both, compares all outputs and states
 *     check_free(&c);
 *
 * Some calls have wrong values, such as a label that no class has. Such a check sets .refuses, and then kernel and rule must both
 * refuse. Each call has types that the op's own rules (fits, infer) allow. A disagreement fails the Criterion test, and its message
 * has the seed.
 *
 * check_shaken() makes a call with sizes and attributes that do not fit, as a plan from a file may have them.
 *
 * The suite that includes this compiles the rules once more, over doubles.h.
 */
#ifndef TESTS_GRAPH_VERIFY_RULE_CHECK_H
#define TESTS_GRAPH_VERIFY_RULE_CHECK_H

#include "tests/support/double_rules.c"

#include "tests/support/kernel_check.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { CHECK_WORDS = 160, CHECK_ERROR = 256 };
#define CHECK_TOLERANCE 1e-4

typedef struct rule_check {
    const weir_op *op;
    weir_kernel_fn kernel; /* the op's; of an op that no CPU has, one that calls its parts */
    uint64_t seed, random; /* the generator's first state, and the one that it has */
    plan_word words[CHECK_WORDS];
    int in_count, out_count, state_count;
    weir_view in[KERNEL_CHECK_MAX], out[KERNEL_CHECK_MAX], state[KERNEL_CHECK_MAX]; /* their data is owned */
    uint64_t key;
    int64_t step;
    int micro, micros;
    bool accumulate;
    bool placed;  /* where the shards lie matters; otherwise they get a random place in a larger tensor */
    bool refuses; /* the values are wrong */
    bool tiny;    /* results may be far below 1, so the tolerance is relative */
} rule_check;

static int64_t check_compared; /* values, by all calls of this process */

/* ---- random numbers ---- */

/* From first to last, both included. */
static inline int64_t check_from(rule_check *c, int64_t first, int64_t last)
{
    return first + (int64_t)(kernel_random(&c->random) * (double)(last - first + 1));
}

static inline double check_between(rule_check *c, double low, double high)
{
    return low + kernel_random(&c->random) * (high - low);
}

static inline bool check_coin(rule_check *c)
{
    return kernel_random(&c->random) < 0.5;
}

/* A size of up to `most`, and sometimes 0. */
static inline int64_t check_size(rule_check *c, int64_t most)
{
    return kernel_random(&c->random) < 0.05 ? 0 : check_from(c, 1, most);
}

static inline weir_shape check_shape(rule_check *c, int rank_least, int rank_most)
{
    weir_shape shape = {.rank = (int)check_from(c, rank_least, rank_most)};
    for (int d = 0; d < shape.rank; d++)
        shape.dim[d] = check_size(c, 6);
    return shape;
}

static inline weir_dtype check_dtype(rule_check *c)
{
    const weir_dtype dtypes[] = {WEIR_F32, WEIR_I32, WEIR_U8, WEIR_F16, WEIR_BF16, WEIR_I64, WEIR_I8};
    return dtypes[check_from(c, 0, 6)];
}

/* A shape that broadcasts to `large`: without its first dimensions, and 1 in others. */
static inline weir_shape check_small_shape(rule_check *c, const weir_shape *large)
{
    weir_shape small = {.rank = (int)check_from(c, 0, large->rank)};
    for (int d = 0; d < small.rank; d++)
        small.dim[d] = check_coin(c) ? 1 : large->dim[d + large->rank - small.rank];
    return small;
}

/* The shape with another number of columns. */
static inline weir_shape check_columns(weir_shape shape, int64_t columns)
{
    shape.dim[shape.rank - 1] = columns;
    return shape;
}

/* ---- operands ---- */

static inline void check_fill(rule_check *c, const weir_view *view, double low, double high)
{
    for (int64_t i = 0; i < weir_shape_count(&view->shape); i++) {
        const double value = check_between(c, low, high);
        kernel_set(view, i, weir_dtype_real(view->dtype) ? value : floor(value));
    }
}

static inline void check_set(const weir_view *view, double value)
{
    for (int64_t i = 0; i < weir_shape_count(&view->shape); i++)
        kernel_set(view, i, value);
}

/* Reals from -2 to 2, integers from 0 to 9. */
static inline weir_view *check_add(rule_check *c, weir_view *views, int *count, weir_dtype dtype, weir_shape shape)
{
    cr_assert_lt(*count, KERNEL_CHECK_MAX);
    weir_view *view = &views[(*count)++];
    *view = kernel_view_new((weir_type){dtype, shape}, 0);
    check_fill(c, view, weir_dtype_real(dtype) ? -2 : 0, weir_dtype_real(dtype) ? 2 : 10);
    return view;
}

static inline weir_view *check_in(rule_check *c, weir_dtype dtype, weir_shape shape)
{
    return check_add(c, c->in, &c->in_count, dtype, shape);
}

static inline weir_view *check_out(rule_check *c, weir_dtype dtype, weir_shape shape)
{
    return check_add(c, c->out, &c->out_count, dtype, shape);
}

static inline weir_view *check_state(rule_check *c, weir_dtype dtype, weir_shape shape)
{
    return check_add(c, c->state, &c->state_count, dtype, shape);
}

/* An input with the values of `from`: a result of another op. */
static inline void check_in_of(rule_check *c, const weir_view *from)
{
    const weir_view *to = check_in(c, from->dtype, from->shape);
    for (int64_t i = 0; i < weir_shape_count(&from->shape); i++)
        kernel_set(to, i, kernel_at(from, i));
}

/* Dimension d of the shard begins at `start` of `global`. */
static inline void check_place(rule_check *c, weir_view *view, int d, int64_t start, int64_t global)
{
    c->placed = true;
    view->offset[d] = start;
    view->global.dim[d] = global;
}

static inline void check_scatter(rule_check *c, weir_view *views, int count)
{
    for (int i = 0; i < count; i++)
        for (int d = 0; d < views[i].shape.rank; d++) {
            views[i].offset[d] = check_from(c, 0, 3);
            views[i].global.dim[d] = views[i].offset[d] + views[i].shape.dim[d] + check_from(c, 0, 3);
        }
}

/* ---- attributes ---- */

static inline plan_word *check_word(rule_check *c, const char *name, int k)
{
    for (int f = 0; f < c->op->field_count; f++)
        if (!strcmp(c->op->fields[f].name, name))
            return &c->words[c->op->fields[f].offset / sizeof(plan_word) + (size_t)k];
    cr_assert_fail("%s has no attribute %s", c->op->name, name);
    return c->words;
}

static inline void check_int(rule_check *c, const char *name, int k, int64_t value)
{
    check_word(c, name, k)->i = value;
}

static inline void check_real(rule_check *c, const char *name, double value)
{
    check_word(c, name, 0)->r = value;
}

/* ---- the two calls ---- */

static inline rule_check check_new(const char *op, uint64_t seed)
{
    rule_check c = {.op = weir_op_find(op), .seed = seed, .random = seed, .key = seed * 0x9e3779b97f4a7c15u, .micros = 1};
    cr_assert_not_null(c.op, "there is no op %s", op);
    cr_assert_leq(c.op->attrs_bytes, sizeof c.words);
    c.kernel = c.op->kernel[WEIR_CPU];
    return c;
}

static inline void check_free_views(weir_view *views, int count)
{
    for (int i = 0; i < count; i++)
        kernel_view_free(&views[i]);
}

static inline void check_free(rule_check *c)
{
    check_free_views(c->in, c->in_count);
    check_free_views(c->out, c->out_count);
    check_free_views(c->state, c->state_count);
}

static inline void check_types(const weir_view *views, int count, weir_type *types)
{
    for (int i = 0; i < count; i++)
        types[i] = (weir_type){views[i].dtype, views[i].shape};
}

/* The session would call the kernel with these types. Returns the bytes of its workspace. */
static inline size_t check_allowed(const rule_check *c)
{
    weir_type in[KERNEL_CHECK_MAX], out[KERNEL_CHECK_MAX], made[KERNEL_CHECK_MAX] = {0};
    char error[CHECK_ERROR] = "";
    check_types(c->in, c->in_count, in);
    check_types(c->out, c->out_count, out);
    weir_op_args args = {c->op, in, c->in_count, out, c->out_count, c->words};
    bool fits = true;
    if (c->op->fits) {
        fits = c->op->fits(&args, error, sizeof error);
    } else {
        args.out = made;
        fits = c->op->infer(&args, error, sizeof error) && args.out_count == c->out_count;
        for (int o = 0; fits && o < c->out_count; o++)
            fits = made[o].dtype == out[o].dtype && weir_shape_equal(&made[o].shape, &out[o].shape);
        args.out = out;
    }
    cr_assert(fits, "%s, seed %llu: the test's types are wrong: %s", c->op->name, (unsigned long long)c->seed, error);
    return c->op->workspace ? c->op->workspace(&args, WEIR_CPU) : 0;
}

static inline weir_status check_kernel(const rule_check *c)
{
    char error[CHECK_ERROR] = "";
    const size_t bytes = check_allowed(c);
    void *workspace = aligned_alloc(64, (bytes + 64) / 64 * 64);
    cr_assert_not_null(workspace);
    const weir_kernel_args args = {
        .in = c->in, .in_count = c->in_count, .out = c->out, .out_count = c->out_count, .state = c->state,
        .state_count = c->state_count, .attrs = c->words, .workspace = workspace, .workspace_bytes = bytes, .key = c->key,
        .firing = c->step * c->micros + c->micro, .step = c->step, .micro = c->micro, .accumulate = c->accumulate,
        .error = error, .error_bytes = sizeof error,
    };
    const weir_status status = c->kernel(&args);
    free(workspace);
    cr_assert_eq(status != WEIR_OK, c->refuses, "%s, seed %llu: the kernel returns %d (%s)", c->op->name,
                 (unsigned long long)c->seed, (int)status, error);
    return status;
}

/* The values of a view, for a rule, and behind them a guard that no rule may read or write. */
static inline rule_array check_array(const weir_view *view, double guard)
{
    rule_array array = {.dtype = view->dtype, .rank = view->shape.rank, .count = weir_shape_count(&view->shape)};
    for (int d = 0; d < view->shape.rank; d++) {
        array.shape[d] = view->shape.dim[d];
        array.start[d] = view->offset[d];
        array.global[d] = view->global.dim[d];
    }
    array.at = calloc((size_t)array.count + 1, sizeof *array.at);
    cr_assert_not_null(array.at);
    for (int64_t n = 0; n < array.count; n++)
        array.at[n] = field_real(kernel_at(view, n));
    array.at[array.count] = field_real(guard);
    return array;
}

/* The operands of a call, as arrays. */
typedef struct check_arrays {
    rule_array in[KERNEL_CHECK_MAX], out[KERNEL_CHECK_MAX], state[KERNEL_CHECK_MAX];
} check_arrays;

/* The guard of each array is another number, far from all others. */
static inline void check_each(const weir_view *views, int count, rule_array *arrays, double guard)
{
    for (int i = 0; i < count; i++)
        arrays[i] = check_array(&views[i], guard + 1e25 * i);
}

#define CHECK_GUARD_IN 1e30
#define CHECK_GUARD_OUT 2e30
#define CHECK_GUARD_STATE 3e30

static inline void check_open(const rule_check *c, check_arrays *arrays)
{
    check_each(c->in, c->in_count, arrays->in, CHECK_GUARD_IN);
    check_each(c->out, c->out_count, arrays->out, CHECK_GUARD_OUT);
    check_each(c->state, c->state_count, arrays->state, CHECK_GUARD_STATE);
}

static inline void check_close_each(const rule_check *c, const rule_array *arrays, int count, double guard)
{
    for (int i = 0; i < count; i++) {
        cr_assert_eq(arrays[i].at[arrays[i].count].of[0], guard + 1e25 * i, "%s, seed %llu: the rule wrote behind an operand",
                     c->op->name, (unsigned long long)c->seed);
        free(arrays[i].at);
    }
}

static inline void check_close(const rule_check *c, check_arrays *arrays)
{
    check_close_each(c, arrays->in, c->in_count, CHECK_GUARD_IN);
    check_close_each(c, arrays->out, c->out_count, CHECK_GUARD_OUT);
    check_close_each(c, arrays->state, c->state_count, CHECK_GUARD_STATE);
}

static inline bool check_rule(const rule_check *c, const check_arrays *arrays, char *error)
{
    const rule_call call = {
        .op = c->op, .name = "test", .words = c->words, .in = arrays->in, .out = arrays->out, .state = arrays->state,
        .in_count = c->in_count, .out_count = c->out_count, .state_count = c->state_count, .key = c->key, .step = c->step,
        .micro = c->micro, .micros = c->micros, .accumulate = c->accumulate, .seed = c->seed, .error = error,
        .error_bytes = CHECK_ERROR,
    };
    return rule_find(c->op->name)(&call);
}

static inline void check_compare(const rule_check *c, const char *what, const weir_view *views, const rule_array *arrays,
                                 int count)
{
    for (int i = 0; i < count; i++)
        for (int64_t n = 0; n < arrays[i].count; n++, check_compared++) {
            const double got = arrays[i].at[n].of[0], want = kernel_at(&views[i], n);
            const double tolerance = weir_dtype_real(views[i].dtype) ? CHECK_TOLERANCE : 0, unit = c->tiny && want != 0 ? want : 1;
            cr_assert(kernel_near(got / unit, want / unit, tolerance),
                      "%s, seed %llu: element %lld of %s %d is %.9g by the rule and %.9g by the kernel", c->op->name,
                      (unsigned long long)c->seed, (long long)n, what, i, got, want);
        }
}

static inline void check_run(rule_check *c)
{
    check_arrays arrays;
    char error[CHECK_ERROR] = "";
    if (!c->placed && check_coin(c)) {
        check_scatter(c, c->in, c->in_count);
        check_scatter(c, c->out, c->out_count);
    }
    check_open(c, &arrays);
    const bool done = check_rule(c, &arrays, error);
    cr_assert_eq(!done, c->refuses, "%s, seed %llu: the rule %s (%s)", c->op->name, (unsigned long long)c->seed,
                 done ? "accepts the call" : "refuses the call", error);
    if (check_kernel(c) == WEIR_OK) {
        check_compare(c, "output", c->out, arrays.out, c->out_count);
        check_compare(c, "state", c->state, arrays.state, c->state_count);
    }
    check_close(c, &arrays);
}

/* Gives one operand a dimension more, a dimension less or another size. */
static inline void check_shake(rule_check *c, weir_view *views, int count)
{
    if (!count)
        return;
    weir_view *view = &views[check_from(c, 0, count - 1)];
    weir_shape shape = view->shape;
    const int dim = shape.rank ? (int)check_from(c, 0, shape.rank - 1) : 0, what = (int)check_from(c, 0, 3);
    if (what == 0 && shape.rank < WEIR_DIMS_MAX)
        shape.dim[shape.rank++] = check_from(c, 0, 4);
    else if (what == 1 && shape.rank)
        shape.dim[--shape.rank] = 0;
    else if (shape.rank)
        shape.dim[dim] = check_from(c, 0, 9);
    const weir_view shaken = kernel_view_new((weir_type){view->dtype, shape}, 0);
    check_fill(c, &shaken, view->dtype == WEIR_U8 ? 0 : -2, 9);
    kernel_view_free(view);
    *view = shaken;
}

/* Another number in the place of one word of an attribute. */
static inline void check_shake_words(rule_check *c)
{
    const int64_t far[] = {INT64_MIN, INT64_MAX, INT64_C(1) << 32, -(INT64_C(1) << 32)}, near = check_from(c, -3, 9);
    const weir_field *field = &c->op->fields[check_from(c, 0, c->op->field_count - 1)];
    plan_word *word = check_word(c, field->name, (int)check_from(c, 0, field->count - 1));
    *word = field->real ? (plan_word){.r = (double)near} : (plan_word){.i = check_coin(c) ? near : far[check_from(c, 0, 3)]};
}

/* The rule must not crash, nor write behind an operand; the results of wrong sizes do not matter. */
static inline void check_shaken(rule_check *c)
{
    check_arrays arrays;
    char error[CHECK_ERROR] = "";
    if (check_coin(c))
        check_shake(c, c->in, c->in_count);
    if (check_coin(c))
        check_shake(c, c->out, c->out_count);
    if (check_coin(c))
        check_shake(c, c->state, c->state_count);
    if (c->op->field_count && check_coin(c))
        check_shake_words(c);
    check_open(c, &arrays);
    check_rule(c, &arrays, error);
    check_close(c, &arrays);
}

/* ---- tables ---- */

/* Fills a check with random operands and attributes. */
typedef struct check_case {
    const char *op;
    void (*make)(rule_check *c);
} check_case;

enum { CHECK_TRIALS = 300 };

static inline void check_trials(const check_case *one, void (*trial)(rule_check *c))
{
    for (uint64_t seed = 1; seed <= CHECK_TRIALS; seed++) {
        rule_check c = check_new(one->op, seed);
        one->make(&c);
        trial(&c);
        check_free(&c);
    }
}

/* Each rule of a table must have a case, and each case a rule. */
static inline void check_table(const rule_entry *rules, const check_case *cases, int case_count, void (*trial)(rule_check *c))
{
    int rule_count = 0;
    for (const rule_entry *rule = rules; rule->op; rule++, rule_count++) {
        int at = 0;
        while (at < case_count && strcmp(cases[at].op, rule->op) != 0)
            at++;
        cr_assert_lt(at, case_count, "the rule of %s has no case", rule->op);
        check_trials(&cases[at], trial);
    }
    cr_assert_eq(rule_count, case_count, "%d rules, %d cases", rule_count, case_count);
    cr_log_info("%d rules: %lld values compared", rule_count, (long long)check_compared);
}

#define CHECK_TABLE(rules, cases, trial) check_table(rules, cases, (int)(sizeof(cases) / sizeof *(cases)), trial)

#endif
