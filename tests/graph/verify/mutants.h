/* tests/graph/verify/mutants.h: compiled plans that are changed in one place, so that they compute something else.
 *
 *     uint32_t kernel = mean_of_local_rows(plan, n);   // changes what it finds for the n-th time
 *
 * The result is the kernel that is wrong then; NO_KERNEL if none is; NOTHING if there is no n-th place, and the plan is as it was.
 * A mutant may add operands at the end of the plan's array. The hash is not kept.
 */
#ifndef TESTS_GRAPH_VERIFY_MUTANTS_H
#define TESTS_GRAPH_VERIFY_MUTANTS_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "graph/plan/form/plan.h"

#define NOTHING PLAN_NONE
#define NO_KERNEL (PLAN_NONE - 1)

/* ---- how a plan is read and changed ---- */

static const char *name_of(const weir_plan *plan, uint32_t k)
{
    return plan_text(plan, plan->kernels[k].name);
}

static bool is_op(const weir_plan *plan, uint32_t k, const char *op)
{
    return !strcmp(plan_text(plan, plan->kernels[k].op), op);
}

static bool is_update(const weir_plan *plan, uint32_t k)
{
    return is_op(plan, k, "adamw") || is_op(plan, k, "sgd");
}

static plan_operand *in_of(const weir_plan *plan, uint32_t k, uint32_t i)
{
    return &plan->operands[plan->kernels[k].in.first + i];
}

static plan_operand *out_of(const weir_plan *plan, uint32_t k, uint32_t o)
{
    return &plan->operands[plan->kernels[k].out.first + o];
}

static plan_tensor *tensor_of(const weir_plan *plan, const plan_operand *operand)
{
    return &plan->tensors[operand->tensor.i];
}

static bool same_shape(const plan_tensor *a, const plan_tensor *b)
{
    return a->rank == b->rank && a->dtype == b->dtype && !memcmp(a->shape, b->shape, sizeof a->shape);
}

static bool is_split(const plan_tensor *t)
{
    bool split = false;
    for (uint32_t d = 0; d < t->rank; d++)
        split |= t->shape[d] != t->global[d];
    return split;
}

static uint32_t space_of(const weir_plan *plan, uint32_t k)
{
    return plan_actor_space(plan, plan->kernels[k].actor.i).i;
}

/* The n-th kernel of an op with at least so many inputs. */
static uint32_t kernel_of(const weir_plan *plan, const char *op, uint32_t inputs, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (is_op(plan, k, op) && plan->kernels[k].in.count >= inputs && !n--)
            return k;
    return NOTHING;
}

static plan_word *word_of(const weir_plan *plan, uint32_t k, const char *field)
{
    const weir_op *op = weir_op_find(plan_text(plan, plan->kernels[k].op));
    for (int f = 0; f < op->field_count; f++)
        if (!strcmp(op->fields[f].name, field))
            return &plan->words[plan->kernels[k].attrs.first + op->fields[f].offset / sizeof(plan_word)];
    cr_assert_fail("%s has no attribute %s", op->name, field);
    return NULL;
}

static void swap_operands(plan_operand *a, plan_operand *b)
{
    const plan_operand kept = *a;
    *a = *b;
    *b = kept;
}

static void swap_starts(plan_tensor *a, plan_tensor *b)
{
    for (int d = 0; d < WEIR_DIMS_MAX; d++) {
        const int64_t kept = a->start[d];
        a->start[d] = b->start[d];
        b->start[d] = kept;
    }
}

/* The kernel's inputs, and one more behind them. */
static void give_input(weir_plan *plan, uint32_t k, plan_operand more)
{
    plan_kernel *kernel = &plan->kernels[k];
    const uint32_t count = kernel->in.count, first = plan->operands_count;
    plan->operands = realloc(plan->operands, (first + count + 1) * sizeof *plan->operands);
    cr_assert_not_null(plan->operands);
    memcpy(plan->operands + first, plan->operands + kernel->in.first, count * sizeof more);
    plan->operands[first + count] = more;
    plan->operands_count += count + 1;
    kernel->in = (plan_range){first, count + 1};
}

/* A kernel of the actor behind k that reads what k writes first: which of its inputs is that, in `input`. */
static uint32_t reader_behind(const weir_plan *plan, uint32_t k, uint32_t from, uint32_t *input)
{
    for (uint32_t r = from; r < plan->kernels_count && plan->kernels[r].actor.i == plan->kernels[k].actor.i; r++)
        for (*input = 0; *input < plan->kernels[r].in.count; ++*input)
            if (in_of(plan, r, *input)->tensor.i == out_of(plan, k, 0)->tensor.i)
                return r;
    return NOTHING;
}

