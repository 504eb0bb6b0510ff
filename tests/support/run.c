/* run.c: see the header. */
#include "tests/support/run.h"

#include "graph/base/base.h"
#include "tests/support/kernel_check.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATIENCE_S = 60 };

typedef struct end { /* a push or pull end of the plan */
    weir_host_info info;
    int64_t done, total;
    weir_view value; /* of one value */
    run_entry *entry;
} end;

typedef struct running {
    const weir_plan *plan;
    weir_session *session;
    end *ends;
    int count;
} running;

double run_input(const char *name, weir_dtype dtype, int64_t step, int micro, int64_t i)
{
    uint64_t key = name_hash(name) + 1000003 * (uint64_t)step + 10007 * (uint64_t)micro;
    return weir_dtype_real(dtype) ? kernel_round(dtype, (double)weir_random_normal(key, (uint64_t)i))
                                  : (double)(int)(weir_random_uniform(key, (uint64_t)i) * RUN_CLASSES);
}

static run_entry *entry_new(run *r, const char *name, int64_t count)
{
    cr_assert_lt(r->count, RUN_ENTRIES_MAX);
    run_entry *e = &r->entry[r->count++];
    snprintf(e->name, sizeof e->name, "%s", name);
    e->count = count;
    e->value = calloc((size_t)count + 1, sizeof *e->value);
    return e;
}

/* ---- ends ---- */

static void ends_open(running *x, run *r, int64_t steps)
{
    int hosts = weir_plan_host_count(x->plan);
    x->ends = calloc((size_t)hosts + 1, sizeof *x->ends);
    for (int h = 0; h < hosts; h++) {
        end *e = &x->ends[x->count];
        cr_assert_eq(weir_plan_host(x->plan, h, &e->info), WEIR_OK, "%s", weir_error());
        if (e->info.kind != WEIR_HOST_PUSH && e->info.kind != WEIR_HOST_PULL)
            continue;
        e->total = steps * e->info.per_step;
        e->value = kernel_view_new(e->info.type, 0);
        if (e->info.kind == WEIR_HOST_PULL)
            e->entry = entry_new(r, e->info.name, e->total * weir_shape_count(&e->info.type.shape));
        x->count++;
    }
}

static weir_status try_push(running *x, end *e)
{
    int64_t step = e->done / e->info.per_step, count = weir_shape_count(&e->info.type.shape);
    for (int64_t i = 0; i < count; i++)
        kernel_set(&e->value, i,
            run_input(e->info.name, e->info.type.dtype, step, (int)(e->done % e->info.per_step), i));
    return weir_session_push(x->session, e->info.name,
                             &(weir_array){e->value.data, e->info.type.dtype, e->info.type.shape}, 0);
}

static weir_status try_pull(running *x, end *e)
{
    int64_t count = weir_shape_count(&e->info.type.shape);
    weir_status status = weir_session_pull(
        x->session, e->info.name, &(weir_array){e->value.data, e->info.type.dtype, e->info.type.shape}, 0);
    for (int64_t i = 0; i < count && !status; i++)
        e->entry->value[e->done * count + i] = kernel_at(&e->value, i);
    return status;
}

/* Whether anything moved; *left: whether anything is left to do. */
static bool ends_turn(running *x, bool *left)
{
    bool moved = false;
    *left = false;
    for (int i = 0; i < x->count; i++) {
        end *e = &x->ends[i];
        if (e->done == e->total)
            continue;
        weir_status status = e->info.kind == WEIR_HOST_PUSH ? try_push(x, e) : try_pull(x, e);
        cr_assert(status == WEIR_OK || status == WEIR_E_TIMEOUT, "%s: %s", e->info.name, weir_error());
        moved |= status == WEIR_OK;
        e->done += status == WEIR_OK;
        *left |= e->done < e->total;
    }
    return moved;
}

static void ends_serve(running *x)
{
    time_t last = time(NULL);
    for (bool left = true; left;) {
        if (ends_turn(x, &left))
            last = time(NULL);
        else if (left)
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        cr_assert_leq(time(NULL) - last, PATIENCE_S, "nothing moves: %s", weir_error());
    }
}

/* ---- parameters ---- */

static void parameters_read(running *x, run *r)
{
    for (int p = 0; p < weir_plan_param_count(x->plan); p++) {
        weir_param_info info;
        cr_assert_eq(weir_plan_param(x->plan, p, &info), WEIR_OK, "%s", weir_error());
        weir_view value = kernel_view_new(info.type, 0);
        weir_array array = {value.data, info.type.dtype, info.type.shape};
        cr_assert_eq(weir_session_read(x->session, info.name, &array), WEIR_OK, "%s", weir_error());
        run_entry *e = entry_new(r, info.name, weir_shape_count(&info.type.shape));
        for (int64_t i = 0; i < e->count; i++)
            e->value[i] = kernel_at(&value, i);
        kernel_view_free(&value);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const run_entry *)a)->name, ((const run_entry *)b)->name);
}

run run_plan(const weir_plan *plan, int64_t steps, int workers)
{
    run r = {.count = 0};
    running x = {.plan = plan, .session = weir_session_open(plan, .workers = workers)};
    cr_assert_not_null(x.session, "%s", weir_error());
    ends_open(&x, &r, steps);
    cr_assert_eq(weir_session_start(x.session, steps), WEIR_OK, "%s", weir_error());
    ends_serve(&x);
    cr_assert_eq(weir_session_wait(x.session, PATIENCE_S * 1000), WEIR_OK, "%s", weir_error());
    parameters_read(&x, &r);
    cr_assert_eq(weir_session_close(x.session), WEIR_OK);
    for (int i = 0; i < x.count; i++)
        kernel_view_free(&x.ends[i].value);
    free(x.ends);
    qsort(r.entry, (size_t)r.count, sizeof *r.entry, by_name);
    return r;
}

void run_free(run *r)
{
    for (int i = 0; i < r->count; i++)
        free(r->entry[i].value);
    r->count = 0;
}

const run_entry *run_find(const run *r, const char *name)
{
    for (int i = 0; i < r->count; i++)
        if (!strcmp(r->entry[i].name, name))
            return &r->entry[i];
    return NULL;
}

void run_near(const run *got, const run *want, double tolerance, const char *what)
{
    cr_assert_eq(got->count, want->count, "%s: %d entries, not %d", what, got->count, want->count);
    for (int e = 0; e < want->count; e++) {
        const run_entry *a = &got->entry[e], *b = &want->entry[e];
        cr_assert_str_eq(a->name, b->name, "%s", what);
        cr_assert_eq(a->count, b->count, "%s: %s", what, a->name);
        for (int64_t i = 0; i < a->count; i++) {
            bool near = tolerance ? kernel_near(a->value[i], b->value[i], tolerance)
                                  : !memcmp(&a->value[i], &b->value[i], sizeof a->value[i]);
            cr_assert(near, "%s: %s[%ld] is %.9g, not %.9g", what, a->name, (long)i, a->value[i], b->value[i]);
        }
    }
}

weir_plan *run_compile(weir_graph *graph, weir_compile_opts opts)
{
    opts.seed = 5;
    opts.size = sizeof opts;
    weir_plan *plan = weir_compile_at(graph, &opts);
    cr_assert_not_null(plan, "%s", weir_error());
    cr_expect_eq(weir_plan_check(plan), WEIR_OK, "%s", weir_error());
    weir_graph_free(graph);
    return plan;
}
