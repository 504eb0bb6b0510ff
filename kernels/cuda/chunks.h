/* kernels/cuda/chunks.h: into how many runs a sum over many terms is cut on a GPU. The same numbers tell the kernels what to
 * do and the workspace rules, which are the CPU's code, how much room they need. Pure functions; any thread.
 */
#ifndef KERNELS_CUDA_CHUNKS_H
#define KERNELS_CUDA_CHUNKS_H

#include <stddef.h>
#include <stdint.h>

enum { CHUNKS_MAX = 512, CHUNK_ROWS = 16, SUM_THREADS = 256, SUM_EACH = 16 };

/* Rows of norms and softmax, which chains of ops have as members: a thread has ROW_NEAR neighbours at a time
 * (kernels/cuda/near.h), and rows of up to ROW_HELD elements lie in a block's registers. */
enum { ROW_THREADS_MAX = 512, ROW_NEAR = 8, ROW_HELD = ROW_THREADS_MAX * ROW_NEAR };

static inline int row_threads(int64_t count)
{
    const int64_t warps = (count + 32 * ROW_NEAR - 1) / (32 * ROW_NEAR);
    return warps < 1 ? 32 : warps < ROW_THREADS_MAX / 32 ? (int)warps * 32 : (int)ROW_THREADS_MAX;
}

/* Rows that a block does one after the other where no sum says how many: a few, so that it can load the next one early, as
 * long as there are many blocks. */
static inline int64_t rows_of_block(int64_t rows)
{
    const int64_t each = rows / 2048;
    return each < 1 ? 1 : each < 8 ? each : 8;
}

/* Threads for a row of `count` elements that they take in turn: a whole number of warps, up to `most`; in what order a row
 * is summed follows. */
static inline int threads_for(int64_t count, int most)
{
    int threads = 32;
    while (threads < most && threads * 4 < count)
        threads += 32;
    return threads;
}

/* Rows of a chunk, and chunks; none for no rows. */
static inline int64_t chunk_rows(int64_t rows)
{
    const int64_t least = (rows + CHUNKS_MAX - 1) / CHUNKS_MAX;
    return least > CHUNK_ROWS ? least : (int64_t)CHUNK_ROWS;
}

static inline int64_t chunks_of(int64_t rows)
{
    return (rows + chunk_rows(rows) - 1) / chunk_rows(rows);
}

/* Bytes for sums over the rows of each chunk, of `columns` columns, as double. */
static inline size_t chunks_bytes(int64_t rows, int64_t columns)
{
    return (size_t)(chunks_of(rows) * columns) * sizeof(double);
}

static inline int64_t sum_blocks(int64_t count)
{
    const int64_t blocks = (count + SUM_THREADS * SUM_EACH - 1) / (SUM_THREADS * SUM_EACH);
    return blocks > CHUNKS_MAX ? (int64_t)CHUNKS_MAX : blocks;
}

/* ---- folds: `terms` to each of `count` results ---- */

enum { FOLD_TERMS = 8192 }; /* so many of a result's a block takes by itself, where there are few results */

/* Chunks that the terms of each result are cut into, so that many blocks have work. */
static inline int64_t fold_chunks(int64_t count, int64_t terms)
{
    const int64_t chunks = (terms + FOLD_TERMS - 1) / FOLD_TERMS, most = count ? CHUNKS_MAX / count : 0;
    return chunks < most ? chunks > 1 ? chunks : 1 : most > 1 ? most : 1;
}

static inline int64_t fold_chunk(int64_t count, int64_t terms)
{
    const int64_t chunks = fold_chunks(count, terms);
    return (terms + chunks - 1) / chunks;
}

/* Bytes for what the chunks make; none where there is one. */
static inline size_t fold_bytes(int64_t count, int64_t all)
{
    const int64_t chunks = count ? fold_chunks(count, all / count) : 1;
    return chunks > 1 ? (size_t)(chunks * count) * sizeof(double) : 0;
}

#endif
