/* weir/weir.h: all of weir's public API. See the headers below, each of which opens with what it is about. */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include <weir/base.h>
#include <weir/checkpoint.h>
#include <weir/cluster.h>
#include <weir/data.h>
#include <weir/exact.h>
#include <weir/graph.h>
#include <weir/onnx.h>
#include <weir/op.h>
#include <weir/ops.h>
#include <weir/plan.h>
#include <weir/session.h>
#include <weir/time.h>
#include <weir/train.h>

#endif
