/* tests/graph/base/test_foreign.c: texts that somebody else wrote, as people and JSON readers get them. */
#include "graph/base/error.h"
#include "graph/base/foreign.h"
#include "graph/base/text.h"
#include "tests/support/json.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

TestSuite(foreign, .timeout = 60);

static const char *shown(const char *text)
{
    static char to[256];
    return foreign_text(text, to, sizeof to);
}

Test(foreign, what_a_terminal_obeys_is_an_escape)
{
    static const char *const pairs[][2] = {
        {"wte/weight", "wte/weight"},
        {"h\x1b[2Jx", "h\\x1b[2Jx"},
        {"a\nb\tc\rd", "a\\x0ab\\x09c\\x0dd"},
        {"\x7f", "\\x7f"},
        {"a\xc2\x9b" "31m", "a\\u009b31m"},
        {"\xc2\x85", "\\u0085"},
        {"x\xe2\x80\xaegnp.exe", "x\\u202egnp.exe"},
        {"\xe2\x80\xaa\xe2\x80\xab\xe2\x80\xac\xe2\x80\xad", "\\u202a\\u202b\\u202c\\u202d"},
        {"\xe2\x81\xa6\xe2\x81\xa7\xe2\x81\xa8\xe2\x81\xa9", "\\u2066\\u2067\\u2068\\u2069"},
        {"\xe2\x80\x8e\xe2\x80\x8f\xd8\x9c", "\\u200e\\u200f\\u061c"},
        {"\xe2\x80\xa8\xe2\x80\xa9", "\\u2028\\u2029"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        cr_expect_str_eq(shown(pairs[i][0]), pairs[i][1]);
}

Test(foreign, letters_of_all_alphabets_stay)
{
    static const char text[] = "Gr\xc3\xb6\xc3\x9f" "e \xd0\xb2\xd0\xb5\xd1\x81 \xe6\xb0\xb4 \xf0\x9f\x8c\x8a \xc2\xa0 \\x1b";
    cr_expect_str_eq(shown(text), text);
    cr_expect(foreign_shown(text));
}

Test(foreign, bytes_that_are_not_utf8_are_escapes)
{
    cr_expect_str_eq(shown("a\xff" "b"), "a\\xffb");
    cr_expect_str_eq(shown("\xc3"), "\\xc3");                       /* cut short */
    cr_expect_str_eq(shown("\xc0\xaf"), "\\xc0\\xaf");              /* longer than need be */
    cr_expect_str_eq(shown("\xe0\x80\xaf"), "\\xe0\\x80\\xaf");
    cr_expect_str_eq(shown("\xed\xa0\x80"), "\\xed\\xa0\\x80");     /* half of a pair */
    cr_expect_str_eq(shown("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
    cr_expect_str_eq(shown("\xe2\x80"), "\\xe2\\x80");
    cr_expect_str_eq(shown("\xf8\x88\x80\x80\x80"), "\\xf8\\x88\\x80\\x80\\x80");
}

Test(foreign, a_text_is_cut_at_a_whole_character)
{
    char to[6];
    cr_expect_str_eq(foreign_text("ab\xe6\xb0\xb4", to, sizeof to), "ab\xe6\xb0\xb4");
    cr_expect_str_eq(foreign_text("abc\xe6\xb0\xb4", to, sizeof to), "abc");
    cr_expect_str_eq(foreign_text("ab\x1b", to, sizeof to), "ab");
    cr_expect_eq(foreign_fit("ab\xe6\xb0\xb4", 4), 2);
}

Test(foreign, an_error_is_one_line_of_utf8_whatever_is_in_it)
{
    char name[1200];
    error_set(WEIR_E_IO, "%s: tensor %s: is there twice", "a\nb", "\x1b]0;x\x07\xff");
    cr_expect_str_eq(weir_error(), "a\\x0ab: tensor \\x1b]0;x\\x07\\xff: is there twice");
    error_set(WEIR_E_IO, "again: %s", weir_error());
    cr_expect_str_eq(weir_error(), "again: a\\x0ab: tensor \\x1b]0;x\\x07\\xff: is there twice");
    memset(name, 'x', sizeof name);
    memcpy(name + 1021, "\xe6\xb0\xb4", 4);
    error_set(WEIR_E_IO, "%s", name);
    cr_expect_eq(strlen(weir_error()), 1021);
}

Test(foreign, a_report_has_the_lines_of_its_formats_alone)
{
    char bytes[64];
    struct text text = {bytes, sizeof bytes, 0, false};
    text_add(&text, "%s waits for %s", "a\nb", "c\xff");
    text_add(&text, ", which is late\n");
    cr_expect_str_eq(bytes, "a\\x0ab waits for c\\xff, which is late\n");
    cr_expect(!text.cut && text.used == strlen(bytes));
    text_add(&text, "%s", "\x1b\x1b\x1b\x1b\x1b\x1b\x1b\x1b\x1b\x1b\x1b\x1b");
    cr_expect(text.used < sizeof bytes && text.used == strlen(bytes));
}

static char *put(void (*how)(FILE *to, const char *text), const char *text)
{
    char *bytes = NULL;
    size_t count = 0;
    FILE *to = open_memstream(&bytes, &count);
    how(to, text);
    fclose(to);
    return bytes;
}

Test(foreign, json_is_valid_and_utf8_whatever_is_in_it)
{
    char *text = put(foreign_put_json, "a\"b\\c\n\x1b\x7f\xc2\x9b\xe2\x80\xae\xff\xed\xa0\x80\xe6\xb0\xb4");
    cr_expect_str_eq(text, "\"a\\\"b\\\\c\\u000a\\u001b\\u007f\\u009b\\u202e\\ufffd\\ufffd\\ufffd\\ufffd\xe6\xb0\xb4\"");
    cr_expect(json_valid(text));
    free(text);
}

static void put_dot(FILE *to, const char *text)
{
    foreign_put_dot(to, text, 6);
}

Test(foreign, labels_of_pictures_have_no_entities_and_are_cut_at_characters)
{
    char *text = put(put_dot, "a&\"\\\x1b\xe6\xb0\xb4z");
    cr_expect_str_eq(text, "a&amp;\\\"\\\\\\\\x1b\xe6\xb0\xb4...");
    free(text);
}
