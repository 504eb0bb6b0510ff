/* tests/fuzz/fuzz_wire.c: bytes that claim to be a header frame of the bus. A decoded frame must fit into a header, and
 * come back from its own encoding unchanged.
 */
#include "tests/fuzz/fuzz.h"
#include "transport/line/wire.h"

#include <string.h>

const char *const fuzz_corpus = "tests/fuzz/corpus/wire";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wire_frame frame, again;
    unsigned char bytes[WIRE_HEADER_MAX];
    if (wire_decode(data, size, &frame) != WEIR_OK)
        return 0;
    size_t count = wire_encode(&frame, bytes);
    if (!count || wire_decode(bytes, count, &again) != WEIR_OK || memcmp(&frame, &again, sizeof frame) != 0)
        __builtin_trap();
    return 0;
}
