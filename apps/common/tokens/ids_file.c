/* apps/common/tokens/ids_file.c: see the header. */
#include "apps/common/tokens/ids_file.h"

bool ids_write_u16(const struct token_ids *ids, FILE *file)
{
    bool ok = true;
    for (size_t i = 0; i < ids->count && ok; i++)
        ok = fwrite(&(uint16_t){(uint16_t)ids->id[i]}, 2, 1, file) == 1;
    return ok;
}

bool ids_write_u32(const struct token_ids *ids, FILE *file)
{
    const int32_t head[LLMC_NUMBERS] = {LLMC_U32, LLMC_U32_VERSION, (int32_t)ids->count};
    return fwrite(head, sizeof head, 1, file) == 1 && fwrite(ids->id, sizeof *ids->id, ids->count, file) == ids->count;
}
