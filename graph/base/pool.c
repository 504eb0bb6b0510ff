/* graph/base/pool.c: a chain of blocks, each at least 64 KiB; large requests get a block of their own. Nothing is ever
 * given back one by one: graphs and compilations are short-lived and bounded by what the user wrote.
 */
#include "graph/base/pool.h"
#include "graph/base/locale.h"

#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pool_block {
    pool_block *next;
    size_t used, bytes;
    _Alignas(16) unsigned char data[];
};

#ifndef POOL_BLOCK_BYTES /* tests make it small, so that memory can run out everywhere */
#define POOL_BLOCK_BYTES (1 << 16)
#endif

void *pool_alloc(pool *p, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) {
        p->failed = true;
        return NULL;
    }
    bytes = (bytes + 15) & ~(size_t)15;
    pool_block *block = p->head;
    if (!block || block->bytes - block->used < bytes) {
        size_t room = bytes > POOL_BLOCK_BYTES ? bytes : POOL_BLOCK_BYTES;
        block = calloc(1, sizeof *block + room);
        if (!block) {
            p->failed = true;
            return NULL;
        }
        block->bytes = room;
        block->next = p->head;
        p->head = block;
    }
    void *result = block->data + block->used;
    block->used += bytes;
    return result;
}

void *pool_copy(pool *p, const void *from, size_t bytes)
{
    void *to = pool_alloc(p, bytes);
    if (to && bytes)
        memcpy(to, from, bytes);
    return to;
}

char *pool_text(pool *p, const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int length = text_vprint(NULL, 0, format, list);
    char *text = pool_alloc(p, (size_t)length + 1);
    if (text)
        text_vprint(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(list);
    return text;
}

bool pool_grow(pool *p, void **items, int *room, size_t item_bytes)
{
    int more = *room ? *room * 2 : 8;
    void *grown = pool_alloc(p, (size_t)more * item_bytes);
    if (!grown)
        return false;
    if (*room)
        memcpy(grown, *items, (size_t)*room * item_bytes);
    *items = grown;
    *room = more;
    return true;
}

bool pool_room(pool *p, void **items, int *room, int64_t count, size_t item_bytes)
{
    if (count > INT_MAX) {
        p->failed = true;
        return false;
    }
    *items = pool_alloc(p, (size_t)count * item_bytes);
    *room = *items ? (int)count : 0;
    return *items;
}

void pool_free(pool *p)
{
    for (pool_block *block = p->head, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    p->head = NULL;
}
