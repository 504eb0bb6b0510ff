/* apps/common/tokens/chat.c: conversations as ids of tokens.
 *
 * A conversation is a row of texts: the template's own, in which special tokens count, and the messages, in which they do not. Between
 * two special tokens all texts are one run, which is encoded as a whole, as transformers encodes a template's result. Where a reply
 * begins within a run, its first token is the first that begins there or later; the lengths of the tokens tell which one that is.
 */
#define _GNU_SOURCE
#include "apps/common/tokens/chat.h"

#include "apps/common/tokens/chat_table.h"
#include "apps/common/tokens/inside.h"

#include <stdlib.h>
#include <string.h>

#define NO_MARK SIZE_MAX

struct talk {
    struct encoder *encoder;            /* borrowed, as the next four */
    const struct tokenizer *tokenizer;
    const struct chat_family *family;
    struct token_ids *to, *reply;
    char *run;                          /* owned */
    size_t used, room;
    size_t mark;                        /* where in the run a reply begins */
    bool in_reply, begun, skips_space;  /* within a reply; ids were added; white space at this place belongs to a token */
};

/* ---- families ---- */

/* Literals of Jinja write a line's end as it is, or as \\n. A copy of the text, with the first. NULL: no memory. */
static char *with_lines(const char *text)
{
    char *made = malloc(strlen(text) + 1), *to = made;
    for (; made && *text; text++) {
        const bool line = text[0] == '\\' && text[1] == 'n';
        *to++ = line ? '\n' : *text;
        text += line;
    }
    if (made)
        *to = '\0';
    return made;
}

/* The template's own system message stands between these two, as a literal. */
static bool set_system(struct chat *c, const char *text)
{
    static const char before[] = "<|im_start|>system\n", after[] = "<|im_end|>";
    for (const char *at = text, *end; (at = strstr(at, before)) && (end = strstr(at += strlen(before), after));)
        if (strcspn(at, "'\"") >= (size_t)(end - at)) {
            c->system = strndup(at, (size_t)(end - at));
            return c->system;
        }
    return true;
}

static bool is_of(const struct chat_family *f, const char *text)
{
    for (int i = 0; i < CHAT_NEEDLES; i++)
        if ((f->has[i] && !strstr(text, f->has[i])) || (f->lacks[i] && strstr(text, f->lacks[i])))
            return false;
    return f->has[0];
}

bool chat_set_template(struct chat *c, const char *text)
{
    char *lines = with_lines(text);
    if (!lines)
        return tokens_failed("no memory for a chat template");
    chat_free(c);
    c->text = strdup(text);
    for (int i = 0; i < chat_family_count && !c->family; i++)
        c->family = is_of(&chat_families[i], lines) ? &chat_families[i] : NULL;
    const bool ok = c->text && (!c->family || !c->family->has_default || set_system(c, lines));
    free(lines);
    return ok || tokens_failed("no memory for a chat template");
}

void chat_set_tekken(struct chat *c, const char *version)
{
    char wanted[16];
    snprintf(wanted, sizeof wanted, " %.10s ", version);
    for (int i = 0; i < chat_family_count && *version; i++)
        if (chat_families[i].tekken && strstr(chat_families[i].tekken, wanted))
            c->family = &chat_families[i];
}

void chat_free(struct chat *c)
{
    free(c->text);
    free(c->system);
    *c = (struct chat){.family = NULL};
}

const char *tokenizer_chat_name(const struct tokenizer *t)
{
    return t->chat.family ? t->chat.family->name : NULL;
}

/* ---- special tokens in a template's text ---- */

/* The next special token at or after `from`, and where it begins. NULL: there is none. */
static const struct added_token *next_special(const struct tokenizer *t, const char *text, size_t from, size_t *begin)
{
    const size_t bytes = strlen(text);
    const struct added_token *token = added_find(&t->added[0], text, bytes, from, begin);
    while (token && !token->special)
        token = added_find(&t->added[0], text, bytes, *begin + token->length, begin);
    return token;
}