static uint32_t maker_of(const weir_plan *plan, uint32_t tensor)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        for (uint32_t o = 0; o < plan->kernels[k].out.count; o++)
            if (out_of(plan, k, o)->tensor.i == tensor)
                return k;
    return NO_KERNEL;
}

/* ---- what is gathered and added up ---- */

static uint32_t box_drops_a_source(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, "box", 2, n);
    if (k != NOTHING)
        plan->kernels[k].in.count--;
    return k;
}

static uint32_t box_counts_a_source_twice(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, "box", 2, n);
    if (k != NOTHING)
        *in_of(plan, k, 0) = *in_of(plan, k, 1);
    return k;
}

/* A slice by the op, or a shard that a box takes out of a larger tensor. */
static uint32_t slice_begins_a_place_later(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        plan_tensor *out = plan->kernels[k].out.count ? tensor_of(plan, out_of(plan, k, 0)) : NULL;
        if (is_op(plan, k, "slice") && !n--) {
            word_of(plan, k, "range")->i += word_of(plan, k, "range")->i ? -1 : 1;
            return k;
        }
        if (is_op(plan, k, "box") && plan->kernels[k].in.count == 1 && is_split(out) && !is_split(tensor_of(plan, in_of(plan, k, 0))) &&
            !n--) {
            for (uint32_t d = 0; d < out->rank; d++)
                if (out->shape[d] < out->global[d]) {
                    out->start[d] += out->start[d] ? -1 : 1;
                    return NO_KERNEL; /* what it says it is, it is: its readers are wrong */
                }
        }
    }
    return NOTHING;
}

static uint32_t slices_change_places(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (is_op(plan, k, "concat") && same_shape(tensor_of(plan, in_of(plan, k, 0)), tensor_of(plan, in_of(plan, k, 1))) && !n--) {
            swap_operands(in_of(plan, k, 0), in_of(plan, k, 1));
            return k;
        }
    return NOTHING;
}

/* The next parameter of the same shape in the actor, as another layer's. */
static uint32_t product_with_another_weight(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        for (uint32_t other = k + 1; is_op(plan, k, "linear") && other < plan->kernels_count; other++) {
            const plan_operand *x = in_of(plan, k, 1), *y = in_of(plan, other, 1);
            if (!is_op(plan, other, "linear") || plan->kernels[k].actor.i != plan->kernels[other].actor.i ||
                x->tensor.i == y->tensor.i || !same_shape(tensor_of(plan, x), tensor_of(plan, y)) || n--)
                continue;
            *in_of(plan, k, 1) = *y;
            return k;
        }
    return NOTHING;
}

/* A sum of a square matrix, split by rows, is split by columns. */
static uint32_t sum_is_split_the_other_way(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        plan_tensor *t = plan->kernels[k].out.count ? tensor_of(plan, out_of(plan, k, 0)) : NULL;
        if (!is_op(plan, k, "box") || word_of(plan, k, "terms")->i < 2 || t->rank != 2 || t->global[0] != t->global[1] ||
            !is_split(t) || n--)
            continue;
        const int64_t rows = t->shape[0], start = t->start[0];
        t->shape[0] = t->shape[1], t->shape[1] = rows;
        t->start[0] = t->start[1], t->start[1] = start;
        return NO_KERNEL;
    }
    return NOTHING;
}

/* Terms are copied over each other, not added. */
static uint32_t box_takes_terms_for_parts(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (is_op(plan, k, "box") && word_of(plan, k, "terms")->i > 1 && !n--) {
            word_of(plan, k, "terms")->i = 1;
            return k;
        }
    return NOTHING;
}

static bool is_any(const weir_plan *plan, uint32_t k)
{
    (void)plan;
    (void)k;
    return true;
}

/* The next kernel that reads a sum, of those that `fits`, reads the first term instead. */
static uint32_t term_for_sum(weir_plan *plan, uint32_t n, bool (*fits)(const weir_plan *plan, uint32_t k))
{
    uint32_t input;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        if (!is_op(plan, k, "box") || word_of(plan, k, "terms")->i < 2 ||
            !same_shape(tensor_of(plan, in_of(plan, k, 0)), tensor_of(plan, out_of(plan, k, 0))))
            continue;
        for (uint32_t r = k; (r = reader_behind(plan, k, r + 1, &input)) != NOTHING;)
            if (fits(plan, r) && !n--) {
                *in_of(plan, r, input) = *in_of(plan, k, 0);
                return r;
            }
    }
    return NOTHING;
}

