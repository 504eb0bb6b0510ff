/* test_rules_model.c: the rules of attention, embeddings, losses and optimizers, held against the CPU kernels. */
#include "tests/graph/verify/rule_check.h"

TestSuite(rules_of_models, .timeout = 60);

/* ---- attention ---- */

static bool is_masked(const rule_check *c)
{
    return strstr(c->op->name, "masked") != NULL;
}

static int64_t one_or(rule_check *c, int64_t size)
{
    return check_coin(c) ? 1 : size;
}

/* Adds a mask to a call that may have one. In some, a row sees no key. */
static void make_mask(rule_check *c, int64_t batch, int64_t heads, int64_t rows, int64_t keys)
{
    if (!is_masked(c) || !check_from(c, 0, 2))
        return;
    const weir_dtype dtype = check_coin(c) ? WEIR_U8 : WEIR_F32;
    const weir_shape all = SHAPE(one_or(c, batch), one_or(c, heads), one_or(c, rows), keys), few = SHAPE(all.dim[0], keys);
    const weir_view *mask = check_in(c, dtype, check_coin(c) ? all : few);
    if (dtype == WEIR_U8)
        check_fill(c, mask, 0, 2);
}

/* Adds inputs q, k and v to a call (, a mask), and the outputs that the op `attention` makes of them. */
static void make_attention(rule_check *c)
{
    const int64_t width = check_from(c, 1, 5), shared = check_size(c, 3), batch = check_size(c, 3), group = check_from(c, 1, 3);
    const int64_t queries = check_size(c, 7), keys = check_from(c, 1, 7), heads = shared * group;
    const bool causal = check_coin(c);
    check_int(c, "head_dim", 0, width);
    check_int(c, "causal", 0, causal);
    check_real(c, "scale", check_between(c, 0.2, 1));
    if (is_masked(c))
        check_int(c, "window", 0, causal ? check_from(c, 0, 4) : 0);
    check_in(c, WEIR_F32, SHAPE(batch, queries, heads * width));
    check_in(c, WEIR_F32, SHAPE(batch, keys, shared * width));
    check_in(c, WEIR_F32, SHAPE(batch, keys, shared * width));
    make_mask(c, batch, heads, queries, keys);
    check_out(c, WEIR_F32, SHAPE(batch, queries, heads * width));
    check_out(c, WEIR_F32, SHAPE(batch, heads, queries));
}

/* q, k, v, out, lse, dout (, mask) -> dq, dk, dv */
static void make_attention_grad(rule_check *c)
{
    rule_check forward = check_new(is_masked(c) ? "attention_masked" : "attention", c->seed);
    make_attention(&forward);
    check_run(&forward);
    memcpy(c->words, forward.words, sizeof c->words);
    for (int i = 0; i < 3; i++)
        check_in_of(c, &forward.in[i]);
    for (int o = 0; o < 2; o++)
        check_in_of(c, &forward.out[o]);
    check_in(c, WEIR_F32, forward.out[0].shape);
    if (forward.in_count > 3)
        check_in_of(c, &forward.in[3]);
    for (int i = 0; i < 3; i++)
        check_out(c, WEIR_F32, forward.in[i].shape);
    check_free(&forward);
}

/* q, k, v, kept keys, kept values, position (, mask) -> out */
static void make_attention_kept(rule_check *c)
{
    const int64_t width = check_from(c, 1, 5), shared = check_size(c, 3), dim = shared * width, batch = check_size(c, 3);
    const int64_t rows = check_from(c, 1, 4), room = rows + check_from(c, 0, 5), position = check_from(c, -1, room - rows + 1);
    const int64_t group = check_from(c, 1, 3);
    check_int(c, "head_dim", 0, width);
    check_real(c, "scale", check_between(c, 0.2, 1));
    if (is_masked(c))
        check_int(c, "window", 0, check_from(c, 0, 4));
    check_in(c, WEIR_F32, SHAPE(batch, rows, group * dim));
    for (int i = 0; i < 2; i++)
        check_in(c, WEIR_F32, SHAPE(batch, rows, dim));
    for (int i = 0; i < 2; i++)
        check_in(c, WEIR_F32, SHAPE(batch, room, dim));
    check_set(check_in(c, WEIR_I32, SHAPE()), (double)position);
    make_mask(c, batch, group * shared, rows, room);
    check_out(c, WEIR_F32, SHAPE(batch, rows, group * dim));
    c->refuses = position < 0 || position > room - rows;
}

