/* graph/compile/memory/parts.c: see parts.h.
 *
 * When a life begins and ends is known pair by pair alone. To choose bundles it is taken to be from the kernel that first
 * writes a part to the last that reads it, in the order in which the plan lists kernels. That is a guess, good or bad:
 * whether two bundles may share bytes is then asked of lives.h, about all that is in them.
 *
 * Kernels are counted in as many steps as there may be bundles, or fewer, until the bundles are few enough. The parts of a
 * bundle begin within one step, and end within one. Half of the places are for the largest parts, each of which is alone.
 */
#include "graph/compile/memory/parts.h"

#include <stdlib.h>
#include <string.h>

enum { MEMBERS_MAX = 256 };

int parts_max = 4096, parts_max_hasty = 2048;

/* A part, and about when it is needed. */
typedef struct member {
    block *part;
    int number;                    /* in the order of the caller */
    bool temporary;
    int program, from, until;      /* kernels, counted among those that begin or end a part */
    int step_from, step_until;     /* the same in steps */
} member;

typedef struct bundle {
    int first, count;              /* members */
    int first_block, block_count;  /* their blocks, with guests */
    uint64_t bytes;
    int64_t low, high;             /* kernels that its temporaries are needed from and until; none: low > high */
    lives_union temporaries, registers;
} bundle;

typedef struct bundling {
    parts *p;
    pool pool;
    member *member;                /* those of a bundle beside each other */
    bundle *bundle;
    int count;                     /* of bundles */
    int alone;                     /* so many of them, the first, are one part each, which was not bundled */
    const block **block;           /* all blocks; a part and its guests lie together, and those of a bundle */
    life_known *life;              /* of each: what was looked up */
} bundling;

/* ---- when parts are needed ---- */

/* Numbers the kernels that begin or end something; how many there are. */
static int number_kernels(const bundling *b, const uint32_t (*kernel)[2], int *number)
{
    int count = 0;
    for (int i = 0; i < b->p->count; i++)
        number[kernel[i][0]] = number[kernel[i][1]] = 1;
    for (uint32_t k = 0; k < b->p->of->plan->kernels_count; k++) {
        int known = number[k];
        number[k] = count;
        count += known;
    }
    return count;
}

/* The members, and how many kernels they know of; 0: no memory. */
static int list_members(bundling *b)
{
    const offsets *o = b->p->of;
    int *number = POOL_NEW(&b->pool, int, o->plan->kernels_count + 1);
    uint32_t(*kernel)[2] = pool_alloc(&b->pool, sizeof *kernel * ((size_t)b->p->count + 1));
    b->member = POOL_NEW(&b->pool, member, b->p->count + 1);
    if (!number || !kernel || !b->member)
        return 0;
    for (int i = 0; i < b->p->count; i++) {
        life of = windows_life(o, b->p->part[i]);
        lives_kernels(b->p->of->known, &of, &kernel[i][0], &kernel[i][1]);
    }
    int kernels = number_kernels(b, (const uint32_t(*)[2])kernel, number);
    for (int i = 0; i < b->p->count; i++) {
        block *part = b->p->part[i];
        int maker = part->reg < 0 ? part->group : o->c->phys.reg.item[part->reg].group;
        b->member[i] = (member){.part = part, .number = i, .temporary = part->reg < 0,
                                .program = o->c->phys.group.item[maker].program, .from = number[kernel[i][0]],
                                .until = number[kernel[i][1]]};
    }
    return kernels + 1;
}

/* ---- which parts lie together ---- */

static int largest_first(const void *a, const void *b)
{
    const member *x = a, *y = b;
    if (x->part->bytes != y->part->bytes)
        return x->part->bytes < y->part->bytes ? 1 : -1;
    return x->number - y->number;
}

static int compare(int a, int b)
{
    return a < b ? -1 : a > b;
}

static int bundle_order(const member *x, const member *y)
{
    int order = compare(x->program, y->program);
    order = order ? order : compare(x->temporary, y->temporary);
    order = order ? order : compare(x->step_from, y->step_from);
    return order ? order : compare(x->step_until, y->step_until);
}

