/* apps/common/npy.h: tensors as NumPy's .npy files
 * (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html): a folder of them, in which h0/q/weight is
 * the file h0/q/weight.npy. f32, i32 and u8 (<f4, <i4, |u1), in C order. */
#ifndef APPS_COMMON_NPY_H
#define APPS_COMMON_NPY_H

#include "apps/common/tensors.h"

/* Whether there is an .npy file in it or below. */
bool npy_is_folder(const char *path);

/* Every .npy file of the folder and those below it. */
bool npy_read_folder(struct tensors *t, const char *path);

/* One file, as the tensor `name`. Its text is what a stranger wrote. */
bool npy_read_file(struct tensors *t, const char *path, const char *name);

/* One file for each tensor; folders are made. Several slots become a first dimension. */
bool npy_write_folder(const struct tensors *t, const char *path);

#endif
