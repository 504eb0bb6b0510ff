/* graph/time/fit.c: see the header.
 *
 * Interpolation on a grid of sizes was rejected: it needs a grid for each op, and calls of plans are on none. Coefficients are found by
 * descent along one coordinate after the other, which keeps each from falling below 0: few calls with sizes that are nearly proportional
 * would else give large ones of both signs.
 */
#include "graph/time/fit.h"

#include "graph/base/base.h"
#include "graph/base/locale.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OPERANDS = 8, COMMON = 7, FEATURES = COMMON + OPERANDS, SIZES = 1 + OPERANDS, LEAST = 3, NEAREST = 6, ROUNDS = 400, VECTOR = 16 };
#define NEAR 0.05       /* a distance that hardly matters */
#define BEYOND 1.0      /* log2 of two */
#define PS_MAX 1e18
#define DIM_MAX 1e12

/* A call by its sizes. */
typedef struct sized {
    uint64_t op, kind;        /* hashes */
    double feature[FEATURES]; /* of the sum */
    double size[SIZES];       /* logarithms: of operations, and of elements of the first operands */
} sized;

typedef struct fitted {
    uint64_t kind;
    double factor[TIME_PLACES][FEATURES];
    double least[SIZES], most[SIZES];
    uint32_t calls;
} fitted;

struct fits {
    const weir_rates *rates;
    sized *sized;          /* owned; by call */
    fitted *kinds;         /* owned */
    uint32_t kind_count, kind_room;
};

/* ---- sizes of a call ---- */

typedef struct operand {
    double elements, rows, last;
} operand;

/* "4x64x128": behind the colon, up to what is no number. */
static const char *take_shape(const char *at, operand *o)
{
    *o = (operand){1, 1, 1};
    while (is_digit(*at)) {
        double dim = 0;
        for (; is_digit(*at); at++)
            dim = dim < DIM_MAX ? 10 * dim + (*at - '0') : DIM_MAX;
        o->rows = o->elements;
        o->last = dim;
        o->elements = o->elements * dim < PS_MAX ? o->elements * dim : PS_MAX;
        at += *at == 'x';
    }
    return at;
}

static void add_operand(sized *s, const operand *o, uint32_t number)
{
    const double tail = fmod(o->last, VECTOR);
    s->feature[4] += o->rows;
    s->feature[5] += o->rows * tail;
    s->feature[6] += tail > 0 ? o->rows : 0;
    if (number < OPERANDS) {
        s->feature[COMMON + number] = o->elements;
        s->size[1 + number] = log2(o->elements + 1);
    }
}

/* The text is as "OP a=HASH f32:2x3,f32:3>f32:2x3;f32:3+". One of another form is of a kind of its own. */
static void size_call(sized *s, const char *text, double flops, double bytes)
{
    const char *at = strchr(text, ' ');
    uint32_t count = 0;
    operand o = {1, 1, 1};
    *s = (sized){.op = hash_more(HASH_START, text, at ? (size_t)(at - text) : strlen(text))};
    s->kind = s->op;
    at = at ? strchr(at + 1, ' ') : NULL;
    while (at && *at) {
        const size_t other = strcspn(at, ":");
        s->kind = hash_more(s->kind, at, other);
        at += other;
        if (*at != ':')
            break;
        at = take_shape(at + 1, &o);
        add_operand(s, &o, count++);
    }
    s->feature[0] = 1;
    s->feature[1] = bytes;
    s->feature[2] = flops;
    s->feature[3] = o.last > 0 ? flops * ceil(o.last / VECTOR) * VECTOR / o.last : flops;
    s->size[0] = log2(flops + 1);
}

/* ---- a kind ---- */

/* A kind is also that of all calls of an op. */
static bool is_of(const sized *s, const fitted *k)
{
    return s->kind == k->kind || s->op == k->kind;
}

static double sum_of(const double *factor, const sized *s)
{
    double sum = 0;
    for (int i = 0; i < FEATURES; i++)
        sum += factor[i] * s->feature[i];
    return sum > 1 ? sum : 1;
}

/* The factors that make the squares of relative errors least. */
static void descend(double H[FEATURES][FEATURES], const double *g, double *x)
{
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < FEATURES; i++) {
            double rest = g[i];
            for (int j = 0; j < FEATURES; j++)
                rest -= j == i ? 0 : H[i][j] * x[j];
            x[i] = H[i][i] > 0 && rest > 0 ? rest / H[i][i] : 0;
        }
}

