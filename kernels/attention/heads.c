/* heads.c: see the header. */
#include "kernels/attention/heads.h"

#include "graph/base/base.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"

#include <math.h>

bool heads_share(int64_t heads, int64_t kv_heads, char *error, size_t error_bytes)
{
    if (kv_heads ? heads > 0 && heads % kv_heads == 0 : heads == 0)
        return true;
    return REFUSE("q has %lld heads and k has %lld, which do not divide those", (long long)heads, (long long)kv_heads);
}

static bool one_or(int64_t size, int64_t all)
{
    return size == 1 || size == all;
}

bool mask_fits(const weir_type *mask, const weir_shape *q, int64_t head_dim, int64_t keys, char *error, size_t error_bytes)
{
    char text[RULES_SHAPE_TEXT];
    if (!mask)
        return true;
    const int64_t *dim = mask->shape.dim, heads = q->dim[2] / head_dim;
    if (mask->dtype != WEIR_U8 && mask->dtype != WEIR_F32)
        return REFUSE("the mask is %s; it needs to be u8 or f32", weir_dtype_name(mask->dtype));
    if (mask->shape.rank == 2 && one_or(dim[0], q->dim[0]) && dim[1] == keys)
        return true;
    if (mask->shape.rank == 4 && one_or(dim[0], q->dim[0]) && one_or(dim[1], heads) && one_or(dim[2], q->dim[1]) && dim[3] == keys)
        return true;
    return REFUSE("the mask has shape %s; it needs [%lld, %lld], or [%lld, %lld, %lld, %lld], in which all but the keys may be 1",
                  shape_text(&mask->shape, text, sizeof text), (long long)q->dim[0], (long long)keys, (long long)q->dim[0],
                  (long long)heads, (long long)q->dim[1], (long long)keys);
}

weir_sbp mask_split(const weir_type *mask, int dimension)
{
    const bool has = mask && (dimension == 0 || mask->shape.rank == 4) && mask->shape.dim[dimension] > 1;
    return has ? WEIR_S(dimension) : WEIR_B;
}

weir_tensor *attention_heads(const attention_asked *asked, weir_tensor *q, weir_tensor *k, int64_t *head_dim, double *scale)
{
    const weir_type type = weir_tensor_type(q), keys = weir_tensor_type(k);
    const int64_t dim = shape_last(&type.shape), heads = asked->heads ? asked->heads : 1;
    const int64_t kv_heads = asked->kv_heads ? asked->kv_heads : heads, width = dim / heads, kv_dim = shape_last(&keys.shape);
    *head_dim = width;
    *scale = weir_option(asked->scale, 1 / sqrt((double)width));
    if (weir_tensor_poisoned(q))
        return NULL;
    if (heads < 1 || dim % heads || dim < heads)
        return weir_mistake(q, asked->src, "%s: %lld heads do not divide dim %lld", asked->op, (long long)heads, (long long)dim);
    if (kv_heads < 1 || heads % kv_heads)
        return weir_mistake(q, asked->src, "%s: .kv_heads is %lld; it needs to divide .heads, %lld", asked->op, (long long)kv_heads,
                            (long long)heads);
    if (asked->window < 0)
        return weir_mistake(q, asked->src, "%s: .window is %d; it needs to be above 0", asked->op, asked->window);
    if (!weir_tensor_poisoned(k) && keys.shape.rank == 3 && kv_dim != kv_heads * width)
        return weir_mistake(q, asked->src, "%s: dim of k is %lld; %lld heads of %lld need %lld. Fewer heads of k need .kv_heads",
                            asked->op, (long long)kv_dim, (long long)kv_heads, (long long)width, (long long)(kv_heads * width));
    return NULL;
}
