/* tests/support/gguf_file.c: GGUF files by hand. */
#include "tests/support/gguf_file.h"

#include <stdlib.h>
#include <string.h>

void gguf_file_bytes(struct gguf_file *f, const void *bytes, size_t count)
{
    if (count > sizeof f->bytes - f->count)
        abort();
    memcpy(f->bytes + f->count, bytes, count);
    f->count += count;
}

void gguf_file_u16(struct gguf_file *f, uint16_t value)
{
    gguf_file_bytes(f, &value, sizeof value);
}

void gguf_file_u32(struct gguf_file *f, uint32_t value)
{
    gguf_file_bytes(f, &value, sizeof value);
}

void gguf_file_u64(struct gguf_file *f, uint64_t value)
{
    gguf_file_bytes(f, &value, sizeof value);
}

void gguf_file_f16(struct gguf_file *f, float value)
{
    uint16_t half;
    weir_from_f32(&value, 1, WEIR_F16, &half);
    gguf_file_u16(f, half);
}

void gguf_file_text(struct gguf_file *f, const char *text)
{
    gguf_file_u64(f, strlen(text));
    gguf_file_bytes(f, text, strlen(text));
}

void gguf_file_begin(struct gguf_file *f, uint64_t tensors, uint64_t keys)
{
    f->count = 0;
    gguf_file_bytes(f, "GGUF", 4);
    gguf_file_u32(f, 3);
    gguf_file_u64(f, tensors);
    gguf_file_u64(f, keys);
}

void gguf_file_tensor(struct gguf_file *f, const char *name, const weir_shape *shape, uint32_t type, uint64_t offset)
{
    gguf_file_text(f, name);
    gguf_file_u32(f, (uint32_t)shape->rank);
    for (int d = shape->rank - 1; d >= 0; d--)
        gguf_file_u64(f, (uint64_t)shape->dim[d]);
    gguf_file_u32(f, type);
    gguf_file_u64(f, offset);
}

void gguf_file_align(struct gguf_file *f, size_t alignment)
{
    while (f->count % alignment)
        gguf_file_bytes(f, "", 1);
}

/* ---- blocks ---- */

static void put_byte(struct gguf_file *f, int value)
{
    gguf_file_bytes(f, &(unsigned char){(unsigned char)value}, 1);
}

/* Elements i and i + 16 share a byte. */
static void put_low_halves(struct gguf_file *f, const int q[32], int added)
{
    for (int i = 0; i < 16; i++)
        put_byte(f, ((q[i] + added) & 15) + 16 * ((q[i + 16] + added) & 15));
}

void gguf_file_q4(struct gguf_file *f, bool minimum, float d, float m, const int q[32])
{
    gguf_file_f16(f, d);
    if (minimum)
        gguf_file_f16(f, m);
    put_low_halves(f, q, minimum ? 0 : 8);
}

void gguf_file_q5(struct gguf_file *f, bool minimum, float d, float m, const int q[32])
{
    uint32_t fifth = 0;
    for (int i = 0; i < 32; i++)
        fifth |= (uint32_t)(q[i] + (minimum ? 0 : 16) >= 16) << i;
    gguf_file_f16(f, d);
    if (minimum)
        gguf_file_f16(f, m);
    gguf_file_u32(f, fifth);
    put_low_halves(f, q, minimum ? 0 : 16);
}

void gguf_file_q8_0(struct gguf_file *f, float d, const int q[32])
{
    gguf_file_f16(f, d);
    for (int i = 0; i < 32; i++)
        put_byte(f, q[i]);
}

void gguf_file_q4_k(struct gguf_file *f, float d, float least, const int scale[8], const int minimum[8], const int q[256])
{
    gguf_file_f16(f, d);
    gguf_file_f16(f, least);
    for (int j = 0; j < 4; j++) /* six bits, and above them the upper two of the scale four further on */
        put_byte(f, scale[j] + 64 * (scale[j + 4] / 16));
    for (int j = 0; j < 4; j++)
        put_byte(f, minimum[j] + 64 * (minimum[j + 4] / 16));
    for (int j = 4; j < 8; j++)
        put_byte(f, scale[j] % 16 + 16 * (minimum[j] % 16));
    for (int chunk = 0; chunk < 256; chunk += 64)
        for (int i = 0; i < 32; i++)
            put_byte(f, q[chunk + i] + 16 * q[chunk + 32 + i]);
}

void gguf_file_q6_k(struct gguf_file *f, float d, const int scale[16], const int q[256])
{
    for (int half = 0; half < 256; half += 128)
        for (int i = 0; i < 64; i++)
            put_byte(f, (q[half + i] + 32) % 16 + 16 * ((q[half + 64 + i] + 32) % 16));
    for (int half = 0; half < 256; half += 128)
        for (int i = 0; i < 32; i++) {
            int byte = 0;
            for (int quarter = 3; quarter >= 0; quarter--)
                byte = 4 * byte + (q[half + 32 * quarter + i] + 32) / 16;
            put_byte(f, byte);
        }
    for (int j = 0; j < 16; j++)
        put_byte(f, scale[j]);
    gguf_file_f16(f, d);
}
