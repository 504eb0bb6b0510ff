/* kernels/matmul/amx.c: 32 rows and 32 columns of sums at a time, in four of the eight tile registers.
 *
 *                     6      7     B: 16 pairs x 16 columns each
 *              4  |   0      1
 *              5  |   2      3     0 .. 3: sums, 16 rows x 16 columns
 *     A: 16 rows x 16 pairs each
 *
 * For every 16 pairs four tiles are loaded and four times TDPBF16PS is executed, which takes as long as the loads.
 * Fewer rows are fewer rows of tiles 0 .. 5, as LDTILECFG says. The pairs that are left are copied and filled up with zeros:
 * other numbers of pairs would have to be set up, which clears the sums.
 *
 * Sums of bytes take tiles 0, 4 and 6, set up for as many words as a unit has.
 *
 * The instructions are written as such: GCC's intrinsics are the same but do not say that they touch memory (a store
 * before one may be moved behind it), and need flags for the whole file. So a library that was built for any x86-64
 * has them, and whether they are used is found out when it runs.
 *
 * Few machines have AMX, so tests execute each instruction in a handler of SIGILL where there is none (tests/support/amx_machine.h). Before
 * the tiles are used, their results are held against exact sums: once in a process, a few microseconds. Why not oneDNN, which has such
 * tiles: see half.c.
 */
#include "kernels/matmul/amx.h"

#include <stddef.h>
#include <string.h>

enum { ROWS = AMX_BYTE_ROWS, PAIRS = 16, COLUMNS = 16 }; /* of a tile */

#ifdef __x86_64__

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- the instructions ---- */

#define LOAD(tile, at, row) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(at), "r"((int64_t)(row)) : "memory")
#define STORE(tile, at, row) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(at), "r"((int64_t)(row)) : "memory")
#define CLEAR(tile) __asm__ volatile("tilezero %%tmm" #tile : : : "memory")
#define MULTIPLY_ADD(sum, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : : : "memory")
#define MULTIPLY_ADD_BYTES(sum, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : : : "memory")

/* What LDTILECFG reads. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64 && offsetof(tile_config, rows) == 48, "as the processor reads it");

/* Unless it is set up: rows of A, and words of each. */
static void set_up(amx_tiles *tiles, int64_t rows, int64_t words)
{
    if (tiles->rows == rows && tiles->words == words)
        return;
    const uint8_t upper = (uint8_t)(rows < ROWS ? rows : ROWS), lower = (uint8_t)(rows - upper), depth = (uint8_t)words;
    const uint16_t a_bytes = 4 * depth;
    const tile_config config = {
        .palette = 1,
        .row_bytes = {64, 64, lower ? 64 : 0, lower ? 64 : 0, a_bytes, lower ? a_bytes : 0, 64, 64},
        .rows = {upper, upper, lower, lower, upper, lower, depth, depth},
    };
    __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory");
    tiles->rows = rows;
    tiles->words = words;
}

void amx_end(amx_tiles *tiles)
{
    if (tiles->rows)
        __asm__ volatile("tilerelease" : : : "memory");
    tiles->rows = 0;
}

/* ---- sums ---- */

/* Sixteen pairs. tall: there are more than 16 rows; wide: two vectors. Both are constants where this is inlined. */
static inline __attribute__((always_inline)) void add_pairs(bool tall, bool wide, const char *a, int64_t a_row,
                                                            const uint32_t *b, int64_t b_row)
{
    LOAD(4, a, a_row);
    LOAD(6, b, b_row * 4);
    MULTIPLY_ADD(0, 4, 6);
    if (wide) {
        LOAD(7, b + COLUMNS, b_row * 4);
        MULTIPLY_ADD(1, 4, 7);
    }
    if (tall) {
        LOAD(5, a + ROWS * a_row, a_row);
        MULTIPLY_ADD(2, 5, 6);
    }
    if (tall && wide)
        MULTIPLY_ADD(3, 5, 7);
}

/* The pairs that are left, with zeros behind them. */
typedef struct tail {
    uint32_t a[AMX_ROWS][PAIRS], b[PAIRS][2 * COLUMNS];
} tail;

static void copy_tail(tail *to, const amx_factors *from, int64_t pair, int64_t rows, int64_t columns)
{
    const int64_t left = from->words - pair;
    memset(to, 0, sizeof *to);
    for (int64_t r = 0; r < rows; r++)
        memcpy(to->a[r], from->a + r * from->a_row + pair * 4, (size_t)left * 4);
    for (int64_t p = 0; p < left; p++)
        memcpy(to->b[p], from->b + (pair + p) * from->b_row, (size_t)columns * 4);
}

