/* apps/weir/run_port.c: values between files and a plan that runs. */
#include "apps/weir/run_port.h"
#include "apps/common/options.h"
#include "graph/base/dtype.h"
#include "graph/base/foreign.h"
#include "graph/base/locale.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool port_is_input(const struct port *p)
{
    return p->info.kind == WEIR_HOST_SOURCE || p->info.kind == WEIR_HOST_PUSH;
}

static size_t elements(const struct port *p)
{
    return (size_t)weir_shape_count(&p->info.type.shape);
}

size_t port_bytes(const struct port *p)
{
    return elements(p) * weir_dtype_bytes(p->info.type.dtype);
}

/* "i32 [4, 16]", "f32" */
static const char *type_text(weir_dtype dtype, int rank, const int64_t *dim, char *text, size_t bytes)
{
    size_t at = (size_t)snprintf(text, bytes, "%s%s", weir_dtype_name(dtype), rank ? " [" : "");
    for (int d = 0; d < rank && at < bytes; d++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%lld%s", d ? ", " : "", (long long)dim[d],
                               d + 1 < rank ? "" : "]");
    return text;
}

const char *port_text(const struct port *p, char *text, size_t bytes)
{
    const weir_type *type = &p->info.type;
    size_t at = (size_t)snprintf(text, bytes, "%s ", p->info.name);
    if (at < bytes)
        type_text(type->dtype, type->shape.rank, type->shape.dim, text + at, bytes - at);
    return text;
}

/* ---- in ---- */

/* Values of the file; -1: it holds something else. */
static int64_t count_values(const struct port *p)
{
    const weir_type *type = &p->info.type;
    int more = p->file.rank - type->shape.rank;
    if (!npy_gives(&p->file, type->dtype) || more < 0 || more > 1)
        return -1;
    for (int d = 0; d < type->shape.rank; d++)
        if (p->file.dim[more + d] != type->shape.dim[d])
            return -1;
    return more ? p->file.dim[0] : 1;
}

int port_feed(struct port *p, const char *path)
{
    char wanted[600], given[200];
    p->in = true;
    port_text(p, wanted, sizeof wanted);
    if (!npy_open(&p->file, path))
        return options_wrong(p->program, "--feed %s: %s", wanted, tensors_error());
    p->values = count_values(p);
    if (p->values >= 0)
        return -1;
    type_text(p->file.dtype, p->file.rank, p->file.dim, given, sizeof given);
    return options_wrong(p->program, "--feed %s: %s is %s; the file needs the input's type and shape, with or without a "
                         "first dimension of values", wanted, p->file.path, given);
}

static void make_up(const struct port *p, void *to, int64_t value)
{
    uint64_t count = elements(p);
    if (!weir_dtype_real(p->info.type.dtype)) {
        memset(to, 0, port_bytes(p));
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        float x = weir_random_normal((uint64_t)strlen(p->info.name), (uint64_t)value * count + i);
        weir_from_f32(&x, 1, p->info.type.dtype, (char *)to + i * weir_dtype_bytes(p->info.type.dtype));
    }
}

bool port_fill(struct port *p, void *to, int64_t step, int micro)
{
    if (p->made_up)
        return make_up(p, to, step * p->info.per_step + micro), true;
    errno = 0;
    if (npy_get(&p->file, p->info.type.dtype, to, elements(p)))
        return p->done++, true;
    snprintf(p->error, sizeof p->error, "--feed %s: %s: value %lld cannot be read: %s", p->info.name, p->file.path,
             (long long)p->done, errno == ERANGE ? "it has a number that the input's type cannot hold"
                              : errno           ? strerror(errno)
                                                : "it ends before");
    return false;
}

/* Devices ask for shards of different values, so each goes to the value's place in the file. */
static bool fill_shard(struct port *p, void *whole, const weir_view *to, int64_t step, int micro)
{
    const weir_shape *shape = &p->info.type.shape;
    const int64_t start[WEIR_DIMS_MAX] = {0};
    p->done = step * p->info.per_step + micro;
    if (!p->made_up && !npy_seek(&p->file, p->done * (int64_t)elements(p)))
        return snprintf(p->error, sizeof p->error, "--feed %s: %s: each device of a split input reads its own shard, so the file "
                        "cannot be a pipe", p->info.name, p->file.path), false;
    if (!port_fill(p, whole, step, micro))
        return false;
    tensor_copy_box(whole, shape, to->offset, to->data, &to->shape, start, &to->shape, false, weir_dtype_bytes(to->dtype));
    return true;
}

bool port_fill_shard(struct port *p, const weir_view *to, int64_t step, int micro)
{
    void *whole = malloc(port_bytes(p) + 1);
    if (!whole)
        return snprintf(p->error, sizeof p->error, "--feed %s: no memory for a value", p->info.name), false;
    pthread_mutex_lock(&p->turn);
    bool ok = fill_shard(p, whole, to, step, micro);
    pthread_mutex_unlock(&p->turn);
    free(whole);
    return ok;
}

/* ---- out ---- */

int port_fetch(struct port *p, const char *path, int64_t values)
{
    p->out = true;
    if (npy_create(&p->file, path, p->info.type.dtype, &p->info.type.shape, values))
        return -1;
    return options_wrong(p->program, "--fetch %s: %s", p->info.name, tensors_error());
}

static void print_mean(struct port *p, const void *value, int64_t step, int micro)
{
    size_t count = elements(p);
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += dtype_get(p->info.type.dtype, value, (int64_t)i);
    p->sum += count ? sum / (double)count : 0;
    if (micro + 1 < p->info.per_step)
        return;
    struct c_locale locale = c_locale_begin(); /* this may be a thread of the session's */
    if (p->print) {
        flockfile(p->print); /* two threads may print at once: a line stays whole */
        fprintf(p->print, "step %lld  ", (long long)step);
        foreign_put(p->print, p->info.name);
        fprintf(p->print, "%s %.6g\n", p->info.type.shape.rank ? " (mean)" : "", p->sum / p->info.per_step);
        funlockfile(p->print);
    }
    c_locale_end(locale);
    p->sum = 0;
}

bool port_take(struct port *p, const void *value, int64_t step, int micro)
{
    if (!p->out)
        return print_mean(p, value, step, micro), true;
    if (!p->file.file || npy_put(&p->file, value, elements(p)))
        return p->done++, true;
    snprintf(p->error, sizeof p->error, "--fetch %s: %s: cannot be written: %s", p->info.name, p->file.path,
             strerror(errno));
    return false;
}

bool port_finish(struct port *p)
{
    bool ok = true;
    if (p->in)
        npy_close(&p->file);
    else
        ok = npy_finish(&p->file, p->done);
    if (ok || *p->error)
        return !*p->error;
    snprintf(p->error, sizeof p->error, "--fetch %s: %s", p->info.name, tensors_error());
    return false;
}
