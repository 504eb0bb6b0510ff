/* tests/apps/test_writing.c: weir-gpt --model writes text and holds conversations, with a small model of random weights whose tokens are
 * bytes; and texts at which writing stops. */
#define _GNU_SOURCE
#include "apps/common/model/stops.h"
#include "tests/apps/shell.h"
#include "tests/support/lm_case.h"

#include <ctype.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

TestSuite(writing, .init = shell_begin, .fini = folder_remove, .timeout = 300);

#define HAS(part) cr_expect(strstr(output, part), "lacks \"%s\":\n%s", part, output)
#define GPT APPS_BIN "/weir-gpt --model $T/talk.gguf "

/* The model sees `context` tokens. */
static void make_model(int context)
{
    struct lm_case of = *lm_case_named("llama.gguf");
    of.name = "talk.gguf";
    of.c.context = context;
    lm_case_gguf(&of, NULL);
}

/* Returns the text that the command writes to standard output. */
static const char *text_of(const char *command)
{
    static char texts[2][4096];
    static int which;
    char *to = texts[which ^= 1], all[1024];
    snprintf(all, sizeof all, "%s 2>/dev/null", command);
    must_run(all);
    return strcpy(to, output);
}

/* ---- stop texts ---- */

static void put(void *ctx, unsigned char byte)
{
    strncat(ctx, (const char *)&(char[2]){(char)byte, 0}, 1);
}

static void expect_stop(const char *first, const char *second, const char *bytes, const char *wanted, bool stops)
{
    struct stops s = {.text = {first, second}, .count = 2};
    char got[100] = "";
    bool whole = false;
    for (; *bytes && !whole; bytes++)
        whole = stops_byte(&s, (unsigned char)*bytes, put, got);
    stops_end(&s, put, got);
    cr_expect_str_eq(got, wanted);
    cr_expect_eq(whole, stops, "%s", got);
}

Test(writing, a_stop_text_ends_it_and_is_not_written)
{
    expect_stop("END", "\n\n", "one\ntwo END", "one\ntwo ", true);
    expect_stop("END", "\n\n", "one\n\ntwo", "one", true);
    expect_stop("END", "\n\n", "EEND", "E", true);
    expect_stop("END", "NE", "ENE", "E", true);
    expect_stop("aab", "x", "aaab", "a", true);
    expect_stop("aab", "x", "aaaa", "aaaa", false);
    expect_stop("END", "ENDE", "EN", "EN", false);
    expect_stop("x", "y", "x", "", true);
}

/* ---- text ---- */

Test(writing, a_prompt_in_chunks_gives_the_text_that_its_tokens_give_one_by_one)
{
    char line[101], command[400];
    for (int i = 0; i < 100; i++)
        line[i] = "the quick brown fox "[i * 7 % 20];
    line[100] = '\0';
    for (int exact = 0; exact < 2; exact++) {
        snprintf(command, sizeof command, GPT "%s --temperature 0 --prompt '%s' --sample 20", exact ? "--f32-activations" : "", line);
        make_model(120); /* it sees no whole chunk */
        const char *rows = text_of(command);
        make_model(400);
        cr_expect_str_eq(rows, text_of(command));
    }
}

Test(writing, devices_and_processes_that_share_a_model_write_its_text)
{
    make_model(400);
    const char *alone = text_of(GPT "--prompt 'the quick brown fox jumps' --sample 30 --seed 3");
    cr_expect_str_eq(alone, text_of(GPT "--tp 2 --prompt 'the quick brown fox jumps' --sample 30 --seed 3"));
    cr_expect_str_eq(alone, text_of(APPS_BIN "/weir launch -n 2 --no-prefix " GPT "--tp 2 --prompt 'the quick brown fox jumps' --sample 30 --seed 3"));
}

Test(writing, a_seed_gives_one_text)
{
    make_model(400);
    const char *first = text_of(GPT "--prompt ab --sample 40 --top-k 0 --top-p 1 --min-p 0 --seed 4");
    cr_expect_str_eq(first, text_of(GPT "--prompt ab --sample 40 --top-k 0 --top-p 1 --min-p 0 --seed 4"));
    first = text_of(GPT "--prompt ab --sample 40 --top-k 0 --top-p 1 --min-p 0 --seed 4");
    cr_expect(strcmp(first, text_of(GPT "--prompt ab --sample 40 --top-k 0 --top-p 1 --min-p 0 --seed 5")) != 0);
    first = text_of(GPT "--prompt ab --sample 40 --top-k 1 --seed 5");
    cr_expect_str_eq(first, text_of(GPT "--prompt ab --sample 40 --temperature 0 --seed 6"));
}

/* Two letters that the text has from byte `from` on; 0: none. */
static size_t letters_in(const char *text, size_t from)
{
    for (; text[from] && text[from + 1]; from++)
        if (isalnum((unsigned char)text[from]) && isalnum((unsigned char)text[from + 1]))
            return from;
    return 0;
}

