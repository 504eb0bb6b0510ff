/* graph/time/rates.c: see the header. */
#include "graph/time/rates.h"

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "graph/base/reading.h"
#include "graph/base/replaced.h"
#include "graph/time/call.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#define FIRST_LINE "weir rates 1"
enum {
    LINE_BYTES = TIME_CALL_BYTES + 512,
    FILE_BYTES = 1 << 28,
    FIRST_BYTES = sizeof FIRST_LINE,
    LAST_BYTES = sizeof "hash 0123456789abcdef\n" - 1
};

/* A number of a line: its key there, and where the uint64_t is in its structure; or a curve. */
typedef struct number {
    const char *key;
    size_t at;
} number;

static const number call_numbers[] = {{"warm", offsetof(time_call, ps[TIME_WARM])}, {"near", offsetof(time_call, ps[TIME_NEAR])},
                                      {"far", offsetof(time_call, ps[TIME_FAR])},   {"band", offsetof(time_call, band)},
                                      {"core", offsetof(time_call, core)},          {"flops", offsetof(time_call, flops)},
                                      {"bytes", offsetof(time_call, bytes)},        {"n", offsetof(time_call, samples)},
                                      {NULL, 0}};
static const number cache_numbers[] = {{"l2", offsetof(weir_rates, l2)}, {"l3", offsetof(weir_rates, l3)}, {NULL, 0}};
static const number hand_numbers[] = {
    {"same", offsetof(weir_rates, same)}, {"worker", offsetof(weir_rates, worker)}, {"process", offsetof(weir_rates, process)}, {NULL, 0}};
static const number link_curves[] = {{"once", offsetof(time_link, once)}, {"stream", offsetof(time_link, stream)},
                                     {"sends", offsetof(time_link, sends)}, {"receives", offsetof(time_link, receives)}, {NULL, 0}};
static const number card_numbers[] = {{"launch", offsetof(time_card, launch)}, {"mark", offsetof(time_card, mark)},
                                      {"done", offsetof(time_card, done)},     {"l2", offsetof(time_card, l2)},
                                      {NULL, 0}};
static const number collective_numbers[] = {{"n", offsetof(time_collective, members)}, {NULL, 0}};
static const number collective_curves[] = {{"time", offsetof(time_collective, time)}, {NULL, 0}};
static const number copy_curves[] = {{"once", offsetof(time_copy, once)}, {"stream", offsetof(time_copy, stream)}, {NULL, 0}};
static const number machine_numbers[] = {{"cores", offsetof(weir_rates, cores)}, {NULL, 0}};
static const number noise_numbers[] = {
    {"p50", offsetof(weir_rates, noise_p50)}, {"p90", offsetof(weir_rates, noise_p90)}, {"noisy", offsetof(weir_rates, noisy)}, {NULL, 0}};
static const number threads_numbers[] = {{"count", offsetof(rates_threads, count)}, {"bytes_s", offsetof(rates_threads, bytes_s)},
                                         {"flops_s", offsetof(rates_threads, flops_s)}, {NULL, 0}};

weir_rates *rates_new(void)
{
    return calloc(1, sizeof(weir_rates));
}

void weir_rates_free(weir_rates *rates)
{
    for (uint32_t i = 0; rates && i < rates->call_count; i++)
        free(rates->calls[i].text);
    if (rates)
        free(rates->calls);
    free(rates);
}

/* ---- calls ---- */

