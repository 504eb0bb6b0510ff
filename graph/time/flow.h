/* graph/time/flow.h: values that pass over lines, and lines that share the links of their hosts.
 *
 *     line 0 > 1   [ a       |  a          ]         alone a passes at full speed, beside b at half of it
 *     line 0 > 2             [  b               ]
 *
 * A line passes one value at a time, those behind it wait. Lines that pass something at once share each link that they have in common:
 * max-min fair, so each gets an equal part of the link, and the others get what one cannot take, because another link is narrower for it
 * (progressive filling: Bertsekas and Gallager, Data Networks, 6.5). No line alone is faster than a link.
 *
 * Whenever a value begins to pass or has passed, others go on at another speed. Speeds are whole numbers, and work that is left is in whole
 * picoseconds.
 */
#ifndef GRAPH_TIME_FLOW_H
#define GRAPH_TIME_FLOW_H

#include <stdbool.h>
#include <stdint.h>

#define FLOW_ONE (UINT64_C(1) << 40) /* the speed of a line that is alone */
#define FLOW_NONE UINT64_MAX

/* A value, or a message that passes at once. */
typedef struct flow_value {
    uint64_t from;         /* it begins to pass no earlier */
    uint64_t work;         /* ps at full speed, until it is there; */
    uint64_t behind;       /* then it keeps the line for so long; */
    int64_t rest;          /* and it counts so long after it is there; below 0: before */
    uint32_t port;         /* the sender's own, as what follows */
    bool freed;
} flow_value;

typedef struct flow {
    uint32_t links[2];     /* that it shares with others; UINT32_MAX: none */
    flow_value *values;    /* owned: a ring; the first one passes */
    uint32_t first, count, room;
    uint64_t left;         /* of its work, or of what is behind that */
    bool begun, there;     /* the first one has begun to pass; it is there */
    uint64_t speed;
    uint64_t idle_since;
} flow;

typedef struct flows {
    flow *of;              /* owned */
    uint32_t count, links;
    uint64_t *room;        /* owned, as the next: by link: speed that is left to give, */
    uint32_t *users;       /* and lines without a speed */
    uint64_t since;        /* when `left` was right */
    bool changed, stale;   /* speeds are to be chosen anew; and so is `next` */
    uint64_t next;         /* when something happens if nothing is sent; FLOW_NONE: never */
} flows;

/* So many lines and links. False: no memory. */
bool flows_open(flows *f, uint32_t count, uint32_t links);
void flows_close(flows *f);

/* Nothing is on a line, and none has been busy; they share what they shared. */
void flows_begin(flows *f);

/* Whether nothing is on the line, and nothing waits for it. */
static inline bool flows_idle(const flows *f, uint32_t line)
{
    return !f->of[line].count;
}

/* A value is sent, now. False: no memory. */
bool flows_send(flows *f, uint32_t line, flow_value value, uint64_t now);

/* When something happens next, which is no earlier than now. */
uint64_t flows_next(flows *f, uint64_t now);

/* Takes out a value that is there now. False: there is no other. */
bool flows_take(flows *f, uint64_t now, uint32_t *line, flow_value *value);

/* Values on all lines, and how long they take at full speed, together. */
void flows_count(const flows *f, uint64_t now, uint64_t *values, uint64_t *ps);

#endif
