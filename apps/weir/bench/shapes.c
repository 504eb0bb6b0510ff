/* apps/weir/bench/shapes.c: `weir bench shapes`.
 *
 * Blocks of the grid of weir measure --grid, and blocks of random shapes, are measured together, call by call in the order of their
 * texts: a slow spell of the machine hits calls of one op alike. The least of some rounds counts. Then the grid alone gives the times
 * of all calls that are not on it.
 *
 * The machine's own spread is printed beside: by how much the last round differs from the least.
 */
#include "apps/weir/bench/shapes.h"

#include "apps/weir/shapes.h"
#include "graph/base/error.h"
#include "graph/time/call.h"
#include "graph/time/fit.h"

#include <math.h>
#include <stdlib.h>

enum { PLANS_MAX = 64, RANDOM = 16, RANDOM_QUICK = 2, ROUNDS = 3, SEED = 20 };

typedef struct measured {
    weir_plan *plans[PLANS_MAX]; /* owned: the grid, then random ones */
    int grid, count;
    weir_rates *least, *last, *on_grid; /* owned */
} measured;

/* ---- plans ---- */

/* Between two sizes, evenly in their logarithms; a multiple. */
static int64_t drawn(int number, int which, int64_t least, int64_t most, int64_t multiple)
{
    const double x = log((double)least) + log((double)most / (double)least) * (double)weir_random_uniform(SEED + (uint64_t)number, (uint64_t)which);
    const int64_t times = (int64_t)(exp(x) / (double)multiple + 0.5);
    return multiple * (times > 0 ? times : 1);
}

static shapes random_shapes(int number)
{
    const int64_t heads = drawn(number, 0, 1, 10, 1);
    return (shapes){.batch = drawn(number, 1, 1, 5, 1), .seq = drawn(number, 2, 8, 220, 1), .dim = heads * drawn(number, 3, 8, 56, 8),
                    .heads = heads, .hidden = drawn(number, 4, 32, 2048, 8), .classes = drawn(number, 5, 16, 1200, 1)};
}

static weir_status compile(measured *m, bool quick)
{
    shapes s;
    for (; m->grid < PLANS_MAX && shapes_grid(m->grid, &s); m->grid++)
        if (!(m->plans[m->grid] = shapes_plan(&s)))
            return WEIR_E_GRAPH;
    const int all = m->grid + (quick ? RANDOM_QUICK : RANDOM);
    for (m->count = m->grid; m->count < all && m->count < PLANS_MAX; m->count++) {
        s = random_shapes(m->count - m->grid);
        if (!(m->plans[m->count] = shapes_plan(&s)))
            return WEIR_E_GRAPH;
    }
    return WEIR_OK;
}

/* ---- measured ---- */

static void keep_least(weir_rates *least, const weir_rates *others)
{
    for (uint32_t i = 0; i < least->call_count; i++) {
        const time_call *other = rates_find(others, least->calls[i].text);
        for (int p = 0; other && p < TIME_PLACES; p++)
            least->calls[i].ps[p] = other->ps[p] < least->calls[i].ps[p] ? other->ps[p] : least->calls[i].ps[p];
    }
}

static weir_status measure_rounds(measured *m, int rounds)
{
    for (int r = 0; r < rounds; r++) {
        weir_rates_free(m->last);
        m->last = weir_measure((const weir_plan *const *)m->plans, m->count, .noisy = true);
        if (!m->last)
            return WEIR_E_STATE;
        if (!m->least && !(m->least = weir_measure((const weir_plan *const *)m->plans, m->count, .noisy = true)))
            return WEIR_E_STATE;
        keep_least(m->least, m->last);
    }
    return WEIR_OK;
}

/* Takes the calls of the grid out of all. */
static weir_status take_grid(measured *m)
{
    char *text = malloc(TIME_CALL_BYTES);
    m->on_grid = rates_new();
    bool ok = text && m->on_grid;
    for (int i = 0; ok && i < m->grid; i++)
        for (uint32_t k = 0; ok && k < m->plans[i]->kernels_count; k++) {
            const time_call *call = time_call_text(m->plans[i], k, text) ? rates_find(m->least, text) : NULL;
            ok = !call || rates_add(m->on_grid, call);
        }
    free(text);
    return ok ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for the calls of the grid");
}

/* ---- compared ---- */

typedef struct errors {
    double median, worst20; /* a twentieth are larger */
    double spread;          /* of the machine: the same quantile of its own differences */
    int count;
} errors;

static double off(uint64_t a, uint64_t b)
{
    return b ? fabs((double)a / (double)b - 1) : 0;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static weir_status compare(const measured *m, time_place place, errors *to)
{
    fits *f = fits_new(m->on_grid);
    double *own = calloc(m->least->call_count + (size_t)1, sizeof *own), *spread = calloc(m->least->call_count + (size_t)1, sizeof *spread);
    *to = (errors){.count = 0};
    for (uint32_t i = 0; f && own && spread && i < m->least->call_count; i++) {
        const time_call *call = &m->least->calls[i];
        time_call other = {.flops = call->flops, .bytes = call->bytes};
        if (rates_find(m->on_grid, call->text) || !fits_time(f, call->text, &other))
            continue;
        own[to->count] = off(other.ps[place], call->ps[place]);
        spread[to->count++] = off(rates_find(m->last, call->text)->ps[place], call->ps[place]);
    }
    if (own && spread && to->count) {
        qsort(own, (size_t)to->count, sizeof *own, compare_doubles);
        qsort(spread, (size_t)to->count, sizeof *spread, compare_doubles);
        to->median = own[to->count / 2];
        to->worst20 = own[to->count * 19 / 20];
        to->spread = spread[to->count * 19 / 20];
    }
    fits_free(f);
    free(own);
    free(spread);
    return to->count ? WEIR_OK : error_set(WEIR_E_STATE, "no call was predicted");
}

static void print(time_place place, const errors *e, uint32_t others, bool json, FILE *to)
{
    static const char *const names[TIME_PLACES] = {"warm", "near", "far"};
    if (json)
        fprintf(to, "%s\"%s\": {\"calls\": %d, \"median\": %.4f, \"p95\": %.4f, \"spread_p95\": %.4f}", place ? ", " : "{", names[place],
                e->count, e->median, e->worst20, e->spread);
    else
        fprintf(to, "%-5s %d calls from %u others: half are off by less than %.1f %%, 19 of 20 by less than %.1f %%; the machine's own: %.1f %%\n",
                names[place], e->count, others, 100 * e->median, 100 * e->worst20, 100 * e->spread);
}

weir_status bench_shapes(bool json, bool quick, FILE *to)
{
    measured m = {.count = 0};
    errors e;
    weir_status status = compile(&m, quick);
    status = status ? status : measure_rounds(&m, quick ? 1 : ROUNDS);
    status = status ? status : take_grid(&m);
    for (int p = 0; p < TIME_PLACES && !status; p++) {
        status = compare(&m, (time_place)p, &e);
        if (!status)
            print((time_place)p, &e, m.on_grid->call_count, json, to);
    }
    fputs(json && !status ? "}\n" : "", to);
    weir_rates_free(m.least);
    weir_rates_free(m.last);
    weir_rates_free(m.on_grid);
    for (int i = 0; i < PLANS_MAX; i++)
        weir_plan_free(m.plans[i]);
    return status;
}
