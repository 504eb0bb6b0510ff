/* apps/common/tokens/gguf.h: reads some values of a GGUF file's metadata.
 *
 *     "GGUF"  u32 version  u64 tensors  u64 pairs    then each pair: text key, u32 type, value
 *     a text is u64 bytes and these; an array is u32 type, u64 count and its elements; all little-endian
 *
 * gguf_find() goes once over all pairs and notes where the wanted values are. Then each can be read in any order. Nothing but one
 * text is kept in memory. The tensors are not looked at.
 */
#ifndef APPS_COMMON_TOKENS_GGUF_H
#define APPS_COMMON_TOKENS_GGUF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_TEXT, GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64 };

struct gguf_value {
    const char *key;   /* set by the caller */
    bool present;
    uint32_t type;     /* of the value, or of the elements of an array */
    bool array;
    uint64_t count;    /* of elements; 1 if it is no array */
    long at;           /* in the file */
};

struct gguf {
    FILE *file;        /* borrowed */
    char *text;        /* owned; free() it: the last text */
    size_t room;
};

/* Finds `count` values. False with tokens_error(): the file is not GGUF of version 2 or 3, or is damaged. */
bool gguf_find(struct gguf *g, struct gguf_value *wanted, int count);

/* Goes to the first element. Then each call reads one; false with tokens_error(): the file ends. */
bool gguf_begin(struct gguf *g, const struct gguf_value *value);
bool gguf_next_text(struct gguf *g, uint64_t *bytes); /* g->text, and a zero byte */
bool gguf_next_u32(struct gguf *g, uint32_t *number); /* of u32 and i32 */

#endif
