/* tests/graph/verify/test_verify.c: plans that the compiler makes are proven to compute their graphs, and plans that were made
 * wrong are not, with the kernel that is wrong named.
 *
 * Mutants are plans changed in one place, which the validator and the token game still accept. A run of both plans on the processor
 * judges whether a random change matters.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#include "apps/common/model/gpt.h"
#include "graph/plan/form/plan.h"
#include "tests/support/effort.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/ops.h"
#include "tests/support/random_model.h"
#include "tests/support/run.h"
#include "tests/support/sample_plan.h"

TestSuite(verify, .timeout = 600);

enum { MODELS = EFFORT(FULL(300, 24), 4, 1), LAYOUTS = 5, CHANGES = FULL(20000, 3000), SEED = 4711 };

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())

/* ---- models ---- */

enum way { DATA, TENSOR };

static weir_graph *mlp(enum way way, bool adamw)
{
    weir_graph *g = weir_graph_new("mlp");
    const weir_sbp rows = way == DATA ? WEIR_S(0) : WEIR_B, columns = way == DATA ? WEIR_B : WEIR_S(1);
    WEIR_ON(weir_mesh_new(g, "cpu:0-1")) {
        weir_tensor *x = weir_input(g, WEIR_F32, {8, 6}, .name = "x", .sbp = {rows}, .micro = true);
        weir_tensor *labels = weir_input(g, WEIR_I32, {8}, .name = "labels", .sbp = {rows}, .micro = true);
        weir_tensor *h = weir_gelu(weir_linear(x, 12, .name = "up", .weight = {columns}));
        weir_tensor *y = weir_linear(h, RUN_CLASSES, .name = "down", .weight = {way == DATA ? WEIR_B : WEIR_S(0)});
        weir_tensor *loss = weir_cross_entropy(y, labels);
        if (adamw)
            weir_train(loss, weir_adamw(.lr = 0.01, .clip_norm = 1, .weight_decay = 0.1));
        else
            weir_train(loss, weir_sgd(.lr = 0.1, .momentum = 0.9));
        weir_fetch(loss, .name = "loss");
    }
    cr_assert_null(weir_graph_mistake(g), "%s", weir_graph_mistake(g));
    return g;
}

static text corpus = {.bytes = (uint8_t *)"a text of which nobody reads a word", .count = 35};

static weir_graph *gpt(layout lies)
{
    const gpt_config config = {.layers = 2, .dim = 8, .heads = 2, .seq = 4, .vocab = 16, .batch = 4, .layout = lies,
                               .optimizer = weir_adamw(.lr = 0.01, .clip_norm = 1), .corpus = &corpus};
    weir_graph *g = gpt_train_graph(&config);
    cr_assert(g && !weir_graph_mistake(g), "%s", g ? weir_graph_mistake(g) : "no memory");
    return g;
}

/* ---- plans that are right ---- */

static void expect_right(weir_graph *g, weir_plan *plan, const char *what)
{
    cr_assert(plan, "%s: %s", what, weir_error());
    weir_status status = weir_plan_verify(g, plan, .seed = SEED);
    cr_expect_eq(status, WEIR_OK, "%s: %s", what, weir_error());
    weir_plan_free(plan);
}

Test(verify, a_perceptron_on_two_devices_is_right)
{
    for (int i = 0; i < 4; i++) {
        weir_graph *g = mlp(i % 2 ? TENSOR : DATA, i >= 2);
        for (int micro = 1; micro <= 3; micro += 2)
            expect_right(g, weir_compile(g, .micro_batches = micro), "mlp");
        weir_graph_free(g);
    }
}

