/* apps/weir/show_ranks.c: see the header. */
#include "apps/weir/show_ranks.h"

#include <stdlib.h>

#include "apps/common/measure.h"
#include "graph/base/error.h"
#include "graph/plan/spread/spread.h"
#include "transport/line/links.h"

/* Of one rank. Slots and bytes of those that may be under way at once. */
struct traffic {
    uint64_t sent_slots, sent_bytes, received_slots, received_bytes, in_place_bytes;
};

static weir_status traffic_of(const weir_plan *spread, uint32_t rank, const bool *wired, struct traffic *traffic)
{
    struct links links;
    weir_status status = links_open(&links, spread, rank, wired);
    if (status)
        return status;
    for (uint32_t i = 0; i < links.transfers_count; i++) {
        const struct transfer *transfer = &links.transfers[i];
        uint64_t slots = spread->regsts[transfer->regst].slots;
        bool sends = transfer->from == rank;
        *(sends ? &traffic->sent_slots : &traffic->received_slots) += transfer->in_place ? 0 : slots;
        traffic->sent_bytes += sends ? slots * transfer->bytes : 0;
    }
    traffic->received_bytes = links.receive_bytes;
    traffic->in_place_bytes = links.in_place_bytes;
    links_close(&links);
    return WEIR_OK;
}

static void say_json(const struct traffic *traffic, int ranks, FILE *to)
{
    fprintf(to, "[");
    for (int r = 0; r < ranks; r++)
        fprintf(to, "%s{\"rank\": %d, \"transfer_bytes\": %llu, \"receive_slots\": %llu, \"send_slots\": %llu, "
                    "\"send_bytes\": %llu, \"in_place_bytes\": %llu}", r ? ", " : "", r,
                (unsigned long long)traffic[r].received_bytes, (unsigned long long)traffic[r].received_slots,
                (unsigned long long)traffic[r].sent_slots, (unsigned long long)traffic[r].sent_bytes,
                (unsigned long long)traffic[r].in_place_bytes);
    fprintf(to, "]\n");
}

static void say_table(const struct traffic *traffic, int ranks, FILE *to)
{
    char received[32], sent[32], in_place[32];
    fprintf(to, "%d ranks, each on a host of its own: transfer memory, beside that of devices\n", ranks);
    fprintf(to, "%6s %14s %14s %18s %12s %18s\n", "rank", "receive slots", "their memory", "received in place",
            "slots sent", "their contents");
    for (int r = 0; r < ranks; r++)
        fprintf(to, "%6d %14llu %14s %18s %12llu %18s\n", r, (unsigned long long)traffic[r].received_slots,
                measure_bytes_text(traffic[r].received_bytes, received),
                measure_bytes_text(traffic[r].in_place_bytes, in_place), (unsigned long long)traffic[r].sent_slots,
                measure_bytes_text(traffic[r].sent_bytes, sent));
}

weir_status show_ranks(const weir_plan *plan, int ranks, int devices, bool json, FILE *to)
{
    weir_plan *spread = plan_spread(plan, (uint32_t)ranks, (uint32_t)devices);
    struct traffic *traffic = calloc((size_t)ranks, sizeof(*traffic));
    bool *wired = malloc((size_t)ranks * sizeof(*wired));
    weir_status status = !spread ? WEIR_E_ARGUMENT : WEIR_OK;
    if (spread && (!traffic || !wired))
        status = error_set(WEIR_E_MEMORY, "no memory for %d ranks", ranks);
    for (int r = 0; !status && r < ranks; r++) {
        for (int other = 0; other < ranks; other++)
            wired[other] = other != r;
        status = traffic_of(spread, (uint32_t)r, wired, &traffic[r]);
    }
    if (!status)
        (json ? say_json : say_table)(traffic, ranks, to);
    free(wired);
    free(traffic);
    weir_plan_free(spread);
    return status;
}
