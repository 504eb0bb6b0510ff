/* chat.c: see the header. Each turn makes the ids of the whole conversation, and the speaker runs only those that are new to it. */
#define _GNU_SOURCE
#include "apps/weir-gpt/chat.h"

#include "apps/common/model/shown.h"
#include "apps/common/tokens/chat.h"
#include "apps/common/train/interrupt.h"
#include "apps/weir-gpt/speaker.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROOM = 4096 }; /* tokens, if not said */

struct messages {
    struct chat_message *message; /* owned, and the contents */
    size_t count;
};

struct talk {
    const char *program, *path;
    struct speaker speaker;
    struct messages *said; /* borrowed */
    struct token_ids ids;
};

/* ---- messages ---- */

/* Takes the content over. */
static bool add_message(struct talk *t, const char *role, char *content)
{
    struct messages *m = t->said;
    struct chat_message *more = content ? realloc(m->message, (m->count + 1) * sizeof *more) : NULL;
    if (!more) {
        free(content);
        options_wrong(t->program, "no memory for another message");
        return false;
    }
    m->message = more;
    m->message[m->count++] = (struct chat_message){role, content};
    return true;
}

/* Appends a line of input without its end. False: there is none. `goes_on`: a backslash ends it, which is left out. */
static bool add_line(char **text, size_t *bytes, bool *goes_on)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length = getline(&line, &room, stdin);
    char *more = length >= 0 ? realloc(*text, *bytes + (size_t)length + 2) : NULL;
    if (more) {
        length -= length > 0 && line[length - 1] == '\n';
        *goes_on = length > 0 && line[length - 1] == '\\';
        length -= *goes_on;
        memcpy(more + *bytes, line, (size_t)length);
        *bytes += (size_t)length;
        more[*bytes] = '\0';
        if (*goes_on)
            memcpy(more + (*bytes)++, "\n", 2);
        *text = more;
    }
    free(line);
    return more != NULL;
}

/* NULL: the input has ended. */
static char *read_message(void)
{
    const bool asks = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    char *text = NULL;
    size_t bytes = 0;
    bool goes_on = true;
    for (const char *prompt = "> "; goes_on; prompt = "  ") {
        if (asks)
            fputs(prompt, stdout);
        fflush(stdout);
        goes_on = false;
        if (!add_line(&text, &bytes, &goes_on))
            break;
    }
    return text;
}

/* ---- a turn ---- */

/* A reply is shown, and kept as what was shown: UTF-8 in any case. */
struct reply {
    struct shown shown, kept;
};

static void put_reply(void *ctx, unsigned char byte)
{
    struct reply *r = ctx;
    shown_byte(&r->shown, byte);
    shown_byte(&r->kept, byte);
}

static speaker_ending write_reply(struct talk *t, int64_t most, char **text)
{
    size_t bytes = 0;
    struct reply r = {.shown.to = stdout, .kept.to = open_memstream(text, &bytes)};
    if (!r.kept.to)
        return options_wrong(t->program, "no memory for a reply"), SPEAKER_FAILED;
    const speaker_ending how = speaker_write(&t->speaker, most, true, put_reply, &r);
    shown_end(&r.shown);
    shown_end(&r.kept);
    fclose(r.kept.to);
    putchar('\n');
    fflush(stdout);
    return how;
}

static int wrong_room(const struct talk *t)
{
    fprintf(stderr, "%s: the conversation has filled its room of %zu tokens and ends here; --room makes more, up to the model's %d\n", t->program,
            t->speaker.room, t->speaker.config.context);
    return 0;
}

/* -1: the conversation goes on. */
static int turn(struct talk *t, const sample_opts *opts)
{
    char *text = NULL;
    t->ids.count = 0;
    if (!tokenizer_chat(t->speaker.encoder, t->said->message, t->said->count, true, &t->ids, NULL))
        return options_wrong(t->program, "--chat: %s: %s", t->path, tokens_error());
    if (t->ids.count > t->speaker.room)
        return wrong_room(t);
    if (!speaker_become(&t->speaker, &t->ids))
        return options_wrong(t->program, "%s", tokens_error());
    interrupt_stops(NULL);
    const speaker_ending how = write_reply(t, opts->bytes < 0 ? INT64_MAX : opts->bytes, &text);
    const int caught = interrupt_forget();
    if (how == SPEAKER_FAILED) {
        free(text);
        return 1;
    }
    if (!add_message(t, "assistant", text))
        return 1;
    if (caught && caught != SIGINT)
        return interrupt_status(caught);
    return how == SPEAKER_FULL ? wrong_room(t) : -1;
}

static int talk(struct talk *t, const sample_opts *opts)
{
    int status = -1;
    char *system = opts->system ? strdup(opts->system) : NULL;
    if (opts->system && !add_message(t, "system", system))
        return 1;
    for (char *text; status < 0 && (text = read_message());) {
        if (!*text)
            free(text);
        else
            status = add_message(t, "user", text) ? turn(t, opts) : 1;
    }
    if (status <= 0)
        speaker_tell(&t->speaker);
    return status < 0 ? 0 : status;
}

/* Refuses a model that has no chats before anybody has written a message. */
static int check_chats(struct talk *t)
{
    struct token_ids ids = {.id = NULL};
    const bool ok = tokenizer_chat(t->speaker.encoder, &(struct chat_message){"user", "Hello"}, 1, true, &ids, NULL);
    free(ids.id);
    return ok ? -1 : options_wrong(t->program, "--chat: %s: %s", t->path, tokens_error());
}

int chat(const char *program, const char *path, const sample_opts *opts)
{
    struct messages said = {.count = 0};
    struct talk t = {.program = program, .path = path, .said = &said};
    interrupt_catch(NULL);
    int status = speaker_begin(&t.speaker, program, path, opts);
    if (status < 0)
        status = check_chats(&t);
    if (status < 0)
        status = speaker_open(&t.speaker, opts, opts->room ? opts->room : ROOM, ROOM);
    if (status < 0)
        status = talk(&t, opts);
    for (size_t i = 0; i < said.count; i++)
        free((char *)said.message[i].content);
    free(said.message);
    free(t.ids.id);
    speaker_close(&t.speaker);
    return status;
}
