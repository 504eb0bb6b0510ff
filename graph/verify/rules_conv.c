/* graph/verify/rules_conv.c: convolutions and pools. See rule.h.
 *
 * All of them are sums over the elements of a window, or its first largest in the random order of field_larger(). The shards say
 * how many groups a call has, as in the kernels' own rules: a device that has some of the groups has fewer channels.
 */
#include "graph/verify/rule.h"

enum { SLIDES = 3 };

/* A window over the last dimensions of `large`, one for each position of `small`. */
struct slide {
    int dims;
    int64_t large[SLIDES], small[SLIDES], kernel[SLIDES], stride[SLIDES], pad[SLIDES], pad_end[SLIDES], dilation[SLIDES];
    int64_t taps, larges, smalls; /* elements of the window, and of a channel on either side */
};

static bool slide_of(const rule_call *call, const rule_array *large, const rule_array *small, struct slide *s)
{
    *s = (struct slide){.dims = large->rank - 2, .taps = 1, .larges = 1, .smalls = 1};
    if (s->dims < 1 || s->dims > SLIDES || small->rank != large->rank || large->shape[0] != small->shape[0])
        return rule_refuse(call, "the two sides of a window have other dimensions");
    for (int d = 0; d < s->dims; d++) {
        s->large[d] = large->shape[d + 2];
        s->small[d] = small->shape[d + 2];
        s->kernel[d] = rule_int(call, "kernel", d);
        s->stride[d] = rule_int(call, "stride", d);
        s->pad[d] = rule_int(call, "pad", d);
        s->pad_end[d] = rule_int(call, "pad_end", d);
        s->dilation[d] = rule_int(call, "dilation", d);
        const int64_t most = INT64_C(1) << 28, numbers[] = {s->kernel[d], s->stride[d], s->dilation[d], s->pad[d] + 1, s->pad_end[d] + 1};
        for (int i = 0; i < 5; i++)
            if (numbers[i] < 1 || numbers[i] > most)
                return rule_refuse(call, "a number of the window in dimension %d is %lld", d + 2, (long long)numbers[i]);
        s->taps = s->taps > most ? s->taps : s->taps * s->kernel[d];
        s->larges *= s->large[d];
        s->smalls *= s->small[d];
    }
    return true;
}

/* Where tap `tap` of small position `position` lies in a channel of the large side; -1: outside. */
static int64_t slide_at(const struct slide *s, int64_t position, int64_t tap)
{
    int64_t at = 0, step = 1;
    for (int d = s->dims; d-- > 0; position /= s->small[d], tap /= s->kernel[d]) {
        const int64_t index = position % s->small[d] * s->stride[d] + tap % s->kernel[d] * s->dilation[d] - s->pad[d];
        if (index < 0 || index >= s->large[d])
            return -1;
        at += index * step;
        step *= s->large[d];
    }
    return at;
}

/* ---- convolutions ---- */

/* small[b, o, p], weight[o, c, t] and large[b, g in + c, at(p, t)] meet, where o is of group g. */
struct meeting {
    struct slide s;
    int64_t batch, groups, outs, ins; /* channels of a group on the small and on the large side */
};

static bool meeting_of(const rule_call *call, const rule_array *large, const rule_array *weight, const rule_array *small,
                       struct meeting *m)
{
    if (!slide_of(call, large, small, &m->s))
        return false;
    const int64_t larges = large->shape[1], smalls = small->shape[1];
    m->batch = large->shape[0];
    m->ins = weight->rank > 1 ? weight->shape[1] : 0;
    m->groups = m->ins && larges > m->ins ? larges / m->ins : 1;
    m->outs = smalls / m->groups;
    bool right = weight->rank == large->rank && m->groups * m->ins == larges && m->groups * m->outs == smalls && weight->shape[0] == smalls;
    for (int d = 0; right && d < m->s.dims; d++)
        right = weight->shape[d + 2] == m->s.kernel[d];
    return right || rule_refuse(call, "the channels or the window of the weight do not fit the two sides");
}

