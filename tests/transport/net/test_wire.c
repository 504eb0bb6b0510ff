/* tests/transport/net/test_wire.c: header frames: the bytes of each kind, what comes back from them, and what is
 * refused. */
#include <criterion/criterion.h>

#include <weir/weir.h>

#include "tests/support/mutate_plan.h"
#include "transport/line/wire.h"

#define ROUNDS 20000
#define V WIRE_VERSION /* below 128, it is its own byte */
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define VERSION TEXT(WIRE_VERSION)

/* ---- frames ---- */

static const uint32_t kinds[] = {WIRE_HELLO, WIRE_BEAT,  WIRE_FAIL, WIRE_BYE,
                                 WIRE_VALUE, WIRE_WAITS, WIRE_HOLD, WIRE_END};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* Everything that no field takes is zero, as after wire_decode(), so frames can be compared as bytes. */
static struct wire_frame frame_of(uint32_t kind, uint32_t rank, uint64_t session, uint64_t number)
{
    struct wire_frame frame;
    memset(&frame, 0, sizeof(frame));
    frame.version = WIRE_VERSION;
    frame.kind = kind;
    frame.rank = rank;
    frame.session = session;
    frame.number = number;
    return frame;
}

/* All magnitudes are equally likely, so that every form of a number comes up. */
static uint64_t random_number(uint64_t *random)
{
    uint64_t bits = mutate_draw(random) % 65;
    return bits ? mutate_draw(random) >> (64 - bits) : 0;
}