/* x (, position) -> y; .base of a few columns turns all of them by much */
static void make_rope(rule_check *c)
{
    const int64_t columns = 2 * check_from(c, 1, 3), width = columns + check_from(c, 0, 3), dim = check_size(c, 3) * width;
    const int64_t batch = check_size(c, 3), rows = check_size(c, 5);
    const bool bands = check_coin(c);
    check_int(c, "head_dim", 0, width);
    check_int(c, "rotary_dim", 0, columns);
    check_int(c, "interleaved", 0, check_coin(c));
    check_int(c, "inverse", 0, check_coin(c));
    check_int(c, "original_max_position", 0, bands ? check_from(c, 4, 200) : 0);
    check_real(c, "base", check_between(c, 2, 100));
    check_real(c, "factor", check_between(c, 1, 8));
    check_real(c, "low_freq_factor", check_between(c, 0.2, 1));
    check_real(c, "high_freq_factor", check_between(c, 1.2, 4));
    check_in(c, WEIR_F32, SHAPE(batch, rows, dim));
    if (check_coin(c))
        check_in(c, WEIR_I32, SHAPE(batch, rows));
    else if (check_coin(c))
        check_set(check_in(c, WEIR_I32, SHAPE()), (double)check_from(c, -3, 9));
    check_out(c, WEIR_F32, SHAPE(batch, rows, dim));
}

/* ---- embedding ---- */

static weir_shape with_last(weir_shape shape, int64_t size)
{
    shape.dim[shape.rank++] = size;
    return shape;
}

/* Integers of 0 .. most - 1; in some calls one of them is wrong, and then the call is refused. */
static void fill_numbers(rule_check *c, const weir_view *view, int64_t most)
{
    const int64_t count = weir_shape_count(&view->shape);
    check_fill(c, view, 0, (double)most);
    if (!count || check_from(c, 0, 9))
        return;
    kernel_set(view, check_from(c, 0, count - 1), check_coin(c) ? -1 : (double)most);
    c->refuses = true;
}

/* Some rows of a table of `all`. */
static int64_t some_rows(rule_check *c, int64_t all, int64_t *start)
{
    *start = check_from(c, 0, all);
    return check_from(c, 0, all - *start);
}

static void make_embedding(rule_check *c)
{
    const int64_t vocab = check_from(c, 1, 9), dim = check_size(c, 5);
    const weir_shape ids = check_shape(c, 0, 3);
    int64_t start, rows = some_rows(c, vocab, &start);
    fill_numbers(c, check_in(c, WEIR_I32, ids), vocab);
    check_place(c, check_in(c, WEIR_F32, SHAPE(rows, dim)), 0, start, vocab);
    check_out(c, WEIR_F32, with_last(ids, dim));
}

static void make_embedding_grad(rule_check *c)
{
    const int64_t vocab = check_from(c, 1, 9), dim = check_size(c, 5);
    const weir_shape ids = check_shape(c, 0, 3);
    int64_t start, rows = some_rows(c, vocab, &start);
    c->accumulate = check_coin(c);
    check_int(c, "vocab", 0, vocab);
    fill_numbers(c, check_in(c, WEIR_I32, ids), vocab);
    check_in(c, WEIR_F32, with_last(ids, dim));
    check_place(c, check_out(c, WEIR_F32, SHAPE(rows, dim)), 0, start, vocab);
}