Test(verify, a_gpt_is_right_in_every_layout_and_precision)
{
    const layout lies[] = {{0}, {.dp = 2, .zero = true}, {.tp = 2}, {.dp = 2, .tp = 2, .micro = 2}, {.pp = 2, .micro = 2},
                           {.dp = 2, .tp = 2, .pp = 2, .micro = 4, .zero = true}};
    const weir_dtype precisions[] = {WEIR_F32, WEIR_BF16, WEIR_F16};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        weir_graph *g = gpt(lies[i]);
        const int micro = lies[i].micro ? lies[i].micro : 1;
        for (int p = 0; p < 3; p++)
            expect_right(g, weir_compile(g, .micro_batches = micro, .precision = precisions[p]), "gpt");
        expect_right(g, weir_compile(g, .micro_batches = micro, .no_fusion = true), "gpt without fusion");
        expect_right(g, weir_compile(g, .micro_batches = micro, .per_host = 2), "gpt on hosts of two devices");
        weir_graph_free(g);
    }
}

Test(verify, random_models_are_right_in_random_layouts)
{
    for (uint64_t model = 0; model < MODELS; model++)
        for (uint64_t lies = 0; lies < LAYOUTS; lies++) {
            char what[64];
            weir_graph *g = random_model(SEED + model, lies);
            snprintf(what, sizeof what, "model %llu, layout %llu", (unsigned long long)model, (unsigned long long)lies);
            expect_right(g, weir_compile(g, .micro_batches = random_model_micro(SEED + model), .seed = model), what);
            weir_graph_free(g);
        }
}

Test(verify, a_plan_of_another_graph_is_refused)
{
    weir_graph *one = mlp(DATA, false), *other = gpt((layout){0});
    weir_plan *plan = weir_compile(one);
    cr_expect_eq(weir_plan_verify(other, plan), WEIR_E_ARGUMENT);
    cr_expect(strstr(weir_error(), "was not compiled from this graph"), "%s", weir_error());
    weir_plan_free(plan);
    weir_graph_free(one);
    weir_graph_free(other);
}

Test(verify, a_parameter_that_the_plan_does_not_name_is_missed)
{
    weir_graph *g = mlp(DATA, false);
    weir_plan *plan = weir_compile(g), *other = plan_copy(plan);
    other->params[0] = other->params[--other->params_count];
    cr_expect_eq(weir_plan_verify(g, other), WEIR_E_WRONG);
    cr_expect(strstr(weir_error(), "keeps \""), "%s", weir_error());
    weir_plan_free(other);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(verify, a_proof_that_takes_more_memory_than_it_may_is_not_begun)
{
    weir_graph *g = mlp(DATA, true);
    weir_plan *plan = weir_compile(g);
    cr_expect_eq(weir_plan_verify(g, plan, .memory = "10KiB"), WEIR_E_MEMORY);
    cr_expect(strstr(weir_error(), "test_verify.c:") && strstr(weir_error(), "verify a smaller version of the model"), "%s", weir_error());
    cr_expect_eq(weir_plan_verify(g, plan, .memory = "some"), WEIR_E_ARGUMENT);
    cr_expect(strstr(weir_error(), "\"some\" is not an amount of memory"), "%s", weir_error());
    OK(weir_plan_verify(g, plan, .memory = "100MiB"));
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(verify, the_environment_asks_for_a_proof_of_each_plan)
{
    weir_graph *g = mlp(DATA, false);
    setenv("WEIR_VERIFY", "1", 1);
    weir_plan *plan = weir_compile(g);
    cr_expect(plan, "%s", weir_error());
    weir_plan_free(plan);
    setenv("WEIR_VERIFY", "yes", 1);
    cr_expect_null(weir_compile(g));
    cr_expect(strstr(weir_error(), "WEIR_VERIFY is 'yes': give 1"), "%s", weir_error());
    unsetenv("WEIR_VERIFY");
    weir_graph_free(g);
}

/* ---- mutants ---- */

#if EFFORT(1, 0, 0)

/* Changes what it can find for the n-th time; the kernel that is wrong then. PLAN_NONE: there is no n-th. */
typedef uint32_t (*mutant)(weir_plan *plan, uint32_t n);

static bool is_op(const weir_plan *plan, uint32_t k, const char *op)
{
    return !strcmp(plan_text(plan, plan->kernels[k].op), op);
}

/* The n-th kernel of an op with at least so many inputs. */
static uint32_t kernel_of(const weir_plan *plan, const char *op, uint32_t inputs, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (is_op(plan, k, op) && plan->kernels[k].in.count >= inputs && !n--)
            return k;
    return PLAN_NONE;
}

static void swap_operands(weir_plan *plan, uint32_t a, uint32_t b)
{
    const plan_operand kept = plan->operands[a];
    plan->operands[a] = plan->operands[b];
    plan->operands[b] = kept;
}

static uint32_t box_drops_a_source(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, "box", 2, n);
    if (k != PLAN_NONE)
        plan->kernels[k].in.count--;
    return k;
}

static uint32_t box_counts_a_source_twice(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, "box", 2, n);
    if (k != PLAN_NONE)
        plan->operands[plan->kernels[k].in.first] = plan->operands[plan->kernels[k].in.first + 1];
    return k;
}

