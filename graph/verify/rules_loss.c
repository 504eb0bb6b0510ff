/* graph/verify/rules_loss.c: the rules of losses.
 *
 * Rows do not depend on each other, so a split of them changes no value. A comment before class_lse explains splits of classes.
 */
#include "graph/verify/rules_model.h"

/* ---- rows of losses ---- */

#define IGNORED INT64_MIN     /* stands for the label of a row that does not count; labels have 32 bits */
#define ANY_CLASSES INT64_MAX /* the op accepts any integer as a label */

typedef struct label_rows {
    const rule_call *call;
    const rule_array *labels;
    int64_t classes; /* a label must be less than this; or ANY_CLASSES */
    bool ignores;
    int64_t ignored;
} label_rows;

static label_rows label_rows_of(const rule_call *call, int input, int64_t classes)
{
    return (label_rows){call, &call->in[input], classes, rule_int(call, "ignore", 0) != 0, rule_int(call, "ignore_index", 0)};
}

static bool label_of(const label_rows *rows, int64_t row, int64_t *label)
{
    if (!field_is_int(rows->labels->at[row], label))
        return rule_refuse(rows->call, "the label of row %lld is no integer", (long long)row);
    if (rows->ignores && *label == rows->ignored)
        *label = IGNORED;
    return *label == IGNORED || rows->classes == ANY_CLASSES || (*label >= 0 && *label < rows->classes) ||
           rule_refuse(rows->call, "label %lld of row %lld: must be in 0..%lld", (long long)*label, (long long)row,
                       (long long)rows->classes - 1);
}

/* 1 / max(count, 1), where count is the number of rows of the whole batch that count. If the call has an input `count`, its
 * value is that number; otherwise all rows of the logical tensor count. A count that is no integer is taken as it is. */
static field_value row_weight(const label_rows *rows, int count)
{
    int64_t integer;
    field_value number = field_int(1);
    if (count < rows->call->in_count)
        number = rows->call->in[count].at[0];
    else
        for (int d = 0; d < rows->labels->rank; d++)
            number = field_mul(number, field_int(rows->labels->global[d]));
    return field_is_int(number, &integer) && integer < 1 ? field_int(1) : field_inverse(number);
}

/* Refuses the call if an input from `first` on is no scalar, or if out[0] is a loss and no scalar. */
static bool are_scalars(const rule_call *call, int first, bool loss)
{
    for (int i = first; i < call->in_count; i++)
        if (call->in[i].count != 1)
            return rule_refuse(call, "input %d has %lld elements: must be a scalar", i, (long long)call->in[i].count);
    return !loss || call->out[0].count == 1 ||
           rule_refuse(call, "the loss has %lld elements: must be a scalar", (long long)call->out[0].count);
}

static field_value log_sum_exp(const rule_call *call, const field_value *x, int64_t count)
{
    field_value sum = field_int(0);
    for (int64_t i = 0; i < count; i++)
        sum = field_add(sum, exp_of(call, x[i]));
    return log_of(call, sum);
}

/* dx = weight exp(x - lse), the gradient of weight lse, where lse is the log-sum-exp of x. */
static void log_sum_exp_grad(const rule_call *call, const field_value *x, int64_t count, field_value lse, field_value weight,
                             field_value *dx)
{
    for (int64_t i = 0; i < count; i++)
        dx[i] = exp_of(call, x[i]);
    scale_row(dx, field_div(weight, kept_sum(call, lse)), count);
}

/* ---- cross-entropy of whole rows ---- */

/* logits [..., classes], labels [...] (, count) -> loss, lse [...] */
static bool cross_entropy(const rule_call *call)
{
    if (!rule_has_operands(call, 2, 2) || !are_scalars(call, 2, true))
        return false;
    const int64_t classes = rule_columns(&call->in[0]);
    const label_rows rows = label_rows_of(call, 1, classes);
    if (!has_row_for_each(&call->in[0], rows.labels) || !rule_same_shape(&call->out[1], rows.labels))
        return rule_refuse(call, "the shapes of logits, labels and log-sum-exp do not fit each other");
    field_value sum = field_int(0);
    for (int64_t row = 0; row < rows.labels->count; row++) {
        const field_value *x = call->in[0].at + row * classes;
        int64_t label;
        if (!label_of(&rows, row, &label))
            return false;
        const field_value lse = log_sum_exp(call, x, classes);
        call->out[1].at[row] = lse;
        if (label != IGNORED)
            sum = field_add(sum, field_sub(lse, x[label]));
    }
    call->out[0].at[0] = field_mul(sum, row_weight(&rows, 2));
    return true;
}

