/* kernels/index/ids.h: what the ops of this family share on a CPU: their ids, rules about them, and the sentence of a refusal.
 * Header-only; any thread. */
#ifndef KERNELS_INDEX_IDS_H
#define KERNELS_INDEX_IDS_H

#include "kernels/common/position.h"
#include "kernels/common/view.h"
#include "kernels/index/index.h"

static inline bool ids_are_right(const weir_type *ids, char *error, size_t error_bytes)
{
    return ids->dtype == WEIR_I32 || ids->dtype == WEIR_I64 ||
           REFUSE("ids are %s, not i32 or i64", weir_dtype_name(ids->dtype));
}

static inline int64_t id_at(const weir_view *ids, int64_t at)
{
    return ids->dtype == WEIR_I32 ? view_i32(ids)[at] : ((const int64_t *)ids->data)[at];
}

/* Writes that element `at` of the ids is not among `size` places. */
static inline weir_status id_refused(const weir_kernel_args *args, const weir_view *ids, int64_t at, int32_t id, int64_t size)
{
    char text[POSITION_TEXT];
    const char *more = id == INT32_MAX ? " or more" : id == INT32_MIN ? " or less" : "";
    return KERNEL_FAIL(args, "id %d%s at %s is not in %lld..%lld", id, more, position_text(ids, at, text), -(long long)size,
                       (long long)size - 1);
}

#endif
