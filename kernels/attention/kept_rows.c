/* kernels/attention/kept_rows.c: the CPU kernel of attention behind kept rows; kept.c has the rules.
 *
 *     q of some rows and all heads of a group  [queries, head_dim]    copied, widened and scaled
 *     scores  = q K^T                          [queries, keys]        a run of keys at a time, turned to [head_dim, run]
 *     weights = exp(scores - the largest)                             of the keys that the row sees
 *     out     = weights V / their sum          [queries, head_dim]    a run of values at a time
 *
 * A row must give the same bits whether the ones before it were kept or come with it, and however many come with it: a text that is
 * written a row a step is then the one that the whole window gives. So each score is one chain of multiply-adds in the order of the
 * dimension, and each element of the result one in the order of the keys (gemm_rows). How many queries and keys are taken at a time
 * changes no chain. The softmax is over a row by itself.
 *
 * One row reads each kept key and value once for all heads of its group. With many rows a run of keys is turned, or widened from
 * halves, once for BLOCK queries. With few of them and rows of bf16, neither is laid down (few.h).
 */
#include "kernels/attention/few.h"
#include "kernels/attention/kept.h"
#include "kernels/attention/turn.h"

#include "kernels/common/lanes.h"
#include "kernels/common/real.h"
#include "kernels/matmul/rows.h"

#include <math.h>
#include <string.h>

enum { RUN = 64, BLOCK = 48, WEIGHTS_MOST = 1 << 18 };

/* Sizes that do not change within a call, and where in the workspace what is. */
typedef struct kept_call {
    int64_t rows, room, position, dim, kv_dim, head_dim, group, window;
    int64_t most;  /* rows at a time */
    int64_t apart; /* from a query's weights to the next one's */
    float scale;
    struct attention_mask mask;
    float *weights, *q, *out, *share, *run;
} kept_call;

/* Keys or values of one head of a sequence: kept rows, and new ones from the position on. */
typedef struct kept_lines {
    const weir_view *kept, *new;
    int64_t first_kept, first_new; /* elements */
} kept_lines;

/* Some rows of the heads of a group. */
typedef struct kept_block {
    kept_lines keys, values;
    int64_t row, rows; /* the first one, and how many */
    int64_t from;      /* the first key that the first row sees; its weight is the first of each query */
    bool first_head;
} kept_block;

/* ---- workspace ---- */

static int64_t rows_at_once(int64_t rows, int64_t group, int64_t room)
{
    int64_t most = WEIGHTS_MOST / (group * (room > 0 ? room : 1));
    most = most < BLOCK / group ? most : BLOCK / group;
    most = most < rows ? most : rows;
    return most > 1 ? most : 1;
}

/* A run of scores is whole vectors. */
static int64_t weights_apart(int64_t room)
{
    return (room / LANES + 2) * LANES;
}

size_t kept_rows_workspace(int64_t rows, int64_t room, int64_t group, int64_t width)
{
    const int64_t queries = rows_at_once(rows, group, room) * group;
    return (size_t)(queries * (weights_apart(room) + 2 * width + 1) + RUN * width) * sizeof(float);
}

/* ---- keys as columns, values as f32 ---- */

/* A word of up to LANES keys. By itself, since it is large. */
static __attribute__((noinline)) void turn_words(const char *from, int64_t apart, int64_t count, lanes to[LANES])
{
    lanes t[LANES];
    for (int j = 0; j < LANES; j++)
        __builtin_prefetch(from + (j + RUN) * apart);
    if (count >= LANES)
        load_keys(from, apart, LANES, t);
    else
        load_keys(from, apart, count, t);
    turn(t);
    memcpy(to, t, sizeof t);
}

/* Columns `at` and on, of which there are 16 of f32, 32 of halves, of up to LANES keys, to rows of `to`. */
static inline __attribute__((always_inline)) void turn_tile(const char *from, int64_t apart, int64_t count, weir_dtype dtype, float *to)
{
    lanes t[LANES];
    turn_words(from, apart, count, t);
    for (int i = 0; i < LANES; i++)
        if (dtype == WEIR_F32) {
            lanes_store(to + i * RUN, &t[i]);
        } else {
            const lanes even = widened((words)t[i] & 0xFFFF, dtype == WEIR_BF16), odd = widened((words)t[i] >> 16, dtype == WEIR_BF16);
            lanes_store(to + 2 * i * RUN, &even);
            lanes_store(to + (2 * i + 1) * RUN, &odd);
        }
}

