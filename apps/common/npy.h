/* apps/common/npy.h: tensors as NumPy's .npy files
 * (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html): a folder of them, in which h0/q/weight is
 * the file h0/q/weight.npy; or one file of many values. f32, f16, i64, i32, i8 and u8 (<f4, <f2, <i8, <i4, |i1,
 * |u1), in C order; bf16, which NumPy does not have, is f32 there. <f8 is read as f32, rounded to the nearest, and |b1 as u8;
 * a value that f32 cannot hold is an error. An error about another type, or about Fortran's order, names the
 * line of Python that converts the file. */
#ifndef APPS_COMMON_NPY_H
#define APPS_COMMON_NPY_H

#include "apps/common/tensors.h"
#include "graph/base/npy.h"

#include <stdio.h>

/* Whether there is an .npy file in it or below. */
bool npy_is_folder(const char *path);

/* Every .npy file of the folder and those below it. */
bool npy_read_folder(struct tensors *t, const char *path);

/* One file, as the tensor `name`. Its text is what a stranger wrote. */
bool npy_read_file(struct tensors *t, const char *path, const char *name);

/* One file for each tensor, in a folder that is not there yet or is empty; folders are made. Several slots become a
 * first dimension. */
bool npy_may_write(const char *path); /* whether it is such a folder; false: tensors_error() */
bool npy_write_folder(const struct tensors *t, const char *path);

/* ---- values one behind the other ----
 *
 * A file whose first dimension counts values, which are read or written in order and never all in memory. The path "-"
 * is standard input, or output. Belongs to one thread at a time; get and put leave no sentence, but errno, as they may be
 * called beside others. */
struct npy {
    FILE *file;       /* owned, but for standard input and output */
    const char *path; /* borrowed */
    weir_dtype dtype; /* that values are read as, or written */
    bool wide;        /* the file's are doubles */
    int rank;
    int64_t dim[NPY_DIMS_MAX];
    long header_bytes;
};

/* Reads the header. A file, though not a pipe, is known to be as long as that says. */
bool npy_open(struct npy *npy, const char *path);

/* Whether npy_get() gives such elements: of the file's own dtype, halves of a file of f32, or i32 of a file of i64. */
bool npy_gives(const struct npy *npy, weir_dtype dtype);

/* The next `count` elements as `dtype`. False: the file ends, or an error; ERANGE: one does not fit. */
bool npy_get(struct npy *npy, weir_dtype dtype, void *to, size_t count);

/* Goes to this element of a file; npy_get() then reads from there. False: errno, as of a pipe. */
bool npy_seek(struct npy *npy, int64_t element);

/* Begins a file of `count` values of this type. */
bool npy_create(struct npy *npy, const char *path, weir_dtype dtype, const weir_shape *shape, int64_t count);
bool npy_put(struct npy *npy, const void *value, size_t count); /* elements */

/* Ends it when `count` values were put; then the file, if it is one, says so. Does nothing to one that is not open.
 * Whether standard output got all of it shows at the program's end (streams.h). */
bool npy_finish(struct npy *npy, int64_t count);
void npy_close(struct npy *npy);

#endif