/* logits, labels, lse, dloss (, count) -> dlogits */
static bool cross_entropy_grad(const rule_call *call)
{
    if (!rule_has_operands(call, 4, 1) || !are_scalars(call, 3, false))
        return false;
    const rule_array *logits = &call->in[0], *lse = &call->in[2];
    const int64_t classes = rule_columns(logits);
    const label_rows rows = label_rows_of(call, 1, classes);
    if (!has_row_for_each(logits, rows.labels) || !rule_same_shape(lse, rows.labels) || !rule_same_shape(&call->out[0], logits))
        return rule_refuse(call, "the shapes of logits, labels, log-sum-exp and gradient do not fit each other");
    const field_value weight = field_mul(call->in[3].at[0], row_weight(&rows, 4));
    for (int64_t row = 0; row < rows.labels->count; row++) {
        field_value *dx = call->out[0].at + row * classes;
        int64_t label;
        if (!label_of(&rows, row, &label))
            return false;
        clear(dx, classes);
        if (label == IGNORED)
            continue;
        log_sum_exp_grad(call, logits->at + row * classes, classes, lse->at[row], weight, dx);
        dx[label] = field_sub(dx[label], weight);
    }
    return true;
}

/* labels -> number of rows that count */
static bool label_count(const rule_call *call)
{
    if (!rule_has_operands(call, 1, 1) || !are_scalars(call, 1, true))
        return false;
    const label_rows rows = label_rows_of(call, 0, ANY_CLASSES);
    int64_t counted = 0;
    for (int64_t row = 0; row < rows.labels->count; row++) {
        int64_t label;
        if (!label_of(&rows, row, &label))
            return false;
        counted += label != IGNORED;
    }
    call->out[0].at[0] = field_int(counted);
    return true;
}

/* ---- cross-entropy by groups of classes ----
 *
 * The graph fixes the number of groups of a row, and signatures split classes only between groups. A call of class_lse or of
 * its gradient therefore has all the classes of each of its groups. A call of class_loss or of its gradient has all the groups
 * of its rows. Each call computes sums of whole groups or of whole rows, and the values do not depend on how classes are split.
 *
 * class_loss computes log of the sum over groups of exp(lse), where exp(lse) is the sum of a group. Its values therefore do not
 * depend on the number of groups, and are those of cross_entropy. */

/* The kernel divides the classes of a shard among its groups; if they do not divide evenly, the first groups have one more. */
static int64_t group_size(int64_t classes, int64_t groups, int64_t group)
{
    return classes / groups + (group < classes % groups);
}

/* The class of the shard that a label has; -1: another shard has it, or the row does not count. */
static int64_t class_here(const rule_array *logits, int64_t label)
{
    const int64_t at = label == IGNORED ? -1 : label - logits->start[logits->rank - 1];
    return at >= 0 && at < rule_columns(logits) ? at : -1;
}

/* logits [..., classes], labels [...] -> lse [..., groups], picked [...] */
static bool class_lse(const rule_call *call)
{
    if (!rule_has_operands(call, 2, 2))
        return false;
    const rule_array *logits = &call->in[0], *lse = &call->out[0], *labels = &call->in[1];
    if (!has_row_for_each(logits, labels) || !has_row_for_each(lse, labels) || !rule_same_shape(&call->out[1], labels))
        return rule_refuse(call, "the shapes of logits, labels and outputs do not fit each other");
    const int64_t classes = rule_columns(logits), groups = rule_columns(lse);
    const label_rows rows = label_rows_of(call, 1, logits->global[logits->rank - 1]);
    for (int64_t row = 0; row < labels->count; row++) {
        const field_value *x = logits->at + row * classes, *next = x;
        int64_t label;
        if (!label_of(&rows, row, &label))
            return false;
        for (int64_t g = 0; g < groups; next += group_size(classes, groups, g), g++)
            lse->at[row * groups + g] = log_sum_exp(call, next, group_size(classes, groups, g));
        const int64_t at = class_here(logits, label);
        call->out[1].at[row] = at < 0 ? field_int(0) : x[at];
    }
    return true;
}

static bool class_lse_grad_fits(const rule_call *call)
{
    if (!rule_has_operands(call, 5, 1))
        return false;
    const rule_array *in = call->in;
    return (has_row_for_each(&in[0], &in[1]) && has_row_for_each(&in[2], &in[1]) && rule_same_shape(&in[2], &in[3]) &&
            rule_same_shape(&in[4], &in[1]) && rule_same_shape(&call->out[0], &in[0])) ||
           rule_refuse(call, "the shapes of logits, labels, log-sum-exp and gradients do not fit each other");
}

