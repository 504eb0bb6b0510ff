/* apps/common/train/trainer_log.h: what a training program writes down: the lines of --log, and the events of --log-dir.
 *
 * The first rank opens them; on others all of this does nothing. A line or an event that cannot be written is reported when that
 * happens, and is the last: the training goes on. One thread, the trainer's.
 */
#ifndef APPS_COMMON_TRAIN_TRAINER_LOG_H
#define APPS_COMMON_TRAIN_TRAINER_LOG_H

#include "apps/common/train/trainer.h"

/* Opens what the options ask for. -1, or the exit status of what was reported. */
int trainer_log_open(trainer *t);

/* The step that was done last took so many seconds. */
void trainer_log_step(trainer *t, double seconds);

/* The last result of the judge. */
void trainer_log_judged(trainer *t);

/* At the end of the training. */
void trainer_log_summary(trainer *t);

/* Whether something was lost, which is reported if it was not before. */
bool trainer_log_close(trainer *t);

#endif
