/* transport/line/bulk_frame.h: the heads of what goes over a stream between two ranks. docs/wire.md describes them for
 * people.
 *
 *     [ head | payload ][ head | payload ] ...        a head has 24 bytes, little-endian
 *
 *     kind    payload                                 in the head
 *     SLOT    the spans of a transfer                 edge, slot; initial; shape: of the spans' sizes (links.h)
 *     WORDS   bus messages of 8 bytes                 nothing more
 *     FRAME   a header frame (wire.h), its payload    count: bytes of the header frame
 *
 * Decoding checks form alone. The user of a number checks what it means to the session. Nothing here allocates.
 */
#ifndef TRANSPORT_LINE_BULK_FRAME_H
#define TRANSPORT_LINE_BULK_FRAME_H

#include <stdbool.h>
#include <weir/base.h>

#define BULK_HEAD_BYTES 24

enum bulk_kind { BULK_SLOT = 1, BULK_WORDS, BULK_FRAME, BULK_KIND_END };

struct bulk_head {
    enum bulk_kind kind;
    bool initial;   /* SLOT */
    uint16_t count; /* FRAME */
    uint32_t edge, slot, shape; /* SLOT */
    uint64_t bytes; /* of the payload */
};

void bulk_head_encode(const struct bulk_head *head, unsigned char bytes[BULK_HEAD_BYTES]);

/* NULL, or what is wrong with it. */
const char *bulk_head_decode(const unsigned char bytes[BULK_HEAD_BYTES], struct bulk_head *head);

#endif
