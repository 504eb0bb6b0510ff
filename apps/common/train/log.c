/* apps/common/train/log.c: a file of lines that is whole whenever the process ends.
 *
 * Not stdio's buffer: it writes when it is full, in the middle of a line, and what it holds is lost with the process. A
 * line buffer would do for short lines only. So a line is made in memory and given to the system at once.
 *
 * A line that a power cut or a full disk has left behind may end in its middle. Then going on begins a new one, so that only
 * that line is lost.
 */
#include "apps/common/train/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

bool log_write_whole(int fd, const char *text, size_t bytes)
{
    while (bytes) {
        ssize_t wrote = write(fd, text, bytes);
        if (wrote < 0 && errno != EINTR)
            return false;
        text += wrote > 0 ? wrote : 0;
        bytes -= wrote > 0 ? (size_t)wrote : 0;
    }
    return true;
}

/* Ends what the file ends with, when that is no whole line. Nobody knows that of a FIFO or a device (ESPIPE), or of a
 * file that may not be read (EBADF). */
static bool end_last_line(int fd)
{
    char last = '\n';
    off_t bytes = lseek(fd, 0, SEEK_END);
    if (bytes < 0)
        return errno == ESPIPE;
    if (bytes && pread(fd, &last, 1, bytes - 1) < 0)
        return errno == EBADF;
    return last == '\n' || log_write_whole(fd, "\n", 1);
}

bool log_open(log_file *log, const char *path, bool append)
{
    *log = (log_file){.fd = open(path, (append ? O_RDWR : O_WRONLY) | O_CREAT | O_APPEND | O_CLOEXEC, 0666)};
    log->old = !append;
    if (log->fd < 0 && append && errno == EACCES) /* may be written, but not read */
        log->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    log->open = log->fd >= 0;
    return log->open && (!append || end_last_line(log->fd));
}

FILE *log_begin(log_file *log)
{
    log->line = log->open ? open_memstream(&log->text, &log->bytes) : NULL;
    if (log->open && !log->line && !log->error)
        log->error = ENOMEM;
    return log->line;
}

/* Before the first line: what the file held is no part of this log. A FIFO or a device holds nothing (EINVAL). */
static bool empty_old(log_file *log)
{
    bool empty = !log->old || !ftruncate(log->fd, 0) || errno == EINVAL;
    log->old = false;
    return empty;
}

void log_end(log_file *log)
{
    if (!log->line)
        return;
    bool made = fputc('\n', log->line) != EOF;
    made = !fclose(log->line) && made;
    log->line = NULL;
    if (!log->error && (!made || !empty_old(log) || !log_write_whole(log->fd, log->text, log->bytes)))
        log->error = errno;
    free(log->text);
    log->text = NULL;
}

int log_close(log_file *log)
{
    int error = log->error;
    if (log->open && close(log->fd) && !error)
        error = errno;
    *log = (log_file){0};
    return error;
}
