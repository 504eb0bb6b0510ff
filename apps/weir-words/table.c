/* apps/weir-words/table.c: see the header. */
#include "apps/weir-words/table.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 65536
#define SLOTS_FIRST 4096 /* a power of two */

bool table_open(table *t, size_t most, bool fixed)
{
    size_t wide = UINT32_MAX * (size_t)8; /* that a slot can tell */
    *t = (table){.most = most < wide ? most : wide, .slots = SLOTS_FIRST};
    t->room = fixed || most < ROOM_FIRST ? t->most : ROOM_FIRST;
    while (fixed && t->slots * table_entry_bytes(1) < t->most)
        t->slots *= 2;
    t->entries = malloc(t->room + 1);
    t->slot = calloc(t->slots, sizeof *t->slot);
    return t->entries && t->slot;
}

void table_close(table *t)
{
    free(t->entries);
    free(t->slot);
    *t = (table){0};
}

void table_clear(table *t)
{
    memset(t->slot, 0, t->slots * sizeof *t->slot);
    t->used = t->words = 0;
}

static table_entry *entry_at(const table *t, uint32_t where)
{
    return (table_entry *)(t->entries + ((size_t)where - 1) * 8);
}

static bool slots_double(table *t)
{
    table_slot *slot = calloc(t->slots * 2, sizeof *slot);
    if (!slot)
        return false;
    size_t mask = t->slots * 2 - 1;
    for (size_t i = 0; i < t->slots; i++) {
        size_t at = t->slot[i].hash & mask;
        if (!t->slot[i].where)
            continue;
        while (slot[at].where)
            at = (at + 1) & mask;
        slot[at] = t->slot[i];
    }
    free(t->slot);
    t->slot = slot;
    t->slots *= 2;
    return true;
}

static bool make_room(table *t, size_t bytes)
{
    if (bytes > t->most - t->used)
        return false;
    if (t->words * 2 >= t->slots && !slots_double(t))
        return false;
    if (bytes <= t->room - t->used)
        return true;
    size_t room = t->room * 2 < t->most ? t->room * 2 : t->most;
    char *entries = realloc(t->entries, room);
    if (!entries)
        return false;
    t->entries = entries;
    t->room = room;
    return true;
}

static bool entry_new(table *t, const char *word, uint32_t length, uint32_t hash, uint64_t count)
{
    size_t bytes = table_entry_bytes(length);
    if (!make_room(t, bytes))
        return false;
    size_t at = hash & (t->slots - 1);
    while (t->slot[at].where)
        at = (at + 1) & (t->slots - 1);
    t->slot[at] = (table_slot){hash, (uint32_t)(t->used / 8 + 1)};
    table_entry *entry = entry_at(t, t->slot[at].where);
    *entry = (table_entry){.count = count, .hash = hash, .length = (uint8_t)length};
    memcpy(entry->word, word, length);
    t->used += bytes;
    t->words++;
    return true;
}

bool table_add(table *t, const char *word, uint32_t length, uint32_t hash, uint64_t count)
{
    for (size_t at = hash & (t->slots - 1); t->slot[at].where; at = (at + 1) & (t->slots - 1)) {
        if (t->slot[at].hash != hash)
            continue;
        table_entry *entry = entry_at(t, t->slot[at].where);
        if (entry->length == length && !memcmp(entry->word, word, length)) {
            entry->count += count;
            return true;
        }
    }
    return entry_new(t, word, length, hash, count);
}

bool table_merge(table *t, const char *entries, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const table_entry *entry = (const table_entry *)(entries + at);
        if (bytes - at < table_entry_bytes(0) || bytes - at < table_entry_bytes(entry->length) ||
            !table_add(t, entry->word, entry->length, entry->hash, entry->count))
            return false;
        at += table_entry_bytes(entry->length);
    }
    return true;
}

static int compare_entries(const void *a, const void *b)
{
    const table_entry *x = *(const table_entry *const *)a, *y = *(const table_entry *const *)b;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    int order = memcmp(x->word, y->word, x->length < y->length ? x->length : y->length);
    return order ? order : x->length - y->length;
}

const table_entry **table_sorted(const table *t)
{
    const table_entry **list = t->words ? malloc(t->words * sizeof *list) : NULL;
    for (size_t at = 0, i = 0; list && at < t->used; i++) {
        list[i] = (const table_entry *)(t->entries + at);
        at += table_entry_bytes(list[i]->length);
    }
    if (list)
        qsort(list, t->words, sizeof *list, compare_entries);
    return list;
}
