/* transport/mail/message.h: the only thing that actors say to each other. Eight bytes, and never zero.
 *
 *     READY  producer -> readers    `count` more slots are published at the edge
 *     FREE   readers -> producer    `count` slots of the edge are freed
 *
 * An *edge* leads from a register to one of its readers, or to a branch of several (graph/plan/spread/branch.h). Its number is
 * that of the (first) reader's port in the plan, so it is the same in every process, and the kind says to which of its two ends
 * the message goes. A message names no slot: both
 * ends walk the register's ring in the same order. Since a mailbox cell that is zero is empty, the kinds begin at 1.
 */
#ifndef TRANSPORT_MAIL_MESSAGE_H
#define TRANSPORT_MAIL_MESSAGE_H

#include <stdint.h>
#include <string.h>

enum message_kind { MESSAGE_READY = 1, MESSAGE_FREE };

#define MESSAGE_COUNT_MAX UINT16_MAX

struct message {
    uint32_t edge; /* plan port */
    uint16_t count;
    uint8_t kind;
    uint8_t unused; /* 0 */
};
_Static_assert(sizeof(struct message) == sizeof(uint64_t), "a message is one atomic word");

static inline uint64_t message_pack(struct message message)
{
    uint64_t word;
    memcpy(&word, &message, sizeof(word));
    return word;
}

static inline struct message message_unpack(uint64_t word)
{
    struct message message;
    memcpy(&message, &word, sizeof(message));
    return message;
}

/* A message that has no count yet, with one. By the word, which is one load and one store: a reader of the word would wait for
 * the store of a part. */
static inline struct message message_counted(struct message message, uint16_t count)
{
    const struct message one = {.count = 1};
    return message_unpack(message_pack(message) + count * message_pack(one));
}

#endif
