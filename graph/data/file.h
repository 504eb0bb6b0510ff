/* graph/data/file.h: one file of training data: the elements that it has, and where.
 *
 *     a header of 256 i32: magic, version, count | u16 or u32 tokens              llm.c
 *     "\x93NUMPY" ...                            | elements in C order            NumPy (graph/base/npy.h)
 *                                                  u16 tokens                     else, if tokens are wanted
 *
 * A file says by its first bytes what it is, and has to be as long as its header says. Elements are read with pread(), not
 * through a mapping: if a file is cut or a disk fails while it is used, a call returns an error, where a mapping would raise a
 * signal that ends the process.
 *
 * Errors are sentences of weir_error() that begin with the path. A file does not change once it is open; any thread may read it.
 */
#ifndef GRAPH_DATA_FILE_H
#define GRAPH_DATA_FILE_H

#include <stdbool.h>
#include <weir/base.h>

/* A type of elements in files. */
struct data_type;

struct data_file {
    char *path;                    /* owned */
    int fd;                        /* owned; -1: the file is opened for each read */
    int64_t start;                 /* bytes before the first element */
    int64_t elements;
    const struct data_type *type;
    weir_shape shape;              /* of an .npy file's array; of tokens: [elements] */
    int64_t first;                 /* data.c's: number of its first sample among those of all files */
    uint64_t hash;                 /* of its size, type and first bytes */
};

/* Opens the file; `path` is copied. `tokens`: its elements are token ids, else it has to be an .npy file. `kept`: it stays open.
 * To be closed also after a failure. */
weir_status data_file_open(struct data_file *file, const char *path, bool tokens, bool kept);
void data_file_close(struct data_file *file);

/* The dtype in which values of an .npy file are read. */
weir_dtype data_file_dtype(const struct data_file *file);

/* Reads `count` elements from element `at` on, in that dtype. E_IO: also if a value does not fit. */
weir_status data_file_read(const struct data_file *file, int64_t at, int64_t count, void *to);

/* The same as ids, i32 from 0 to vocab - 1. E_ARGUMENT: another one. */
weir_status data_file_read_ids(const struct data_file *file, int64_t at, int64_t count, int64_t vocab, int32_t *to);

#endif