static uint32_t term_is_taken_for_the_sum(weir_plan *plan, uint32_t n)
{
    return term_for_sum(plan, n, is_any);
}

static uint32_t copies_are_added_up(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (is_op(plan, k, "box") && plan->kernels[k].in.count == 1 && !n--) {
            give_input(plan, k, *in_of(plan, k, 0));
            word_of(plan, k, "terms")->i = 2;
            return k;
        }
    return NOTHING;
}

/* A box that slices what the gelu behind it reads, or the gelu. */
static bool leads_to_gelu(const weir_plan *plan, uint32_t k)
{
    uint32_t input, r = is_op(plan, k, "box") ? reader_behind(plan, k, k + 1, &input) : k;
    return r != NOTHING && (is_op(plan, r, "gelu") || is_op(plan, r, "layernorm"));
}

static uint32_t term_goes_through_gelu(weir_plan *plan, uint32_t n)
{
    return term_for_sum(plan, n, leads_to_gelu);
}

static uint32_t gradient_is_not_reduced(weir_plan *plan, uint32_t n)
{
    return term_for_sum(plan, n, is_update);
}

/* The last of the parts is smaller than the others. */
static uint32_t gather_misses_the_uneven_part(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const uint32_t count = plan->kernels[k].in.count;
        if (!is_op(plan, k, "box") || count < 2 || word_of(plan, k, "terms")->i > 1 ||
            same_shape(tensor_of(plan, in_of(plan, k, 0)), tensor_of(plan, in_of(plan, k, count - 1))) || n--)
            continue;
        plan->kernels[k].in.count--;
        return k;
    }
    return NOTHING;
}

/* ---- factors ---- */

static uint32_t mean_of_local_rows(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const bool loss = is_op(plan, k, "cross_entropy");
        plan_tensor *rows = loss || is_op(plan, k, "mean") ? tensor_of(plan, in_of(plan, k, loss)) : NULL;
        if (!rows || (loss && plan->kernels[k].in.count > 2) || !is_split(rows) || n--)
            continue;
        memcpy(rows->global, rows->shape, sizeof rows->global);
        memset(rows->start, 0, sizeof rows->start);
        return k;
    }
    return NOTHING;
}

static uint32_t seed_times(weir_plan *plan, uint32_t n, double factor)
{
    const uint32_t k = kernel_of(plan, "grad_seed", 0, n);
    if (k != NOTHING)
        word_of(plan, k, "value")->r *= factor;
    return k;
}

/* 1 / M twice, never, or 1 / (M - 1) in its place. */
static uint32_t share_of_a_micro_batch(weir_plan *plan, uint32_t n)
{
    const double micros = plan->micro_batches;
    if (micros < 2)
        return NOTHING;
    return seed_times(plan, n / 3, n % 3 == 0 ? 1 / micros : n % 3 == 1 ? micros : micros / (micros - 1));
}

static uint32_t seed_is_scaled_by_devices(weir_plan *plan, uint32_t n)
{
    return plan->spaces_count < 2 ? NOTHING : seed_times(plan, n, plan->spaces_count);
}

static bool is_norm(const weir_plan *plan, uint32_t k)
{
    return is_op(plan, k, "add_many") && !strstr(name_of(plan, k), ".grad/");
}

static uint32_t norm_of(const weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (is_norm(plan, k) && !n--)
            return k;
    return NOTHING;
}

static uint32_t norm_counts_a_gradient_twice(weir_plan *plan, uint32_t n)
{
    const uint32_t k = norm_of(plan, n);
    if (k != NOTHING)
        *in_of(plan, k, 0) = *in_of(plan, k, 1);
    return k;
}

static uint32_t norm_omits_a_gradient(weir_plan *plan, uint32_t n)
{
    const uint32_t k = norm_of(plan, n);
    if (k != NOTHING)
        plan->kernels[k].in.count--;
    return k;
}

/* All updates of the n-th device that has any, of several. */
static uint32_t updates_of_a_device_without_factor(weir_plan *plan, uint32_t n)
{
    uint32_t first = NOTHING;
    for (uint32_t s = 0; s < plan->spaces_count && first == NOTHING && plan->spaces_count > 1; s++)
        for (uint32_t k = 0; k < plan->kernels_count; k++) {
            if (!is_update(plan, k) || plan->kernels[k].in.count < 2 || space_of(plan, k) != s || (first == NOTHING && n && n--))
                continue;
            first = first == NOTHING ? k : first;
            plan->kernels[k].in.count--;
        }
    return first;
}