static void random_text(uint64_t *random, char *text)
{
    static const char *const pieces[] = {"a", "Z", " ", "~", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    size_t bytes = mutate_draw(random) % (WIRE_TEXT_MAX + 1), count = 0;
    for (;;) {
        const char *piece = pieces[mutate_draw(random) % (sizeof(pieces) / sizeof(pieces[0]))];
        if (count + strlen(piece) > bytes)
            break;
        memcpy(text + count, piece, strlen(piece));
        count += strlen(piece);
    }
}

static struct wire_frame random_frame(uint64_t *random, uint32_t kind)
{
    uint32_t rank = (uint32_t)random_number(random);
    uint64_t session = random_number(random), number = random_number(random);
    struct wire_frame frame = frame_of(kind, rank, session, number);
    switch (kind) {
    case WIRE_HELLO:
        frame.hello.shm = mutate_draw(random) & 1;
        frame.hello.port = (uint32_t)(random_number(random) & UINT16_MAX);
        frame.hello.name = random_number(random);
        for (int i = 0; i < 4; i++)
            frame.hello.secret[i] = random_number(random);
        break;
    case WIRE_BEAT:
        frame.beat.state = (uint32_t)random_number(random);
        frame.beat.fired = random_number(random);
        frame.beat.step = (int64_t)(random_number(random) ^ (mutate_draw(random) & 1 ? UINT64_MAX : 0));
        frame.beat.actor = (uint32_t)random_number(random);
        break;
    case WIRE_FAIL:
        frame.fail.culprit = (uint32_t)random_number(random);
        frame.fail.from = (uint32_t)random_number(random);
        random_text(random, frame.fail.text);
        break;
    case WIRE_BYE:
        frame.bye.steps = (int64_t)(random_number(random) ^ (mutate_draw(random) & 1 ? UINT64_MAX : 0));
        frame.bye.answer = mutate_draw(random) & 1;
        break;
    case WIRE_VALUE:
        frame.value.shard = (uint32_t)random_number(random);
        frame.value.round = random_number(random);
        break;
    case WIRE_HOLD:
        frame.hold.what = (uint32_t)(random_number(random) % WIRE_HOLD_WHATS);
        frame.hold.run = random_number(random);
        frame.hold.step = (int64_t)(random_number(random) ^ (mutate_draw(random) & 1 ? UINT64_MAX : 0));
        break;
    case WIRE_END:
        frame.end.culprit = (uint32_t)random_number(random);
        frame.end.from = (uint32_t)random_number(random);
        frame.end.what = (uint32_t)(random_number(random) % WIRE_END_WHATS);
        frame.end.step = (int64_t)(random_number(random) ^ (mutate_draw(random) & 1 ? UINT64_MAX : 0));
        random_text(random, frame.end.text);
        break;
    default:
        frame.waits.count = (uint32_t)random_number(random);
        frame.waits.rank = (uint32_t)random_number(random);
    }
    return frame;
}

/* One of each kind, whose bytes stand in docs/wire.md. */
static struct wire_frame example(uint32_t kind)
{
    struct wire_frame frame = frame_of(kind, 3, 0x0102030405060708, 300);
    switch (kind) {
    case WIRE_HELLO:
        frame.hello.shm = true;
        frame.hello.port = 40000;
        frame.hello.name = 258;
        for (uint32_t i = 0; i < 4; i++)
            frame.hello.secret[i] = i;
        break;
    case WIRE_BEAT:
        frame.beat.state = 1;
        frame.beat.fired = 70000;
        frame.beat.step = -1;
        frame.beat.actor = UINT32_MAX;
        break;
    case WIRE_FAIL:
        frame.fail.culprit = 2;
        frame.fail.from = 1;
        memcpy(frame.fail.text, "lost", 4);
        break;
    case WIRE_BYE: frame.bye.steps = 1000; break;
    case WIRE_VALUE:
        frame.value.shard = 7;
        frame.value.round = 1;
        break;
    case WIRE_HOLD:
        frame.hold.what = WIRE_HOLD_BEGUN;
        frame.hold.run = 2;
        frame.hold.step = 19;
        break;
    case WIRE_END:
        frame.end.culprit = 2;
        frame.end.from = 1;
        frame.end.what = WIRE_SOURCE_ENDED;
        frame.end.step = 17;
        memcpy(frame.end.text, "over", 4);
        break;
    default: frame.waits.count = 5, frame.waits.rank = 4;
    }
    return frame;
}

#define HELLO 0x9c, V, WIRE_HELLO

/* The fields of all examples between kind and their own fields. */
#define SENDER 0xcf, 1, 2, 3, 4, 5, 6, 7, 8, 0x03, 0xcd, 0x01, 0x2c

struct bytes {
    size_t count;
    unsigned char at[40];
};

#define BYTES(...) {sizeof((unsigned char[]){__VA_ARGS__}), {__VA_ARGS__}}

static const struct bytes examples[WIRE_KIND_END] = {
    [WIRE_HELLO] = BYTES(0x9c, V, 0x01, SENDER, 0xc3, 0xcd, 0x9c, 0x40, 0xcd, 0x01, 0x02, 0, 1, 2, 3),
    [WIRE_BEAT] = BYTES(0x99, V, 0x04, SENDER, 0x01, 0xce, 0x00, 0x01, 0x11, 0x70, 0xff, 0xce, 0xff, 0xff, 0xff,
                         0xff),
    [WIRE_FAIL] = BYTES(0x98, V, 0x05, SENDER, 0x02, 0x01, 0xa4, 'l', 'o', 's', 't'),
    [WIRE_BYE] = BYTES(0x97, V, 0x06, SENDER, 0xcd, 0x03, 0xe8, 0xc2),
    [WIRE_VALUE] = BYTES(0x97, V, 0x07, SENDER, 0x07, 0x01),
    [WIRE_WAITS] = BYTES(0x97, V, 0x08, SENDER, 0x05, 0x04),
    [WIRE_HOLD] = BYTES(0x98, V, 0x09, SENDER, 0x01, 0x02, 0x13),
    [WIRE_END] = BYTES(0x9a, V, 0x0a, SENDER, 0x02, 0x01, 0x00, 0x11, 0xa4, 'o', 'v', 'e', 'r'),
};

/* Decodes a copy that ends where its bytes end, so that a sanitizer sees what reads beyond. */
static weir_status decode(const unsigned char *bytes, size_t count, struct wire_frame *frame)
{
    unsigned char copy[count + !count];
    memcpy(copy, bytes, count);
    return wire_decode(copy, count, frame);
}

static void assert_refused(const struct bytes *bytes, const char *error)
{
    struct wire_frame frame;
    cr_assert_eq(decode(bytes->at, bytes->count, &frame), WEIR_E_PEER, "accepted; should say: %s", error);
    cr_assert_str_eq(weir_error(), error);
}

/* A decoded frame comes back from its own encoding. */
static void assert_comes_back(const struct wire_frame *frame)
{
    unsigned char bytes[WIRE_HEADER_MAX];
    struct wire_frame again;
    size_t count = wire_encode(frame, bytes);
    cr_assert(count > 0 && count <= WIRE_HEADER_MAX);
    cr_assert_eq(decode(bytes, count, &again), WEIR_OK, "%s", weir_error());
    cr_assert_arr_eq(frame, &again, sizeof(again));
}

/* ---- both ways ---- */

Test(wire, each_kind_has_the_bytes_that_the_documentation_gives, .timeout = 120)
{
    for (int i = 0; i < KINDS; i++) {
        uint32_t kind = kinds[i];
        struct wire_frame frame = example(kind), decoded;
        unsigned char bytes[WIRE_HEADER_MAX];
        cr_assert_eq(wire_encode(&frame, bytes), examples[kind].count, "%s", wire_kind_name(kind));
        cr_assert_arr_eq(bytes, examples[kind].at, examples[kind].count, "%s", wire_kind_name(kind));
        cr_assert_eq(decode(examples[kind].at, examples[kind].count, &decoded), WEIR_OK, "%s", weir_error());
        cr_assert_arr_eq(&frame, &decoded, sizeof(frame), "%s", wire_kind_name(kind));
    }
}

Test(wire, what_is_written_is_read, .timeout = 60)
{
    uint64_t seed = 20240229, random = seed;
    cr_log_info("seed %llu", (unsigned long long)seed);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct wire_frame frame = random_frame(&random, kinds[round % KINDS]);
        assert_comes_back(&frame);
    }
}

