/* weir/checkpoint.h: list, read, verify and make checkpoints on disk, without a session.
 *
 *     weir_checkpoint *c = weir_checkpoint_open("runs/a");                // the newest whole one below runs/a
 *     const weir_checkpoint_tensor *t = weir_checkpoint_find(c, "wte");
 *     float row[64];                                                      // row 7 of it
 *     const int64_t start[] = {7, 0};
 *     weir_checkpoint_read(c, t, 0, start, WEIR_ARRAY(row, WEIR_F32, 1, 64));
 *     weir_checkpoint_close(c);
 *
 * A checkpoint is a folder with index.json, which lists every logical tensor with its shape and the files of its shards, and
 * the shards in safetensors files, one or two for every rank that wrote. A root is a folder of checkpoints, named after
 * the number of steps done: step-00000100. A folder gets such a name only when all of it is on the disk, so a folder with
 * the name is complete. docs/checkpoint.md describes the format.
 *
 * A single .safetensors file of any origin opens as a checkpoint, too: every tensor is whole and a parameter. So do
 * several such files with a model.safetensors.index.json, by the path of that or of its folder. F64 is read as f32
 * (rounded), I64 as i64, or as i32 where that is wanted; a value that is out of range is an error. Tensors of other types, and of more than six
 * dimensions, can be listed but not read. F16 and BF16 are read as they are, or as f32: so an f32 parameter can start with
 * the values of a file of halves.
 *
 * A GGUF file (.gguf, version 3, little-endian) opens in the same way. Its dimensions are reversed, so a weight has the shape
 * [outputs, inputs]. F32, F16, BF16, F64, I8, I32 and I64 are read as in a .safetensors file. Tensors of the quantised types Q4_0,
 * Q4_1, Q5_0, Q5_1, Q8_0, Q4_K and Q6_K are read as f32, any box of them, with the bits that ggml computes. Quantised tensors, of any
 * type that ggml has, are also read as u8 [.., blocks, bytes of a block], the blocks as they are. Tensors of other types can be listed
 * but not read. The tokenizer and the hyperparameters in the file are skipped. A checkpoint cannot be saved as a GGUF file.
 *
 * Files are not trusted: with any content, a call returns the stored values, or an error that names file and tensor.
 *
 * An open checkpoint, or a writer, belongs to one thread at a time; two threads may use two of them. If an open checkpoint is
 * removed (a trainer that keeps the last three removes older ones), reading fails with an error that names the file.
 */
#ifndef WEIR_CHECKPOINT_H
#define WEIR_CHECKPOINT_H

#include <weir/plan.h>

WEIR_C_BEGIN

typedef struct weir_checkpoint weir_checkpoint;

/* Facts about a checkpoint. Texts are owned by the checkpoint. */
typedef struct weir_checkpoint_info {
    const char *path;     /* of the folder or the file: "runs/a/step-00000100" */
    int64_t step;         /* steps done; -1: unknown */
    uint64_t seed;        /* the plan's */
    uint64_t plan_hash;   /* of the plan that ran */
    uint64_t graph_hash;  /* of the logical graph: only a plan of the same graph may load this; 0: any */
    const char *program;  /* that saved it, and its version: "weir-gpt 1"; "": unknown */
    int64_t saved_s;      /* time of the save, seconds since 1970 */
    int ranks;            /* that wrote it */
    int files, tensors, sources;
    uint64_t bytes;       /* of all files of shards */
    const char *architecture; /* of a GGUF file: "llama"; NULL: the file does not say, or is none */
} weir_checkpoint_info;

/* A file of shards. */
typedef struct weir_checkpoint_file {
    const char *name;     /* in the folder: "rank-0000.safetensors" */
    uint64_t bytes;
    uint64_t checksum;    /* XXH3 of its header: the length and the JSON text; 0 in a single file */
} weir_checkpoint_file;

