/* tests/fuzz/fuzz_rates.c: bytes that claim to be a file of rates. The first line and the hash of the last are made right, so that
 * the lines between are read. Rates that were read are written, and read again as the same; and each call gets a time from the others. */
#include "graph/base/base.h"
#include "graph/time/fit.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const fuzz_corpus = "tests/fuzz/corpus/rates";

static void write_again(weir_rates *rates)
{
    size_t bytes;
    char *text = rates_text(rates, &bytes);
    weir_rates *again = text ? rates_parse("again", text, bytes) : NULL;
    char *same = again ? rates_text(again, &bytes) : NULL;
    if (text && (!same || strcmp(text, same) != 0))
        __builtin_trap();
    weir_rates_free(again);
    free(same);
    free(text);
}

static void fit_calls(const weir_rates *rates)
{
    fits *f = fits_new(rates);
    for (uint32_t i = 0; f && i < rates->call_count; i++) {
        time_call call = {.flops = rates->calls[i].bytes, .bytes = rates->calls[i].flops};
        if (!fits_time(f, rates->calls[i].text, &call) || call.ps[TIME_FAR] < call.ps[TIME_WARM])
            __builtin_trap();
    }
    fits_free(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char first[] = "weir rates 1\n";
    enum { FIRST = sizeof first - 1, LAST = 32 };
    char *text = malloc(FIRST + size + LAST);
    if (!text)
        return 0;
    memcpy(text, first, FIRST);
    memcpy(text + FIRST, bytes, size);
    const int last = snprintf(text + FIRST + size, LAST, "hash %016llx\n", (unsigned long long)hash_more(HASH_START, text, FIRST + size));
    weir_rates *rates = rates_parse("fuzz", text, FIRST + size + (size_t)last);
    if (rates) {
        write_again(rates);
        fit_calls(rates);
    }
    weir_rates_free(rates);
    weir_rates_free(rates_parse("fuzz", (const char *)bytes, size));
    free(text);
    return 0;
}
