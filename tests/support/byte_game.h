/* tests/support/byte_game.h: the token game with a marker on every stretch of bytes while it is needed.
 *
 * check.c plays the game by counting; here it is played kernel by kernel, in an order drawn from a seed: queues go
 * forward at their own paces, one runs as far ahead of the others as credits let it, runs of several programs follow
 * each other, and the program around weir pushes and pulls whenever it may: before a run of that program, and long
 * after. A slot is marked from the kernel that first writes it until each of its readers has called the last kernel
 * that reads it; a temporary from its first kernel to its last; scratch while its kernel is called; what is full at the
 * start, states and snapshots always. Two markers on one byte end the game: a plan had parts on the same bytes that
 * some order needs at once.
 *
 * Nothing is taken from graph/plan/lives/lives.h, which this is held against.
 */
#ifndef TESTS_SUPPORT_BYTE_GAME_H
#define TESTS_SUPPORT_BYTE_GAME_H

#include "graph/plan/lives/arrivals.h"

typedef struct byte_run {
    uint32_t program, steps;
} byte_run;

/* Plays the runs, the steps of each without a pause between them, and true; or false, with a sentence in `why` that
 * names both parts ("regsts[3] and tensors[12] ..."), or says that nobody could fire. */
bool byte_game_play(const weir_plan *plan, const byte_run *runs, uint32_t count, uint64_t seed, char why[256]);

/* A few games, each of some runs of programs that are drawn; stops at the first that ends early. */
bool byte_game_all(const weir_plan *plan, uint64_t seed, int games, char why[256]);

/* The same where parts come to where they are gathered: those of the list that are proven, or are said to be. Such a part
 * has its bytes from the end of the firing that makes it to the gather; of another register that still has them, those
 * readers count that read the same elements. */
bool byte_game_arrivals(const weir_plan *plan, const arrival *list, uint32_t count, uint64_t seed, int games,
                        char why[256]);

#endif
