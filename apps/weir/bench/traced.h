/* apps/weir/bench/traced.h: the trace of a session beside that of its prediction, in a folder that is gone afterwards. */
#ifndef APPS_WEIR_BENCH_TRACED_H
#define APPS_WEIR_BENCH_TRACED_H

#include <weir/weir.h>

typedef struct bench_traced {
    char folder[32], real[48], predicted[48]; /* real: for weir_session_open(.trace) */
} bench_traced;

/* E_IO. */
weir_status bench_traced_open(bench_traced *t);
void bench_traced_close(const bench_traced *t);

/* Writes the weighted mean error of predicted firing times (apps/weir/traces.h) to `error`. After the session was closed. */
weir_status bench_traced_error(const bench_traced *t, const weir_plan *plan, const weir_rates *rates, const weir_predict_opts *opts, double *error);

#endif
