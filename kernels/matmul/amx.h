/* kernels/matmul/amx.h: sums of products of bf16, or of bytes, in the tile registers of a processor with AMX.
 *
 *     to [rows, vectors * 16] = A [rows, words] B [words, vectors * 16]      an element of A and of B is a word of 32 bits
 *
 * where a product of two words is the sum of two products of bf16 (amx_sums()), or of four products of a signed byte of A and an unsigned
 * one of B (amx_byte_sums()). Rows of A lie in a row each, B as half.c and kernels/stored/panel.h have it anyway, so this is one more way
 * to make their sums and needs no memory of its own.
 *
 * Sums of bf16 are f32. An element's bits depend on its row of A and its column of B alone, and not on which of them is A's. They are not those of VDPBF16PS: here blocks of
 * 16 pairs are summed, then added. Sums of bytes are exact integers.
 *
 * A thread begins with `amx_tiles tiles = {0}` on its stack, makes sums as often as it likes and ends with
 * amx_end(), within one kernel: nobody else's use of the registers is disturbed. Any number of threads at once.
 */
#ifndef KERNELS_MATMUL_AMX_H
#define KERNELS_MATMUL_AMX_H

#include <stdbool.h>
#include <stdint.h>

enum { AMX_ROWS = 32, AMX_VECTORS = 4, AMX_BYTE_ROWS = 16 }; /* at most, of one call */

/* Whether this processor has tiles for bf16 and bytes, the system lets this process use them, and what they compute is right.
 * Found out once. The first call asks Linux for the permission, which the whole process has from then on. */
bool amx_usable(void);

/* Whether small products of whole numbers are exact; executes the instructions, whether the processor has them or not. */
bool amx_is_right(void);

/* Whether a copy of the kernels that has products of pairs of bf16 (AVX512_BF16) uses them: true until pairs_forbid(), which the level
 * v4 calls (kernels/table/levels.c). */
bool pairs_usable(void);
void pairs_forbid(void);

/* amx_usable() is `usable` from now on, in all threads: for tests, and where the level of the kernels says so. */
void amx_pretend(bool usable);

typedef struct amx_factors {
    const char *a;     /* word i of row r: the 4 bytes at a + r * a_row + 4 * i */
    int64_t a_row;     /* bytes */
    const uint32_t *b; /* word i of column c: b[i * b_row + c] */
    int64_t b_row;     /* words */
    int64_t words;     /* of a sum */
} amx_factors;

typedef struct amx_tiles {
    int64_t rows, words; /* that the registers are set up for; 0: not at all */
} amx_tiles;

/* rows <= AMX_ROWS, vectors <= AMX_VECTORS; element [r, c] goes to to[r * to_row + c]. */
void amx_sums(amx_tiles *tiles, const amx_factors *from, int64_t rows, int64_t vectors, float *to, int64_t to_row);

/* Sums of bytes for 16 columns and `units` units of from->words words, which lie one behind the other in a row of A and in B. Element [r, c]
 * of unit u goes to to[(u * 16 + r) * to_row + c]. rows <= AMX_BYTE_ROWS, from->words <= 16. */
void amx_byte_sums(amx_tiles *tiles, const amx_factors *from, int64_t rows, int64_t units, int32_t *to, int64_t to_row);

void amx_end(amx_tiles *tiles);

#endif
