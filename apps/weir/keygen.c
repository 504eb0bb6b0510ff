/* weir keygen: a new secret for a session, for WEIR_KEY or, in a file, WEIR_KEY_FILE. The file is the user's alone, and
 * never one that is there already: whoever holds the old secret would go on to trust it. */
#include "apps/common/options.h"
#include "apps/weir/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char program[] = "weir keygen";

/* Returns 0, or errno. */
static int write_whole(int fd, const char *text, size_t bytes)
{
    while (bytes) {
        ssize_t written = write(fd, text, bytes);
        if (written < 0 && errno != EINTR)
            return errno;
        text += written > 0 ? written : 0;
        bytes -= written > 0 ? (size_t)written : 0;
    }
    return fsync(fd) ? errno : 0;
}

/* Half a secret is none: a file that cannot be finished goes. */
static int write_file(const char *path, const char *secret)
{
    char line[WEIR_KEY_BYTES + 1];
    int bytes = snprintf(line, sizeof line, "%s\n", secret);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return options_wrong(program, "cannot write %s: %s", path, strerror(errno));
    int error = write_whole(fd, line, (size_t)bytes);
    if (close(fd) && !error)
        error = errno;
    if (!error)
        return 0;
    unlink(path);
    return options_wrong(program, "cannot write %s: %s", path, strerror(error));
}

int command_keygen(int argc, char **argv)
{
    const char *path = NULL;
    char secret[WEIR_KEY_BYTES];
    const options_entry table[] = {
        {"FILE", OPTIONS_TEXT, &path, .optional = true, .file = OPTIONS_WRITES,
         .help = "a new file for it; default: standard output"},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Makes a new secret for WEIR_KEY or WEIR_KEY_FILE.", table},
                               argc, argv);
    if (status >= 0)
        return status;
    if (weir_key_new(secret))
        return options_failed(program);
    return path ? write_file(path, secret) : (puts(secret), 0);
}
