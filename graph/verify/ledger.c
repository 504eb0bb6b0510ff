/* graph/verify/ledger.c: see the header. Both sides put values in about the same order, so a search goes on from where the last one
 * ended. */
#include "graph/verify/ledger.h"

#include <stdio.h>

#include "graph/verify/blame.h" /* blame_element */

struct entry {
    ledger_value value;
    rule_array whole;     /* `at` is owned */
    unsigned char *sides; /* owned; of each element: bit 0, the first side has had it, bit 1, the second */
    int64_t wrong;        /* the first element that differs, or -1 */
    bool unlike;          /* the sides have it in other shapes */
};

struct ledger {
    struct entry *entries; /* owned */
    size_t count, room, last;
};

ledger *ledger_new(void)
{
    return calloc(1, sizeof(ledger));
}

void ledger_free(ledger *l)
{
    for (size_t i = 0; l && i < l->count; i++) {
        free(l->entries[i].whole.at);
        free(l->entries[i].sides);
    }
    if (l)
        free(l->entries);
    free(l);
}

uint64_t ledger_bytes(uint64_t elements)
{
    return elements * (sizeof(field_value) + 1);
}

static bool is_of(const struct entry *entry, const ledger_value *value)
{
    return entry->value.when == value->when && entry->value.micro == value->micro && entry->value.fetch == value->fetch &&
           !strcmp(entry->value.name, value->name);
}

static struct entry *find(ledger *l, const ledger_value *value)
{
    for (size_t i = 0; i < l->count; i++) {
        const size_t at = (l->last + i) % l->count;
        if (!is_of(&l->entries[at], value))
            continue;
        l->last = at;
        return &l->entries[at];
    }
    return NULL;
}

static struct entry *entry_new(ledger *l, const ledger_value *value, const rule_array *shard)
{
    if (l->count == l->room) {
        const size_t room = 2 * l->room + 64;
        struct entry *more = realloc(l->entries, room * sizeof *more);
        if (!more)
            return NULL;
        l->entries = more;
        l->room = room;
    }
    struct entry *entry = &l->entries[l->count];
    *entry = (struct entry){.value = *value, .whole = *shard, .wrong = -1};
    memcpy(entry->whole.shape, shard->global, sizeof entry->whole.shape);
    memset(entry->whole.start, 0, sizeof entry->whole.start);
    entry->whole.count = rule_size(&entry->whole, 0, entry->whole.rank);
    entry->whole.at = calloc((size_t)entry->whole.count + 1, sizeof *entry->whole.at);
    entry->sides = calloc((size_t)entry->whole.count + 1, 1);
    if (entry->whole.at && entry->sides) {
        l->last = l->count;
        return &l->entries[l->count++];
    }
    free(entry->whole.at);
    free(entry->sides);
    return NULL;
}

bool ledger_put(ledger *l, int side, const ledger_value *value, const rule_array *shard)
{
    struct entry *entry = find(l, value);
    if (!entry)
        entry = entry_new(l, value, shard);
    if (!entry)
        return false;
    entry->unlike |= !rule_same_whole(shard, &entry->whole);
    for (int64_t n = 0; !entry->unlike && n < shard->count; n++) {
        const int64_t place = rule_logical(shard, n);
        if (!entry->sides[place])
            entry->whole.at[place] = shard->at[n];
        else if (entry->wrong < 0 && !field_equal(entry->whole.at[place], shard->at[n]))
            entry->wrong = place;
        entry->sides[place] |= (unsigned char)(1 << side);
    }
    return true;
}

/* ---- what differs ---- */

/* The first element that only one side, or none, has; -1: there is none. */
static int64_t lonely(const struct entry *entry)
{
    for (int64_t n = 0; n < entry->whole.count; n++)
        if (entry->sides[n] != 3)
            return n;
    return -1;
}

static bool differs(const struct entry *entry)
{
    return entry->unlike || entry->wrong >= 0 || lonely(entry) >= 0;
}

/* Whether a difference of `a` is to be reported, rather than that of `b`, which comes later in the ledger. */
static bool comes_first(const struct entry *a, const struct entry *b)
{
    return a->value.when != b->value.when ? a->value.when < b->value.when : b->value.lesser || !a->value.lesser;
}

static int sides_of(const struct entry *entry)
{
    int sides = 0;
    for (int64_t n = 0; n < entry->whole.count; n++)
        sides |= entry->sides[n];
    return sides;
}

/* "model.c:12: \"w\", element [0, 1], " */
static size_t say_what(const struct entry *entry, int64_t place, char *text, size_t bytes)
{
    const ledger_value *value = &entry->value;
    char element[128] = "";
    size_t used = 0;
    if (*value->file)
        used += (size_t)snprintf(text, bytes, "%s:%u: ", value->file, value->line);
    if (place >= 0 && entry->whole.rank)
        blame_element(&entry->whole, place, element, sizeof element);
    used += (size_t)snprintf(text + used, bytes - used, "%s\"%s\"%s%s ", value->fetch ? "the fetch " : "", value->name, element,
                             *element ? "," : "");
    return used;
}

static void say_when(const ledger_value *value, char *text, size_t bytes)
{
    if (value->fetch && value->micro < 0)
        snprintf(text, bytes, "in step %lld", (long long)value->when);
    else if (value->fetch)
        snprintf(text, bytes, "in step %lld, micro-batch %d", (long long)value->when, value->micro);
    else
        snprintf(text, bytes, "after %lld step%s", (long long)value->when, value->when == 1 ? "" : "s");
}

static void say(const struct entry *entry, size_t others, char *text, size_t bytes)
{
    const int64_t place = entry->wrong >= 0 ? entry->wrong : lonely(entry);
    const int sides = sides_of(entry);
    char when[64], more[64] = "";
    say_when(&entry->value, when, sizeof when);
    if (others)
        snprintf(more, sizeof more, ", nor %s %zu other value%s", others == 1 ? "is" : "are", others, others == 1 ? "" : "s");
    const size_t used = say_what(entry, entry->unlike || sides != 3 ? -1 : place, text, bytes);
    if (entry->unlike)
        snprintf(text + used, bytes - used, "has another shape in the second plan than in the first");
    else if (sides != 3)
        snprintf(text + used, bytes - used, "is %s by the %s plan, and not by the other", entry->value.fetch ? "fetched" : "kept",
                 sides == 1 ? "first" : "second");
    else if (entry->wrong >= 0)
        snprintf(text + used, bytes - used, "is not the same in both plans %s%s", when, more);
    else
        snprintf(text + used, bytes - used, "is in no shard of the %s plan", entry->sides[place] & 1 ? "second" : "first");
}

bool ledger_differs(const ledger *l, char *text, size_t bytes)
{
    const struct entry *first = NULL;
    size_t others = 0;
    for (size_t i = 0; i < l->count; i++)
        if (differs(&l->entries[i]) && (!first || !comes_first(first, &l->entries[i])))
            first = &l->entries[i];
    if (!first)
        return false;
    for (size_t i = 0; i < l->count; i++)
        others += &l->entries[i] != first && l->entries[i].value.when == first->value.when &&
                  l->entries[i].value.fetch == first->value.fetch && differs(&l->entries[i]);
    say(first, others, text, bytes);
    return true;
}
