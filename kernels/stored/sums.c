/* kernels/stored/sums.c: see the header. A tile is some rows of x and some vectors of outputs: a vector of the panel that is loaded
 * serves all the rows, and a word of x all the vectors. */
#include "kernels/stored/sums.h"

#include "kernels/common/lanes.h"
#include "kernels/common/unroll.h"
#include "kernels/stored/dots.h"

#ifdef VECTOR_ROWS

#if VECTOR_ROWS == 16
enum { TILE_ROWS = 4, TILE_VECTORS = 2 };
#else
enum { TILE_ROWS = 2, TILE_VECTORS = 2 };
#endif
enum { VECTORS = SUMS_PANELS * PANEL_ROWS / VECTOR_ROWS };

/* Constants where it is inlined. */
typedef struct kind {
    way how;
    int unit;
    bool minimum;
} kind;

/* Where a vector of outputs lies: in this panel, from this row on. */
VECTOR const panel *panel_of(const panel_sums *call, int vector_number)
{
    return call->panels + vector_number * VECTOR_ROWS / PANEL_ROWS;
}

/* One unit of a tile: rows of x from `x` on, vectors from `first` on. */
VECTOR void tile_unit(kind k, int rows, const panel_sums *call, const int8_t *x, const rounded_unit *of, int64_t of_row, int64_t unit, int first,
                      reals sum[TILE_ROWS * TILE_VECTORS])
{
    adding add[TILE_ROWS * TILE_VECTORS];
    UNROLL
    for (int s = 0; s < rows * TILE_VECTORS; s++)
        add[s].whole = V(set1_epi32)(k.minimum ? 0 : of[s / TILE_VECTORS * of_row].start);
    UNROLL
    for (int i = 0; i < k.unit / 4; i++)
        UNROLL
        for (int r = 0; r < rows; r++) {
            int word;
            memcpy(&word, x + r * call->x->in + 4 * i, sizeof word);
            const vector of_x = V(set1_epi32)(word);
            UNROLL
            for (int v = 0; v < TILE_VECTORS; v++) {
                const uint8_t *q = panel_of(call, first + v)->q + ((unit * k.unit / 4 + i) * PANEL_ROWS + (first + v) * VECTOR_ROWS % PANEL_ROWS) * 4;
                vector w;
                memcpy(&w, q, sizeof w);
                add_word(k.how, &add[r * TILE_VECTORS + v], w, of_x, i, k.unit / 4);
            }
        }
    UNROLL
    for (int s = 0; s < rows * TILE_VECTORS; s++) {
        const int r = s / TILE_VECTORS, v = first + s % TILE_VECTORS;
        const panel *p = panel_of(call, v);
        const int row = v * VECTOR_ROWS % PANEL_ROWS;
        sum[s] = unit_add(sum[s], k.minimum, add[s].whole, &p->scales[unit][row], &p->minima[unit][row], &of[r * of_row]);
    }
}

VECTOR void tile(kind k, int rows, const panel_sums *call, int64_t row, int first)
{
    const int64_t in = call->x->in, of_row = in / k.unit;
    const int8_t *x = call->x->q + (call->row + row) * in + call->from;
    const rounded_unit *of = call->x->units + ((call->row + row) * in + call->from) / k.unit;
    float *y = call->y + row * call->y_row + first * VECTOR_ROWS;
    reals sum[TILE_ROWS * TILE_VECTORS];
    UNROLL
    for (int s = 0; s < rows * TILE_VECTORS; s++)
        if (call->add)
            memcpy(&sum[s], y + s / TILE_VECTORS * call->y_row + s % TILE_VECTORS * VECTOR_ROWS, sizeof *sum);
        else
            sum[s] = (reals){};
    for (int64_t unit = 0; unit < call->elements / k.unit; unit++)
        tile_unit(k, rows, call, x + unit * k.unit, of + unit, of_row, unit, first, sum);
    UNROLL
    for (int s = 0; s < rows * TILE_VECTORS; s++)
        memcpy(y + s / TILE_VECTORS * call->y_row + s % TILE_VECTORS * VECTOR_ROWS, &sum[s], sizeof *sum);
}

VECTOR void tiles(kind k, const panel_sums *call)
{
    for (int first = 0; first < VECTORS; first += TILE_VECTORS) {
        int64_t row = 0;
        for (; row + TILE_ROWS <= call->rows; row += TILE_ROWS)
            tile(k, TILE_ROWS, call, row, first);
        for (; row < call->rows; row++)
            tile(k, 1, call, row, first);
    }
}

/* name, how, elements of a unit, whether units have a minimum */
#define KINDS(X)                                                                                              \
    X(dots, DOTS, 32, false) X(dots_minimum, DOTS, 32, true) X(dots_16, DOTS, 16, false)                      \
    X(eight, EIGHT_WORDS, 32, false) X(eight_minimum, EIGHT_WORDS, 32, true) X(four, FOUR_WORDS, 32, false)   \
    X(four_minimum, FOUR_WORDS, 32, true) X(two_16, TWO_WORDS, 16, false) X(one, ONE_WORD, 32, false)

#define X(name, how, unit, minimum)                            \
    static void tiles_##name(const panel_sums *call)           \
    {                                                          \
        tiles((kind){how, unit, minimum}, call);               \
    }
KINDS(X)
#undef X

static const struct {
    kind is;
    void (*run)(const panel_sums *call);
} kinds[] = {
#define X(name, how, unit, minimum) {{how, unit, minimum}, tiles_##name},
    KINDS(X)
#undef X
};

void panel_sums_make(const panel_sums *call)
{
    const block_format *format = call->x->format;
    const way how = way_for(format);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].is.how == how && kinds[i].is.unit == format->unit && kinds[i].is.minimum == format->minimum)
            kinds[i].run(call);
}

#else

/* A unit of one row and one panel: start + the sum of q w. */
static lanes unit_sum(const int8_t *x, const uint8_t *q, int count, int32_t start)
{
    lanes real;
    for (int r = 0; r < LANES; r++) {
        int32_t sum = start;
        for (int i = 0; i < count; i++)
            sum += q[(i / 4 * LANES + r) * 4 + i % 4] * x[i];
        real[r] = (float)sum;
    }
    return real;
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

#endif