/* Elements of the three that meet: adds the product of the other two to one. */
static void add_products(const struct meeting *m, const field_value *large, const field_value *weight, const field_value *small,
                         field_value *to_large, field_value *to_weight, field_value *to_small)
{
    const struct slide *s = &m->s;
    for (int64_t b = 0; b < m->batch; b++)
        for (int64_t o = 0; o < m->groups * m->outs; o++)
            for (int64_t c = 0; c < m->ins; c++)
                for (int64_t p = 0; p < s->smalls; p++)
                    for (int64_t t = 0; t < s->taps; t++) {
                        const int64_t place = slide_at(s, p, t);
                        if (place < 0)
                            continue;
                        const int64_t x = ((b * m->groups + o / m->outs) * m->ins + c) * s->larges + place;
                        const int64_t y = (b * m->groups * m->outs + o) * s->smalls + p, w = (o * m->ins + c) * s->taps + t;
                        if (to_small)
                            to_small[y] = field_add(to_small[y], field_mul(weight[w], large[x]));
                        else if (to_large)
                            to_large[x] = field_add(to_large[x], field_mul(weight[w], small[y]));
                        else
                            to_weight[w] = field_add(to_weight[w], field_mul(small[y], large[x]));
                    }
}

/* out[b, c, ...] = bias[c], or 0 */
static bool begin_with_bias(const rule_call *call)
{
    const rule_array *out = &call->out[0];
    const int64_t channels = out->shape[1], each = rule_size(out, 2, out->rank);
    if (call->in_count > 2 && call->in[2].count != channels)
        return rule_refuse(call, "the bias has %lld elements, and the result %lld channels", (long long)call->in[2].count,
                           (long long)channels);
    for (int64_t i = 0; i < out->count; i++)
        out->at[i] = call->in_count > 2 ? call->in[2].at[i / each % channels] : field_int(0);
    return true;
}

static bool conv(const rule_call *call)
{
    struct meeting m;
    if (!rule_has_operands(call, 2, 1) || !meeting_of(call, &call->in[0], &call->in[1], &call->out[0], &m) || !begin_with_bias(call))
        return false;
    add_products(&m, call->in[0].at, call->in[1].at, NULL, NULL, NULL, call->out[0].at);
    return true;
}

static bool conv_transpose(const rule_call *call)
{
    struct meeting m;
    if (!rule_has_operands(call, 2, 1) || !meeting_of(call, &call->out[0], &call->in[1], &call->in[0], &m) || !begin_with_bias(call))
        return false;
    add_products(&m, NULL, call->in[1].at, call->in[0].at, call->out[0].at, NULL, NULL);
    return true;
}

static bool conv_dw(const rule_call *call)
{
    struct meeting m;
    if (!rule_has_operands(call, 2, 1) || !meeting_of(call, &call->in[0], &call->out[0], &call->in[1], &m))
        return false;
    for (int64_t i = 0; i < call->out[0].count && !call->accumulate; i++)
        call->out[0].at[i] = field_int(0);
    add_products(&m, call->in[0].at, NULL, call->in[1].at, NULL, call->out[0].at, NULL);
    return true;
}

/* ---- pools ---- */

static bool pool_of(const rule_call *call, const rule_array *large, const rule_array *small, struct slide *s)
{
    return slide_of(call, large, small, s) &&
           (large->shape[1] == small->shape[1] || rule_refuse(call, "a pool has as many channels on either side"));
}

/* The first of the largest elements; -1: the window has none. */
static int64_t first_largest(const rule_call *call, const struct slide *s, const field_value *x, int64_t position)
{
    int64_t most = -1;
    for (int64_t t = 0; t < s->taps; t++) {
        const int64_t at = slide_at(s, position, t);
        if (at >= 0 && (most < 0 || field_larger(call->seed, x[at], x[most])))
            most = at;
    }
    return most;
}

