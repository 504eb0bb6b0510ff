/* tests/graph/base/test_utf8.c: a character of UTF-8 is what the standard says, held against encoding each code point. */
#include "graph/base/foreign.h"

#include <criterion/criterion.h>

TestSuite(utf8, .timeout = 60);

/* The form of a code point, by the definition of UTF-8; its length. */
static int encode(uint32_t code, char to[5])
{
    const int length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    to[length] = '\0';
    for (int i = length - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3F));
    to[0] = (char)(length == 1 ? code : (0xF00u >> length & 0xF0) | code);
    return length;
}

Test(utf8, each_code_point_but_surrogates_is_one_character)
{
    for (uint32_t code = 1; code < 0x120000; code++) {
        char bytes[5];
        uint32_t got;
        const int length = encode(code, bytes), said = foreign_next(bytes, &got);
        const bool is_none = code >= 0x110000 || (code >= 0xD800 && code < 0xE000);
        cr_assert(is_none ? said == 1 && got == FOREIGN_NOT_UTF8 : said == length && got == code, "U+%04X: %d bytes, U+%04X",
                  code, said, got);
    }
}

/* Overlong forms are among these: as many are whole as there are code points of that length. */
Test(utf8, no_other_bytes_are_a_character)
{
    int whole[4] = {0};
    for (uint32_t all = 0; all < 1 << 24; all++) {
        const char bytes[4] = {(char)(all >> 16), (char)(all >> 8), (char)all};
        uint32_t code;
        const int length = foreign_next(bytes, &code);
        cr_assert(length >= 1 && length <= 3);
        whole[code == FOREIGN_NOT_UTF8 ? 0 : length]++;
    }
    cr_expect_eq(whole[1], 0x80 << 16);
    cr_expect_eq(whole[2], (0x800 - 0x80) << 8);
    cr_expect_eq(whole[3], 0x10000 - 0x800 - 0x800);
}