static int member_order(const void *a, const void *b)
{
    const member *x = a, *y = b;
    int order = bundle_order(x, y);
    return order ? order : x->number - y->number;
}

/* Sorts the members from `alone` on by the bundles that so many steps make; how many bundles these are. */
static int sort_members(bundling *b, int alone, int kernels, int steps)
{
    int count = 0;
    for (int i = alone; i < b->p->count; i++) {
        b->member[i].step_from = (int)((int64_t)b->member[i].from * steps / kernels);
        b->member[i].step_until = (int)((int64_t)b->member[i].until * steps / kernels);
    }
    qsort(b->member + alone, (size_t)(b->p->count - alone), sizeof *b->member, member_order);
    for (int i = alone; i < b->p->count; i++)
        count += i == alone || bundle_order(&b->member[i - 1], &b->member[i]);
    return count;
}

static void enter_members(bundling *b, bundle *to, int alone)
{
    bundle *last = NULL;
    for (int i = 0; i < b->p->count; i++)
        if (!last || i <= alone || last->count == MEMBERS_MAX || bundle_order(&b->member[i - 1], &b->member[i])) {
            last = to + b->count++;
            *last = (bundle){.first = i, .count = 1};
        } else {
            last->count++;
        }
}

static bool find_bundles(bundling *b, int most)
{
    int kernels = list_members(b), count = b->p->count, alone = count <= most ? count : most / 2;
    bundle *list = b->bundle = POOL_NEW(&b->pool, bundle, count + 1);
    if (!kernels || !list)
        return false;
    if (alone < count)
        qsort(b->member, (size_t)count, sizeof *b->member, largest_first);
    int steps = kernels < most ? kernels : most;
    while (alone < count && sort_members(b, alone, kernels, steps) > most - alone && steps > 1)
        steps -= (steps + 3) / 4;
    enter_members(b, list, alone);
    b->alone = alone;
    return true;
}

/* ---- what may share bytes ---- */

static const block *next_within(const block *b, const block *part)
{
    return b == part ? part->guest : b->next;
}

static int count_within(const parts *p)
{
    int count = 0;
    for (int i = 0; i < p->count; i++)
        for (const block *b = p->part[i]; b; b = next_within(b, p->part[i]))
            count++;
    return count;
}

/* Looks all blocks up, those of a bundle beside each other. */
static bool look_all(bundling *b)
{
    const parts *p = b->p;
    int count = count_within(p);
    b->block = POOL_NEW(&b->pool, const block *, count + 1);
    b->life = POOL_NEW(&b->pool, life_known, count + 1);
    if (!b->block || !b->life)
        return false;
    count = 0;
    for (int i = 0; i < b->count; i++) {
        bundle *x = &b->bundle[i];
        x->first_block = count;
        for (int m = x->first; m < x->first + x->count; m++)
            for (const block *k = b->member[m].part; k; k = next_within(k, b->member[m].part)) {
                b->block[count] = k;
                b->life[count++] = lives_look(p->of->known, windows_life(p->of, k));
            }
        x->block_count = count - x->first_block;
    }
    return true;
}

static bool temporaries_meet(const block *one, const block *other)
{
    return one->group == other->group && one->from <= other->to && other->from <= one->to;
}

static bool in_conflict(const bundling *b, int x, int y)
{
    if (b->block[x]->reg < 0 && b->block[y]->reg < 0)
        return temporaries_meet(b->block[x], b->block[y]);
    return !lives_apart_known(b->p->of->known, &b->life[x], &b->life[y]);
}

static bool any_in_conflict(const bundling *b, int first, int end, int other, int other_end)
{
    for (int i = first; i < end; i++)
        for (int k = other; k < other_end; k++)
            if (in_conflict(b, i, k))
                return true;
    return false;
}

