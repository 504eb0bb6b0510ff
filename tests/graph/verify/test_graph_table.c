/* tests/graph/verify/test_graph_table.c: a plan keeps the graph that it was compiled from, through its file, and is proven against
 * what it keeps as against the program's own graph.
 *
 * A table comes from a file, so anybody may have made it: what is changed in one is refused, or is a graph that a proof can be tried
 * against.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include "apps/common/model/gpt.h"
#include "graph/model/build.h"
#include "graph/plan/form/fields.h"
#include "graph/plan/form/file.h"
#include "graph/plan/spread/spread.h"
#include "tests/support/effort.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/random_model.h"
#include "tests/support/run.h"
#include "tests/support/sample_plan.h"
#include "tests/support/small_plans.h"
#include "tests/support/untrusted.h"

TestSuite(graph_table, .timeout = FULL(6000, 600));

enum { SEED = 4711, MODELS = EFFORT(FULL(60, 8), 3, 1), CHANGES = EFFORT(FULL(100000, 3000), 1500, 300) };

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())
#define SAYS(part) cr_expect(strstr(weir_error(), part), "\"%s\" lacks \"%s\"", weir_error(), part)

/* ---- models ---- */

static text corpus = {.bytes = (uint8_t *)"a text of which nobody reads a word", .count = 35};

static weir_graph *gpt(layout lies)
{
    const gpt_config config = {.layers = 2, .dim = 8, .heads = 2, .seq = 4, .vocab = 16, .batch = 4, .layout = lies,
                               .optimizer = weir_adamw(.lr = 0.01, .clip_norm = 1), .corpus = &corpus};
    weir_graph *g = gpt_train_graph(&config);
    cr_assert(g && !weir_graph_mistake(g), "%s", g ? weir_graph_mistake(g) : "no memory");
    return g;
}

static weir_status give(void *ctx, const weir_view *to, int64_t step, int micro)
{
    (void)ctx, (void)to, (void)step, (void)micro;
    return WEIR_OK;
}

static weir_status take(void *ctx, const weir_view *from, int64_t step, int micro)
{
    (void)ctx, (void)from, (void)step, (void)micro;
    return WEIR_OK;
}

