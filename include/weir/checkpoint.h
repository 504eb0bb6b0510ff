/* weir/checkpoint.h: checkpoints on disk, without a session: look at them, read them, verify them, make them.
 *
 *     weir_checkpoint *c = weir_checkpoint_open("runs/a");                // the newest whole one below runs/a
 *     const weir_checkpoint_tensor *t = weir_checkpoint_find(c, "wte");
 *     float row[64];                                                      // row 7 of it
 *     const int64_t start[] = {7, 0};
 *     weir_checkpoint_read(c, t, 0, start, WEIR_ARRAY(row, WEIR_F32, 1, 64));
 *     weir_checkpoint_close(c);
 *
 * A checkpoint is a folder: index.json, which names every logical tensor with its shape and says which of its shards
 * lies where, and the shards in safetensors files, one or two of every rank that wrote. A root is a folder of
 * checkpoints, named after the steps that were done: step-00000100. A folder appears under such a name when all of it
 * is on the disk, so what has the name is whole. docs/checkpoint.md describes the format.
 *
 * A single .safetensors file of any origin opens as a checkpoint too: every tensor is whole and a parameter. So do
 * several such files with a model.safetensors.index.json, by the path of that or of its folder. Values of F64 are
 * read as f32, of I64 as i32; an f32 or i32 that would not be what was stored but for rounding is an error. Tensors of other
 * types, and of more than six dimensions, can be listed, not read.
 *
 * F16 and BF16 are read as they are, or as f32: so an f32 parameter starts with the values of a file of halves.
 *
 * Files are not trusted: whatever is in them, a call returns an error that names file and tensor, or what was stored.
 *
 * An open checkpoint, or a writer, belongs to one thread at a time; different ones to any. An open checkpoint may be removed
 * meanwhile (a trainer that keeps the last three does): reading then fails, naming the file.
 */
#ifndef WEIR_CHECKPOINT_H
#define WEIR_CHECKPOINT_H

#include <weir/plan.h>

WEIR_C_BEGIN

typedef struct weir_checkpoint weir_checkpoint;

/* The facts that a checkpoint holds about itself. Texts are owned by the checkpoint. */
typedef struct weir_checkpoint_info {
    const char *path;     /* of the folder, or the .safetensors file: "runs/a/step-00000100" */
    int64_t step;         /* steps done; -1: it does not say */
    uint64_t seed;        /* the plan's */
    uint64_t plan_hash;   /* of the plan that ran */
    uint64_t graph_hash;  /* of the logical graph: what may load this has the same; 0: any */
    const char *program;  /* that saved it, and its version: "weir-gpt 1"; "" when not known */
    int64_t saved_s;      /* when, seconds since 1970 */
    int ranks;            /* that wrote it */
    int files, tensors, sources;
    uint64_t bytes;       /* of all files of shards */
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
    int slot;             /* of a state that keeps several steps: 0 is the oldest */
    uint64_t offset;      /* of its first byte, from the beginning of the file */
    uint64_t bytes;
    uint64_t checksum;    /* XXH3, 64 bits, of its bytes; nothing in a single file */
    int64_t start[WEIR_DIMS_MAX];
    weir_shape shape;
} weir_checkpoint_shard;

typedef struct weir_checkpoint_tensor {
    const char *name;     /* "h0/q/weight", "h0/q/weight:adamw.m" */
    weir_param_kind kind;
    weir_dtype dtype;     /* that it is read as; WEIR_DTYPE_NONE: it cannot be */
    const char *stored;   /* what the file calls its type: "F32" */
    weir_shape shape;     /* logical */
    bool frozen;          /* nothing in the plan changes it */
    int slots;            /* values that the state keeps, of one each shape; 1 but for a state with delay */
    const weir_checkpoint_shard *shard;
    int shard_count;
    const char *unread;   /* why it cannot be read: "its type, I8, is not read"; NULL: it can be */
    int stored_dims;      /* of the file's own shape, which may have more dimensions than are read: then `shape` */
    const int64_t *stored_dim; /* has one, of all elements. NULL: `shape` is the file's */
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
    bool unverified;      /* do not compare checksums before shards are used */
} weir_checkpoint_opts;

/* Opens a checkpoint's folder, the newest whole one of a root (the greatest number of steps), a .safetensors file, or
 * several of them (a .safetensors.index.json or its folder), and reads its index. NULL and weir_error(): E_IO, it is not there, cannot be read, or is not what it should be. */
