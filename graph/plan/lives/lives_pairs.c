/* graph/plan/lives/lives_pairs.c: lives_apart_known() of all pairs of parts, a square of 64 x 64 of them at a time.
 *
 *     there [i]   the parts j of which the start is reached from the end of part i: a bit for each, found in the rows of i
 *     back  [i]   the parts j from whose ends the start of part i is reached: found in the rows of j, and then transposed
 *
 * So a pair takes a few operations on 64 bits at once, but for pairs in which an actor both ends one life and begins the other:
 * these are asked about one by one, if the rows say that they may be apart.
 */
#include "graph/plan/lives/lives_inside.h"

#include <string.h>

enum { SIDE = 64 };

/* Up to 64 parts. */
typedef struct side {
    const life_known *part;
    int count;
    uint64_t bit[SIDE];                    /* by part: of its column in a word of a row */
    int words;                             /* in which columns of the parts are: */
    uint32_t word[SIDE];                   /* which */
    uint64_t of_word[SIDE];                /* the parts that have their column there */
    uint64_t outside, always, by_firings;  /* a bit for each part */
    bool one_program;
} side;

/* From the ends of the parts of one side to the starts of the parts of the other. */
typedef struct distances {
    uint64_t now[SIDE], within[SIDE], self[SIDE];
} distances;

static void side_add_column(side *s, int i, uint32_t column)
{
    int w = s->words;
    while (w && s->word[w - 1] != column / 64)
        w--;
    if (!w) {
        w = ++s->words;
        s->word[w - 1] = column / 64;
    }
    s->of_word[w - 1] |= UINT64_C(1) << i;
    s->bit[i] = column % 64;
}

static side side_of(const life_known *part, int count)
{
    side s = {.part = part, .count = count < SIDE ? count : SIDE, .one_program = true};
    for (int i = 0; i < s.count; i++) {
        side_add_column(&s, i, part[i].column);
        s.outside |= (uint64_t)part[i].outside << i;
        s.always |= (uint64_t)part[i].always << i;
        s.by_firings |= (uint64_t)part[i].by_firings << i;
        s.one_program &= part[i].program == part[0].program;
    }
    return s;
}

typedef uint64_t eight __attribute__((vector_size(8 * sizeof(uint64_t))));

/* Bit j: bit bit[j] of the word. */
static uint64_t pick_from(uint64_t word, const uint64_t bit[SIDE])
{
    eight at = {0, 1, 2, 3, 4, 5, 6, 7}, from, bits = {};
    for (int j = 0; j < SIDE; j += 8, at += 8) {
        memcpy(&from, bit + j, sizeof from);
        bits |= (word >> from & 1) << at;
    }
    uint64_t all = 0;
    for (int i = 0; i < 8; i++)
        all |= bits[i];
    return all;
}

/* Bit j: the bit of part j's column. */
static uint64_t pick(const uint64_t *row, const side *of)
{
    uint64_t bits = 0;
    for (int w = 0; w < of->words; w++)
        if (row[of->word[w]])
            bits |= pick_from(row[of->word[w]], of->bit) & of->of_word[w];
    return bits;
}

static void find_distances(const lives *l, const reach *r, const side *from, const side *to, distances *d)
{
    const size_t words = l->here->words, now = words * (r == &l->steps ? ROW_NOW : ROW_NOW + 2);
    memset(d, 0, sizeof *d);
    for (int i = 0; i < from->count; i++) {
        const uint64_t *rows = from->part[i].rows;
        if (from->part[i].always)
            continue;
        if (i && rows == from->part[i - 1].rows) { /* temporaries of one actor */
            d->now[i] = d->now[i - 1], d->within[i] = d->within[i - 1], d->self[i] = d->self[i - 1];
            continue;
        }
        d->now[i] = pick(rows + now, to);
        d->within[i] = d->now[i] | pick(rows + now + words, to);
        d->self[i] = pick(rows + ROW_SELF * words, to);
    }
}

