/* test_cuda_fuse.c: chains of ops as one kernel of a CUDA device compute what the kernels compute one by one, to the bit;
 * on emulated devices (tests/support/card.h). Each op that may be a member is one in the chains that are drawn.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/compile/actors/passes.h"
#include "graph/compile/ir/ir.h"
#include "graph/plan/form/plan.h"
#include "kernels/fused/program.h"
#include "kernels/common/ops.h"
#include "tests/support/card.h"
#include "tests/support/effort.h"
#include "tests/support/fakes.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/run.h"

enum { SEED = 4711, CHAINS = EFFORT(20, 6, 2), LENGTH = 12, CROWD = 64 };

static void with_cards(void)
{
    fakes_kind = WEIR_CUDA;
    epilogue_joins = false; /* which rounds otherwise */
    setenv("WEIR_CUDA_LOGICAL", "16", 1);
}

TestSuite(cuda_fuse, .init = with_cards, .timeout = 300);

/* ---- what is in a plan ---- */

/* "add, gelu": what a kernel of the plan is of; false: it is a single one. */
static bool members_of(const weir_plan *plan, uint32_t k, char members[256])
{
    const char *name = plan_text(plan, plan->kernels[k].name);
    if (strncmp(plan_text(plan, plan->kernels[k].op), "fused_launch", 12) != 0)
        return false;
    snprintf(members, 256, "%.*s", (int)strcspn(name + 6, ")"), name + 6);
    return true;
}

static int fused_count(const weir_plan *plan)
{
    char members[256];
    int count = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        count += members_of(plan, k, members);
    return count;
}

static bool has_chain(const weir_plan *plan, const char *wanted)
{
    char members[256];
    bool found = false;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        found |= members_of(plan, k, members) && !strcmp(members, wanted);
    return found;
}

static const char *const forms[] = {
#define X(name) #name,
    STEP_FUNCTIONS(X) STEP_GRADIENTS(X) STEP_PAIRS(X) STEP_OTHERS(X)
#undef X
};
enum { FORMS = sizeof forms / sizeof *forms };

/* Notes which ops are members of the plan's chains. */
static void note_members(const weir_plan *plan, bool *seen)
{
    char members[256], *rest;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        for (char *one = members_of(plan, k, members) ? strtok_r(members, ", ", &rest) : NULL; one;
             one = strtok_r(NULL, ", ", &rest))
            for (int f = 0; f < FORMS; f++)
                seen[f] |= !strcmp(one, forms[f]);
}

/* ---- the same bits ---- */

static void same_bits(const weir_plan *fused, const weir_plan *apart, int steps, const char *what)
{
    cr_assert(fused && apart, "%s: %s", what, weir_error());
    cr_expect_eq(fused_count(apart), 0, "%s", what);
    cr_expect_eq(weir_plan_check(fused), WEIR_OK, "%s: %s", what, weir_error());
    card_open(&(standin_options){.seed = SEED});
    run one = run_plan(fused, steps, 1), other = run_plan(apart, steps, 1);
    run_near(&one, &other, 0, what);
    card_close();
    run_free(&one);
    run_free(&other);
}

/* ---- chains at random ---- */

typedef struct drawing {
    uint64_t random;
    int64_t rows, columns;
    weir_tensor *all[CROWD]; /* of all rows and columns */
    int count;
    weir_tensor *column, *line, *bias;
} drawing;

static int draw(drawing *d, int below)
{
    d->random = d->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((d->random >> 33) % (uint64_t)below);
}

/* Some tensor, as that dtype. */
static weir_tensor *some(drawing *d, weir_dtype dtype)
{
    weir_tensor *x = d->all[d->count - 1 - draw(d, d->count < 4 ? d->count : 4)];
    return weir_tensor_type(x).dtype == dtype ? x : weir_cast(x, dtype);
}

static weir_tensor *as(weir_tensor *x, weir_dtype dtype)
{
    return weir_tensor_type(x).dtype == dtype ? x : weir_cast(x, dtype);
}