static const check_case attention_cases[] = {
    {"attention", make_attention}, {"attention_grad", make_attention_grad}, {"attention_kept", make_attention_kept},
    {"attention_masked", make_attention}, {"attention_masked_grad", make_attention_grad},
    {"attention_kept_masked", make_attention_kept}, {"rope", make_rope},
};
static const check_case model_cases[] = {{"embedding", make_embedding}, {"embedding_grad", make_embedding_grad}};

Test(rules_of_models, attention_and_embeddings_compute_what_their_kernels_compute)
{
    CHECK_TABLE(rules_attention, attention_cases, check_run);
    CHECK_TABLE(rules_model, model_cases, check_run);
}

/* ---- cross-entropy of whole rows ---- */

/* Labels of 0 .. classes - 1, some of which do not count. */
static void make_labels(rule_check *c, weir_shape shape, int64_t classes)
{
    const int64_t ignored[] = {-100, 0, classes - 1};
    const weir_view *labels = check_in(c, WEIR_I32, shape);
    check_fill(c, labels, 0, (double)classes);
    check_int(c, "ignore", 0, check_coin(c));
    check_int(c, "ignore_index", 0, ignored[check_from(c, 0, 2)]);
    for (int64_t i = 0; check_word(c, "ignore", 0)->i && i < weir_shape_count(&shape); i++)
        if (!check_from(c, 0, 3))
            kernel_set(labels, i, (double)check_word(c, "ignore_index", 0)->i);
}

/* One label that no class has, in some calls. */
static void spoil_labels(rule_check *c, int input, int64_t classes)
{
    const weir_view *labels = &c->in[input];
    const int64_t count = weir_shape_count(&labels->shape);
    if (!count || check_from(c, 0, 9))
        return;
    kernel_set(labels, check_from(c, 0, count - 1), check_coin(c) ? -1 : (double)classes);
    c->refuses = true;
}

/* In some calls, the number of rows that count. */
static void make_count(rule_check *c)
{
    if (check_coin(c))
        check_set(check_in(c, WEIR_F32, SHAPE()), (double)check_from(c, 0, 5));
}

static void make_cross_entropy(rule_check *c)
{
    const weir_shape rows = check_shape(c, 0, 3);
    const int64_t classes = check_from(c, 1, 7);
    check_in(c, WEIR_F32, with_last(rows, classes));
    make_labels(c, rows, classes);
    make_count(c);
    check_out(c, WEIR_F32, SHAPE());
    check_out(c, WEIR_F32, rows);
}

static void make_cross_entropy_refused(rule_check *c)
{
    make_cross_entropy(c);
    spoil_labels(c, 1, c->in[0].shape.dim[c->in[0].shape.rank - 1]);
}

/* logits, labels, lse, dloss (, count) -> dlogits */
static void make_cross_entropy_grad(rule_check *c)
{
    rule_check forward = check_new("cross_entropy", c->seed);
    make_cross_entropy(&forward);
    check_run(&forward);
    memcpy(c->words, forward.words, sizeof c->words);
    for (int i = 0; i < 2; i++)
        check_in_of(c, &forward.in[i]);
    check_in_of(c, &forward.out[1]);
    check_in(c, WEIR_F32, SHAPE());
    make_count(c);
    check_out(c, WEIR_F32, forward.in[0].shape);
    spoil_labels(c, 1, forward.in[0].shape.dim[forward.in[0].shape.rank - 1]);
    check_free(&forward);
}

static void make_label_count(rule_check *c)
{
    make_labels(c, check_shape(c, 0, 3), check_from(c, 1, 7));
    check_out(c, WEIR_F32, SHAPE());
}

/* ---- cross-entropy by groups of classes ---- */

