/* tests/fuzz/fuzz_finetune.c: bytes that claim to be conversations, a line of JSON each, or an adapter_config.json. Each sample that is read
 * has a token and a label that counts, and fills rows; settings that are read are in their ranges, and come back when they are written. */
#define _GNU_SOURCE
#include "apps/common/model/adapter.h"
#include "apps/common/model/lm.h"
#include "apps/common/model/samples.h"
#include "tests/fuzz/file.h"
#include "tests/support/bytes_tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const fuzz_corpus = "tests/fuzz/corpus/finetune";
enum { SEQ = 24 };

static char folder[] = "/tmp/weir-fuzz-XXXXXX";

static void require(bool holds)
{
    if (!holds)
        __builtin_trap();
}

static void remove_folder(void)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "adapter_config.json"};
    char path[64];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static struct encoder *encoder_once(void)
{
    static struct encoder *encoder;
    if (encoder)
        return encoder;
    require(mkdtemp(folder) && bytes_tokenizer_write(folder));
    atexit(remove_folder);
    encoder = encoder_new(tokenizer_read(folder));
    require(encoder);
    return encoder;
}

static void check_samples(const samples *s)
{
    int32_t rows[2][SEQ];
    for (size_t i = 0; i < s->count; i++) {
        const samples_range one = {.of = s, .first = i, .count = 1};
        int counts = 0;
        for (int labels = 0; labels < 2; labels++) {
            const weir_view view = {.dtype = WEIR_I32, .shape = {2, {1, SEQ}}, .data = rows[labels]};
            samples_fill(&one, 3, labels, &view);
        }
        for (int t = 0; t < SEQ; t++) {
            require(rows[0][t] >= 0 && rows[0][t] < BYTES_TOKENIZER_SIZE);
            require(rows[1][t] == LM_IGNORED || (rows[1][t] >= 0 && rows[1][t] < BYTES_TOKENIZER_SIZE));
            counts += rows[1][t] != LM_IGNORED;
        }
        require(counts > 0);
    }
}

static void check_adapter(const adapter *a)
{
    adapter again;
    char why[1024];
    require(a->rank >= 1 && a->rank <= ADAPTER_RANK_MAX && a->targets >= 1 && a->targets <= ADAPTER_TARGETS_MAX);
    require(a->alpha - a->alpha == 0 && a->dropout >= 0 && a->dropout < 1);
    require(adapter_write(folder, a, why, sizeof why) && adapter_read(folder, &again, why, sizeof why));
    require(again.rank == a->rank && again.alpha == a->alpha && again.dropout == a->dropout && again.targets == a->targets);
    require(!memcmp(again.target, a->target, sizeof a->target) && !strcmp(again.base, a->base));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const samples_reader reader = {encoder_once(), SEQ, BYTES_TOKENIZER_END};
    char path[FUZZ_PATH], why[1024] = "";
    samples all = {.ids = 0};
    adapter a;
    const int fd = fuzz_file(data, size, path);
    if (fd < 0)
        return 0;
    if (samples_add_chat(&all, &reader, path, why, sizeof why))
        check_samples(&all);
    else
        require(*why);
    samples_free(&all);
    *why = '\0';
    if (adapter_read_config(path, &a, why, sizeof why))
        check_adapter(&a);
    else
        require(*why);
    close(fd);
    return 0;
}
