/* apps/weir-words/table.h: words and how often each came.
 *
 * Entries lie one behind the other in one piece of memory, in the order in which words first came, and say themselves
 * how long they are. So the entries of one table, which are bytes without a pointer, are the value that one stage hands
 * to another, and merging is a walk over them.
 *
 *     entries: | count hash length "the" | count hash length "word" | ...
 *                  ^                           ^
 *     slots:   [ hash, where ]  ...  [ hash, where ]        open addressing, a power of two of them
 *
 * A table belongs to one thread at a time.
 */
#ifndef APPS_WEIR_WORDS_TABLE_H
#define APPS_WEIR_WORDS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TABLE_WORD_MAX 255 /* bytes of a word */

typedef struct table_entry {
    uint64_t count;
    uint32_t hash;
    uint8_t length;
    char word[]; /* without a zero behind it; the next entry is at a multiple of 8 */
} table_entry;

typedef struct table_slot {
    uint32_t hash;
    uint32_t where; /* 1 + the entry's place, in 8 bytes; 0: there is none */
} table_slot;

typedef struct table {
    char *entries;   /* owned */
    size_t used, room, most; /* bytes: used, there, and that there may be */
    table_slot *slot; /* owned */
    size_t slots, words;
} table;

/* For at most `most` bytes of entries. With `fixed` all of them are there from the start, else the table grows. False:
 * there is no memory; table_close() may be called. */
bool table_open(table *t, size_t most, bool fixed);
void table_close(table *t);

/* Adds to a word's count. False: there is no room, or no memory. `hash` is table_hash() of the word. */
bool table_add(table *t, const char *word, uint32_t length, uint32_t hash, uint64_t count);

/* Adds all entries that another table had, `bytes` of them. False: no room, or they are not entries. */
bool table_merge(table *t, const char *entries, size_t bytes);

/* Forgets all words. */
void table_clear(table *t);

static inline size_t table_entry_bytes(uint32_t length)
{
    return (offsetof(table_entry, word) + length + 7) / 8 * 8;
}

/* One byte more (FNV-1a, 32 bits), and what a hash begins with. */
#define TABLE_HASH 2166136261u
static inline uint32_t table_hash(uint32_t hash, unsigned char byte)
{
    return (hash ^ byte) * 16777619u;
}

/* All entries, owned by the caller (free()): the most frequent first, then by word. NULL: no memory, or no words. */
const table_entry **table_sorted(const table *t);

#endif
