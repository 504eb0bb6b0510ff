/* apps/common/tokens/ids_file.h: files of token ids, as weir_data_tokens() reads them.
 *
 *     u16    nothing but the ids, of two bytes: nanoGPT's files
 *     u32    llm.c's: a header of 256 numbers, which are a magic number, the version and how many ids there are, and zeros; then the
 *            ids, of four bytes
 */
#ifndef APPS_COMMON_TOKENS_IDS_FILE_H
#define APPS_COMMON_TOKENS_IDS_FILE_H

#include "apps/common/tokens/tokenizer.h"

#include <stdio.h>

/* The header of llm.c's files: how many numbers it has, what it begins with, and the version. */
enum { LLMC_NUMBERS = 256, LLMC_U16 = 20240520, LLMC_U16_VERSION = 1, LLMC_U32 = 20240801, LLMC_U32_VERSION = 7 };

/* Ids are below 65,536; or there are at most INT32_MAX. False with errno: the file cannot be written. */
bool ids_write_u16(const struct token_ids *ids, FILE *file);
bool ids_write_u32(const struct token_ids *ids, FILE *file);

#endif