/* The token that ends a reply; VOCAB_NONE: the tokenizer does not have it. */
static uint32_t reply_end(const struct tokenizer *t)
{
    size_t begin;
    const char *text = t->chat.family->reply_end;
    const struct added_token *token = next_special(t, text, 0, &begin);
    return strchr(text, '\2') ? t->end : token ? token->id : VOCAB_NONE;
}

bool chat_add_stops(struct tokenizer *t)
{
    const uint32_t id = t->chat.family ? reply_end(t) : VOCAB_NONE;
    return (t->end == VOCAB_NONE || ends_add(&t->stops, t->end)) && (id == VOCAB_NONE || ends_add(&t->stops, id));
}

bool tokenizer_stops(const struct tokenizer *t, uint32_t id)
{
    for (int i = 0; i < t->stops.count; i++)
        if (t->stops.id[i] == id)
            return true;
    return false;
}

/* ---- runs ---- */

/* The number of the first of the ids from `from` on that begins where the reply does. */
static size_t first_of_reply(struct talk *k, size_t from)
{
    struct normalizer *w = encoder_normalizer(k->encoder);
    const struct normal *n = &k->tokenizer->normal;
    size_t whole, before, all = 0, at = 0, bytes, i = from;
    normal_text(n, w, k->run, k->used, &whole);
    normal_text(n, w, k->run, k->mark, &before);
    for (size_t one = from; one < k->to->count; one++)
        all += tokenizer_bytes(k->tokenizer, k->to->id[one], &bytes) ? bytes : 0;
    before += all > whole ? all - whole : 0; /* a space that the split put before the text */
    for (; i < k->to->count && at < before; i++)
        at += tokenizer_bytes(k->tokenizer, k->to->id[i], &bytes) ? bytes : 0;
    return i;
}

/* Encodes the run. */
static bool end_run(struct talk *k)
{
    const size_t from = k->to->count;
    if (!k->used)
        return true;
    if (!tokenizer_encode_plain(k->encoder, k->run, k->used, !k->begun, k->to))
        return false;
    const size_t first = !k->in_reply ? k->to->count : k->mark == NO_MARK ? from : first_of_reply(k, from);
    bool ok = true;
    for (size_t i = from; i < k->to->count && ok && k->reply; i++)
        ok = token_ids_add(k->reply, &(uint32_t){i >= first}, 1);
    k->begun = true;
    k->used = 0;
    k->mark = NO_MARK;
    return ok;
}

static bool put_id(struct talk *k, uint32_t id, bool takes_left, bool takes_right)
{
    if (takes_left)
        k->used -= added_space_at_end(k->run, k->used);
    if (!end_run(k) || !token_ids_add(k->to, &id, 1) || (k->reply && !token_ids_add(k->reply, &(uint32_t){k->in_reply}, 1)))
        return false;
    k->begun = true;
    k->mark = NO_MARK;
    k->skips_space = takes_right;
    return true;
}

/* Adds a text to the run, in which special tokens do not count. */
static bool put_plain(struct talk *k, const char *text, size_t bytes)
{
    if (k->skips_space) {
        const size_t space = added_space_at_begin(text, bytes);
        text += space;
        bytes -= space;
        k->skips_space = !bytes;
    }
    if (k->room - k->used < bytes) {
        const size_t room = 2 * k->room + bytes + 256;
        char *run = realloc(k->run, room);
        if (!run)
            return tokens_failed("no memory for a message of %zu bytes", bytes);
        k->run = run;
        k->room = room;
    }
    if (bytes)
        memcpy(k->run + k->used, text, bytes);
    k->used += bytes;
    return true;
}

/* A text of the template without \1 and \2. */
static bool put_specials(struct talk *k, const char *text)
{
    const struct added_token *token;
    size_t done = 0, begin;
    bool ok = true;
    for (; ok && (token = next_special(k->tokenizer, text, done, &begin)); done = begin + token->length)
        ok = put_plain(k, text + done, begin - done) && put_id(k, token->id, token->takes_left, token->takes_right);
    return ok && put_plain(k, text + done, strlen(text + done));
}