Test(wire, the_largest_header_of_each_kind_fits, .timeout = 120)
{
    for (int i = 0; i < KINDS; i++) {
        uint32_t kind = kinds[i];
        struct wire_frame frame = frame_of(kind, UINT32_MAX, UINT64_MAX, UINT64_MAX);
        switch (kind) {
        case WIRE_HELLO:
            frame.hello.shm = true;
            frame.hello.port = UINT16_MAX;
            frame.hello.name = UINT64_MAX;
            memset(frame.hello.secret, 0xff, sizeof(frame.hello.secret));
            break;
        case WIRE_BEAT:
            frame.beat.state = frame.beat.actor = UINT32_MAX;
            frame.beat.fired = UINT64_MAX;
            frame.beat.step = INT64_MIN;
            break;
        case WIRE_FAIL:
            frame.fail.culprit = frame.fail.from = UINT32_MAX;
            memset(frame.fail.text, 'x', WIRE_TEXT_MAX);
            break;
        case WIRE_BYE: frame.bye.steps = INT64_MAX; break;
        case WIRE_VALUE:
            frame.value.shard = UINT32_MAX;
            frame.value.round = UINT64_MAX;
            break;
        case WIRE_HOLD:
            frame.hold.what = WIRE_HOLD_WHATS - 1;
            frame.hold.run = UINT64_MAX;
            frame.hold.step = INT64_MIN;
            break;
        case WIRE_END:
            frame.end.culprit = frame.end.from = UINT32_MAX;
            frame.end.what = WIRE_END_WHATS - 1;
            frame.end.step = INT64_MIN;
            memset(frame.end.text, 'x', WIRE_TEXT_MAX);
            break;
        default: frame.waits.count = frame.waits.rank = UINT32_MAX;
        }
        assert_comes_back(&frame);
    }
}

Test(wire, writes_its_own_version_whatever_the_frame_says, .timeout = 120)
{
    struct wire_frame frame = example(WIRE_HELLO);
    unsigned char bytes[WIRE_HEADER_MAX];
    frame.version = 0;
    cr_assert_eq(wire_encode(&frame, bytes), examples[WIRE_HELLO].count);
    cr_assert_arr_eq(bytes, examples[WIRE_HELLO].at, examples[WIRE_HELLO].count);
}