/* A part of a logical tensor: elements start[d] .. start[d] + shape.dim[d] - 1, row-major without gaps. */
typedef struct weir_checkpoint_shard {
    const char *key;      /* its name in the safetensors file */
    int file;             /* number of the file, 0 .. info.files - 1 */
    int slot;             /* for a state that keeps several steps: 0 is the oldest */
    uint64_t offset;      /* of its first byte, from the beginning of the file */
    uint64_t bytes;
    uint64_t checksum;    /* XXH3, 64 bits, of its bytes; 0 in a single file */
    int64_t start[WEIR_DIMS_MAX];
    weir_shape shape;
} weir_checkpoint_shard;

typedef struct weir_checkpoint_tensor {
    const char *name;     /* "h0/q/weight", "h0/q/weight:adamw.m" */
    weir_param_kind kind;
    weir_dtype dtype;     /* that it is read as; WEIR_DTYPE_NONE: it cannot be read */
    const char *stored;   /* its type in the file: "F32", "Q4_1" */
    weir_shape shape;     /* logical */
    bool frozen;          /* nothing in the plan changes it */
    int slots;            /* values of this shape; 1, or more for a state with a delay */
    const weir_checkpoint_shard *shard;
    int shard_count;
    const char *unread;   /* why it cannot be read: "its type, I16, is not read"; NULL: it can be read */
    int stored_dims;      /* dimensions in the file. If these are more than weir reads, `shape` has one dimension, with */
    const int64_t *stored_dim; /* all elements, and these are the file's. NULL: `shape` is the file's */
} weir_checkpoint_tensor;

/* The position of a source of data, as its `save` function left it. */
typedef struct weir_checkpoint_source {
    const char *name;
    int rank;             /* whose source it was */
    const void *bytes;
    size_t count;
} weir_checkpoint_source;

typedef struct weir_checkpoint_opts {
    size_t size;
    weir_src src;
    bool unverified;      /* do not verify checksums of shards before their use */
} weir_checkpoint_opts;

/* Opens a checkpoint's folder, the newest complete one of a root (the greatest number of steps), a .safetensors file,
 * several of them (a .safetensors.index.json or its folder), or a GGUF file, and reads its index. NULL and weir_error(): there is none, or it
 * cannot be read, or it is damaged. */
#define weir_checkpoint_open(path, ...) weir_checkpoint_open_at(path, WEIR_OPTS(weir_checkpoint_opts, __VA_ARGS__))
weir_checkpoint *weir_checkpoint_open_at(const char *path, const weir_checkpoint_opts *opts);
void weir_checkpoint_close(weir_checkpoint *checkpoint); /* may be NULL */

/* Returns whether there is something to open at `path`: a file, a checkpoint's folder, or a root with a checkpoint, whole or
 * damaged. So a program that resumes tells "nothing was saved yet" (false) from "it cannot be read" (true, and open fails). */
bool weir_checkpoint_exists(const char *path);

/* The checkpoint owns the results. NULL: no such index, or name. Indices are 0 .. info.tensors - 1, and so on. */
const weir_checkpoint_info *weir_checkpoint_get_info(const weir_checkpoint *checkpoint);
const weir_checkpoint_tensor *weir_checkpoint_get_tensor(const weir_checkpoint *checkpoint, int index);
const weir_checkpoint_tensor *weir_checkpoint_find(const weir_checkpoint *checkpoint, const char *name);
const weir_checkpoint_file *weir_checkpoint_get_file(const weir_checkpoint *checkpoint, int index);
const weir_checkpoint_source *weir_checkpoint_get_source(const weir_checkpoint *checkpoint, int index);

/* Returns whether the tensor's elements can be read as `dtype`: its own, f32 if its own is f16 or bf16, or i32 if its own is i64. */
bool weir_checkpoint_reads_as(const weir_checkpoint_tensor *tensor, weir_dtype dtype);

/* Reads elements start[d] .. start[d] + value->shape.dim[d] - 1 of one slot into value->data, from all shards that have any
 * of them; `start` NULL: from the first element. `tensor` is a pointer from this checkpoint, not a copy. E_ARGUMENT: the
 * tensor cannot be read as value's dtype, or does not have these elements. E_IO: a file cannot be read, or is damaged;
 * value->data is then undefined. */
