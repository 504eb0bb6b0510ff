/* apps/weir/bench/traced.c: see the header. */
#include "apps/weir/bench/traced.h"

#include "apps/weir/traces.h"
#include "graph/base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

weir_status bench_traced_open(bench_traced *t)
{
    strcpy(t->folder, "/tmp/weir-bench-XXXXXX");
    if (!mkdtemp(t->folder))
        return error_set(WEIR_E_IO, "no folder in /tmp for traces: %s", strerror(errno));
    snprintf(t->real, sizeof t->real, "%s/real", t->folder);
    snprintf(t->predicted, sizeof t->predicted, "%s/predicted", t->folder);
    return WEIR_OK;
}

void bench_traced_close(const bench_traced *t)
{
    unlink(t->real);
    unlink(t->predicted);
    rmdir(t->folder);
}

weir_status bench_traced_error(const bench_traced *t, const weir_plan *plan, const weir_rates *rates, const weir_predict_opts *opts, double *error)
{
    weir_prediction p;
    traces both = {.index = NULL};
    weir_predict_opts full = *opts;
    full.size = sizeof full;
    full.src = WEIR_HERE;
    weir_status status = traces_predict(plan, rates, &full, t->predicted, &p);
    status = status ? status : traces_read(&both, t->predicted, t->real);
    *error = both.error;
    traces_free(&both);
    return status;
}
