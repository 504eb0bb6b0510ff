/* kernels/stored/single.c: see the header. Sums are made by rows (unpack.h), a lane of sixteen bytes of x times those of each row. The words
 * of a row are added up behind that, which takes less work than to turn all words of the weight over first. */
#include "kernels/stored/single.h"

#include "kernels/stored/dots.h"
#include "kernels/stored/unpack.h"

#ifdef VECTOR_ROWS

/* Constants where it is inlined. */
typedef struct kind {
    way how;
    int elements, bytes, units; /* of a block */
    bool minimum;
} kind;

/* One unit of VECTOR_ROWS rows: the sums of integers. */
VECTOR vector unit_sums(kind k, const uint8_t *q, const int8_t *x)
{
    const int lanes = k.elements / k.units / 16;
    adding add[4];
    vector whole[4];
    UNROLL
    for (int j = 0; j < 4; j++)
        add[j].whole = V(set1_epi32)(0);
    UNROLL
    for (int i = 0; i < lanes; i++) {
        const vector of_x = sixteen_bytes_of_all(x + 16 * i);
        UNROLL
        for (int j = 0; j < 4; j++) {
            vector w;
            memcpy(&w, q + (4 * i + j) * PANEL_ROWS * 4, sizeof w);
            add_word(k.how, &add[j], w, of_x, i, lanes);
        }
    }
    UNROLL
    for (int j = 0; j < 4; j++)
        whole[j] = add[j].whole;
    return rows_sum(whole);
}

/* A block of VECTOR_ROWS rows. */
VECTOR reals block_add(kind k, void (*block)(const place *p), place p, const int8_t *x, const rounded_unit *of, reals sum)
{
    const int unit = k.elements / k.units;
    _Alignas(64) uint8_t q[BLOCK_ELEMENTS_MAX * PANEL_ROWS];
    _Alignas(64) float scales[BLOCK_ELEMENTS_MAX / 16][PANEL_ROWS], minima[BLOCK_ELEMENTS_MAX / 16][PANEL_ROWS];
    p.q = q;
    p.scales = scales[0];
    p.minima = minima[0];
    block(&p);
    for (int u = 0; u < k.units; u++) {
        vector whole = unit_sums(k, q + u * unit * PANEL_ROWS, x + u * unit);
        if (!k.minimum)
            whole = V(add_epi32)(whole, V(set1_epi32)(of[u].start));
        sum = unit_add(sum, k.minimum, whole, scales[u], minima[u], &of[u]);
    }
    return sum;
}

enum { AHEAD = 4 * PANEL_ROWS }; /* rows */

/* The outputs of 16 rows of w. */
VECTOR void sixteen_rows(kind k, void (*block)(const place *p), const stored_weight *w, const unsigned char *rows, const rounded_rows *x, float *y)
{
    const int64_t blocks = w->in / k.elements;
    block_header headers[VECTORS][HEADERS];
    row_places at[VECTORS];
    reals sum[VECTORS] = {};
    UNROLL
    for (int v = 0; v < VECTORS; v++)
        at[v] = row_places_of(rows + v * VECTOR_ROWS * w->row_bytes, w->row_bytes);
    for (int64_t b = 0; b < blocks; b++) {
        ask_for_blocks(rows + AHEAD * w->row_bytes + b * PANEL_ROWS * k.bytes, k.bytes);
        UNROLL
        for (int v = 0; v < VECTORS; v++) {
            const block_header *header = k.units == 1 ? header_of(&at[v], b, blocks, k.bytes, k.minimum, headers[v]) : NULL;
            sum[v] = block_add(k, block, (place){at[v], header, true, NULL, NULL, NULL}, x->q + b * k.elements, x->units + b * k.units, sum[v]);
            rows_move(&at[v], k.bytes);
        }
    }
    memcpy(y, sum, sizeof sum);
}

VECTOR int64_t groups(kind k, void (*block)(const place *p), const stored_weight *w, const rounded_rows *x, float *y)
{
    int64_t row = 0;
    for (; row + PANEL_ROWS <= w->out; row += PANEL_ROWS)
        sixteen_rows(k, block, w, w->at + row * w->row_bytes, x, y + row);
    return row;
}

#define X(name, block, elements, bytes, units, minimum, how)                                      \
    static int64_t groups_##block(const stored_weight *w, const rounded_rows *x, float *y)        \
    {                                                                                             \
        if (has_dots())                                                                           \
            return groups((kind){DOTS, elements, bytes, units, minimum}, block_##block, w, x, y); \
        return groups((kind){how, elements, bytes, units, minimum}, block_##block, w, x, y);      \
    }
UNPACKED_FORMATS(X)
#undef X

int64_t single_multiply(const stored_weight *w, const rounded_rows *x, float *y)
{
    static int64_t (*const of[])(const stored_weight *w, const rounded_rows *x, float *y) = {
#define X(name, block, ...) [WEIR_##name] = groups_##block,
        UNPACKED_FORMATS(X)
#undef X
    };
    return of[w->format](w, x, y);
}

#else

int64_t single_multiply(const stored_weight *w, const rounded_rows *x, float *y)
{
    (void)w, (void)x, (void)y;
    return 0;
}

#endif