weir_status weir_checkpoint_read(weir_checkpoint *checkpoint, const weir_checkpoint_tensor *tensor, int slot,
                                 const int64_t *start, weir_array *value);

/* Reads every byte and checks headers, checksums, and that the files match the index. Calls `fault` (may be NULL) for each
 * fault, with a sentence that names file and tensor, borrowed for the call. E_IO: there was one; weir_error() is the
 * first. */
typedef void (*weir_checkpoint_fault_fn)(void *ctx, const char *sentence);
weir_status weir_checkpoint_verify(weir_checkpoint *checkpoint, weir_checkpoint_fault_fn fault, void *ctx);

/* ---- making one ---- */

typedef struct weir_checkpoint_writer weir_checkpoint_writer;

typedef struct weir_checkpoint_create_opts {
    size_t size;
    weir_src src;
    int64_t step;
    uint64_t seed, plan_hash, graph_hash;
    const char *program; /* copied */
} weir_checkpoint_create_opts;

/* Returns OK if a new checkpoint may have this path: nothing is there, or an empty folder, or a checkpoint of weir's, or a
 * .safetensors file that weir has written, or a symbolic link to one of these two. E_IO: something else is there, which the
 * error names; or the path ends with .gguf. */
weir_status weir_checkpoint_may_replace(const char *path);

/* Begins a checkpoint that will be the folder `path`, or a single file if `path` ends with ".safetensors". Makes the folders
 * above. NULL and weir_error(): a folder cannot be made, weir_checkpoint_may_replace() refuses the path, or another program
 * saves in the folder above. */
#define weir_checkpoint_create(path, ...) \
    weir_checkpoint_create_at(path, WEIR_OPTS(weir_checkpoint_create_opts, __VA_ARGS__))
weir_checkpoint_writer *weir_checkpoint_create_at(const char *path, const weir_checkpoint_create_opts *opts);

/* A whole tensor. If `slots` is more than 1, value.data has so many values, one after the other. `data` is borrowed until
 * finish. `name` is copied. */
typedef struct weir_checkpoint_value {
    const char *name;
    weir_param_kind kind;
    bool frozen;
    int slots;
    weir_array value;
} weir_checkpoint_value;
weir_status weir_checkpoint_add_of(weir_checkpoint_writer *writer, const weir_checkpoint_value *value,
                                   size_t value_bytes);
static inline weir_status weir_checkpoint_add(weir_checkpoint_writer *writer, const weir_checkpoint_value *value)
{
    return weir_checkpoint_add_of(writer, value, sizeof *value); /* as many bytes as this header knows */
}
weir_status weir_checkpoint_add_source(weir_checkpoint_writer *writer, const weir_checkpoint_source *source);

/* Writes the checkpoint and gives it its name when all of it is on the disk; only then it replaces one that had the name. Frees
 * the writer. E_IO: nothing has changed. */
weir_status weir_checkpoint_finish(weir_checkpoint_writer *writer);
void weir_checkpoint_abandon(weir_checkpoint_writer *writer); /* may be NULL: leaves nothing */

/* ---- one program at a time ----
 *
 * A session locks the root that it saves in for its process, from its first save until it is closed. A save of another
 * process fails meanwhile, with an error that names the process. A program that trains for long should take the lock at
 * its start, to learn at once that another one has it. Sessions of this process may still save there, one at a time.
 * Loading needs no lock. */

typedef struct weir_checkpoint_lock weir_checkpoint_lock;

/* Locks the root for this process, and makes the folder. A process of a later generation (weir_generation()) waits up to
 * WEIR_LIVENESS for one of the generation before it; others do not wait. NULL and weir_error(): another process has the
 * lock, or nothing can be written there. Any thread. */
weir_checkpoint_lock *weir_checkpoint_lock_take(const char *root);

/* Releases the lock; call it once for each take. The lock also ends with the process. May be NULL. Any thread. */
void weir_checkpoint_lock_release(weir_checkpoint_lock *lock);

WEIR_C_END
#endif
