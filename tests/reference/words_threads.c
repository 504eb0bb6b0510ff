/* tests/reference/words_threads.c: what weir-words does, written by hand for threads that share nothing: each takes every
 * n-th block of the file, folds it, cuts it into words and counts these in a table of its own, in one pass; at the end
 * the tables are merged. Nothing is handed over while it runs, and nothing is bounded but the blocks. For
 * tests/reference/words_beside.py.
 *
 *     words_threads FILE [THREADS [BLOCK]]          the ten most frequent words; figures on stderr
 */
#define _GNU_SOURCE
#include "apps/weir-words/table.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 32 };

typedef struct part {
    pthread_t thread;
    int file, number, threads, block;
    uint64_t bytes, words;
    table table;
} part;

static unsigned char fold[256];

static unsigned char folded(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return (unsigned char)(c + 'a' - 'A');
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c >= 128 ? c : 0;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Words that begin between `from` and `end`. */
static void count_block(part *p, unsigned char *text, int64_t from, int64_t end, int64_t there)
{
    for (int64_t i = from; i < end;) {
        int64_t first = i;
        uint32_t hash = TABLE_HASH;
        unsigned char c;
        for (; i < there && (c = fold[text[i]]); i++) {
            text[i] = c;
            hash = i - first < TABLE_WORD_MAX ? table_hash(hash, c) : hash;
        }
        int64_t length = i - first < TABLE_WORD_MAX ? i - first : TABLE_WORD_MAX;
        if (length && !table_add(&p->table, (char *)text + first, (uint32_t)length, hash, 1))
            abort();
        p->words += length > 0;
        while (i < there && !fold[text[i]])
            i++;
    }
}

static void *count(void *ctx)
{
    part *p = ctx;
    unsigned char *text = malloc((size_t)p->block + TABLE_WORD_MAX + 1);
    for (uint64_t start = (uint64_t)p->number * (uint64_t)p->block; start < p->bytes;
         start += (uint64_t)p->block * (uint64_t)p->threads) {
        int64_t before = start > 0;
        int64_t there = pread(p->file, text, (size_t)(before + p->block + TABLE_WORD_MAX), (off_t)(start - (uint64_t)before));
        int64_t end = before + p->block < there ? before + p->block : there, from = 0;
        if (there < 0)
            abort();
        if (before && fold[text[0]])
            while (from < there && fold[text[from]])
                from++;
        count_block(p, text, from, end, there);
    }
    free(text);
    return NULL;
}

int main(int argc, char **argv)
{
    part part_of[THREADS_MAX] = {0};
    int threads = argc > 2 ? atoi(argv[2]) : 2, block = argc > 3 ? atoi(argv[3]) : 256 << 10;
    int file = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    struct stat info;
    table all;
    uint64_t words = 0;
    if (file < 0 || fstat(file, &info) || threads < 1 || threads > THREADS_MAX || block < 1)
        return 2;
    double start = now();
    for (int i = 0; i < 256; i++)
        fold[i] = folded((unsigned char)i);
    for (int t = 0; t < threads; t++) {
        part_of[t] = (part){.file = file, .number = t, .threads = threads, .block = block, .bytes = (uint64_t)info.st_size};
        if (!table_open(&part_of[t].table, (size_t)1 << 32, false) ||
            pthread_create(&part_of[t].thread, NULL, count, &part_of[t]))
            return 1;
    }
    if (!table_open(&all, (size_t)1 << 32, false))
        return 1;
    for (int t = 0; t < threads; t++) {
        pthread_join(part_of[t].thread, NULL);
        words += part_of[t].words;
        if (!table_merge(&all, part_of[t].table.entries, part_of[t].table.used))
            return 1;
        table_close(&part_of[t].table);
    }
    double seconds = now() - start;
    fprintf(stderr, "words_threads: %" PRIu64 " words, %zu of them different, in %" PRIu64 " bytes; %.3f s, %.1f MB/s\n",
            words, all.words, (uint64_t)info.st_size, seconds, (double)info.st_size / seconds / 1e6);
    const table_entry **list = table_sorted(&all);
    for (size_t i = 0; i < all.words && i < 10; i++)
        printf("%9" PRIu64 " %.*s\n", list[i]->count, list[i]->length, list[i]->word);
    free(list);
    table_close(&all);
    return 0;
}
