/* tests/graph/verify/test_same.c: two plans of one model are proven to compute the same, however they were compiled; and a plan
 * that was made wrong is told from the right one, with the parameter named that it makes wrong.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#include "apps/common/model/gpt.h"
#include "graph/compile/actors/passes.h"
#include "graph/compile/budget/offload.h"
#include "graph/plan/form/plan.h"
#include "tests/support/effort.h"
#include "tests/support/folder.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/ops.h"
#include "tests/support/random_model.h"
#include "tests/support/run.h"
#include "tests/support/sample_plan.h"

TestSuite(same, .timeout = FULL(6000, 600));

enum { MODELS = EFFORT(FULL(100, 12), 2, 1), LAYOUTS = 4, SEED = 4711 };
enum { EACH = EFFORT(FULL(1, 5), 29, 29), CHANGES = EFFORT(FULL(10000, 1000), 100, 100) };

/* ---- models ---- */

static text corpus = {.bytes = (uint8_t *)"a text of which nobody reads a word", .count = 35};

static weir_graph *gpt_with(layout lies, weir_optimizer optimizer)
{
    const gpt_config config = {.layers = 2, .dim = 8, .heads = 2, .seq = 4, .vocab = 64, .batch = 8, .layout = lies,
                               .optimizer = optimizer, .corpus = &corpus};
    weir_graph *g = gpt_train_graph(&config);
    cr_assert(g && !weir_graph_mistake(g), "%s", g ? weir_graph_mistake(g) : "no memory");
    return g;
}

static weir_plan *gpt_plan(layout lies, weir_compile_opts opts)
{
    weir_graph *g = gpt_with(lies, weir_adamw(.lr = 0.01, .clip_norm = 1));
    opts.size = sizeof opts;
    opts.micro_batches = lies.micro ? lies.micro : 1;
    weir_plan *plan = weir_compile_at(g, &opts);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* ---- plans that compute the same ---- */

static void expect_same(const weir_plan *a, const weir_plan *b, const char *what)
{
    cr_expect_eq(weir_plan_same(a, b, .seed = SEED), WEIR_OK, "%s: %s", what, weir_error());
}

/* Frees the second plan. */
static void expect_same_as(const weir_plan *a, weir_plan *b, const char *what)
{
    expect_same(a, b, what);
    weir_plan_free(b);
}

static const layout layouts[] = {{.dp = 2, .tp = 2, .zero = true}, {.pp = 2}, {.dp = 2}, {.dp = 2, .zero = true}, {.tp = 2},
                                 {.tp = 4}, {.dp = 2, .tp = 2, .pp = 2, .zero = true}};
enum { GPTS = EFFORT(sizeof layouts / sizeof *layouts, 2, 2) };

Test(same, a_gpt_is_the_same_in_every_layout_and_precision)
{
    const weir_dtype precisions[] = {WEIR_F32, WEIR_BF16, WEIR_F16};
    weir_plan *one = gpt_plan((layout){0}, (weir_compile_opts){0});
    for (int i = 0; i < GPTS; i++)
        for (int p = 0; p < 3; p++)
            expect_same_as(one, gpt_plan(layouts[i], (weir_compile_opts){.precision = precisions[p]}), "gpt");
    weir_plan_free(one);
}

/* On accelerators, shards move by collectives, and a queue copies what leaves a device. */
Test(same, a_gpt_is_the_same_on_accelerators)
{
    weir_plan *one = gpt_plan((layout){0}, (weir_compile_opts){0});
    for (int i = 0; i < GPTS; i++)
        for (int fast = 0; fast < 2; fast++) {
            const gpt_config config = {.layers = 2, .dim = 8, .heads = 2, .seq = 4, .vocab = 64, .batch = 8, .layout = layouts[i],
                                       .device = "cuda", .optimizer = weir_adamw(.lr = 0.01, .clip_norm = 1), .corpus = &corpus};
            weir_graph *g = gpt_train_graph(&config);
            weir_plan *plan = weir_compile(g, .reduce = fast ? WEIR_FAST : WEIR_SAME_BITS);
            cr_assert(plan, "%s", weir_error());
            cr_expect_gt(plan->collectives_count, 0);
            expect_same_as(one, plan, "on accelerators");
            weir_graph_free(g);
        }
    weir_plan_free(one);
}

Test(same, a_gpt_is_the_same_without_fusion_and_on_hosts)
{
    weir_plan *one = gpt_plan((layout){.dp = 2, .tp = 2}, (weir_compile_opts){0});
    expect_same_as(one, gpt_plan((layout){.dp = 2, .tp = 2}, (weir_compile_opts){.no_fusion = true}), "without fusion");
    expect_same_as(one, gpt_plan((layout){.dp = 2, .tp = 2}, (weir_compile_opts){.per_host = 2}), "on hosts of two devices");
    weir_plan_free(one);
}

Test(same, a_gpt_is_the_same_in_any_number_of_micro_batches)
{
    weir_plan *one = gpt_plan((layout){0}, (weir_compile_opts){0});
    for (int micro = 1; micro <= 4; micro *= 2)
        for (int i = 0; i < GPTS; i++) {
            layout lies = layouts[i];
            lies.micro = micro;
            expect_same_as(one, gpt_plan(lies, (weir_compile_opts){0}), "micro-batches");
        }
    weir_plan_free(one);
}

/* Into how many groups the plan's loss puts the classes. */
static int groups_of(const weir_plan *plan)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_tensor *out = &plan->tensors[plan->operands[plan->kernels[k].out.first].tensor.i];
        if (!strcmp(plan_text(plan, plan->kernels[k].op), "class_lse"))
            return (int)out->global[out->rank - 1];
    }
    return 1;
}