/* Terms are copied over each other, not added. */
static uint32_t box_takes_terms_for_parts(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (is_op(plan, k, "box") && plan->words[plan->kernels[k].attrs.first].i > 1 && !n--) {
            plan->words[plan->kernels[k].attrs.first].i = 1;
            return k;
        }
    return PLAN_NONE;
}

/* The next parameter of the same shape in the actor, as another layer's. */
static uint32_t product_with_another_weight(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        for (uint32_t other = k + 1; is_op(plan, k, "linear") && other < plan->kernels_count; other++) {
            const plan_kernel *a = &plan->kernels[k], *b = &plan->kernels[other];
            const plan_operand *x = &plan->operands[a->in.first + 1], *y = &plan->operands[b->in.first + 1];
            if (!is_op(plan, other, "linear") || a->actor.i != b->actor.i || x->tensor.i == y->tensor.i ||
                memcmp(plan->tensors[x->tensor.i].shape, plan->tensors[y->tensor.i].shape, sizeof plan->tensors->shape) || n--)
                continue;
            plan->operands[a->in.first + 1] = *y;
            return k;
        }
    return PLAN_NONE;
}

static uint32_t gradient_of_weight_swaps_its_factors(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, "linear_dw", 2, n);
    if (k != PLAN_NONE)
        swap_operands(plan, plan->kernels[k].in.first, plan->kernels[k].in.first + 1);
    return k;
}

static uint32_t seed_is_not_a_share(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, "grad_seed", 1, n);
    if (k != PLAN_NONE)
        plan->words[plan->kernels[k].attrs.first].r *= 2;
    return k;
}

static uint32_t norm_counts_a_gradient_twice(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, "add_many", 2, n);
    if (k != PLAN_NONE)
        plan->operands[plan->kernels[k].in.first] = plan->operands[plan->kernels[k].in.first + 1];
    return k;
}

static uint32_t norm_omits_a_gradient(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, "add_many", 2, n);
    if (k != PLAN_NONE)
        plan->kernels[k].in.count--;
    return k;
}

static uint32_t update_does_without_its_factor(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, "adamw", 2, n);
    if (k != PLAN_NONE)
        plan->kernels[k].in.count--;
    return k;
}

/* The moments of an update are those of the next in the actor. */
static uint32_t moments_of_another_parameter(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k + 1 < plan->kernels_count; k++) {
        const plan_kernel *a = &plan->kernels[k], *b = &plan->kernels[k + 1];
        if (!is_op(plan, k, "adamw") || !is_op(plan, k + 1, "adamw") || a->actor.i != b->actor.i ||
            memcmp(plan->tensors[plan->operands[a->state.first].tensor.i].shape,
                   plan->tensors[plan->operands[b->state.first].tensor.i].shape, sizeof plan->tensors->shape) || n--)
            continue;
        swap_operands(plan, a->state.first, b->state.first);
        return k;
    }
    return PLAN_NONE;
}

