/* graph/time/flow.c: see the header. */
#include "graph/time/flow.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM = 4 }; /* at first, of a line */

bool flows_open(flows *f, uint32_t count, uint32_t links)
{
    *f = (flows){calloc(count + (size_t)1, sizeof *f->of), count, links, calloc(links + (size_t)1, sizeof *f->room),
                 calloc(links + (size_t)1, sizeof *f->users), 0, false, false, FLOW_NONE};
    return f->of && f->room && f->users;
}

void flows_close(flows *f)
{
    for (uint32_t i = 0; f->of && i < f->count; i++)
        free(f->of[i].values);
    free(f->of);
    free(f->room);
    free(f->users);
    *f = (flows){.of = NULL};
}

void flows_begin(flows *f)
{
    for (uint32_t i = 0; i < f->count; i++) {
        flow *x = &f->of[i];
        *x = (flow){.links = {x->links[0], x->links[1]}, .values = x->values, .room = x->room};
    }
    f->since = 0;
    f->changed = f->stale = false;
    f->next = FLOW_NONE;
}

/* ---- speeds ---- */

/* Whether it shares links with others that pass something. */
static bool shares(const flow *x)
{
    return x->begun && x->links[0] != UINT32_MAX;
}

/* Finds the link that gives each of its lines without a speed the least. */
static uint32_t narrowest(const flows *f)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < f->links; i++)
        if (f->users[i] && (least == UINT32_MAX || f->room[i] / f->users[i] < f->room[least] / f->users[least]))
            least = i;
    return least;
}

static void give_speed(flows *f, flow *x, uint64_t speed)
{
    x->speed = speed ? speed : 1;
    for (int i = 0; i < 2; i++) {
        f->room[x->links[i]] -= speed;
        f->users[x->links[i]]--;
    }
}

static void choose_speeds(flows *f)
{
    for (uint32_t i = 0; i < f->links; i++)
        f->room[i] = FLOW_ONE, f->users[i] = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        f->of[i].speed = shares(&f->of[i]) ? 0 : FLOW_ONE;
        for (int k = 0; k < 2 && shares(&f->of[i]); k++)
            f->users[f->of[i].links[k]]++;
    }
    for (uint32_t link = narrowest(f); link != UINT32_MAX; link = narrowest(f)) {
        const uint64_t speed = f->room[link] / f->users[link];
        for (uint32_t i = 0; i < f->count; i++)
            if (!f->of[i].speed && (f->of[i].links[0] == link || f->of[i].links[1] == link))
                give_speed(f, &f->of[i], speed);
    }
    f->changed = false;
    f->stale = true;
}

/* ---- time ---- */

static uint64_t scaled(uint64_t a, uint64_t b, uint64_t c, bool up)
{
    const unsigned __int128 all = (unsigned __int128)a * b + (up ? c - 1 : 0);
    return all / c < FLOW_NONE ? (uint64_t)(all / c) : FLOW_NONE;
}

/* Brings what is left up to now. */
static void settle(flows *f, uint64_t now)
{
    const uint64_t passed = now > f->since ? now - f->since : 0;
    if (f->changed)
        choose_speeds(f);
    for (uint32_t i = 0; i < f->count && passed; i++) {
        flow *x = &f->of[i];
        const uint64_t done = !x->begun ? 0 : x->speed == FLOW_ONE ? passed : scaled(passed, x->speed, FLOW_ONE, false);
        x->left -= done < x->left ? done : x->left;
    }
    f->since = now > f->since ? now : f->since;
}

/* The first value of the line begins to pass, if its time has come. */
static void begin(flows *f, flow *x, uint64_t now)
{
    if (x->begun || !x->count || x->values[x->first].from > now)
        return;
    x->begun = true;
    x->there = false;
    x->left = x->values[x->first].work;
    f->changed = true;
}

static uint64_t event_of(const flow *x, uint64_t now)
{
    if (!x->count)
        return FLOW_NONE;
    if (!x->begun)
        return x->values[x->first].from > now ? x->values[x->first].from : now;
    const uint64_t takes = x->speed == FLOW_ONE ? x->left : scaled(x->left, FLOW_ONE, x->speed, true);
    return takes < FLOW_NONE - now ? now + takes : FLOW_NONE;
}

uint64_t flows_next(flows *f, uint64_t now)
{
    if (!f->changed && !f->stale)
        return f->next;
    settle(f, now);
    f->stale = false;
    f->next = FLOW_NONE;
    for (uint32_t i = 0; i < f->count; i++) {
        const uint64_t at = event_of(&f->of[i], f->since);
        f->next = at < f->next ? at : f->next;
    }
    return f->next;
}

/* ---- values ---- */

static bool grow(flow *x)
{
    const uint32_t room = x->room ? 2 * x->room : ROOM;
    flow_value *values = malloc(room * sizeof *values);
    if (!values)
        return false;
    for (uint32_t i = 0; i < x->count; i++)
        values[i] = x->values[(x->first + i) % x->room];
    free(x->values);
    x->values = values;
    x->room = room;
    x->first = 0;
    return true;
}

bool flows_send(flows *f, uint32_t line, flow_value value, uint64_t now)
{
    flow *x = &f->of[line];
    settle(f, now);
    if (x->count == x->room && !grow(x))
        return false;
    x->values[(x->first + x->count++) % x->room] = value;
    begin(f, x, now);
    f->changed = true;
    return true;
}

/* The first value has left the line. */
static void leave(flows *f, flow *x, uint64_t now)
{
    x->first = (x->first + 1) % x->room;
    x->count--;
    x->begun = x->there = false;
    x->idle_since = now;
    f->changed = true;
    begin(f, x, now);
}

/* Goes on with a line whose first value has something to do now. True: a value is there. */
static bool go_on(flows *f, flow *x, uint64_t now, flow_value *value)
{
    begin(f, x, now);
    while (x->begun && !x->left) {
        f->changed = true;
        if (!x->there) {
            *value = x->values[x->first];
            x->there = true;
            x->left = value->behind;
            if (!x->left)
                leave(f, x, now);
            return true;
        }
        leave(f, x, now);
    }
    return false;
}

bool flows_take(flows *f, uint64_t now, uint32_t *line, flow_value *value)
{
    settle(f, now);
    for (*line = 0; *line < f->count; ++*line)
        if (f->of[*line].count && go_on(f, &f->of[*line], now, value))
            return true;
    return false;
}

void flows_count(const flows *f, uint64_t now, uint64_t *values, uint64_t *ps)
{
    for (uint32_t i = 0; i < f->count; i++) {
        const flow *x = &f->of[i];
        const uint64_t passed = now > f->since && x->begun ? scaled(now - f->since, x->speed, FLOW_ONE, false) : 0;
        *values += x->count;
        for (uint32_t k = 0; k < x->count; k++)
            *ps += x->values[(x->first + k) % x->room].work;
        if (x->begun)
            *ps += x->left - (passed < x->left ? passed : x->left);
        if (x->begun)
            *ps -= x->values[x->first].work;
    }
}