/* A shard of the classes, in groups that differ by one at most. */
static void make_class_lse(rule_check *c)
{
    const weir_shape rows = check_shape(c, 0, 3);
    const int64_t groups = check_size(c, 4), classes = check_from(c, 1, 9);
    const int64_t start = check_from(c, 0, 5), all = start + classes + check_from(c, 1, 5);
    check_place(c, check_in(c, WEIR_F32, with_last(rows, classes)), rows.rank, start, all);
    make_labels(c, rows, all);
    check_int(c, "groups", 0, groups + 1);
    check_out(c, WEIR_F32, with_last(rows, groups));
    check_out(c, WEIR_F32, rows);
}

static void make_class_lse_refused(rule_check *c)
{
    make_class_lse(c);
    spoil_labels(c, 1, c->in[0].global.dim[c->in[0].shape.rank - 1]);
}

/* logits, labels, lse, dlse, dpicked -> dlogits */
static void make_class_lse_grad(rule_check *c)
{
    rule_check forward = check_new("class_lse", c->seed);
    make_class_lse(&forward);
    check_run(&forward);
    memcpy(c->words, forward.words, sizeof c->words);
    const int last = forward.in[0].shape.rank - 1;
    for (int i = 0; i < 2; i++)
        check_in_of(c, &forward.in[i]);
    check_place(c, &c->in[0], last, forward.in[0].offset[last], forward.in[0].global.dim[last]);
    check_in_of(c, &forward.out[0]);
    for (int o = 0; o < 2; o++)
        check_in(c, WEIR_F32, forward.out[o].shape);
    check_out(c, WEIR_F32, forward.in[0].shape);
    check_free(&forward);
}

/* lse, picked, labels (, count) -> loss */
static void make_class_loss(rule_check *c)
{
    const weir_shape rows = check_shape(c, 0, 3);
    check_in(c, WEIR_F32, with_last(rows, check_from(c, 1, 4)));
    check_in(c, WEIR_F32, rows);
    make_labels(c, rows, 9);
    make_count(c);
    check_out(c, WEIR_F32, SHAPE());
}

/* lse, labels, dloss (, count) -> dlse, dpicked */
static void make_class_loss_grad(rule_check *c)
{
    const weir_shape rows = check_shape(c, 0, 3), lse = with_last(rows, check_from(c, 1, 4));
    check_in(c, WEIR_F32, lse);
    make_labels(c, rows, 9);
    check_in(c, WEIR_F32, SHAPE());
    make_count(c);
    check_out(c, WEIR_F32, lse);
    check_out(c, WEIR_F32, rows);
}

static const check_case loss_cases[] = {
    {"cross_entropy", make_cross_entropy_refused}, {"cross_entropy_grad", make_cross_entropy_grad},
    {"label_count", make_label_count}, {"class_lse", make_class_lse_refused}, {"class_lse_grad", make_class_lse_grad},
    {"class_loss", make_class_loss}, {"class_loss_grad", make_class_loss_grad},
};

Test(rules_of_models, a_loss_computes_what_its_kernel_computes)
{
    CHECK_TABLE(rules_loss, loss_cases, check_run);
}

/* ---- optimizers ---- */

/* Attributes of any update: a warm-up and a fall, one of them, or none. */
static void make_update(rule_check *c)
{
    const bool warms = check_coin(c), falls = check_coin(c);
    check_real(c, "lr", check_between(c, 0.05, 0.2));
    check_real(c, "lr_min", check_between(c, 0, 0.05));
    check_real(c, "momentum", check_coin(c) ? check_between(c, 0.5, 0.95) : 0);
    check_real(c, "beta1", check_between(c, 0.8, 0.95));
    check_real(c, "beta2", check_between(c, 0.9, 0.999));
    check_real(c, "eps", check_between(c, 1e-3, 1e-2));
    check_real(c, "weight_decay", check_coin(c) ? check_between(c, 0, 0.2) : 0);
    check_int(c, "warmup", 0, warms ? check_from(c, 1, 5) : 0);
    check_int(c, "total", 0, falls ? check_from(c, 6, 10) : 0);
    c->step = check_from(c, 0, 12);
}

