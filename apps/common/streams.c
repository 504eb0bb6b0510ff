/* apps/common/streams.c: standard input, output and error.
 *
 * A stream keeps that an earlier write has failed (ferror), but not why, and drops the text. errno cannot tell at the
 * end: other calls have set it since. So a line end is written behind what is lost, and meets the same reason; where it
 * does not, the sentence goes without.
 */
#include "apps/common/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* open() returns the lowest number that is free, so those below are open already. A null device that is open for the
 * other direction fails with EBADF, as the closed descriptor would. */
void streams_begin(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return;
}

/* Whether the stream can be written at all. */
static bool is_open(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

/* False when something is lost; errno says why, 0: unknown. */
static bool end_output(void)
{
    bool failed = ferror(stdout);
    errno = 0;
    if (failed)
        fputc('\n', stdout);
    failed |= fflush(stdout) != 0;
    return !failed && fclose(stdout) == 0;
}

int streams_end(const char *program, int status)
{
    bool lost = !end_output();
    if (lost) {
        const char *why = errno ? strerror(errno) : NULL;
        fprintf(stderr, "%s: cannot write standard output%s%s\n", program, why ? ": " : "", why ? why : "");
    }
    if (is_open(STDERR_FILENO))
        lost |= fflush(stderr) != 0 || ferror(stderr);
    return status ? status : lost;
}