Test(wire, kinds_have_names, .timeout = 120)
{
    cr_assert_str_eq(wire_kind_name(WIRE_VALUE), "VALUE");
    cr_assert_str_eq(wire_kind_name(2), "?"); /* once the name of a kind */
    cr_assert_str_eq(wire_kind_name(0), "?");
    cr_assert_str_eq(wire_kind_name(WIRE_KIND_END), "?");
    cr_assert_str_eq(wire_kind_name(UINT32_MAX), "?");
}

/* ---- what may come ---- */

/* The rank 3 of a BYE. */
Test(wire, takes_every_form_of_a_number, .timeout = 120)
{
    static const struct bytes forms[] = {
        BYTES(0x03), BYTES(0xcc, 3), BYTES(0xcd, 0, 3), BYTES(0xce, 0, 0, 0, 3), BYTES(0xcf, 0, 0, 0, 0, 0, 0, 0, 3),
        BYTES(0xd0, 3), BYTES(0xd1, 0, 3), BYTES(0xd2, 0, 0, 0, 3), BYTES(0xd3, 0, 0, 0, 0, 0, 0, 0, 3),
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct bytes bytes = BYTES(0x97, V, 6, 0);
        struct wire_frame frame;
        memcpy(bytes.at + bytes.count, forms[i].at, forms[i].count);
        bytes.count += forms[i].count;
        bytes.at[bytes.count++] = 0; /* number */
        bytes.at[bytes.count++] = 1; /* steps */
        bytes.at[bytes.count++] = 0xc2; /* no answer */
        cr_assert_eq(decode(bytes.at, bytes.count, &frame), WEIR_OK, "form %zu: %s", i, weir_error());
        cr_assert_eq(frame.rank, 3);
        assert_comes_back(&frame);
    }
}

Test(wire, takes_every_form_of_a_negative_number, .timeout = 120)
{
    static const struct bytes forms[] = {
        BYTES(0xf0), BYTES(0xd0, 0xf0), BYTES(0xd1, 0xff, 0xf0), BYTES(0xd2, 0xff, 0xff, 0xff, 0xf0),
        BYTES(0xd3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf0),
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct bytes bytes = BYTES(0x97, V, 6, 0, 0, 0);
        struct wire_frame frame;
        memcpy(bytes.at + bytes.count, forms[i].at, forms[i].count);
        bytes.count += forms[i].count;
        bytes.at[bytes.count++] = 0xc2;
        cr_assert_eq(decode(bytes.at, bytes.count, &frame), WEIR_OK, "form %zu: %s", i, weir_error());
        cr_assert_eq(frame.bye.steps, -16, "form %zu", i);
    }
}

Test(wire, takes_every_form_of_an_array_and_of_a_text, .timeout = 120)
{
    static const struct bytes forms[] = {
        BYTES(0x98, V, 5, 0, 0, 0, 0, 0, 0xd9, 1, 'x'),
        BYTES(0xdc, 0, 8, V, 5, 0, 0, 0, 0, 0, 0xda, 0, 1, 'x'),
        BYTES(0xdd, 0, 0, 0, 8, V, 5, 0, 0, 0, 0, 0, 0xdb, 0, 0, 0, 1, 'x'),
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct wire_frame frame;
        cr_assert_eq(decode(forms[i].at, forms[i].count, &frame), WEIR_OK, "form %zu: %s", i, weir_error());
        cr_assert_str_eq(frame.fail.text, "x");
    }
}

static void assert_text_becomes(const char *text, size_t count, const char *expected)
{
    unsigned char bytes[64] = {0x98, V, 5, 0, 0, 0, 0, 0, (unsigned char)(0xa0 + count)};
    struct wire_frame frame;
    memcpy(bytes + 9, text, count);
    cr_assert_eq(decode(bytes, 9 + count, &frame), WEIR_OK, "%s", weir_error());
    cr_assert_str_eq(frame.fail.text, expected);
    assert_comes_back(&frame);
}