#define weir_checkpoint_open(path, ...) weir_checkpoint_open_at(path, WEIR_OPTS(weir_checkpoint_opts, __VA_ARGS__))
weir_checkpoint *weir_checkpoint_open_at(const char *path, const weir_checkpoint_opts *opts);
void weir_checkpoint_close(weir_checkpoint *checkpoint); /* may be NULL */

/* All below are owned by the checkpoint. NULL: no such number, or name. Numbers are 0 .. info.tensors - 1, and so on.
 * */
const weir_checkpoint_info *weir_checkpoint_get_info(const weir_checkpoint *checkpoint);
const weir_checkpoint_tensor *weir_checkpoint_get_tensor(const weir_checkpoint *checkpoint, int index);
const weir_checkpoint_tensor *weir_checkpoint_find(const weir_checkpoint *checkpoint, const char *name);
const weir_checkpoint_file *weir_checkpoint_get_file(const weir_checkpoint *checkpoint, int index);
const weir_checkpoint_source *weir_checkpoint_get_source(const weir_checkpoint *checkpoint, int index);

/* Whether the tensor can be read as `dtype`: its own, or f32 where that is f16 or bf16. */
bool weir_checkpoint_reads_as(const weir_checkpoint_tensor *tensor, weir_dtype dtype);

/* Reads elements start[d] .. start[d] + value->shape.dim[d] - 1 of one slot into value->data, from whichever shards
 * hold them; `start` NULL: from the first. `tensor` is a pointer that this checkpoint gave, not a copy. E_ARGUMENT:
 * the tensor cannot be read as value's dtype, or the box is not in it. E_IO: a file cannot be read, or its bytes are
 * not those that were saved; value->data is then undefined. */
weir_status weir_checkpoint_read(weir_checkpoint *checkpoint, const weir_checkpoint_tensor *tensor, int slot,
                                 const int64_t *start, weir_array *value);

/* Reads every byte: headers, checksums, that the files are what the index says. Each fault is told to `fault` (may be
 * NULL) in a sentence that names file and tensor, borrowed for the call. E_IO: there was one; the first is left. */
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

/* Whether a new checkpoint may have this path: nothing is there, or an empty folder, or a checkpoint of weir's, or a
 * .safetensors file that weir has written, or a symbolic link to one of these two. E_IO: something else is there; the
 * error says what. */
weir_status weir_checkpoint_may_replace(const char *path);

/* Begins the checkpoint that will be the folder `path`; a `path` that ends with ".safetensors" will be a single file.
 * Folders above are made. NULL and weir_error(): E_IO, also where weir_checkpoint_may_replace() says no, and where
 * another program saves in the folder above. */
#define weir_checkpoint_create(path, ...) \
    weir_checkpoint_create_at(path, WEIR_OPTS(weir_checkpoint_create_opts, __VA_ARGS__))
weir_checkpoint_writer *weir_checkpoint_create_at(const char *path, const weir_checkpoint_create_opts *opts);

/* A whole tensor; `slots` values one behind the other when there are several (0 is 1). `data` is borrowed until
 * finish. name is copied. */
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

/* Writes it, and gives it its name when all is on the disk; a checkpoint that had the name is replaced then and not
 * before. Frees the writer. E_IO: nothing has changed. */
weir_status weir_checkpoint_finish(weir_checkpoint_writer *writer);
void weir_checkpoint_abandon(weir_checkpoint_writer *writer); /* may be NULL: leaves nothing */

/* ---- one program at a time ----
 *
 * A session keeps the root that it saves in for its process, from its first save until it is closed: a save of another
 * process fails meanwhile, with an error that names the process. A program that trains for long takes the root at its
 * start, and so learns at once that another one has it. Sessions of this process may still save there, one at a time.
 * Loading needs no lock. */

typedef struct weir_checkpoint_lock weir_checkpoint_lock;

/* Keeps the root for this process; makes the folder. A process of a later generation (weir_generation()) waits up to
 * WEIR_LIVENESS for one of the generation before it; others do not wait. NULL and weir_error(): E_IO, another process
 * has it, or nothing can be written there. Any thread. */
weir_checkpoint_lock *weir_checkpoint_lock_take(const char *root);

/* Gives it up, once for each take; it ends with the process in any case. May be NULL. Any thread. */
void weir_checkpoint_lock_release(weir_checkpoint_lock *lock);

WEIR_C_END
#endif
