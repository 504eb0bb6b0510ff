/* kernels/stored/dots.h: bytes of a weight times bytes of x, of a unit of several rows at once.
 *
 * Sums of integers are exact, so they may be made in any way (sums.c has one more, AMX). VPDPBUSD adds four products of bytes to a word at
 * once. Without it, two products are added to a half of a word, for as many words of x as these halves hold: 2 * 127 * (largest byte of the
 * weight) each. Bytes above 127 are taken apart for that. Whether the processor has VPDPBUSD is asked when the library runs; it is written
 * as such, so that kernels for all processors with AVX-512 have it. Header-only; any thread.
 */
#ifndef KERNELS_STORED_DOTS_H
#define KERNELS_STORED_DOTS_H

#include "kernels/common/vectors.h"
#include "kernels/stored/rounded.h"

#ifdef VECTOR_ROWS

/* How integers are summed: by VPDPBUSD; or so many words of x to a half of a word; or one, of bytes taken apart. MADE: AMX has summed them
 * before (sums.c). */
typedef enum way { DOTS, EIGHT_WORDS, FOUR_WORDS, TWO_WORDS, ONE_WORD, MADE } way;

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

/* Halves are added to whole words after this many steps. */
VECTOR int words_at_once(way how)
{
    return how == EIGHT_WORDS ? 8 : how == FOUR_WORDS ? 4 : how == TWO_WORDS ? 2 : 1;
}

/* Two kinds of sums: whole words, and halves that are added to them after some steps. */
typedef struct adding {
    vector whole, halves;
} adding;

/* One of `steps` steps of a unit. */
VECTOR void add_word(way how, adding *to, vector w, vector x, int step, int steps)
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
    if (step % at_once == at_once - 1 || step == steps - 1)
        to->whole = halves_add(to->whole, to->halves);
}

static inline bool has_dots(void)
{
#if VECTOR_ROWS == 16
    return __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

static inline way way_for(const block_format *format)
{
    return has_dots() ? DOTS : format->most <= 15 ? EIGHT_WORDS : format->most <= 31 ? FOUR_WORDS : format->most <= 63 ? TWO_WORDS : ONE_WORD;
}

/* The sums of some outputs and one unit more, by the operations of sums.h. */
VECTOR reals unit_add(reals sum, bool minimum, vector whole, const float *scales, const float *minima, const rounded_unit *of)
{
    reals scale, least;
    memcpy(&scale, scales, sizeof scale);
    sum += __builtin_convertvector((whole_words)whole, reals) * (scale * of->scale);
    if (!minimum)
        return sum;
    memcpy(&least, minima, sizeof least);
    return sum + least * of->mass;
}

#endif
#endif