static weir_tensor *function(drawing *d, weir_tensor *x)
{
    switch (draw(d, 14)) {
    case 0: return weir_neg(x);
    case 1: return weir_exp(weir_tanh(x));
    case 2: return weir_log(weir_affine(weir_sigmoid(x), 1, .shift = 0.5));
    case 3: return weir_sqrt(weir_affine(weir_sigmoid(x), 2, .shift = 0.25));
    case 4: return weir_tanh(x);
    case 5: return weir_sigmoid(x);
    case 6: return weir_relu(x);
    case 7: return weir_gelu(x);
    case 8: return weir_abs(weir_sin(x));
    case 9: return weir_cos(weir_softplus(x));
    case 10: return weir_gelu_erf(weir_erf(x));
    case 11: return weir_reciprocal(weir_affine(weir_sigmoid(x), 1, .shift = 0.5));
    case 12: return weir_add(x, weir_sub(weir_sign(weir_floor(x)), weir_round(weir_ceil(x))));
    default: return weir_silu(x);
    }
}

static weir_tensor *pair(drawing *d, weir_tensor *x, weir_dtype dtype)
{
    switch (draw(d, 8)) {
    case 0: return weir_add(x, some(d, dtype));
    case 1: return weir_sub(some(d, dtype), x);
    case 2: return weir_mul(x, weir_tanh(some(d, dtype)));
    case 3: return weir_div(x, weir_affine(weir_sigmoid(some(d, dtype)), 1, .shift = 1));
    case 4: return weir_mul(as(d->column, dtype), x);
    case 5: return weir_min2(x, weir_max2(some(d, dtype), weir_neg(x)));
    case 6: return weir_pow(weir_affine(weir_sigmoid(x), 1, .shift = 0.5), weir_tanh(some(d, dtype)));
    default: return weir_add(x, as(draw(d, 2) ? d->line : d->bias, dtype));
    }
}

static weir_tensor *sum(drawing *d, weir_tensor *x, weir_dtype dtype)
{
    weir_tensor *terms[] = {x, some(d, dtype), some(d, dtype)};
    return weir_op_apply(&(weir_apply){.src = WEIR_HERE, .op = &op_add_many, .in = terms, .in_count = 3}, NULL);
}

static weir_tensor *next(drawing *d, weir_tensor *x)
{
    static const weir_dtype dtypes[] = {WEIR_F32, WEIR_BF16, WEIR_F16};
    const weir_dtype dtype = weir_tensor_type(x).dtype;
    char name[16];
    snprintf(name, sizeof name, "op%d", d->count);
    switch (draw(d, 10)) {
    case 0: return weir_cast(x, dtypes[draw(d, 3)]);
    case 1: return weir_dropout(x, 0.3, .name = name);
    case 2: return sum(d, x, dtype);
    case 3: return weir_layernorm(x, .name = name);
    case 4: return draw(d, 2) ? weir_rmsnorm(x, .name = name) : weir_softmax(x);
    case 5: return weir_affine(x, 1.5, .shift = -0.125);
    case 6:
    case 7: return function(d, x);
    default: return pair(d, x, dtype);
    }
}

/* Trained, so that gradients make chains, too; a few of the values are needed outside. */
static weir_graph *chain(uint64_t seed, int64_t rows, int64_t columns, const char *device)
{
    drawing d = {.random = seed, .rows = rows, .columns = columns};
    weir_graph *g = weir_graph_new("chain");
    weir_mesh_new(g, device);
    weir_tensor *x = weir_input(g, WEIR_F32, {2, rows, columns}, .name = "x", .sbp = {S(1)});
    d.all[d.count++] = weir_input(g, WEIR_F32, {2, rows, columns}, .name = "z", .sbp = {S(1)});
    d.column = weir_input(g, WEIR_F32, {2, rows, 1}, .name = "column", .sbp = {S(1)});
    d.line = weir_input(g, WEIR_F32, {1, 1, columns}, .name = "line");
    d.bias = weir_param(g, WEIR_F32, {columns}, .name = "bias", .init = WEIR_NORMAL(1));
    x = seed % 2 ? weir_linear(weir_tanh(x), columns, .name = "in") : weir_add(x, d.bias);
    for (int i = 0; i < LENGTH; i++) {
        d.all[d.count++] = x;
        x = next(&d, x);
    }
    weir_fetch(as(d.all[1 + draw(&d, LENGTH)], WEIR_F32), .name = "between");
    x = as(x, WEIR_F32);
    weir_tensor *loss = weir_mean(weir_mul(x, x), .name = "loss");
    weir_train(loss, weir_sgd(.lr = 0.01));
    weir_fetch(loss, .name = "loss");
    return g;
}