static double time_of(const time_call *call, int place)
{
    return call->ps[place] ? (double)call->ps[place] : 1;
}

/* A feature of a call for each picosecond that the call takes. */
static double share_of(const fits *f, uint32_t call, int feature, int place)
{
    return f->sized[call].feature[feature] / time_of(&f->rates->calls[call], place);
}

static void fit_place(const fits *f, fitted *k, int place)
{
    double H[FEATURES][FEATURES] = {{0}}, g[FEATURES] = {0}, most[FEATURES] = {0}, a[FEATURES], *x = k->factor[place];
    memset(x, 0, sizeof k->factor[place]);
    for (uint32_t c = 0; c < f->rates->call_count; c++)
        for (int i = 0; i < FEATURES && is_of(&f->sized[c], k); i++)
            most[i] = fmax(most[i], share_of(f, c, i, place));
    for (uint32_t c = 0; c < f->rates->call_count; c++) {
        if (!is_of(&f->sized[c], k))
            continue;
        for (int i = 0; i < FEATURES; i++)
            a[i] = most[i] > 0 ? share_of(f, c, i, place) / most[i] : 0;
        for (int i = 0; i < FEATURES; i++) {
            g[i] += a[i];
            for (int j = 0; j < FEATURES; j++)
                H[i][j] += a[i] * a[j];
        }
    }
    descend(H, g, x);
    for (int i = 0; i < FEATURES; i++)
        x[i] = most[i] > 0 ? x[i] / most[i] : 0;
}

static void fit_kind(const fits *f, fitted *k)
{
    for (uint32_t c = 0; c < f->rates->call_count; c++) {
        const sized *s = &f->sized[c];
        for (int i = 0; i < SIZES && is_of(s, k); i++) {
            k->least[i] = k->calls ? fmin(k->least[i], s->size[i]) : s->size[i];
            k->most[i] = k->calls ? fmax(k->most[i], s->size[i]) : s->size[i];
        }
        k->calls += is_of(s, k);
    }
    for (int p = 0; p < TIME_PLACES; p++) {
        k->factor[p][1] = TIME_PS_S / TIME_GUESSED_BYTES_S; /* with too few calls only their ratio matters */
        k->factor[p][2] = TIME_PS_S / TIME_GUESSED_FLOPS_S;
        if (k->calls >= LEAST)
            fit_place(f, k, p);
    }
}

/* NULL: no memory. It stays there until the next call. */
static const fitted *kind_of(fits *f, uint64_t kind)
{
    for (uint32_t i = 0; i < f->kind_count; i++)
        if (f->kinds[i].kind == kind)
            return &f->kinds[i];
    if (f->kind_count == f->kind_room) {
        const uint32_t room = f->kind_room ? 2 * f->kind_room : 32;
        fitted *kinds = realloc(f->kinds, room * sizeof *kinds);
        if (!kinds)
            return NULL;
        f->kinds = kinds;
        f->kind_room = room;
    }
    fitted *k = &f->kinds[f->kind_count++];
    *k = (fitted){.kind = kind};
    fit_kind(f, k);
    return k;
}

/* ---- a call ---- */

static bool is_beyond(const fitted *k, const sized *s)
{
    if (k->calls < LEAST)
        return false;
    for (int i = 0; i < SIZES; i++)
        if (s->size[i] < k->least[i] - BEYOND || s->size[i] > k->most[i] + BEYOND)
            return true;
    return false;
}

/* The nearest calls of the kind, and how much each counts. */
typedef struct nearest {
    uint32_t call[NEAREST];
    double distance[NEAREST];
    int count;
} nearest;

static double distance_of(const sized *a, const sized *b)
{
    double sum = 0;
    for (int i = 0; i < SIZES; i++)
        sum += (a->size[i] - b->size[i]) * (a->size[i] - b->size[i]);
    return sqrt(sum);
}

static void take_nearest(nearest *n, uint32_t call, double distance)
{
    int i = n->count < NEAREST ? n->count++ : NEAREST;
    for (; i > 0 && n->distance[i - 1] > distance; i--)
        if (i < NEAREST) {
            n->call[i] = n->call[i - 1];
            n->distance[i] = n->distance[i - 1];
        }
    if (i < NEAREST) {
        n->call[i] = call;
        n->distance[i] = distance;
    }
}

