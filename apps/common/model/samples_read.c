/* apps/common/model/samples_read.c: samples of texts and of lines of JSON. A text is read whole; of lines one is in memory at a time. */
#define _GNU_SOURCE /* getline */
#include "apps/common/model/samples.h"
#include "apps/common/model/text.h"
#include "apps/common/tokens/chat_json.h"
#include "graph/base/reading.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES_MAX = 64 << 20 };

/* A file that is being read. */
typedef struct reading {
    const samples_reader *r;
    const char *path;
    size_t line;          /* 0: a text */
    struct token_ids ids, counts; /* owned: of one conversation, or of one text */
    char *why;
    size_t why_bytes;
} reading;

static __attribute__((format(printf, 2, 3))) bool refuse(reading *at, const char *format, ...)
{
    va_list list;
    int used = at->line ? snprintf(at->why, at->why_bytes, "%s:%zu: ", at->path, at->line) : snprintf(at->why, at->why_bytes, "%s: ", at->path);
    used = used < (int)at->why_bytes ? used : (int)at->why_bytes - 1;
    va_start(list, format);
    vsnprintf(at->why + used, at->why_bytes - (size_t)used, format, list);
    va_end(list);
    return false;
}

/* ---- into the list ---- */

static bool grow(void **array, size_t *room, size_t needed, size_t element)
{
    size_t more = *room ? *room : 1024;
    while (more < needed)
        more *= 2;
    void *grown = more == *room ? *array : realloc(*array, more * element);
    if (!grown)
        return false;
    *array = grown;
    *room = more;
    return true;
}

static bool make_room(samples *s, size_t ids)
{
    size_t room = s->ids_room;
    return grow((void **)&s->sample, &s->room, s->count + 1, sizeof *s->sample) && grow((void **)&s->id, &room, s->ids + ids, sizeof *s->id) &&
           grow((void **)&s->counts, &s->ids_room, s->ids + ids, 1);
}

/* `counts` NULL: all ids count. */
static bool add_sample(samples *s, reading *at, const uint32_t *id, const uint32_t *counts, size_t count)
{
    if (!make_room(s, count))
        return refuse(at, "no memory");
    s->sample[s->count++] = (struct sample){s->ids, (int32_t)count};
    for (size_t i = 0; i < count; i++) {
        s->id[s->ids] = (int32_t)id[i];
        s->counts[s->ids++] = !counts || counts[i];
    }
    return true;
}

/* Adds the sample of one line, cut to what the model sees. */
static bool add_line(samples *s, reading *at)
{
    const size_t most = (size_t)at->r->seq + 1, count = at->ids.count < most ? at->ids.count : most;
    bool any = false;
    for (size_t i = 1; i < count; i++)
        any |= at->counts.id[i];
    s->left_out += !any;
    s->cut += any && count < at->ids.count;
    return !any || add_sample(s, at, at->ids.id, at->counts.id, count);
}

/* ---- lines ---- */

static bool tokens_refused(reading *at)
{
    return refuse(at, "%s", tokens_error());
}

/* Adds `said` for each id that has none. */
static bool note(reading *at, uint32_t said)
{
    while (at->counts.count < at->ids.count)
        if (!token_ids_add(&at->counts, &said, 1))
            return tokens_refused(at);
    return true;
}

static bool take_pair(reading *at, const json_t *prompt, const json_t *completion)
{
    struct encoder *e = at->r->encoder;
    if (!json_is_string(prompt) || !json_is_string(completion))
        return refuse(at, "\"prompt\" and \"completion\" must both be texts");
    if (!tokenizer_encode(e, json_string_value(prompt), json_string_length(prompt), true, &at->ids))
        return tokens_refused(at);
    if (!note(at, 0) || !tokenizer_encode(e, json_string_value(completion), json_string_length(completion), true, &at->ids))
        return tokens_refused(at);
    const uint32_t end = (uint32_t)at->r->end;
    if (at->r->end >= 0 && !token_ids_add(&at->ids, &end, 1))
        return tokens_refused(at);
    return note(at, 1);
}

static bool take_messages(reading *at, const json_t *list)
{
    const size_t count = json_array_size(list);
    if (!count || count > CHAT_MESSAGES_MAX)
        return refuse(at, "\"messages\" must be a list of 1 to %d messages", CHAT_MESSAGES_MAX);
    struct chat_message *message = chat_messages(list);
    const bool ok = message && tokenizer_chat(at->r->encoder, message, count, false, &at->ids, &at->counts);
    free(message);
    return ok || tokens_refused(at);
}

static bool take_line(samples *to, reading *at, const char *line, size_t bytes)
{
    json_error_t error;
    json_t *json = json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    const json_t *messages = json_object_get(json, "messages"), *prompt = json_object_get(json, "prompt");
    bool ok = json != NULL;
    at->ids.count = at->counts.count = 0;
    if (!json)
        refuse(at, "is not JSON: %s", error.text);
    else if (json_object_get(json, "tools") && !json_is_null(json_object_get(json, "tools")))
        ok = refuse(at, "has \"tools\", which are not supported");
    else if (messages)
        ok = take_messages(at, messages);
    else if (prompt)
        ok = take_pair(at, prompt, json_object_get(json, "completion"));
    else
        ok = refuse(at, "has neither \"messages\" nor \"prompt\" and \"completion\"");
    json_decref(json);
    return ok && add_line(to, at);
}

static bool is_blank(const char *line, ssize_t bytes)
{
    while (bytes > 0 && strchr(" \t\r\n", line[bytes - 1]) && line[bytes - 1])
        bytes--;
    return !bytes;
}

static bool take_lines(samples *to, reading *at, FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    bool ok = true;
    for (ssize_t bytes; ok && (bytes = getline(&line, &room, file)) >= 0;) {
        at->line++;
        if (bytes > LINE_BYTES_MAX)
            ok = refuse(at, "has more than 64 MiB");
        else if (!is_blank(line, bytes))
            ok = take_line(to, at, line, (size_t)bytes);
    }
    free(line);
    if (ok && ferror(file))
        ok = refuse(at, "cannot be read to its end");
    return ok;
}

bool samples_add_chat(samples *to, const samples_reader *r, const char *path, char *why, size_t why_bytes)
{
    reading at = {.r = r, .path = path, .why = why, .why_bytes = why_bytes};
    const char *fault;
    FILE *file = reading_stream(path, &fault);
    if (!file)
        return refuse(&at, "cannot be read: %s", fault);
    const bool ok = take_lines(to, &at, file);
    fclose(file);
    free(at.ids.id);
    free(at.counts.id);
    return ok;
}

/* ---- texts ---- */

bool samples_add_text(samples *to, const samples_reader *r, const char *path, char *why, size_t why_bytes)
{
    reading at = {.r = r, .path = path, .why = why, .why_bytes = why_bytes};
    text all = {.bytes = NULL};
    const char *fault;
    if (!text_add_file(&all, path, &fault))
        return refuse(&at, "cannot be read: %s", fault);
    bool ok = tokenizer_encode(r->encoder, (const char *)all.bytes, all.count, true, &at.ids) || tokens_refused(&at);
    text_free(&all);
    for (size_t first = 0; ok && first + (size_t)r->seq < at.ids.count; first += (size_t)r->seq)
        ok = add_sample(to, &at, at.ids.id + first, NULL, (size_t)r->seq + 1);
    free(at.ids.id);
    return ok;
}
