/* actors/keep/near.h: which checkpoints there are, for an error about one that there is not. Any thread. */
#ifndef ACTORS_KEEP_NEAR_H
#define ACTORS_KEEP_NEAR_H

#include <stddef.h>

#define KEEP_NEAR_BYTES 500

/* "; did you mean 'best'? There are 'best' and 'step-00000002' in runs/a": the checkpoints beside `path`, which is not
 * there; "" when there are none. */
const char *keep_near(const char *path, char *text, size_t bytes);

/* The same of those in the folder itself. */
const char *keep_near_in(const char *folder, char *text, size_t bytes);

#endif
