/* weir tokens chat: conversations as ids of tokens, a line for each, as the model of a tokenizer is trained with them. */
#define _GNU_SOURCE
#include "apps/weir/tokens_chat.h"

#include "apps/common/options.h"
#include "apps/common/tokens/chat_json.h"
#include "graph/base/reading.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char program[] = "weir tokens chat";

struct chats {
    const char *tokenizer, *in, *out;
    bool opens, marks;
    struct encoder *encoder; /* owned by its caller */
    size_t line;
};

static int wrong_line(const struct chats *c, const char *what)
{
    options_wrong(program, "%s: line %zu: %s", c->in && strcmp(c->in, "-") != 0 ? c->in : "standard input", c->line, what);
    return 1;
}

static int write_ids(const struct chats *c, const struct token_ids *ids, const struct token_ids *reply, FILE *to)
{
    bool ok = true;
    for (size_t i = 0; i < ids->count && ok; i++)
        ok = fprintf(to, "%s%" PRIu32 "%s", i ? " " : "", ids->id[i], c->marks && reply->id[i] ? "*" : "") > 0;
    return ok && putc('\n', to) != EOF ? -1 : (options_wrong(program, "cannot write the ids: %s", strerror(errno)), 1);
}

/* A conversation: a list of messages, or an object that has it as "messages". */
static int write_chat(const struct chats *c, const json_t *json, FILE *to)
{
    const json_t *list = json_is_array(json) ? json : json_object_get(json, "messages");
    if (!json_is_array(list) || json_array_size(list) > CHAT_MESSAGES_MAX)
        return wrong_line(c, "is no list of at most 4096 messages, nor has it one as \"messages\"");
    struct chat_message *message = chat_messages(list);
    struct token_ids ids = {.id = NULL}, reply = {.id = NULL};
    const bool ok = message && tokenizer_chat(c->encoder, message, json_array_size(list), c->opens, &ids, &reply);
    const int status = ok ? write_ids(c, &ids, &reply, to) : wrong_line(c, tokens_error());
    free(message);
    free(ids.id);
    free(reply.id);
    return status;
}

static int write_chats(struct chats *c, FILE *from, FILE *to)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t bytes;
    int status = -1;
    while (status < 0 && (bytes = getline(&text, &room, from)) >= 0) {
        json_error_t error;
        c->line++;
        json_t *json = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
        status = json ? write_chat(c, json, to) : wrong_line(c, "is not JSON");
        json_decref(json);
    }
    free(text);
    return status < 0 ? 0 : status;
}

static int open_and_write(struct chats *c)
{
    const char *why = NULL;
    const bool to_file = c->out && strcmp(c->out, "-") != 0, from_file = c->in && strcmp(c->in, "-") != 0;
    FILE *from = from_file ? reading_stream(c->in, &why) : stdin, *to = NULL;
    if (!from)
        return options_wrong(program, "cannot read %s: %s", c->in, why);
    to = to_file ? fopen(c->out, "wbe") : stdout;
    int status = to ? write_chats(c, from, to) : options_wrong(program, "cannot write %s: %s", c->out, strerror(errno));
    if (from_file)
        fclose(from);
    if (to && to_file && fclose(to) && !status)
        status = (options_wrong(program, "cannot write %s: %s", c->out, strerror(errno)), 1);
    return status;
}

int tokens_chat(int argc, char **argv)
{
    struct chats c = {.in = NULL};
    const options_entry table[] = {
        {"CHATS", OPTIONS_TEXT, &c.in, .optional = true, .file = OPTIONS_READS,
         .help = "a conversation in each line, {\"messages\": [{\"role\": \"user\", \"content\": \"...\"}]}; default, and -: standard input"},
        TOKENS_TOKENIZER_OPTION(c.tokenizer),
        {"-o", OPTIONS_TEXT, &c.out, .value = "FILE", .file = OPTIONS_WRITES, .help = "write the ids here; default: standard output"},
        {"--open", OPTIONS_FLAG, &c.opens, .help = "end with the opening of a reply"},
        {"--mark", OPTIONS_FLAG, &c.marks, .help = "write * behind the ids that the model has to write: replies, and the tokens that end them"},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Write the ids of conversations, as the model's chat template has them: a line for each.", table}, argc, argv);
    if (status < 0 && !c.tokenizer)
        status = options_wrong(program, "needs --tokenizer FILE, " TOKENS_FILES);
    struct tokenizer *tokenizer = status < 0 ? tokenizer_read(c.tokenizer) : NULL;
    if (status < 0 && !tokenizer)
        status = options_wrong(program, "%s", tokens_error());
    if (status < 0 && !(c.encoder = encoder_new(tokenizer)))
        status = (options_wrong(program, "no memory"), 1);
    if (status < 0)
        status = open_and_write(&c);
    encoder_free(c.encoder);
    tokenizer_free(tokenizer);
    return status;
}
