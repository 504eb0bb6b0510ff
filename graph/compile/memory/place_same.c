/* graph/compile/memory/place_same.c: see the header. Few problems differ, so those that are kept are gone through one by one:
 * hashes tell them apart, and numbers decide. */
#include "graph/compile/memory/place_same.h"

#include <assert.h>
#include <string.h>

#define KEPT_BYTES_MAX (UINT64_C(1) << 28)

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

static uint64_t problem_hash(const place_problem *p)
{
    uint64_t hash = (uint64_t)p->count;
    for (int v = 0; v < p->count; v++)
        hash = mix(mix(hash, p->block[v].bytes), p->block[v].align);
    for (size_t w = 0; w < place_matrix_words(p->count); w++)
        hash = mix(hash, p->conflict[w]);
    return hash;
}

static bool is_same(const place_solved *s, const place_problem *p, uint64_t hash)
{
    if (s->hash != hash || s->count != p->count)
        return false;
    for (int v = 0; v < p->count; v++)
        if (s->block[v].bytes != p->block[v].bytes || s->block[v].align != p->block[v].align)
            return false;
    return !memcmp(s->conflict, p->conflict, place_matrix_words(p->count) * sizeof *p->conflict);
}

/* For the next like it; not when there are very many. */
static void keep(place_same *known, const place_problem *p, uint64_t hash)
{
    size_t blocks = sizeof *p->block * (size_t)p->count, words = place_matrix_words(p->count) * sizeof *p->conflict;
    if (known->bytes + blocks + words > KEPT_BYTES_MAX)
        return;
    known->bytes += blocks + words;
    place_block *block = pool_copy(&known->pool, p->block, blocks);
    uint64_t *conflict = pool_copy(&known->pool, p->conflict, words);
    place_solved *to = block && conflict ? POOL_PUSH(&known->pool, &known->solved) : NULL;
    if (to)
        *to = (place_solved){.hash = hash, .count = p->count, .block = block, .conflict = conflict,
                             .height = p->height};
}

bool place_same_as(place_same *known, place_problem *problem)
{
    assert(problem->conflict || !problem->count);
    uint64_t hash = problem_hash(problem);
    for (int i = 0; i < known->solved.count; i++) {
        const place_solved *s = &known->solved.item[i];
        if (!is_same(s, problem, hash))
            continue;
        for (int v = 0; v < problem->count; v++)
            problem->block[v].offset = s->block[v].offset;
        problem->height = s->height;
        return true;
    }
    if (!place(problem))
        return false;
    keep(known, problem, hash);
    return !known->pool.failed;
}

void place_same_free(place_same *known)
{
    pool_free(&known->pool);
    *known = (place_same){.bytes = 0};
}
