/* tests/transport/net/test_bulk_heads.c: the heads of transfers: their bytes, and those that are none. */
#include "transport/net/inside.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(bulk_heads, .timeout = 120);

struct said {
    struct message message;
    uint64_t round; /* of a VALUE; 0: it is a message */
};

/* ---- heads ---- */

static void expect_head(const struct bulk_head *head, const char *wrong)
{
    unsigned char bytes[BULK_HEAD_BYTES];
    struct bulk_head again;
    bulk_head_encode(head, bytes);
    const char *said = bulk_head_decode(bytes, &again);
    if (wrong) {
        cr_expect(said && !strcmp(said, wrong), "'%s' is not '%s'", said ? said : "", wrong);
        return;
    }
    cr_expect_null(said, "%s", said);
    cr_expect(again.kind == head->kind && again.initial == head->initial && again.count == head->count);
    cr_expect(again.edge == head->edge && again.slot == head->slot && again.shape == head->shape);
    cr_expect_eq(again.bytes, head->bytes);
}

#define HEAD(...) &(const struct bulk_head){__VA_ARGS__}

Test(bulk_heads, heads_come_back)
{
    expect_head(HEAD(.kind = BULK_SLOT), NULL);
    expect_head(HEAD(.kind = BULK_SLOT, .initial = true, .edge = UINT32_MAX, .slot = UINT32_MAX - 1,
                     .shape = UINT32_MAX - 2, .bytes = UINT64_MAX), NULL);
    expect_head(HEAD(.kind = BULK_WORDS, .bytes = 8), NULL);
    expect_head(HEAD(.kind = BULK_WORDS, .bytes = UINT64_MAX - 7), NULL);
    expect_head(HEAD(.kind = BULK_FRAME, .count = 1, .bytes = 1), NULL);
    expect_head(HEAD(.kind = BULK_FRAME, .count = WIRE_HEADER_MAX, .bytes = UINT64_MAX), NULL);
}

Test(bulk_heads, a_head_has_the_bytes_that_the_documentation_gives)
{
    static const unsigned char expected[BULK_HEAD_BYTES] = {
        0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 1, 1, 0, 0, 0x82, 0, 0, 0, 2, 0, 0, 0, 0x44, 0x33, 0x22, 0x11};
    unsigned char bytes[BULK_HEAD_BYTES];
    bulk_head_encode(HEAD(.kind = BULK_SLOT, .initial = true, .edge = 130, .slot = 2, .shape = 0x11223344,
                          .bytes = 0x0102030405060708), bytes);
    cr_expect_arr_eq(bytes, expected, sizeof expected);
}

Test(bulk_heads, heads_that_are_none_are_refused)
{
    static const char none[] = "a frame of no kind", fields[] = "a frame with fields that its kind does not have",
                      size[] = "messages in a payload of another size", header[] = "a frame without a header";
    expect_head(HEAD(.bytes = 8), none);
    expect_head(HEAD(.kind = BULK_KIND_END, .bytes = 8), none);
    expect_head(HEAD(.kind = (enum bulk_kind)255, .bytes = 8), none);
    expect_head(HEAD(.kind = BULK_SLOT, .count = 1), fields);
    expect_head(HEAD(.kind = BULK_WORDS, .initial = true, .bytes = 8), fields);
    expect_head(HEAD(.kind = BULK_WORDS, .count = 1, .bytes = 8), fields);
    expect_head(HEAD(.kind = BULK_WORDS, .edge = 1, .bytes = 8), fields);
    expect_head(HEAD(.kind = BULK_WORDS, .slot = 1, .bytes = 8), fields);
    expect_head(HEAD(.kind = BULK_FRAME, .shape = 1, .count = 8, .bytes = 8), fields);
    expect_head(HEAD(.kind = BULK_FRAME, .initial = true, .count = 8, .bytes = 8), fields);
    expect_head(HEAD(.kind = BULK_WORDS), size);
    expect_head(HEAD(.kind = BULK_WORDS, .bytes = 12), size);
    expect_head(HEAD(.kind = BULK_FRAME, .bytes = 8), header);
    expect_head(HEAD(.kind = BULK_FRAME, .count = 9, .bytes = 8), header);
    expect_head(HEAD(.kind = BULK_FRAME, .count = WIRE_HEADER_MAX + 1, .bytes = 1 << 20), header);
    unsigned char bytes[BULK_HEAD_BYTES] = {8, [8] = BULK_SLOT, [9] = 2};
    cr_expect_str_eq(bulk_head_decode(bytes, &(struct bulk_head){0}), fields);
}
