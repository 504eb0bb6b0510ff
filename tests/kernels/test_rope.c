/* test_rope.c: rotary positions against plain loops in double, whose frequencies are scaled by wavelengths, as Hugging Face's are. */
#include "kernels/common/ops.h"
#include "tests/kernels/by_name.h"
#include "tests/support/run.h"

#include <math.h>

#define SEED 20211 /* of all random inputs here */

/* Radians from one position to the next. */
static double frequency_of(const kernel_check *c, int64_t pair)
{
    const double own = 1 / pow(attr_get(c, "base"), 2 * (double)pair / attr_get(c, "rotary_dim")), wave = 2 * M_PI / own;
    const double trained = attr_get(c, "original_max_position"), factor = attr_get(c, "factor");
    const double low = attr_get(c, "low_freq_factor"), high = attr_get(c, "high_freq_factor");
    if (trained == 0 || wave > trained / low)
        return own / factor;
    if (wave < trained / high)
        return own;
    const double smooth = (trained / wave - low) / (high - low);
    return (1 - smooth) * own / factor + smooth * own;
}

static double position_of(const kernel_check *c, int64_t row)
{
    const int64_t seq = c->in[0].shape.dim[1];
    if (c->in_count == 2 && c->in[1].shape.rank == 2)
        return kernel_at(&c->in[1], row);
    return (double)(row % seq) + (c->in_count == 2 ? kernel_at(&c->in[1], 0) : 0);
}

static void reference_rope(const kernel_check *c, int out, double *want)
{
    const int64_t dim = c->in[0].shape.dim[2], rows = c->in[0].shape.dim[0] * c->in[0].shape.dim[1];
    const int64_t width = (int64_t)attr_get(c, "head_dim"), pairs = (int64_t)attr_get(c, "rotary_dim") / 2;
    const bool between = attr_get(c, "interleaved") != 0;
    (void)out;
    for (int64_t i = 0; i < rows * dim; i++)
        want[i] = kernel_at(&c->in[0], i);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t pair = 0; pair < pairs; pair++)
            for (int64_t head = 0; head < dim; head += width) {
                const double angle = position_of(c, row) * frequency_of(c, pair), turn = attr_get(c, "inverse") != 0 ? -angle : angle;
                const int64_t a = row * dim + head + (between ? 2 * pair : pair), b = a + (between ? 1 : pairs);
                const double left = want[a], right = want[b];
                want[a] = left * cos(turn) - right * sin(turn);
                want[b] = left * sin(turn) + right * cos(turn);
            }
}

enum positions { FROM_ZERO, FROM_ONE, FROM_EACH };

typedef struct rope_case {
    int64_t batch, seq, heads, head_dim, rotary_dim;
    bool interleaved, inverse;
    enum positions positions;
    int32_t first;
    weir_dtype dtype;
    double base, factor;
    int64_t original;
} rope_case;

static void check_rope(rope_case at)
{
    word attrs[9] = {{0}};
    const weir_op *op = &op_rope;
    attr_set(op, attrs, "head_dim", (double)at.head_dim);
    attr_set(op, attrs, "rotary_dim", (double)(at.rotary_dim ? at.rotary_dim : at.head_dim));
    attr_set(op, attrs, "interleaved", at.interleaved);
    attr_set(op, attrs, "inverse", at.inverse);
    attr_set(op, attrs, "base", at.base != 0 ? at.base : 10000);
    attr_set(op, attrs, "factor", at.factor != 0 ? at.factor : 1);
    attr_set(op, attrs, "low_freq_factor", 1);
    attr_set(op, attrs, "high_freq_factor", 4);
    attr_set(op, attrs, "original_max_position", (double)at.original);
    kernel_check c = kernel_check_new(op, attrs, SEED);
    kernel_check_in(&c, at.dtype ? at.dtype : WEIR_F32, SHAPE(at.batch, at.seq, at.heads * at.head_dim));
    if (at.positions != FROM_ZERO) {
        const weir_view *position = kernel_check_in(&c, WEIR_I32, at.positions == FROM_ONE ? SHAPE() : SHAPE(at.batch, at.seq));
        for (int64_t i = 0; i < weir_shape_count(&position->shape); i++)
            kernel_set(position, i, at.positions == FROM_ONE ? at.first : at.first + (double)(i * 7 % 13));
    }
    run_all_ways(&c, 1e-6);
    kernel_check_near(&c, 0, reference_rope, 1e-6);
    kernel_check_free(&c);
}

