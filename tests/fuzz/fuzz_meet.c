/* tests/fuzz/fuzz_meet.c: bytes that claim to be a frame of the meet.
 *
 * A decoded frame must come back from its own encoding unchanged, and an OPS frame must survive being compared, with
 * itself and with another.
 */
#include "tests/fuzz/fuzz.h"
#include "transport/meet/ops.h"
#include "transport/line/wire.h"

#include <string.h>

const char *const fuzz_corpus = "tests/fuzz/corpus/meet";

static void compare(struct meet_frame *frame)
{
    char text[MEET_TEXT_MAX + 1];
    const struct meet_plan plan = {.hash = 1}, other = {.hash = 2, .seed = 3};
    struct op_list ours = {.ops = NULL}, theirs = {.ops = NULL};
    uint32_t half = frame->ops.count / 2;
    if (op_list_add(&ours, frame->ops.op, frame->ops.count - half) == WEIR_OK &&
        op_list_add(&theirs, frame->ops.op + half, frame->ops.count - half) == WEIR_OK) {
        difference_text(&ours, &plan, &theirs, &plan, 1, text);
        difference_text(&ours, &plan, &ours, &other, 1, text);
        if (strlen(text) > MEET_TEXT_MAX)
            __builtin_trap();
    }
    op_list_free(&ours);
    op_list_free(&theirs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct meet_frame frame, again;
    unsigned char bytes[MEET_FRAME_MAX];
    if (meet_decode(data, size, &frame) != WEIR_OK || frame.version != WIRE_VERSION)
        return 0;
    size_t count = meet_encode(&frame, bytes);
    if (!count || meet_decode(bytes, count, &again) != WEIR_OK || memcmp(&frame, &again, sizeof frame) != 0)
        __builtin_trap();
    if (frame.kind == MEET_OPS)
        compare(&frame);
    return 0;
}