/* Whether temporaries of both are needed in one firing. */
static bool workspaces_meet(const bundling *b, const bundle *x, const bundle *y)
{
    if (x->low > y->high || y->low > x->high)
        return false;
    for (int i = x->first_block; i < x->first_block + x->block_count; i++)
        for (int k = y->first_block; k < y->first_block + y->block_count; k++)
            if (b->block[i]->reg < 0 && b->block[k]->reg < 0 && temporaries_meet(b->block[i], b->block[k]))
                return true;
    return false;
}

static bool bundles_meet(const bundling *b, const bundle *x, const bundle *y)
{
    if (x->count == 1 && y->count == 1)
        return any_in_conflict(b, x->first_block, x->first_block + x->block_count, y->first_block,
                               y->first_block + y->block_count);
    return workspaces_meet(b, x, y) || !lives_unions_apart(b->p->of->known, &x->registers, &y->registers) ||
           !lives_unions_apart(b->p->of->known, &x->registers, &y->temporaries) ||
           !lives_unions_apart(b->p->of->known, &x->temporaries, &y->registers);
}

/* The unions of the blocks of a bundle. `room` is for all of them. */
static bool unite(bundling *b, bundle *x, life_known *room)
{
    lives_union *of[2] = {&x->temporaries, &x->registers};
    x->low = INT64_MAX;
    x->high = -1;
    for (int kind = 0; kind < 2; kind++) {
        int count = 0;
        for (int i = x->first_block; i < x->first_block + x->block_count; i++) {
            if ((b->block[i]->reg >= 0) != (kind == 1))
                continue;
            room[count++] = b->life[i];
            if (kind == 0) {
                uint32_t from, until;
                lives_kernels(b->p->of->known, &b->life[i].life, &from, &until);
                x->low = from < x->low ? from : x->low;
                x->high = until > x->high ? until : x->high;
            }
        }
        if (!lives_unite(b->p->of->known, room, count, &b->pool, of[kind]))
            return false;
    }
    return true;
}

static bool unite_all(bundling *b)
{
    life_known *room = POOL_NEW(&b->pool, life_known, count_within(b->p) + 1);
    for (int i = 0; i < b->count && room; i++)
        if (!unite(b, &b->bundle[i], room))
            return false;
    return room;
}

/* ---- where they lie ---- */

