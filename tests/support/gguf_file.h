/* tests/support/gguf_file.h: GGUF files by hand.
 *
 *     struct gguf_file f;
 *     gguf_file_begin(&f, 1, 1);                                   // one tensor, one key/value
 *     gguf_file_text(&f, "general.architecture"), gguf_file_u32(&f, 8), gguf_file_text(&f, "llama");
 *     gguf_file_tensor(&f, "w", &(weir_shape){2, {3, 32}}, GGUF_Q8_0, 0);
 *     gguf_file_align(&f, 32);
 *     gguf_file_q8_0(&f, 0.5f, numbers);                           // three times
 *     folder_write(path, f.bytes, f.count);
 */
#ifndef TESTS_SUPPORT_GGUF_FILE_H
#define TESTS_SUPPORT_GGUF_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <weir/base.h>

enum gguf_number { GGUF_F32 = 0, GGUF_F16 = 1, GGUF_Q4_0 = 2, GGUF_Q4_1 = 3, GGUF_Q5_0 = 6, GGUF_Q5_1 = 7, GGUF_Q8_0 = 8,
                   GGUF_Q2_K = 10, GGUF_Q4_K = 12, GGUF_Q6_K = 14, GGUF_I8 = 24, GGUF_I32 = 26, GGUF_I64 = 27, GGUF_F64 = 28,
                   GGUF_BF16 = 30 };

struct gguf_file {
    size_t count;
    unsigned char bytes[1 << 16];
};

void gguf_file_begin(struct gguf_file *f, uint64_t tensors, uint64_t keys); /* of version 3 */
void gguf_file_bytes(struct gguf_file *f, const void *bytes, size_t count);
void gguf_file_u16(struct gguf_file *f, uint16_t value);
void gguf_file_u32(struct gguf_file *f, uint32_t value);
void gguf_file_u64(struct gguf_file *f, uint64_t value);
void gguf_file_f16(struct gguf_file *f, float value);
void gguf_file_text(struct gguf_file *f, const char *text);
void gguf_file_tensor(struct gguf_file *f, const char *name, const weir_shape *shape, uint32_t type, uint64_t offset);
void gguf_file_align(struct gguf_file *f, size_t alignment); /* with zeros */

/* One block: integers q of 32 or 256 elements, as the element is d * q and so on. `m` is the minimum of types that have one. */
void gguf_file_q4(struct gguf_file *f, bool minimum, float d, float m, const int q[32]); /* -8 .. 7; with a minimum 0 .. 15 */
void gguf_file_q5(struct gguf_file *f, bool minimum, float d, float m, const int q[32]); /* -16 .. 15; 0 .. 31 */
void gguf_file_q8_0(struct gguf_file *f, float d, const int q[32]);                      /* -128 .. 127 */
/* (d * scale[i / 32]) * q[i] - (least * minimum[i / 32]); scales and minima 0 .. 63, q 0 .. 15 */
void gguf_file_q4_k(struct gguf_file *f, float d, float least, const int scale[8], const int minimum[8], const int q[256]);
/* (d * scale[i / 16]) * q[i]; scales -128 .. 127, q -32 .. 31 */
void gguf_file_q6_k(struct gguf_file *f, float d, const int scale[16], const int q[256]);

#endif
