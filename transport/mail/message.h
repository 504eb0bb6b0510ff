/* transport/mail/message.h: the only thing that actors say to each other. Eight bytes, and never zero.
 *
 *     READY  producer -> reader     `count` more slots are published at the reader's port `port`
 *     FREE   reader -> producer     `count` slots are freed on the producer's out-edge `port` (its registers' readers,
 *                                   counted over all its registers in plan order)
 *     START, FAIL, STOP, LOOK       from the session (LOOK: its watch) to a worker; `actor` means nothing
 *
 * A message names no slot: both ends walk the register's ring in the same order. Since a mailbox cell that is zero is
 * empty, the kinds begin at 1.
 */
#ifndef TRANSPORT_MAIL_MESSAGE_H
#define TRANSPORT_MAIL_MESSAGE_H

#include <stdint.h>
#include <string.h>

enum message_kind { MESSAGE_READY = 1, MESSAGE_FREE, MESSAGE_START, MESSAGE_FAIL, MESSAGE_STOP, MESSAGE_LOOK };

#define MESSAGE_COUNT_MAX UINT8_MAX
#define MESSAGE_PORT_MAX UINT16_MAX

struct message {
    uint32_t actor; /* plan_actor_id of the one that it goes to */
    uint16_t port;
    uint8_t kind;
    uint8_t count;
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

#endif
