/* actors/keep/format/gguf_write.h: writes a GGUF file, version 3 (gguf.h has a picture of one).
 *
 *     struct gguf_write w = {.named = 0};
 *     gguf_write_text(&w, "general.architecture", "llama");
 *     gguf_write_tensor(&w, "a.weight", gguf_type_named("Q8_0"), &shape);     // each tensor, in the order of the data
 *     bool ok = gguf_write_open(&w, path);                                    // writes the header
 *     ok = ok && gguf_write_data(&w, bytes, count) && gguf_write_end(&w);     // the data of the first tensor, in any pieces; ...
 *     ok = gguf_write_close(&w, ok) && ok;
 *
 * The header is collected in memory; data goes to the file as it comes. Another file at the path stays as it is until the new one is
 * whole (graph/base/replaced.h). Each tensor begins at a multiple of 32 bytes. If there is no memory for the header,
 * gguf_write_open() fails; the functions before it need no look. Functions that fail return false with errno set. One thread.
 */
#ifndef ACTORS_KEEP_FORMAT_GGUF_WRITE_H
#define ACTORS_KEEP_FORMAT_GGUF_WRITE_H

#include "actors/keep/format/gguf_type.h"
#include "graph/base/gguf.h"
#include "graph/base/replaced.h"

struct gguf_bytes {
    unsigned char *bytes; /* owned */
    size_t count, room;
    bool failed;          /* no memory */
};

struct gguf_write {
    struct gguf_bytes pairs, tensors; /* of the header */
    uint64_t pair_count, tensor_count;
    uint64_t named, written;          /* bytes of data, of the tensors that were named and of those that were written */
    struct replaced file;
};

/* Adds a pair. */
void gguf_write_text(struct gguf_write *w, const char *key, const char *text);
void gguf_write_u32(struct gguf_write *w, const char *key, uint32_t value);
void gguf_write_f32(struct gguf_write *w, const char *key, float value);
void gguf_write_bool(struct gguf_write *w, const char *key, bool value);

/* Begins an array of `count` elements of a type of graph/base/gguf.h. They follow by the functions below. */
void gguf_write_array(struct gguf_write *w, const char *key, uint32_t type, uint64_t count);
void gguf_write_element(struct gguf_write *w, const void *bytes, size_t count); /* a number */
void gguf_write_element_text(struct gguf_write *w, const char *text, size_t count);

/* Adds a pair as another file has it: key, type and value. */
void gguf_write_pair(struct gguf_write *w, const void *bytes, size_t count);

/* Adds a tensor, whose rows are a whole number of the type's blocks. */
void gguf_write_tensor(struct gguf_write *w, const char *name, const struct gguf_type *type, const weir_shape *shape);

/* Bytes of a tensor's data. */
uint64_t gguf_write_bytes(const struct gguf_type *type, const weir_shape *shape);

bool gguf_write_open(struct gguf_write *w, const char *path);
bool gguf_write_data(struct gguf_write *w, const void *bytes, size_t count);
bool gguf_write_end(struct gguf_write *w); /* of a tensor: the next one is aligned */

/* Puts the file in its place if it is `whole`, else removes it. Frees everything; also after a failure, and without
 * gguf_write_open(). */
bool gguf_write_close(struct gguf_write *w, bool whole);

#endif