static inline __attribute__((always_inline)) void add_all(bool tall, bool wide, const amx_factors *from, int64_t rows)
{
    int64_t pair = 0;
    for (; pair + PAIRS <= from->words; pair += PAIRS)
        add_pairs(tall, wide, from->a + pair * 4, from->a_row, from->b + pair * from->b_row, from->b_row);
    if (pair < from->words) {
        tail rest;
        copy_tail(&rest, from, pair, rows, wide ? 2 * COLUMNS : COLUMNS);
        add_pairs(tall, wide, (const char *)rest.a, sizeof rest.a[0], rest.b[0], 2 * COLUMNS);
    }
}

static inline __attribute__((always_inline)) void sums(bool tall, bool wide, const amx_factors *from, int64_t rows,
                                                       float *to, int64_t to_row)
{
    float *const below = to + ROWS * to_row;
    CLEAR(0);
    if (wide)
        CLEAR(1);
    if (tall)
        CLEAR(2);
    if (tall && wide)
        CLEAR(3);
    add_all(tall, wide, from, rows);
    STORE(0, to, to_row * 4);
    if (wide)
        STORE(1, to + COLUMNS, to_row * 4);
    if (tall)
        STORE(2, below, to_row * 4);
    if (tall && wide)
        STORE(3, below + COLUMNS, to_row * 4);
}

void amx_sums(amx_tiles *tiles, const amx_factors *from, int64_t rows, int64_t vectors, float *to, int64_t to_row)
{
    amx_factors at = *from;
    set_up(tiles, rows, PAIRS);
    for (int64_t v = 0; v < vectors; v += 2, at.b += 2 * COLUMNS, to += 2 * COLUMNS)
        if (rows > ROWS)
            v + 1 < vectors ? sums(true, true, &at, rows, to, to_row) : sums(true, false, &at, rows, to, to_row);
        else
            v + 1 < vectors ? sums(false, true, &at, rows, to, to_row) : sums(false, false, &at, rows, to, to_row);
}

void amx_byte_sums(amx_tiles *tiles, const amx_factors *from, int64_t rows, int64_t units, int32_t *to, int64_t to_row)
{
    const char *a = from->a;
    const uint32_t *b = from->b;
    set_up(tiles, rows, from->words);
    for (int64_t u = 0; u < units; u++, a += 4 * from->words, b += from->words * from->b_row, to += ROWS * to_row) {
        LOAD(4, a, from->a_row);
        LOAD(6, b, from->b_row * 4);
        CLEAR(0);
        MULTIPLY_ADD_BYTES(0, 4, 6);
        STORE(0, to, to_row * 4);
    }
}

/* ---- whether there are such tiles ---- */

enum { TRIAL_ROWS = 19, TRIAL_VECTORS = 3, TRIAL_PAIRS = 21, TRIAL_COLUMNS = TRIAL_VECTORS * COLUMNS };

/* The processor has AMX-TILE, AMX-BF16 and AMX-INT8, and Linux lets this process have the large state that belongs to them. */
static bool permitted(void)
{
    enum { LEAF = 7, BF16 = 1 << 22, TILE = 1 << 24, INT8 = 1 << 25, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    return __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && d & BF16 && d & TILE && d & INT8 &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

/* A whole number from -3 to 3, which bf16 holds. */
static float trial_value(int64_t i)
{
    return (float)(i * 5 % 7 - 3);
}

static void trial_fill(uint32_t *to, int64_t count, int64_t first)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t low, high;
        const float value[2] = {trial_value(first + 2 * i), trial_value(first + 2 * i + 1)};
        memcpy(&low, &value[0], sizeof low);
        memcpy(&high, &value[1], sizeof high);
        to[i] = low >> 16 | (high & 0xFFFF0000);
    }
}

static float trial_sum(int64_t row, int64_t column)
{
    float sum = 0;
    for (int64_t p = 0; p < TRIAL_PAIRS; p++)
        for (int64_t t = 0; t < 2; t++)
            sum += trial_value(2 * (row * TRIAL_PAIRS + p) + t) * trial_value(2 * (p * TRIAL_COLUMNS + column) + t + 1);
    return sum;
}

