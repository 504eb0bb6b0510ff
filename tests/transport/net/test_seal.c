/* tests/transport/net/test_seal.c: records come back as they were, and nothing that was changed, repeated, left out or
 * made with another key does; keys are derived alike at both ends, and differ by all that they are made for. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#include "tests/support/mutate_plan.h"
#include "transport/line/seal.h"

TestSuite(seal, .timeout = 120);

enum { BYTES_MAX = 70000, PARTS_MAX = 40 };

static unsigned char said[BYTES_MAX], record[BYTES_MAX + SEAL_OVER_BYTES], heard[BYTES_MAX];

struct pair {
    struct sealing *sealing;
    struct seal_box *out, *in;
};

static struct seal_box *box_of(const struct pair *p, unsigned char first, bool writes)
{
    const unsigned char key[SEAL_SECRET_BYTES] = {first, 2, 3};
    struct seal_box *box;
    cr_assert_eq(seal_box_new(p->sealing, key, writes, &box), WEIR_OK, "%s", weir_error());
    return box;
}

static struct pair pair_open(void)
{
    struct pair p;
    uint64_t random = 4711;
    cr_assert_eq(sealing_open(&p.sealing), WEIR_OK, "%s", weir_error());
    p.out = box_of(&p, 1, true);
    p.in = box_of(&p, 1, false);
    for (size_t i = 0; i < sizeof(said); i++)
        said[i] = (unsigned char)mutate_draw(&random);
    return p;
}

static void pair_close(struct pair *p)
{
    seal_box_free(p->out);
    seal_box_free(p->in);
    sealing_close(p->sealing);
}

static void seal_one(struct pair *p, size_t bytes, unsigned char *to)
{
    const struct iovec part = {said, bytes};
    cr_assert(seal_write(p->out, &part, 1, bytes, to));
    cr_assert_eq(seal_record_bytes(to), bytes);
}

static void expect_opens(struct seal_box *in, const unsigned char *from, size_t bytes)
{
    memset(heard, 0, bytes);
    cr_expect(seal_read(in, from, bytes, heard), "%zu bytes do not open", bytes);
    cr_expect_arr_eq(heard, said, bytes);
}

/* ---- both ways ---- */

Test(seal, records_of_every_size_come_back)
{
    static const size_t large[] = {255, 256, 257, 1023, 4096, 16383, 32768, 32769, 65535, 65536, BYTES_MAX};
    struct pair p = pair_open();
    for (size_t bytes = 1; bytes <= 200; bytes++) {
        seal_one(&p, bytes, record);
        expect_opens(p.in, record, bytes);
    }
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        seal_one(&p, large[i], record);
        expect_opens(p.in, record, large[i]);
    }
    pair_close(&p);
}

Test(seal, parts_become_one_record)
{
    struct pair p = pair_open();
    uint64_t random = 90125;
    for (int round = 0; round < 500; round++) {
        struct iovec parts[PARTS_MAX];
        size_t bytes = 0;
        int count = 1 + (int)(mutate_draw(&random) % PARTS_MAX);
        for (int i = 0; i < count; i++) {
            size_t each = 1 + mutate_draw(&random) % (round % 2 ? 40 : BYTES_MAX / PARTS_MAX - 1);
            parts[i] = (struct iovec){said + bytes, each};
            bytes += each;
        }
        cr_assert(seal_write(p.out, parts, count, bytes, record));
        cr_assert_eq(seal_record_bytes(record), bytes);
        expect_opens(p.in, record, bytes);
    }
    pair_close(&p);
}

Test(seal, what_is_said_cannot_be_seen_nor_that_it_is_said_again)
{
    enum { BYTES = 64 };
    struct pair p = pair_open();
    unsigned char again[BYTES + SEAL_OVER_BYTES];
    seal_one(&p, BYTES, record);
    seal_one(&p, BYTES, again);
    cr_expect(memcmp(record + SEAL_HEAD_BYTES, said, BYTES));
    cr_expect(memcmp(record + SEAL_HEAD_BYTES, again + SEAL_HEAD_BYTES, BYTES));
    pair_close(&p);
}

/* ---- what is refused ---- */

/* The record is opened by a box that has come as far as this one: none. */
static bool opens_first(const struct pair *p, const unsigned char *from, size_t bytes)
{
    struct seal_box *in = box_of(p, 1, false);
    bool opens = seal_read(in, from, bytes, heard);
    seal_box_free(in);
    return opens;
}