/* logits, labels, lse, dlse [..., groups], dpicked [...] -> dlogits */
static bool class_lse_grad(const rule_call *call)
{
    if (!class_lse_grad_fits(call))
        return false;
    const rule_array *logits = &call->in[0];
    const int64_t classes = rule_columns(logits), groups = rule_columns(&call->in[2]);
    const label_rows rows = label_rows_of(call, 1, ANY_CLASSES);
    clear(call->out[0].at, call->out[0].count);
    for (int64_t row = 0; row < rows.labels->count; row++) {
        int64_t label, first = row * classes;
        if (!label_of(&rows, row, &label))
            return false;
        if (label == IGNORED || !groups)
            continue;
        for (int64_t g = 0; g < groups; first += group_size(classes, groups, g), g++)
            log_sum_exp_grad(call, logits->at + first, group_size(classes, groups, g), call->in[2].at[row * groups + g],
                             call->in[3].at[row * groups + g], call->out[0].at + first);
        const int64_t at = class_here(logits, label);
        if (at >= 0)
            add_scaled(call->out[0].at + row * classes + at, &call->in[4].at[row], field_int(1), 1);
    }
    return true;
}

/* The sum of all groups of a row. */
static field_value sum_of_groups(const rule_call *call, const field_value *lse, int64_t groups)
{
    field_value sum = field_int(0);
    for (int64_t g = 0; g < groups; g++)
        sum = field_add(sum, kept_sum(call, lse[g]));
    return sum;
}

/* lse [..., groups], picked [...], labels [...] (, count) -> loss */
static bool class_loss(const rule_call *call)
{
    if (!rule_has_operands(call, 3, 1) || !are_scalars(call, 3, true))
        return false;
    const rule_array *lse = &call->in[0], *picked = &call->in[1];
    const label_rows rows = label_rows_of(call, 2, ANY_CLASSES);
    if (!has_row_for_each(lse, rows.labels) || !rule_same_shape(picked, rows.labels))
        return rule_refuse(call, "the shapes of log-sum-exp, picked logits and labels do not fit each other");
    const int64_t groups = rule_columns(lse);
    field_value sum = field_int(0);
    for (int64_t row = 0; row < rows.labels->count; row++) {
        int64_t label;
        if (!label_of(&rows, row, &label))
            return false;
        if (label == IGNORED)
            continue;
        const field_value whole = log_of(call, sum_of_groups(call, lse->at + row * groups, groups));
        sum = field_add(sum, field_sub(whole, picked->at[row]));
    }
    call->out[0].at[0] = field_mul(sum, row_weight(&rows, 3));
    return true;
}

/* lse [..., groups], labels [...], dloss (, count) -> dlse [..., groups], dpicked [...] */
static bool class_loss_grad(const rule_call *call)
{
    if (!rule_has_operands(call, 3, 2) || !are_scalars(call, 2, false))
        return false;
    const rule_array *lse = &call->in[0], *dlse = &call->out[0];
    const label_rows rows = label_rows_of(call, 1, ANY_CLASSES);
    if (!has_row_for_each(lse, rows.labels) || !rule_same_shape(dlse, lse) || !rule_same_shape(&call->out[1], rows.labels))
        return rule_refuse(call, "the shapes of log-sum-exp, labels and gradients do not fit each other");
    const int64_t groups = rule_columns(lse);
    const field_value weight = field_mul(call->in[2].at[0], row_weight(&rows, 3));
    clear(dlse->at, dlse->count);
    for (int64_t row = 0; row < rows.labels->count; row++) {
        int64_t label;
        if (!label_of(&rows, row, &label))
            return false;
        call->out[1].at[row] = label == IGNORED ? field_int(0) : field_neg(weight);
        if (label == IGNORED)
            continue;
        const field_value share = field_div(weight, sum_of_groups(call, lse->at + row * groups, groups));
        for (int64_t g = row * groups; g < (row + 1) * groups; g++)
            dlse->at[g] = field_mul(share, kept_sum(call, lse->at[g]));
    }
    return true;
}

const rule_entry rules_loss[] = {
    {"cross_entropy", cross_entropy},
    {"cross_entropy_grad", cross_entropy_grad},
    {"label_count", label_count},
    {"class_lse", class_lse},
    {"class_lse_grad", class_lse_grad},
    {"class_loss", class_loss},
    {"class_loss_grad", class_loss_grad},
    {NULL, NULL},
};
