/* tests/apps/test_samples.c: conversations and texts as rows of tokens and labels, id by id; the order of an epoch; lines that are wrong. */
#include "apps/common/model/lm.h"
#include "apps/common/model/samples.h"
#include "tests/apps/shell.h"
#include "tests/support/bytes_tokenizer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQ = 40, ROWS_MAX = 64 };

static struct tokenizer *tokenizer;
static struct encoder *encoder;
static samples all;
static char why[1024];

static void begin(void)
{
    shell_begin();
    cr_assert(bytes_tokenizer_write(folder_path(".")));
    tokenizer = tokenizer_read(folder_path("."));
    cr_assert(tokenizer, "%s", tokens_error());
    encoder = encoder_new(tokenizer);
}

static void end(void)
{
    samples_free(&all);
    encoder_free(encoder);
    tokenizer_free(tokenizer);
    folder_remove();
}

TestSuite(samples, .init = begin, .fini = end, .timeout = 60);

static bool add_lines(const char *lines, int seq)
{
    const samples_reader reader = {encoder, seq, BYTES_TOKENIZER_END};
    folder_write(folder_path("talks.jsonl"), lines, strlen(lines));
    return samples_add_chat(&all, &reader, folder_path("talks.jsonl"), why, sizeof why);
}

static int32_t row[2][ROWS_MAX * SEQ]; /* tokens, labels */

static void fill(size_t first, size_t count, bool once, int64_t from, int rows)
{
    const samples_range range = {.of = &all, .first = first, .count = count, .seed = 5};
    for (int labels = 0; labels < 2; labels++) {
        const weir_view view = {.dtype = WEIR_I32, .shape = {2, {rows, SEQ}}, .data = row[labels]};
        (once ? samples_fill_once : samples_fill)(&range, from, labels, &view);
    }
}

/* Ids as text: < and > are <|im_start|> and <|im_end|>, and a label that does not count is a dot. */
static const char *shown(const int32_t *ids, int count)
{
    static char text[2][SEQ + 1];
    static int turn;
    char *to = text[turn ^= 1];
    for (int i = 0; i < count; i++)
        to[i] = ids[i] == BYTES_TOKENIZER_BEGIN ? '<' : ids[i] == BYTES_TOKENIZER_END ? '>' : ids[i] == LM_IGNORED ? '.' : ids[i] == '\n' ? '/' : (char)ids[i];
    to[count] = '\0';
    return to;
}

static void expect_row(const char *tokens, const char *labels)
{
    const int count = (int)strlen(tokens);
    fill(0, 1, true, 0, 1);
    cr_expect_str_eq(shown(row[0], count), tokens);
    cr_expect_str_eq(shown(row[1], count), labels);
    for (int i = count; i < SEQ; i++)
        cr_expect(row[0][i] == 0 && row[1][i] == LM_IGNORED, "%d", i);
    samples_free(&all);
}

#define SAY(role, content) "{\"role\": \"" role "\", \"content\": \"" content "\"}"

Test(samples, replies_and_the_tokens_that_end_them_count)
{
    cr_assert(add_lines("{\"messages\": [" SAY("user", "Hi") ", " SAY("assistant", "yes") "]}\n", SEQ), "%s", why);
    expect_row("<user/Hi>/<assistant/yes>", "....................yes>.");
}

Test(samples, every_reply_of_a_conversation_counts)
{
    cr_assert(add_lines("{\"messages\": [" SAY("user", "a") "," SAY("assistant", "b") "," SAY("user", "c") "," SAY("assistant", "d") "]}", 60), "%s", why);
    cr_expect_eq(all.count, 1);
    int counts = 0;
    for (size_t i = 0; i < all.ids; i++)
        counts += all.counts[i];
    cr_expect_eq(counts, 4); /* b> and d> */
}

Test(samples, of_a_prompt_and_a_completion_the_second_counts)
{
    cr_assert(add_lines("{\"prompt\": \"ab\", \"completion\": \"cde\"}\n", SEQ), "%s", why);
    expect_row("abcde", ".cde>");
}

Test(samples, special_tokens_in_a_message_are_text)
{
    cr_assert(add_lines("{\"prompt\": \"<|im_end|>\", \"completion\": \"x\"}\n", SEQ), "%s", why);
    expect_row("<|im_end|>x", ".........x>");
}

Test(samples, long_conversations_are_cut_and_those_without_a_reply_left_out)
{
    cr_assert(add_lines("{\"prompt\": \"abcdef\", \"completion\": \"gh\"}\n\n  \r\n{\"prompt\": \"ab\", \"completion\": \"cdefgh\"}\n"
                        "{\"messages\": [" SAY("user", "never answered") "]}\n", 5), "%s", why);
    cr_expect_eq(all.left_out, 2);
    cr_expect_eq(all.cut, 1);
    cr_assert_eq(all.count, 1);
    expect_row("abcde", ".cdef");
}

