/* apps/common/model/samples.c: see the header. */
#include "apps/common/model/samples.h"
#include "apps/common/model/lm.h"
#include "graph/base/base.h"
#include "graph/data/order.h"

#include <stdlib.h>

void samples_free(samples *s)
{
    free(s->id);
    free(s->counts);
    free(s->sample);
    *s = (samples){.ids = 0};
}

/* ---- as rows ---- */

static void fill_row(const samples *s, const struct sample *of, bool labels, int32_t *to, int64_t seq)
{
    const int64_t tokens = !of ? 0 : of->count - 1 < seq ? of->count - 1 : seq;
    const size_t first = of ? of->first + labels : 0;
    for (int64_t i = 0; i < tokens; i++)
        to[i] = !labels || s->counts[first + (size_t)i] ? s->id[first + (size_t)i] : LM_IGNORED;
    for (int64_t i = tokens; i < seq; i++)
        to[i] = labels ? LM_IGNORED : 0;
}

void samples_fill(const samples_range *r, int64_t first, bool labels, const weir_view *dst)
{
    const int64_t seq = dst->shape.dim[1];
    for (int64_t row = 0; row < dst->shape.dim[0]; row++) {
        const uint64_t i = (uint64_t)(first + row), epoch = i / r->count;
        const size_t at = r->first + (size_t)order_at(r->count, r->seed, epoch, i % r->count);
        fill_row(r->of, &r->of->sample[at], labels, (int32_t *)dst->data + row * seq, seq);
    }
}

void samples_fill_once(const samples_range *r, int64_t first, bool labels, const weir_view *dst)
{
    const int64_t seq = dst->shape.dim[1];
    for (int64_t row = 0; row < dst->shape.dim[0]; row++) {
        const size_t i = (size_t)(first + row);
        fill_row(r->of, i < r->count ? &r->of->sample[r->first + i] : NULL, labels, (int32_t *)dst->data + row * seq, seq);
    }
}

uint64_t samples_hash(const samples *s)
{
    return hash_more(hash_more(HASH_START, s->id, s->ids * sizeof *s->id), s->counts, s->ids * sizeof *s->counts);
}