static uint32_t update_changes_its_rate(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, "adamw", 1, n);
    if (k != PLAN_NONE)
        plan->words[plan->kernels[k].attrs.first].r *= 1.5;
    return k;
}

static uint32_t micro_batches_do_not_add_up(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (plan->kernels[k].accumulate && !n--) {
            plan->kernels[k].accumulate = 0;
            return k;
        }
    return PLAN_NONE;
}

/* Positions that come later are not masked, or are where they were not. */
static uint32_t attention_is_not_causal(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, "attention", 3, n);
    const weir_op *op = weir_op_find("attention");
    for (int f = 0; k != PLAN_NONE && f < op->field_count; f++)
        if (!strcmp(op->fields[f].name, "causal")) {
            plan_word *word = &plan->words[plan->kernels[k].attrs.first + op->fields[f].offset / sizeof(plan_word)];
            word->i = !word->i;
        }
    return k;
}

static uint32_t query_for_key(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, "attention", 3, n);
    if (k != PLAN_NONE)
        swap_operands(plan, plan->kernels[k].in.first, plan->kernels[k].in.first + 1);
    return k;
}

static uint32_t residual_is_subtracted_from(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, "add", 2, n);
    if (k != PLAN_NONE)
        plan->operands[plan->kernels[k].in.first] = plan->operands[plan->kernels[k].in.first + 1];
    return k;
}

#define MUTANTS(X)                                                                                                     \
    X(box_drops_a_source) X(box_counts_a_source_twice) X(box_takes_terms_for_parts) X(product_with_another_weight)     \
    X(gradient_of_weight_swaps_its_factors) X(seed_is_not_a_share) X(norm_counts_a_gradient_twice)                     \
    X(norm_omits_a_gradient) X(update_does_without_its_factor) X(moments_of_another_parameter)                         \
    X(update_changes_its_rate) X(micro_batches_do_not_add_up)                                                           \
    X(attention_is_not_causal) X(query_for_key) X(residual_is_subtracted_from)

static const struct {
    const char *name;
    mutant make;
} mutants[] = {
#define X(name) {#name, name},
    MUTANTS(X)
#undef X
};
enum { MUTANT_KINDS = sizeof mutants / sizeof *mutants, OF_EACH = FULL(40, 6) };

struct tally {
    int made, caught, named, plans;
};

/* The gradient of the keys' bias is 0: what is added to all scores of a row changes no softmax. So nothing that happens to it
 * matters. */
static bool is_zero(const weir_plan *plan, uint32_t k)
{
    return strstr(plan_text(plan, plan->kernels[k].name), "/k/bias") || strstr(plan_text(plan, plan->kernels[k].name), "k.grad/linear_db");
}

static void try_mutants(weir_graph *g, const weir_plan *plan, struct tally tally[MUTANT_KINDS])
{
    for (int kind = 0; kind < MUTANT_KINDS; kind++) {
        int before = tally[kind].made;
        for (uint32_t n = 0; n < OF_EACH; n++) {
            weir_plan *wrong = plan_copy(plan);
            cr_assert_not_null(wrong);
            const uint32_t k = mutants[kind].make(wrong, n);
            if (k != PLAN_NONE && !is_zero(wrong, k) && !plan_validate(wrong) && !weir_plan_check(wrong)) {
                const weir_status status = weir_plan_verify(g, wrong, .rounds = 1);
                tally[kind].made++;
                tally[kind].caught += status == WEIR_E_WRONG;
                tally[kind].named += strstr(weir_error(), plan_text(wrong, wrong->kernels[k].name)) != NULL;
                cr_expect_eq(status, WEIR_E_WRONG, "%s, number %u (%s) goes by unseen", mutants[kind].name, n,
                             plan_text(wrong, wrong->kernels[k].name));
            }
            weir_plan_free(wrong);
            if (k == PLAN_NONE)
                break;
        }
        tally[kind].plans += tally[kind].made > before;
    }
}