static weir_status halve(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

/* A bit of everything: sources and pushes, sinks and pulls, a call, dropout, values made again, a second program, states with and
 * without a delay, batches of micro-batches. */
static weir_graph *zoo(bool by_hand)
{
    weir_graph *g = weir_graph_new("zoo");
    WEIR_ON(weir_mesh_new(g, "cpu:0-1")) {
        weir_tensor *x = weir_input(g, WEIR_F32, {4, 6}, .name = "x", .sbp = {WEIR_S(0)}, .micro = true, .source = give);
        weir_tensor *labels = weir_input(g, WEIR_I32, {4}, .name = "labels", .micro = true);
        weir_tensor *late = weir_state(g, WEIR_F32, {6}, .name = "late", .delay = 3, .init = WEIR_VALUE(-1));
        weir_tensor *steps = weir_state(g, WEIR_I32, {0}, .name = "steps", .init = WEIR_VALUE(7));
        weir_tensor *half = by_hand ? weir_call(halve, {x}, .name = "half", .dtype = WEIR_F32, .shape = {4, 6},
                                                .in_sbp = {{WEIR_S(0)}}, .sbp = {WEIR_S(0)})
                                    : weir_call(halve, {x}, .name = "half", .dtype = WEIR_F32, .shape = {4, 6});
        weir_tensor *h = weir_dropout(weir_gelu(weir_linear(weir_add(x, half), 8, .name = "up")), 0.25);
        weir_tensor *y = weir_linear(weir_layernorm(h, .name = "norm"), RUN_CLASSES, .name = "down");
        weir_tensor *loss = weir_cross_entropy(y, labels);
        weir_tensor *pushed = weir_input(g, WEIR_F32, {6}, .name = "pushed");
        weir_train(loss, weir_adamw(.lr = 0.01, .clip_norm = 1, .weight_decay = 0.1), .recompute = true);
        weir_fetch(loss, .name = "loss");
        weir_fetch(weir_batch(loss, 2), .name = "losses", .sink = take);
        weir_fetch(late, .name = "late");
        weir_fetch(steps, .name = "steps");
        weir_state_set(late, weir_add(pushed, late));
        WEIR_PROGRAM(g, "eval") {
            weir_tensor *q = weir_input(g, WEIR_F32, {2, 6}, .name = "q");
            weir_fetch(weir_linear(q, 8, .name = "up"), .name = "out");
        }
    }
    cr_assert_null(weir_graph_mistake(g), "%s", weir_graph_mistake(g));
    return g;
}

/* ---- there and back ---- */

/* The plan as it comes from a file. */
static weir_plan *through_file(const weir_plan *plan)
{
    void *bytes;
    size_t count;
    OK(plan_encode(plan, &bytes, &count));
    weir_plan *loaded = plan_decode(bytes, count);
    cr_assert(loaded, "%s", weir_error());
    free(bytes);
    return loaded;
}

static weir_graph *kept_graph(const weir_plan *plan)
{
    weir_graph *graph;
    OK(weir_plan_graph(plan, &graph));
    return graph;
}

static bool same_src(weir_src a, weir_src b)
{
    return a.line == b.line && (a.file && b.file ? !strcmp(a.file, b.file) : !a.file && !b.file);
}

static int id_of(const graph_node *node)
{
    return node ? node->id : -1;
}

static void expect_same_tensor(const weir_tensor *a, const weir_tensor *b)
{
    cr_expect_str_eq(a->name, b->name);
    cr_expect(a->id == b->id && same_src(a->src, b->src), "%s", a->name);
    cr_expect(a->type.dtype == b->type.dtype && weir_shape_equal(&a->type.shape, &b->type.shape), "%s", a->name);
    cr_expect(id_of(a->node) == id_of(b->node) && id_of(a->update) == id_of(b->update), "%s", a->name);
    cr_expect(a->micro == b->micro && a->trains == b->trains && a->frozen == b->frozen && a->delay == b->delay, "%s", a->name);
    cr_expect(a->asked == b->asked && a->init.kind == b->init.kind && a->init.a == b->init.a && a->init.b == b->init.b, "%s",
              a->name);
}

static void expect_same_node(const graph_node *a, const graph_node *b)
{
    cr_expect_str_eq(a->name, b->name);
    cr_expect_str_eq(graph_short_name(a), graph_short_name(b));
    cr_expect(a->id == b->id && a->op == b->op && same_src(a->src, b->src), "%s", a->name);
    cr_assert(a->in_count == b->in_count && a->out_count == b->out_count, "%s", a->name);
    for (int i = 0; i < a->in_count; i++)
        cr_expect_eq(a->in[i]->id, b->in[i]->id, "%s", a->name);
    for (int o = 0; o < a->out_count; o++)
        cr_expect_eq(a->out[o]->id, b->out[o]->id, "%s", a->name);
    cr_expect(!a->op->attrs_bytes || !memcmp(a->attrs, b->attrs, a->op->attrs_bytes), "%s", a->name);
    cr_expect(a->phase == b->phase && a->program == b->program && a->micro == b->micro && a->host == b->host, "%s", a->name);
    cr_expect(a->fills == b->fills && !a->by_hand == !b->by_hand && id_of(a->forward) == id_of(b->forward), "%s", a->name);
    cr_expect((a->updates ? a->updates->id : -1) == (b->updates ? b->updates->id : -1), "%s", a->name);
}

static void expect_same_graph(const weir_graph *a, const weir_graph *b)
{
    cr_expect_eq(graph_hash(a), graph_hash(b));
    cr_expect_str_eq(a->name, b->name);
    cr_assert(a->programs.count == b->programs.count && a->tensors.count == b->tensors.count && a->nodes.count == b->nodes.count);
    for (int p = 0; p < a->programs.count; p++) {
        cr_expect_str_eq(a->programs.item[p].name, b->programs.item[p].name);
        cr_expect_str_eq(a->programs.item[p].prefix, b->programs.item[p].prefix);
    }
    for (int t = 0; t < a->tensors.count; t++)
        expect_same_tensor(a->tensors.item[t], b->tensors.item[t]);
    for (int n = 0; n < a->nodes.count; n++)
        expect_same_node(a->nodes.item[n], b->nodes.item[n]);
    cr_expect_eq(a->loss ? a->loss->id : -1, b->loss ? b->loss->id : -1);
    cr_expect(same_src(a->loss_src, b->loss_src));
}

/* The graph comes back as it was, behind the program's back, and proves the plan. */
static void expect_kept(weir_graph *g, weir_plan *plan, weir_status proof, const char *what)
{
    cr_assert(plan, "%s: %s", what, weir_error());
    weir_plan *loaded = through_file(plan);
    weir_graph *kept = kept_graph(loaded);
    expect_same_graph(g, kept);
    weir_graph_free(g);
    weir_plan_free(plan);
    cr_expect_eq(weir_plan_verify(kept, loaded, .seed = SEED), proof, "%s: %s", what, weir_error());
    weir_plan_free(loaded);
    cr_expect_null(weir_graph_mistake(kept));
    weir_graph_free(kept);
}

Test(graph_table, a_gpt_comes_back_and_is_proven_in_every_layout_and_precision)
{
    const layout lies[] = {{0}, {.dp = 2, .zero = true}, {.tp = 2}, {.dp = 2, .tp = 2, .micro = 2}, {.pp = 2, .micro = 2}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        for (int p = 0; p < 3; p++) {
            weir_graph *g = gpt(lies[i]);
            const weir_dtype precision[] = {WEIR_F32, WEIR_BF16, WEIR_F16};
            expect_kept(g, weir_compile(g, .micro_batches = lies[i].micro, .precision = precision[p], .no_fusion = p == 1,
                                        .keep_graph = true), WEIR_OK, "gpt");
        }
}

Test(graph_table, programs_states_calls_dropout_and_what_is_made_again_come_back)
{
    weir_graph *g = zoo(false);
    expect_kept(g, weir_compile(g, .micro_batches = 2, .keep_graph = true), WEIR_OK, "zoo");
    g = zoo(true);
    expect_kept(g, weir_compile(g, .micro_batches = 2, .keep_graph = true), WEIR_E_UNSUPPORTED, "a call that is split by hand");
    SAYS("half: a call that is split by hand cannot be verified");
}

Test(graph_table, random_models_come_back)
{
    for (uint64_t model = 0; model < MODELS; model++) {
        weir_graph *g = random_model(SEED + model, model % 5);
        expect_kept(g, weir_compile(g, .micro_batches = random_model_micro(SEED + model), .keep_graph = true), WEIR_OK, "random");
    }
}

Test(graph_table, a_file_has_the_graph)
{
    char path[] = "/tmp/weir-test-table-XXXXXX";
    close(mkstemp(path));
    weir_graph *g = gpt((layout){.dp = 2}), *kept;
    weir_plan *plan = weir_compile(g, .keep_graph = true);
    OK(weir_plan_save(plan, path));
    weir_plan_free(plan);
    plan = weir_plan_load(path);
    cr_assert(plan, "%s", weir_error());
    OK(weir_plan_graph(plan, &kept));
    OK(weir_plan_verify(kept, plan));
    weir_graph_free(kept);
    weir_plan_free(plan);
    weir_graph_free(g);
    remove(path);
}

/* ---- the same plan ---- */

Test(graph_table, a_plan_with_its_graph_is_the_plan_without_it_to_all_that_runs)
{
    weir_graph *g = random_model(SEED, 1);
    const int micro = random_model_micro(SEED);
    weir_plan *with = weir_compile(g, .micro_batches = micro, .keep_graph = true), *without = weir_compile(g, .micro_batches = micro);
    cr_expect_eq(with->hash, without->hash);
    cr_expect(with->table_version && !without->table_version);
    void *bytes, *more;
    size_t count, more_count;
    OK(plan_encode(without, &bytes, &count));
    OK(plan_encode(with, &more, &more_count));
    cr_expect_gt(more_count, count);
    weir_plan *spread = plan_spread(with, 2, 0), *part = plan_part(spread, 1), *other = plan_spread(without, 2, 0);
    cr_expect(!spread->table_version && !part->table_version && !part->graph_nodes_count);
    cr_expect_eq(spread->hash, other->hash);
    run a = run_plan(with, 2, 2), b = run_plan(without, 2, 2);
    run_near(&a, &b, 0, "with its graph");
    run_free(&a);
    run_free(&b);
    free(bytes);
    free(more);
    weir_plan_free(part);
    weir_plan_free(spread);
    weir_plan_free(other);
    weir_plan_free(with);
    weir_plan_free(without);
    weir_graph_free(g);
}

Test(graph_table, a_plan_without_its_graph_says_how_to_keep_it)
{
    weir_graph *g = gpt((layout){0}), *kept = g;
    weir_plan *plan = weir_compile(g);
    cr_expect_eq(weir_plan_graph(plan, &kept), WEIR_E_ARGUMENT);
    SAYS("does not keep its graph: compile it with weir_compile(.keep_graph = true), or give --with-graph");
    cr_expect_null(kept);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(graph_table, a_graph_that_comes_from_a_plan_is_not_compiled)
{
    weir_graph *g = gpt((layout){0});
    weir_plan *plan = weir_compile(g, .keep_graph = true);
    weir_graph *kept = kept_graph(plan);
    cr_expect_null(weir_compile(kept));
    SAYS("comes from a plan, which does not keep devices and functions; compile the graph that the program builds");
    weir_graph_free(kept);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* ---- plans that are wrong ---- */

/* Changes a kernel, so that the plan is valid and computes something else. False: there is none of that kind. */
typedef bool (*mutant)(weir_plan *plan);

static plan_kernel *kernel_of(weir_plan *plan, const char *op, uint32_t inputs)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (!strcmp(plan_text(plan, plan->kernels[k].op), op) && plan->kernels[k].in.count >= inputs)
            return &plan->kernels[k];
    return NULL;
}

static bool a_term_is_counted_twice(weir_plan *plan)
{
    const plan_kernel *box = kernel_of(plan, "box", 2);
    if (box)
        plan->operands[box->in.first] = plan->operands[box->in.first + 1];
    return box;
}

static bool query_for_key(weir_plan *plan)
{
    const plan_kernel *k = kernel_of(plan, "attention", 3);
    if (!k)
        return false;
    const plan_operand query = plan->operands[k->in.first];
    plan->operands[k->in.first] = plan->operands[k->in.first + 1];
    plan->operands[k->in.first + 1] = query;
    return true;
}

static bool another_rate(weir_plan *plan)
{
    const plan_kernel *k = kernel_of(plan, "adamw", 1);
    if (k)
        plan->words[k->attrs.first].r *= 1.5;
    return k;
}

static bool the_norm_omits_a_gradient(weir_plan *plan)
{
    plan_kernel *k = kernel_of(plan, "add_many", 2);
    if (k)
        k->in.count--;
    return k;
}

static bool a_value_begins_otherwise(weir_plan *plan)
{
    for (uint32_t i = 0; i < plan->inits_count; i++)
        if (plan->inits[i].kind == WEIR_INIT_NORMAL)
            return plan->inits[i].a *= 2, true;
    return false;
}

Test(graph_table, a_wrong_plan_fails_with_the_same_sentence_as_against_the_program_s_graph)
{
    const mutant mutants[] = {a_term_is_counted_twice, query_for_key, another_rate, the_norm_omits_a_gradient,
                              a_value_begins_otherwise};
    weir_graph *g = gpt((layout){.dp = 2, .micro = 2});
    weir_plan *plan = weir_compile(g, .micro_batches = 2, .no_fusion = true, .keep_graph = true);
    cr_assert(plan, "%s", weir_error());
    for (size_t m = 0; m < sizeof mutants / sizeof *mutants; m++) {
        weir_plan *wrong = plan_copy(plan);
        char sentence[2048];
        cr_assert(mutants[m](wrong), "mutant %zu", m);
        wrong->hash = plan_hash(wrong);
        cr_assert_eq(weir_plan_verify(g, wrong, .rounds = 1), WEIR_E_WRONG, "mutant %zu", m);
        snprintf(sentence, sizeof sentence, "%s", weir_error());
        weir_plan *loaded = through_file(wrong);
        weir_graph *kept = kept_graph(loaded);
        cr_expect_eq(weir_plan_verify(kept, loaded, .rounds = 1), WEIR_E_WRONG, "mutant %zu", m);
        cr_expect_str_eq(weir_error(), sentence);
        weir_graph_free(kept);
        weir_plan_free(loaded);
        weir_plan_free(wrong);
    }
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* Gives the plan the table of another. */
static void swap_tables(weir_plan *a, weir_plan *b)
{
    const weir_plan was = *a;
#define X(type, member)                        \
    a->member = b->member;                     \
    a->member##_count = b->member##_count;     \
    b->member = was.member;                    \
    b->member##_count = was.member##_count;
    PLAN_GRAPH_LIST(X)
#undef X
    a->table_hash = b->table_hash;
    b->table_hash = was.table_hash;
}

Test(graph_table, the_graph_of_another_model_is_refused)
{
    weir_graph *one = gpt((layout){0}), *other = random_model(SEED, 0), *kept;
    weir_plan *plan = weir_compile(one, .keep_graph = true);
    weir_plan *stranger = weir_compile(other, .micro_batches = random_model_micro(SEED), .keep_graph = true);
    swap_tables(plan, stranger);
    OK(plan_validate(plan));
    cr_expect_eq(weir_plan_graph(plan, &kept), WEIR_E_PLAN);
    SAYS("is another model's: its hash is");
    weir_plan_free(stranger);
    weir_plan_free(plan);
    weir_graph_free(one);
    weir_graph_free(other);
}

/* ---- tables that nobody compiled ---- */

static weir_plan *zoo_plan(void)
{
    weir_graph *g = zoo(false);
    weir_plan *plan = weir_compile(g, .micro_batches = 2, .keep_graph = true);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static uint32_t node_named(const weir_plan *plan, const char *name)
{
    for (uint32_t n = 0; n < plan->graph_nodes_count; n++)
        if (!strcmp(plan_graph_text(plan, plan->graph_nodes[n].name), name))
            return n;
    cr_assert_fail("no node %s", name);
    return 0;
}

static uint32_t tensor_named(const weir_plan *plan, const char *name)
{
    for (uint32_t t = 0; t < plan->graph_tensors_count; t++)
        if (!strcmp(plan_graph_text(plan, plan->graph_tensors[t].name), name))
            return t;
    cr_assert_fail("no tensor %s", name);
    return 0;
}

/* A change by hand, and what the validator says of it. */
#define FAULT(change, says)                                     \
    do {                                                        \
        weir_plan *p = plan_copy(plan);                         \
        change;                                                 \
        cr_expect_eq(plan_validate(p), WEIR_E_PLAN, #change);   \
        SAYS(says);                                             \
        weir_plan_free(p);                                      \
    } while (0)
#define NODE(name) p->graph_nodes[node_named(p, name)]
#define TENSOR(name) p->graph_tensors[tensor_named(p, name)]

Test(graph_table, faults_of_nodes_are_named)
{
    weir_plan *plan = zoo_plan();
    OK(plan_validate(plan));
    FAULT(NODE("norm").op.i = UINT32_MAX - 1, "].op: 4294967294 of ");
    FAULT(NODE("norm").op = NODE("norm").name, "(norm): op: there is no norm");
    FAULT(NODE("norm").program.i = 2, "].program: 2 of 2");
    FAULT(NODE("norm").program.i = 1, "is another program's");
    FAULT(NODE("norm").phase = PLAN_UPDATE, "(down): phase: 0, but input 0 is made in phase 2");
    FAULT(NODE("norm").host = 6, "].host: 6 of 6");
    FAULT(NODE("norm").host = 1 + PLAN_CALL, "(norm): host: 3 in a node of op layernorm");
    FAULT(NODE("x").host = 0, "(x): host: 0 in a node of op source");
    FAULT(NODE("x").host = 1 + PLAN_PULL, "(x): host: 5 in a node of op source");
    FAULT(NODE("norm").by_hand = 1, "(norm): by_hand: only calls and sources are split by hand");
    FAULT(NODE("norm").in.count = 1, "(norm): in: 1, layernorm takes 3 to 3");
    FAULT(NODE("norm").in.first = NODE("down").in.first, "belongs to another");
    FAULT(NODE("norm").in.count = UINT32_MAX, "].in: ");
    FAULT(NODE("norm").attrs.count--, "(norm): attrs: 0 words, layernorm has 1");
    FAULT(NODE("norm").out.count--, "(norm:2): node: not in the range of its owner");
    FAULT(NODE("norm").forward.i = node_named(p, "down"), "(norm): forward: ");
    FAULT(NODE("norm").updates.i = tensor_named(p, "late"), "is changed by another node, or by none");
    FAULT(NODE("late.set").updates.i = PLAN_NONE, "(late): update: ");
    FAULT(NODE("late.set").phase = PLAN_FORWARD, "(late.set): updates: graph_tensors[");
    FAULT(NODE("norm").fills = 1, "micro: 1, unlike its node");
    FAULT(NODE("norm").micro = 0, "micro: 1, unlike its node");
    FAULT(NODE("norm").name.i = 0, "(): name: empty");
    FAULT(NODE("norm").name = NODE("down").name, "].name: down is also that of graph_nodes[");
    FAULT(NODE("eval/out").name = NODE("norm").name, "name: does not begin with eval/");
    FAULT(p->graph_refs[NODE("norm").in.first].i = NODE("down").out.first, "which does not come before it");
    FAULT(p->graph_refs[NODE("norm").in.first].i = p->graph_tensors_count, "graph_refs[");
    FAULT(p->graph_refs[NODE("norm").in.first + 1].i = tensor_named(p, "late"), "(norm): layernorm: ");
    FAULT(p->graph_words[NODE("x").attrs.first].i = 99, "(x): source: ");
    weir_plan_free(plan);
}

Test(graph_table, faults_of_tensors_are_named)
{
    weir_plan *plan = zoo_plan();
    FAULT(TENSOR("norm").dtype = WEIR_DTYPE_NONE, "(norm): dtype: none");
    FAULT(TENSOR("norm").dtype = WEIR_BF16, "(norm): layernorm: output 0 is bf16 ");
    FAULT(TENSOR("norm").rank = 7, "].rank: 7 of 7");
    FAULT(TENSOR("norm").rank = 1, "(norm): shape: 8 in dimension 1 of 1");
    FAULT(TENSOR("norm").shape[0] = -4, "(norm): shape: -4 in dimension 0 of 2");
    FAULT(TENSOR("norm").shape[0] = INT64_MAX, "(norm): shape: more elements than there can be");
    FAULT(TENSOR("norm").shape[0] = INT64_C(1) << 48, "graph_tensors: more than 2^50 elements together");
    FAULT(TENSOR("norm").shape[0] = 5, "(norm): layernorm: output 0 is f32 [5, 8], of these inputs it would be f32 [4, 8]");
    FAULT(TENSOR("norm").node.i = PLAN_NONE, "(norm): micro: a parameter or state exists once a step");
    FAULT(TENSOR("norm").node.i = 0, "(norm): node: not in the range of its owner");
    FAULT(TENSOR("norm").delay = 1, "makes it, so it is neither a parameter nor a state");
    FAULT(TENSOR("labels").trains = 1, "(labels): trains: i32 does not");
    FAULT(TENSOR("late").delay = 1 << 20, "(late): delay: 1048576, of 65536 at most");
    FAULT(TENSOR("late").micro = 1, "(late): micro: a parameter or state exists once a step");
    FAULT(TENSOR("late").asked = 0, "(late): asked: 0x0, of 2 programs");
    FAULT(TENSOR("late").asked = 4, "(late): asked: 0x4, of 2 programs");
    FAULT(TENSOR("late").init = WEIR_INIT_DEFAULT, "(late): init: none");
    FAULT(TENSOR("late").update.i = 0, "(late): update: 0 changes another");
    FAULT(TENSOR("late").shape[0] = 7, "(late.copy): copy: output 0 is f32 [6], of these inputs it would be f32 [7]");
    FAULT(TENSOR("late").name = TENSOR("steps").name, "].name: steps is also that of graph_tensors[");
    FAULT(TENSOR("steps").init = WEIR_INIT_NORMAL, "(steps): init: random numbers are f32, f16 or bf16");
    FAULT(TENSOR("steps").a = 1e30, "(steps): a: 1e+30 is no i32");
    FAULT(TENSOR("late").a = NAN, "(late): a: nan is no f32");
    weir_plan_free(plan);
}

Test(graph_table, faults_of_the_whole_table_are_named)
{
    weir_plan *plan = zoo_plan();
    FAULT(p->table_version = 7, "version 7 of the table of a graph: this weir reads version 1; compile the graph again with .keep_graph");
    FAULT(p->table_version = 0, "graph_tensors: ");
    FAULT(p->graph_strings[0] = 'x', "graph_strings: do not start and end with a zero byte");
    FAULT(p->graph_strings[p->graph_strings_count - 1] = 'x', "graph_strings: do not start and end with a zero byte");
    FAULT(p->graph_strings_count = 0, "of 0");
    FAULT(p->graph_losses[0].tensor.i = tensor_named(p, "norm"), "graph_losses[0].tensor: graph_tensors[");
    FAULT(p->graph_losses[0].tensor.i = p->graph_tensors_count, "graph_losses[0].tensor: ");
    FAULT(p->ranks = 2, "graph_table: a plan that is spread over ranks keeps no graph");
    weir_plan_free(plan);
}

Test(graph_table, a_table_of_an_unknown_version_or_a_damaged_one_is_refused_by_the_file)
{
    weir_plan *plan = zoo_plan();
    void *bytes;
    size_t count;
    plan->table_version = 7;
    OK(plan_encode(plan, &bytes, &count));
    cr_expect_null(plan_decode(bytes, count));
    SAYS("version 7 of the table of a graph: this weir reads version 1");
    free(bytes);
    plan->table_version = PLAN_TABLE_VERSION;
    plan->graph_nodes[0].line++;
    OK(plan_encode(plan, &bytes, &count));
    cr_expect_null(plan_decode(bytes, count));
    SAYS("graph_table.hash: does not fit the contents");
    free(bytes);
    weir_plan_free(plan);
}

/* Tables that are changed at random are refused, or a proof can be tried against what they say. */
Test(graph_table, whatever_is_changed_at_random_is_refused_or_still_a_graph)
{
    uint64_t random = SEED;
    int valid = 0, tried = 0;
    weir_plan *bases[] = {zoo_plan(), small_plan_with_graph(1), small_plan_with_graph(2), small_plan_with_graph(3)};
    enum { BASES = sizeof bases / sizeof *bases };
    for (int i = 0; i < BASES; i++) {
        for (uint32_t n = 0; n < bases[i]->graph_nodes_count; n++)
            bases[i]->graph_nodes[n].by_hand = 0; /* a proof would not begin */
        weir_graph *kept = kept_graph(bases[i]);
        const weir_status status = weir_plan_verify(kept, bases[i], .rounds = 1, .memory = "32MiB");
        cr_expect(!status || status == WEIR_E_WRONG, "base %d: %s", i, weir_error());
        weir_graph_free(kept);
    }
    for (int i = 0; i < CHANGES; i++) {
        weir_plan *plan = plan_copy(bases[i % BASES]);
        for (uint64_t more = mutate_draw(&random) % 3 + 1; more; more--)
            mutate_table(plan, &random);
        if (plan_validate_table(plan) == WEIR_OK) {
            plan->table_hash = plan_table_hash(plan);
            weir_plan *loaded = through_file(plan);
            valid++;
            tried += untrusted_proof(loaded);
            weir_plan_free(loaded);
        }
        weir_plan_free(plan);
    }
    cr_log_info("seed %d: %d of %d changed tables are valid, and %d of the model's", SEED, valid, CHANGES, tried);
    cr_expect(valid > CHANGES / 50 && tried > CHANGES / 100, "%d valid, %d tried", valid, tried);
    for (int i = 0; i < BASES; i++)
        weir_plan_free(bases[i]);
}
