/* apps/weir/run_port.h: a place where values go into a plan that `weir run` runs, or come out of it. Values come from an
 * .npy file, or are made up; they go to one, or are printed.
 *
 * A file holds one value of exactly the place's shape, or with one more dimension in front as many as that says. It is
 * read and written value by value, in the order of steps and of micro-batches within them.
 *
 * A place is used by one thread at a time: before and after the run by the command's, meanwhile by that of the session
 * which calls the function, or that which pushes or pulls. A source that is split is one place, and the threads of its devices
 * take turns at port_fill_shard(). A mistake with a file is left in `error`.
 */
#ifndef APPS_WEIR_RUN_PORT_H
#define APPS_WEIR_RUN_PORT_H

#include "apps/common/npy.h"

#include <pthread.h>

struct port {
    weir_host_info info;
    const char *program;   /* borrowed: "weir run", for messages */
    struct npy file;       /* open: values come from there, or go there */
    bool made_up;          /* values come from nowhere */
    FILE *print;           /* borrowed: where values that no file gets are printed */
    bool in, out;          /* a file was asked for */
    bool split;            /* the plan has the source on several devices */
    pthread_mutex_t turn;  /* of those that fill shards */
    int64_t values;        /* of an input's file */
    int64_t done;          /* values read or written */
    double sum;            /* of the values of this step so far */
    char error[512];
};

bool port_is_input(const struct port *p);
size_t port_bytes(const struct port *p); /* of one value */

/* "tokens i32 [4, 16]" */
const char *port_text(const struct port *p, char *text, size_t bytes);

/* The file that values come from. -1, or the exit status after reporting. */
int port_feed(struct port *p, const char *path);

/* The file that values go to, for so many of them. */
int port_fetch(struct port *p, const char *path, int64_t values);

/* The value of this step and micro-batch, into `to`; false: `error`. */
bool port_fill(struct port *p, void *to, int64_t step, int micro);

/* The shard of it that a device asks for, of a source that is split; any thread. The file has to be one that can be read at any
 * place. */
bool port_fill_shard(struct port *p, const weir_view *to, int64_t step, int micro);

/* The value goes to the file; or is printed, as the mean of its elements, and over a step's micro-batches when it is the
 * last of them. False: `error`. */
bool port_take(struct port *p, const void *value, int64_t step, int micro);

/* Ends the file, with what was put there. False: `error`. */
bool port_finish(struct port *p);

#endif
