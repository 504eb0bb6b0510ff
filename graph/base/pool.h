/* graph/base/pool.h: memory that lives as long as one graph or one compilation and is freed at once.
 *
 * Everything handed out is zeroed and aligned to 16 bytes. One owner thread. An allocation that fails returns NULL
 * and sets `failed`, which sticks, so that a pass may check once at its end.
 */
#ifndef GRAPH_BASE_POOL_H
#define GRAPH_BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pool_block pool_block;
typedef struct pool {
    pool_block *head; /* owned */
    bool failed;
} pool;

void *pool_alloc(pool *p, size_t bytes);
void *pool_copy(pool *p, const void *from, size_t bytes);
char *pool_text(pool *p, const char *format, ...) __attribute__((format(printf, 2, 3), nonnull(2)));
void pool_free(pool *p);

#define POOL_NEW(p, type, count) ((type *)pool_alloc((p), sizeof(type) * (size_t)(count)))

/* An array that grows inside a pool; the old copy stays until the pool goes (at most as much again). `list` is a
 * struct with members `item` and `count`, `room`. Evaluates to a pointer to the new, zeroed item, or NULL. */
#define POOL_LIST(type)      \
    struct {                 \
        type *item;          \
        int count, room;     \
    }
#define POOL_PUSH(p, list)                                                                                       \
    ((list)->count < (list)->room || pool_grow((p), (void **)&(list)->item, &(list)->room, sizeof *(list)->item) \
         ? &(list)->item[(list)->count++]                                                                        \
         : NULL)
bool pool_grow(pool *p, void **items, int *room, size_t item_bytes);
/* Room for so many items from the start, where it is known how many there will be: then nothing is copied. The list is
 * empty. */
#define POOL_ROOM(p, list, count) pool_room((p), (void **)&(list)->item, &(list)->room, (count), sizeof *(list)->item)
bool pool_room(pool *p, void **items, int *room, int64_t count, size_t item_bytes);

#endif