Test(verify, each_mutant_is_caught)
{
    struct tally tally[MUTANT_KINDS] = {{0}};
    const layout lies[] = {{.dp = 2, .micro = 2}, {.tp = 2, .micro = 2}, {.dp = 2, .pp = 2, .micro = 2, .zero = true}, {.micro = 2}};
    int made = 0, named = 0;
    for (int i = 0; i < 4; i++) {
        weir_graph *g = gpt(lies[i]);
        weir_plan *plan = weir_compile(g, .micro_batches = 2, .no_fusion = true);
        try_mutants(g, plan, tally);
        weir_plan_free(plan);
        weir_graph_free(g);
    }
    for (int kind = 0; kind < MUTANT_KINDS; kind++) {
        cr_expect_gt(tally[kind].made, 0, "no %s could be made", mutants[kind].name);
        made += tally[kind].made;
        named += tally[kind].named;
        cr_log_info("%s: %d made in %d plans, %d caught, %d named", mutants[kind].name, tally[kind].made, tally[kind].plans,
                    tally[kind].caught, tally[kind].named);
    }
    cr_expect_geq(named * 10, made * 9, "the kernel is named for %d of %d", named, made);
}

/* ---- random changes ---- */

/* Whether two runs came to other values. */
static bool differ(const run *a, const run *b)
{
    bool other = a->count != b->count;
    for (int e = 0; !other && e < a->count; e++) {
        other = strcmp(a->entry[e].name, b->entry[e].name) || a->entry[e].count != b->entry[e].count;
        for (int64_t i = 0; !other && i < a->entry[e].count; i++) {
            const double x = a->entry[e].value[i], y = b->entry[e].value[i];
            other = !(fabs(x - y) <= 1e-2 * (1 + fabs(x))) && !(isnan(x) && isnan(y));
        }
    }
    return other;
}

static uint64_t firings(const weir_plan *plan)
{
    uint64_t sum = 0;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        sum += plan->actors[a].fires;
    return sum;
}

/* Whether the changed plan is one that runs, in a time like that of the other, and has the same ends. */
static bool runs(weir_plan *plan, const weir_plan *base)
{
    return mutate_tighten(plan) && !weir_plan_check(plan) && plan->graph == base->graph &&
           plan->hosts_count == base->hosts_count && plan->micro_batches == base->micro_batches &&
           firings(plan) <= 2 * firings(base);
}

Test(verify, random_changes_that_matter_are_caught)
{
    weir_graph *g = mlp(DATA, true);
    weir_plan *compiled = weir_compile(g, .micro_batches = 2), *base = mutate_room(compiled);
    uint64_t random = SEED;
    int judged = 0, missed = 0;
    cr_assert(base, "%s", weir_error());
    OK(weir_plan_verify(g, base));
    run right = run_plan(base, 3, 2);
    for (int i = 0; i < CHANGES; i++) {
        weir_plan *plan = plan_copy(base);
        mutate_plan(plan, &random);
        if (!runs(plan, base)) {
            weir_plan_free(plan);
            continue;
        }
        const weir_status status = weir_plan_verify(g, plan, .rounds = 1);
        if (!status) {
            run other = run_plan(plan, 3, 2);
            missed += differ(&right, &other);
            if (differ(&right, &other))
                cr_log_warn("change %d goes by unseen", i);
            run_free(&other);
        }
        judged += status == WEIR_OK || status == WEIR_E_WRONG;
        weir_plan_free(plan);
    }
    cr_log_info("%d changes that are valid, %d that matter missed", judged, missed);
    cr_expect_gt(judged, 0);
    cr_expect_eq(missed, 0);
    run_free(&right);
    weir_plan_free(base);
    weir_plan_free(compiled);
    weir_graph_free(g);
}
#endif
