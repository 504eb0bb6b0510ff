/* apps/weir/quantize.h: a model as a GGUF file whose matrices are quantised.
 *
 *     quantize_open         the model's tensors and metadata: of a GGUF file (quantize_gguf.c), which are those of the new file, or of a
 *          |                Hugging Face folder (quantize_folder.c, quantize_tokens.c), renamed as llama.cpp's converter does
 *     quantize_write        one slice of rows after the other: read as f32, put in the new order, quantised, written
 *          |
 *     quantize_close
 *
 * Which type a tensor gets:
 *
 *     a matrix with rows of whole blocks of 32        the format, but Q8_0 for the table of tokens and the head
 *     a matrix with other rows                        F32, F16 or BF16, as it is stored
 *     everything else: norms, biases, positions       F32
 *     whole numbers                                   as they are stored
 *
 * A tensor that has its type already is copied bit by bit. A slice has at most QUANTIZE_SLICE elements, or one row of the first
 * dimension, or a head whose rows change places; so memory does not grow with the model. Functions that fail leave tensors_error()
 * and return false. One thread.
 */
#ifndef APPS_WEIR_QUANTIZE_H
#define APPS_WEIR_QUANTIZE_H

#include "actors/keep/format/gguf_write.h"
#include "apps/common/model/lm.h"
#include "apps/common/tensors.h"
#include "graph/base/pool.h"

enum { QUANTIZE_SLICE = 1 << 20 };

/* A tensor of the new file. */
struct quantize_tensor {
    const char *name;                   /* in `pool`, or the source's */
    const weir_checkpoint_tensor *from; /* NULL: `value` has it */
    const float *value;                 /* in `pool` */
    const struct gguf_type *type;
    weir_shape shape;
    int head;                           /* rows of a head, whose halves are interleaved; 0: rows stay where they are */
    bool turned;                        /* the source has columns where the new file has rows */
};

struct quantize {
    const char *from;           /* borrowed: the GGUF file or the folder */
    weir_format format;
    weir_checkpoint *file;      /* owned */
    const struct tensors *held; /* borrowed: in place of the file's values, where they have the name; NULL: nothing is */
    lm_config config;           /* of a folder */
    struct pool pool;
    POOL_LIST(struct quantize_tensor) tensors;
    struct gguf_write to;
    int quantized;              /* tensors that are */
    bool no_tokens;             /* the folder has no tokenizer */
};

/* Whether `from` is something that can be opened; else a sentence. *folder: it is a Hugging Face folder. */
bool quantize_may_open(const char *from, bool *folder);

/* `from` stays as it is until quantize_close(), which is called after a failure, too. */
bool quantize_open(struct quantize *q, const char *from, weir_format format);
bool quantize_write(struct quantize *q, const char *path);
void quantize_close(struct quantize *q);

/* ---- the two kinds of sources ---- */

bool quantize_from_gguf(struct quantize *q);
bool quantize_from_folder(struct quantize *q);
bool quantize_tokens(struct quantize *q);

/* Adds a tensor of q->file under the name of the new file. Its type follows from the name and the shape. */
struct quantize_tensor *quantize_add(struct quantize *q, const char *name, const weir_shape *shape, const weir_checkpoint_tensor *from);

/* Adds general.file_type and general.quantization_version. */
void quantize_put_version(struct quantize *q);
#define QUANTIZE_FILE_TYPE "general.file_type"
#define QUANTIZE_VERSION "general.quantization_version"

#endif
