/* regst/cuda/cards.c: which CUDA devices there are. They are looked for once, when the plugin is loaded; that none is there
 * is no error before one is asked for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/locale.h"
#include "kernels/attention/cudnn.h"
#include "kernels/cuda/listed.h"
#include "regst/cuda/driver.h"

#ifndef CUDA_ARCHS
#define CUDA_ARCHS "80 90 100"
#endif

struct driver the = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- errors ---- */

weir_status failed(uint32_t index, const char *what, cudaError_t error)
{
    if (error == cudaSuccess)
        return WEIR_OK;
    weir_status status = error == cudaErrorMemoryAllocation ? WEIR_E_MEMORY : WEIR_E_KERNEL;
    cudaGetLastError(); /* which this call has set, unless a kernel's fault stays there anyway */
    return the.host->error_set(status, "cuda:%u: %s: %s", index, what, cudaGetErrorString(error));
}

const char *bytes_text(uint64_t bytes, char text[24])
{
    static const char *const units[] = {"bytes", "KB", "MB", "GB", "TB"};
    double count = (double)bytes;
    int unit = 0;
    while (count >= 999.5 && unit < 4) {
        count /= 1000;
        unit++;
    }
    text_print(text, 24, "%.*f %s", unit && count < 9.95 ? 1 : 0, count, units[unit]);
    return text;
}

/* ---- which there are ---- */

static weir_status none(const char *format, int a, int b, const char *more)
{
    int major[2] = {a / 1000, b / 1000}, minor[2] = {a % 1000 / 10, b % 1000 / 10};
    snprintf(the.why, sizeof the.why, format, major[0], minor[0], major[1], minor[1], more);
    return WEIR_E_UNSUPPORTED;
}

static weir_status find(void)
{
    int count = 0, driver = 0, runtime = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    cudaGetLastError();
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (error == cudaErrorInsufficientDriver && driver)
        return none("the driver is one for CUDA %d.%d, and this build of weir needs one for CUDA %d.%d%s", driver, runtime,
                    "");
    if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice || (!error && !count)) {
        snprintf(the.why, sizeof the.why, "this machine has no CUDA device%s", driver ? "" : ", and no driver for one");
        return WEIR_E_UNSUPPORTED;
    }
    for (int c = 0; !error && c < count && c < CARDS_MAX; c++)
        error = cudaGetDeviceProperties(&the.cards[c].is, c);
    if (error) {
        snprintf(the.why, sizeof the.why, "CUDA devices cannot be looked for: %s", cudaGetErrorString(error));
        cudaGetLastError();
        return WEIR_E_UNSUPPORTED;
    }
    the.card_count = (uint32_t)(count < CARDS_MAX ? count : CARDS_MAX);
    return WEIR_OK;
}

static void find_write_value(void)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuStreamWriteValue64", &function, 12000, cudaEnableDefault, &found);
    if (!error && found == cudaDriverEntryPointSuccess)
        *(void **)&the.write_value = function;
    cudaGetLastError();
}

void cards_find(void)
{
    const char *logical = getenv("WEIR_CUDA_LOGICAL");
    long told = logical ? strtol(logical, NULL, 10) : 1;
    the.logical = told > 1 && told <= 1024 ? (uint32_t)told : 1;
    the.absent = find();
    if (!the.absent)
        find_write_value();
}

weir_status cards_count(uint32_t *count)
{
    *count = the.card_count * the.logical;
    return the.absent ? the.host->error_set(the.absent, "%s", the.why) : WEIR_OK;
}

/* ---- one of them ---- */

/* Whether code for one of the architectures that kernels were built for runs on the card: of the same major version, and
 * no higher a minor one. */
static bool has_kernels(const struct cudaDeviceProp *is)
{
    for (const char *at = CUDA_ARCHS; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        long arch = strtol(at, NULL, 10);
        if (arch / 10 == is->major && arch % 10 <= is->minor)
            return true;
    }
    return false;
}

