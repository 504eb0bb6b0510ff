/* tests/graph/base/test_utf8.c: a character of UTF-8 is what the standard says, held against encoding each code point. */
#include "graph/base/utf8.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(utf8, .timeout = 30);

/* The form of a code point, by the definition of UTF-8; its length. */
static int encode(uint32_t code, char to[4])
{
    const int length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3F));
    to[0] = (char)(length == 1 ? code : (0xF00u >> length & 0xF0) | code);
    return length;
}

static bool is_surrogate(uint32_t code)
{
    return code >= 0xD800 && code < 0xE000;
}

Test(utf8, each_code_point_but_surrogates_is_one_character)
{
    for (uint32_t code = 0; code < 0x120000; code++) {
        char bytes[4];
        uint32_t got = ~code;
        const int length = encode(code, bytes), said = utf8_decode(bytes, sizeof bytes, &got);
        if (code >= 0x110000 || is_surrogate(code))
            cr_assert_lt(said, 0, "U+%04X", code);
        else
            cr_assert(said == length && got == code, "U+%04X: %d bytes, U+%04X", code, said, got);
        for (int part = 1; part < length && said > 0; part++)
            cr_assert_eq(utf8_decode(bytes, (size_t)part, &got), 0, "U+%04X: %d bytes of it", code, part);
    }
}

/* Overlong forms are among these: as many are whole as there are code points of that length. */
Test(utf8, no_other_bytes_are_a_character)
{
    int whole[4] = {0};
    for (uint32_t all = 0; all < 1 << 24; all++) {
        const char bytes[3] = {(char)(all >> 16), (char)(all >> 8), (char)all};
        uint32_t code;
        const int length = utf8_decode(bytes, 3, &code);
        cr_assert(length >= -3 && length <= 3);
        whole[length > 0 ? length : 0]++;
    }
    cr_expect_eq(whole[1], 0x80 << 16);
    cr_expect_eq(whole[2], (0x800 - 0x80) << 8);
    cr_expect_eq(whole[3], 0x10000 - 0x800 - 0x800);
}

Test(utf8, what_ends_too_early_is_dropped_up_to_the_byte_that_ends_it)
{
    uint32_t code;
    cr_expect_eq(utf8_decode("\xF0\x9F\x98x", 4, &code), -3);
    cr_expect_eq(utf8_decode("\xE2\x82x", 3, &code), -2);
    cr_expect_eq(utf8_decode("\xE0\x80\x80", 3, &code), -1);
    cr_expect_eq(utf8_decode("\x80", 1, &code), -1);
}

Test(utf8, characters_that_steer_a_terminal_are_known)
{
    static const uint32_t steer[] = {0, '\n', 0x1B, 0x7F, 0x80, 0x9B, 0x9F, 0x61C, 0x200E, 0x200F, 0x2028, 0x202E, 0x2066,
                                     0x2069};
    static const uint32_t show[] = {' ', '~', 0xA0, 0xE9, 0x200D, 0x2030, 0x20AC, 0xFFFD, 0x1F600};
    for (size_t i = 0; i < sizeof steer / sizeof *steer; i++)
        cr_expect(utf8_steers(steer[i]), "U+%04X", steer[i]);
    for (size_t i = 0; i < sizeof show / sizeof *show; i++)
        cr_expect(!utf8_steers(show[i]), "U+%04X", show[i]);
}
