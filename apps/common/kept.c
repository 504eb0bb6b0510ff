/* apps/common/kept.c: see the header. The kernels are weir's own, called as the runtime calls them. */
#include "apps/common/kept.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct kept_layer {
    kept_rows *of;
    float *keys, *values; /* owned: [seq, dim] */
} kept_layer;

struct kept_rows {
    int layers, seq, dim, heads;
    float *weights; /* owned: the kernel's workspace, one for each row */
    kept_layer layer[];
};

kept_rows *kept_new(int layers, int seq, int dim, int heads)
{
    kept_rows *k = calloc(1, sizeof *k + (size_t)layers * sizeof *k->layer);
    if (!k)
        return NULL;
    *k = (kept_rows){layers, seq, dim, heads, calloc((size_t)seq, sizeof(float))};
    bool ok = k->weights != NULL;
    for (int i = 0; i < layers; i++) {
        k->layer[i] = (kept_layer){k, calloc((size_t)seq * (size_t)dim, sizeof(float)),
                                   calloc((size_t)seq * (size_t)dim, sizeof(float))};
        ok = ok && k->layer[i].keys && k->layer[i].values;
    }
    if (ok)
        return k;
    kept_free(k);
    return NULL;
}

void kept_free(kept_rows *k)
{
    for (int i = 0; k && i < k->layers; i++) {
        free(k->layer[i].keys);
        free(k->layer[i].values);
    }
    if (k)
        free(k->weights);
    free(k);
}

/* What the op attention_kept has for attributes. */
typedef struct kept_attrs {
    int64_t head_dim;
    double scale;
} kept_attrs;

static weir_view rows_view(const kept_rows *k, float *rows)
{
    weir_view view = {.data = rows, .dtype = WEIR_F32, .shape = {3, {1, k->seq, k->dim}}};
    view.global = view.shape;
    return view;
}

/* in: q, k, v, position. Attends, then keeps the new rows. */
static weir_status attend(const weir_kernel_args *args)
{
    const kept_layer *layer = args->host;
    const kept_rows *k = layer->of;
    const int64_t head_dim = k->dim / k->heads, rows = args->in[0].shape.dim[1];
    const kept_attrs attrs = {head_dim, 1 / sqrt((double)head_dim)};
    const weir_view in[] = {args->in[0], args->in[1], args->in[2], rows_view(k, layer->keys),
                            rows_view(k, layer->values), args->in[3]};
    weir_kernel_args call = *args;
    call.in = in;
    call.in_count = 6;
    call.attrs = &attrs;
    call.workspace = k->weights;
    call.workspace_bytes = (size_t)k->seq * sizeof(float);
    weir_status status = weir_op_find("attention_kept")->kernel[WEIR_CPU](&call);
    if (status)
        return status;
    const int64_t at = *(const int32_t *)args->in[3].data * (int64_t)k->dim;
    const size_t bytes = (size_t)(rows * k->dim) * sizeof(float);
    memcpy(layer->keys + at, args->in[1].data, bytes);
    memcpy(layer->values + at, args->in[2].data, bytes);
    return WEIR_OK;
}

weir_tensor *kept_attention(kept_rows *k, int layer, weir_tensor *const qkv[3], weir_tensor *position)
{
    weir_type type = weir_tensor_type(qkv[0]);
    return weir_call(attend, {qkv[0], qkv[1], qkv[2], position}, .name = "attention", .dtype = WEIR_F32,
                     .shape = {1, type.shape.dim[1], type.shape.dim[2]}, .ctx = &k->layer[layer]);
}
