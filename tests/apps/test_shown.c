/* tests/apps/test_shown.c: text that comes byte by byte, as from a model, reaches people as it is, and steers nothing. */
#define _GNU_SOURCE
#include "apps/common/model/shown.h"
#include "tests/apps/shell.h"

#include <string.h>

TestSuite(shown, .init = folder_make, .fini = folder_remove, .timeout = 120);

#define BAD "\xEF\xBF\xBD"

/* Each of the `bytes` in a call of its own. */
static void becomes(const char *bytes, size_t count, const char *wanted)
{
    char *text = NULL;
    size_t length = 0;
    struct shown s = {.to = open_memstream(&text, &length)};
    cr_assert(s.to);
    for (size_t i = 0; i < count; i++)
        shown_byte(&s, (unsigned char)bytes[i]);
    shown_end(&s);
    fclose(s.to);
    cr_expect_str_eq(text, wanted);
    free(text);
}
#define BECOMES(bytes, wanted) becomes(bytes, sizeof bytes - 1, wanted)

Test(shown, utf8_passes_as_it_is)
{
    BECOMES("caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\n\tx", "caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\n\tx");
}

Test(shown, bytes_that_are_no_utf8_become_a_replacement_and_lose_nothing_beside_them)
{
    BECOMES("a\xFFz", "a" BAD "z");
    BECOMES("a\xE2\x82z", "a" BAD BAD "z");
    BECOMES("\xC3\xC3\xA9", BAD "\xC3\xA9");
    BECOMES("\xC0\xAF", BAD BAD);
    BECOMES("\xED\xA0\x80", BAD BAD BAD);
    BECOMES("end\xF0\x9F", "end" BAD BAD);
    BECOMES("\xF0\x9F\x98\xF0\x9F\x98\x80", BAD BAD BAD "\xF0\x9F\x98\x80");
}

Test(shown, what_would_steer_a_terminal_becomes_a_replacement)
{
    BECOMES("\x1B[2J", BAD "[2J");
    BECOMES("a\r\b\a\0z", "a" BAD BAD BAD BAD "z");
    BECOMES("\xC2\x9B" "31m \xE2\x80\xAE \x7F", BAD "31m " BAD " " BAD);
}

/* A character is there as soon as its last byte is. */
Test(shown, a_character_is_not_held_back)
{
    char *text = NULL;
    size_t length = 0;
    struct shown s = {.to = open_memstream(&text, &length)};
    shown_byte(&s, 0xC3);
    cr_expect_eq(length, 0);
    shown_byte(&s, 0xA9);
    cr_expect_eq(length, 2);
    fclose(s.to);
    free(text);
}

/* A small model learns a text of two-byte characters by heart; what it writes goes on from a prompt of such. */
Test(shown, a_sample_writes_the_utf8_that_the_model_has_learned)
{
    must_run("for i in $(seq 200); do printf '\xC3\xA9\xC3\xA8\xC3\xA0 '; done >$T/text; " APPS_BIN
             "/weir-gpt --text $T/text --layers 1 --dim 32 --heads 2 --seq 16 --batch 8 --steps 150 --temperature 0 "
             "--prompt '\xC3\xA9' --sample 19 2>/dev/null");
    cr_expect_str_eq(output, "\xC3\xA9\xC3\xA8\xC3\xA0 \xC3\xA9\xC3\xA8\xC3\xA0 \xC3\xA9\xC3\xA8\xC3\xA0 \n", "%s", output);
}
