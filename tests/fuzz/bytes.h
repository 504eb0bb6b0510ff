/* tests/fuzz/bytes.h: choices are made of the input's bytes; of what is beyond its end all are 0. */
#ifndef TESTS_FUZZ_BYTES_H
#define TESTS_FUZZ_BYTES_H

#include <stddef.h>
#include <stdint.h>

struct bytes {
    const uint8_t *at;
    size_t left;
};

static inline uint8_t take(struct bytes *in)
{
    if (!in->left)
        return 0;
    in->left--;
    return *in->at++;
}

static inline uint32_t take_below(struct bytes *in, uint32_t limit)
{
    uint32_t value = take(in);
    value |= (uint32_t)take(in) << 8;
    return limit ? value % limit : 0;
}

#endif
