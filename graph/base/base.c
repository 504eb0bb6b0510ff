/* graph/base/base.c: statuses, the thread's error text, dtypes, shapes, SBP names and random numbers.
 *
 * Random numbers are counter-based because nothing else gives every layout the same ones: the value at an index is a
 * function of (key, index), so a shard draws exactly the elements that it holds, in any order. Box and Muller's
 * transform is used rather than a faster one because it needs one counter per value and no rejection.
 */
#include "graph/base/base.h"
#include "graph/base/dtype.h"
#include "graph/base/error.h"
#include "graph/base/foreign.h"
#include "graph/base/locale.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

static _Thread_local char error_text[1024];

weir_status(error_set)(weir_status status, const char *format, ...)
{
    char text[2 * sizeof error_text]; /* more than is kept, so that a character at the end is whole */
    va_list list;
    va_start(list, format);
    text_vprint(text, sizeof text, format, list);
    va_end(list);
    foreign_text(text, error_text, sizeof error_text);
    return status;
}

bool error_null(const void *given, const char *function, const char *what)
{
    if (!given)
        error_set(WEIR_E_ARGUMENT, "%s: the %s is NULL", function, what);
    return !given;
}

const char *weir_error(void)
{
    return error_text;
}

const char *weir_status_name(weir_status status)
{
    static const char *const names[] = {
#define X(name, text) #name,
        WEIR_STATUS_LIST(X)
#undef X
    };
    return (size_t)status < sizeof names / sizeof *names ? names[status] : "unknown";
}

const char *weir_dtype_name(weir_dtype dtype)
{
    switch (dtype) {
    case WEIR_F32:
        return "f32";
    case WEIR_I32:
        return "i32";
    case WEIR_U8:
        return "u8";
    case WEIR_F16:
        return "f16";
    case WEIR_BF16:
        return "bf16";
    case WEIR_I64:
        return "i64";
    case WEIR_I8:
        return "i8";
    default:
        return "none";
    }
}

double weir_option(double given, double fallback)
{
    if (given != 0)
        return given;
    return signbit(given) ? 0 : fallback;
}

size_t weir_dtype_bytes(weir_dtype dtype)
{
    return dtype_bytes(dtype);
}

int64_t weir_shape_count(const weir_shape *shape)
{
    if (!shape)
        return 0;
    int64_t count = 1;
    for (int d = 0; d < shape->rank; d++)
        if (__builtin_mul_overflow(count, shape->dim[d], &count))
            count = INT64_MAX;
    return count;
}

bool weir_shape_equal(const weir_shape *a, const weir_shape *b)
{
    if (!a || !b)
        return a == b;
    return a->rank == b->rank && !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]);
}

const char *weir_sbp_text(weir_sbp sbp, char *text)
{
    if (!text)
        return "";
    if (WEIR_IS_S(sbp))
        snprintf(text, 8, "S(%d)", WEIR_S_DIM(sbp) % 100);
    else if (sbp != WEIR_AUTO && sbp != WEIR_B && sbp != WEIR_P)
        strcpy(text, "no SBP");
    else
        strcpy(text, sbp == WEIR_B ? "B" : sbp == WEIR_P ? "P" : "auto");
    return text;
}

const char *shape_text(const weir_shape *shape, char *text, size_t bytes)
{
    size_t at = 0;
    text[0] = '\0';
    for (int d = 0; d < shape->rank && at < bytes; d++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%lld", d ? ", " : "[", (long long)shape->dim[d]);
    if (at < bytes)
        snprintf(text + at, bytes - at, shape->rank ? "]" : "[]");
    return text;
}

bool shape_countable(const weir_shape *shape)
{
    int64_t count = 1;
    for (int d = 0; d < shape->rank; d++)
        if (shape->dim[d] < 0 || __builtin_mul_overflow(count, shape->dim[d], &count) || count > INT64_MAX / 64)
            return false;
    return true;
}

void weir_philox(uint64_t key, uint64_t counter_lo, uint64_t counter_hi, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter_lo, c1 = (uint32_t)(counter_lo >> 32);
    uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

float weir_random_uniform(uint64_t key, uint64_t index)
{
    uint32_t word[4];
    weir_philox(key, index, 0, word);
    return (float)(word[0] >> 8) * 0x1p-24f;
}

float weir_random_normal(uint64_t key, uint64_t index)
{
    uint32_t word[4];
    weir_philox(key, index, 1, word);
    double u = ((double)word[0] + 0.5) * 0x1p-32, v = ((double)word[1] + 0.5) * 0x1p-32;
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

#define TEXT(number) #number
#define VERSION_TEXT(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *weir_version(void)
{
    return VERSION_TEXT(WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR, WEIR_VERSION_PATCH);
}

const char *device_kind_name(weir_device_kind kind)
{
    static const char *const names[] = {[WEIR_CPU] = "cpu", [WEIR_CUDA] = "cuda", [WEIR_DISK] = "disk",
                                        [WEIR_PINNED] = "pinned", [WEIR_FAKE] = "fake",
                                        [WEIR_MAPPED] = "mapped"};
    _Static_assert(sizeof names / sizeof *names == WEIR_DEVICE_KINDS, "every kind has a name");
    return names[kind];
}

bool device_is_accelerator(weir_device_kind kind)
{
    return kind == WEIR_CUDA || kind == WEIR_FAKE;
}

bool device_host_reaches(weir_device_kind kind)
{
    return kind == WEIR_CPU || kind == WEIR_PINNED;
}

weir_device_kind device_kernels(weir_device_kind kind)
{
    return kind == WEIR_PINNED || kind == WEIR_FAKE ? WEIR_CPU : kind;
}

uint64_t name_hash(const char *name)
{
    return hash_more(HASH_START, name, strlen(name));
}

uint64_t name_key(uint64_t seed, const char *name)
{
    return name_hash(name) ^ seed * 0x9E3779B97F4A7C15u;
}

bool bytes_parse(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"", 1}, {"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
                 {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    char *end;
    double value = number_read(text, &end);
    while (*end && strchr(" \t\n\v\f\r", *end))
        end++;
    for (size_t u = 0; end != text && u < sizeof units / sizeof *units; u++)
        if (!strcmp(end, units[u].name) && value > 0 && value * units[u].factor < 1e18) {
            *bytes = (uint64_t)(value * units[u].factor);
            return true;
        }
    return false;
}
