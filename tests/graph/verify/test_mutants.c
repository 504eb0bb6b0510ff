/* tests/graph/verify/test_mutants.c: plans that were made wrong are not proven, and the kernel that is wrong is named.
 *
 * A mutant (mutants.h) is a compiled plan changed in one place: a fault that a compiler could have. The table below lists 40
 * kinds; a kind may have several mutants. Each mutant is made in three plans at least.
 *
 * An interpreter of plans in double precision (tests/support/referee.h) says first whether a mutant computes something else at all: a box may drop a source
 * that is zero, and a factor may cancel. Such mutants count as harmless. Mutants of values are valid and live, so nothing but the proof
 * sees them. plan_validate() refuses mutants of orders; the proof looks at these all the same.
 */
#include "tests/support/effort.h"

#include <criterion/criterion.h>

TestSuite(mutants, .timeout = FULL(6000, 600));

#if EFFORT(1, 0, 0)
#include "tests/graph/verify/models.h"
#include "tests/graph/verify/mutants.h"

#include <stdio.h>

#include "graph/compile/actors/passes.h"
#include "kernels/fused/fused.h"
#include "tests/support/referee.h"
#include "tests/support/random_model.h"
#include "tests/support/sample_plan.h"

enum { SEED = 815, PLANS_LEAST = 3, OF_EACH = FULL(40, 1), EDGES = FULL(40, 6), ORDERS = 12, SEEDS = 20 };

/* ---- orders ---- */

static bool read_later(const weir_plan *plan, uint32_t k, uint32_t tensor)
{
    for (uint32_t r = k + 1; r < plan->kernels_count && plan->kernels[r].actor.i == plan->kernels[k].actor.i; r++)
        for (uint32_t i = 0; i < plan->kernels[r].in.count; i++)
            if (in_of(plan, r, i)->tensor.i == tensor)
                return true;
    return false;
}

/* The output of a kernel lies over its input, which a later kernel of the actor reads. */
static uint32_t in_place_over_a_live_operand(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        for (uint32_t i = 0; plan->kernels[k].out.count && i < plan->kernels[k].in.count; i++) {
            const plan_tensor *in = tensor_of(plan, in_of(plan, k, i));
            plan_tensor *out = tensor_of(plan, out_of(plan, k, 0));
            if (in->home != out->home || in->owner != out->owner || in->offset == out->offset || !same_shape(in, out) ||
                !read_later(plan, k, in_of(plan, k, i)->tensor.i) || n--)
                continue;
            out->offset = in->offset;
            return NO_KERNEL;
        }
    return NOTHING;
}

/* Two registers of a space have the same place. */
static uint32_t two_parts_overlap(weir_plan *plan, uint32_t n)
{
    for (uint32_t a = 0; a < plan->regsts_count; a++)
        for (uint32_t b = a + 1; b < plan->regsts_count; b++) {
            plan_regst *one = &plan->regsts[a], *other = &plan->regsts[b];
            if (one->space.i != other->space.i || one->offset == other->offset || !one->slot_bytes ||
                one->slots * one->slot_bytes > other->slots * other->slot_bytes || (a + b) % 5 || n--)
                continue;
            one->offset = other->offset;
            return NO_KERNEL;
        }
    return NOTHING;
}

static uint32_t hold_is_less_by_one(weir_plan *plan, uint32_t n)
{
    for (uint32_t p = 0; p < plan->ports_count; p++)
        if (plan->ports[p].hold > 1 && plan_port_counts(plan, &plan->ports[p]) && !n--) {
            plan->ports[p].hold--;
            return NO_KERNEL;
        }
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        if (plan->regsts[r].fill > 1 && !n--) {
            plan->regsts[r].fill--;
            return NO_KERNEL;
        }
    return NOTHING;
}

/* An edge that only says when: its register has no bytes. With tokens enough it says nothing. Only few edges
 * matter: those that keep two parts on the same bytes apart. */
