/* tests/support/secret.h: looks for a key in the memory of a process: this one, or one that it has started. The letters that
 * it looks for are masked, so that it does not find itself. */
#ifndef TESTS_SUPPORT_SECRET_H
#define TESTS_SUPPORT_SECRET_H

#include <sys/types.h>
#include <weir/cluster.h>

enum { SECRET_LETTERS = WEIR_KEY_BYTES - 1 };

struct secret {
    unsigned char masked[SECRET_LETTERS];
};

/* Reads a key file and leaves no copy in memory. Fails the test when it cannot. */
struct secret secret_read(const char *path);

/* How often the key is in what the process can write to. */
int secret_count(const struct secret *secret, pid_t process);

#endif
