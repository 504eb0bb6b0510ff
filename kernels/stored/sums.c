/* kernels/stored/sums.c: see the header. A tile is some rows of x and some vectors of outputs: a vector of the panel that is loaded
 * serves all the rows, and a word of x all the vectors.
 *
 * Where the processor has AMX and there are enough rows, its tiles make the sums of integers of 16 rows, 32 outputs and UNITS units, which
 * stay in the first-level cache. Then the loops for vectors scale and add them as they do with their own, so the bits are the same. An
 * Emerald Rapids read a prompt of 335 tokens (SmolLM2 in Q4_1) at 818 tokens/s with AMX and at 677 with VPDPBUSD, medians of six turns. Each
 * unit of 32 elements has a scale, so a tile holds the sums of one unit: two loads, one product and one store of tiles, 15 ns, of which the
 * store takes half. Beside other programs 16 rows took as long either way, and 8 rows 1.1 to 1.25 times as long with AMX. So fewer rows than
 * ROWS_LEAST, and the units of 16 of Q6_K, stay with VPDPBUSD. */
#include "kernels/stored/sums.h"

#include "kernels/common/lanes.h"
#include "kernels/common/unroll.h"
#include "kernels/matmul/amx.h"
#include "kernels/stored/dots.h"

enum {
    COLUMNS = SUMS_PANELS * PANEL_ROWS,
    UNITS = 8,       /* of one call of AMX */
    UNIT_LEAST = 32, /* elements, for AMX */
    ROWS_LEAST = 16, /* for AMX */
};

/* A call for some rows and elements. */
typedef struct part {
    panel_sums call;
    int64_t unit;         /* of the panels, that the elements begin with */
    const int32_t *whole; /* [units, AMX_BYTE_ROWS, COLUMNS], the sums of integers that AMX made; NULL: they are not made */
} part;

#ifdef VECTOR_ROWS

#if VECTOR_ROWS == 16
enum { TILE_ROWS = 4, TILE_VECTORS = 2 };
#else
enum { TILE_ROWS = 2, TILE_VECTORS = 2 };
#endif
enum { VECTORS = COLUMNS / VECTOR_ROWS };

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

/* The sums of integers of one unit of a tile: rows of x from `x` on, vectors from `first` on. */
VECTOR void add_words(kind k, int rows, const panel_sums *call, const int8_t *x, int64_t unit, int first, adding add[TILE_ROWS * TILE_VECTORS])
{
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
}

/* The same, where AMX made them. */
VECTOR void add_made(int rows, const int32_t *whole, adding add[TILE_ROWS * TILE_VECTORS])
{
    UNROLL
    for (int s = 0; s < rows * TILE_VECTORS; s++) {
        vector made;
        memcpy(&made, whole + s / TILE_VECTORS * COLUMNS + s % TILE_VECTORS * VECTOR_ROWS, sizeof made);
        add[s].whole = V(add_epi32)(add[s].whole, made);
    }
}

/* One unit of a tile. */
VECTOR void tile_unit(kind k, int rows, const part *p, int64_t row, const int8_t *x, const rounded_unit *of, int64_t of_row, int64_t unit, int first,
                      reals sum[TILE_ROWS * TILE_VECTORS])
{
    const int64_t of_panel = k.how == MADE ? p->unit + unit : unit;
    adding add[TILE_ROWS * TILE_VECTORS];
    UNROLL
    for (int s = 0; s < rows * TILE_VECTORS; s++)
        add[s].whole = V(set1_epi32)(k.minimum ? 0 : of[s / TILE_VECTORS * of_row].start);
    if (k.how == MADE)
        add_made(rows, p->whole + (unit * AMX_BYTE_ROWS + row) * COLUMNS + first * VECTOR_ROWS, add);
    else
        add_words(k, rows, &p->call, x, unit, first, add);
    UNROLL
    for (int s = 0; s < rows * TILE_VECTORS; s++) {
        const int r = s / TILE_VECTORS, v = first + s % TILE_VECTORS;
        const panel *w = panel_of(&p->call, v);
        const int column = v * VECTOR_ROWS % PANEL_ROWS;
        sum[s] = unit_add(sum[s], k.minimum, add[s].whole, &w->scales[of_panel][column], &w->minima[of_panel][column], &of[r * of_row]);
    }
}

VECTOR void tile(kind k, int rows, const part *p, int64_t row, int first)
{
    const panel_sums *call = &p->call;
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
        tile_unit(k, rows, p, row, x + unit * k.unit, of + unit, of_row, unit, first, sum);
    UNROLL
    for (int s = 0; s < rows * TILE_VECTORS; s++)
        memcpy(y + s / TILE_VECTORS * call->y_row + s % TILE_VECTORS * VECTOR_ROWS, &sum[s], sizeof *sum);
}

VECTOR void tiles(kind k, const part *p)
{
    for (int first = 0; first < VECTORS; first += TILE_VECTORS) {
        int64_t row = 0;
        for (; row + TILE_ROWS <= p->call.rows; row += TILE_ROWS)
            tile(k, TILE_ROWS, p, row, first);
        for (; row < p->call.rows; row++)
            tile(k, 1, p, row, first);
    }
}