static uint32_t edge_is_dropped(weir_plan *plan, uint32_t n)
{
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        plan_regst *regst = &plan->regsts[r];
        const uint32_t slots = regst->slots, initial = regst->initial;
        if (regst->tensors.count || regst->slot_bytes || regst->producer.i == PLAN_NONE)
            continue;
        regst->slots = 64;
        regst->initial = 32;
        if (plan_validate(plan) && !n--)
            return NO_KERNEL;
        regst->slots = slots;
        regst->initial = initial;
    }
    return NOTHING;
}

static uint32_t kernels_change_places(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k + 1 < plan->kernels_count; k++) {
        uint32_t input;
        if (!plan->kernels[k].out.count || plan->kernels[k].actor.i != plan->kernels[k + 1].actor.i ||
            reader_behind(plan, k, k + 1, &input) != k + 1 || n--)
            continue;
        const plan_kernel kept = plan->kernels[k];
        plan->kernels[k] = plan->kernels[k + 1];
        plan->kernels[k + 1] = kept;
        return k;
    }
    return NOTHING;
}

/* A register that a gather reads lies where its part belongs in what is gathered. */
static uint32_t part_arrives_in_place(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        for (uint32_t i = 0; is_op(plan, k, "box") && i < plan->kernels[k].in.count; i++) {
            const plan_tensor *in = tensor_of(plan, in_of(plan, k, i)), *out = tensor_of(plan, out_of(plan, k, 0));
            if (in_of(plan, k, i)->port.i == PLAN_NONE || out->home != PLAN_IN_REGST || !out->rank)
                continue;
            plan_regst *part = &plan->regsts[in->owner], *whole = &plan->regsts[out->owner];
            const uint64_t row = plan_tensor_bytes(out) / (uint64_t)(out->shape[0] ? out->shape[0] : 1);
            const uint64_t place = whole->offset + out->offset + (uint64_t)(in->start[0] - out->start[0]) * row;
            if (part->space.i != whole->space.i || part->offset == place || place % PLAN_ALIGN || in->start[0] < out->start[0] ||
                place + part->slots * part->slot_bytes > plan->spaces[part->space.i].bytes || n--)
                continue;
            part->offset = place;
            return NO_KERNEL;
        }
    return NOTHING;
}

/* ---- several ops in one pass ---- */

/* Where the words of the m-th member begin; the word behind all members for one too many. */
static plan_word *member_of(const weir_plan *plan, uint32_t k, int64_t m)
{
    plan_word *word = word_of(plan, k, "word");
    while (m--) {
        word += FUSED_NAME + 1;
        word += 2 + word[0].i + word[1].i;
        word += 1 + word->i;
    }
    return word;
}

static uint32_t fused_of(const weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (!strncmp(plan_text(plan, plan->kernels[k].op), "fused", 5) && !n--)
            return k;
    return NOTHING;
}

static uint32_t members_change_places(weir_plan *plan, uint32_t n)
{
    const uint32_t k = fused_of(plan, n);
    if (k == NOTHING)
        return k;
    plan_word kept[FUSED_WORDS], *first = member_of(plan, k, 0), *second = member_of(plan, k, 1), *end = member_of(plan, k, 2);
    memcpy(kept, first, (size_t)(second - first) * sizeof *kept);
    memmove(first, second, (size_t)(end - second) * sizeof *kept);
    memcpy(first + (end - second), kept, (size_t)(second - first) * sizeof *kept);
    return k;
}

/* A chain of ops in one kernel reads its last input in the place of its first. */
static uint32_t chain_reads_another_operand(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const uint32_t last = plan->kernels[k].in.count - 1;
        if (plan->kernels[k].in.count < 2 || strncmp(plan_text(plan, plan->kernels[k].op), "fused", 5) ||
            !same_shape(tensor_of(plan, in_of(plan, k, 0)), tensor_of(plan, in_of(plan, k, last))) || n--)
            continue;
        *in_of(plan, k, 0) = *in_of(plan, k, last);
        return k;
    }
    return NOTHING;
}