static bool put(struct talk *k, const char *text)
{
    char part[256];
    for (; text && *text;) {
        const size_t length = strcspn(text, "\1\2");
        snprintf(part, sizeof part, "%.*s", (int)length, text);
        if (!put_specials(k, part))
            return false;
        text += length;
        const uint32_t id = *text == '\1' ? k->tokenizer->begin : k->tokenizer->end;
        if (*text && id == VOCAB_NONE)
            return tokens_failed("the chat template needs the %s token, which the tokenizer's files do not name", *text == '\1' ? "begin" : "end");
        if (*text && !put_id(k, id, false, false))
            return false;
        text += *text != '\0';
    }
    return true;
}

/* ---- messages ---- */

/* Python's white space has four control characters more than Unicode's. */
static size_t space_of(const char *text, size_t bytes, bool at_end)
{
    size_t space = 0, more;
    do {
        more = at_end ? added_space_at_end(text, bytes - space) : added_space_at_begin(text + space, bytes - space);
        space += more;
        const char *next = at_end ? text + bytes - space - 1 : text + space;
        if (space < bytes && *next >= 0x1c && *next <= 0x1f)
            more = 1, space++;
    } while (more);
    return space;
}

static bool put_trimmed(struct talk *k, const char *text, bool left, bool right)
{
    size_t bytes = strlen(text), space = left ? space_of(text, bytes, false) : 0;
    text += space;
    bytes -= space;
    return put_plain(k, text, bytes - (right ? space_of(text, bytes, true) : 0));
}

static bool put_system(struct talk *k, const char *text)
{
    const bool trims = k->family->trim == CHAT_TRIM && k->family->system <= CHAT_SYSTEM_ALWAYS;
    return put(k, k->family->system_before) && put_trimmed(k, text, trims, trims) && put(k, k->family->system_after);
}

/* `system` becomes a part of the message; NULL: there is none. */
static bool put_user(struct talk *k, const char *text, const char *system)
{
    const struct chat_family *f = k->family;
    const bool trims = f->trim == CHAT_TRIM, wraps = system && f->system_before;
    return put(k, f->user_before) && (!system || put_system(k, system)) && put_trimmed(k, text, trims && !wraps, trims) && put(k, f->user_after);
}

/* Qwen3's replies: the last one has its thoughts, though they may be empty. */
static bool put_thoughtful(struct talk *k, const char *text, bool last)
{
    static const char begins[] = "<think>", ends[] = "</think>";
    const char *answer = text, *thoughts = "", *end = strstr(text, ends);
    size_t length = 0;
    for (const char *at = end; at; at = strstr(answer, ends))
        answer = at + strlen(ends);
    if (end) {
        thoughts = text;
        for (const char *at = text; (at = strstr(at, begins)) && at < end;)
            thoughts = at += strlen(begins);
        length = (size_t)(end - thoughts);
        answer += strspn(answer, "\n");
    }
    for (; length && *thoughts == '\n'; length--)
        thoughts++;
    while (length && thoughts[length - 1] == '\n')
        length--;
    return !last ? put_plain(k, answer, strlen(answer))
                 : put(k, "<think>\n") && put_plain(k, thoughts, length) && put(k, "\n</think>\n\n") &&
                       put_plain(k, answer + strspn(answer, "\n"), strlen(answer + strspn(answer, "\n")));
}

static bool put_reply(struct talk *k, const char *text, bool last)
{
    const struct chat_family *f = k->family;
    const bool trims = f->trim == CHAT_TRIM || f->trim == CHAT_TRIM_REPLY;
    size_t bytes = strlen(text);
    bool ok = put(k, f->opening);
    k->in_reply = true;
    k->mark = k->used ? k->used : NO_MARK;
    ok = ok && put(k, f->reply_before);
    while (f->trim == CHAT_TRIM_REPLY_SPACES && bytes && text[bytes - 1] == ' ')
        bytes--;
    if (f->thinks)
        ok = ok && put_thoughtful(k, text, last);
    else
        ok = ok && (trims ? put_trimmed(k, text, true, true) : put_plain(k, text, bytes));
    ok = ok && put(k, f->reply_end);
    k->in_reply = false;
    return ok && put(k, f->reply_after);
}

