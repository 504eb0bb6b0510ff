/* apps/common/train/layout.c: devices into meshes. Sizes that a mesh axis does not divide are no mistake (shards then differ
 * by one element); refused is only what has no meaning: micro-batches of unequal size, and stages without a layer. */
#include "apps/common/train/layout.h"

#include <stdio.h>
#include <string.h>

layout layout_full(layout l)
{
    l.dp += !l.dp;
    l.tp += !l.tp;
    l.pp += !l.pp;
    l.micro += !l.micro;
    return l;
}

int layout_check(const char *program, const layout *l, int batch, int layers)
{
    if ((int64_t)l->dp * l->tp > WEIR_DEVICES_MAX / l->pp)
        return options_wrong(program, "--dp %d times --tp %d times --pp %d is more than %d devices", l->dp, l->tp, l->pp,
                             WEIR_DEVICES_MAX);
    if (batch % l->micro)
        return options_wrong(program, "--batch %d cannot be cut into --micro %d equal parts", batch, l->micro);
    if (batch / l->micro < l->dp)
        return options_wrong(program, "a micro-batch of %d rows is too small for --dp %d", batch / l->micro, l->dp);
    if (l->pp > layers)
        return options_wrong(program, "--pp must be at most the number of layers, %d, not %d", layers, l->pp);
    return -1;
}

int layout_check_device(const char *program, const char *kind)
{
    if (kind && strcmp(kind, "cpu") != 0 && strcmp(kind, "cuda") != 0)
        return options_wrong(program, "--device is cpu or cuda, not %s", kind);
    return -1;
}

int layout_devices(const layout *l)
{
    return l->dp * l->tp * l->pp;
}

void layout_meshes(const layout *l, const char *kind, weir_graph *graph, weir_mesh *stage[LAYOUT_STAGES_MAX])
{
    int each = l->dp * l->tp;
    for (int s = 0; s < l->pp; s++) {
        char devices[48];
        snprintf(devices, sizeof devices, "%s:%d-%d", kind ? kind : "cpu", s * each, s * each + each - 1);
        stage[s] = weir_mesh_new(graph, devices, .shape = {l->dp, l->tp});
    }
}

int layout_stage(const layout *l, int layer, int layers)
{
    return layer * l->pp / layers;
}