Test(samples, a_text_is_windows_of_which_each_begins_with_the_last_token_of_the_one_before)
{
    const samples_reader reader = {encoder, 4, -1};
    folder_write(folder_path("a.txt"), "abcdefghijk", 11);
    cr_assert(samples_add_text(&all, &reader, folder_path("a.txt"), why, sizeof why), "%s", why);
    cr_assert_eq(all.count, 2);
    fill(0, 2, true, 0, 2);
    cr_expect_str_eq(shown(row[0], 4), "abcd");
    cr_expect_str_eq(shown(row[1], 4), "bcde");
    cr_expect_str_eq(shown(row[0] + SEQ, 4), "efgh");
    cr_expect_str_eq(shown(row[1] + SEQ, 4), "fghi");
}

static void add_many(int count)
{
    char lines[64 * ROWS_MAX] = "";
    for (int i = 0; i < count; i++)
        snprintf(lines + strlen(lines), 64, "{\"prompt\": \"%c\", \"completion\": \"x\"}\n", 'A' + i);
    cr_assert(add_lines(lines, SEQ), "%s", why);
}

Test(samples, an_epoch_has_each_sample_once_in_an_order_of_its_own)
{
    enum { COUNT = 20 };
    char order[3][COUNT + 1] = {""};
    add_many(COUNT);
    for (int epoch = 0; epoch < 3; epoch++) {
        fill(0, COUNT, false, epoch * COUNT, COUNT);
        for (int r = 0; r < COUNT; r++) {
            order[epoch][r] = (char)row[0][r * SEQ];
            cr_expect(!strchr(order[epoch] + r + 1, 'A'));
            for (int before = 0; before < r; before++)
                cr_expect_neq(order[epoch][before], order[epoch][r]);
            cr_expect_eq(row[1][r * SEQ], 'x');
        }
    }
    cr_expect(strcmp(order[0], order[1]) != 0);
    cr_expect(strcmp(order[1], order[2]) != 0);
    fill(0, COUNT, false, COUNT - 3, 6); /* rows of a step may lie in two epochs */
    for (int r = 0; r < 6; r++)
        cr_expect_eq((char)row[0][r * SEQ], r < 3 ? order[0][COUNT - 3 + r] : order[1][r - 3]);
}

Test(samples, evaluation_sees_each_held_out_sample_once)
{
    add_many(20);
    fill(18, 2, true, 0, 4);
    cr_expect(row[0][0] == 'S' && row[0][SEQ] == 'T');
    for (int i = 2 * SEQ; i < 4 * SEQ; i++)
        cr_expect_eq(row[1][i], LM_IGNORED);
}

Test(samples, a_wrong_line_is_one_sentence_with_its_number)
{
    static const char *const lines[][2] = {
        {"{", "is not JSON: "},
        {"[1]", "has neither \"messages\" nor \"prompt\" and \"completion\""},
        {"{\"messages\": []}", "\"messages\" must be a list of 1 to 4096 messages"},
        {"{\"messages\": {\"role\": \"user\"}}", "\"messages\" must be a list of 1 to 4096 messages"},
        {"{\"messages\": [7]}", "message 1: \"role\" must be a text"},
        {"{\"messages\": [" SAY("user", "a") "," SAY("tool", "b") "]}", "message 2 has the role \"tool\"; system, user and assistant are allowed"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}", "message 1: \"content\" must be a text"},
        {"{\"messages\": [" SAY("user", "a\\u0000b") "]}", "message 1: \"content\" has a zero byte"},
        {"{\"messages\": [" SAY("user", "a") "], \"messages\": []}", "is not JSON: duplicate"},
        {"{\"messages\": [" SAY("user", "a") "], \"tools\": [{}]}", "has \"tools\", which are not supported"},
        {"{\"prompt\": \"a\"}", "\"prompt\" and \"completion\" must both be texts"},
        {"{\"prompt\": \"\xff\", \"completion\": \"b\"}", "is not JSON: "},
    };
    char text[512], want[256];
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(text, sizeof text, "{\"prompt\": \"a\", \"completion\": \"b\"}\n\n%s\n", lines[i][0]);
        cr_expect(!add_lines(text, SEQ), "%s", lines[i][0]);
        snprintf(want, sizeof want, "/talks.jsonl:3: %s", lines[i][1]);
        cr_expect(strstr(why, want), "\"%s\" is not in: %s", want, why);
    }
    const samples_reader reader = {encoder, SEQ, -1};
    cr_expect(!samples_add_chat(&all, &reader, folder_path("no.jsonl"), why, sizeof why));
    cr_expect(strstr(why, "/no.jsonl: cannot be read: No such file or directory"), "%s", why);
    cr_expect(!samples_add_chat(&all, &reader, folder_path("."), why, sizeof why));
    cr_expect(strstr(why, "it is a folder, not a regular file"), "%s", why);
}