static bool pack_members(bundling *b, bundle *x)
{
    member *of = b->member + x->first;
    place_block own[MEMBERS_MAX];
    int first[MEMBERS_MAX + 1];
    first[0] = x->first_block;
    for (int i = 0; i < x->count; i++) {
        own[i] = (place_block){.bytes = of[i].part->bytes, .align = PLAN_ALIGN};
        first[i + 1] = first[i];
        for (const block *k = of[i].part; k; k = next_within(k, of[i].part))
            first[i + 1]++;
    }
    uint64_t conflict[MEMBERS_MAX * (MEMBERS_MAX / 64)] = {0};
    for (int i = 0; i < x->count; i++)
        for (int k = 0; k < i; k++)
            if (any_in_conflict(b, first[i], first[i + 1], first[k], first[k + 1]))
                place_matrix_set(conflict, x->count, i, k);
    place_problem problem = {.block = own, .count = x->count, .conflict = conflict};
    if (!place(&problem))
        return false;
    for (int i = 0; i < x->count; i++)
        of[i].part->offset = own[i].offset;
    x->bytes = (problem.height + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    return true;
}

static bool pack_all(bundling *b)
{
    for (int i = 0; i < b->count; i++) {
        bundle *x = &b->bundle[i];
        if (x->count > 1 && !pack_members(b, x))
            return false;
        if (x->count > 1)
            continue;
        b->member[x->first].part->offset = 0;
        x->bytes = b->member[x->first].part->bytes;
    }
    return true;
}

typedef struct temporary {
    const block *block;
    int number;
} temporary;

static int by_group(const void *a, const void *b)
{
    const temporary *x = a, *y = b;
    return compare(x->block->group, y->block->group);
}

/* Temporaries are no matter of credits: those of one firing meet by their kernels, and no others do. */
static bool enter_temporaries(bundling *b, int count, uint64_t *meet)
{
    const size_t words = ((size_t)count + 63) / 64;
    uint64_t *is_temporary = POOL_NEW(&b->pool, uint64_t, words + 1);
    temporary *list = POOL_NEW(&b->pool, temporary, count + 1);
    int temporaries = 0;
    if (!is_temporary || !list)
        return false;
    for (int i = 0; i < count; i++)
        if (b->block[i]->reg < 0) {
            list[temporaries++] = (temporary){b->block[i], i};
            is_temporary[i / 64] |= UINT64_C(1) << (i % 64);
        }
    qsort(list, (size_t)temporaries, sizeof *list, by_group);
    for (int i = 0; i < temporaries; i++)
        for (size_t w = 0; w < words; w++)
            meet[(size_t)list[i].number * words + w] &= ~is_temporary[w];
    for (int i = 0; i < temporaries; i++)
        for (int k = i - 1; k >= 0 && list[k].block->group == list[i].block->group; k--)
            if (temporaries_meet(list[i].block, list[k].block))
                place_matrix_set(meet, count, list[i].number, list[k].number);
    return true;
}

/* The conflicts of the bundles that are alone: of their blocks, unless both are of the same bundle. */
static bool enter_alone(bundling *b, uint64_t *conflict)
{
    const bundle *last = b->alone ? &b->bundle[b->alone - 1] : NULL;
    const int count = last ? last->first_block + last->block_count : 0;
    const size_t words = ((size_t)count + 63) / 64;
    uint64_t *meet = POOL_NEW(&b->pool, uint64_t, place_matrix_words(count) + 1);
    int *bundle_of = POOL_NEW(&b->pool, int, count + 1);
    if (!meet || !bundle_of)
        return false;
    lives_pairs(b->p->of->known, b->life, count, meet);
    if (!enter_temporaries(b, count, meet))
        return false;
    for (int i = 0; i < b->alone; i++)
        for (int k = 0; k < b->bundle[i].block_count; k++)
            bundle_of[b->bundle[i].first_block + k] = i;
    for (int i = 0; i < count; i++)
        for (size_t w = 0; w <= (size_t)i / 64; w++)
            for (uint64_t bits = meet[(size_t)i * words + w]; bits; bits &= bits - 1) {
                const int other = bundle_of[w * 64 + (size_t)__builtin_ctzll(bits)];
                if (other != bundle_of[i])
                    place_matrix_set(conflict, b->count, bundle_of[i], other);
            }
    return true;
}

static bool place_bundles(bundling *b)
{
    parts *p = b->p;
    uint64_t *conflict = POOL_NEW(&b->pool, uint64_t, place_matrix_words(b->count) + 1);
    place_block *own = POOL_NEW(&b->pool, place_block, b->count + 1);
    if (!conflict || !own || !enter_alone(b, conflict))
        return false;
    for (int i = 0; i < b->count; i++) {
        own[i] = (place_block){.bytes = b->bundle[i].bytes, .align = PLAN_ALIGN};
        for (int k = 0; i >= b->alone && k < i; k++)
            if (bundles_meet(b, &b->bundle[i], &b->bundle[k]))
                place_matrix_set(conflict, b->count, i, k);
    }
    place_problem problem = {.block = own, .count = b->count, .conflict = conflict};
    if (!place_same_as(p->same, &problem))
        return false;
    for (int i = 0; i < b->count; i++)
        for (int m = b->bundle[i].first; m < b->bundle[i].first + b->bundle[i].count; m++)
            b->member[m].part->offset += own[i].offset;
    p->height = problem.height;
    return true;
}

bool parts_place(parts *p)
{
    bundling b = {.p = p};
    int most = p->of->hasty ? parts_max_hasty : parts_max;
    bool ok = lives_enter(p->of->known, (plan_space_id){(uint32_t)p->device}) && find_bundles(&b, most) && look_all(&b) &&
              (b.count == p->count || unite_all(&b)) && pack_all(&b) && place_bundles(&b);
    pool_free(&b.pool);
    return ok;
}