/* Bit j of row i becomes bit i of row j: halves change places, then quarters, and so on. */
static void transpose(uint64_t square[SIDE])
{
    uint64_t mask = UINT64_C(0xFFFFFFFF);
    for (int width = SIDE / 2; width; width /= 2, mask ^= mask << width)
        for (int i = 0; i < SIDE; i = (i + width + 1) & ~width) {
            const uint64_t change = (square[i] >> width ^ square[i + width]) & mask;
            square[i] ^= change << width;
            square[i + width] ^= change;
        }
}

/* Adds the pairs that one graph proves apart. */
static void add_apart(const lives *l, const reach *r, const side *x, const side *y, uint64_t apart[SIDE])
{
    distances there, back;
    find_distances(l, r, x, y, &there);
    find_distances(l, r, y, x, &back);
    transpose(back.now);
    transpose(back.within);
    transpose(back.self);
    for (int i = 0; i < x->count; i++) {
        uint64_t found = (there.now[i] & back.within[i]) | (there.within[i] & back.now[i]);
        for (uint64_t ask = found & (there.self[i] | back.self[i]); ask; ask &= ask - 1) {
            const int j = __builtin_ctzll(ask);
            if (!lives_apart_in(l, r, &x->part[i], &y->part[j]))
                found &= ~(UINT64_C(1) << j);
        }
        apart[i] |= found;
    }
}

static uint64_t of_program(const side *s, uint32_t program)
{
    uint64_t bits = s->one_program && s->part[0].program == program ? UINT64_MAX : 0;
    if (s->one_program)
        return bits;
    for (int j = 0; j < s->count; j++)
        bits |= (uint64_t)(s->part[j].program == program) << j;
    return bits;
}

/* Bit j of row i: part i of x and part j of y are apart. */
static void find_apart(const lives *l, const side *x, const side *y, uint64_t apart[SIDE])
{
    const bool differ = x->one_program && y->one_program && x->part[0].program != y->part[0].program;
    memset(apart, 0, SIDE * sizeof *apart);
    if (!differ)
        add_apart(l, &l->steps, x, y, apart);
    if (!differ && l->rows == ROWS_OF_BOTH && x->by_firings && y->by_firings) {
        uint64_t firings[SIDE] = {0};
        add_apart(l, &l->firings, x, y, firings);
        for (int i = 0; i < x->count; i++)
            apart[i] |= x->by_firings >> i & 1 ? firings[i] & y->by_firings : 0;
    }
    const uint64_t inside = ~(y->outside | y->always);
    for (int i = 0; i < x->count; i++) {
        const uint64_t same = of_program(y, x->part[i].program);
        const bool here = (x->outside | x->always) >> i & 1;
        apart[i] = (apart[i] & same) | (here ? 0 : inside & ~same);
    }
}

/* Enters a square and, on the other side of the diagonal, its transpose. */
static void enter(uint64_t *meet, size_t words, int row, int column, const side *y, uint64_t square[SIDE], int rows)
{
    const uint64_t all = y->count < SIDE ? (UINT64_C(1) << y->count) - 1 : UINT64_MAX;
    for (int i = 0; i < SIDE; i++)
        square[i] = i < rows ? ~square[i] & all : 0;
    for (int i = 0; i < rows; i++)
        meet[(size_t)(row + i) * words + (size_t)column / SIDE] = square[i];
    transpose(square);
    for (int j = 0; j < y->count; j++)
        meet[(size_t)(column + j) * words + (size_t)row / SIDE] = square[j];
}

void lives_pairs(const lives *l, const life_known *part, int count, uint64_t *meet)
{
    const size_t words = ((size_t)count + SIDE - 1) / SIDE;
    for (int row = 0; row < count; row += SIDE) {
        const side x = side_of(part + row, count - row);
        for (int column = 0; column <= row; column += SIDE) {
            const side y = side_of(part + column, count - column);
            uint64_t square[SIDE] = {0};
            if (!l->here->unknown)
                find_apart(l, &x, &y, square);
            enter(meet, words, row, column, &y, square, x.count);
        }
    }
    for (int i = 0; i < count; i++)
        meet[(size_t)i * words + (size_t)i / SIDE] &= ~(UINT64_C(1) << i % SIDE);
}
