/* apps/weir/bench/predict.h: `weir bench predict`: predicted beside measured seconds of a training step, for some 60 plans of GPTs and
 * MLPs on the two cores of a small machine: data, tensor and pipeline parallel, with ZeRO, in bf16, within memory limits.
 *
 * All calls of all plans are measured first. Each plan then runs, and its heaviest calls are measured again: their time now, divided by
 * their time then, is how much the machine has changed, and corrects the prediction. A plan whose rounds are more than 5 % apart does
 * not count. If fewer than 80 % of the plans count, the machine is unfit, which the last line says.
 */
#ifndef APPS_WEIR_BENCH_PREDICT_H
#define APPS_WEIR_BENCH_PREDICT_H

#include <stdbool.h>
#include <stdio.h>
#include <weir/weir.h>

/* `quick` takes one plan in eight. `path`: a file of rates to take for the first measuring, where it is, or to write; NULL: none. */
weir_status bench_predict(const char *path, bool json, bool quick, FILE *to);

#endif