Test(writing, the_program_ends_at_a_stop_text_that_spans_tokens)
{
    make_model(400);
    char command[300];
    size_t at = 0;
    const char *whole = "";
    for (int seed = 0; seed < 30 && !at; seed++) {
        snprintf(command, sizeof command, GPT "--prompt '. ' --sample 60 --temperature 1 --top-k 0 --seed %d", seed);
        at = letters_in(whole = text_of(command), 2);
    }
    cr_assert(at, "no seed gives two letters");
    snprintf(command + strlen(command), sizeof command - strlen(command), " --stop '\n\n\n' --stop '%.2s'", whole + at);
    const char *part = text_of(command);
    cr_expect_eq(strlen(part), at + 1, "%s", part); /* and a newline */
    cr_expect_eq(strncmp(part, whole, at), 0, "%s\n%s", part, whole);
}

Test(writing, an_option_that_would_do_nothing_is_refused)
{
    make_model(400);
    cr_expect_eq(run(APPS_BIN "/weir-gpt --chat --steps 1"), 2);
    HAS("--chat needs --model");
    cr_expect_eq(run(APPS_BIN "/weir-gpt --stop x --steps 1"), 2);
    HAS("--stop needs --model");
    cr_expect_eq(run(GPT "--system x"), 2);
    HAS("--system needs --chat");
    lm_case_gguf(lm_case_named("llama.gguf"), "tokenizer.chat_template");
    cr_expect_eq(run(APPS_BIN "/weir-gpt --chat --model $T/llama.gguf"), 2);
    HAS("--chat: ");
    HAS("/llama.gguf: has no chat template");
    cr_expect_eq(run(GPT "--stop ''"), 2);
    HAS("--stop: a text of 0 bytes; 1 to 256 are allowed");
    cr_expect_eq(run(GPT "--top-p 2"), 2);
    HAS("--top-p must be between 0 and 1, not 2");
}

/* ---- a chat ---- */

/* Counts of the program's last line. */
static void counts(int *written, int *read)
{
    const char *line = strstr(output, " tokens written behind ");
    cr_assert(line, "%s", output);
    while (line > output && line[-1] != '\n')
        line--;
    cr_assert_eq(sscanf(line, "%d tokens written behind %d in", written, read), 2, "%s", line);
}

Test(writing, a_chat_replies_to_each_line_and_reads_only_what_is_new)
{
    make_model(2000);
    int written, read;
    must_run("printf 'one\\n\\ntwo, \\\\\\nin two lines\\n' | " GPT "--chat --sample 5 --system 'Be brief.' --temperature 0");
    counts(&written, &read);
    const int user = (int)strlen("\1user\n\1\n"), opening = (int)strlen("\1assistant\n"); /* <|im_start|> and <|im_end|> are a token each */
    const int first = (int)strlen("\1system\nBe brief.\1\n") + user + 3 + opening;
    const int second = (int)strlen("\1\n") + user + (int)strlen("two, \nin two lines") + opening;
    cr_expect(written > 0 && written <= 10, "%d", written);
    cr_expect(read >= first + second && read <= first + second + 3 * 5 + 1, "%d, not about %d", read, first + second); /* U+FFFD is three */
    cr_expect_eq(run("printf '' | " GPT "--chat"), 0);
    HAS("0 tokens written behind 0 in ");
}

Test(writing, a_chat_ends_where_its_room_is_full)
{
    make_model(2000);
    must_run("yes hello | " GPT "--chat --room 200");
    HAS("weir-gpt: the conversation has filled its room of 200 tokens and ends here; --room makes more, up to the model's 2000");
    must_run("printf 'This message is longer than all the room that there is.\\n' | " GPT "--chat --room 20");
    HAS("has filled its room of 20 tokens");
    HAS("0 tokens written behind 0");
}

/* The program with its standard input and output on pipes, and messages on the terminal's. */
static pid_t start_chat(int *in, int *out)
{
    int to[2], from[2];
    cr_assert(!pipe(to) && !pipe(from));
    const pid_t child = fork();
    if (!child) {
        dup2(to[0], STDIN_FILENO), dup2(from[1], STDOUT_FILENO);
        close(to[0]), close(to[1]), close(from[0]), close(from[1]);
        execl(APPS_BIN "/weir-gpt", "weir-gpt", "--model", folder_path("talk.gguf"), "--chat", "--room", "60000", "--temperature", "0", NULL);
        _exit(127);
    }
    close(to[0]), close(from[1]);
    *in = to[1], *out = from[0];
    return child;
}

/* Sends a message and reads the first byte of the reply. */
static void send_and_see(int in, int out)
{
    char byte;
    cr_assert_eq(write(in, "hello\n", 6), 6);
    cr_assert_eq(read(out, &byte, 1), 1);
}

/* Reads until nothing more comes: the program waits for a message. A reply that was not ended would go on for minutes. */
static void skip_reply(int out)
{
    struct pollfd more = {.fd = out, .events = POLLIN};
    char bytes[4096];
    while (poll(&more, 1, 2000) == 1)
        cr_assert_gt(read(out, bytes, sizeof bytes), 0, "the chat has ended");
}

Test(writing, an_interrupt_ends_a_reply_and_not_the_chat)
{
    make_model(60000);
    int in, out, status;
    const pid_t child = start_chat(&in, &out);
    send_and_see(in, out);
    kill(child, SIGINT);
    skip_reply(out);
    send_and_see(in, out); /* it still replies */
    kill(child, SIGTERM);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM, "%x", (unsigned)status);
    close(in), close(out);
}