/* f32 -> bf16 -> f32 is left out. */
static uint32_t casts_are_left_out(weir_plan *plan, uint32_t n)
{
    uint32_t input;
    for (uint32_t k = 0; k + 2 < plan->kernels_count; k++) {
        if (!is_op(plan, k, "cast") || !is_op(plan, k + 1, "cast") || in_of(plan, k + 1, 0)->tensor.i != out_of(plan, k, 0)->tensor.i)
            continue;
        const uint32_t reader = reader_behind(plan, k + 1, k + 2, &input);
        if (reader == NOTHING || tensor_of(plan, in_of(plan, k, 0))->dtype != tensor_of(plan, out_of(plan, k + 1, 0))->dtype || n--)
            continue;
        *in_of(plan, reader, input) = *in_of(plan, k, 0);
        return reader;
    }
    return NOTHING;
}

/* ---- the kinds ---- */

typedef enum nature {
    VALUE,    /* valid and live: only the proof sees it */
    STALE,    /* a register that starts full: plan_validate() refuses some, and the proof sees all */
    REFUSED,  /* plan_validate() or the token game refuses all, and the proof sees them, too */
    ORDER,    /* the same; whether a value is wrong depends on the order of firings, so the proof sees most */
    SURVIVES  /* no fault over the real numbers */
} nature;

/* 35 is split: that a flag is lost is `micro_batches_do_not_add_up`. That it is set on the first cannot be: a kernel with the flag
 * writes in the first firing of a fill, whatever the flag. */
typedef struct fault {
    int number;
    const char *name;
    uint32_t (*make)(weir_plan *plan, uint32_t n);
    nature is;
} fault;

