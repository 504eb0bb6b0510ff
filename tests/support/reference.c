/* tests/support/reference.c: the reference training run. Every number here stands in tests/reference/gpt_reference.py
 * too. */
#include "tests/support/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

text reference_text(void)
{
    static const char *const words[16] = {"weir", "water", "gate", "level", "flow",   "stream", "bank", "stone",
                                          "fish", "mill",  "race", "pond",  "sluice", "lock",   "canal", "rain"};
    text corpus = {.bytes = malloc(4096), .files = 1};
    for (uint64_t k = 0; corpus.bytes && corpus.count < 4096; k++) {
        uint32_t draw[4];
        weir_philox(0x77656972, k, 0, draw);
        for (const char *c = words[draw[0] & 15]; *c && corpus.count < 4096; c++)
            corpus.bytes[corpus.count++] = (uint8_t)*c;
        if (corpus.count < 4096)
            corpus.bytes[corpus.count++] = ' ';
    }
    return corpus;
}

gpt_config reference_gpt(const text *corpus, reference_kind kind)
{
    const weir_optimizer plain = weir_adamw(.lr = 1e-3);
    const weir_optimizer full = weir_adamw(.lr = 1e-3, .beta2 = 0.95, .weight_decay = 0.1, .clip_norm = 1.0,
                                           .warmup = 5, .total = 20, .lr_min = 1e-4);
    return (gpt_config){
        .layers = 4,
        .dim = 64,
        .heads = 4,
        .seq = 32,
        .batch = 16,
        .corpus = corpus,
        .data_seed = REFERENCE_SEED,
        .optimizer = kind == REFERENCE_PLAIN ? plain : full,
    };
}

bool reference_losses(reference_kind kind, double loss[REFERENCE_STEPS])
{
    FILE *file = fopen("tests/reference/gpt_losses.csv", "r");
    char line[128];
    int step = -1; /* the first line names the columns */
    for (; file && step < REFERENCE_STEPS && fgets(line, sizeof line, file); step++) {
        int number;
        double plain, full;
        if (step < 0)
            continue;
        if (sscanf(line, "%d,%lf,%lf", &number, &plain, &full) != 3 || number != step)
            break;
        loss[step] = kind == REFERENCE_PLAIN ? plain : full;
    }
    if (file)
        fclose(file);
    return step == REFERENCE_STEPS;
}
