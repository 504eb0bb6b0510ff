/* apps/common/train/log.h: a file of lines that is whole whenever the process ends.
 *
 *     log_file log = {0};
 *     if (!log_open(&log, "run.log", false)) ...                     // errno says why
 *     fprintf(log_begin(&log), "{\"step\": %d}", step);
 *     log_end(&log);
 *     int error = log_close(&log);
 *
 * A line is written with its end in one write: who kills the process, or reads the file while it grows, finds whole
 * lines.
 *
 * One thread.
 */
#ifndef APPS_COMMON_TRAIN_LOG_H
#define APPS_COMMON_TRAIN_LOG_H

#include <stdbool.h>
#include <stdio.h>

typedef struct log_file {
    bool open;
    int fd;
    bool old;     /* what the file held is still in it */
    FILE *line;   /* owned: the line that is being made; its text goes to the next two */
    char *text;   /* owned */
    size_t bytes;
    int error;    /* errno of the first line that was not written; the file ends before it */
    bool told;    /* its owner has reported that */
} log_file;

/* Opens `path` anew, or with `append` behind what is there. Anew, the old lines stay until there is a new one. False, with
 * errno set, when it cannot be written. */
bool log_open(log_file *log, const char *path, bool append);

/* Where the parts of the next line go, without its end. NULL when the log is not open, or there is no memory; then
 * there is no line to end. */
FILE *log_begin(log_file *log);

/* Writes the line that was begun; nothing when none was. */
void log_end(log_file *log);

/* Returns 0, or errno of the first line that could not be written. Also for one that is not open. */
int log_close(log_file *log);

/* Writes all bytes to a file descriptor. False, with errno set, if that fails. */
bool log_write_whole(int fd, const char *text, size_t bytes);

#endif
