/* apps/weir/traces.h: traces of one plan: one is written as it is predicted, and two are held against each other, actor by actor.
 *
 *     traces_predict(plan, rates, &opts, "predicted.trace", &p);
 *     traces_read(&t, "predicted.trace", "run.trace");   t.error: the weighted mean error of firing times
 *
 * An actor weighs as much as the time that it took in the second trace. Traces need not have the same number of steps.
 */
#ifndef APPS_WEIR_TRACES_H
#define APPS_WEIR_TRACES_H

#include <jansson.h>
#include <stddef.h>
#include <weir/weir.h>

enum { TRACES = 2 };

/* All firings of an actor. */
typedef struct traced_actor {
    const char *name;         /* borrowed from the document */
    double us[TRACES];        /* of all its firings */
    int64_t firings[TRACES];
    double share;             /* by which the first trace's firings are longer, of the time of all actors in the second */
} traced_actor;

typedef struct traces {
    json_t *document[TRACES]; /* owned, as all below */
    json_t *index;            /* from a name to its number */
    traced_actor *actors;     /* that both have, the largest share first */
    size_t count, room;
    size_t alone;             /* actors that one trace alone has */
    double error;             /* the sum of all shares, each without its sign */
} traces;

/* E_ARGUMENT: a file is no trace; E_MEMORY. To be freed also after a failure. */
weir_status traces_read(traces *t, const char *first, const char *second);
void traces_free(traces *t);

/* Predicts, and writes the predicted firings to a file. E_IO; others as weir_predict(). */
weir_status traces_predict(const weir_plan *plan, const weir_rates *rates, const weir_predict_opts *opts, const char *path, weir_prediction *p);

#endif