Test(cuda_fuse, chains_at_random_keep_their_bits)
{
    static const int64_t sizes[][2] = {{1, 5}, {7, 33}, {1, 2100}, {20, 64}, {5, 260}, {9, 48}};
    bool seen[FORMS] = {false};
    int fused = 0;
    for (int i = 0; i < CHAINS; i++) {
        const int64_t *size = sizes[i % 6];
        weir_graph *g = chain(SEED + (uint64_t)i, size[0], size[1], i % 4 == 3 ? "cuda:0-1" : "cuda:0");
        weir_plan *one = weir_compile(g, .seed = SEED), *other = weir_compile(g, .seed = SEED, .no_fusion = true);
        char what[64];
        snprintf(what, sizeof what, "chain %d, %ld x %ld", i, (long)size[0], (long)size[1]);
        same_bits(one, other, 2, what);
        note_members(one, seen);
        fused += fused_count(one);
        weir_plan_free(one);
        weir_plan_free(other);
        weir_graph_free(g);
    }
    cr_expect_gt(fused, 2 * CHAINS, "%d kernels", fused);
    for (int f = 0; f < FORMS && EFFORT(1, 0, 0); f++)
        cr_expect(seen[f], "%s is in no chain", forms[f]);
}

/* ---- a GPT ---- */

/* A small one, whose text is read when it runs. */
static weir_plan *gpt(const text *corpus, layout l, weir_compile_opts opts)
{
    static gpt_config config;
    config = reference_gpt(corpus, REFERENCE_FULL);
    config.layers = 2;
    config.dim = 24;
    config.heads = 2;
    config.seq = 8;
    config.batch = 4;
    config.layout = l;
    config.device = "cuda";
    weir_graph *g = gpt_train_graph(&config);
    opts.seed = REFERENCE_SEED;
    opts.micro_batches = l.micro;
    opts.size = sizeof opts;
    weir_plan *plan = weir_compile_at(g, &opts);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static void gpt_keeps_its_bits(layout l, weir_dtype precision, const char *what)
{
    text corpus = reference_text();
    weir_plan *fused = gpt(&corpus, l, (weir_compile_opts){.precision = precision});
    weir_plan *apart = gpt(&corpus, l, (weir_compile_opts){.precision = precision, .no_fusion = true});
    cr_expect_gt(fused_count(fused), 8, "%s", what);
    same_bits(fused, apart, 2, what);
    weir_plan_free(fused);
    weir_plan_free(apart);
    text_free(&corpus);
}

Test(cuda_fuse, a_gpt_keeps_its_bits)
{
    if (EFFORT(true, false, false))
        gpt_keeps_its_bits((layout){1, 1, 1, 1, false}, WEIR_F32, "f32");
    gpt_keeps_its_bits((layout){2, 1, 1, 2, true}, WEIR_BF16, "bf16, dp2 ZeRO");
}

Test(cuda_fuse, residuals_and_norms_activations_and_biases_are_one_kernel)
{
    weir_plan *plan = fakes_gpt((layout){1, 1, 1, 1, false}, fakes_all, (weir_compile_opts){.precision = WEIR_BF16});
    char *shown = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&shown, &bytes);
    cr_assert(plan && to, "%s", weir_error());
    cr_expect(has_chain(plan, "add, layernorm"));
    cr_expect(has_chain(plan, "gelu_grad, linear_db"));
    cr_expect(has_chain(plan, "layernorm_grad, add_many, linear_db"));
    cr_assert_eq(weir_plan_show(plan, to), WEIR_OK, "%s", weir_error());
    fclose(to);
    cr_expect(strstr(shown, "fused(add, layernorm)") && strstr(shown, "fused(layernorm_grad, add_many, linear_db)"),
              "%s", shown);
    free(shown);
    weir_plan_free(plan);
}