/* ---- conversations ---- */

static bool is_role(const struct chat_message *m, const char *role)
{
    return !strcmp(m->role, role);
}

/* Whether the family has such a conversation. */
static bool is_possible(const struct talk *k, const struct chat_message *m, size_t count)
{
    const struct chat_family *f = k->family;
    const size_t head = count && is_role(m, "system") && f->system != CHAT_SYSTEM_TURN;
    for (size_t i = 0; i < count; i++) {
        const bool system = is_role(&m[i], "system"), user = is_role(&m[i], "user");
        if (!system && !user && !is_role(&m[i], "assistant"))
            return tokens_failed("message %zu has the role \"%.40s\"; system, user and assistant are allowed", i + 1, m[i].role);
        if (system && f->system == CHAT_SYSTEM_NONE)
            return tokens_failed("message %zu is of the system, which the template of %s does not have", i + 1, f->name);
        if (system && i && f->system != CHAT_SYSTEM_TURN)
            return tokens_failed("message %zu is of the system; in the template of %s only the first may be", i + 1, f->name);
        if (f->alternates && !system && user != ((i - head) % 2 == 0))
            return tokens_failed("message %zu is of the %s; in the template of %s, user and assistant take turns, and the user begins", i + 1, m[i].role, f->name);
    }
    return true;
}

/* The number of the message that the system's becomes a part of; `count`: of none. */
static size_t system_place(const struct chat_family *f, const struct chat_message *m, size_t count)
{
    size_t first = count, last = count;
    for (size_t i = 0; i < count; i++)
        if (is_role(&m[i], "user")) {
            first = first == count ? i : first;
            last = i;
        }
    if (f->system == CHAT_SYSTEM_FIRST_USER)
        return first;
    return f->system == CHAT_SYSTEM_LAST_USER || (f->system == CHAT_SYSTEM_LAST && last + 1 == count) ? last : count;
}

static bool put_messages(struct talk *k, const struct chat_message *m, size_t count)
{
    const struct chat_family *f = k->family;
    const char *system = count && is_role(m, "system") ? m->content : NULL;
    const char *own = system ? NULL : f->system == CHAT_SYSTEM_ALWAYS ? "" : k->tokenizer->chat.system;
    const size_t place = system ? system_place(f, m, count) : count;
    bool ok = put(k, f->begin) && (!own || put_system(k, own));
    size_t last_user = 0;
    for (size_t i = 0; i < count; i++)
        last_user = is_role(&m[i], "user") ? i : last_user;
    for (size_t i = 0; i < count && ok; i++)
        if (is_role(&m[i], "user"))
            ok = put_user(k, m[i].content, i == place ? system : NULL);
        else if (is_role(&m[i], "assistant"))
            ok = put_reply(k, m[i].content, i > last_user && i + 1 == count);
        else if (f->system <= CHAT_SYSTEM_ALWAYS)
            ok = put_system(k, m[i].content);
    return ok;
}

bool tokenizer_chat(struct encoder *e, const struct chat_message *message, size_t count, bool opens, struct token_ids *to, struct token_ids *reply)
{
    const struct tokenizer *t = encoder_tokenizer(e);
    struct talk k = {.encoder = e, .tokenizer = t, .family = t->chat.family, .to = to, .reply = reply, .mark = NO_MARK};
    if (!k.family)
        return t->chat.text
                   ? tokens_failed("its chat template is of no family that is known; ChatML, Llama 2 and 3, Mistral, Gemma, Phi and Qwen3 are")
                   : tokens_failed("has no chat template; tokenizer_config.json, chat_template.jinja and GGUF files have one");
    if (reply_end(t) == VOCAB_NONE)
        return tokens_failed("its chat template ends a reply with \"%s\", which is no special token of the tokenizer",
                             strchr(k.family->reply_end, '\2') ? "the end token" : k.family->reply_end);
    const bool ok = is_possible(&k, message, count) && put_messages(&k, message, count) && put(&k, opens ? k.family->opening : k.family->end) && end_run(&k);
    free(k.run);
    return ok;
}
