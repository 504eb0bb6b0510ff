/* apps/weir-words/words.h: counting the words of a file, as a graph of calls.
 *
 *     lane 0, on cpu:0:   read --text--> tokenise --folded, tokens--> count --entries--.
 *     lane 1, on cpu:1:   read --------> tokenise -----------------> count -----------+--> merge, on cpu:0
 *     ...
 *
 * The file is cut into blocks of equal size, dealt out to the lanes; a word belongs to the block that it begins in. Every
 * value between two calls varies in size: a block's text, its tokens, and what a lane has counted, which is empty but
 * when its table is about to be full, and in the last step. So each value has a bound that the plan knows, and what is
 * planned is what is used, however long the file is. Only the words themselves, all different ones, need memory that
 * follows the text: that is limited too.
 *
 * Words are runs of ASCII letters, digits and bytes from 128 on; letters count as small ones. Only the first TABLE_WORD_MAX
 * bytes of a longer word count.
 */
#ifndef APPS_WEIR_WORDS_WORDS_H
#define APPS_WEIR_WORDS_WORDS_H

#include "apps/weir-words/table.h"

#include <weir/weir.h>

enum { WORDS_LANES_MAX = 32 };

typedef struct words_lane {
    struct words_config *config;
    int number;
} words_lane;

typedef struct words_config {
    const char *path;     /* of the file, for errors; borrowed */
    int file;             /* descriptor; borrowed while sessions run */
    uint64_t bytes;       /* of it */
    int lanes;
    int block;            /* bytes that a step takes from the file for each lane */
    uint64_t words_bytes; /* that all different words together may take */
    uint64_t steps;       /* for all of the file; words_graph() fills it in */
    words_lane lane[WORDS_LANES_MAX]; /* words_graph()'s own */
    table total;          /* of the whole file, after that many steps; the program opens and closes it */
} words_config;

/* A new graph; NULL when there is no memory. `config` is the calls' context, and borrowed while sessions run. */
weir_graph *words_graph(words_config *config);

#endif
