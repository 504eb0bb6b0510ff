/* keep.c: learns from a stream, saves every ten steps, and goes on from what was saved.
 *
 *     keep DIR STEPS [DIE]     DIE: kill this process in this step, unless it was restarted
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

enum { ROWS = 8, EVERY = 10 };
static uint64_t position; /* of the next number in the stream: a checkpoint has to keep it */
static int64_t die = -1;
static weir_session *session;

static weir_status draw(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    if (step == die && !weir_generation())
        raise(SIGKILL);
    for (int i = 0; i < ROWS; i++)
        ((float *)x->data)[i] = weir_random_normal(7, position++);
    return WEIR_OK;
}

static weir_status save_position(void *ctx, int64_t step, void *bytes, size_t *count)
{
    (void)ctx, (void)step;
    *count = sizeof position;
    return memcpy(bytes, &position, *count), WEIR_OK;
}

static weir_status restore_position(void *ctx, int64_t step, const void *bytes, size_t count, char *why, size_t why_bytes)
{
    (void)ctx, (void)step;
    if (count != sizeof position)
        return snprintf(why, why_bytes, "the position has %d bytes, not 8", (int)count), WEIR_E_ARGUMENT;
    return memcpy(&position, bytes, count), WEIR_OK;
}

static void stop(int number)
{
    (void)number;
    weir_session_stop(session);
}

/* Goes on from the newest checkpoint in `dir`, or the newer snapshot in memory, if there is one. */
static weir_status resume(const char *dir, const char *memory)
{
    const char *from = weir_checkpoint_exists(dir) ? dir : NULL;
    weir_status status = from || memory ? weir_session_load(session, from, .memory = memory) : WEIR_OK;
    if (!status && weir_session_step(session))
        printf("begins at step %d\n", (int)weir_session_step(session));
    return status;
}

static weir_status train(const char *dir, int64_t steps)
{
    const char *memory = getenv("WEIR_SNAPSHOTS"); /* from weir launch --restarts */
    weir_status status = resume(dir, memory);
    for (int64_t next = weir_session_step(session); !status && weir_session_step(session) == next && next < steps;) {
        status = weir_session_run(session, EVERY);
        next += EVERY; /* beyond the session's step when somebody stopped the run */
        if (!status && memory)
            status = weir_session_save(session, memory, .memory = true);
        if (!status)
            status = weir_session_save(session, dir, .async = true, .keep = 2);
    }
    return status ? status : weir_session_save_wait(session, -1);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return fputs("usage: keep DIR STEPS [DIE]\n", stderr), 2;
    die = argc > 3 ? atoi(argv[3]) : -1;
    weir_graph *g = weir_graph_new("keep");
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, 1}, .name = "x", .source = draw, .save = save_position,
                                .restore = restore_position);
    weir_tensor *error = weir_sub(weir_linear(x, 1, .name = "line"), weir_affine(x, 3, .shift = 0.5));
    weir_train(weir_mean(weir_mul(error, error)), weir_adamw(.lr = 0.1));
    weir_plan *plan = weir_compile(g, .snapshot = true);
    session = plan ? weir_session_open(plan) : NULL;
    sigaction(SIGINT, &(struct sigaction){.sa_handler = stop}, NULL);
    float weight = 0;
    bool failed = !session || train(argv[1], atoi(argv[2])) ||
                  weir_session_read(session, "line/weight", WEIR_ARRAY(&weight, WEIR_F32, 1, 1));
    if (failed)
        fprintf(stderr, "keep: %s\n", weir_error());
    else
        printf("step %d: weight %.6f\n", (int)weir_session_step(session), (double)weight);
    weir_session_close(session);
    weir_plan_free(plan);
    weir_graph_free(g);
    return failed;
}
