/* graph/time/line.h: how long messages between workers take: in one process, between processes of a host, and over a link.
 *
 *     ranks of one host      share memory, unless carriers are chosen without it: a message takes as long as from process to process
 *     ranks of two hosts     a line each way over TCP with a key, or over UCX if the carriers include it
 *
 * A line is a queue. Lines between hosts also share the link of each host, each way: of two that are busy both have half of it
 * (graph/time/flow.h). A value occupies its line for as long as a stream needs per value (graph/time/link.h), behind the values that were
 * sent before; it is there when its own time has passed since its turn came. Only those parts of a register pass that kernels of the reading rank
 * read, and once for all that read the same, as in a session (transport/line/links.h). A message that a slot is free takes the time of the
 * smallest value, behind what was sent before it.
 *
 * A value on its own may take longer than one that follows others closely, as TCP sends fewer packets at once after a pause: it takes the
 * measured time of one if all earlier values were freed when it is sent. Behind others it takes no longer than the smallest value, and the
 * time for which it occupies the line.
 *
 * Values also cost the ranks' processors time. A rank with a core beside those of its workers has a thread for the network there; then a
 * worker pays only for the first 256 KiB, which it writes itself. Otherwise workers pay for all: the producer's firing takes longer; and the
 * reader's, unless its worker had nothing else to do while the value came.
 */
#ifndef GRAPH_TIME_LINE_H
#define GRAPH_TIME_LINE_H

#include "graph/time/change.h"
#include "graph/time/flow.h"
#include "graph/time/rates.h"

/* How messages of a port pass. */
typedef enum line_way { LINE_IN_RANK, LINE_IN_MEMORY, LINE_QUEUED } line_way;

/* From one rank to another that it shares no memory with. */
typedef struct line {
    uint32_t from, to;
    uint64_t arrived;          /* when the last value, or message, is there */
    uint64_t unfreed;          /* values that were sent, and not freed at the other end */
    uint64_t freed;            /* when the last message about that is back */
    double busy, bytes;        /* ps in which values occupy it, and their bytes; of a step */
} line;

typedef struct lines_spec {
    const weir_plan *plan;     /* borrowed, as all pointers */
    uint32_t program;
    const weir_rates *rates;
    const changes *changes;
    uint32_t regsts;           /* whose values pass: the first ones */
    uint32_t per_host;         /* ranks; 0: all are on one host */
    const char *carrier;       /* a list of "shm", "ipc", "tcp", "ucx"; NULL: "shm,tcp" */
    bool no_key;
    const uint32_t *computing; /* by rank: workers that compute */
    const uint32_t *worker;    /* by queue */
    uint32_t workers;
    const char *call;          /* begins sentences: "model.c:3: weir_predict" */
} lines_spec;

typedef struct lines {
    lines_spec spec;
    line *lines;               /* owned, as all arrays; by ranks */
    uint32_t count;
    flows flows;               /* what is on them */
    bool failed;               /* no memory */
    uint8_t *way;              /* by port: line_way */
    struct crossing {          /* by port, if there are lines */
        uint32_t there, back;  /* the lines of its values and of its messages */
        uint32_t leader;       /* the first port of its rank that reads the same of the register, whose value passes */
        uint32_t next;         /* the next port with that leader, or PLAN_NONE */
        uint64_t bytes;        /* of a leader, as what follows: that are read */
        uint64_t sends, receives; /* ps that the producer's worker pays, and the reader's */
        uint64_t first;        /* in `arrives` */
        uint64_t came;         /* values so far */
        uint64_t told_in;      /* so much later ports hear of the last one that was sent, or came; CLOCK_LATER: it is on its line */
    } *port;
    const uint32_t *slots;     /* borrowed; by register */
    uint64_t *arrives;         /* by leader and slot: when a value is there; NULL before lines_begin() */
    uint32_t told;             /* the port that hears next of a value that came, or PLAN_NONE */
    uint64_t *sends;           /* by register: ps that the producer's worker pays */
    uint64_t *ended;           /* by worker: its last firing */
} lines;

/* E_ARGUMENT: there is no such carrier, it does not reach a rank, or the rates do not have it. E_MEMORY. */
weir_status lines_open(lines *l, const lines_spec *spec);
void lines_close(lines *l);

/* Nothing is under way yet; registers have so many slots. Before the first message. E_MEMORY. */
weir_status lines_begin(lines *l, const uint32_t *slots);

/* How long a message of a port takes that is sent now, and is on its line from then on; CLOCK_LATER: lines_take() says when it is there.
 * And without any other on its line. Picoseconds. */
uint64_t lines_message(lines *l, uint32_t port, bool freed, uint64_t now, uint64_t from);
uint64_t lines_alone(const lines *l, uint32_t port, bool freed);

/* When something happens on the lines next, if nothing is sent before: UINT64_MAX: never. Then all messages are taken out that pass no
 * longer; each is there `takes` later. False: there is no other. */
uint64_t lines_next(lines *l, uint64_t now);
bool lines_take(lines *l, uint64_t now, uint32_t *port, bool *freed, uint64_t *takes);

/* Adds what is on the lines: messages, and their times together. */
void lines_count(const lines *l, uint64_t now, uint64_t *messages, uint64_t *rest);

/* How much longer the actor's firing number `firing` takes, which begins now, as its worker sends or receives. */
uint64_t lines_firing(const lines *l, uint32_t actor, uint32_t firing);

/* A firing of the actor ends. */
void lines_ended(lines *l, uint32_t actor, uint64_t now);

#endif