/* The classes are whole, or in groups: those of a mesh of one, two or four devices. */
Test(same, a_loss_is_the_same_however_its_classes_are_grouped)
{
    const layout lies[] = {{0}, {.tp = 2}, {.tp = 4}, {.dp = 2, .tp = 2}};
    weir_plan *plans[4];
    for (int i = 0; i < 4; i++)
        plans[i] = gpt_plan(lies[i], (weir_compile_opts){.no_fusion = true});
    for (int i = 0; i < 4; i++)
        for (int j = EFFORT(0, i, i); j < 4; j++)
            expect_same(plans[i], plans[j], "groups of classes");
    for (int i = 0; i < 4; i++) {
        cr_expect_eq(plans[i]->graph, plans[0]->graph, "the hash of the graph depends on the layout");
        cr_expect_eq(groups_of(plans[i]), i < 3 ? 1 << i : 4);
    }
    for (int i = 0; i < 4; i++)
        weir_plan_free(plans[i]);
}

static void compile_again_within(layout lies, weir_compile_opts opts, const weir_plan *whole, const char *what)
{
    static const char words[] = "The smallest limit that would do is ";
    weir_graph *g = gpt_with(lies, weir_adamw(.lr = 0.01, .clip_norm = 1));
    char limit[32];
    opts.size = sizeof opts;
    opts.micro_batches = lies.micro;
    opts.memory = "1";
    cr_assert_null(weir_compile_at(g, &opts));
    const char *least = strstr(weir_error(), words);
    cr_assert(least, "%s", weir_error());
    snprintf(limit, sizeof limit, "%llu", strtoull(least + strlen(words), NULL, 10));
    opts.memory = limit;
    weir_plan *plan = weir_compile_at(g, &opts);
    cr_assert(plan, "%s", weir_error());
    cr_expect_eq(plan->limits_count, 1, "%s: nothing was given up", what);
    cr_expect(!opts.offload || plan->limits->moved, "%s: nothing was moved", what);
    expect_same_as(whole, plan, what);
    weir_graph_free(g);
}

Test(same, a_limit_changes_nothing)
{
    const layout lies[] = {{.dp = 2, .micro = 2, .zero = true}, {.micro = 2}, {.tp = 2, .pp = 2, .micro = 4}};
    group_own_bytes = 1024; /* the model is small, so smaller things are worth a repetition or a move */
    offload_window = 0.1;
    folder_make();
    char disk[300];
    snprintf(disk, sizeof disk, "disk:%s", folder_path("."));
    for (int i = 0; i < EFFORT(3, 1, 1); i++) {
        weir_plan *whole = gpt_plan(lies[i], (weir_compile_opts){0});
        compile_again_within(lies[i], (weir_compile_opts){0}, whole, "a limit");
        compile_again_within(lies[i], (weir_compile_opts){.offload = disk}, whole, "a limit with a disk");
        weir_plan_free(whole);
    }
    folder_remove();
}