/* gradient (, its scale) (, a factor of the rate), `moved` old states -> parameter, `moved` new states */
static weir_shape make_moved(rule_check *c, int moved)
{
    const weir_shape shape = check_shape(c, 0, 3);
    make_update(c);
    check_in(c, WEIR_F32, shape);
    if (check_coin(c))
        check_in(c, WEIR_F32, SHAPE());
    if (check_coin(c))
        check_in(c, WEIR_F32, SHAPE(1));
    for (int s = 0; s < moved; s++)
        check_fill(c, check_in(c, WEIR_F32, shape), s ? 0 : -1, 1); /* the second is a mean of squares */
    for (int o = 0; o < 1 + moved; o++)
        check_out(c, WEIR_F32, shape);
    return shape;
}

static void make_sgd(rule_check *c)
{
    const weir_shape shape = make_moved(c, 0);
    if (check_word(c, "momentum", 0)->r != 0)
        check_state(c, WEIR_F32, shape);
}

static void make_sgd_moved(rule_check *c)
{
    make_moved(c, 1);
}

static void make_adamw(rule_check *c)
{
    const weir_shape shape = make_moved(c, 0);
    check_state(c, WEIR_F32, shape);
    check_fill(c, check_state(c, WEIR_F32, shape), 0, 1);
    check_state(c, WEIR_I32, SHAPE());
}

static void make_adamw_moved(rule_check *c)
{
    make_moved(c, 2);
    check_state(c, WEIR_I32, SHAPE());
}

static void make_one_state(rule_check *c)
{
    check_state(c, WEIR_F32, make_moved(c, 0));
}

static void make_adagrad(rule_check *c)
{
    check_fill(c, check_state(c, WEIR_F32, make_moved(c, 0)), 0, 1);
}

static void make_adagrad_moved(rule_check *c)
{
    make_moved(c, 1);
    check_fill(c, &c->in[c->in_count - 1], 0, 1);
}

static void make_lamb(rule_check *c)
{
    const weir_shape shape = make_moved(c, 0);
    check_in(c, WEIR_F32, shape);
    check_state(c, WEIR_F32, shape);
    check_fill(c, check_state(c, WEIR_F32, shape), 0, 1);
    check_state(c, WEIR_I32, SHAPE());
}

static void make_lamb_apply(rule_check *c)
{
    const weir_shape shape = check_shape(c, 0, 3);
    make_update(c);
    check_in(c, WEIR_F32, shape);
    for (int i = 0; i < 2; i++) {
        const weir_view *squares = check_in(c, WEIR_F32, SHAPE(2));
        kernel_set(squares, 0, check_between(c, 0.5, 4));
        kernel_set(squares, 1, 0);
    }
    if (check_coin(c))
        check_in(c, WEIR_F32, SHAPE(1));
    check_out(c, WEIR_F32, shape);
}

static void make_schedule(rule_check *c)
{
    const int64_t warmup = check_from(c, 0, 4), hold = warmup + check_from(c, 0, 4);
    check_real(c, "least", check_between(c, 0, 1));
    check_int(c, "warmup", 0, warmup);
    check_int(c, "hold", 0, hold);
    check_int(c, "total", 0, check_coin(c) ? hold + check_from(c, 1, 5) : 0);
    c->step = check_from(c, 0, 15);
    if (check_coin(c))
        check_in(c, WEIR_F32, SHAPE());
    check_out(c, WEIR_F32, SHAPE(1));
}

static void make_ema(rule_check *c)
{
    const weir_shape shape = check_shape(c, 0, 3);
    check_real(c, "decay", check_between(c, 0.5, 0.9));
    check_in(c, WEIR_F32, shape);
    check_out(c, WEIR_F32, shape);
    check_set(check_state(c, WEIR_I32, SHAPE()), (double)check_from(c, 0, 20));
}