/* A row of 2,048 with three sums takes 48 KiB of shared memory for them, and a little besides. */
static weir_plan *wide_plan(int64_t columns, bool fuses)
{
    weir_graph *g = weir_graph_new("wide");
    weir_mesh_new(g, "cuda:0");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 8}, .name = "x");
    weir_tensor *h = weir_linear(x, columns, .name = "up");
    weir_tensor *n = weir_gelu(weir_layernorm(h, .name = "norm"));
    weir_tensor *loss = weir_mean(weir_mul(weir_cast(weir_add(h, n), WEIR_F32), weir_cast(h, WEIR_F32)), .name = "loss");
    weir_train(loss, weir_sgd(.lr = 0.1));
    weir_fetch(loss, .name = "loss");
    weir_plan *plan = weir_compile(g, .precision = WEIR_BF16, .no_fusion = !fuses);
    weir_graph_free(g);
    return plan;
}

Test(cuda_fuse, rows_that_take_all_of_a_block_s_shared_memory_keep_their_bits)
{
    for (int64_t columns = 1921; columns <= EFFORT(2048, 2048, 1921); columns += 127) {
        weir_plan *fused = wide_plan(columns, true), *apart = wide_plan(columns, false);
        cr_expect(has_chain(fused, "mul, cast, mul, cast, gelu_grad, layernorm_grad, add_many, linear_db"));
        same_bits(fused, apart, 2, "wide");
        weir_plan_free(fused);
        weir_plan_free(apart);
    }
}

/* So many rows that a block has several, and the last block fewer; it loads the next one before it stores this one. */
Test(cuda_fuse, rows_of_which_a_block_has_several_keep_their_bits)
{
    for (int half = 0; half < 2; half++) {
        weir_graph *g = weir_graph_new("many");
        weir_mesh_new(g, "cuda:0");
        weir_tensor *x = weir_input(g, WEIR_F32, {6151, 8}, .name = "x"), *z = weir_input(g, WEIR_F32, {6151, 8}, .name = "z");
        const weir_dtype dtype = half ? WEIR_BF16 : WEIR_F32;
        weir_tensor *h = weir_add(weir_linear(as(x, dtype), 8, .name = "up"), weir_linear(as(z, dtype), 8, .name = "on"));
        weir_tensor *n = weir_linear(weir_layernorm(h, .name = "norm"), 8, .name = "down");
        weir_fetch(as(weir_add(weir_linear(h, 8, .name = "by"), n), WEIR_F32), .name = "y");
        weir_plan *fused = weir_compile(g, .seed = SEED), *apart = weir_compile(g, .seed = SEED, .no_fusion = true);
        cr_assert(fused && apart, "%s", weir_error());
        cr_expect(has_chain(fused, "add, layernorm"));
        same_bits(fused, apart, 1, half ? "many, bf16" : "many, f32");
        weir_plan_free(fused);
        weir_plan_free(apart);
        weir_graph_free(g);
    }
}

/* ---- what is between ---- */

Test(cuda_fuse, what_is_between_is_nowhere_in_memory)
{
    weir_graph *g = weir_graph_new("inner");
    weir_mesh_new(g, "cuda:0");
    weir_tensor *x = weir_input(g, WEIR_F32, {64, 64}, .name = "x");
    weir_tensor *z = weir_input(g, WEIR_F32, {64, 64}, .name = "z");
    weir_fetch(weir_relu(weir_affine(weir_mul(x, z, .name = "product"), 2, .name = "twice")), .name = "y");
    weir_plan *fused = weir_compile(g), *apart = weir_compile(g, .no_fusion = true);
    cr_assert(fused && apart, "%s", weir_error());
    cr_expect(has_chain(fused, "mul, affine, relu"));
    for (uint32_t t = 0; t < fused->tensors_count; t++) {
        const char *name = plan_text(fused, fused->tensors[t].name);
        cr_expect(strcmp(name, "product") && strcmp(name, "twice"), "%s is in the plan", name);
    }
    cr_expect_leq(weir_plan_bytes(fused, -1), weir_plan_bytes(apart, -1));
    weir_plan_free(fused);
    weir_plan_free(apart);
    weir_graph_free(g);
}

