/* graph/data/data.h: files of samples as one list (include/weir/data.h).
 *
 *     epoch's place -> order_at() -> sample of the range -> file, element -> bytes
 *
 * Nothing here changes once it is open, but for the list of feeds, which inputs of graphs add to.
 */
#ifndef GRAPH_DATA_DATA_H
#define GRAPH_DATA_DATA_H

#include <stdatomic.h>
#include <weir/data.h>

#include "graph/data/file.h"

/* The context of an input's source. A plan outlives the graph, so the data owns it. */
struct data_feed {
    const weir_data *data;
    int64_t rows;
    int micro_batches;  /* 0: one value a step */
    bool labels;
    struct data_feed *next;
};

struct weir_data {
    struct data_file *file;   /* owned, as what they hold */
    weir_data_info info;
    const char *call;         /* "weir_data_tokens", in errors */
    bool tokens, sequential;
    int64_t sample_elements;  /* of one: seq, or those of a row */
    int64_t vocab;
    uint64_t seed;
    int64_t begin, count;     /* the range of all samples that is used; info.samples of them, spread evenly */
    _Atomic(struct data_feed *) feeds; /* owned */
};

#endif