/* ---- the factor of gradients ---- */

static void make_square_sum(rule_check *c)
{
    check_in(c, WEIR_F32, check_shape(c, 0, 3));
    check_out(c, WEIR_F32, SHAPE(2));
}

/* A sum of squares, which may be 0. The second part counts in units of 2^160, so in a few calls it is all of the sum. */
static void make_squares(rule_check *c)
{
    const weir_view *squares = check_in(c, WEIR_F32, SHAPE(2));
    const bool large = !check_from(c, 0, 9);
    c->tiny = true;
    kernel_set(squares, 0, large || !check_from(c, 0, 9) ? 0 : check_between(c, 0, 4));
    kernel_set(squares, 1, large ? check_between(c, 0, 4) : 0);
}

static void make_clip_scale(rule_check *c)
{
    const bool counts = check_coin(c);
    make_squares(c);
    if (counts)
        check_set(check_in(c, WEIR_F32, SHAPE()), (double)check_from(c, 1, 5));
    check_real(c, "max_norm", counts && check_coin(c) ? 0 : check_between(c, 0.1, 3));
    check_out(c, WEIR_F32, SHAPE());
    check_state(c, WEIR_I32, SHAPE());
}

static void make_clip_norm(rule_check *c)
{
    make_squares(c);
    check_set(check_in(c, WEIR_F32, SHAPE()), check_between(c, 0.1, 3));
    check_real(c, "max_norm", check_coin(c) ? 0 : check_between(c, 0.1, 3));
    for (int o = 0; o < 2; o++)
        check_out(c, WEIR_F32, SHAPE());
}

static void make_loss_scale(rule_check *c)
{
    check_set(check_in(c, WEIR_F32, SHAPE()), ldexp(1, (int)check_from(c, -3, 26)));
    make_squares(c);
    if (check_coin(c))
        check_set(check_in(c, WEIR_F32, SHAPE()), (double)check_from(c, 1, 5));
    check_real(c, "max_norm", check_coin(c) ? 0 : check_between(c, 0.1, 3));
    check_int(c, "good_steps", 0, check_from(c, 1, 4));
    for (int o = 0; o < 2; o++)
        check_out(c, WEIR_F32, SHAPE());
    check_set(check_state(c, WEIR_F32, SHAPE()), (double)check_from(c, 0, 4));
    check_state(c, WEIR_I32, SHAPE());
}

static const check_case update_cases[] = {
    {"sgd", make_sgd}, {"adamw", make_adamw}, {"sgd_moved", make_sgd_moved}, {"adamw_moved", make_adamw_moved},
    {"nesterov", make_one_state}, {"lion", make_one_state}, {"adagrad", make_adagrad}, {"adam", make_adamw},
    {"nesterov_moved", make_sgd_moved}, {"lion_moved", make_sgd_moved}, {"adagrad_moved", make_adagrad_moved},
    {"adam_moved", make_adamw_moved}, {"lamb", make_lamb}, {"lamb_apply", make_lamb_apply}, {"schedule", make_schedule},
    {"ema", make_ema},
    {"square_sum", make_square_sum}, {"clip_scale", make_clip_scale}, {"clip_norm", make_clip_norm},
    {"loss_scale", make_loss_scale},
};

Test(rules_of_models, an_update_computes_what_its_kernel_computes)
{
    CHECK_TABLE(rules_update, update_cases, check_run);
}

Test(rules_of_models, no_rule_writes_behind_its_operands_when_sizes_do_not_fit)
{
    CHECK_TABLE(rules_attention, attention_cases, check_shaken);
    CHECK_TABLE(rules_model, model_cases, check_shaken);
    CHECK_TABLE(rules_loss, loss_cases, check_shaken);
    CHECK_TABLE(rules_update, update_cases, check_shaken);
}
