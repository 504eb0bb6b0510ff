/* apps/weir/launch/key.c: a session's secret in a file. */
#include "apps/weir/launch/key.h"
#include "apps/common/options.h"
#include "graph/base/reading.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_BYTES = WEIR_KEY_BYTES + 2 }; /* a line end, and what shows that it is too long */

static int read_line(const char *program, const char *path, char line[LINE_BYTES])
{
    struct stat info = {.st_mode = 0};
    const char *why;
    int fd = reading_open(path, &why);
    if (fd < 0)
        return options_wrong(program, "cannot read %s: %s", path, why);
    ssize_t count = !fstat(fd, &info) ? read(fd, line, LINE_BYTES - 1) : -1;
    int error = errno;
    close(fd);
    if (count < 0)
        return options_wrong(program, "cannot read %s: %s", path, strerror(error));
    if (info.st_mode & (S_IRWXG | S_IRWXO))
        return options_wrong(program, "%s is open to others (mode %03o): chmod 600 it", path,
                             (unsigned)info.st_mode & 0777);
    line[strcspn(line, "\r\n")] = '\0';
    if (strlen(line) != WEIR_KEY_BYTES - 1)
        return options_wrong(program, "%s holds no key: that is a line of %d letters, as weir keygen writes it", path,
                             WEIR_KEY_BYTES - 1);
    return -1;
}

void launch_key_copy(char *to, const char *from, size_t bytes)
{
    volatile char *each = to;
    for (size_t i = 0; i < bytes; i++)
        each[i] = from[i];
}

int launch_key_read(const char *program, const char *path, char secret[WEIR_KEY_BYTES])
{
    char line[LINE_BYTES] = "";
    int status = read_line(program, path, line);
    if (status < 0)
        launch_key_copy(secret, line, WEIR_KEY_BYTES);
    explicit_bzero(line, sizeof line);
    return status;
}

int launch_key_write(const char *program, const char *secret, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 && write(fd, secret, WEIR_KEY_BYTES - 1) == WEIR_KEY_BYTES - 1 && !close(fd))
        return -1;
    return options_wrong(program, "cannot write the session's key to %s: %s", path, strerror(errno));
}
