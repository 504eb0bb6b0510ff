/* tests/graph/data/files.h: files of training data in a test's folder (tests/support/folder.h), and the data that they open as. */
#ifndef TESTS_GRAPH_DATA_FILES_H
#define TESTS_GRAPH_DATA_FILES_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#include "tests/support/folder.h"

enum { SEQ = 4 };

static inline void write_file(const char *name, const void *head, size_t head_bytes, const void *body, size_t body_bytes)
{
    FILE *to = fopen(folder_path("%s", name), "wb");
    cr_assert(to && fwrite(head, 1, head_bytes, to) == head_bytes && fwrite(body, 1, body_bytes, to) == body_bytes);
    cr_assert_eq(fclose(to), 0);
}

/* Tokens first, first + 1, ... */
static inline const void *u16_from(int first, int count)
{
    static uint16_t token[1000];
    for (int i = 0; i < count; i++)
        token[i] = (uint16_t)(first + i);
    return token;
}

static inline void write_raw(const char *name, int first, int count)
{
    write_file(name, "", 0, u16_from(first, count), (size_t)count * 2);
}

static inline void write_llmc(const char *name, int32_t magic, int32_t version, int32_t says, const void *tokens, size_t bytes)
{
    const int32_t head[256] = {magic, version, says};
    write_file(name, head, sizeof head, tokens, bytes);
}

static inline void write_npy(const char *name, const char *descr, const char *shape, const void *values, size_t bytes)
{
    char head[256] = "\x93NUMPY\1", text[128];
    const int length = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n", descr, shape);
    head[8] = (char)length;
    memcpy(head + 10, text, (size_t)length);
    write_file(name, head, 10 + (size_t)length, values, bytes);
}

#define TOKENS(name, ...) weir_data_tokens(folder_path(name), .seq = SEQ, __VA_ARGS__)

static inline weir_data *opened(weir_data *data)
{
    cr_assert(data, "%s", weir_error());
    return data;
}

#define REFUSES(call, ...)                                                                      \
    do {                                                                                        \
        char wanted_[600];                                                                      \
        snprintf(wanted_, sizeof wanted_, __VA_ARGS__);                                         \
        cr_expect_null(call);                                                                   \
        cr_expect(strstr(weir_error(), wanted_), "wanted %s\n   got %s", wanted_, weir_error()); \
    } while (0)

/* A view of a whole value. */
static inline weir_view whole(void *to, weir_dtype dtype, weir_shape shape)
{
    return (weir_view){.data = to, .dtype = dtype, .shape = shape, .global = shape};
}

#endif
