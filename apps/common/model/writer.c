/* apps/common/model/writer.c: see the header. The prompt, and what is run again when the window is full, go row by row too:
 * it is one program, and there are no two ways that would have to agree. */
#include "apps/common/model/writer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { NOTHING_CHOSEN = -1 };

/* ---- on a worker's thread ---- */

/* Adds a byte to the window; the last half of a full one is a new beginning. */
static void add_byte(writer *w, int32_t byte)
{
    const int seq = w->config->seq, half = seq / 2;
    if (w->seen == seq) {
        memmove(w->window, w->window + seq - half, (size_t)half * sizeof *w->window);
        w->seen = half;
        w->done = 0;
    }
    w->window[w->seen++] = byte;
}

static weir_status give(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    const writer *w = ctx;
    int32_t *to = dst->data;
    (void)step, (void)micro;
    to[0] = w->window[w->done];
    to[1] = w->done;
    return WEIR_OK;
}

/* When all that there was has been run, there must be one more byte. */
static weir_status take(const weir_kernel_args *args)
{
    writer *w = args->host;
    int32_t *chosen = args->out[0].data;
    *chosen = NOTHING_CHOSEN;
    if (++w->done < w->seen)
        return WEIR_OK;
    if (w->left) {
        w->left--;
        add_byte(w, (int32_t)*w->prompt++);
    } else {
        add_byte(w, *chosen = w->choose(w->ctx, args->in[0].data));
    }
    return WEIR_OK;
}

static weir_status put(void *ctx, const weir_view *value, int64_t step, int micro)
{
    const writer *w = ctx;
    const int32_t chosen = *(const int32_t *)value->data;
    (void)step, (void)micro;
    if (chosen != NOTHING_CHOSEN)
        w->put(w->ctx, chosen);
    return WEIR_OK;
}

/* ---- on the caller's ---- */

static bool open_session(writer *w)
{
    const gpt_feed feed = {give, take, put, w};
    weir_graph *graph = gpt_generate_graph(w->config, 1, &feed);
    w->plan = graph ? weir_compile(graph) : NULL;
    weir_graph_free(graph);
    w->session = w->plan ? weir_session_open(w->plan, .cluster = {.alone = true}) : NULL;
    return w->session != NULL;
}

writer *writer_new(const gpt_config *c, writer_choose_fn choose, writer_put_fn put_byte, void *ctx)
{
    writer *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    *w = (writer){.config = c, .choose = choose, .put = put_byte, .ctx = ctx};
    w->window = calloc((size_t)c->seq, sizeof *w->window);
    if (w->window && open_session(w))
        return w;
    writer_free(w);
    return NULL;
}

void writer_free(writer *w)
{
    if (!w)
        return;
    weir_session_close(w->session);
    weir_plan_free(w->plan);
    free(w->window);
    free(w);
}

/* Rows that are run until `bytes` have been: those that are run again are among them. */
static int64_t rows_for(int seq, int64_t bytes)
{
    const int half = seq / 2, fresh = seq - half;
    assert(fresh > 0);
    int64_t beginnings = bytes > seq ? (bytes - seq + fresh - 1) / fresh : 0;
    return bytes + beginnings * half;
}

/* The last token need not be run: nothing follows it. */
weir_status writer_write_tokens(writer *w, const uint32_t *prompt, size_t prompt_count, int tokens)
{
    if (tokens < 1)
        return WEIR_OK;
    w->seen = w->done = 0;
    w->prompt = prompt + 1;
    w->left = prompt_count - 1;
    add_byte(w, (int32_t)*prompt);
    return weir_session_run(w->session, rows_for(w->config->seq, (int64_t)prompt_count + tokens - 1));
}

weir_status writer_write(writer *w, const char *prompt, int bytes)
{
    const size_t count = strlen(prompt);
    uint32_t *id = malloc(count * sizeof *id);
    if (!id)
        return WEIR_E_MEMORY;
    for (size_t i = 0; i < count; i++)
        id[i] = (unsigned char)prompt[i];
    const weir_status status = writer_write_tokens(w, id, count, bytes);
    free(id);
    return status;
}
