/* tests/apps/test_words.c: weir-words counts what a simple program counts, in memory that does not follow the file. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORD_MAX = 255, TEXT_BYTES = 120000, OUTPUT_BYTES = 1 << 21, LARGE_MIB = 20, PEAK_MIB = 16 };

static char folder[] = "/tmp/weir-words-XXXXXX";
static char output[OUTPUT_BYTES], expected[OUTPUT_BYTES];

static void make_folder(void)
{
    cr_assert(mkdtemp(folder), "no folder for the test's files");
    setenv("T", folder, 1);
}

static void remove_folder(void)
{
    cr_expect(system("rm -r $T") == 0);
}

TestSuite(words, .init = make_folder, .fini = remove_folder, .timeout = 120);

/* Both of its outputs, when `also` says so. */
static int run(const char *options, const char *also)
{
    char command[512];
    snprintf(command, sizeof command, APPS_BIN "/weir-words %s $T/text %s", options, also);
    FILE *pipe = popen(command, "r");
    cr_assert(pipe, "cannot run %s", command);
    output[fread(output, 1, OUTPUT_BYTES - 1, pipe)] = 0;
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void write_text(const char *text, size_t bytes, int times)
{
    char path[64];
    snprintf(path, sizeof path, "%s/text", folder);
    FILE *file = fopen(path, "w");
    cr_assert(file);
    for (int i = 0; i < times; i++)
        cr_assert_eq(fwrite(text, 1, bytes, file), bytes);
    cr_assert_eq(fclose(file), 0);
}

/* ---- the reference: all words in an array, sorted ---- */

static bool in_word(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c >= 128;
}

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

typedef struct counted {
    const char *word;
    int count;
} counted;

static int compare_counts(const void *a, const void *b)
{
    const counted *x = a, *y = b;
    return x->count != y->count ? y->count - x->count : strcmp(x->word, y->word);
}

static int find_words(const char *text, size_t bytes, char **word)
{
    int words = 0;
    for (size_t i = 0; i < bytes;) {
        size_t end = i;
        while (end < bytes && in_word((unsigned char)text[end]))
            end++;
        if (end > i) {
            size_t length = end - i < WORD_MAX ? end - i : WORD_MAX;
            word[words] = strndup(text + i, length);
            for (char *c = word[words]; *c; c++)
                *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
            words++;
        }
        i = end + 1;
    }
    return words;
}

/* The words that `--top 0` prints of the text. */
static void expect_words(const char *text, size_t bytes)
{
    char **word = calloc(bytes / 2 + 2, sizeof *word);
    counted *list = calloc(bytes / 2 + 2, sizeof *list);
    int words = find_words(text, bytes, word), different = 0;
    size_t used = 0;
    qsort(word, (size_t)words, sizeof *word, compare_words);
    for (int i = 0; i < words; i++) {
        if (!different || strcmp(list[different - 1].word, word[i]))
            list[different++] = (counted){word[i], 0};
        list[different - 1].count++;
    }
    qsort(list, (size_t)different, sizeof *list, compare_counts);
    expected[0] = 0;
    for (int i = 0; i < different; i++)
        used += (size_t)snprintf(expected + used, OUTPUT_BYTES - used, "%9d %s\n", list[i].count, list[i].word);
    for (int i = 0; i < words; i++)
        free(word[i]);
    free(word);
    free(list);
}

/* ---- */

/* Words of all lengths, some longer than counts, one longer than a block; what separates them, too. */
static size_t make_text(char *text, unsigned seed)
{
    static const char letters[] = "abcABCxyz019\xc3\xa9", between[] = " \n\t.,-";
    size_t at = 0;
    srand(seed);
    while (at < TEXT_BYTES - 12000) {
        int kind = rand() % 400, length = kind == 0 ? 200 + rand() % 500 : kind < 300 ? 1 + rand() % 4 : 1 + rand() % 12;
        if (at > TEXT_BYTES / 2 && at < TEXT_BYTES / 2 + 12)
            length = 9000;
        for (int i = 0; i < length; i++)
            text[at++] = letters[(size_t)rand() % (sizeof letters - 1)];
        for (int i = rand() % 8 ? 1 : rand() % 5 + 1; i; i--)
            text[at++] = between[(size_t)rand() % (sizeof between - 1)];
    }
    return at;
}

Test(words, counts_are_exact_however_the_file_is_cut)
{
    static char text[TEXT_BYTES];
    const char *const options[] = {"--top 0 --block 4096 --lanes 1", "--top 0 --block 4099 --lanes 2",
                                   "--top 0 --block 5000 --lanes 5", "--top 0"};
    for (unsigned o = 0; o < sizeof options / sizeof *options; o++) {
        size_t bytes = make_text(text, 7 + o);
        bytes -= o % 2 ? 1 : 0;
        write_text(text, bytes, 1);
        expect_words(text, bytes);
        cr_assert_eq(run(options[o], "2>/dev/null"), 0, "%s", options[o]);
        cr_expect(!strcmp(output, expected), "%s: other counts than the reference has", options[o]);
    }
}

Test(words, a_file_without_words)
{
    write_text("", 0, 1);
    cr_expect_eq(run("", "2>/dev/null"), 0);
    cr_expect_str_eq(output, "");
    write_text(" .\n", 3, 1);
    cr_expect_eq(run("", "2>/dev/null"), 0);
    cr_expect_str_eq(output, "");
}

Test(words, memory_does_not_follow_the_file)
{
    static char chunk[1 << 20];
    for (size_t i = 0; i < sizeof chunk; i++)
        chunk[i] = i % 6 == 5 ? ' ' : (char)('a' + i / 6 % 23 + (i % 6 == 0));
    write_text(chunk, sizeof chunk, LARGE_MIB);
    cr_assert_eq(run("--block 16384 --lanes 2 --top 1", "2>&1"), 0, "%s", output);
    const char *peak = strstr(output, "peak ");
    double mib = 0;
    cr_assert(peak && sscanf(peak, "peak %lf MiB", &mib) == 1, "%s", output);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    cr_expect_lt(mib, PEAK_MIB, "%s", output);
#endif
}

/* The one thing that grows has a limit. */
Test(words, too_many_different_words_are_an_error)
{
    static char text[2 << 20];
    size_t at = 0;
    for (int i = 0; at + 16 < sizeof text; i++)
        at += (size_t)snprintf(text + at, 16, "w%d ", i);
    write_text(text, at, 1);
    cr_expect_eq(run("--words 1", "2>&1"), 1);
    cr_expect(strstr(output, "the different words take more than the 1048576 bytes"), "%s", output);
    cr_expect_eq(run("--words 16 --top 1", "2>/dev/null"), 0);
}
