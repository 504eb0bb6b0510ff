/* apps/common/train/events.c: a file of scalars that TensorBoard shows.
 *
 * All events are short: the checksum goes bit by bit, without a table.
 *
 *     Event:   1 wall_time (double), 2 step (int64), 3 file_version (text), 5 summary, 7 session_log
 *     Summary: 1 value, repeated: 1 tag (text), 2 simple_value (float)
 *     SessionLog: 1 status, where 1 is START
 */
#define _GNU_SOURCE
#include "apps/common/train/events.h"
#include "apps/common/paths.h"
#include "apps/common/train/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WALL_TIME = 1, STEP = 2, FILE_VERSION = 3, SUMMARY = 5, SESSION_LOG = 7 }; /* of an Event */

/* ---- bytes ---- */

static uint32_t crc32c(const unsigned char *bytes, size_t count)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

/* A checksum of bytes that have checksums in them would be weak, so TFRecord turns it. */
static uint32_t masked(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static void put_checksum(struct proto_out *to, const unsigned char *bytes, size_t count)
{
    const uint32_t sum = masked(crc32c(bytes, count));
    proto_put(to, &sum, sizeof sum);
}

/* ---- events ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Writes the data with its frame, at once; frees it. */
static bool write_record(int fd, struct proto_out *data)
{
    struct proto_out record = {.failed = data->failed};
    const uint64_t count = data->count;
    unsigned char length[sizeof count];
    memcpy(length, &count, sizeof count);
    proto_put(&record, length, sizeof length);
    put_checksum(&record, length, sizeof length);
    proto_put(&record, data->bytes, data->count);
    put_checksum(&record, data->bytes, data->count);
    errno = ENOMEM;
    const bool ok = !record.failed && log_write_whole(fd, (const char *)record.bytes, record.count);
    proto_free(&record);
    proto_free(data);
    return ok;
}

/* An event with one field that is a message; frees it. */
static bool write_event(int fd, int64_t step, int field, struct proto_out *message)
{
    struct proto_out event = {0};
    proto_put_double(&event, WALL_TIME, now());
    proto_put_number(&event, STEP, step);
    proto_put_message(&event, field, message);
    return write_record(fd, &event);
}

static void add_event(events_file *events, int64_t step, int field, struct proto_out *message)
{
    if (events->open && !events->error && !write_event(events->fd, step, field, message))
        events->error = errno;
    proto_free(message);
}

/* ---- the file ---- */

bool events_open(events_file *events, const char *folder)
{
    struct proto_out version = {0};
    char path[PATHS_BYTES], host[65] = "host";
    *events = (events_file){.fd = -1};
    if (!*folder)
        return errno = ENOENT, false;
    gethostname(host, sizeof host - 1);
    const int length = snprintf(path, sizeof path, "%s/events.out.tfevents.%010lld.%s.%d", folder, (long long)time(NULL), host,
                                (int)getpid());
    if (length >= (int)sizeof path)
        return errno = ENAMETOOLONG, false;
    if (!paths_make_above(path))
        return false;
    events->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    events->open = events->fd >= 0;
    proto_put(&version, "brain.Event:2", strlen("brain.Event:2"));
    add_event(events, 0, FILE_VERSION, &version);
    errno = events->error ? events->error : errno;
    return events->open && !events->error;
}

void events_begin_at(events_file *events, int64_t step)
{
    struct proto_out log = {0};
    proto_put_number(&log, 1, 1);
    add_event(events, step, SESSION_LOG, &log);
}

void events_add(events_file *events, const char *tag, double value)
{
    struct proto_out scalar = {0};
    if (!events->open)
        return;
    proto_put_text(&scalar, 1, tag);
    proto_put_float(&scalar, 2, (float)value);
    proto_put_message(&events->values, 1, &scalar);
}

void events_end(events_file *events, int64_t step)
{
    add_event(events, step, SUMMARY, &events->values);
    events->values = (struct proto_out){0};
}

int events_close(events_file *events)
{
    int error = events->error;
    proto_free(&events->values);
    if (events->open && close(events->fd) && !error)
        error = errno;
    *events = (events_file){0};
    return error;
}
