/* weir/data.h: training data from files.
 *
 *     weir_data *data = weir_data_tokens("train_*.bin", .seq = 1024, .vocab = 50257, .seed = 1);
 *     weir_tensor *tokens = weir_data_input(g, data, .rows = 8, .name = "tokens", .sbp = {WEIR_S(0)});
 *     weir_tensor *labels = weir_data_input(g, data, .rows = 8, .name = "labels", .sbp = {WEIR_S(0)}, .labels = true);
 *
 * weir_data_close() comes after the last session that reads the data.
 *
 * Files hold *samples*: windows of .seq tokens, or the rows of arrays. Together they are one long list, file after file. An
 * epoch has each sample once. Its order is a random permutation, which follows from .seed and the number of the epoch, or the
 * order of the files (.sequential). The value of a step is a function of the step alone: a checkpoint needs no position, each
 * process computes the same order, and the order takes no memory, however many samples there are.
 *
 *     step 0:  samples 0 .. rows - 1 of epoch 0        step 1:  the next rows, and so on into epoch 1, 2, ...
 *
 * Files stay open, and bytes are read when they are needed: a file may be larger than the memory. A process reads the rows of
 * its own devices only, if the layout of the input splits them.
 *
 * Files are not trusted: with any content, a call returns data or an error that names the file. A file that is changed or cut
 * while it is used gives other values or an error.
 */
#ifndef WEIR_DATA_H
#define WEIR_DATA_H

#include <weir/graph.h>

WEIR_C_BEGIN

/* Files that are open. It does not change, so any thread may read it. */
typedef struct weir_data weir_data;

typedef struct weir_data_opts {
    size_t size;
    weir_src src;
    const char *const *files; /* more paths and patterns, read after the first argument, .file_count of them [none] */
    int file_count;
    int64_t seq;              /* tokens: the number in a window; needed */
    int64_t vocab;            /* tokens: ids are 0 to vocab - 1; another id fails the run [2^31: all that an i32 holds] */
    uint64_t seed;            /* of the order [0] */
    bool sequential;          /* the order of the files, the same in each epoch [a random permutation for each epoch] */
    double from, to;          /* the range of the samples to use: .to = 0.9 to train, .from = 0.9 to validate [0, 1] */
    int64_t samples;          /* uses only so many samples, spread evenly over the range [all] */
} weir_data_opts;

/* Opens files of token ids. `files` is a path or a pattern of the shell ("data/train_*.bin"), whose files are read in the order
 * of their names' bytes; it may be NULL if .files has some. The content of each file says what it is:
 *
 *     llm.c's       256 i32: 20240520, 1, the number of tokens; then u16 tokens. Or 20240801, 7, and u32 tokens
 *     NumPy's .npy  of one dimension: u8, i8, u16, i16, u32, i32, i64 or u64
 *     else          u16 tokens from the first byte, as nanoGPT's train.bin
 *
 * A window does not cross files. Window w of a file has its tokens w seq to w seq + seq - 1, and the labels are those one
 * further. So a file of n tokens has (n - 1) / seq windows. A rest that fills no window is not used. Owned by the caller, and
 * borrowed by inputs: close it after the last session of a plan that was made with it. NULL and weir_error(): E_IO, a file
 * cannot be read, is damaged, or no file matches; E_ARGUMENT, wrong options. Any thread. */
#define weir_data_tokens(files, ...) weir_data_tokens_at(files, WEIR_OPTS(weir_data_opts, __VA_ARGS__))
weir_data *weir_data_tokens_at(const char *files, const weir_data_opts *opts);

/* The same for NumPy's .npy files in C order: the first dimension counts the samples, the others are the shape of one, which has
 * at most 5 dimensions and is the same in all files. The types and the dtype of the values:
 *
 *     f4 -> f32, f2 -> f16, i8 -> i64, i4 -> i32, i1 -> i8, u1 and b1 -> u8          the same bits
 *     f8 -> f32, rounded;   u2, i2 -> i32;   u4 -> i64;   u8 -> i64                  f8 and u8 fail if a value does not fit
 *
 * Two files of as many samples, opened with the same seed and options, have the same order: images and their labels. */
#define weir_data_npy(files, ...) weir_data_npy_at(files, WEIR_OPTS(weir_data_opts, __VA_ARGS__))
weir_data *weir_data_npy_at(const char *files, const weir_data_opts *opts);

void weir_data_close(weir_data *data);

typedef struct weir_data_info {
    int64_t samples;   /* of an epoch */
    int64_t elements;  /* of all files: tokens, or rows times the elements of one */
    int files;
    weir_type type;    /* of one sample; tokens: i32 [seq] */
    uint64_t hash;     /* of sizes, and of the first bytes of each file: other files have another */
} weir_data_info;

/* Returns what there is. Owned by `data`; for NULL all is 0. */
const weir_data_info *weir_data_get_info(const weir_data *data);

typedef struct weir_data_input_opts {
    size_t size;
    weir_src src;
    int64_t rows;                /* samples of a value, its first dimension; needed */
    const char *name;
    weir_sbp sbp[WEIR_AXES_MAX]; /* layout over its mesh; AUTO: deduced. If it splits a dimension, each device reads its own shard
                                    (.split of weir_input) */
    int micro_batches;           /* the value is one of so many of a step, as many as weir_compile() is given [0: one a step] */
    bool labels;                 /* tokens: those one further, i32 [rows, seq] as well */
    const char *queue;           /* see weir_call_opts */
} weir_data_input_opts;

/* Makes an input whose values are the next .rows samples: [rows, shape of a sample]. A step of M micro-batches reads rows M
 * samples. Several inputs may read one `data`; those with the same .rows and .micro_batches get the same samples. A checkpoint
 * keeps the seed and the hash; a session that loads it and reads other files, or in another order, remarks it. */
#define weir_data_input(graph, data, ...) weir_data_input_at(graph, data, WEIR_OPTS(weir_data_input_opts, __VA_ARGS__))
weir_tensor *weir_data_input_at(weir_graph *graph, weir_data *data, const weir_data_input_opts *opts);

/* Reads samples first, first + 1, ... into `dst`, of which the first dimension counts samples and the others are those of a
 * sample: for sources of your own, and for plans that were loaded from a file (.bindings of weir_session_open). Sample i is
 * number i modulo .samples of epoch i / .samples. `dst` may be a shard of a value: then dst->global has its shape, and sample
 * `first` is the value's first. E_IO: a file cannot be read. E_ARGUMENT: a view that does not fit, or an id that is not below
 * .vocab. Any thread. */
weir_status weir_data_read(const weir_data *data, int64_t first, bool labels, const weir_view *dst);

WEIR_C_END
#endif