Test(wire, text_holds_nothing_that_commands_a_terminal, .timeout = 120)
{
    assert_text_becomes("a\x1b[31mb\n\t\x7f.", 11, "a [31mb   .");
    assert_text_becomes("\xc2\x9b" "31m", 5, "  31m"); /* the control sequence introducer as one character */
    assert_text_becomes("\x9b" "31m", 4, "?31m");     /* and as a byte of Latin-1 */
    assert_text_becomes("caf\xc3\xa9 \xe2\x82\xac", 9, "caf\xc3\xa9 \xe2\x82\xac");
    assert_text_becomes("cut \xe2\x82", 6, "cut ??");
    assert_text_becomes("\xc0\x9b", 2, "??"); /* 27 in two bytes, which UTF-8 forbids */
    assert_text_becomes("\xe2\x1b[", 3, "? [");
    assert_text_becomes("ab\0cd", 5, "ab");
    assert_text_becomes("", 0, "");
}

/* ---- what is refused ---- */

Test(wire, another_version_is_refused_before_anything_else, .timeout = 120)
{
    assert_refused(&(struct bytes)BYTES(0x96, 0x01, 0x01, SENDER, 0xc3),
                   "version 1 of the protocol, this is version " VERSION);
    assert_refused(&(struct bytes)BYTES(0x91, 0xcd, 0x01, 0x00),
                   "version 256 of the protocol, this is version " VERSION);
    assert_refused(&(struct bytes)BYTES(0xdd, 0xff, 0xff, 0xff, 0xff, 0x00, 0xc1),
                   "version 0 of the protocol, this is version " VERSION);
}