/* name, how, elements of a unit, whether units have a minimum */
#define KINDS(X)                                                                                              \
    X(dots, DOTS, 32, false) X(dots_minimum, DOTS, 32, true) X(dots_16, DOTS, 16, false)                      \
    X(eight, EIGHT_WORDS, 32, false) X(eight_minimum, EIGHT_WORDS, 32, true) X(four, FOUR_WORDS, 32, false)   \
    X(four_minimum, FOUR_WORDS, 32, true) X(two_16, TWO_WORDS, 16, false) X(one, ONE_WORD, 32, false)         \
    X(made, MADE, 32, false) X(made_minimum, MADE, 32, true)

#define X(name, how, unit, minimum)                            \
    static void tiles_##name(const part *p)                    \
    {                                                          \
        tiles((kind){how, unit, minimum}, p);                  \
    }
KINDS(X)
#undef X

static const struct {
    kind is;
    void (*run)(const part *p);
} kinds[] = {
#define X(name, how, unit, minimum) {{how, unit, minimum}, tiles_##name},
    KINDS(X)
#undef X
};

static void run(const part *p)
{
    const block_format *format = p->call.x->format;
    const way how = p->whole ? MADE : way_for(format);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].is.how == how && kinds[i].is.unit == format->unit && kinds[i].is.minimum == format->minimum)
            kinds[i].run(p);
}

#else

/* A unit of one row and one panel: start + the sum of q w. made: these sums, or NULL. */
static lanes unit_sum(const int8_t *x, const uint8_t *q, const int32_t *made, int count, int32_t start)
{
    const int terms = made ? 0 : count;
    lanes real;
    for (int r = 0; r < LANES; r++) {
        int32_t sum = start + (made ? made[r] : 0);
        for (int i = 0; i < terms; i++)
            sum += q[(i / 4 * LANES + r) * 4 + i % 4] * x[i];
        real[r] = (float)sum;
    }
    return real;
}

/* Row `row` of the part, and its panel `number`. */
static void panel_row(const part *p, int64_t row, int number)
{
    const panel_sums *call = &p->call;
    const panel *w = &call->panels[number];
    const block_format *format = call->x->format;
    const int64_t at = (call->row + row) * call->x->in + call->from;
    const rounded_unit *of = call->x->units + at / format->unit;
    float *y = call->y + row * call->y_row + number * PANEL_ROWS;
    lanes sum = call->add ? lanes_load(y) : (lanes){};
    for (int64_t u = 0; u < call->elements / format->unit; u++) {
        const int64_t unit = p->unit + u;
        const int32_t *made = p->whole ? p->whole + (u * AMX_BYTE_ROWS + row) * COLUMNS + number * PANEL_ROWS : NULL;
        const lanes whole = unit_sum(call->x->q + at + u * format->unit, w->q + unit * format->unit * PANEL_ROWS, made, format->unit,
                                     format->minimum ? 0 : of[u].start);
        sum += whole * (lanes_load(w->scales[unit]) * of[u].scale);
        if (format->minimum)
            sum += lanes_load(w->minima[unit]) * of[u].mass;
    }
    lanes_store(y, &sum);
}

static void run(const part *p)
{
    for (int64_t r = 0; r < p->call.rows; r++)
        for (int number = 0; number < SUMS_PANELS; number++)
            panel_row(p, r, number);
}

#endif

/* ---- AMX ---- */

/* AMX_BYTE_ROWS rows or fewer. */
static void run_with_amx(panel_sums call, amx_tiles *amx)
{
    _Alignas(64) int32_t whole[UNITS * AMX_BYTE_ROWS * COLUMNS];
    const int unit = call.x->format->unit;
    const int64_t units = call.elements / unit;
    for (int64_t u = 0, count; u < units; u += count) {
        count = units - u < UNITS ? units - u : UNITS;
        for (int p = 0; p < SUMS_PANELS; p++) {
            const char *x = (const char *)call.x->q + call.row * call.x->in + call.from;
            const void *q = call.panels[p].q + u * unit * PANEL_ROWS;
            amx_byte_sums(amx, &(amx_factors){x, call.x->in, q, PANEL_ROWS, unit / 4}, call.rows, count, whole + p * PANEL_ROWS, COLUMNS);
        }
        call.elements = count * unit;
        run(&(part){call, u, whole});
        call.from += call.elements;
        call.add = true;
    }
}

/* As many of the first rows as AMX multiplies; they are taken off. */
static void take_rows_for_amx(panel_sums *call)
{
    amx_tiles amx = {0};
    while (call->rows >= ROWS_LEAST) {
        panel_sums some = *call;
        some.rows = call->rows < AMX_BYTE_ROWS ? call->rows : AMX_BYTE_ROWS;
        run_with_amx(some, &amx);
        call->row += some.rows;
        call->rows -= some.rows;
        call->y += some.rows * call->y_row;
    }
    amx_end(&amx);
}

void panel_sums_make(const panel_sums *call)
{
    part p = {.call = *call};
    if (call->x->format->unit >= UNIT_LEAST && amx_usable())
        take_rows_for_amx(&p.call);
    run(&p);
}
