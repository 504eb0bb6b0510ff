/* weir tokens: texts as ids of tokens, and back, for files that weir-gpt --tokens trains on. A text is read whole, and its ids are
 * all there before the first is written: an output is complete or there is none. */
#include "apps/common/tokens/ids_file.h"

#include "apps/common/options.h"
#include "apps/weir/command.h"
#include "apps/weir/tokens_chat.h"
#include "apps/weir/verbs.h"
#include "graph/base/reading.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* verb, arguments, what it does */
#define TOKENS_LIST(X)                                                                                   \
    X(encode, "--tokenizer FILE [TEXT] [-o FILE]", "write the ids of a text's tokens")                   \
    X(decode, "--tokenizer FILE [IDS] [-o FILE]", "write the text of ids")                               \
    X(count, "--tokenizer FILE [TEXT]", "print how many tokens a text has")                              \
    X(chat, "--tokenizer FILE [CHATS] [--open]", "write the ids of conversations")

enum form { FORM_TEXT, FORM_U16, FORM_U32, FORMS };
static const char *const form_names[FORMS] = {"text", "u16", "u32"};

struct job {
    const char *program, *tokenizer, *in, *out, *as;
    bool plain, ends;
    enum form form;
    struct tokenizer *read; /* owned, as the next three */
    struct encoder *encoder;
    char *text;
    struct token_ids ids;
    size_t bytes;           /* of the text */
};

/* ---- reading and writing ---- */

static bool is_standard(const char *path)
{
    return !path || !strcmp(path, "-");
}

static char *read_stream(FILE *file, size_t *bytes)
{
    size_t room = 1 << 16, got = 0;
    char *text = malloc(room), *grown = text;
    while (grown && (got += fread(text + got, 1, room - got, file)) == room) {
        grown = realloc(text, room *= 2);
        text = grown ? grown : text;
    }
    if (grown && !ferror(file)) {
        *bytes = got;
        return text;
    }
    free(text);
    return NULL;
}

/* -1, or the exit status after reporting. */
static int read_input(struct job *j)
{
    const char *why = NULL, *name = is_standard(j->in) ? "standard input" : j->in;
    FILE *file = is_standard(j->in) ? stdin : reading_stream(j->in, &why);
    if (!file)
        return options_wrong(j->program, "cannot read %s: %s", name, why);
    errno = 0;
    j->text = read_stream(file, &j->bytes);
    if (!j->text)
        options_wrong(j->program, "cannot read %s: %s", name, strerror(errno ? errno : ENOMEM));
    if (file != stdin)
        fclose(file);
    return j->text ? -1 : 1;
}

/* Calls put() for a new file or standard output. Returns the exit status. */
static int write_output(struct job *j, bool (*put)(const struct job *j, FILE *file))
{
    if (is_standard(j->out))
        return put(j, stdout) ? 0 : (options_wrong(j->program, "cannot write standard output: %s", strerror(errno)), 1);
    FILE *file = fopen(j->out, "wbe");
    if (!file)
        return options_wrong(j->program, "cannot write %s: %s", j->out, strerror(errno));
    bool ok = put(j, file);
    ok = !fclose(file) && ok;
    return ok ? 0 : (options_wrong(j->program, "cannot write %s: %s", j->out, strerror(errno)), 1);
}

/* ---- ids ---- */

static bool put_ids(const struct job *j, FILE *file)
{
    bool ok = true;
    if (j->form == FORM_U16)
        return ids_write_u16(&j->ids, file);
    if (j->form == FORM_U32)
        return ids_write_u32(&j->ids, file);
    for (size_t i = 0; i < j->ids.count && ok; i++)
        ok = fprintf(file, "%" PRIu32 "\n", j->ids.id[i]) > 0;
    return ok;
}

static int wrong_ids(const struct job *j, const char *what)
{
    options_wrong(j->program, "%s: %s", is_standard(j->in) ? "standard input" : j->in, what);
    return 1;
}