#define TURN(b, s, h, ...) check_rope((rope_case){.batch = (b), .seq = (s), .heads = (h), .head_dim = __VA_ARGS__})

Test(rope, turns_pairs_of_columns_by_the_angle_of_their_row, .timeout = 60)
{
    TURN(2, 5, 3, 8);
    TURN(2, 5, 3, 8, .interleaved = true);
    TURN(2, 5, 3, 8, .inverse = true);
    TURN(1, 3, 2, 64, .base = 500000);
    TURN(1, 1, 1, 2);
    TURN(0, 4, 2, 4);
    TURN(2, 0, 2, 4);
    TURN(2, 3, 0, 4);
}

Test(rope, leaves_the_columns_that_do_not_turn)
{
    TURN(2, 5, 3, 10, .rotary_dim = 4);
    TURN(2, 5, 3, 10, .rotary_dim = 4, .interleaved = true);
    TURN(1, 3, 2, 3, .rotary_dim = 2);
}

Test(rope, takes_the_position_of_the_first_row_or_of_each_row, .timeout = 60)
{
    TURN(2, 5, 2, 8, .positions = FROM_ONE, .first = 1000);
    TURN(2, 5, 2, 8, .positions = FROM_ONE, .first = -3);
    TURN(3, 5, 2, 8, .positions = FROM_EACH, .first = 100);
    TURN(2, 5, 2, 6, .positions = FROM_EACH, .interleaved = true);
}

Test(rope, angles_of_far_positions_are_as_good_as_those_of_near_ones)
{
    TURN(1, 4, 1, 64, .positions = FROM_ONE, .first = 131072);
    TURN(1, 4, 1, 64, .positions = FROM_ONE, .first = 100000000);
}

Test(rope, frequencies_are_scaled_as_those_of_llama_3)
{
    TURN(1, 6, 1, 64, .base = 500000, .factor = 8, .original = 8192, .positions = FROM_ONE, .first = 5000);
    TURN(1, 6, 1, 64, .base = 500000, .factor = 32, .original = 512, .positions = FROM_ONE, .first = 700);
    TURN(1, 6, 1, 16, .factor = 4, .positions = FROM_ONE, .first = 70);
}

Test(rope, rounds_halves_once, .timeout = 60)
{
    TURN(2, 5, 3, 8, .dtype = WEIR_BF16);
    TURN(2, 5, 3, 10, .rotary_dim = 6, .dtype = WEIR_F16, .interleaved = true, .positions = FROM_EACH);
}

/* So rows that are written one by one are those of a whole text. */
Test(rope, gives_a_row_the_bits_of_its_position, .timeout = 60)
{
    enum { ROWS = 9, DIM = 24, FIRST = 70 };
    const struct { int64_t sizes[5]; double base[4]; } words = {{12, 12, 0, 0, 64}, {100, 8, 1, 4}};
    kernel_check all = kernel_check_new(&op_rope, &words, SEED);
    kernel_check_in(&all, WEIR_F32, SHAPE(1, ROWS, DIM));
    kernel_set(kernel_check_in(&all, WEIR_I32, SHAPE(1)), 0, FIRST);
    kernel_check_run(&all);
    for (int row = 0; row < ROWS; row++)
        for (int each = 0; each < 2; each++) {
            kernel_check one = kernel_check_new(&op_rope, &words, SEED);
            const weir_view *x = kernel_check_in(&one, WEIR_F32, SHAPE(1, 1, DIM));
            memcpy(x->data, (float *)all.in[0].data + row * DIM, DIM * sizeof(float));
            kernel_set(kernel_check_in(&one, WEIR_I32, each ? SHAPE(1, 1) : SHAPE(1)), 0, FIRST + row);
            kernel_check_run(&one);
            cr_expect_eq(memcmp(one.out[0].data, (float *)all.out[0].data + row * DIM, DIM * sizeof(float)), 0, "row %d", row);
            kernel_check_free(&one);
        }
    kernel_check_free(&all);
}

