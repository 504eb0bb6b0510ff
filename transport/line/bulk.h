/* transport/line/bulk.h: register contents and bus messages between this rank and those on the wire: one stream for each
 * pair of ranks, beside ZeroMQ's connections.
 *
 *     queue: SLOT WORDS SLOT FRAME ...           in the order in which they were posted
 *        | staged: heads and what is small are copied together, what is large is referred to where it lies in its slot
 *     parts --- (sealed: records) ---> stream ===> the peer's
 *
 *     stream --- (records opened) ---> head: may the peer send that now? ---> straight into the receive slot (links.h)
 *                                                                             |
 *                                              READY to the reader <----------' when all of it has come
 *
 * Slots and messages that are ready together go together: many small slots and messages are one write, and one record. A
 * large slot is neither copied when it is sent nor when it comes, but for its encryption. Sending allocates nothing,
 * receiving neither: queues have room for all that can be under way by credit. Only what the session itself says (FRAME:
 * values, BYE), which comes this way because it has to arrive behind register contents, has memory of its own.
 *
 * With a key every byte goes in records (seal.h); without one as it is.
 *
 * Only the thread that holds the network's sockets uses a line.
 */
#ifndef TRANSPORT_LINE_BULK_H
#define TRANSPORT_LINE_BULK_H

#include <zmq.h>

#include "transport/mail/message.h"
#include "transport/line/bulk_frame.h"
#include "transport/line/links.h"
#include "transport/line/measure.h"
#include "transport/line/seal.h"
#include "transport/line/stream.h"
#include "transport/line/wire.h"

#define BULK_RECORD_BYTES (32u << 10)  /* of a record, at most: a receiver opens one while the next is made */
#define BULK_RECORDS 8                 /* made, or read, at once */
#define BULK_SMALL_BYTES (64u << 10)   /* what is copied together before it is written */
#define BULK_COPY_BYTES (2u << 10)     /* up to so many are copied rather than referred to */
#define BULK_PARTS 64                  /* of a write */
#define BULK_READ_BYTES (16u << 10)    /* read beyond a slot, where heads and small slots are */
#define BULK_READ_TURN (1u << 20)      /* bytes that are read of one line before others, or its writing, get a turn */
#define BULK_WRITE_TURN (512u << 10)   /* bytes that are written; of a sealed line those of BULK_RECORDS records */

struct bulk;

/* Lines ask their holder by these, and tell it. The thread that holds the network's sockets calls them. */
struct bulk_owner {
    void (*cut)(struct bulk_owner *owner, uint32_t rank);       /* the stream has ended, or takes nothing any more */
    void (*word_gone)(struct bulk_owner *owner, uint32_t rank); /* this rank's last word is written, or never will be */
    void (*heard)(struct bulk_owner *owner, uint32_t rank);     /* bytes came */
    void (*lose)(struct bulk_owner *owner, uint32_t rank, const char *how); /* it broke the protocol */
    /* The peer has acknowledged nothing since `taken_ns`, while `unsent` bytes wait. */
    void (*stuck)(struct bulk_owner *owner, uint32_t rank, int64_t taken_ns, uint64_t unsent, int64_t now);
    bool (*over)(const struct bulk_owner *owner, uint32_t rank); /* nothing comes from it any more */
    struct transfer *(*slot_due)(struct bulk_owner *owner, uint32_t rank, const struct bulk_head *head); /* NULL: it may not come */
    void (*slot_came)(struct bulk_owner *owner, struct transfer *transfer, bool initial);
    void (*words)(struct bulk_owner *owner, uint32_t rank, const unsigned char *words, uint32_t count);
    void (*frame)(struct bulk_owner *owner, uint32_t rank, const void *header, size_t header_bytes, const void *payload,
                  size_t payload_bytes); /* payload NULL: there is none */
    void (*broken)(struct bulk_owner *owner, const char *what); /* this rank cannot go on */
    uint32_t (*words_most)(const struct bulk_owner *owner, uint32_t rank); /* messages that can be under way to the rank */
};

/* A message of the session itself; its payload is shared. */
struct bulk_control {
    struct bulk_control *next;
    bool bye;
    bool has_payload;
    zmq_msg_t payload;
    uint32_t header_bytes;
    unsigned char header[WIRE_HEADER_MAX];
};

struct bulk_entry {
    const struct transfer *transfer; /* SLOT */
    struct bulk_control *control;          /* FRAME; owned */
    uint32_t slot;
    uint32_t words;                  /* WORDS: how many */
    bool initial;
};

struct bulk_out {
    struct bulk_entry *queue;       /* owned; a ring */
    uint32_t queue_room, queue_first, queue_count;
    uint64_t *words;                /* owned; a ring: those of all WORDS in the queue */
    uint32_t words_room, words_first, words_count;
    uint32_t span;                  /* of the first entry, a SLOT: the span to be staged next */
    bool begun;                     /* the head of that entry is staged */
    struct iovec parts[BULK_PARTS]; /* staged and not written, or not sealed */
    int parts_first, parts_count;
    unsigned char *small;           /* owned; BULK_SMALL_BYTES */
    size_t small_used;
    char *packed;                   /* owned; a packed span that is larger than that */
    bool packed_used;
    struct bulk_control *control;         /* owned; those whose payloads parts refer to */
    struct seal_box *box;           /* owned; NULL: plain */
    unsigned char *records;         /* owned */
    size_t records_first, records_end;
    bool blocked;                   /* the stream takes no more for now */
    bool listed;                    /* in bulk->waiting */
    bool held;                      /* in bulk->held */
};

enum bulk_due { BULK_DUE_HEAD, BULK_DUE_SLOT, BULK_DUE_WORDS, BULK_DUE_FRAME };

