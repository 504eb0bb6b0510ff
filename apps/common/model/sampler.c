/* apps/common/model/sampler.c: see the header. */
#include "apps/common/model/sampler.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <weir/weir.h>

typedef struct candidate {
    float logit;
    int32_t id;
} candidate;

struct sampler {
    sampler_opts opts;
    int vocab;
    uint64_t seen;                    /* ids so far */
    int32_t last[SAMPLER_SEEN];       /* a ring of them */
    candidate *candidates;            /* owned; room for `vocab` */
};

struct sampler *sampler_new(const sampler_opts *opts, int vocab)
{
    struct sampler *s = calloc(1, sizeof *s);
    candidate *candidates = calloc((size_t)vocab, sizeof *candidates);
    if (!s || !candidates) {
        free(candidates);
        free(s);
        return NULL;
    }
    *s = (struct sampler){.opts = *opts, .vocab = vocab, .candidates = candidates};
    return s;
}

void sampler_free(struct sampler *s)
{
    if (s)
        free(s->candidates);
    free(s);
}

void sampler_begin(struct sampler *s)
{
    s->seen = 0;
}

void sampler_saw(struct sampler *s, int32_t id)
{
    s->last[s->seen++ % SAMPLER_SEEN] = id;
}

/* ---- logits ---- */

static void penalise(const struct sampler *s, float *logits)
{
    const int count = s->seen < SAMPLER_SEEN ? (int)s->seen : SAMPLER_SEEN;
    const float by = (float)s->opts.repeat_penalty;
    for (int i = 0; i < count; i++) {
        bool again = false;
        for (int j = 0; j < i; j++)
            again |= s->last[j] == s->last[i];
        float *logit = &logits[s->last[i]];
        if (!again)
            *logit = *logit > 0 ? *logit / by : *logit * by;
    }
}

/* The largest; NaN where one of them is NaN. */
static float largest(const float *x, int count)
{
    enum { WIDE = 64 };
    float most[WIDE], all = -INFINITY;
    int strange[WIDE] = {0};
    for (int l = 0; l < WIDE; l++)
        most[l] = -INFINITY;
    const int whole = count / WIDE * WIDE;
    for (int i = 0; i < whole; i += WIDE)
        for (int l = 0; l < WIDE; l++) {
            most[l] = x[i + l] > most[l] ? x[i + l] : most[l];
            strange[l] |= x[i + l] != x[i + l];
        }
    for (int i = whole; i < count; i++) {
        most[0] = x[i] > most[0] ? x[i] : most[0];
        strange[0] |= x[i] != x[i];
    }
    for (int l = 0; l < WIDE; l++)
        all = strange[l] ? NAN : most[l] > all ? most[l] : all;
    return all;
}

/* ---- candidates ---- */