static inline __attribute__((always_inline)) int64_t turn_tiles(const char *from, int64_t apart, int64_t count, int64_t width,
                                                                weir_dtype dtype, float *to)
{
    const int64_t columns = dtype == WEIR_F32 ? LANES : 2 * LANES;
    int64_t at = 0;
    for (; at + columns <= width; at += columns, from += LANES * sizeof(float))
        for (int64_t j = 0; j < count; j += LANES)
            turn_tile(from + j * apart, apart, count - j, dtype, to + at * RUN + j);
    return at;
}

/* The last columns, fewer than a tile. */
static void turn_rest(const weir_view *view, int64_t first, int64_t apart, int64_t count, int64_t columns, float *to)
{
    float row[2 * LANES];
    const int64_t whole = (count + LANES - 1) / LANES * LANES;
    for (int64_t j = 0; j < whole; j++) {
        const float *from = j < count ? real_in(view, first + j * apart, columns, row) : row;
        for (int64_t i = 0; i < columns; i++)
            to[i * RUN + j] = j < count ? from[i] : 0;
    }
}

/* `count` keys from element `first` on, `apart` elements from each other, to call->run [head_dim, RUN]. */
static void turn_keys(const kept_call *call, const weir_view *view, int64_t first, int64_t count)
{
    const int64_t width = call->head_dim, bytes = (int64_t)weir_dtype_bytes(view->dtype), apart = call->kv_dim * bytes;
    const char *from = (const char *)view->data + first * bytes;
    int64_t at = view->dtype == WEIR_F32    ? turn_tiles(from, apart, count, width, WEIR_F32, call->run)
                 : view->dtype == WEIR_BF16 ? turn_tiles(from, apart, count, width, WEIR_BF16, call->run)
                                            : turn_tiles(from, apart, count, width, WEIR_F16, call->run);
    if (at < width)
        turn_rest(view, first + at, call->kv_dim, count, width - at, call->run + at * RUN);
}

static inline __attribute__((always_inline)) void widen_row(const uint16_t *from, int64_t apart, int64_t width, bool bf16, float *to)
{
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        halves half;
        if (i % (2 * LANES) == 0)
            __builtin_prefetch(from + i + RUN / 2 * apart);
        memcpy(&half, from + i, sizeof half);
        const lanes wide = widened(__builtin_convertvector(half, words), bf16);
        lanes_store(to + i, &wide);
    }
    if (i < width)
        weir_to_f32(bf16 ? WEIR_BF16 : WEIR_F16, from + i, width - i, to + i);
}

/* Values as f32: in their place, or in call->run. */
static const float *wide_values(const kept_call *call, const weir_view *view, int64_t first, int64_t count, int64_t *apart)
{
    *apart = call->kv_dim;
    if (view->dtype == WEIR_F32)
        return view_f32(view) + first;
    *apart = call->head_dim;
    const uint16_t *from = view_half(view) + first;
    for (int64_t j = 0; j < count; j++, from += call->kv_dim)
        if (view->dtype == WEIR_BF16)
            widen_row(from, call->kv_dim, call->head_dim, true, call->run + j * call->head_dim);
        else
            widen_row(from, call->kv_dim, call->head_dim, false, call->run + j * call->head_dim);
    return call->run;
}

/* ---- a block of queries ---- */

/* The next run of the keys or values from `key` on, up to `end`. They are all kept or all new. */
typedef struct kept_run {
    const weir_view *view;
    int64_t first, count;
} kept_run;

