/* continue.c: see the header. */
#include "apps/weir-gpt/continue.h"

#include "apps/common/model/shown.h"
#include "apps/common/ranks.h"
#include "apps/common/train/interrupt.h"
#include "apps/weir-gpt/speaker.h"

#include <stdlib.h>
#include <string.h>

/* The first rank speaks for all. */
static void show_byte(void *ctx, unsigned char byte)
{
    if (ranks_first())
        shown_byte(ctx, byte);
}

static int write_text(struct speaker *s, const sample_opts *opts)
{
    struct shown shown = {.to = stdout};
    for (const char *c = opts->prompt; *c; c++)
        show_byte(&shown, (unsigned char)*c);
    const speaker_ending how = speaker_write(s, opts->bytes, false, show_byte, &shown);
    if (how == SPEAKER_FAILED)
        return 1;
    if (ranks_first()) {
        shown_end(&shown);
        putchar('\n');
        speaker_tell(s);
    }
    return interrupt_caught() ? interrupt_status(interrupt_caught()) : 0;
}

/* Leaves the prompt's ids. */
static int open_model(struct speaker *s, const char *program, const char *path, const sample_opts *opts, struct token_ids *ids)
{
    const int status = speaker_begin(s, program, path, opts);
    if (status >= 0)
        return status;
    if (!tokenizer_begin(s->tokenizer, ids) || !tokenizer_encode(s->encoder, opts->prompt, strlen(opts->prompt), false, ids))
        return options_wrong(program, "--prompt: %s", tokens_error());
    speaker_encodes_no_more(s);
    if (!ids->count)
        return options_wrong(program, "--prompt: it has no tokens");
    if (ids->count > (size_t)s->config.context)
        return options_wrong(program, "--prompt: it has %zu tokens, and the model sees at most %d", ids->count, s->config.context);
    return speaker_open(s, opts, (int64_t)ids->count + opts->bytes, (int64_t)ids->count);
}

int continue_text(const char *program, const char *path, const sample_opts *opts)
{
    struct speaker s;
    struct token_ids ids = {.id = NULL};
    interrupt_catch(NULL);
    int status = open_model(&s, program, path, opts, &ids);
    if (status < 0 && !speaker_become(&s, &ids))
        status = options_wrong(program, "%s", tokens_error());
    interrupt_stops(NULL);
    if (status < 0)
        status = write_text(&s, opts);
    speaker_close(&s);
    free(ids.id);
    return status;
}