static bool max_pool(const rule_call *call)
{
    struct slide s;
    if (!rule_has_operands(call, 1, 1) || !pool_of(call, &call->in[0], &call->out[0], &s))
        return false;
    for (int64_t i = 0; i < call->out[0].count; i++) {
        const field_value *x = call->in[0].at + i / s.smalls * s.larges;
        const int64_t at = first_largest(call, &s, x, i % s.smalls);
        if (at < 0)
            return rule_refuse(call, "a window has no element of the tensor; no element is the largest of none");
        call->out[0].at[i] = x[at];
    }
    return true;
}

static bool max_pool_grad(const rule_call *call)
{
    struct slide s;
    const rule_array *dx = &call->out[0];
    if (!rule_has_operands(call, 2, 1) || !pool_of(call, &call->in[0], &call->in[1], &s))
        return false;
    if (!rule_same_shape(&call->in[0], dx))
        return rule_refuse(call, "the gradient does not have the shape of x");
    for (int64_t i = 0; i < dx->count; i++)
        dx->at[i] = field_int(0);
    for (int64_t i = 0; i < call->in[1].count; i++) {
        const int64_t plane = i / s.smalls * s.larges, at = first_largest(call, &s, call->in[0].at + plane, i % s.smalls);
        if (at >= 0)
            dx->at[plane + at] = field_add(dx->at[plane + at], call->in[1].at[i]);
    }
    return true;
}

/* How many elements an average at this position has: of the tensor, or with .count_pad also of its pads. */
static int64_t terms_at(const rule_call *call, const struct slide *s, int64_t position)
{
    const bool pads = rule_int(call, "count_pad", 0);
    int64_t terms = 1;
    for (int d = s->dims; d-- > 0; position /= s->small[d]) {
        const int64_t begin = position % s->small[d] * s->stride[d] - s->pad[d];
        int64_t inside = 0;
        for (int64_t k = 0; k < s->kernel[d]; k++) {
            const int64_t index = begin + k * s->dilation[d];
            inside += pads ? index < s->large[d] + s->pad_end[d] : index >= 0 && index < s->large[d];
        }
        terms *= inside;
    }
    return terms > 0 ? terms : 1;
}

/* y = the average; or dx, to which each element of dy gives its share. */
static bool average(const rule_call *call, const rule_array *large, const rule_array *small, bool back)
{
    struct slide s;
    const rule_array *out = &call->out[0];
    if (!pool_of(call, large, small, &s))
        return false;
    for (int64_t i = 0; i < out->count; i++)
        out->at[i] = field_int(0);
    for (int64_t i = 0; i < small->count; i++) {
        const field_value share = field_inverse(field_int(terms_at(call, &s, i % s.smalls)));
        for (int64_t t = 0; t < s.taps; t++) {
            const int64_t place = slide_at(&s, i % s.smalls, t), at = i / s.smalls * s.larges + place;
            if (place < 0)
                continue;
            if (back)
                out->at[at] = field_add(out->at[at], field_mul(share, small->at[i]));
            else
                out->at[i] = field_add(out->at[i], field_mul(share, large->at[at]));
        }
    }
    return true;
}

static bool average_pool(const rule_call *call)
{
    return rule_has_operands(call, 1, 1) && average(call, &call->in[0], &call->out[0], false);
}

static bool average_pool_grad(const rule_call *call)
{
    return rule_has_operands(call, 1, 1) && average(call, &call->out[0], &call->in[0], true);
}

const rule_entry rules_conv[] = {{"conv", conv},
                                 {"conv_transpose", conv_transpose},
                                 {"conv_dw", conv_dw},
                                 {"max_pool", max_pool},
                                 {"max_pool_grad", max_pool_grad},
                                 {"average_pool", average_pool},
                                 {"average_pool_grad", average_pool_grad},
                                 {NULL, NULL}};