/* ---- plans from anywhere ---- */

/* Changes a word or two of the attributes of one of the chains, mostly to another small number. */
static void change_words(weir_plan *plan, uint64_t *random)
{
    static const int64_t odd[] = {INT64_MIN, INT64_MAX, -1, INT64_C(1) << 40, 4096, 32, 33, 64, 65};
    char members[256];
    uint32_t k = (uint32_t)(mutate_draw(random) % plan->kernels_count);
    while (!members_of(plan, k, members))
        k = (k + 1) % plan->kernels_count;
    for (uint64_t changes = 1 + mutate_draw(random) % 2; changes > 0; changes--) {
        const uint64_t at = mutate_draw(random) % 90;
        plan_word *word = &plan->words[plan->kernels[k].attrs.first + at];
        if (mutate_draw(random) % 3)
            word->i = (int64_t)((uint64_t)word->i + mutate_draw(random) % 5 - 2);
        else
            word->i = odd[mutate_draw(random) % (sizeof odd / sizeof *odd)];
    }
}

/* An accepted plan runs, and touches nothing else (AddressSanitizer sees that). */
Test(cuda_fuse, a_plan_with_wrong_members_is_refused_or_harmless)
{
    enum { MUTANTS = EFFORT(600, 600, 60) };
    weir_graph *g = chain(SEED + 1, 7, 33, "cuda:0");
    weir_plan *plan = weir_compile(g, .seed = SEED);
    cr_assert(plan && fused_count(plan) > 2, "%s", weir_error());
    plan_word *kept = malloc(plan->words_count * sizeof *kept);
    memcpy(kept, plan->words, plan->words_count * sizeof *kept);
    uint64_t random = SEED;
    int refused = 0, ran = 0;
    card_open(&(standin_options){.seed = SEED});
    for (int i = 0; i < MUTANTS; i++) {
        change_words(plan, &random);
        plan->hash = plan_hash(plan);
        if (plan_validate(plan) != WEIR_OK)
            refused++;
        else if (ran++ % 3 == 0) {
            run one = run_plan(plan, 1, 1);
            run_free(&one);
        }
        memcpy(plan->words, kept, plan->words_count * sizeof *kept);
    }
    card_close();
    cr_expect(refused > MUTANTS / 8 && ran > MUTANTS / 20, "%d refused, %d accepted", refused, ran);
    free(kept);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* ---- what is no chain ---- */

/* An op of a program's own has no form as a step, whatever it says of its rows. */
static weir_status own_kernel(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

Test(cuda_fuse, an_op_without_such_a_form_is_in_no_chain)
{
    static weir_op own;
    own = op_relu;
    own.name = "own_relu";
    own.kernel[WEIR_CUDA] = own_kernel;
    cr_assert_eq(weir_op_register(&own), WEIR_OK, "%s", weir_error());
    weir_graph *g = weir_graph_new("own");
    weir_mesh_new(g, "cuda:0");
    weir_tensor *x = weir_affine(weir_input(g, WEIR_F32, {8, 64}, .name = "x"), 2);
    x = weir_op_apply(&(weir_apply){.src = WEIR_HERE, .op = &own, .in = &x, .in_count = 1}, NULL);
    weir_fetch(weir_tanh(weir_neg(x)), .name = "y");
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    cr_expect_eq(fused_count(plan), 1);
    cr_expect(has_chain(plan, "neg, tanh"));
    weir_plan_free(plan);
    weir_graph_free(g);
}
