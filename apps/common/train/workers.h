/* apps/common/train/workers.h: how many threads a program's session has, and on which cores; the same options in all of them.
 *
 * By default there are as many as devices and cores allow. When the process may not use all cores of the machine and
 * has fewer workers for that reason, the program says so: a mask or a quota that nobody thinks of costs whole factors. Keeps no
 * state.
 */
#ifndef APPS_COMMON_TRAIN_WORKERS_H
#define APPS_COMMON_TRAIN_WORKERS_H

#include "apps/common/options.h"

#include <weir/weir.h>

/* The options, for a program's table; variables of type int and bool. */
#define WORKERS_OPTIONS(workers, pin)                                                                                  \
    {"--workers", OPTIONS_INT, &(workers), .min = 1, .max = 1024, .help = "worker threads; default: one per device, at most one per core"}, \
    {"--pin", OPTIONS_FLAG, &(pin), .help = "bind each worker to a core"}

/* And one for whether what is computed is looked at; of type bool. */
#define CHECK_FINITE_OPTION(check)                                                                                     \
    {"--check-finite", OPTIONS_FLAG, &(check), .help = "stop at the first NaN or infinity, and name the op that made it"}

/* One line on stderr when the process's mask or quota left the session fewer workers than devices. For a session whose number
 * of workers nobody chose, at rest. */
void workers_tell(const char *program, const weir_session *session);

#endif
