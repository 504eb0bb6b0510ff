/* apps/weir-words/words.c: see the header. */
#define _GNU_SOURCE
#include "apps/weir-words/words.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TEXT_MORE = TABLE_WORD_MAX + 1, /* of a word that goes on behind its block; and a byte before the block */
    ENTRIES_BLOCKS = 16             /* entries of a lane's table, in blocks */
};

#define FAIL(args, ...) (snprintf((args)->error, (args)->error_bytes, __VA_ARGS__), WEIR_E_KERNEL)

/* Small letters for large ones; 0: it is in no word. */
static unsigned char folded(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return (unsigned char)(c + 'a' - 'A');
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c >= 128 ? c : 0;
}

static unsigned char fold[256];

/* ---- read ---- */

/* As many bytes as there are, up to `count`; -1: the file cannot be read. */
static int64_t read_at(int file, char *to, int64_t count, uint64_t offset)
{
    int64_t done = 0;
    while (done < count) {
        ssize_t got = pread(file, to + done, (size_t)(count - done), (off_t)(offset + (uint64_t)done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (!got)
            break;
        done += got;
    }
    return done;
}

/* How much of the text is the block's, which ends at `end`: up to the end of the word that goes on there. */
static int64_t text_end(const char *text, int64_t there, int64_t end)
{
    if (there <= end)
        return there;
    while (end && end < there && fold[(unsigned char)text[end - 1]] && fold[(unsigned char)text[end]])
        end++;
    return end;
}

/* The block of the lane's in this step, without the rest of a word that began before it. */
static weir_status read_block(const weir_kernel_args *args)
{
    const words_lane *l = args->host;
    const words_config *c = l->config;
    const weir_view *to = &args->out[0];
    char *text = to->data;
    uint64_t block = (uint64_t)args->step * (uint64_t)c->lanes + (uint64_t)l->number, start = block * (uint64_t)c->block;
    if (start >= c->bytes)
        return WEIR_OK;
    int64_t before = start > 0, most = before + c->block + TABLE_WORD_MAX;
    most = c->bytes - start + (uint64_t)before < (uint64_t)most ? (int64_t)(c->bytes - start) + before : most;
    int64_t there = read_at(c->file, text, most, start - (uint64_t)before);
    if (there < 0)
        return FAIL(args, "%s: cannot be read: %s", c->path, strerror(errno));
    if (there < most)
        return FAIL(args, "%s: has become shorter while it was read", c->path);
    int64_t end = before + c->block, rest = 0;
    if (before && there && fold[(unsigned char)text[0]])
        while (rest < there && fold[(unsigned char)text[rest]])
            text[rest++] = ' ';
    *to->length = (int32_t)(rest >= end ? 0 : text_end(text, there, end));
    return WEIR_OK;
}

/* ---- tokenise ---- */

/* A token is where it begins, its length (8 bits) and its hash. */
typedef struct token {
    uint32_t where;
    uint32_t hash;
} token;

static uint32_t token_where(const token *t)
{
    return t->where >> 8;
}

static uint32_t token_length(const token *t)
{
    return t->where & 255;
}

/* The text with its letters folded, and the words in it. */
static weir_status tokenise(const weir_kernel_args *args)
{
    const unsigned char *text = args->in[0].data;
    unsigned char *out = args->out[0].data;
    token *tokens = args->out[1].data;
    int64_t count = weir_view_rows(&args->in[0]), made = 0;
    for (int64_t i = 0; i < count;) {
        int64_t first = i;
        uint32_t hash = TABLE_HASH;
        unsigned char c;
        for (; i < count && (c = fold[text[i]]); i++) {
            out[i] = c;
            hash = i - first < TABLE_WORD_MAX ? table_hash(hash, c) : hash;
        }
        int64_t length = i - first < TABLE_WORD_MAX ? i - first : TABLE_WORD_MAX;
        if (length)
            tokens[made++] = (token){(uint32_t)first << 8 | (uint32_t)length, hash};
        while (i < count && !fold[text[i]])
            i++;
    }
    *args->out[0].length = (int32_t)count;
    *args->out[1].length = (int32_t)made;
    return WEIR_OK;
}

/* ---- count ---- */

static size_t entries_most(const words_config *c)
{
    return (size_t)c->block * ENTRIES_BLOCKS;
}

/* The most that one block's words can take as entries: of one letter there are few, and of n > 1 letters an entry has at
 * most 16 bytes for 3 of text. */
static size_t entries_of_block(const words_config *c)
{
    return ((size_t)c->block + TEXT_MORE) * 16 / 3 + 256 * table_entry_bytes(1);
}

static weir_status open_count(const weir_kernel_args *args, void **state)
{
    const words_lane *l = args->host;
    table *t = calloc(1, sizeof *t);
    if (!t || !table_open(t, entries_most(l->config), true)) {
        if (t)
            table_close(t);
        free(t);
        return WEIR_E_MEMORY;
    }
    *state = t;
    return WEIR_OK;
}

static void close_count(void *host, void *state)
{
    (void)host;
    table_close(state);
    free(state);
}

/* Adds the words to the lane's table, and hands that on when the next block's might not fit, or there is no next. */
static weir_status count(const weir_kernel_args *args)
{
    const words_lane *l = args->host;
    table *t = args->host_state;
    const char *text = args->in[0].data;
    const token *tokens = args->in[1].data;
    for (int64_t i = 0, n = weir_view_rows(&args->in[1]); i < n; i++)
        if (!table_add(t, text + token_where(&tokens[i]), token_length(&tokens[i]), tokens[i].hash, 1))
            return FAIL(args, "no memory for the words of a block");
    if (t->most - t->used >= entries_of_block(l->config) && (uint64_t)args->step + 1 < l->config->steps)
        return WEIR_OK;
    memcpy(args->out[0].data, t->entries, t->used);
    *args->out[0].length = (int32_t)t->used;
    table_clear(t);
    return WEIR_OK;
}

/* ---- merge ---- */

static weir_status merge(const weir_kernel_args *args)
{
    words_config *c = args->host;
    for (int i = 0; i < args->in_count; i++)
        if (!table_merge(&c->total, args->in[i].data, (size_t)weir_view_rows(&args->in[i])))
            return FAIL(args, "the different words take more than the %llu bytes that they may (--words)",
                        (unsigned long long)c->words_bytes);
    return WEIR_OK;
}

/* ---- the graph ---- */

static weir_tensor *lane_graph(weir_graph *g, words_lane *l)
{
    const words_config *c = l->config;
    char device[32];
    snprintf(device, sizeof device, "cpu:%d", l->number);
    weir_mesh *mesh = weir_mesh_new(g, device);
    weir_tensor *read, *made[2], *entries = NULL;
    int64_t text = c->block + TEXT_MORE;
    WEIR_ON(mesh, .name = "lane%d", l->number) {
        read = weir_call(read_block, {NULL}, .graph = g, .name = "read", .dtype = WEIR_U8, .shape = {text},
                         .varies = true, .ctx = l, .queue = "read");
        weir_call_many(made, tokenise, {read}, .name = "tokenise",
                       .out = {{WEIR_U8, {text}, .varies = true}, {WEIR_I32, {text / 2 + 1, 2}, .varies = true}});
        entries = weir_call(count, {made[0], made[1]}, .name = "count", .dtype = WEIR_U8,
                            .shape = {(int64_t)entries_most(c)}, .varies = true, .ctx = l, .open = open_count,
                            .close = close_count);
    }
    return entries;
}

weir_graph *words_graph(words_config *c)
{
    weir_graph *g = weir_graph_new("words");
    weir_call_opts all = {.size = sizeof all, .src = WEIR_HERE, .name = "merge", .ctx = c, .queue = "merge"};
    if (!g)
        return NULL;
    for (int i = 0; i < 256; i++)
        fold[i] = folded((unsigned char)i);
    uint64_t step = (uint64_t)c->lanes * (uint64_t)c->block;
    c->steps = (c->bytes + step - 1) / step;
    for (int i = 0; i < c->lanes; i++) {
        c->lane[i] = (words_lane){c, i};
        all.in[i] = lane_graph(g, &c->lane[i]);
    }
    weir_call_many_at(NULL, merge, &all);
    return g;
}
