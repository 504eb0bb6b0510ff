/* apps/common/tensors.h: a model's tensors in memory, between the forms that `weir checkpoint convert` reads and
 * writes.
 *
 * Errors are told by weir_error() where weir found them, and else by tensors_error(); every function leaves its
 * sentence there and returns false. One thread.
 */
#ifndef APPS_COMMON_TENSORS_H
#define APPS_COMMON_TENSORS_H

#include <weir/weir.h>

struct tensor {
    char *name;            /* owned */
    weir_param_kind kind;
    bool frozen;
    int slots;             /* values one behind the other, each of value.shape */
    weir_array value;      /* data is owned */
};

struct tensors {
    struct tensor *item;   /* owned */
    int count, room;
    void *named;           /* owned: a tree of them by name */
    weir_checkpoint_create_opts facts; /* of the checkpoint that they come from; program is owned */
    weir_checkpoint_source *source;    /* owned, with what they name */
    int source_count;
    bool skip_unread;      /* before reading: leave out what cannot be read */
    int skipped;           /* how many were */
    char first_skipped[256]; /* "TENSOR: why", of the first */
};

void tensors_free(struct tensors *t);

/* A new one with room for its values, which are not set; NULL: no memory, or a shape that cannot be. The name is
 * copied; pointers to others become invalid. */
struct tensor *tensors_add(struct tensors *t, const char *name, weir_dtype dtype, const weir_shape *shape, int slots);
struct tensor *tensors_find(const struct tensors *t, const char *name);
size_t tensor_bytes(const struct tensor *t);

/* From and to a checkpoint's folder or a .safetensors file. Not `all`: parameters only. A tensor that cannot be read is
 * an error, unless such are to be left out. */
bool tensors_read(struct tensors *t, const char *path, bool all);
bool tensors_write(const struct tensors *t, const char *path);

/* Copies a box of `from` (a whole tensor of from_shape; the box begins at from_start) to a box of the same shape of
 * `to`, element by element; `transposed`: to[j][i] is from[i][j] of the box, which then has two dimensions; `shape` is
 * that of the box in `from`. */
void tensor_copy_box(const void *from, const weir_shape *from_shape, const int64_t *from_start, void *to,
                     const weir_shape *to_shape, const int64_t *to_start, const weir_shape *shape, bool transposed,
                     size_t element);

bool tensors_failed(const char *format, ...) __attribute__((format(printf, 1, 2))); /* false */
const char *tensors_error(void);

#endif