/* Numbers with white space between them. The text has a byte of room behind its end. */
static int take_numbers(struct job *j)
{
    const char *at = j->text, *const end = j->text + j->bytes;
    while (true) {
        while (at < end && isspace((unsigned char)*at))
            at++;
        if (at == end)
            return -1;
        uint64_t id = 0;
        const char *const begin = at;
        for (; at < end && isdigit((unsigned char)*at) && id <= UINT32_MAX; at++)
            id = 10 * id + (uint64_t)(*at - '0');
        if (at == begin || id > UINT32_MAX || (at < end && !isspace((unsigned char)*at)))
            return wrong_ids(j, "is not a list of ids; --as u16 or --as u32 reads files of numbers");
        if (!token_ids_add(&j->ids, &(uint32_t){(uint32_t)id}, 1))
            return wrong_ids(j, tokens_error());
    }
}

/* Behind the header of llm.c, if there is one, which 32-bit numbers need. */
static int take_binary(struct job *j)
{
    const bool wide = j->form == FORM_U32;
    const size_t each = wide ? 4 : 2;
    int32_t head[3] = {0};
    memcpy(head, j->text, j->bytes < sizeof head ? j->bytes : sizeof head);
    const bool headed = j->bytes >= 4 * LLMC_NUMBERS && head[0] == (wide ? LLMC_U32 : LLMC_U16) &&
                        head[1] == (wide ? LLMC_U32_VERSION : LLMC_U16_VERSION);
    const size_t from = headed ? 4 * LLMC_NUMBERS : 0, count = (j->bytes - from) / each;
    if (wide && !headed)
        return wrong_ids(j, "does not begin as llm.c's files of 32-bit tokens do");
    if ((j->bytes - from) % each || (headed && (int64_t)count != head[2]))
        return wrong_ids(j, "is cut, or no file of tokens");
    for (size_t i = 0; i < count; i++) {
        uint32_t id = 0;
        memcpy(&id, j->text + from + i * each, each);
        if (!token_ids_add(&j->ids, &id, 1))
            return wrong_ids(j, tokens_error());
    }
    return -1;
}

/* ---- verbs ---- */

static int take_form(struct job *j)
{
    for (j->form = 0; j->form < FORMS && strcmp(form_names[j->form], j->as) != 0;)
        j->form++;
    return j->form < FORMS ? -1 : options_wrong(j->program, "--as is \"%s\"; text, u16 and u32 are allowed", j->as);
}

/* Parses the command line and reads both files. -1, or the exit status after reporting. */
static int begin(struct job *j, const char *about, const options_entry *table, int argc, char **argv)
{
    int status = options_parse(&(options_spec){j->program, about, table}, argc, argv);
    if (status < 0)
        status = take_form(j);
    if (status < 0 && !j->tokenizer)
        status = options_wrong(j->program, "needs --tokenizer FILE, " TOKENS_FILES);
    if (status < 0 && !(j->read = tokenizer_read(j->tokenizer)))
        status = options_wrong(j->program, "%s", tokens_error());
    return status < 0 ? read_input(j) : status;
}

static int encode(struct job *j)
{
    j->encoder = encoder_new(j->read);
    if (!j->encoder)
        return options_wrong(j->program, "no memory"), 1;
    if (!(j->ends ? tokenizer_encode_with_ends : tokenizer_encode)(j->encoder, j->text, j->bytes, j->plain, &j->ids))
        return options_wrong(j->program, "%s: %s", is_standard(j->in) ? "standard input" : j->in, tokens_error()), 1;
    return -1;
}

static int end(struct job *j, int status)
{
    encoder_free(j->encoder);
    tokenizer_free(j->read);
    free(j->text);
    free(j->ids.id);
    return status;
}

#define TEXT_OPTIONS(job) \
    {"--plain", OPTIONS_FLAG, &(job).plain, .help = "read special tokens in the text, such as <|endoftext|>, as plain text"}, \
    {"--ends", OPTIONS_FLAG, &(job).ends, .help = "add the tokens that the model's file puts before and after a text"}

