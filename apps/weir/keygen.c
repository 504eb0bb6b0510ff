/* weir keygen: a new secret for a session, for WEIR_KEY or, in a file, WEIR_KEY_FILE. The file is the user's alone, and
 * never one that is there already: whoever holds the old secret would go on to trust it. */
#include "apps/common/options.h"
#include "apps/weir/command.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static const char program[] = "weir keygen";

/* Without a stream, whose buffer would keep it. */
static bool write_line(int fd, char secret[WEIR_KEY_BYTES])
{
    const struct iovec line[] = {{secret, WEIR_KEY_BYTES - 1}, {(char *)"\n", 1}};
    errno = ENOSPC; /* if it is written in part */
    return writev(fd, line, 2) == WEIR_KEY_BYTES;
}

static int write_file(const char *path, char secret[WEIR_KEY_BYTES])
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool failed = fd < 0 || !write_line(fd, secret);
    if (fd >= 0)
        failed |= close(fd) != 0;
    return failed ? options_wrong(program, "cannot write %s: %s", path, strerror(errno)) : 0;
}

static int write_output(char secret[WEIR_KEY_BYTES])
{
    return write_line(STDOUT_FILENO, secret)
               ? 0
               : options_wrong(program, "cannot write the key to standard output: %s", strerror(errno));
}

int command_keygen(int argc, char **argv)
{
    const char *path = NULL;
    char secret[WEIR_KEY_BYTES];
    const options_entry table[] = {
        {"FILE", OPTIONS_TEXT, &path, .optional = true, .help = "a new file for it; default: standard output"},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Makes a new secret for WEIR_KEY or WEIR_KEY_FILE.", table},
                               argc, argv);
    if (status >= 0)
        return status;
    if (weir_key_new(secret))
        return options_failed(program);
    status = path ? write_file(path, secret) : write_output(secret);
    explicit_bzero(secret, sizeof secret);
    return status;
}