Test(same, random_models_are_the_same_in_random_layouts)
{
    for (uint64_t model = 0; model < MODELS; model++) {
        weir_plan *plans[LAYOUTS];
        for (int i = 0; i < LAYOUTS; i++) {
            weir_graph *g = random_model(SEED + model, (uint64_t)i);
            plans[i] = weir_compile(g, .micro_batches = random_model_micro(SEED + model), .seed = model);
            cr_assert(plans[i], "%s", weir_error());
            weir_graph_free(g);
        }
        for (int i = 1; i < LAYOUTS; i++) {
            char what[64];
            snprintf(what, sizeof what, "model %llu, layouts %d and %d", (unsigned long long)model, i - 1, i);
            expect_same(plans[i - 1], plans[i], what);
        }
        for (int i = 0; i < LAYOUTS; i++)
            weir_plan_free(plans[i]);
    }
}

/* ---- other models ---- */

enum { ROWS = 8, WIDTH = 6, CLASSES = 32 };

typedef struct rich {
    int devices, micro;
    bool dropout, ignores;
    uint64_t seed;
} rich;

/* Ids and labels that come by slices and copies, dropout, a loss over rows that count, a state that waits, and a second program. */
static weir_plan *rich_plan(rich r)
{
    const char *devices[] = {"cpu:0", "cpu:0", "cpu:0-1", "cpu:0-2", "cpu:0-3"};
    const int64_t rows = ROWS / r.micro;
    weir_graph *g = weir_graph_new("rich");
    WEIR_ON(weir_mesh_new(g, devices[r.devices])) {
        weir_tensor *both = weir_input(g, WEIR_I32, {rows, 2}, .name = "both", .micro = true, .sbp = {WEIR_S(0)});
        weir_tensor *ids = weir_slice(both, 1, 0, 1), *labels = weir_reshape(weir_slice(both, 1, 1, 1), {rows});
        weir_tensor *scale = weir_input(g, WEIR_F32, {WIDTH}, .name = "scale");
        weir_tensor *h = weir_reshape(weir_embedding(ids, CLASSES, WIDTH, .name = "table"), {rows, WIDTH});
        h = weir_mul(h, scale);
        if (r.dropout)
            h = weir_dropout(h, 0.25, .name = "dropout");
        weir_tensor *y = weir_linear(h, CLASSES, .name = "head", .weight = {r.devices == 2 ? WEIR_S(1) : WEIR_AUTO});
        weir_tensor *loss = weir_cross_entropy(y, labels, .ignore = r.ignores, .ignore_index = 0, .sum = r.ignores);
        weir_tensor *late = weir_state(g, WEIR_F32, {WIDTH}, .name = "late", .delay = 3);
        weir_state_set(late, weir_add(weir_mul(late, scale), scale));
        weir_fetch(weir_sum(late), .name = "late sum");
        weir_fetch(y, .name = "y");
        weir_fetch(loss, .name = "loss");
        if (r.ignores)
            weir_train(loss, weir_sgd(.lr = 0.1), .count = weir_label_count(labels, .ignore = true, .ignore_index = 0));
        else
            weir_train(loss, weir_sgd(.lr = 0.1));
        WEIR_PROGRAM(g, "more") {
            weir_tensor *x = weir_input(g, WEIR_F32, {WIDTH}, .name = "x");
            weir_tensor *sum = weir_state(g, WEIR_F32, {WIDTH}, .name = "total");
            weir_state_set(sum, weir_add(sum, x));
        }
    }
    weir_plan *plan = weir_compile(g, .micro_batches = r.micro, .seed = r.seed);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

Test(same, inputs_states_and_programs_are_those_of_the_step)
{
    for (int ignores = 0; ignores < 2; ignores++) {
        weir_plan *one = rich_plan((rich){.devices = 1, .micro = 1, .ignores = ignores});
        for (int devices = 1; devices <= EFFORT(4, 2, 2); devices++)
            for (int micro = 1; micro <= 4; micro *= 2)
                expect_same_as(one, rich_plan((rich){.devices = devices, .micro = micro, .ignores = ignores}), "all kinds of values");
        weir_plan_free(one);
    }
}

Test(same, dropout_is_the_same_in_as_many_micro_batches)
{
    for (int micro = 1; micro <= 2; micro++) {
        weir_plan *one = rich_plan((rich){.devices = 1, .micro = micro, .dropout = true});
        expect_same_as(one, rich_plan((rich){.devices = 2, .micro = micro, .dropout = true}), "dropout");
        weir_plan_free(one);
    }
}

/* No proof calls a function of the program. */
static weir_status give_nothing(void *ctx, const weir_view *view, int64_t step, int micro)
{
    (void)ctx, (void)view, (void)step, (void)micro;
    return WEIR_E_KERNEL;
}
static weir_status put_nothing(void *ctx, const weir_view *view, int64_t step, int micro)
{
    return give_nothing(ctx, view, step, micro);
}
static weir_status take_nothing(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_E_KERNEL;
}

/* A graph that generates has positions at which rows must fit, and calls a function of the program. */
Test(same, a_model_that_generates_is_the_same_without_fusion)
{
    const gpt_config config = {.layers = 2, .dim = 8, .heads = 2, .seq = 8, .vocab = 64, .batch = 4, .corpus = &corpus};
    const gpt_feed feed = {give_nothing, take_nothing, put_nothing, NULL};
    weir_graph *g = gpt_generate_graph(&config, 3, &feed);
    weir_plan *one = weir_compile(g), *other = weir_compile(g, .no_fusion = true);
    cr_assert(one && other, "%s", weir_error());
    expect_same(one, other, "a graph that generates");
    weir_plan_free(one);
    weir_plan_free(other);
    weir_graph_free(g);
}

/* ---- plans that do not ---- */

static void expect_wrong(const weir_plan *a, const weir_plan *b, const char *name)
{
    const weir_status status = weir_plan_same(a, b, .seed = SEED, .rounds = 1);
    cr_expect_eq(status, WEIR_E_WRONG, "%s: %s", name, status ? weir_error() : "goes by unseen");
    cr_expect(!status || strstr(weir_error(), name), "%s is not named: %s", name, weir_error());
}

static weir_plan *sgd_plan(layout lies, double rate)
{
    weir_graph *g = gpt_with(lies, weir_sgd(.lr = rate));
    weir_plan *plan = weir_compile(g, .micro_batches = lies.micro ? lies.micro : 1);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

Test(same, another_learning_rate_is_seen)
{
    weir_plan *one = sgd_plan((layout){0}, 0.1), *other = sgd_plan((layout){.dp = 2}, 0.2);
    expect_wrong(one, other, "gpt.c:");
    cr_expect(strstr(weir_error(), "is not the same in both plans after 1 step, nor are "), "%s", weir_error());
    weir_plan_free(one);
    weir_plan_free(other);
}

static bool is_op(const weir_plan *plan, uint32_t k, const char *op)
{
    return !strcmp(plan_text(plan, plan->kernels[k].op), op);
}

static const char *output_name(const weir_plan *plan, uint32_t k)
{
    return plan_text(plan, plan->tensors[plan->operands[plan->kernels[k].out.first].tensor.i].name);
}

static const char *input_name(const weir_plan *plan, uint32_t k)
{
    return plan_text(plan, plan->tensors[plan->operands[plan->kernels[k].in.first].tensor.i].name);
}

/* An update of one parameter goes further on one device: the parameter is named, and no other. */
Test(same, the_parameter_that_is_updated_wrongly_is_named)
{
    const layout lies[] = {{.dp = 2}, {.tp = 2, .micro = 2}, {.dp = 2, .pp = 2, .zero = true}};
    weir_plan *one = sgd_plan((layout){0}, 0.1);
    int made = 0;
    for (int i = 0; i < 3; i++) {
        weir_plan *plan = sgd_plan(lies[i], 0.1);
        uint32_t updates = 0;
        for (uint32_t k = 0; k < plan->kernels_count; k++) {
            if (!is_op(plan, k, "sgd") || strstr(output_name(plan, k), "/k/bias") || updates++ % EACH)
                continue; /* the gradient of that bias is 0 */
            weir_plan *wrong = plan_copy(plan);
            char name[128];
            wrong->words[wrong->kernels[k].attrs.first].r *= 1.5;
            snprintf(name, sizeof name, "\"%s\"", output_name(plan, k));
            expect_wrong(one, wrong, name);
            expect_wrong(wrong, one, name);
            weir_plan_free(wrong);
            made++;
        }
        weir_plan_free(plan);
    }
    cr_log_info("%d updates made wrong", made);
    cr_expect_gt(made, 0);
    weir_plan_free(one);
}

/* The gradient of the keys' bias is 0. The loss, and the logits of the labels, which only the loss reads, are fetched from one
 * device, and nobody reads those of the others. */
static bool matters(const weir_plan *plan, uint32_t k)
{
    const char *name = plan_text(plan, plan->kernels[k].name);
    const bool zero = strstr(name, "/k/bias") || strstr(name, "k.grad/linear_db");
    return !zero && !strstr(name, "class_lse:1") && strncmp(name, "loss", 4) != 0;
}

/* A sum without one of its terms; and a term for another. */
Test(same, a_term_that_is_lost_or_counted_twice_is_seen)
{
    const layout lies[] = {{.dp = 2, .micro = 2}, {.tp = 2}, {.tp = 4}};
    weir_plan *one = sgd_plan((layout){0}, 0.1);
    int made = 0;
    for (int i = 0; i < 3; i++) {
        weir_plan *plan = sgd_plan(lies[i], 0.1);
        uint32_t sums = 0;
        for (uint32_t k = 0; k < plan->kernels_count; k++)
            for (int twice = 0; twice < 2; twice++) {
                if (!is_op(plan, k, "box") || plan->kernels[k].in.count < 2 || !matters(plan, k) || sums++ % EACH)
                    continue;
                weir_plan *wrong = plan_copy(plan);
                plan_kernel *kernel = &wrong->kernels[k];
                if (twice)
                    wrong->operands[kernel->in.first] = wrong->operands[kernel->in.first + 1];
                else
                    kernel->in.count--;
                if (!plan_validate(wrong) && !weir_plan_check(wrong)) {
                    expect_wrong(one, wrong, "is not the same in both plans");
                    made++;
                }
                weir_plan_free(wrong);
            }
        weir_plan_free(plan);
    }
    cr_log_info("%d terms lost or counted twice", made);
    cr_expect_gt(made, 0);
    weir_plan_free(one);
}

Test(same, another_stream_of_dropout_is_seen)
{
    weir_plan *one = rich_plan((rich){.devices = 1, .micro = 1, .dropout = true});
    weir_plan *other = rich_plan((rich){.devices = 2, .micro = 1, .dropout = true, .seed = 1});
    expect_wrong(one, other, "does not begin alike in both plans, which were compiled with two values of .seed");
    weir_plan *wrong = plan_copy(one);
    for (uint32_t k = 0; k < wrong->kernels_count; k++)
        wrong->kernels[k].key += is_op(wrong, k, "dropout");
    expect_wrong(one, wrong, "is not the same in both plans");
    weir_plan_free(wrong);
    weir_plan_free(other);
    other = rich_plan((rich){.devices = 1, .micro = 2, .dropout = true});
    expect_wrong(one, other, "is not the same in both plans");
    weir_plan_free(other);
    weir_plan_free(one);
}

/* Two devices have each other's shard of a weight. */
Test(same, shards_that_are_swapped_are_seen)
{
    weir_plan *one = sgd_plan((layout){0}, 0.1), *wrong = sgd_plan((layout){.tp = 2}, 0.1);
    int swapped = 0;
    for (uint32_t p = 0; p < wrong->params_count; p++) {
        const plan_param *param = &wrong->params[p];
        if (strcmp(plan_text(wrong, param->name), "h0/up/weight"))
            continue;
        plan_tensor *a = &wrong->tensors[wrong->shards[param->shards.first].i];
        plan_tensor *b = &wrong->tensors[wrong->shards[param->shards.first + 1].i];
        const plan_tensor kept = *a;
        memcpy(a->start, b->start, sizeof a->start);
        memcpy(b->start, kept.start, sizeof b->start);
        swapped += memcmp(a->start, b->start, sizeof a->start) != 0;
    }
    cr_expect_eq(swapped, 1);
    expect_wrong(one, wrong, "is not the same in both plans");
    weir_plan_free(wrong);
    weir_plan_free(one);
}

/* Memory that nobody has written has no value, so a plan that reads some is not even the same as itself. */
Test(same, memory_that_nobody_wrote_is_not_the_same)
{
    weir_plan *plan = sgd_plan((layout){.tp = 2}, 0.1);
    int seen = 0;
    for (uint32_t k = 0; k < plan->kernels_count && !seen; k++) {
        weir_plan *wrong = is_op(plan, k, "box") && plan->kernels[k].in.count > 1 && matters(plan, k) ? plan_copy(plan) : NULL;
        if (!wrong)
            continue;
        wrong->words[wrong->kernels[k].attrs.first].i = 1; /* terms are parts */
        wrong->kernels[k].in.count = 1;
        const plan_tensor *in = &wrong->tensors[wrong->operands[wrong->kernels[k].in.first].tensor.i];
        const plan_tensor *out = &wrong->tensors[wrong->operands[wrong->kernels[k].out.first].tensor.i];
        const bool unwritten = memcmp(in->shape, out->shape, sizeof in->shape) != 0;
        if (unwritten && !plan_validate(wrong) && !weir_plan_check(wrong)) {
            expect_wrong(wrong, wrong, "is not the same in both plans");
            seen++;
        }
        weir_plan_free(wrong);
    }
    cr_expect_gt(seen, 0);
    weir_plan_free(plan);
}

/* One group of classes is left out of the loss. */
Test(same, a_group_of_classes_that_is_left_out_is_seen)
{
    weir_plan *one = sgd_plan((layout){0}, 0.1), *plan = sgd_plan((layout){.tp = 4}, 0.1);
    int made = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        if (!is_op(plan, k, "box") || plan->kernels[k].in.count != 4 || !strstr(input_name(plan, k), "class_lse") || !matters(plan, k))
            continue;
        weir_plan *wrong = plan_copy(plan);
        wrong->kernels[k].in.count--;
        expect_wrong(one, wrong, "is not the same in both plans");
        weir_plan_free(wrong);
        made++;
    }
    cr_log_info("%d times", made);
    cr_expect_gt(made, 0);
    weir_plan_free(plan);
    weir_plan_free(one);
}

/* Each device of data parallelism has a shard of its own, which begins as it says itself. */
Test(same, every_shard_has_to_begin_alike)
{
    weir_plan *one = sgd_plan((layout){0}, 0.1), *plan = sgd_plan((layout){.dp = 2}, 0.1);
    cr_assert_gt(plan->inits_count, one->inits_count);
    expect_same(one, plan, "before the changes");
    for (uint32_t i = 0; i < plan->inits_count; i++) {
        weir_plan *wrong = plan_copy(plan);
        wrong->inits[i].a += 1;
        expect_wrong(one, wrong, "does not begin alike in both plans");
        expect_wrong(wrong, one, "does not begin alike in both plans");
        weir_plan_free(wrong);
    }
    weir_plan_free(plan);
    weir_plan_free(one);
}

/* ---- random changes ---- */

static weir_graph *perceptron(void)
{
    weir_graph *g = weir_graph_new("perceptron");
    WEIR_ON(weir_mesh_new(g, "cpu:0-1")) {
        weir_tensor *x = weir_input(g, WEIR_F32, {8, 6}, .name = "x", .sbp = {WEIR_S(0)}, .micro = true);
        weir_tensor *labels = weir_input(g, WEIR_I32, {8}, .name = "labels", .sbp = {WEIR_S(0)}, .micro = true);
        weir_tensor *h = weir_gelu(weir_linear(x, 12, .name = "up"));
        weir_tensor *loss = weir_cross_entropy(weir_linear(h, CLASSES, .name = "down"), labels);
        weir_train(loss, weir_adamw(.lr = 0.01, .clip_norm = 1, .weight_decay = 0.1));
        weir_fetch(loss, .name = "loss");
    }
    return g;
}

static uint64_t firings(const weir_plan *plan)
{
    uint64_t sum = 0;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        sum += plan->actors[a].fires;
    return sum;
}

/* Values that one plan fetches, and the other does not, are compared with the graph alone. */
static bool plans_do_not_say(const char *why)
{
    return strstr(why, "the plan fetches") && strstr(why, "and the graph does not");
}

/* Names of programs, and how states of optimizers begin, are compared between plans alone. */
static bool graph_does_not_say(weir_status status)
{
    return status == WEIR_E_WRONG &&
           (strstr(weir_error(), "the first plan has the program") || strstr(weir_error(), "does not begin alike in both plans"));
}

/* A plan that is changed at random computes its graph if and only if it computes the same as the plan that was not changed. */
Test(same, two_proofs_say_the_same_of_random_changes)
{
    weir_graph *g = perceptron();
    weir_plan *compiled = weir_compile(g, .micro_batches = 2), *base = mutate_room(compiled);
    uint64_t random = SEED;
    int right = 0, wrong = 0;
    cr_assert(base, "%s", weir_error());
    for (int i = 0; i < CHANGES; i++) {
        weir_plan *plan = plan_copy(base);
        mutate_plan(plan, &random);
        const bool runs = mutate_tighten(plan) && !weir_plan_check(plan) && plan->graph == base->graph && !plan->part &&
                          plan->micro_batches == base->micro_batches && firings(plan) <= 2 * firings(base);
        const weir_status graph = runs ? weir_plan_verify(g, plan, .rounds = 1) : WEIR_E_PLAN;
        if (graph == WEIR_OK || graph == WEIR_E_WRONG) {
            char why[1024] = "";
            snprintf(why, sizeof why, "%s", graph ? weir_error() : "right");
            const weir_status other = weir_plan_same(base, plan, .rounds = 1);
            cr_expect((graph != WEIR_OK) == (other != WEIR_OK) || graph_does_not_say(other) || plans_do_not_say(why), "change %d: %s; %s", i, why,
                      other ? weir_error() : "the same");
            right += !graph;
            wrong += graph == WEIR_E_WRONG;
        }
        weir_plan_free(plan);
    }
    cr_log_info("%d changes that matter, %d that do not", wrong, right);
    cr_expect_gt(wrong, 0);
    cr_expect_gt(right, 0);
    weir_plan_free(base);
    weir_plan_free(compiled);
    weir_graph_free(g);
}

/* ---- plans that cannot be compared ---- */

static void expect_refused(weir_plan *a, weir_plan *b, weir_status status, const char *why)
{
    cr_expect_eq(weir_plan_same(a, b), status, "%s", weir_error());
    cr_expect(strstr(weir_error(), why), "%s", weir_error());
    weir_plan_free(b);
}

/* Sums values in a second program, of as many rows as a micro-batch of main. */
static weir_graph *two_programs(int micro)
{
    weir_graph *g = weir_graph_new("two");
    WEIR_ON(weir_mesh_new(g, "cpu:0")) {
        weir_tensor *x = weir_input(g, WEIR_F32, {12 / micro, 3}, .name = "x", .micro = true);
        weir_train(weir_mean(weir_gelu(weir_linear(x, 2, .name = "line"))), weir_sgd(.lr = 0.1));
        WEIR_PROGRAM(g, "eval")
            weir_fetch(weir_sum(weir_input(g, WEIR_F32, {12 / micro}, .name = "x")), .name = "sum");
    }
    return g;
}

Test(same, one_program_can_be_proven_alone)
{
    weir_graph *g = two_programs(1), *h = two_programs(2);
    weir_plan *one = weir_compile(g), *other = weir_compile(h, .micro_batches = 2);
    cr_assert(one && other, "%s", weir_error());
    cr_expect_eq(weir_plan_same(one, other), WEIR_E_ARGUMENT);
    cr_expect(strstr(weir_error(), "the input \"eval/x\" has 12 values in a step of the first plan, and 6 in"), "%s", weir_error());
    cr_expect_eq(weir_plan_same(one, other, .program = "main"), WEIR_OK, "%s", weir_error());
    cr_expect_eq(weir_plan_same(one, one, .program = "eval"), WEIR_OK, "%s", weir_error());
    cr_expect_eq(weir_plan_same(one, other, .program = "mian"), WEIR_E_ARGUMENT);
    cr_expect(strstr(weir_error(), "the plan \"two\" has no program \"mian\"; its first is \"main\""), "%s", weir_error());
    cr_expect_eq(weir_plan_verify(h, other, .program = "main"), WEIR_OK, "%s", weir_error());
    cr_expect_eq(weir_plan_verify(h, other, .program = "eval"), WEIR_OK, "%s", weir_error());
    cr_expect_eq(weir_plan_verify(h, other, .program = "mian"), WEIR_E_ARGUMENT);
    weir_plan_free(one);
    weir_plan_free(other);
    weir_graph_free(g);
    weir_graph_free(h);
}

/* A model without parameters: a step's rows, and, if asked for, a value of each micro-batch alone. */
static weir_plan *plain_plan(int micro, bool rows, int step_rows)
{
    weir_graph *g = weir_graph_new("plain");
    WEIR_ON(weir_mesh_new(g, "cpu:0-1")) {
        weir_tensor *x = weir_input(g, WEIR_F32, {step_rows / micro, 3}, .name = "x", .micro = true, .sbp = {WEIR_S(0)});
        weir_fetch(rows ? weir_gelu(x) : weir_mean(weir_gelu(x)), .name = "y");
    }
    weir_plan *plan = weir_compile(g, .micro_batches = micro);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

Test(same, plans_that_cannot_be_compared_are_refused)
{
    weir_plan *one = rich_plan((rich){.devices = 1, .micro = 1}), *gpt = gpt_plan((layout){0}, (weir_compile_opts){0});
    expect_refused(one, plan_copy(gpt), WEIR_E_ARGUMENT, "are plans of two models");
    weir_plan_free(gpt);
    weir_plan *part = plan_copy(one);
    part->part = 1;
    expect_refused(one, part, WEIR_E_ARGUMENT, "the second plan is the part of one rank");
    weir_plan *alone = plan_copy(one);
    alone->programs[1].name = alone->name;
    expect_refused(one, alone, WEIR_E_WRONG, "the first plan has the program \"more\", and the other does not");
    cr_expect_eq(weir_plan_same(one, one, .memory = "10KiB"), WEIR_E_MEMORY);
    cr_expect(strstr(weir_error(), "test_same.c:"), "%s", weir_error());
    cr_expect(strstr(weir_error(), "weir_plan_same: the proof of \"rich\" takes"), "%s", weir_error());
    cr_expect_eq(weir_plan_same(one, one, .memory = "100MiB"), WEIR_OK, "%s", weir_error());
    weir_plan_free(one);
}

Test(same, values_of_a_micro_batch_are_compared_in_as_many_of_them)
{
    weir_plan *rows = plain_plan(1, true, 12), *mean = plain_plan(1, false, 12);
    expect_same_as(rows, plain_plan(2, true, 12), "rows of a step");
    expect_same_as(rows, plain_plan(3, true, 12), "rows of a step");
    expect_same_as(mean, plain_plan(1, false, 12), "a mean");
    expect_refused(mean, plain_plan(2, false, 12), WEIR_E_UNSUPPORTED, "nothing of the two plans can be compared");
    expect_refused(rows, plain_plan(1, true, 8), WEIR_E_ARGUMENT, "the input \"x\" has 36 values in a step of the first plan, and 24 in");
    weir_plan_free(rows);
    weir_plan_free(mean);
}
