/* kernels/stored/sums.c: see the header. A tile is some rows of x and some vectors of outputs: a vector of the panel that is loaded
 * serves all the rows, and a word of x all the vectors.
 *
 * Sums of integers are exact, so they may be made in any way. VPDPBUSD adds four products of bytes to a word at once. Without it, two
 * products are added to a half of a word, for as many words of x as these halves hold: 2 * 127 * (largest byte of the weight) each. Bytes
 * above 127 are taken apart for that. Whether the processor has VPDPBUSD is asked when the library runs; it is written as such, so that
 * kernels for all processors with AVX-512 have it.
 */
#include "kernels/stored/sums.h"

#include "kernels/common/lanes.h"
#include "kernels/common/unroll.h"
#include "kernels/stored/vectors.h"

#ifdef VECTOR_ROWS

#if VECTOR_ROWS == 16
enum { TILE_ROWS = 4, TILE_VECTORS = 2 };
#else
enum { TILE_ROWS = 2, TILE_VECTORS = 2 };
#endif
enum { VECTORS = SUMS_PANELS * PANEL_ROWS / VECTOR_ROWS };

/* How integers are summed: by VPDPBUSD; or so many words of x to a half of a word; or one, of bytes taken apart. */
typedef enum way { DOTS, EIGHT_WORDS, FOUR_WORDS, TWO_WORDS, ONE_WORD } way;

VECTOR vector pairs_add(vector halves, vector w, vector x)
{
    return V(add_epi16)(halves, V(maddubs_epi16)(w, x));
}

/* whole += the pairs of halves */
VECTOR vector halves_add(vector whole, vector halves)
{
    return V(add_epi32)(whole, V(madd_epi16)(halves, V(set1_epi16)(1)));
}

VECTOR vector dots_add(vector whole, vector w, vector x)
{
#if VECTOR_ROWS == 16
    __asm__("vpdpbusd %2, %1, %0" : "+v"(whole) : "v"(w), "v"(x));
#else
    (void)w, (void)x;
#endif
    return whole;
}

/* A vector of bytes of the weight meets `words` words of x in steps of this many. */
VECTOR int words_at_once(way how)
{
    return how == EIGHT_WORDS ? 8 : how == FOUR_WORDS ? 4 : how == TWO_WORDS ? 2 : 1;
}

/* Two kinds of sums: whole words, and halves that are added to them after some steps. */
typedef struct adding {
    vector whole, halves;
} adding;

VECTOR void add_word(way how, adding *to, vector w, vector x, int step)
{
    const int at_once = words_at_once(how);
    if (how == DOTS) {
        to->whole = dots_add(to->whole, w, x);
        return;
    }
    if (how == ONE_WORD) {
        const vector upper = V(set1_epi8)((char)0x80), high = (vector)((words)w & (words)upper), low = (vector)((words)w ^ (words)high);
        to->whole = halves_add(to->whole, V(maddubs_epi16)(low, x));
        to->whole = halves_add(to->whole, V(maddubs_epi16)(high, x));
        return;
    }
    to->halves = step % at_once ? pairs_add(to->halves, w, x) : V(maddubs_epi16)(w, x);
    if (step % at_once == at_once - 1)
        to->whole = halves_add(to->whole, to->halves);
}

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
                add_word(k.how, &add[r * TILE_VECTORS + v], w, of_x, i);
            }
        }
    UNROLL
    for (int s = 0; s < rows * TILE_VECTORS; s++) {
        const int r = s / TILE_VECTORS, v = first + s % TILE_VECTORS;
        reals scale, minimum;
        memcpy(&scale, &panel_of(call, v)->scales[unit][v * VECTOR_ROWS % PANEL_ROWS], sizeof scale);
        sum[s] += __builtin_convertvector((whole_words)add[s].whole, reals) * (scale * of[r * of_row].scale);
        if (!k.minimum)
            continue;
        memcpy(&minimum, &panel_of(call, v)->minima[unit][v * VECTOR_ROWS % PANEL_ROWS], sizeof minimum);
        sum[s] += minimum * of[r * of_row].mass;
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

static bool has_dots(void)
{
#if VECTOR_ROWS == 16
    return __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

static way way_for(const block_format *format)
{
    return has_dots() ? DOTS : format->most <= 15 ? EIGHT_WORDS : format->most <= 31 ? FOUR_WORDS : format->most <= 63 ? TWO_WORDS : ONE_WORD;
}

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
