/* graph/time/rates.h: how long things take on a machine, as `weir measure` found it, and the text file of it.
 *
 *     weir rates 1
 *     call warm=1930000000 near=1960000000 far=2010000000 band=2300000000 core=1930000000 flops=805306368 bytes=2359296 n=9 matmul a=...
 *     call warm=9000000 near=9000000 far=12000000 band=12000000 core=9000000 flops=805306368 bytes=2359296 n=9 cuda:matmul a=...
 *     caches l2=1048576 l3=33554432
 *     card cuda launch=4000000 mark=5000000 done=9000000 l2=52428800
 *     collective cuda all_reduce n=4 time=4096:20000000,1048576:45000000
 *     copy cuda in once=64:9000000,1048576:30000000 stream=64:3000000,1048576:21000000
 *     hand same=12000 worker=230000 process=410000
 *     link loopback tcp once=64:6700000,65536:75000000 stream=64:330000,65536:33000000 sends=64:900000 receives=64:800000
 *     machine cores=2 level=native-v4
 *     noise p50=1008 p90=1100 noisy=0
 *     threads count=1 bytes_s=13500000000 flops_s=118000000000
 *     threads count=2 bytes_s=26800000000 flops_s=236000000000
 *     hash 0123456789abcdef
 *
 * All numbers are whole: times in picoseconds, sizes in bytes, ratios in thousandths. A curve is a list of sizes and their times
 * (graph/time/link.h); a link that was not measured has no line. Lines of accelerators: graph/time/card.h. Lines between the first and the last are
 * sorted; the last is the hash of those before it (FNV-1a).
 */
#ifndef GRAPH_TIME_RATES_H
#define GRAPH_TIME_RATES_H

#include <weir/time.h>

#include "graph/time/card.h"
#include "graph/time/link.h"

#define TIME_PS_S 1e12 /* picoseconds of a second */

/* Where a call's operands were before: in the core's own cache, in the cache of all cores, in memory. */
typedef enum time_place { TIME_WARM, TIME_NEAR, TIME_FAR, TIME_PLACES } time_place;

typedef struct time_call {
    char *text;              /* owned (graph/time/call.h) */
    uint64_t ps[TIME_PLACES];
    uint64_t band, core;     /* ps: far while all other cores stream through memory, warm while they compute; at least as alone */
    uint64_t flops, bytes;   /* of a call */
    uint64_t samples;
} time_call;

/* Threads that all stream through memory, or all compute. */
typedef struct rates_threads {
    uint64_t count, bytes_s, flops_s; /* of all together */
} rates_threads;

enum { RATES_THREADS_MAX = 16 };

struct weir_rates {
    time_call *calls;        /* owned, sorted by text */
    uint32_t call_count, call_room;
    uint64_t l2, l3;         /* bytes: of a core, of all of them */
    uint64_t same, worker, process; /* ps: of a firing beside its kernels; until a message is there, on another worker, in another
                                process */
    time_link links[TIME_APARTS][TIME_CARRIERS];
    time_card cards[WEIR_DEVICE_KINDS];
    uint64_t cores;
    rates_threads threads[RATES_THREADS_MAX];
    uint32_t threads_count;
    char level[32];          /* of the kernels' instructions (op_level()) */
    uint64_t noise_p50, noise_p90; /* thousandths of the 10th percentile that a fixed piece of work took, by turns */
    uint64_t noisy;          /* 1: the machine was too disturbed, and the user wanted the file all the same */
};

weir_rates *rates_new(void); /* NULL: no memory */

/* So many bytes have room in a core's own cache, beside others; and in its share of the cache of all. */
uint64_t rates_near_bytes(const weir_rates *rates);
uint64_t rates_far_bytes(const weir_rates *rates);

/* The call of that text; NULL: it was not measured. */
const time_call *rates_find(const weir_rates *rates, const char *text);

/* Bytes a second that so many threads get of memory: of those measured the nearest from below. 0: nobody knows. */
uint64_t rates_bytes_s(const weir_rates *rates, uint64_t threads);

/* Adds a call, and copies its text. One that is there is replaced. False: no memory. */
bool rates_add(weir_rates *rates, const time_call *call);

/* The text of a file, to be freed. NULL: no memory. */
char *rates_text(const weir_rates *rates, size_t *bytes);

/* The hash that is the last line of their file. False: no memory. */
bool rates_hash(const weir_rates *rates, uint64_t *hash);

/* Reads such a text. NULL and weir_error(), which begins with `path` and the line. */
weir_rates *rates_parse(const char *path, const char *text, size_t bytes);

#endif
