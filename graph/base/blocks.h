/* graph/base/blocks.h: formats of quantised weights: rows of blocks, as GGUF files have them.
 *
 * A block has a scale, often a minimum, and a small integer for each of its 32 or 256 elements. A row of a tensor is a whole number
 * of blocks, so element i is in block i / elements. The formulas, with the order of their operations, are those of ggml
 * (dequantize_row_* in ggml-quants.c), and so the bits are equal.
 *
 *     Q4_0, Q5_0, Q8_0    d * q          d: f16, a scale
 *     Q4_1, Q5_1          d * q + m      m: f16, a minimum
 *     Q4_K                (d * scale) * q - (least * minimum): scale and minimum of 6 bits for 32 elements each
 *     Q6_K                (d * scale) * q: a scale of 8 bits for 16 elements each
 *
 * A *unit* is the elements that share a scale: 32, or 16 of Q6_K. Each format gives its units in one form, which is what products
 * compute with:
 *
 *     element = scale * (q - zero) + minimum      q: a byte from 0 to `most`; zero: a constant of the format
 *
 * The scale and the minimum of a unit are exact in f32. Blocks need no alignment. Pure functions; any thread.
 */
#ifndef GRAPH_BASE_BLOCKS_H
#define GRAPH_BASE_BLOCKS_H

#include <weir/base.h>

enum { BLOCK_ELEMENTS_MAX = 256, BLOCK_UNIT_MAX = 32, BLOCK_BYTES_MAX = 210 };

typedef struct block_format {
    const char *name;    /* "Q4_1" */
    int elements, bytes; /* of a block */
    int unit;            /* elements of a unit */
    int zero, most;
    bool minimum;        /* whether units have a minimum; else zero is not 0 */
} block_format;

/* Unit `unit` of a block. *minimum is 0 where the format has none. */
typedef struct block_unit {
    uint8_t q[BLOCK_UNIT_MAX];
    float scale, minimum;
} block_unit;

/* NULL: WEIR_DENSE, or a number that is no format. */
const block_format *block_format_of(int64_t format);

/* The format that has the name; WEIR_DENSE: none has it. */
weir_format block_format_named(const char *name);

void block_unit_read(weir_format format, const unsigned char *block, int unit, block_unit *to);

/* All elements of a block. */
void block_read(weir_format format, const unsigned char *block, float *to);

/* Elements [from, from + count) of a row of blocks. */
void block_read_row(weir_format format, const unsigned char *row, int64_t from, int64_t count, float *to);

#endif