static kept_run next_run(const kept_call *call, const kept_lines *of, int64_t key, int64_t end)
{
    const bool kept = key < call->position;
    const int64_t last = kept && call->position < end ? call->position : end;
    return (kept_run){kept ? of->kept : of->new,
                      kept ? of->first_kept + key * call->kv_dim : of->first_new + (key - call->position) * call->kv_dim,
                      last - key < RUN ? last - key : RUN};
}

/* `rows` rows of the block. The first head asks for whole rows of keys and values, so that the other heads find them near. */
static few_queries few_of(const kept_call *call, const kept_block *b, int64_t rows)
{
    return (few_queries){rows * call->group, call->head_dim, call->kv_dim, call->apart, b->first_head};
}

/* A run's scores are whole vectors. The next run writes over the ones that are too many; those of the last are behind the last key. */
static void block_scores(const kept_call *call, const kept_block *b)
{
    const int64_t end = call->position + b->row + b->rows;
    kept_run run;
    for (int64_t key = b->from; key < end; key += run.count) {
        float *scores = call->weights + (key - b->from);
        run = next_run(call, &b->keys, key, end);
        if (few_fit(run.view->dtype, b->rows * call->group, call->head_dim)) {
            const few_queries few = few_of(call, b, b->rows);
            few_scores(&few, call->q, view_half(run.view) + run.first, run.count, scores);
            continue;
        }
        turn_keys(call, run.view, run.first, run.count);
        gemm_rows(b->rows * call->group, (run.count + LANES - 1) / LANES * LANES, call->head_dim, call->q, call->head_dim, call->run,
                  RUN, false, scores, call->apart);
    }
}

/* out += weights V for `rows` rows from the block's row `row` on, and values `key` to `end`. */
static void add_values(const kept_call *call, const kept_block *b, int64_t row, int64_t rows, int64_t key, int64_t end)
{
    const int64_t query = row * call->group, width = call->head_dim;
    kept_run run;
    for (; key < end; key += run.count) {
        int64_t apart;
        const float *weights = call->weights + query * call->apart + (key - b->from);
        run = next_run(call, &b->values, key, end);
        if (few_fit(run.view->dtype, rows * call->group, width)) {
            const few_queries few = few_of(call, b, rows);
            few_values(&few, weights, view_half(run.view) + run.first, run.count, call->out + query * width);
            continue;
        }
        const float *values = wide_values(call, run.view, run.first, run.count, &apart);
        gemm_rows(rows * call->group, width, run.count, weights, call->apart, values, apart, true, call->out + query * width, width);
    }
}

/* Values that all rows of the block see are taken for all at once; those before and behind, for each row by itself. */
static void block_values(const kept_call *call, const kept_block *b)
{
    const int64_t last = call->position + b->row + b->rows - 1, from_last = key_from(call->window, last);
    const int64_t all_end = call->position + b->row + 1, all_from = from_last < all_end ? from_last : all_end;
    memset(call->out, 0, (size_t)(b->rows * call->group * call->head_dim) * sizeof *call->out);
    for (int64_t r = 0; r < b->rows; r++)
        add_values(call, b, r, 1, key_from(call->window, call->position + b->row + r), all_from);
    add_values(call, b, 0, b->rows, all_from, all_end);
    for (int64_t r = 0; r < b->rows; r++) {
        const int64_t from = key_from(call->window, call->position + b->row + r);
        add_values(call, b, r, 1, from > all_end ? from : all_end, all_end + r);
    }
}

/* Hides scores of `count` keys from `first` on, or adds to them. */
static void row_mask(const struct attention_mask *mask, int64_t first, int64_t count, float *score)
{
    for (int64_t i = 0; i < count; i++)
        if (!mask->bytes)
            score[i] += ((const float *)mask->at)[first + i];
        else if (!((const uint8_t *)mask->at)[first + i])
            score[i] = -INFINITY;
}

/* Scores to exp(score - the largest); returns what the weighted sum is to be multiplied by, which is 0 where all keys are hidden. */
static float row_softmax(const kept_call *call, int64_t mask, int64_t count, float *x)
{
    if (call->mask.at)
        row_mask(&call->mask, mask, count, x);
    const float most = row_max(x, count);
    if (call->mask.at && !(most > -INFINITY)) {
        memset(x, 0, (size_t)count * sizeof *x);
        return 0;
    }
    FAST_LOOP
    for (int64_t i = 0; i < count; i++)
        x[i] = fast_exp(x[i] - most);
    return 1 / row_sum(x, count);
}