Test(wire, says_what_is_wrong, .timeout = 120)
{
    static const struct {
        struct bytes bytes;
        const char *error;
    } cases[] = {
        {{0, {0}}, "a header that does not begin as a MessagePack array"},
        {BYTES(0xdc, 0x00), "a header that does not begin as a MessagePack array"},
        {BYTES(0x81, 1, 1), "a header that does not begin as a MessagePack array"},
        {BYTES(0x90), "a header without a version"},
        {BYTES(0x96, 0xc0), "a header without a version"},
        {BYTES(0x96, 0xff), "a header without a version"},
        {BYTES(0x91, V), "a header without a kind"},
        {BYTES(0x96, V, 0xa1, 'x'), "a header without a kind"},
        {BYTES(0x96, V, 0), "kind 0, which is none"},
        {BYTES(0x96, V, 11), "kind 11, which is none"},
        {BYTES(0x96, V, 0xcf, 1, 0, 0, 0, 1, 0, 0, 1), "kind 72057594054705153, which is none"},
        {BYTES(0x96, V, 2, 0), "kind 2, which is none"},
        {BYTES(0x9a, V, 3, 0), "kind 3, which is none"},
        {BYTES(0x93, V, 5, 0), "FAIL: 3 fields of 8"},
        {BYTES(0x99, V, 5, 0, 0, 0, 1, 1, 0xa0, 0), "FAIL: 9 fields of 8"},
        {BYTES(0x96, V, 1, 0, 0, 0, 0xc3), "HELLO: 6 fields of 12"},
        {BYTES(HELLO, 0xff, 0, 0, 0xc2), "HELLO: session is not a number from 0 to 18446744073709551615"},
        {BYTES(HELLO, 0, 0xcf, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0xc2),
         "HELLO: rank is not a number from 0 to 4294967295"},
        {BYTES(HELLO, 0, 0xd0, 0xff, 0, 0xc2), "HELLO: rank is not a number from 0 to 4294967295"},
        {BYTES(HELLO, 0, 0xca, 0, 0, 0, 0, 0, 0xc2), "HELLO: rank is not a number from 0 to 4294967295"},
        {BYTES(HELLO, 0, 0, 0, 1), "HELLO: shm is neither true nor false"},
        {BYTES(HELLO, 0, 0, 0), "HELLO: ends within shm"},
        {BYTES(HELLO, 0, 0, 0, 0xc2, 0, 0, 0, 0, 0, 0, 0, 0), "HELLO: 2 bytes after its end"},
        {BYTES(HELLO, 0, 0, 0, 0xc2, 0xce, 0, 1, 0, 0, 0, 0, 0, 0, 0), "HELLO: port is not a number from 0 to 65535"},
        {BYTES(HELLO, 0, 0, 0, 0xc2, 0, 0xff, 0, 0, 0, 0),
         "HELLO: name is not a number from 0 to 18446744073709551615"},
        {BYTES(HELLO, 0, 0, 0, 0xc2, 0, 0, 1, 2, 3, 0xa1, 'x'),
         "HELLO: secret is not a number from 0 to 18446744073709551615"},
        {BYTES(HELLO, 0, 0, 0, 0xc2, 0, 0, 1, 2, 3), "HELLO: ends within secret"},
        {BYTES(0x97, V, 6, 0, 0, 0, 0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0), "BYE: steps is not a number of 64 bits"},
        {BYTES(0x97, V, 6, 0, 0, 0, 1, 1), "BYE: answer is neither true nor false"},
        {BYTES(0x98, V, 5, 0, 0, 0, 0, 0, 0xc4, 1, 'x'), "FAIL: text is not a text of at most 1023 bytes"},
        {BYTES(0x98, V, 5, 0, 0, 0, 0, 0, 0xda, 0x04, 0x00), "FAIL: text is not a text of at most 1023 bytes"},
        {BYTES(0x98, V, 5, 0, 0, 0, 0, 0, 0xdb, 0xff, 0xff, 0xff, 0xff),
         "FAIL: text is not a text of at most 1023 bytes"},
        {BYTES(0x98, V, 9, 0, 0, 0, 3, 1, 0), "HOLD: what is not a number from 0 to 2"},
        {BYTES(0x9a, V, 10, 0, 0, 0, 0, 0, 3, 1, 0xa0), "END: what is not a number from 0 to 2"},
        {BYTES(0x98, V, 5, 0, 0, 0, 0, 0, 0xda, 0x03, 0xff, 'x'), "FAIL: ends within text"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_refused(&cases[i].bytes, cases[i].error);
}

Test(wire, a_text_of_more_bytes_than_allowed_is_refused, .timeout = 120)
{
    unsigned char bytes[2048] = {0x98, V, 5, 0, 0, 0, 0, 0, 0xda, 0x03, 0xff};
    struct wire_frame frame;
    memset(bytes + 11, 'x', WIRE_TEXT_MAX + 1);
    cr_assert_eq(decode(bytes, 11 + WIRE_TEXT_MAX, &frame), WEIR_OK, "%s", weir_error());
    cr_assert_eq(strlen(frame.fail.text), WIRE_TEXT_MAX);
    bytes[9] = 0x04;
    bytes[10] = 0x00;
    cr_assert_eq(decode(bytes, 11 + WIRE_TEXT_MAX + 1, &frame), WEIR_E_PEER);
}

Test(wire, what_is_cut_short_is_refused, .timeout = 60)
{
    uint64_t seed = 31337, random = seed;
    cr_log_info("seed %llu", (unsigned long long)seed);
    for (uint32_t round = 0; round < ROUNDS / 10; round++) {
        struct wire_frame frame = random_frame(&random, kinds[round % KINDS]), decoded;
        unsigned char bytes[WIRE_HEADER_MAX];
        size_t count = wire_encode(&frame, bytes);
        for (size_t left = 0; left < count; left++)
            cr_assert_eq(decode(bytes, left, &decoded), WEIR_E_PEER, "%s: %zu of %zu bytes", wire_kind_name(frame.kind),
                         left, count);
    }
}

Test(wire, whatever_one_byte_is_changed_to_is_refused_or_a_frame, .timeout = 60)
{
    uint64_t seed = 99, random = seed;
    uint32_t accepted = 0, refused = 0;
    cr_log_info("seed %llu", (unsigned long long)seed);
    for (uint32_t round = 0; round < 64; round++) {
        struct wire_frame frame = random_frame(&random, kinds[round % KINDS]), decoded;
        unsigned char bytes[WIRE_HEADER_MAX];
        size_t count = wire_encode(&frame, bytes);
        for (size_t i = 0; i < count && i < 80; i++) {
            unsigned char before = bytes[i];
            for (unsigned value = 0; value < 256; value++) {
                bytes[i] = (unsigned char)value;
                bool ok = decode(bytes, count, &decoded) == WEIR_OK;
                if (ok)
                    assert_comes_back(&decoded);
                accepted += ok;
                refused += !ok;
            }
            bytes[i] = before;
        }
    }
    cr_assert(accepted > 1000 && refused > 1000, "%u accepted, %u refused", accepted, refused);
}
