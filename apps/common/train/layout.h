/* apps/common/train/layout.h: how a program's model is spread over devices: data, tensor and pipeline parallel.
 *
 * Stage s of the pipeline is a mesh of dp x tp devices, and device (s, d, t) is cpu:(s dp tp + d tp + t):
 *
 *                        axis DP ->                                    --dp 2 --tp 2 --pp 2
 *        stage 0   | cpu:0  cpu:2 |   axis TP      stage 1   | cpu:4  cpu:6 |
 *                  | cpu:1  cpu:3 |      v                   | cpu:5  cpu:7 |
 *
 * With --device cuda they are cuda:0, cuda:1, ... in the same places. Owns nothing; the meshes belong to the graph.
 */
#ifndef APPS_COMMON_TRAIN_LAYOUT_H
#define APPS_COMMON_TRAIN_LAYOUT_H

#include "apps/common/options.h"

#include <weir/weir.h>

#define LAYOUT_STAGES_MAX 64

enum { DP, TP }; /* the axes of every stage's mesh */

/* Zero means one, for all four. */
typedef struct layout {
    int dp, tp, pp;
    int micro;        /* micro-batches per step */
    bool zero;        /* optimizer state is split over DP */
} layout;

/* The options of a layout, for a program's table; `l` is a layout variable. */
#define LAYOUT_OPTIONS(l)                                                                                           \
    {"--dp", OPTIONS_INT, &(l).dp, .min = 1, .max = WEIR_DEVICES_MAX, .help = "data parallel: devices that share a batch"},      \
    {"--tp", OPTIONS_INT, &(l).tp, .min = 1, .max = WEIR_DEVICES_MAX, .help = "tensor parallel: devices that share a layer"},    \
    {"--pp", OPTIONS_INT, &(l).pp, .min = 1, .max = LAYOUT_STAGES_MAX, .help = "pipeline stages"},                 \
    {"--micro", OPTIONS_INT, &(l).micro, .min = 1, .max = 4096,                                                    \
     .help = "micro-batches per step; with a pipeline use at least --pp"},                                        \
    {"--zero", OPTIONS_FLAG, &(l).zero, .help = "split optimizer state over the data-parallel devices"}
/* The kind of the devices, for a program's table; `kind` is a variable, NULL at first. */
#define LAYOUT_DEVICE_OPTION(kind) \
    {"--device", OPTIONS_TEXT, &(kind), .value = "KIND", .help = "kind of device to train on: cpu or cuda [cpu]"}

/* A layout with every zero replaced by one. */
layout layout_full(layout l);

/* -1 when `batch` rows and `layers` layers can be spread so; else reports and returns OPTIONS_WRONG. */
int layout_check(const char *program, const layout *l, int batch, int layers);
/* The same for a kind of device: "cpu", "cuda", or NULL. */
int layout_check_device(const char *program, const char *kind);

int layout_devices(const layout *l);

/* Makes the l->pp meshes, of devices of a kind; NULL: "cpu". */
void layout_meshes(const layout *l, const char *kind, weir_graph *graph, weir_mesh *stage[LAYOUT_STAGES_MAX]);

int layout_stage(const layout *l, int layer, int layers);

#endif
