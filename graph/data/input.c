/* graph/data/input.c: samples as inputs of a graph.
 *
 * The value of a step is a function of the step, so a checkpoint keeps no position: only what shows that another session reads
 * the same samples in the same order.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"
#include "graph/data/data.h"
#include "graph/model/build.h"

/* ---- the source ---- */

/* The number of the first sample of a value. False: beyond what can be counted. */
static bool first_of(const struct data_feed *feed, int64_t step, int micro, int64_t *first)
{
    const int64_t values = feed->micro_batches ? feed->micro_batches : 1;
    return !__builtin_mul_overflow(step, values, first) && !__builtin_add_overflow(*first, micro, first) &&
           !__builtin_mul_overflow(*first, feed->rows, first);
}

static weir_status give(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    const struct data_feed *feed = ctx;
    int64_t first;
    if (!first_of(feed, step, micro, &first))
        return error_set(WEIR_E_ARGUMENT, "step %" PRId64 " is too large: its samples have no number below 2^63", step);
    return weir_data_read(feed->data, first, feed->labels, dst);
}

static const char note_format[] = "samples %" SCNd64 " seed %" SCNu64 " sequential %d hash %" SCNx64;

static weir_status save(void *ctx, int64_t step, void *bytes, size_t *count)
{
    const weir_data *data = ((const struct data_feed *)ctx)->data;
    (void)step;
    *count = (size_t)snprintf(bytes, WEIR_SOURCE_BYTES_MAX, note_format, data->info.samples, data->seed, (int)data->sequential,
                              data->info.hash);
    return WEIR_OK;
}

/* Other samples, or another order, may be wanted, so it is only a remark. */
static weir_status restore(void *ctx, int64_t step, const void *bytes, size_t count, char *why, size_t why_bytes)
{
    const weir_data *data = ((const struct data_feed *)ctx)->data;
    char line[160] = "";
    int64_t samples;
    uint64_t seed, hash;
    int sequential;
    (void)step;
    if (count >= sizeof line)
        return WEIR_OK;
    memcpy(line, bytes, count);
    if (sscanf(line, note_format, &samples, &seed, &sequential, &hash) != 4)
        return WEIR_OK;
    if (hash != data->info.hash)
        snprintf(why, why_bytes, "the files are not those that it was saved with");
    else if (samples != data->info.samples)
        snprintf(why, why_bytes, "an epoch has %" PRId64 " samples, and had %" PRId64, data->info.samples, samples);
    else if (sequential != data->sequential)
        snprintf(why, why_bytes, sequential ? "samples come in a random order, and came in that of the files"
                                            : "samples come in the order of the files, and came in a random one");
    else if (!sequential && seed != data->seed)
        snprintf(why, why_bytes, "the order follows from seed %" PRIu64 ", and followed from %" PRIu64, data->seed, seed);
    return WEIR_OK;
}

/* ---- the input ---- */

static struct data_feed *feed_new(weir_data *data, const weir_data_input_opts *o)
{
    struct data_feed *feed = malloc(sizeof *feed);
    if (!feed)
        return NULL;
    *feed = (struct data_feed){data, o->rows, o->micro_batches, o->labels, NULL};
    feed->next = atomic_load_explicit(&data->feeds, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&data->feeds, &feed->next, feed, memory_order_relaxed, memory_order_relaxed))
        continue; /* relaxed: only weir_data_close() reads the list, after all else */
    return feed;
}

/* Reports. */
static bool opts_ok(weir_graph *g, const weir_data *data, const weir_data_input_opts *o, const char *what)
{
    if (!data)
        graph_mistake(g, o->src, "%s: the data is NULL%s%s", what, *weir_error() ? "; the last failing call said: " : "", weir_error());
    else if (o->rows < 1)
        graph_mistake(g, o->src, "%s: .rows = %" PRId64 ": the value of an input has at least 1 sample", what, o->rows);
    else if (o->micro_batches < 0)
        graph_mistake(g, o->src, "%s: .micro_batches = %d: it is 0, or what weir_compile() is given", what, o->micro_batches);
    else if (o->labels && !data->tokens)
        graph_mistake(g, o->src, "%s: .labels is for weir_data_tokens(); labels of rows come from a second weir_data_npy()", what);
    else
        return true;
    return false;
}

static bool splits(const weir_sbp *sbp)
{
    bool any = false;
    for (int a = 0; a < WEIR_AXES_MAX; a++)
        any |= WEIR_IS_S(sbp[a]);
    return any;
}

weir_tensor *weir_data_input_at(weir_graph *graph, weir_data *data, const weir_data_input_opts *given)
{
    weir_data_input_opts o;
    if (!graph_opts(graph, "data_input", given, &o, sizeof o))
        return graph ? &graph->poison : NULL;
    const char *what = o.name ? o.name : "data_input";
    if (!graph) {
        graph_mistake(NULL, o.src, "%s: the graph is NULL", what);
        return NULL;
    }
    struct data_feed *feed = opts_ok(graph, data, &o, what) ? feed_new(data, &o) : NULL;
    if (!feed)
        return &graph->poison;
    const weir_type *sample = &data->info.type;
    weir_input_opts in = {.size = sizeof in, .src = o.src, .shape = {o.rows}, .name = o.name, .micro = o.micro_batches > 0, .source = give,
                          .ctx = feed, .save = save, .restore = restore, .queue = o.queue, .split = splits(o.sbp)};
    memcpy(in.shape + 1, sample->shape.dim, sizeof *in.shape * (size_t)sample->shape.rank);
    memcpy(in.sbp, o.sbp, sizeof in.sbp);
    weir_tensor *x = weir_input_at(graph, sample->dtype, &in);
    graph_node *source = x->poisoned ? NULL : x->node->in_count ? x->node->in[0]->node : x->node;
    if (source)
        source->micros = o.micro_batches;
    return x;
}
