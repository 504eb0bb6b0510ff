/* apps/common/train/params.h: carries parameters from one session to another, as from training to a graph that only looks
 * ahead. */
#ifndef APPS_COMMON_TRAIN_PARAMS_H
#define APPS_COMMON_TRAIN_PARAMS_H

#include <weir/weir.h>

/* Writes every parameter of `to` (whose plan is `to_plan`) with the value of that name in `from`. Both at rest. */
weir_status params_copy(weir_session *from, weir_session *to, const weir_plan *to_plan);

#endif