/* Also one in the length, though as many bytes are opened. */
Test(seal, a_changed_bit_anywhere_is_refused)
{
    static const size_t sizes[] = {1, 15, 16, 40};
    struct pair p = pair_open();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct pair fresh = {.sealing = p.sealing, .out = box_of(&p, 1, true)};
        seal_one(&fresh, sizes[i], record);
        cr_expect(opens_first(&p, record, sizes[i]));
        for (size_t bit = 0; bit < 8 * (sizes[i] + SEAL_OVER_BYTES); bit++) {
            record[bit / 8] ^= (unsigned char)(1u << bit % 8);
            cr_expect_not(opens_first(&p, record, sizes[i]), "bit %zu of a record of %zu bytes", bit, sizes[i]);
            record[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        seal_box_free(fresh.out);
    }
    pair_close(&p);
}

Test(seal, a_record_cut_elsewhere_is_refused)
{
    struct pair p = pair_open();
    seal_one(&p, 100, record);
    for (size_t bytes = 1; bytes < 100; bytes++) {
        unsigned char cut[100 + SEAL_OVER_BYTES];
        memcpy(cut, record, sizeof(cut));
        memcpy(cut, &(uint32_t){(uint32_t)bytes}, SEAL_HEAD_BYTES);
        cr_expect_not(opens_first(&p, cut, bytes), "%zu bytes of 100", bytes);
    }
    pair_close(&p);
}

Test(seal, a_record_that_comes_again_is_refused)
{
    struct pair p = pair_open();
    seal_one(&p, 30, record);
    expect_opens(p.in, record, 30);
    cr_expect_not(seal_read(p.in, record, 30, heard));
    pair_close(&p);
}

Test(seal, a_record_in_the_place_of_another_is_refused)
{
    enum { BYTES = 30 };
    struct pair p = pair_open();
    unsigned char second[BYTES + SEAL_OVER_BYTES];
    seal_one(&p, BYTES, record);
    seal_one(&p, BYTES, second);
    cr_expect_not(opens_first(&p, second, BYTES), "the first was left out");
    expect_opens(p.in, record, BYTES);
    expect_opens(p.in, second, BYTES);
    pair_close(&p);
}

Test(seal, a_record_of_another_key_is_refused)
{
    struct pair p = pair_open();
    struct seal_box *other = box_of(&p, 7, false);
    seal_one(&p, 30, record);
    cr_expect_not(seal_read(other, record, 30, heard));
    seal_box_free(other);
    pair_close(&p);
}

/* ---- keys ---- */

struct purpose {
    unsigned char secrets[2 * SEAL_SECRET_BYTES];
    uint64_t session;
    const char *label;
    uint32_t from, to;
};

static void derive(const struct sealing *sealing, const struct purpose *for_what, unsigned char *key)
{
    cr_assert_eq(seal_derive(sealing, for_what->secrets, for_what->session, for_what->label, for_what->from,
                             for_what->to, key), WEIR_OK, "%s", weir_error());
}

/* The first is what both ends make; each other differs from it in one thing. */
Test(seal, keys_are_the_same_for_one_purpose_and_others_for_any_other)
{
    enum { PURPOSES = 9 };
    struct purpose of[PURPOSES];
    unsigned char key[PURPOSES][SEAL_SECRET_BYTES], again[SEAL_SECRET_BYTES];
    struct pair p = pair_open();
    for (int i = 0; i < PURPOSES; i++) {
        of[i] = (struct purpose){.session = 77, .label = "register contents", .from = 1, .to = 3};
        memcpy(of[i].secrets, said, sizeof(of[i].secrets));
    }
    of[1].session = UINT64_C(77) << 32;
    of[2].label = "ticket";
    of[3].label = "register content";
    of[4].from = 3, of[4].to = 1; /* the other direction */
    of[5].to = 2;
    of[6].from = 0;
    of[7].secrets[0] ^= 1;
    of[8].secrets[2 * SEAL_SECRET_BYTES - 1] ^= 0x80;
    for (int i = 0; i < PURPOSES; i++) {
        derive(p.sealing, &of[i], key[i]);
        for (int k = 0; k < i; k++)
            cr_expect(memcmp(key[i], key[k], SEAL_SECRET_BYTES), "%d and %d", i, k);
    }
    derive(p.sealing, &of[0], again);
    cr_expect_arr_eq(again, key[0], SEAL_SECRET_BYTES);
    pair_close(&p);
}

/* HKDF as others compute it: a record of another program's, or another version of libcrypto's, opens too. */
Test(seal, a_key_is_what_hkdf_with_sha_256_makes)
{
    static const unsigned char expected[SEAL_SECRET_BYTES] = {
        0xfd, 0x6f, 0x64, 0xfd, 0x39, 0xe6, 0xce, 0x95, 0xe4, 0x2f, 0x7f, 0x9e, 0xbd, 0x85, 0x0d, 0x2f,
        0x83, 0xd6, 0xf9, 0x80, 0x5c, 0x7e, 0x05, 0x00, 0xfd, 0x45, 0x97, 0xa3, 0x3f, 0x97, 0x25, 0x24};
    struct pair p = pair_open();
    unsigned char key[SEAL_SECRET_BYTES];
    struct purpose of = {.session = 0x0102030405060708, .label = "register contents", .from = 1, .to = 3};
    for (int i = 0; i < 2 * SEAL_SECRET_BYTES; i++)
        of.secrets[i] = (unsigned char)i;
    derive(p.sealing, &of, key);
    cr_expect_arr_eq(key, expected, sizeof(key));
    pair_close(&p);
}
