/* graph/plan/form/text.c: see text.h. */
#include "graph/plan/form/text.h"

#include "graph/base/base.h"
#include "graph/base/foreign.h"
#include "graph/base/locale.h"

#include <inttypes.h>
#include <string.h>

const char *regst_text(const weir_plan *plan, plan_regst_id regst, char text[PLAN_TEXT_BYTES])
{
    const plan_range *tensors = &plan->regsts[regst.i].tensors;
    if (!tensors->count) {
        snprintf(text, PLAN_TEXT_BYTES, "register %" PRIu32, regst.i);
        return text;
    }
    const char *first = plan_text(plan, plan->tensors[tensors->first].name);
    int shown = foreign_fit(first, 100);
    if (tensors->count == 1)
        snprintf(text, PLAN_TEXT_BYTES, "%.*s", shown, first);
    else
        snprintf(text, PLAN_TEXT_BYTES, "%.*s and %" PRIu32 " more", shown, first, tensors->count - 1);
    return text;
}

const char *bytes_text(uint64_t bytes, char text[PLAN_TEXT_BYTES])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    int u = 0;
    for (; value >= 1024; value /= 1024)
        u++;
    text_print(text, PLAN_TEXT_BYTES, u && value < 100 ? "%.1f %s" : "%.0f %s", value, unit[u]);
    return text;
}

const char *tensor_text(const plan_tensor *tensor, char text[PLAN_TEXT_BYTES])
{
    weir_shape shape = {.rank = (int)tensor->rank};
    char dims[PLAN_TEXT_BYTES - 8];
    memcpy(shape.dim, tensor->shape, sizeof shape.dim);
    snprintf(text, PLAN_TEXT_BYTES, "%.6s %s", weir_dtype_name((weir_dtype)tensor->dtype),
             shape_text(&shape, dims, sizeof dims));
    return text;
}

const char *phase_text(uint32_t phase)
{
    static const char *const text[PLAN_PHASES] = {"forward", "backward", "update"};
    return text[phase];
}

#define X(name, text) text,
static const char *const keeps[PLAN_KEEPS] = {PLAN_KEEP_LIST(X)};
static const char *const mems[PLAN_MEMS] = {PLAN_MEM_LIST(X)};
static const char *const collectives[PLAN_COLLECTIVE_KINDS] = {PLAN_COLLECTIVE_LIST(X)};
#undef X

const char *keep_text(uint32_t kind)
{
    return keeps[kind];
}

const char *mem_text(uint32_t kind)
{
    return mems[kind];
}

const char *collective_text(uint32_t kind)
{
    return collectives[kind];
}

const char *host_kind_text(uint32_t kind)
{
    static const char *const text[PLAN_HOST_KINDS] = {"source", "sink", "call", "push", "pull"};
    return text[kind];
}

const char *queue_kind_text(uint32_t kind)
{
    static const char *const text[PLAN_QUEUE_KINDS] = {"compute",  "outside",  "io",
                                                        "copy in", "copy out", "collective"};
    return text[kind];
}
