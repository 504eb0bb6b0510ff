/* tests/fuzz/fuzz_checkpoint.c: bytes that claim to be a checkpoint's index.
 *
 * A mutated text almost never has the right checksum, so it is read without that check too. An index that is then
 * accepted must be complete: every element of every slot is in one shard. And it must come back from its own encoding,
 * byte for byte.
 */
#include "actors/keep/format/index.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

const char *const fuzz_corpus = "tests/fuzz/corpus/checkpoint";

static void check(const struct keep_index *index)
{
    for (int t = 0; t < index->tensors.count; t++) {
        const weir_checkpoint_tensor *is = &index->tensors.item[t].is;
        int64_t elements = 0;
        for (int s = 0; s < is->shard_count; s++) {
            const weir_checkpoint_shard *shard = &is->shard[s];
            elements += weir_shape_count(&shard->shape);
            if (shard->file >= index->files.count ||
                shard->offset + shard->bytes > index->files.item[shard->file].bytes)
                __builtin_trap();
        }
        if (elements != weir_shape_count(&is->shape) * is->slots || keep_index_find(index, is->name) == NULL)
            __builtin_trap();
    }
}

static void encode_again(const struct keep_index *index)
{
    struct keep_index again;
    size_t count, count_again;
    char *text = keep_index_encode(index, &count);
    if (!text || keep_index_decode(&again, "again", text, count) || keep_index_settle(&again, "again"))
        __builtin_trap();
    char *text_again = keep_index_encode(&again, &count_again);
    if (!text_again || count != count_again || memcmp(text, text_again, count) != 0)
        __builtin_trap();
    free(text);
    free(text_again);
    keep_index_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct keep_index index;
    if (keep_index_decode(&index, "fuzz", (const char *)data, size) == WEIR_OK)
        keep_index_settle(&index, "fuzz");
    keep_index_free(&index);
    if (keep_index_decode_unsealed(&index, "fuzz", (const char *)data, size) == WEIR_OK &&
        keep_index_settle(&index, "fuzz") == WEIR_OK) {
        check(&index);
        encode_again(&index);
    }
    keep_index_free(&index);
    return 0;
}
