/* transport/net/share.c: see the header. */
#include "transport/net/share.h"

#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"
#include "regst/device.h"

#define PAGE_BYTES 4096

#define RING_COUNT_MAX (1u << 20)
#define RING_CAPACITY_MAX (UINT64_C(1) << 32)

static uint64_t align_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Where the tables lie in a segment that begins at `base`; returns where they end. */
static uint64_t tables_place(struct share *share, char *base, const weir_plan *plan, uint32_t ring_count)
{
    uint64_t offset = SEGMENT_HEAD_BYTES;
    share->ring_count = ring_count;
    share->arena_offset = (uint64_t *)(base + offset);
    offset = align_up(offset + plan->spaces_count * sizeof(uint64_t), APART_BYTES);
    share->ring_of = (uint32_t *)(base + offset);
    offset = align_up(offset + plan->actors_count * sizeof(uint32_t), APART_BYTES);
    share->rings = (struct share_ring *)(base + offset);
    return align_up(offset + ring_count * sizeof(struct share_ring), APART_BYTES);
}

/* The number of rings stands behind the cookie. */
static uint32_t *ring_count_place(const struct share *share)
{
    return (uint32_t *)(share->segment.base + 2 * sizeof(uint64_t));
}

static uint64_t segment_bytes(const weir_plan *plan, const bool *here, const uint64_t *capacities, uint32_t ring_count)
{
    struct share measure;
    uint64_t bytes = tables_place(&measure, NULL, plan, ring_count);
    for (uint32_t i = 0; i < ring_count; i++)
        bytes = align_up(bytes + mailbox_ring_bytes(capacities[i]), APART_BYTES);
    for (uint32_t i = 0; i < plan->spaces_count; i++)
        if (here[i])
            bytes = align_up(bytes, PAGE_BYTES) + align_up(plan->spaces[i].bytes + 1, PAGE_BYTES);
    return align_up(bytes, PAGE_BYTES);
}

weir_status share_create(struct share *share, const weir_plan *plan, const bool *here, const uint64_t *capacities,
                         uint32_t ring_count, const uint32_t *ring_of)
{
    *share = (struct share){.segment.fd = -1};
    weir_status status = segment_create(&share->segment, segment_bytes(plan, here, capacities, ring_count));
    if (status)
        return status;
    uint64_t offset = tables_place(share, share->segment.base, plan, ring_count);
    *ring_count_place(share) = ring_count;
    memcpy(share->ring_of, ring_of, plan->actors_count * sizeof(*ring_of));
    for (uint32_t i = 0; i < ring_count; i++) {
        share->rings[i] = (struct share_ring){offset, capacities[i]};
        offset = align_up(offset + mailbox_ring_bytes(capacities[i]), APART_BYTES);
    }
    for (uint32_t i = 0; i < plan->spaces_count; i++) {
        if (!here[i])
            continue;
        share->arena_offset[i] = align_up(offset, PAGE_BYTES);
        offset = share->arena_offset[i] + align_up(plan->spaces[i].bytes + 1, PAGE_BYTES);
    }
    return WEIR_OK;
}

/* ---- another rank's ---- */

static bool part_fits(const struct share *share, uint64_t offset, uint64_t bytes, uint64_t unit)
{
    return offset % unit == 0 && offset <= share->segment.bytes && bytes <= share->segment.bytes - offset;
}

/* Everything that will be used is inside the segment, and all that the rank owns is there, but for what the host does
 * not reach, which nobody else reads. */
static bool share_sound(const struct share *share, const weir_plan *plan, uint32_t rank)
{
    for (uint32_t i = 0; i < share->ring_count; i++) {
        const struct share_ring *ring = &share->rings[i];
        if (ring->capacity > RING_CAPACITY_MAX ||
            !part_fits(share, ring->offset, mailbox_ring_bytes(ring->capacity), APART_BYTES))
            return false;
    }
    for (uint32_t i = 0; i < plan->spaces_count; i++)
        if (plan->spaces[i].rank == rank && device_host(plan->spaces[i].kind) &&
            (!share->arena_offset[i] || !part_fits(share, share->arena_offset[i], plan->spaces[i].bytes, PAGE_BYTES)))
            return false;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (plan_rank_of(plan, a) == rank && share->ring_of[a] >= share->ring_count)
            return false;
    return true;
}

static bool tables_take(struct share *share, const weir_plan *plan)
{
    uint32_t count = *ring_count_place(share);
    struct share measure;
    uint64_t bytes = count <= RING_COUNT_MAX ? tables_place(&measure, NULL, plan, count) : UINT64_MAX;
    if (bytes > share->segment.bytes)
        return false;
    share->tables = malloc(bytes);
    if (!share->tables)
        return false;
    memcpy(share->tables, share->segment.base, bytes);
    tables_place(share, share->tables, plan, count);
    return true;
}

static bool senders_open(struct share *share)
{
    share->senders = aligned_alloc(APART_BYTES, (share->ring_count + (size_t)1) * sizeof(*share->senders));
    for (uint32_t i = 0; share->senders && i < share->ring_count; i++)
        mailbox_share(&share->senders[i], share_ring(share, i), share->rings[i].capacity, spin_fixed(0));
    return share->senders != NULL;
}

weir_status share_map(struct share *share, const weir_plan *plan, uint32_t rank, uint32_t pid, int fd, uint64_t bytes,
                      uint64_t cookie)
{
    *share = (struct share){.segment.fd = -1};
    weir_status status = segment_map(&share->segment, pid, fd, bytes, cookie);
    if (status)
        return status;
    if (tables_take(share, plan) && share_sound(share, plan, rank) && senders_open(share))
        return WEIR_OK;
    share_close(share);
    return error_set(WEIR_E_UNSUPPORTED, "rank %u's shared memory is not laid out as this plan asks", rank);
}

void share_close(struct share *share)
{
    free(share->senders);
    free(share->tables);
    segment_close(&share->segment);
    *share = (struct share){.segment.fd = -1};
}

char *share_arena(const struct share *share, uint32_t space)
{
    return share->segment.base && share->arena_offset[space] ? share->segment.base + share->arena_offset[space] : NULL;
}

void *share_ring(const struct share *share, uint32_t ring)
{
    return share->segment.base + share->rings[ring].offset;
}