/* Every kind of tile, and a tail; all sums are whole numbers, so they are exact in any order. */
static bool pairs_are_right(void)
{
    uint32_t a[TRIAL_ROWS * TRIAL_PAIRS], b[TRIAL_PAIRS * TRIAL_COLUMNS];
    float to[TRIAL_ROWS * TRIAL_COLUMNS];
    amx_tiles tiles = {0};
    trial_fill(a, TRIAL_ROWS * TRIAL_PAIRS, 0);
    trial_fill(b, TRIAL_PAIRS * TRIAL_COLUMNS, 1);
    amx_sums(&tiles, &(amx_factors){(char *)a, TRIAL_PAIRS * 4, b, TRIAL_COLUMNS, TRIAL_PAIRS}, TRIAL_ROWS,
             TRIAL_VECTORS, to, TRIAL_COLUMNS);
    amx_end(&tiles);
    for (int64_t i = 0; i < TRIAL_ROWS * TRIAL_COLUMNS; i++)
        if (to[i] != trial_sum(i / TRIAL_COLUMNS, i % TRIAL_COLUMNS))
            return false;
    return true;
}

/* Two units of eight words; bytes of all values. */
enum { TRIAL_UNITS = 2, TRIAL_WORDS = 8, TRIAL_BYTES = 4 * TRIAL_WORDS * TRIAL_UNITS };

static int32_t trial_byte_sum(const int8_t *a, const uint8_t *b, int64_t unit)
{
    int32_t sum = 0;
    for (int64_t i = unit * 4 * TRIAL_WORDS; i < (unit + 1) * 4 * TRIAL_WORDS; i++)
        sum += a[i] * b[i / 4 * 4 * COLUMNS + i % 4];
    return sum;
}

static bool bytes_are_right(void)
{
    int8_t a[ROWS * TRIAL_BYTES];
    uint32_t words[TRIAL_BYTES / 4 * COLUMNS];
    uint8_t b[sizeof words];
    int32_t to[TRIAL_UNITS * ROWS * COLUMNS];
    amx_tiles tiles = {0};
    for (int64_t i = 0; i < ROWS * TRIAL_BYTES; i++)
        a[i] = (int8_t)(i * 37 % 256 - 128);
    for (size_t i = 0; i < sizeof b; i++)
        b[i] = (uint8_t)(i * 91);
    memcpy(words, b, sizeof b);
    amx_byte_sums(&tiles, &(amx_factors){(char *)a, TRIAL_BYTES, words, COLUMNS, TRIAL_WORDS}, ROWS, TRIAL_UNITS, to, COLUMNS);
    amx_end(&tiles);
    for (int64_t i = 0; i < TRIAL_UNITS * ROWS * COLUMNS; i++)
        if (to[i] != trial_byte_sum(a + i / COLUMNS % ROWS * TRIAL_BYTES, b + i % COLUMNS * 4, i / COLUMNS / ROWS))
            return false;
    return true;
}

bool amx_is_right(void)
{
    return pairs_are_right() && bytes_are_right();
}

#else

static bool permitted(void)
{
    return false;
}

bool amx_is_right(void)
{
    return false;
}

void amx_sums(amx_tiles *tiles, const amx_factors *from, int64_t rows, int64_t vectors, float *to, int64_t to_row)
{
    (void)tiles, (void)from, (void)rows, (void)vectors, (void)to, (void)to_row;
}

void amx_byte_sums(amx_tiles *tiles, const amx_factors *from, int64_t rows, int64_t units, int32_t *to, int64_t to_row)
{
    (void)tiles, (void)from, (void)rows, (void)units, (void)to, (void)to_row;
}

void amx_end(amx_tiles *tiles)
{
    (void)tiles;
}

#endif

/* Threads that ask at the same time find the same. Relaxed: nothing else is passed on with it. */
enum { NOT_ASKED, NO, YES };
static int answer = NOT_ASKED;

bool amx_usable(void)
{
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    if (known == NOT_ASKED) {
        known = permitted() && amx_is_right() ? YES : NO;
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return known == YES;
}

void amx_pretend(bool usable)
{
    __atomic_store_n(&answer, usable ? YES : NO, __ATOMIC_RELAXED);
}

static int forbidden;

bool pairs_usable(void)
{
    return !__atomic_load_n(&forbidden, __ATOMIC_RELAXED);
}

void pairs_forbid(void)
{
    __atomic_store_n(&forbidden, 1, __ATOMIC_RELAXED);
}