bool cards_hang(void)
{
    for (uint32_t c = 0; c < the.card_count; c++)
        if (the.cards[c].hung)
            return true;
    return false;
}

weir_status card_of(uint32_t index, int *card)
{
    if (the.absent)
        return the.host->error_set(the.absent, "there is no cuda:%u: %s", index, the.why);
    *card = card_at(index);
    uint32_t count = the.card_count * the.logical;
    if (index >= count)
        return the.host->error_set(WEIR_E_UNSUPPORTED, "there is no cuda:%u: this machine has %u (%s%u)", index,
                                   count, count > 1 ? "cuda:0-" : "cuda:", count - 1);
    const struct cudaDeviceProp *is = &the.cards[*card].is;
    if (!has_kernels(is))
        return the.host->error_set(WEIR_E_UNSUPPORTED,
                                   "cuda:%u is a %.60s (sm_%d%d), and this build of weir has kernels for sm %s", index,
                                   is->name, is->major, is->minor, CUDA_ARCHS);
    return WEIR_OK;
}

weir_status card_open(uint32_t index, int *card)
{
    weir_status status = card_of(index, card);
    if (!status)
        status = CALL(index, cudaSetDevice, *card);
    if (!status)
        atomic_store(&the.own, *card + 1);
    return status;
}

/* To be asked about is to be loaded. */
static weir_status load_all(uint32_t index)
{
    weir_status status = WEIR_OK;
    struct cudaFuncAttributes unused;
    for (const struct kernel_listed *each = kernels_listed; each && !status; each = each->next)
        status = CALL(index, cudaFuncGetAttributes, &unused, each->kernel);
    return status;
}

weir_status card_load(uint32_t index)
{
    struct card *card = &the.cards[card_at(index)];
    pthread_mutex_lock(&the.lock);
    weir_status status = card->loaded ? WEIR_OK : load_all(index);
    card->loaded = !status;
    pthread_mutex_unlock(&the.lock);
    return status;
}

weir_status card_set(uint32_t index)
{
    return the.card_count > 1 ? CALL(index, cudaSetDevice, card_at(index)) : WEIR_OK;
}

void card_set_own(void)
{
    int own = atomic_load(&the.own);
    if (own && the.card_count > 1)
        cudaSetDevice(own - 1);
}

weir_status cards_describe(uint32_t index, struct device_facts *facts)
{
    int card, driver = 0;
    size_t free_bytes = 0, bytes = 0;
    weir_status status = card_open(index, &card);
    if (!status)
        status = CALL(index, cudaMemGetInfo, &free_bytes, &bytes);
    if (!status)
        status = CALL(index, cudaDriverGetVersion, &driver);
    if (status)
        return status;
    const struct cudaDeviceProp *is = &the.cards[card].is;
    char attention[72];
    *facts = (struct device_facts){.bytes = bytes, .free_bytes = free_bytes, .cache_bytes = (uint64_t)is->l2CacheSize};
    cudnn_told(attention, sizeof attention);
    snprintf(facts->name, sizeof facts->name, "%.90s", is->name);
    snprintf(facts->more, sizeof facts->more, "sm_%d%d, PCI %04x:%02x:%02x, driver for CUDA %d.%d%s, %s", is->major,
             is->minor, (unsigned)is->pciDomainID, (unsigned)is->pciBusID, (unsigned)is->pciDeviceID, driver / 1000,
             driver % 1000 / 10, the.logical > 1 ? ", shared" : "", attention);
    return WEIR_OK;
}

const char *cards_link(uint32_t from, uint32_t to)
{
    int a = card_at(from), b = card_at(to), reaches = 0, rank = 0;
    if (a == b)
        return "same card";
    cudaError_t error = cudaDeviceCanAccessPeer(&reaches, a, b);
    if (!error && reaches)
        error = cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrNativeAtomicSupported, a, b);
    cudaGetLastError();
    /* atomics of one card in the memory of another are NVLink's */
    return error || !reaches ? "through the host" : rank ? "NVLink" : "PCIe";
}