/* Whether a comes before b: it is likelier, or has the lower id. */
static bool before(const candidate *a, const candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static int compare(const void *a, const void *b)
{
    return before(a, b) ? -1 : 1;
}

/* A heap whose first is behind all others. */
static void sink(candidate *heap, int count, int at)
{
    for (int child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && before(&heap[child], &heap[child + 1]);
        if (before(&heap[child], &heap[at]))
            return;
        const candidate moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
    }
}

/* The k likeliest. Ids come in order, so an equal one that comes later is behind. */
static int take_likeliest(struct sampler *s, const float *logits, int k)
{
    candidate *heap = s->candidates;
    for (int i = 0; i < k; i++)
        heap[i] = (candidate){logits[i], i};
    for (int i = k / 2; i-- > 0;)
        sink(heap, k, i);
    for (int i = k; i < s->vocab; i++)
        if (logits[i] > heap[0].logit) {
            heap[0] = (candidate){logits[i], i};
            sink(heap, k, 0);
        }
    return k;
}

static int take_above(struct sampler *s, const float *logits, float least)
{
    int count = 0;
    for (int i = 0; i < s->vocab; i++)
        if (logits[i] >= least)
            s->candidates[count++] = (candidate){logits[i], i};
    return count;
}

/* A logit that is lower than the largest by more than FAR has no share that a sum in double shows. */
enum { BINS_EACH = 8, FAR = 40, BINS = FAR * BINS_EACH };

/* A logit at or below the one at which the likeliest ones have `share` of the probability; *total: of all, where the likeliest is 1.
 * Bin b is of logits in (most - (b + 1) / BINS_EACH, most - b / BINS_EACH]. */
static float least_for(const struct sampler *s, const float *logits, float most, double share, double *total)
{
    double mass[BINS] = {0}, sum = 0;
    *total = 0;
    for (int i = 0; i < s->vocab; i++) {
        const float behind = (most - logits[i]) * BINS_EACH;
        if (behind < (float)BINS) {
            const double p = exp((double)logits[i] - (double)most);
            mass[(int)behind] += p;
            *total += p;
        }
    }
    int bin = 0;
    while (bin < BINS - 1 && (sum += mass[bin]) < share * *total)
        bin++;
    return most - (float)(bin + 2) / BINS_EACH;
}

static double total_of(const candidate *sorted, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += exp((double)sorted[i].logit - (double)sorted->logit);
    return sum;
}

/* Counts the fewest sorted candidates that have `share` of the probability of all. */
static int cut_share(const candidate *sorted, int count, double share)
{
    const double total = total_of(sorted, count);
    double sum = 0;
    for (int i = 0; i < count; i++)
        if ((sum += exp((double)sorted[i].logit - (double)sorted->logit)) >= share * total)
            return i + 1;
    return count;
}

/* Moves the candidates of [first, end) that come before the one in their middle in front of it. Returns its place. */
static int split(candidate *c, int first, int end)
{
    const candidate by = c[first + (end - first) / 2];
    int at = first;
    c[first + (end - first) / 2] = c[end - 1];
    for (int i = first; i < end - 1; i++)
        if (before(&c[i], &by)) {
            const candidate moved = c[at];
            c[at++] = c[i];
            c[i] = moved;
        }
    c[end - 1] = c[at];
    c[at] = by;
    return at;
}

/* Moves the fewest that together have `wanted` to the front, in any order, and counts them; a weight is relative to that of `most`. Hoare's
 * selection: those before `first` have `sum`, which is too little, and those before `end` have enough. */
static int select_share(candidate *c, int count, float most, double wanted)
{
    double sum = 0;
    int first = 0, end = count;
    while (end - first > 1) {
        const int at = split(c, first, end);
        double above = sum;
        for (int i = first; i < at; i++)
            above += exp((double)c[i].logit - (double)most);
        if (above >= wanted) {
            end = at;
            continue;
        }
        first = at + 1;
        sum = above + exp((double)c[at].logit - (double)most);
        end = sum >= wanted ? first : end;
    }
    return end;
}

/* Leaves the candidates that may be drawn, and returns their number. */
static int take(struct sampler *s, const float *logits, float most)
{
    const sampler_opts *o = &s->opts;
    const float least = o->min_p > 0 ? most + (float)log(o->min_p) : -INFINITY;
    const bool some = o->top_k > 0 && o->top_k < s->vocab, part = o->top_p > 0 && o->top_p < 1;
    double total = 0;
    if (!some) {
        const float from = part ? least_for(s, logits, most, o->top_p, &total) : least;
        const int above = take_above(s, logits, from > least ? from : least);
        return part ? select_share(s->candidates, above, most, o->top_p * total) : above;
    }
    int count = take_likeliest(s, logits, o->top_k);
    qsort(s->candidates, (size_t)count, sizeof *s->candidates, compare);
    if (part)
        count = cut_share(s->candidates, count, o->top_p);
    while (count > 1 && s->candidates[count - 1].logit < least)
        count--;
    return count;
}

/* Candidates have weights instead of logits then. */
static int32_t draw(struct sampler *s, int count, float most)
{
    candidate *c = s->candidates;
    double sum = 0, left = (double)weir_random_uniform(s->opts.seed, s->seen);
    for (int i = 0; i < count; i++)
        sum += (double)(c[i].logit = expf((float)(((double)c[i].logit - (double)most) / s->opts.temperature)));
    left *= sum;
    int last = 0;
    for (int i = 0; i < count && left >= 0; i++) {
        left -= (double)c[i].logit;
        last = c[i].logit > 0 ? i : last;
    }
    return c[last].id;
}

int32_t sampler_choose(struct sampler *s, float *logits)
{
    if (s->opts.repeat_penalty > 0 && s->opts.repeat_penalty != 1)
        penalise(s, logits);
    const float most = largest(logits, s->vocab);
    if (!isfinite(most))
        return -1;
    if (s->opts.temperature <= 0 || s->opts.top_k == 1) {
        int32_t best = 0;
        while (logits[best] != most)
            best++;
        return best;
    }
    return draw(s, take(s, logits, most), most);
}