struct bulk_in {
    struct seal_box *box;           /* owned; NULL: plain */
    unsigned char *raw;             /* owned; as it came */
    size_t raw_first, raw_end, raw_room;
    unsigned char *plain;           /* owned; of records that were opened; sealed lines only */
    size_t plain_first, plain_end;
    enum bulk_due due;
    struct bulk_head head;          /* of what is coming */
    struct transfer *transfer;      /* SLOT */
    uint32_t span;                  /* the span that is coming */
    uint64_t done;                  /* bytes of that span, or of another payload, that have come */
    unsigned char *body;            /* owned; of a FRAME that does not come at once */
};

struct bulk_line {
    struct bulk *bulk;     /* borrowed */
    uint32_t rank;
    struct stream *stream; /* owned; NULL: not made yet, or over */
    bool stands;           /* the peer has been heard on it */
    int connecting;        /* owned; while the session opens: its socket; -1 */
    bool watches_writing;  /* it is slept on until it can be written to */
    struct measure measure; /* of the stream */
    bool writes_over;      /* the peer takes nothing any more; what it had sent still comes */
    bool parted;           /* this rank's last word is queued: nothing follows it */
    uint64_t written, taken; /* bytes that the stream was given; and of them those that the peer has acknowledged */
    int64_t taken_ns;      /* when the peer last acknowledged some, or nothing waited */
    struct bulk_out out;
    struct bulk_in in;
};

struct bulk {
    struct bulk_owner *owner;   /* borrowed, as the next three, which are there when bulk_route() has been called */
    const weir_plan *plan;
    const struct links *links;
    const struct arena *arenas;
    uint64_t frame_most;        /* bytes of a FRAME, at most */
    struct sealing *sealing;    /* owned */
    struct streams *streams;    /* owned; of a carrier other than sockets; NULL */
    int64_t linger_ns;          /* at the end, the time in which streams may send what they have taken */
    int epoll_fd;               /* owned; readable when a line is, or can be written to again; -1 */
    struct bulk_line **lines;   /* owned, and they; of all ranks on the wire */
    uint32_t lines_count;
    struct bulk_line **waiting; /* owned; those with something to write */
    uint32_t waiting_count;
    struct bulk_line **held;    /* owned; those with words that need not go by themselves yet */
    uint32_t held_count;
};

/* ---- bulk.c: life ---- */

/* Lines to at most so many ranks. `streams`: makes those of a carrier other than sockets; NULL: sockets. */
weir_status bulk_open(struct bulk *bulk, struct bulk_owner *owner, uint32_t ranks,
                      weir_status (*streams)(struct streams **streams, int epoll_fd));
void bulk_close(struct bulk *bulk);

/* The line of a rank on the wire: without a connection yet. NULL: no memory. */
struct bulk_line *bulk_line_new(struct bulk *bulk, uint32_t rank);

/* The connection stands, and is the peer's; the line's from here on. */
weir_status bulk_line_stands(struct bulk_line *line, int fd);

/* The lines get the room that the plan asks for. */
weir_status bulk_route(struct bulk *bulk, const weir_plan *plan, const struct links *links, const struct arena *arenas);

/* Writes what waits, of each line `most` bytes or a little more. False: there is more. */
bool bulk_flush(struct bulk *bulk, size_t most);

/* Looks what the lines are like by now, and whether one is stuck; once a beat. */
void bulk_look(struct bulk *bulk, int64_t now);

/* Everything that was held goes out with the next flush. */
void bulk_release(struct bulk *bulk);

/* Something was read or written; or the stream of a line ended. *drained: nothing waits to be read. */
bool bulk_turn(struct bulk *bulk, bool *drained);

/* Whether a thread may sleep on bulk->epoll_fd, because it reports all that can still be read or written. Called with the
 * sockets held, which may be let go if so. */
bool bulk_rest(struct bulk *bulk);

/* Whether bytes wait on a line that is not blocked. Nobody is woken for them: the thread that posted them writes them. */
bool bulk_may_write(const struct bulk *bulk);

/* Whether much is on its way: a line is full, or a large slot has come in part. A thread that sleeps then finds more bytes
 * when it wakes. */
bool bulk_flows(const struct bulk *bulk);

void bulk_end(struct bulk_line *line);        /* nothing comes or goes any more */
void bulk_queue_drop(struct bulk_line *line); /* what waits goes nowhere */

/* ---- bulk_out.c ---- */

void bulk_post_slot(struct bulk_line *line, const struct transfer *transfer, uint32_t slot, bool initial);
/* A message that counts at most `hold` slots, with equal ones that wait already, may wait for what goes out next, or for
 * bulk_release(). */
void bulk_post_word(struct bulk_line *line, struct message message, uint32_t hold);
/* The header frame, and a payload (NULL: none), of which a reference is kept. */
void bulk_post_frame(struct bulk_line *line, const struct wire_frame *frame, zmq_msg_t *payload);

/* Writes what the stream takes, `most` bytes or a little more. False: there is more. */
bool bulk_write(struct bulk_line *line, size_t most);

/* Bytes that wait, and that the stream has not taken. */
uint64_t bulk_queued(const struct bulk_line *line);
weir_status bulk_out_open(struct bulk_line *line);
void bulk_out_close(struct bulk_line *line);

/* ---- bulk_in.c ---- */

/* Reads what there is, BULK_READ_TURN or a little more; whether there was anything. *drained = false: there is more. */
bool bulk_read(struct bulk_line *line, bool *drained);

/* Takes bytes as they were sent; returns how many were taken: the rest, less than a head, has to come again with more
 * behind it. Loses the peer when they break the protocol. */
size_t bulk_take(struct bulk_line *line, const unsigned char *bytes, size_t count);
weir_status bulk_in_open(struct bulk_line *line);
void bulk_in_close(struct bulk_line *line);

#endif