/* Llama's attention: groups of heads, a window, a mask. The last rows behind kept ones are those of the whole text. */
Test(rope, rows_behind_kept_ones_are_those_of_the_whole_text, .timeout = 60)
{
    enum { FIRST = 5, ROWS = 3 };
    weir_graph *g = weir_graph_new("llama");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_param(g, WEIR_F32, {2, FIRST + ROWS, 24}, .name = "x", .init = WEIR_NORMAL(1));
    weir_tensor *ids = weir_input(g, WEIR_I32, {2, FIRST + ROWS}, .name = "ids"), *mask = weir_greater(ids, weir_constant(g, WEIR_I32, {1}));
    weir_tensor *at = weir_constant(g, WEIR_I32, {1}, .value = FIRST), *v = weir_linear(x, 12, .name = "v");
    weir_tensor *q = weir_linear(x, 24, .name = "q"), *k = weir_linear(x, 12, .name = "k"), *keys = weir_rope(k, NULL, .heads = 3);
    weir_tensor *whole = weir_attention(weir_rope(q, NULL, .heads = 6), keys, v, .heads = 6, .kv_heads = 3, .causal = true, .window = 4,
                                        .mask = mask);
    weir_tensor *new_q = weir_rope(weir_slice(q, 1, FIRST, ROWS), at, .heads = 6);
    weir_tensor *new_k = weir_rope(weir_slice(k, 1, FIRST, ROWS), at, .heads = 3), *new_v = weir_slice(v, 1, FIRST, ROWS);
    weir_tensor *rows = weir_attention_kept(new_q, new_k, new_v, keys, v, at, .heads = 6, .kv_heads = 3, .window = 4, .mask = mask);
    weir_fetch(weir_max(weir_abs(weir_sub(rows, weir_slice(whole, 1, FIRST, ROWS)))), .name = "apart");
    weir_fetch(weir_max(weir_abs(rows)), .name = "most");
    weir_plan *plan = run_compile(g, (weir_compile_opts){.size = sizeof(weir_compile_opts), .src = WEIR_HERE});
    run r = run_plan(plan, 3, 2);
    for (int step = 0; step < 3; step++) {
        cr_expect_lt(run_find(&r, "apart")->value[step], 1e-5);
        cr_expect_gt(run_find(&r, "most")->value[step], 0.1);
    }
    run_free(&r);
    weir_plan_free(plan);
}

Test(rope, refuses_shapes_that_do_not_fit)
{
    word attrs[9] = {{0}};
    weir_type in[2] = {{WEIR_F32, SHAPE(2, 5, 8)}, {WEIR_I32, SHAPE(2, 4)}};
    attr_set(&op_rope, attrs, "head_dim", 3);
    kernel_check_refuses(&op_rope, attrs, in, 1, "dim 8 does not consist of heads of 3");
    attr_set(&op_rope, attrs, "head_dim", 4);
    attr_set(&op_rope, attrs, "rotary_dim", 3);
    kernel_check_refuses(&op_rope, attrs, in, 1, "3 columns of heads of 4 turn");
    attr_set(&op_rope, attrs, "rotary_dim", 6);
    kernel_check_refuses(&op_rope, attrs, in, 1, "6 columns of heads of 4 turn");
    attr_set(&op_rope, attrs, "rotary_dim", 4);
    kernel_check_refuses(&op_rope, attrs, in, 2, "the position has shape [2, 4]; it needs one element");
    in[1] = (weir_type){WEIR_F32, SHAPE()};
    kernel_check_refuses(&op_rope, attrs, in, 2, "the position is f32");
    in[0].shape = SHAPE(2, 8);
    kernel_check_refuses(&op_rope, attrs, in, 1, "x is f32 with 2 dimensions");
}