static int tokens_encode(int argc, char **argv)
{
    struct job j = {.program = "weir tokens encode", .as = "text"};
    const options_entry table[] = {
        {"TEXT", OPTIONS_TEXT, &j.in, .optional = true, .file = OPTIONS_READS, .help = "UTF-8; default, and -: standard input"},
        TOKENS_TOKENIZER_OPTION(j.tokenizer),
        {"-o", OPTIONS_TEXT, &j.out, .value = "FILE", .file = OPTIONS_WRITES, .help = "write the ids here; default: standard output"},
        {"--as", OPTIONS_TEXT, &j.as, .value = "FORM", .help = "text: a number in each line; u16: nanoGPT's files; u32: llm.c's files"},
        TEXT_OPTIONS(j),
        {.name = NULL},
    };
    int status = begin(&j, "Write the ids of a text's tokens. weir-gpt --tokens reads u16 and u32.", table, argc, argv);
    if (status < 0 && j.form == FORM_U16 && tokenizer_size(j.read) > UINT16_MAX + 1)
        status = options_wrong(j.program, "--as u16: the tokenizer has %" PRIu32 " ids, and 16 bits hold 65536; use --as u32",
                               tokenizer_size(j.read));
    if (status < 0)
        status = encode(&j);
    if (status < 0 && j.form == FORM_U32 && j.ids.count > INT32_MAX)
        status = (options_wrong(j.program, "the text has %zu tokens, and a file of llm.c holds 2147483647", j.ids.count), 1);
    return end(&j, status < 0 ? write_output(&j, put_ids) : status);
}

static bool put_text(const struct job *j, FILE *file)
{
    bool ok = true;
    struct decoder d = {.tokenizer = j->read};
    for (size_t i = 0; i < j->ids.count && ok; i++) {
        size_t bytes = 0;
        const char *text = decoder_next(&d, j->ids.id[i], &bytes);
        ok = fwrite(text, 1, bytes, file) == bytes;
    }
    return ok;
}

/* Whether each id is a token's. */
static int check_ids(struct job *j)
{
    char what[128];
    size_t bytes;
    for (size_t i = 0; i < j->ids.count; i++)
        if (!tokenizer_bytes(j->read, j->ids.id[i], &bytes)) {
            snprintf(what, sizeof what, "number %zu is the id %" PRIu32 ", which is no token; ids are below %" PRIu32, i,
                     j->ids.id[i], tokenizer_size(j->read));
            return wrong_ids(j, what);
        }
    return -1;
}

static int tokens_decode(int argc, char **argv)
{
    struct job j = {.program = "weir tokens decode", .as = "text"};
    const options_entry table[] = {
        {"IDS", OPTIONS_TEXT, &j.in, .optional = true, .file = OPTIONS_READS, .help = "what encode wrote; default, and -: standard input"},
        TOKENS_TOKENIZER_OPTION(j.tokenizer),
        {"-o", OPTIONS_TEXT, &j.out, .value = "FILE", .file = OPTIONS_WRITES, .help = "write the text here; default: standard output"},
        {"--as", OPTIONS_TEXT, &j.as, .value = "FORM", .help = "of the ids: text, u16 or u32"},
        {.name = NULL},
    };
    int status = begin(&j, "Write the text of ids.", table, argc, argv);
    if (status < 0)
        status = j.form == FORM_TEXT ? take_numbers(&j) : take_binary(&j);
    if (status < 0)
        status = check_ids(&j);
    return end(&j, status < 0 ? write_output(&j, put_text) : status);
}

static int tokens_count(int argc, char **argv)
{
    struct job j = {.program = "weir tokens count", .as = "text"};
    const options_entry table[] = {
        {"TEXT", OPTIONS_TEXT, &j.in, .optional = true, .file = OPTIONS_READS, .help = "UTF-8; default, and -: standard input"},
        TOKENS_TOKENIZER_OPTION(j.tokenizer),
        TEXT_OPTIONS(j),
        {.name = NULL},
    };
    int status = begin(&j, "Print how many tokens a text has.", table, argc, argv);
    if (status < 0)
        status = encode(&j);
    if (status < 0)
        status = printf("%zu tokens, %zu bytes\n", j.ids.count, j.bytes) < 0;
    return end(&j, status);
}

int command_tokens(int argc, char **argv)
{
#define X(name, arguments, text) VERB(name, arguments, text, tokens_)
    static const struct verb list[] = {TOKENS_LIST(X) {.name = NULL}};
#undef X
    static const struct verbs verbs = {"weir tokens", "usage: weir tokens encode|decode|count|chat ...\nConvert texts and conversations to ids of tokens, and ids to texts.",
                                       44, "`weir tokens encode --help` and so on list the options.", "needs encode, decode, count or chat", list};
    return verbs_run(&verbs, argc, argv);
}