static void block_softmax(const kept_call *call, const kept_block *b, int64_t mask)
{
    for (int64_t query = 0; query < b->rows * call->group; query++) {
        const int64_t row = b->row + query / call->group, head = query % call->group;
        const int64_t from = key_from(call->window, call->position + row);
        call->share[query] = row_softmax(call, mask + head * call->mask.head + row * call->mask.row + from,
                                         call->position + row + 1 - from, call->weights + query * call->apart + (from - b->from));
    }
}

/* The block's rows of q, scaled; `first` is the element of its first row. */
static void take_queries(const kept_call *call, const weir_view *q, int64_t first, int64_t rows)
{
    const int64_t width = call->group * call->head_dim;
    for (int64_t r = 0; r < rows; r++) {
        float *to = call->q + r * width;
        const float *from = real_in(q, first + r * call->dim, width, to);
        for (int64_t i = 0; i < width; i++)
            to[i] = call->scale * from[i];
    }
}

static void put_rows(const kept_call *call, const weir_view *out, int64_t first, int64_t rows)
{
    const int64_t width = call->group * call->head_dim;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = first + r * call->dim;
        float *sum = call->out + r * width, *to = real_out(out, at, sum);
        for (int64_t i = 0; i < width; i++)
            to[i] = sum[i] * call->share[r * call->group + i / call->head_dim];
        real_put(out, at, width, to);
    }
}

/* The group of head `head` of the keys of a sequence. */
static void one_group(const kept_call *call, const weir_kernel_args *args, int64_t batch, int64_t head)
{
    const int64_t column = head * call->head_dim, mask = mask_row(&call->mask, batch, head * call->group, 0);
    const int64_t kept = batch * call->room * call->kv_dim + column, new = batch * call->rows * call->kv_dim + column;
    const int64_t first = batch * call->rows * call->dim + column * call->group;
    kept_block b = {.keys = {&args->in[3], &args->in[1], kept, new}, .values = {&args->in[4], &args->in[2], kept, new}, .first_head = !head};
    for (; b.row < call->rows; b.row += b.rows) {
        b.rows = call->rows - b.row < call->most ? call->rows - b.row : call->most;
        b.from = key_from(call->window, call->position + b.row);
        take_queries(call, &args->in[0], first + b.row * call->dim, b.rows);
        block_scores(call, &b);
        block_softmax(call, &b, mask);
        block_values(call, &b);
        put_rows(call, &args->out[0], first + b.row * call->dim, b.rows);
    }
}

weir_status kept_rows_run(const weir_kernel_args *args, int64_t window)
{
    const struct kept_attrs *attrs = args->attrs;
    const int64_t *q = args->in[0].shape.dim, *keys = args->in[3].shape.dim;
    kept_call call = {.rows = q[1], .room = keys[1], .position = *view_i32(&args->in[5]), .dim = q[2], .kv_dim = keys[2],
                      .head_dim = attrs->head_dim, .group = group_of(q[2], keys[2]), .window = window, .scale = (float)attrs->scale};
    if (args->in_count > 6)
        call.mask = mask_of(&args->in[6]);
    if (call.position < 0 || call.position > call.room - call.rows)
        return kept_refused(args, 0, *view_i32(&args->in[5]));
    call.most = rows_at_once(call.rows, call.group, call.room);
    call.apart = weights_apart(call.room);
    call.weights = args->workspace;
    call.q = call.weights + call.most * call.group * call.apart;
    call.out = call.q + call.most * call.group * call.head_dim;
    call.share = call.out + call.most * call.group * call.head_dim;
    call.run = call.share + call.most * call.group;
    for (int64_t batch = 0; batch < q[0]; batch++)
        for (int64_t head = 0; head < call.kv_dim / call.head_dim; head++)
            one_group(&call, args, batch, head);
    return WEIR_OK;
}