static bool is_f16(const weir_plan *plan)
{
    return kernel_of(plan, "loss_scale", 0, 0) != NOTHING;
}

static uint32_t factor_of_one_stage_only(weir_plan *plan, uint32_t n)
{
    return is_f16(plan) ? NOTHING : updates_of_a_device_without_factor(plan, n);
}

/* With f16 the factor also says that a step is left out: an update that does not read it leaves out none. */
static uint32_t step_is_left_out_elsewhere_only(weir_plan *plan, uint32_t n)
{
    return is_f16(plan) ? updates_of_a_device_without_factor(plan, n) : NOTHING;
}

/* The bias in the place of the zeros that other devices than the first add. */
static uint32_t bias_is_added_by_every_device(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        plan_operand *bias = is_op(plan, k, "linear") && plan->kernels[k].in.count > 2 ? in_of(plan, k, 2) : NULL;
        const char *name = bias ? plan_text(plan, tensor_of(plan, bias)->name) : "", *behind = strchr(name, '>');
        if (!behind || behind[strlen(behind) - 1] != 'P' || bias->port.i == PLAN_NONE)
            continue;
        for (uint32_t t = 0; t < plan->tensors_count; t++) {
            const char *other = plan_text(plan, plan->tensors[t].name);
            if (strncmp(other, name, (size_t)(behind - name)) || other[behind - name] || plan->tensors[t].home != PLAN_IN_REGST ||
                plan_tensor_space(plan, &plan->tensors[t]).i != space_of(plan, k) || n--)
                continue;
            for (uint32_t p = 0; p < plan->ports_count; p++)
                if (plan->ports[p].actor.i == plan->kernels[k].actor.i && plan->ports[p].regst.i == plan->tensors[t].owner)
                    bias->port.i = p;
            bias->tensor.i = t;
            plan->ports[bias->port.i].regst.i = plan->tensors[t].owner;
            return k;
        }
    }
    return NOTHING;
}

/* The parameter is used twice. */
static uint32_t gradient_loses_a_use(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (is_op(plan, k, "add_many") && !is_norm(plan, k) && !n--) {
            plan->kernels[k].in.count--;
            return k;
        }
    return NOTHING;
}

/* ---- weights and states ---- */

/* Readers of the register get what was made a firing before. Room for one more slot is not there: the first reader frees its. */
static uint32_t register_is_read_late(weir_plan *plan, uint32_t n, uint32_t kind)
{
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        plan_regst *regst = &plan->regsts[r];
        if (regst->kind != kind || regst->initial || !regst->tensors.count || regst->producer.i == PLAN_NONE || n--)
            continue;
        regst->initial = 1;
        return NO_KERNEL;
    }
    return NOTHING;
}

static uint32_t update_reads_an_old_gradient(weir_plan *plan, uint32_t n)
{
    return register_is_read_late(plan, n, PLAN_GRADIENT);
}

/* The shards of moments that two devices have change places. */
static uint32_t moments_of_another_shard(weir_plan *plan, uint32_t n)
{
    for (uint32_t p = 0; p < plan->params_count; p++) {
        const plan_param *param = &plan->params[p];
        if (param->kind != PLAN_KEEP_OPTIMIZER || param->shards.count < 2)
            continue;
        plan_tensor *a = &plan->tensors[plan->shards[param->shards.first].i], *b = &plan->tensors[plan->shards[param->shards.first + 1].i];
        if (!same_shape(a, b) || plan_same_part(a, b) || n--)
            continue;
        swap_starts(a, b);
        for (uint32_t k = 0; k < plan->kernels_count; k++)
            for (uint32_t s = 0; s < plan->kernels[k].state.count; s++)
                if (tensor_of(plan, &plan->operands[plan->kernels[k].state.first + s]) == a)
                    return k;
        return NO_KERNEL;
    }
    return NOTHING;
}

