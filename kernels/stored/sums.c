/* kernels/stored/sums.c: see the header. */
#include "kernels/stored/sums.h"

#include "kernels/common/lanes.h"

typedef int32_t lane_ints __attribute__((vector_size(LANES * sizeof(int32_t))));

/* A unit of one row and one panel: start + the sum of q w. */
static inline __attribute__((always_inline)) lanes unit_sum(const int8_t *x, const uint8_t *q, int count, int32_t start)
{
    int32_t sum[LANES];
    for (int r = 0; r < LANES; r++)
        sum[r] = start;
    for (int i = 0; i < count; i += 4, q += LANES * 4)
        for (int r = 0; r < LANES; r++)
            sum[r] += q[4 * r] * x[i] + q[4 * r + 1] * x[i + 1] + q[4 * r + 2] * x[i + 2] + q[4 * r + 3] * x[i + 3];
    lane_ints whole;
    memcpy(&whole, sum, sizeof whole);
    return __builtin_convertvector(whole, lanes);
}

static void panel_row(const panel_sums *call, const panel *p, const int8_t *x, const rounded_unit *of, float *y)
{
    const block_format *format = call->x->format;
    lanes sum = call->add ? lanes_load(y) : (lanes){};
    for (int64_t u = 0; u < call->elements / format->unit; u++) {
        const lanes whole = unit_sum(x + u * format->unit, p->q + u * format->unit * PANEL_ROWS, format->unit,
                                     format->minimum ? 0 : of[u].start);
        sum += whole * (lanes_load(p->scales[u]) * of[u].scale);
        if (format->minimum)
            sum += lanes_load(p->minima[u]) * of[u].mass;
    }
    lanes_store(y, &sum);
}

void panel_sums_make(const panel_sums *call)
{
    const int64_t in = call->x->in, unit = call->x->format->unit;
    for (int64_t r = 0; r < call->rows; r++) {
        const int64_t at = (call->row + r) * in + call->from;
        for (int p = 0; p < SUMS_PANELS; p++)
            panel_row(call, &call->panels[p], call->x->q + at, call->x->units + at / unit, call->y + r * call->y_row + p * PANEL_ROWS);
    }
}
