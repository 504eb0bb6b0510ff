/* apps/common/train/events.h: a file of scalars that TensorBoard shows.
 *
 *     events_file events = {0};
 *     if (!events_open(&events, "runs/a")) ...                       // errno says why
 *     events_add(&events, "loss", 0.5);
 *     events_end(&events, step);
 *     int error = events_close(&events);
 *
 * Each run adds a file of its own to the folder, events.out.tfevents.SECONDS.HOST.PID. A record of it is framed as in a TFRecord
 * file, with little-endian integers:
 *
 *     u64 length | u32 masked CRC-32C of these 8 bytes | data | u32 masked CRC-32C of the data
 *
 * The data is a message Event of TensorFlow's event.proto. A record is written in one write, so a reader of a growing file
 * finds whole records.
 *
 * One thread.
 */
#ifndef APPS_COMMON_TRAIN_EVENTS_H
#define APPS_COMMON_TRAIN_EVENTS_H

#include "graph/base/proto_write.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct events_file {
    bool open;
    int fd;
    struct proto_out values; /* owned: the scalars of the next event */
    int error;     /* errno of the first event that was not written; the file ends before it */
    bool told;     /* its owner has reported that */
} events_file;

/* Makes the folder, and those above it, and a new file in it. False, with errno set, if that fails. */
bool events_open(events_file *events, const char *folder);

/* Tells TensorBoard that the run begins at `step`: it then drops what older files of the folder say of this step and later
 * ones. For a run that continues from a checkpoint. */
void events_begin_at(events_file *events, int64_t step);

/* Adds a scalar to the next event, as an f32. This and the next function do nothing if the file is not open. */
void events_add(events_file *events, const char *tag, double value);

/* Writes the event, which belongs to a step. */
void events_end(events_file *events, int64_t step);

/* Returns 0, or errno of the first event that could not be written. Also for a file that is not open. */
int events_close(events_file *events);

#endif