/* The moments of an update are those of the next in the actor. */
static uint32_t states_of_another_update(weir_plan *plan, uint32_t n, uint32_t state, bool swaps)
{
    for (uint32_t k = 0; k + 1 < plan->kernels_count; k++) {
        const plan_kernel *a = &plan->kernels[k], *b = &plan->kernels[k + 1];
        if (!is_op(plan, k, "adamw") || !is_op(plan, k + 1, "adamw") || a->actor.i != b->actor.i ||
            !same_shape(tensor_of(plan, &plan->operands[a->state.first + state]), tensor_of(plan, &plan->operands[b->state.first + state])) ||
            n--)
            continue;
        if (swaps)
            swap_operands(&plan->operands[a->state.first + state], &plan->operands[b->state.first + state]);
        else
            plan->operands[a->state.first + state] = plan->operands[b->state.first + state];
        return k;
    }
    return NOTHING;
}

static uint32_t moments_of_another_parameter(weir_plan *plan, uint32_t n)
{
    return states_of_another_update(plan, n, 0, true);
}

/* Two updates advance one count. */
static uint32_t bias_correction_counts_too_often(weir_plan *plan, uint32_t n)
{
    return states_of_another_update(plan, n, 2, false) == NOTHING ? NOTHING : NO_KERNEL; /* both are wrong */
}

static uint32_t gathered_copy_is_stale(weir_plan *plan, uint32_t n)
{
    return register_is_read_late(plan, n, PLAN_TRANSFER);
}

static uint32_t update_changes_its_rate(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, "adamw", 1, n);
    if (k != NOTHING)
        word_of(plan, k, "lr")->r *= 1.5;
    return k;
}

static uint32_t micro_batches_do_not_add_up(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (plan->kernels[k].accumulate && !n--) {
            plan->kernels[k].accumulate = 0;
            return k;
        }
    return NOTHING;
}

/* ---- random numbers, ids ---- */

static uint32_t dropout_by_local_index(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        plan_tensor *out = is_op(plan, k, "dropout") ? tensor_of(plan, out_of(plan, k, 0)) : NULL;
        bool later = false;
        for (uint32_t d = 0; out && d < out->rank; d++)
            later |= out->start[d] > 0;
        if (!later || n--)
            continue;
        memset(out->start, 0, sizeof out->start);
        return k;
    }
    return NOTHING;
}

static uint32_t dropout_with_another_key(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, "dropout", 1, n);
    if (k != NOTHING)
        plan->kernels[k].key++;
    return k;
}

static uint32_t activations_of_another_micro_batch(weir_plan *plan, uint32_t n)
{
    return plan->micro_batches < 2 ? NOTHING : register_is_read_late(plan, n, PLAN_ACTIVATION);
}

/* Registers that hold the mask of a dropout. */
static uint32_t mask_of_another_micro_batch(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_tensor *mask = is_op(plan, k, "dropout_grad") ? tensor_of(plan, in_of(plan, k, 0)) : NULL;
        if (!mask || mask->home != PLAN_IN_REGST || plan->regsts[mask->owner].initial || plan->micro_batches < 2 || n--)
            continue;
        plan->regsts[mask->owner].initial = 1;
        return NO_KERNEL;
    }
    return NOTHING;
}

static uint32_t labels_of_a_shard_are_off_by_one(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, n % 2 ? "class_lse_grad" : "class_lse", 2, n / 2);
    plan_tensor *logits = k == NOTHING ? NULL : tensor_of(plan, in_of(plan, k, 0));
    if (logits)
        logits->start[logits->rank - 1] += logits->start[logits->rank - 1] ? -1 : 1;
    return logits ? maker_of(plan, in_of(plan, k, 0)->tensor.i) : NOTHING;
}

static uint32_t log_sum_exp_without_a_group(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        for (uint32_t r = 0; is_op(plan, k, "box") && plan->kernels[k].in.count > 1 && r < plan->kernels_count; r++)
            if (is_op(plan, r, "class_loss") && in_of(plan, r, 0)->tensor.i == out_of(plan, k, 0)->tensor.i && !n--) {
                plan->kernels[k].in.count--;
                return k;
            }
    return NOTHING;
}

/* The count by which gradients are divided. The other count cancels: the loss is a mean times it. */
static uint32_t ignored_labels_count(weir_plan *plan, uint32_t n)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (is_op(plan, k, "label_count") && !strcmp(name_of(plan, k), "count") && !n--) {
            word_of(plan, k, "ignore")->i = 0;
            return k;
        }
    return NOTHING;
}

/* Positions that come later are not masked, or are where they were not. */
static uint32_t attention_is_not_causal(weir_plan *plan, uint32_t n)
{
    const uint32_t k = kernel_of(plan, "attention", 3, n);
    if (k != NOTHING)
        word_of(plan, k, "causal")->i = !word_of(plan, k, "causal")->i;
    return k;
}

#endif