static double corrected(const fits *f, const fitted *k, const sized *s, const nearest *n, int place)
{
    double weights = 0, sum = 0;
    for (int i = 0; i < n->count; i++) {
        const double weight = 1 / ((n->distance[i] + NEAR) * (n->distance[i] + NEAR));
        sum += weight * log(time_of(&f->rates->calls[n->call[i]], place) / sum_of(k->factor[place], &f->sized[n->call[i]]));
        weights += weight;
    }
    return sum_of(k->factor[place], s) * (weights > 0 ? exp(sum / weights) : 1);
}

/* To four digits: the last bits of logarithms differ between libraries. */
static uint64_t rounded(double ps)
{
    uint64_t unit = 1;
    const uint64_t whole = ps < PS_MAX ? (uint64_t)ps : (uint64_t)PS_MAX;
    while (whole / unit >= 10000)
        unit *= 10;
    return (whole + unit / 2) / unit * unit;
}

/* As much longer beside others as the nearest measured call is. */
static uint64_t beside(uint64_t ps, uint64_t with, uint64_t alone)
{
    return with > alone && alone ? rounded((double)ps * ((double)with / (double)alone)) : ps;
}

bool fits_time(fits *f, const char *text, time_call *call)
{
    sized s;
    nearest n = {.count = 0};
    size_call(&s, text, (double)call->flops, (double)call->bytes);
    const fitted *k = kind_of(f, s.kind);
    k = k && !k->calls ? kind_of(f, s.op) : k;
    if (!k || !k->calls)
        return false;
    for (uint32_t c = 0; c < f->rates->call_count; c++)
        if (is_of(&f->sized[c], k))
            take_nearest(&n, c, distance_of(&s, &f->sized[c]));
    const time_call *like = &f->rates->calls[n.call[0]];
    n.count = is_beyond(k, &s) ? 0 : n.count;
    for (int p = 0; p < TIME_PLACES; p++) {
        const uint64_t ps = rounded(corrected(f, k, &s, &n, p));
        call->ps[p] = p && ps < call->ps[p - 1] ? call->ps[p - 1] : ps;
    }
    call->band = beside(call->ps[TIME_FAR], like->band, like->ps[TIME_FAR]);
    call->core = beside(call->ps[TIME_WARM], like->core, like->ps[TIME_WARM]);
    return true;
}

fits *fits_new(const weir_rates *rates)
{
    fits *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->rates = rates;
    f->sized = malloc((rates->call_count + (size_t)1) * sizeof *f->sized);
    for (uint32_t c = 0; f->sized && c < rates->call_count; c++)
        size_call(&f->sized[c], rates->calls[c].text, (double)rates->calls[c].flops, (double)rates->calls[c].bytes);
    if (f->sized)
        return f;
    fits_free(f);
    return NULL;
}

void fits_free(fits *f)
{
    if (!f)
        return;
    free(f->sized);
    free(f->kinds);
    free(f);
}

/* ---- times before there is a plan ---- */

static double ratio(double a, double b)
{
    return a > b ? a / b : b / a;
}

static double effort(double flops, double bytes)
{
    return fmax(flops / TIME_GUESSED_FLOPS_S, bytes / TIME_GUESSED_BYTES_S);
}

static bool is_of_op(const char *text, const char *op)
{
    const size_t bytes = strlen(op);
    return !strncmp(text, op, bytes) && text[bytes] == ' ';
}

/* The call of the op whose effort is nearest, as a ratio. No logarithm: that is not the same on all machines. */
static const time_call *nearest_of_op(const weir_rates *rates, const char *op, double wanted)
{
    const time_call *best = NULL;
    double distance = INFINITY;
    for (uint32_t i = 0; i < rates->call_count; i++) {
        const time_call *call = &rates->calls[i];
        const double is = effort((double)call->flops, (double)call->bytes);
        if (!is_of_op(call->text, op) || is <= 0 || ratio(is, wanted) >= distance)
            continue;
        distance = ratio(is, wanted);
        best = call;
    }
    return best;
}

double seconds_of(const weir_rates *rates, const char *op, double flops, double bytes)
{
    const double wanted = effort(flops, bytes);
    const time_call *like = wanted > 0 ? nearest_of_op(rates, op, wanted) : NULL;
    const time_place place = bytes < (double)rates_near_bytes(rates) ? TIME_WARM : bytes < (double)rates_far_bytes(rates) ? TIME_NEAR : TIME_FAR;
    return like ? (double)like->ps[place] / TIME_PS_S * (wanted / effort((double)like->flops, (double)like->bytes)) : 0;
}