/* The first place whose text is not before. */
static uint32_t place_of(const weir_rates *rates, const char *text)
{
    uint32_t first = 0, end = rates->call_count;
    while (first < end) {
        const uint32_t middle = first + (end - first) / 2;
        if (strcmp(rates->calls[middle].text, text) < 0)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

const time_call *rates_find(const weir_rates *rates, const char *text)
{
    const uint32_t at = place_of(rates, text);
    return at < rates->call_count && !strcmp(rates->calls[at].text, text) ? &rates->calls[at] : NULL;
}

uint64_t rates_near_bytes(const weir_rates *rates)
{
    return rates->l2 / 2;
}

uint64_t rates_far_bytes(const weir_rates *rates)
{
    return rates->l3 / (rates->cores ? rates->cores : 1);
}

uint64_t rates_bytes_s(const weir_rates *rates, uint64_t threads)
{
    uint64_t nearest = 0, bytes_s = 0;
    for (uint32_t i = 0; i < rates->threads_count; i++)
        if (rates->threads[i].count >= nearest && rates->threads[i].count <= threads) {
            nearest = rates->threads[i].count;
            bytes_s = rates->threads[i].bytes_s;
        }
    return bytes_s;
}

static bool calls_grow(weir_rates *rates)
{
    const uint32_t room = rates->call_room ? 2 * rates->call_room : 64;
    time_call *calls = realloc(rates->calls, room * sizeof *calls);
    if (!calls)
        return false;
    rates->calls = calls;
    rates->call_room = room;
    return true;
}

bool rates_add(weir_rates *rates, const time_call *call)
{
    const uint32_t at = place_of(rates, call->text);
    const bool there = at < rates->call_count && !strcmp(rates->calls[at].text, call->text);
    char *text = there ? rates->calls[at].text : strdup(call->text);
    if (!text || (!there && rates->call_count == rates->call_room && !calls_grow(rates))) {
        free(there ? NULL : text);
        return false;
    }
    if (!there) {
        memmove(&rates->calls[at + 1], &rates->calls[at], (rates->call_count - at) * sizeof *rates->calls);
        rates->call_count++;
    }
    rates->calls[at] = *call;
    rates->calls[at].text = text;
    return true;
}

/* ---- written ---- */

typedef struct written {
    char *text; /* owned until it is returned */
    size_t used, room;
    bool failed;
} written;

static void put(written *w, const char *text)
{
    const size_t bytes = strlen(text);
    if (!w->failed && w->used + bytes + 1 > w->room) {
        const size_t room = 2 * (w->used + bytes) + 4096;
        char *grown = realloc(w->text, room);
        w->failed = !grown;
        w->text = grown ? grown : w->text;
        w->room = grown ? room : w->room;
    }
    if (w->failed)
        return;
    memcpy(w->text + w->used, text, bytes + 1);
    w->used += bytes;
}

static void put_numbers(written *w, const char *name, const number *numbers, const void *of)
{
    char text[64];
    uint64_t value;
    put(w, name);
    for (; numbers->key; numbers++) {
        memcpy(&value, (const char *)of + numbers->at, sizeof value);
        text_print(text, sizeof text, " %s=%" PRIu64, numbers->key, value);
        put(w, text);
    }
}

static void put_hash(written *w)
{
    char last[64];
    if (w->failed)
        return;
    text_print(last, sizeof last, "hash %016" PRIx64 "\n", hash_more(HASH_START, w->text, w->used));
    put(w, last);
}

static void put_curve(written *w, const char *key, const time_curve *curve)
{
    char text[64];
    put(w, " "), put(w, key);
    for (uint32_t i = 0; i < curve->count; i++) {
        text_print(text, sizeof text, "%c%" PRIu64 ":%" PRIu64, i ? ',' : '=', curve->bytes[i], curve->ps[i]);
        put(w, text);
    }
}

static void put_curves(written *w, const number *curves, const void *of)
{
    for (; curves->key; curves++)
        put_curve(w, curves->key, (const time_curve *)((const char *)of + curves->at));
}

static void put_link(written *w, const time_link *link, time_apart apart, time_carrier carrier)
{
    put(w, "\nlink "), put(w, time_apart_names[apart]), put(w, " "), put(w, time_carrier_names[carrier]);
    put_curves(w, link_curves, link);
}

/* Begins a line of accelerators. */
static void put_kind(written *w, const char *name, weir_device_kind kind)
{
    put(w, "\n"), put(w, name), put(w, " "), put(w, device_kind_name(kind));
}

static void put_collective(written *w, weir_device_kind kind, const time_collective *c)
{
    put_kind(w, "collective", kind), put(w, " ");
    put_numbers(w, time_collective_name(c->kind), collective_numbers, c);
    put_curves(w, collective_curves, c);
}

static void put_cards(written *w, const weir_rates *rates)
{
    for (int k = 0; k < WEIR_DEVICE_KINDS; k++)
        if (rates->cards[k].mark) {
            put_kind(w, "card", (weir_device_kind)k);
            put_numbers(w, "", card_numbers, &rates->cards[k]);
        }
    for (int k = 0; k < WEIR_DEVICE_KINDS; k++)
        for (uint32_t c = 0; c < rates->cards[k].collectives_count; c++)
            put_collective(w, (weir_device_kind)k, &rates->cards[k].collectives[c]);
    for (int k = 0; k < WEIR_DEVICE_KINDS; k++)
        for (int way = 0; way < TIME_WAYS; way++)
            if (rates->cards[k].copy[way].once.count) {
                put_kind(w, "copy", (weir_device_kind)k), put(w, " "), put(w, time_way_names[way]);
                put_curves(w, copy_curves, &rates->cards[k].copy[way]);
            }
}

static void put_links(written *w, const weir_rates *rates)
{
    for (int a = 0; a < TIME_APARTS; a++)
        for (int c = 0; c < TIME_CARRIERS; c++)
            if (rates->links[a][c].once.count)
                put_link(w, &rates->links[a][c], (time_apart)a, (time_carrier)c);
}

char *rates_text(const weir_rates *rates, size_t *bytes)
{
    written w = {0};
    put(&w, FIRST_LINE "\n");
    for (uint32_t i = 0; i < rates->call_count; i++) {
        put_numbers(&w, "call", call_numbers, &rates->calls[i]);
        put(&w, " "), put(&w, rates->calls[i].text), put(&w, "\n");
    }
    put_numbers(&w, "caches", cache_numbers, rates);
    put_cards(&w, rates);
    put_numbers(&w, "\nhand", hand_numbers, rates);
    put_links(&w, rates);
    put_numbers(&w, "\nmachine", machine_numbers, rates);
    put(&w, " level="), put(&w, rates->level);
    put_numbers(&w, "\nnoise", noise_numbers, rates);
    for (uint32_t i = 0; i < rates->threads_count; i++)
        put_numbers(&w, "\nthreads", threads_numbers, &rates->threads[i]);
    put(&w, "\n");
    put_hash(&w);
    *bytes = w.used;
    if (w.failed)
        free(w.text);
    return w.failed ? NULL : w.text;
}

bool rates_hash(const weir_rates *rates, uint64_t *hash)
{
    size_t bytes;
    char *text = rates_text(rates, &bytes);
    *hash = text ? hash_more(HASH_START, text, bytes - LAST_BYTES) : 0;
    free(text);
    return text;
}

weir_status weir_rates_save(const weir_rates *rates, const char *path)
{
    size_t bytes;
    struct replaced file;
    if (error_null(rates, "weir_rates_save", "rates") || error_null(path, "weir_rates_save", "path"))
        return WEIR_E_ARGUMENT;
    char *text = rates_text(rates, &bytes);
    if (!text)
        return error_set(WEIR_E_MEMORY, "no memory to write rates to %s", path);
    bool ok = replaced_open(&file, path);
    ok = ok && replaced_write(&file, text, bytes);
    ok = replaced_close(&file, ok) && ok;
    free(text);
    return ok ? WEIR_OK : error_set(WEIR_E_IO, "%s: cannot be written: %s", path, strerror(errno));
}

/* ---- read ---- */

/* The line that is read, without its end. */
typedef struct reader {
    const char *path;
    uint32_t line;
    char text[LINE_BYTES];
    const char *at; /* in its text */
} reader;

static bool wrong(const reader *r, const char *what)
{
    error_set(WEIR_E_ARGUMENT, "%s:%u: %s", r->path, r->line, what);
    return false;
}

static bool take_digits(reader *r, uint64_t *value)
{
    for (*value = 0; is_digit(*r->at); r->at++) {
        if (*value > (UINT64_MAX >> 8) / 10)
            return wrong(r, "a number is larger than any time or size");
        *value = 10 * *value + (uint64_t)(*r->at - '0');
    }
    return true;
}

static bool take_number(reader *r, const number *n, void *of)
{
    const size_t key = strlen(n->key);
    if (strncmp(r->at, n->key, key) || r->at[key] != '=' || !is_digit(r->at[key + 1]))
        return wrong(r, "a number is missing, or not where it is in a file that weir measure writes");
    uint64_t value = 0;
    r->at += key + 1;
    if (!take_digits(r, &value))
        return false;
    memcpy((char *)of + n->at, &value, sizeof value);
    r->at += *r->at == ' ';
    return true;
}

static bool take_numbers(reader *r, const number *numbers, void *of)
{
    for (; numbers->key; numbers++)
        if (!take_number(r, numbers, of))
            return false;
    return true;
}

static bool take_call(reader *r, weir_rates *rates)
{
    time_call call = {0};
    if (!take_numbers(r, call_numbers, &call))
        return false;
    call.text = r->text + (r->at - r->text); /* rates_add() copies it */
    if (!*call.text || rates_find(rates, call.text))
        return wrong(r, *call.text ? "the call is there twice" : "the call has no text");
    if (rates_add(rates, &call))
        return true;
    error_set(WEIR_E_MEMORY, "%s: no memory for its calls", r->path);
    return false;
}

static bool take_level(reader *r, weir_rates *rates)
{
    static const char key[] = "level=";
    if (strncmp(r->at, key, sizeof key - 1) || strlen(r->at) - (sizeof key - 1) >= sizeof rates->level)
        return wrong(r, "it names no level of the kernels");
    text_print(rates->level, sizeof rates->level, "%s", r->at + sizeof key - 1);
    return true;
}

/* Takes the word, and a space or the end behind it. */
static bool take_word(reader *r, const char *word)
{
    const size_t bytes = strlen(word);
    if (strncmp(r->at, word, bytes) || (r->at[bytes] && r->at[bytes] != ' '))
        return false;
    r->at += bytes + (r->at[bytes] == ' ');
    return true;
}

static int take_name(reader *r, const char *const *names, int count)
{
    int i = 0;
    while (i < count && !take_word(r, names[i]))
        i++;
    return i;
}

static bool take_point(reader *r, time_curve *curve)
{
    uint64_t bytes = 0, ps = 0;
    if (!is_digit(*r->at) || !take_digits(r, &bytes) || *r->at++ != ':' || !is_digit(*r->at) || !take_digits(r, &ps))
        return wrong(r, "a curve has sizes with their times, as once=64:6700000,65536:75000000");
    if (curve->count && ps < curve->ps[curve->count - 1])
        return wrong(r, "a value takes longer than a larger one");
    return curve_add(curve, bytes, ps) || wrong(r, "sizes of a curve rise, and are 8 at most");
}

static bool take_curve(reader *r, const char *key, time_curve *curve)
{
    const size_t bytes = strlen(key);
    if (strncmp(r->at, key, bytes) || r->at[bytes] != '=')
        return wrong(r, "a curve is missing, or not where it is in a file that weir measure writes");
    for (r->at += bytes + 1; take_point(r, curve); r->at++)
        if (*r->at != ',') {
            r->at += *r->at == ' ';
            return true;
        }
    return false;
}

/* They end the line. */
static bool take_curves(reader *r, const number *curves, void *of)
{
    for (; curves->key; curves++)
        if (!take_curve(r, curves->key, (time_curve *)((char *)of + curves->at)))
            return false;
    return !*r->at || wrong(r, "there is more behind the last curve");
}

static bool take_link(reader *r, weir_rates *rates)
{
    const int apart = take_name(r, time_apart_names, TIME_APARTS), carrier = take_name(r, time_carrier_names, TIME_CARRIERS);
    if (apart == TIME_APARTS || carrier == TIME_CARRIERS)
        return wrong(r, "a link is one of loopback or hosts, and of tcp, tcp+key, ucx or ucx+key");
    time_link *link = &rates->links[apart][carrier];
    if (link->once.count)
        return wrong(r, "the link is there twice");
    return take_curves(r, link_curves, link);
}

static bool take_kind(reader *r, weir_device_kind *kind)
{
    const char *names[WEIR_DEVICE_KINDS];
    for (int k = 0; k < WEIR_DEVICE_KINDS; k++)
        names[k] = device_is_accelerator((weir_device_kind)k) ? device_kind_name((weir_device_kind)k) : "";
    *kind = (weir_device_kind)take_name(r, names, WEIR_DEVICE_KINDS);
    return *kind < WEIR_DEVICE_KINDS || wrong(r, "it names no kind of accelerators, as cuda");
}

static bool take_card(reader *r, weir_rates *rates)
{
    weir_device_kind kind;
    if (!take_kind(r, &kind))
        return false;
    if (rates->cards[kind].mark)
        return wrong(r, "the card is there twice");
    return take_numbers(r, card_numbers, &rates->cards[kind]) && (rates->cards[kind].mark || wrong(r, "a mark takes some time"));
}

static bool take_collective(reader *r, weir_rates *rates)
{
    weir_device_kind kind;
    const char *names[PLAN_COLLECTIVE_KINDS];
    time_collective c = {0};
    for (int k = 0; k < PLAN_COLLECTIVE_KINDS; k++)
        names[k] = time_collective_name((plan_collective_kind)k);
    if (!take_kind(r, &kind))
        return false;
    c.kind = (plan_collective_kind)take_name(r, names, PLAN_COLLECTIVE_KINDS);
    if (c.kind >= PLAN_COLLECTIVE_KINDS)
        return wrong(r, "it names no collective, as all_reduce");
    if (!take_numbers(r, collective_numbers, &c) || !take_curves(r, collective_curves, &c))
        return false;
    return time_card_add(&rates->cards[kind], &c) || wrong(r, "more collectives than there may be");
}

static bool take_copy(reader *r, weir_rates *rates)
{
    weir_device_kind kind;
    if (!take_kind(r, &kind))
        return false;
    const int way = take_name(r, time_way_names, TIME_WAYS);
    if (way == TIME_WAYS)
        return wrong(r, "a copy is in or out");
    if (rates->cards[kind].copy[way].once.count)
        return wrong(r, "the copy is there twice");
    return take_curves(r, copy_curves, &rates->cards[kind].copy[way]);
}

static bool begins(reader *r, const char *word)
{
    const size_t bytes = strlen(word);
    if (strncmp(r->text, word, bytes) || r->text[bytes] != ' ')
        return false;
    r->at = r->text + bytes + 1;
    return true;
}

static bool take_threads(reader *r, weir_rates *rates)
{
    if (rates->threads_count == RATES_THREADS_MAX)
        return wrong(r, "more lines of threads than there may be");
    return take_numbers(r, threads_numbers, &rates->threads[rates->threads_count++]);
}

static bool take_line(reader *r, weir_rates *rates)
{
    if (begins(r, "call"))
        return take_call(r, rates);
    if (begins(r, "caches"))
        return take_numbers(r, cache_numbers, rates);
    if (begins(r, "card"))
        return take_card(r, rates);
    if (begins(r, "collective"))
        return take_collective(r, rates);
    if (begins(r, "copy"))
        return take_copy(r, rates);
    if (begins(r, "hand"))
        return take_numbers(r, hand_numbers, rates);
    if (begins(r, "link"))
        return take_link(r, rates);
    if (begins(r, "machine"))
        return take_numbers(r, machine_numbers, rates) && take_level(r, rates);
    if (begins(r, "noise"))
        return take_numbers(r, noise_numbers, rates);
    if (begins(r, "threads"))
        return take_threads(r, rates);
    return wrong(r, "a line begins with call, caches, card, collective, copy, hand, link, machine, noise or threads; this one does not");
}

/* The lines between the first and the last. */
static bool take_lines(reader *r, weir_rates *rates, const char *text, const char *end)
{
    for (; text < end; r->line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        if (!stop || stop - text >= LINE_BYTES || memchr(text, 0, (size_t)(stop - text)))
            return wrong(r, "the line is too long, or no text");
        memcpy(r->text, text, (size_t)(stop - text));
        r->text[stop - text] = '\0';
        if (!take_line(r, rates))
            return false;
        text = stop + 1;
    }
    return true;
}

weir_rates *rates_parse(const char *path, const char *text, size_t bytes)
{
    char last[LAST_BYTES + 1];
    weir_rates *rates = rates_new();
    reader r = {.path = path, .line = 2};
    if (!rates) {
        error_set(WEIR_E_MEMORY, "%s: no memory to read it", path);
        return NULL;
    }
    bool ok = bytes >= FIRST_BYTES + LAST_BYTES && !memcmp(text, FIRST_LINE "\n", FIRST_BYTES);
    if (!ok)
        error_set(WEIR_E_ARGUMENT, "%s: it is no file of rates, which begins with \"" FIRST_LINE "\"; weir measure writes one", path);
    else
        text_print(last, sizeof last, "hash %016" PRIx64 "\n", hash_more(HASH_START, text, bytes - LAST_BYTES));
    if (ok && memcmp(text + bytes - LAST_BYTES, last, LAST_BYTES)) {
        error_set(WEIR_E_ARGUMENT, "%s: it was changed or cut: its last line is not the hash of the others", path);
        ok = false;
    }
    if (ok && take_lines(&r, rates, text + FIRST_BYTES, text + bytes - LAST_BYTES))
        return rates;
    weir_rates_free(rates);
    return NULL;
}

static char *read_all(FILE *file, size_t *bytes)
{
    struct stat stat_of;
    *bytes = 0;
    if (fstat(fileno(file), &stat_of) || stat_of.st_size > FILE_BYTES)
        return NULL;
    char *text = malloc((size_t)stat_of.st_size + 1);
    *bytes = text ? fread(text, 1, (size_t)stat_of.st_size, file) : 0;
    return text;
}

weir_rates *weir_rates_load(const char *path)
{
    const char *why;
    size_t bytes;
    if (error_null(path, "weir_rates_load", "path"))
        return NULL;
    FILE *file = reading_file(path, &why);
    char *text = file ? read_all(file, &bytes) : NULL;
    weir_rates *rates = text ? rates_parse(path, text, bytes) : NULL;
    if (!file)
        error_set(WEIR_E_IO, "%s: cannot be read: %s", path, why);
    else if (!text)
        error_set(WEIR_E_IO, "%s: cannot be read, or has more than 256 MiB", path);
    free(text);
    if (file)
        fclose(file);
    return rates;
}
