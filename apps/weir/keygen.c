/* weir keygen: a new secret for a session, in a file that WEIR_KEY_FILE can name. The file is the user's alone, and never
 * one that is there already: whoever holds the old secret would go on to trust it. */
#include "apps/common/options.h"
#include "apps/weir/command.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const char program[] = "weir keygen";

/* Without a stream, whose buffer would keep it. Returns 0, or errno. */
static int write_line(int fd, const char secret[WEIR_KEY_BYTES])
{
    char line[WEIR_KEY_BYTES];
    memcpy(line, secret, WEIR_KEY_BYTES - 1);
    line[WEIR_KEY_BYTES - 1] = '\n';
    int error = 0;
    for (size_t done = 0; done < sizeof line && !error;) {
        ssize_t written = write(fd, line + done, sizeof line - done);
        error = written < 0 && errno != EINTR ? errno : 0;
        done += written > 0 ? (size_t)written : 0;
    }
    explicit_bzero(line, sizeof line);
    return error;
}

/* Half a secret is none: a file that cannot be finished goes. */
static int write_file(const char *path, const char secret[WEIR_KEY_BYTES])
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return options_wrong(program, "cannot write %s: %s", path, strerror(errno));
    int error = write_line(fd, secret);
    if (!error && fsync(fd))
        error = errno;
    if (close(fd) && !error)
        error = errno;
    if (!error)
        return 0;
    unlink(path);
    return options_wrong(program, "cannot write %s: %s", path, strerror(error));
}

static int write_output(const char secret[WEIR_KEY_BYTES])
{
    int error = write_line(STDOUT_FILENO, secret);
    if (error)
        options_wrong(program, "cannot write standard output: %s", strerror(error));
    return error != 0;
}

int command_keygen(int argc, char **argv)
{
    const char *path = NULL;
    char secret[WEIR_KEY_BYTES];
    const options_entry table[] = {
        {"FILE", OPTIONS_TEXT, &path, .optional = true, .file = OPTIONS_WRITES,
         .help = "new file for the secret; default: standard output"},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Make a new secret, for a file that WEIR_KEY_FILE names.", table},
                               argc, argv);
    if (status >= 0)
        return status;
    if (weir_key_new(secret))
        return options_failed(program);
    status = path ? write_file(path, secret) : write_output(secret);
    explicit_bzero(secret, sizeof secret);
    return status;
}
