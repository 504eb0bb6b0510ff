/* tests/support/fake_board.c: see the header. */
#define _GNU_SOURCE
#include "tests/support/fake_board.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define BOARD_BYTES (UINT64_C(1) << 30) /* of addresses: memory is taken when it is written */
#define REGION_ALIGN UINT64_C(64)

static uint64_t first_region(void)
{
    return (sizeof(struct fake_board) + REGION_ALIGN - 1) / REGION_ALIGN * REGION_ALIGN;
}

struct fake_board *fake_board_new(void)
{
    pthread_mutexattr_t shared;
    struct fake_board *board = mmap(NULL, BOARD_BYTES, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    cr_assert(board != MAP_FAILED);
    board->bytes = BOARD_BYTES;
    atomic_store_explicit(&board->top, first_region(), memory_order_relaxed);
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&board->lock, &shared);
    pthread_mutexattr_destroy(&shared);
    return board;
}

void fake_board_free(struct fake_board *board)
{
    pthread_mutex_destroy(&board->lock);
    munmap(board, BOARD_BYTES);
}

static void lock(struct fake_board *board)
{
    if (pthread_mutex_lock(&board->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&board->lock);
}

static bool same_group(const struct board_group *group, const struct device_group_id *id)
{
    return group->taken && group->id.session == id->session && group->id.number == id->number;
}

/* The group with the id, or one that is free. */
static struct board_group *find(struct fake_board *board, const struct device_group_id *id, uint32_t count)
{
    struct board_group *vacant = NULL;
    for (uint32_t g = 0; g < BOARD_GROUPS_MAX; g++) {
        struct board_group *group = &board->groups[g];
        if (same_group(group, id))
            return group;
        if (!vacant && !group->taken)
            vacant = group;
    }
    if (vacant) {
        memset(vacant, 0, sizeof *vacant);
        vacant->id = *id;
        vacant->count = count;
    }
    return vacant;
}

struct board_group *board_join(struct fake_board *board, const struct device_group_id *id, uint32_t place, uint32_t count,
                               const char **why)
{
    lock(board);
    struct board_group *group = find(board, id, count);
    *why = !group ? "there is no room for it" : group->count != count ? "its members do not agree how many they are" : NULL;
    if (group && !*why && group->place[place].taken)
        *why = "it has that member";
    if (!*why) {
        group->place[place].taken = true;
        group->taken++;
    }
    pthread_mutex_unlock(&board->lock);
    return *why ? NULL : group;
}

void board_leave(struct fake_board *board, struct board_group *group, uint32_t place)
{
    bool all_free = true;
    lock(board);
    group->place[place].taken = false;
    group->taken--;
    for (uint32_t g = 0; g < BOARD_GROUPS_MAX; g++)
        all_free = all_free && !board->groups[g].taken;
    if (all_free)
        atomic_store_explicit(&board->top, first_region(), memory_order_relaxed);
    pthread_mutex_unlock(&board->lock);
}

void *board_region(struct fake_board *board, struct board_place *place, uint64_t bytes)
{
    if (bytes > place->room) {
        uint64_t room = (2 * bytes + REGION_ALIGN - 1) / REGION_ALIGN * REGION_ALIGN;
        uint64_t at = atomic_fetch_add_explicit(&board->top, room, memory_order_relaxed);
        if (room > board->bytes || at > board->bytes - room)
            return NULL;
        place->at = at;
        place->room = room;
    }
    return (char *)board + place->at;
}

const void *board_given(const struct fake_board *board, const struct board_place *place, uint32_t i,
                        struct board_give *give)
{
    const struct board_give *list = (const void *)((const char *)board + place->at);
    const char *at = (const char *)(list + place->give_count);
    for (uint32_t before = 0; before < i; before++)
        at += list[before].bytes;
    *give = list[i];
    return at;
}
