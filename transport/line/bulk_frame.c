/* transport/line/bulk_frame.c: see the header. Fixed places rather than MessagePack: a small slot's head is most of what
 * it costs.
 *
 *     0 bytes u64 | 8 kind u8 | 9 flags u8 | 10 count u16 | 12 edge u32 | 16 slot u32 | 20 shape u32
 */
#include "transport/line/bulk_frame.h"

#include <string.h>

#include "transport/line/wire.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as they lie");

enum { FLAG_INITIAL = 1 };

void bulk_head_encode(const struct bulk_head *head, unsigned char bytes[BULK_HEAD_BYTES])
{
    memcpy(bytes, &head->bytes, 8);
    bytes[8] = (unsigned char)head->kind;
    bytes[9] = head->initial ? FLAG_INITIAL : 0;
    memcpy(bytes + 10, &head->count, 2);
    memcpy(bytes + 12, &head->edge, 4);
    memcpy(bytes + 16, &head->slot, 4);
    memcpy(bytes + 20, &head->shape, 4);
}

const char *bulk_head_decode(const unsigned char bytes[BULK_HEAD_BYTES], struct bulk_head *head)
{
    *head = (struct bulk_head){.kind = bytes[8], .initial = bytes[9] & FLAG_INITIAL};
    memcpy(&head->bytes, bytes, 8);
    memcpy(&head->count, bytes + 10, 2);
    memcpy(&head->edge, bytes + 12, 4);
    memcpy(&head->slot, bytes + 16, 4);
    memcpy(&head->shape, bytes + 20, 4);
    bool slot = head->kind == BULK_SLOT;
    if (bytes[8] == 0 || bytes[8] >= BULK_KIND_END)
        return "a frame of no kind";
    if (bytes[9] > (slot ? FLAG_INITIAL : 0) || (head->kind != BULK_FRAME && head->count) ||
        (!slot && (head->edge || head->slot || head->shape)))
        return "a frame with fields that its kind does not have";
    if (head->kind == BULK_WORDS && (!head->bytes || head->bytes % sizeof(uint64_t)))
        return "messages in a payload of another size";
    if (head->kind == BULK_FRAME && (!head->count || head->count > WIRE_HEADER_MAX || head->count > head->bytes))
        return "a frame without a header";
    return NULL;
}
