/* apps/weir/launch_key.c: a session's secret from a file. */
#include "apps/weir/launch_key.h"
#include "apps/common/options.h"
#include "graph/base/reading.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int launch_key_read(const char *program, const char *path, char secret[WEIR_KEY_BYTES])
{
    char line[WEIR_KEY_BYTES + 2] = ""; /* a line end, and what shows that it is too long */
    struct stat info = {.st_mode = 0};
    const char *why;
    int fd = reading_open(path, &why);
    if (fd < 0)
        return options_wrong(program, "cannot read %s: %s", path, why);
    ssize_t count = !fstat(fd, &info) ? read(fd, line, sizeof line - 1) : -1;
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
    memcpy(secret, line, WEIR_KEY_BYTES);
    return -1;
}