#define MADE(number, name, is) {number, #name, name, is}
static const fault kinds[] = {
    MADE(1, box_drops_a_source, VALUE),
    MADE(2, box_counts_a_source_twice, VALUE),
    MADE(3, slice_begins_a_place_later, VALUE),
    MADE(4, slices_change_places, VALUE),
    MADE(5, product_with_another_weight, VALUE),
    MADE(6, sum_is_split_the_other_way, REFUSED),
    MADE(7, box_takes_terms_for_parts, VALUE),
    MADE(7, term_is_taken_for_the_sum, VALUE),
    MADE(8, copies_are_added_up, VALUE),
    MADE(9, term_goes_through_gelu, VALUE),
    MADE(10, gradient_is_not_reduced, VALUE),
    MADE(11, gather_misses_the_uneven_part, VALUE),
    MADE(12, mean_of_local_rows, VALUE),
    MADE(13, share_of_a_micro_batch, VALUE),
    MADE(14, seed_is_scaled_by_devices, VALUE),
    MADE(15, norm_counts_a_gradient_twice, VALUE),
    MADE(15, norm_omits_a_gradient, VALUE),
    MADE(16, factor_of_one_stage_only, VALUE),
    MADE(17, bias_is_added_by_every_device, VALUE),
    MADE(18, gradient_loses_a_use, VALUE),
    MADE(19, update_reads_an_old_gradient, STALE),
    MADE(20, moments_of_another_shard, VALUE),
    MADE(20, moments_of_another_parameter, VALUE),
    MADE(21, gathered_copy_is_stale, STALE),
    MADE(22, bias_correction_counts_too_often, VALUE),
    MADE(23, step_is_left_out_elsewhere_only, VALUE),
    MADE(24, dropout_by_local_index, VALUE),
    MADE(25, dropout_with_another_key, VALUE),
    MADE(26, mask_of_another_micro_batch, STALE),
    MADE(27, labels_of_a_shard_are_off_by_one, VALUE),
    MADE(28, log_sum_exp_without_a_group, VALUE),
    MADE(29, ignored_labels_count, VALUE),
    MADE(30, in_place_over_a_live_operand, ORDER),
    MADE(31, two_parts_overlap, ORDER),
    MADE(32, hold_is_less_by_one, REFUSED),
    MADE(33, edge_is_dropped, ORDER),
    MADE(34, kernels_change_places, REFUSED),
    MADE(35, micro_batches_do_not_add_up, VALUE),
    MADE(36, part_arrives_in_place, ORDER),
    MADE(37, activations_of_another_micro_batch, STALE),
    MADE(38, members_change_places, REFUSED),
    MADE(39, chain_reads_another_operand, VALUE),
    MADE(40, casts_are_left_out, SURVIVES),
    MADE(0, attention_is_not_causal, VALUE),
    MADE(0, update_changes_its_rate, VALUE),
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- the plans ---- */

typedef struct stand {
    const char *name;
    weir_graph *graph; /* owned, as is the plan */
    weir_plan *plan;
    referee *judge; /* owned */
    bool of_edges; /* it has edges that matter, and is for these alone */
} stand;

enum { STANDS_MAX = 32 };
static stand stands[STANDS_MAX];
static int stand_count;

typedef struct how {
    int micro;
    weir_dtype precision;
    bool fuses;   /* chains of ops on tensors of any size are one kernel */
    bool alone;   /* each tensor has a register of its own, so that edges are made that only say when */
    bool of_edges;
} how;

static void stand_add(const char *name, weir_graph *g, how is)
{
    const uint64_t fused = fuse_bytes_min, own = group_own_bytes;
    fuse_bytes_min = is.fuses && !is.alone ? 1 : fused;
    group_own_bytes = is.alone ? 64 : own;
    weir_plan *plan = weir_compile(g, .micro_batches = is.micro, .precision = is.precision, .no_fusion = !is.fuses);
    fuse_bytes_min = fused;
    group_own_bytes = own;
    cr_assert(plan && stand_count < STANDS_MAX, "%s: %s", name, weir_error());
    cr_assert_eq(weir_plan_verify(g, plan, .seed = SEED), WEIR_OK, "%s: %s", name, weir_error());
    cr_assert_eq(weir_plan_verify(g, plan, .seed = SEED, .local = true), WEIR_OK, "%s: %s", name, weir_error());
    stands[stand_count] = (stand){name, g, plan, referee_new(plan, RUN_CLASSES), is.of_edges};
    cr_assert(stands[stand_count].judge && !referee_differs(stands[stand_count].judge, plan, SEED), "%s", name);
    stand_count++;
}

static void stands_make(void)
{
    stand_add("gpt, dp 2", gpt((layout){.dp = 2}), (how){.micro = 2});
    stand_add("gpt, tp 2", gpt((layout){.tp = 2}), (how){.micro = 2});
    stand_add("gpt, pp 2", gpt((layout){.pp = 2}), (how){.micro = 4});
    stand_add("gpt, dp 2, pp 2, zero", gpt((layout){.dp = 2, .pp = 2, .zero = true}), (how){.micro = 2});
    stand_add("gpt, dp 2, zero, f16", gpt((layout){.dp = 2, .zero = true}), (how){.micro = 2, .precision = WEIR_F16});
    stand_add("gpt, tp 2, f16", gpt((layout){.tp = 2}), (how){.micro = 2, .precision = WEIR_F16});
    stand_add("gpt, pp 2, f16", gpt((layout){.pp = 2}), (how){.micro = 2, .precision = WEIR_F16});
    stand_add("gpt, one device, fused", gpt((layout){0}), (how){.micro = 2, .fuses = true});
    stand_add("gpt, dp 2, alone", gpt((layout){.dp = 2}), (how){.micro = 2, .alone = true});
    stand_add("gpt, tp 2, alone", gpt((layout){.tp = 2}), (how){.micro = 2, .alone = true});
    stand_add("gpt, dp 2, zero, alone", gpt((layout){.dp = 2, .zero = true}), (how){.micro = 2, .alone = true});
    stand_add("odd, 2 devices", odd(2, false, false), (how){.micro = 2});
    stand_add("odd, 3 devices", odd(3, false, false), (how){.micro = 2});
    stand_add("odd, 3 devices, zero", odd(3, false, true), (how){.micro = 2});
    stand_add("odd, 2 devices, classes", odd(2, true, false), (how){.micro = 2});
    stand_add("odd, 3 devices, classes", odd(3, true, false), (how){.micro = 2});
    stand_add("odd, 3 devices, classes, zero", odd(3, true, true), (how){.micro = 1});
    stand_add("odd, 2 devices, fused", odd(2, false, false), (how){.micro = 2, .fuses = true});
    stand_add("odd, 3 devices, zero, fused", odd(3, false, true), (how){.micro = 2, .fuses = true});
    stand_add("odd, 2 devices, classes, fused", odd(2, true, false), (how){.micro = 2, .fuses = true});
    stand_add("mlp, rows", mlp(DATA, true), (how){.micro = 3});
    stand_add("mlp, rows, sgd", mlp(DATA, false), (how){.micro = 1});
    stand_add("mlp, terms", mlp(TERMS, true), (how){.micro = 1});
    stand_add("mlp, terms, several", mlp(TERMS, true), (how){.micro = 3});
    stand_add("mlp, terms, sgd", mlp(TERMS, false), (how){.micro = 2});
    for (int i = 0; i < 4; i++) {
        const uint64_t model[] = {4, 12, 35, 36}, lies[] = {6, 6, 4, 6};
        stand_add("a random model", random_model(model[i], lies[i]),
                  (how){.micro = random_model_micro(model[i]), .fuses = true, .alone = true, .of_edges = true});
    }
}

static void stands_free(void)
{
    for (int i = 0; i < stand_count; i++) {
        referee_free(stands[i].judge);
        weir_plan_free(stands[i].plan);
        weir_graph_free(stands[i].graph);
    }
    stand_count = 0;
}

/* ---- the table ---- */

typedef struct tally {
    int plans, made, harmless, refused, seen, named, to_name;
    int alone, named_alone; /* seen, and named, when each kernel is judged alone */
} tally;

/* Whether the mutant is a fault: in double precision it comes to other values, in an order for which it matters. */
static bool matters(const fault *kind, const stand *on, const weir_plan *wrong)
{
    bool differs = false;
    for (int order = 0; !differs && order < (kind->is == ORDER ? ORDERS : 1); order++)
        differs = referee_differs(on->judge, wrong, SEED + (uint64_t)order);
    return differs;
}

static void try_alone(const fault *kind, const stand *on, const weir_plan *wrong, uint32_t k, tally *t)
{
    const weir_status status = weir_plan_verify(on->graph, wrong, .seed = SEED, .local = true);
    t->alone += status == WEIR_E_WRONG;
    t->named_alone += k != NO_KERNEL && strstr(weir_error(), name_of(wrong, k)) != NULL;
    cr_expect_eq(status, WEIR_E_WRONG, "%s: %s, %s, alone: %s", on->name, kind->name, k == NO_KERNEL ? "" : name_of(wrong, k),
                 status ? weir_error() : "goes by unseen");
}

static void try_mutant(const fault *kind, const stand *on, weir_plan *wrong, uint32_t k, tally *t)
{
    const bool refused = plan_validate(wrong) || weir_plan_check(wrong);
    if (kind->is == VALUE && refused)
        return;
    if (matters(kind, on, wrong) == (kind->is == SURVIVES)) {
        t->harmless += !refused;
        return;
    }
    const weir_status status = weir_plan_verify(on->graph, wrong, .seed = SEED, .rounds = kind->is == ORDER ? ORDERS : 1);
    const bool seen = status == WEIR_E_WRONG || status == WEIR_E_LIVE;
    t->made++;
    t->refused += refused;
    t->seen += seen;
    t->to_name += k != NO_KERNEL && kind->is != SURVIVES;
    t->named += k != NO_KERNEL && seen && strstr(weir_error(), name_of(wrong, k)) != NULL;
    if (kind->is != ORDER)
        cr_expect_eq(seen, kind->is != SURVIVES, "%s: %s, %s: %s", on->name, kind->name, k == NO_KERNEL ? "" : name_of(wrong, k),
                     status ? weir_error() : "goes by unseen");
    if (kind->is == VALUE)
        try_alone(kind, on, wrong, k, t);
    if (kind->is == REFUSED || kind->is == ORDER)
        cr_expect(refused, "%s: %s is not refused", on->name, kind->name);
}

static tally try_kind(const fault *kind)
{
    tally t = {0};
    for (int s = 0; s < stand_count; s++) {
        const int before = kind->is == ORDER ? t.seen : t.made;
        const bool edges = kind->make == edge_is_dropped;
        for (uint32_t n = 0, k = 0; k != NOTHING && edges == stands[s].of_edges && n < (edges ? EDGES : OF_EACH); n++) {
            weir_plan *wrong = plan_copy(stands[s].plan);
            cr_assert_not_null(wrong);
            k = kind->make(wrong, n);
            if (k != NOTHING)
                try_mutant(kind, &stands[s], wrong, k, &t);
            weir_plan_free(wrong);
        }
        t.plans += (kind->is == ORDER ? t.seen : t.made) > before;
    }
    return t;
}

Test(mutants, each_kind_is_seen)
{
    tally all = {0};
    stands_make();
    fprintf(stderr, "%-40s plans   made  refused   seen  named     harmless  alone, named\n", "kind");
    for (int i = 0; i < KINDS; i++) {
        const tally t = try_kind(&kinds[i]);
        fprintf(stderr, "%2d %-37s %5d  %5d  %7d  %5d  %3d of %-3d  %8d  %5d  %5d\n", kinds[i].number, kinds[i].name, t.plans, t.made,
                t.refused, t.seen, t.named, t.to_name, t.harmless, t.alone, t.named_alone);
        cr_expect_geq(t.plans, PLANS_LEAST, "%s: made in %d plans", kinds[i].name, t.plans);
        all.made += t.made;
        all.seen += t.seen;
        all.named += t.named;
        all.to_name += t.to_name;
    }
    fprintf(stderr, "%d mutants, %d seen; the kernel is named for %d of %d\n", all.made, all.seen, all.named, all.to_name);
    cr_expect_geq(all.named * 10, all.to_name * 9, "the kernel is named for %d of %d", all.named, all.to_name);
    stands_free();
}

/* ---- seeds ---- */

/* The first mutant of a kind on a plan, with each seed. Counts the verdicts, and those that are wrong. */
static int verdicts_of(const fault *kind, const stand *on, int *wrong_verdicts)
{
    weir_plan *wrong = plan_copy(on->plan);
    const uint32_t k = kind->make(wrong, 0);
    int asked = 0;
    if (k != NOTHING && kind->is == VALUE && !plan_validate(wrong) && !weir_plan_check(wrong) && matters(kind, on, wrong))
        for (uint64_t seed = 0; seed < SEEDS; seed++, asked++) {
            const bool passes = weir_plan_verify(on->graph, wrong, .seed = seed, .rounds = 1) != WEIR_E_WRONG;
            *wrong_verdicts += passes;
            cr_expect(!passes, "seed %d: %s in plan %s passes", (int)seed, kind->name, on->graph->name);
        }
    weir_plan_free(wrong);
    return asked;
}

Test(mutants, no_seed_changes_a_verdict)
{
    int asked = 0, other = 0;
    stands_make();
    for (int s = 0; s < stand_count; s += FULL(1, 3))
        for (uint64_t seed = 0; seed < SEEDS; seed++, asked++) {
            const bool right = weir_plan_verify(stands[s].graph, stands[s].plan, .seed = seed, .rounds = 1) == WEIR_OK;
            other += !right;
            cr_expect(right, "seed %d: plan %d of %s: %s", (int)seed, s, stands[s].graph->name, weir_error());
        }
    for (int s = 0; s < stand_count && !stands[s].of_edges; s++)
        for (int i = s % 3; i < KINDS; i += FULL(1, 24))
            asked += verdicts_of(&kinds[i], &stands[s], &other);
    fprintf(stderr, "%d verdicts with %d seeds each, %d of them wrong\n", asked, SEEDS, other);
    cr_expect_eq(other, 0);
    stands_free();
}
#endif
