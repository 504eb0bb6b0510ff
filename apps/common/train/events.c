/* apps/common/train/events.c: a file of scalars that TensorBoard shows.
 *
 * An event is a handful of fields of protobuf, so a library for it would be larger than this file. All events are short: the
 * checksum goes bit by bit, without a table.
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
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };                          /* how a field is written */

/* ---- bytes ---- */

static uint32_t crc32c(const char *bytes, size_t count)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        crc ^= (unsigned char)bytes[i];
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

static void put_fixed(FILE *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        fputc((int)(value >> 8 * i & 255), to);
}

static void put_varint(FILE *to, uint64_t value)
{
    for (; value > 127; value >>= 7)
        fputc((int)(value & 127) | 128, to);
    fputc((int)value, to);
}

static size_t varint_bytes(uint64_t value)
{
    size_t bytes = 1;
    for (; value > 127; value >>= 7)
        bytes++;
    return bytes;
}

static void put_key(FILE *to, int field, int kind)
{
    put_varint(to, (uint64_t)field << 3 | (uint64_t)kind);
}

static void put_bytes(FILE *to, int field, const char *bytes, size_t count)
{
    put_key(to, field, BYTES);
    put_varint(to, count);
    fwrite(bytes, 1, count, to);
}

static void put_double(FILE *to, int field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(to, field, FIXED64);
    put_fixed(to, bits, 8);
}

static void put_float(FILE *to, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(to, field, FIXED32);
    put_fixed(to, bits, 4);
}

/* ---- events ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Writes the data with its frame, at once. */
static bool write_record(int fd, const char *data, size_t count)
{
    char *bytes = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&bytes, &size);
    if (!to)
        return false;
    put_fixed(to, count, 8);
    bool ok = !fflush(to);
    put_fixed(to, ok ? masked(crc32c(bytes, 8)) : 0, 4);
    fwrite(data, 1, count, to);
    put_fixed(to, masked(crc32c(data, count)), 4);
    ok = !ferror(to) && ok;
    ok = !fclose(to) && ok;
    ok = ok && log_write_whole(fd, bytes, size);
    free(bytes);
    return ok;
}

/* An event with one field that is bytes. */
static bool write_event(int fd, int64_t step, int field, const char *bytes, size_t count)
{
    char *data = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&data, &size);
    if (!to)
        return false;
    put_double(to, WALL_TIME, now());
    put_key(to, STEP, VARINT);
    put_varint(to, (uint64_t)step);
    put_bytes(to, field, bytes, count);
    bool ok = !ferror(to);
    ok = !fclose(to) && ok;
    ok = ok && write_record(fd, data, size);
    free(data);
    return ok;
}

static void add_event(events_file *events, int64_t step, int field, const char *bytes, size_t count)
{
    if (events->open && !events->error && !write_event(events->fd, step, field, bytes, count))
        events->error = errno ? errno : ENOMEM;
}

/* ---- the file ---- */

static bool make_folders(const char *folder)
{
    char path[PATHS_BYTES];
    const size_t length = strlen(folder);
    if (!length || length >= sizeof path)
        return errno = length ? ENAMETOOLONG : ENOENT, false;
    memcpy(path, folder, length + 1);
    for (size_t i = 1; i <= length; i++) {
        const char was = path[i];
        if (was && was != '/')
            continue;
        path[i] = '\0';
        if (mkdir(path, 0777) && errno != EEXIST)
            return false;
        path[i] = was;
    }
    return true;
}

bool events_open(events_file *events, const char *folder)
{
    static const char version[] = "brain.Event:2";
    char path[PATHS_BYTES], host[65] = "host";
    *events = (events_file){.fd = -1};
    if (!make_folders(folder))
        return false;
    gethostname(host, sizeof host - 1);
    const int length = snprintf(path, sizeof path, "%s/events.out.tfevents.%010lld.%s.%d", folder, (long long)time(NULL), host,
                                (int)getpid());
    if (length >= (int)sizeof path)
        return errno = ENAMETOOLONG, false;
    events->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    events->open = events->fd >= 0;
    add_event(events, 0, FILE_VERSION, version, sizeof version - 1);
    errno = events->error ? events->error : errno;
    return events->open && !events->error;
}

void events_begin_at(events_file *events, int64_t step)
{
    static const char start[] = {1 << 3 | VARINT, 1};
    add_event(events, step, SESSION_LOG, start, sizeof start);
}

void events_begin(events_file *events)
{
    events->values = events->open ? open_memstream(&events->bytes, &events->count) : NULL;
    if (events->open && !events->values && !events->error)
        events->error = ENOMEM;
}

void events_add(events_file *events, const char *tag, double value)
{
    const size_t letters = strlen(tag);
    FILE *to = events->values;
    if (!to)
        return;
    put_key(to, 1, BYTES);
    put_varint(to, 1 + varint_bytes(letters) + letters + 1 + sizeof(float));
    put_bytes(to, 1, tag, letters);
    put_float(to, 2, (float)value);
}

void events_end(events_file *events, int64_t step)
{
    if (!events->values)
        return;
    const bool made = !ferror(events->values);
    if ((fclose(events->values) || !made) && !events->error)
        events->error = ENOMEM;
    events->values = NULL;
    add_event(events, step, SUMMARY, events->bytes, events->count);
    free(events->bytes);
    events->bytes = NULL;
}

int events_close(events_file *events)
{
    int error = events->error;
    if (events->open && close(events->fd) && !error)
        error = errno;
    *events = (events_file){0};
    return error;
}
