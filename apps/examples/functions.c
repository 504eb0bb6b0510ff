/* functions.c: a pipeline of C functions, over values that vary in size.
 *
 *     numbers -> [filter] -> multiples of 3, 0 to 8 of them -> [add] -> running total -> [print]
 */
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

enum { NUMBERS = 8, STEPS = 5 };

static weir_status count_up(const weir_kernel_args *args)
{
    int32_t *numbers = args->out[0].data;
    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = (int32_t)(args->step * args->step) + i;
    return args->step < STEPS ? WEIR_OK : WEIR_END;
}

/* Its output varies in size: the function writes the number of rows to *length. */
static weir_status filter(const weir_kernel_args *args)
{
    const int32_t *divisor = args->host, *numbers = args->in[0].data;
    int32_t *kept = args->out[0].data, count = 0;
    for (int i = 0; i < NUMBERS; i++)
        if (numbers[i] % *divisor == 0)
            kept[count++] = numbers[i];
    *args->out[0].length = count;
    return WEIR_OK;
}

/* State of its own: a total, for each session. */
static weir_status open_total(const weir_kernel_args *args, void **state)
{
    *state = calloc(1, sizeof(int64_t));
    if (!*state)
        snprintf(args->error, args->error_bytes, "there is no memory for a total");
    return *state ? WEIR_OK : WEIR_E_MEMORY;
}

static void close_total(void *host, void *state)
{
    (void)host;
    printf("total: %d\n", (int)*(int64_t *)state);
    free(state);
}

static weir_status add(const weir_kernel_args *args)
{
    int64_t *total = args->host_state;
    const int32_t *numbers = args->in[0].data;
    for (int64_t i = 0; i < weir_view_rows(&args->in[0]); i++)
        *total += numbers[i];
    *(int32_t *)args->out[0].data = (int32_t)*total;
    *args->out[0].length = 1;
    return WEIR_OK;
}

/* Two inputs and no output: it is called for its effect. */
static weir_status print(const weir_kernel_args *args)
{
    const int32_t *count = args->in[0].data, *total = args->in[1].data;
    printf("step %d: %d numbers", (int)args->step, *count);
    printf(weir_view_rows(&args->in[1]) ? ", total %d\n" : "\n", *total);
    return WEIR_OK;
}

int main(void)
{
    int32_t divisor = 3;
    weir_graph *g = weir_graph_new("functions");
    weir_tensor *numbers = weir_call(count_up, {NULL}, .name = "numbers", .graph = g, .dtype = WEIR_I32, .shape = {NUMBERS});
    weir_tensor *kept = weir_call(filter, {numbers}, .name = "filter", .dtype = WEIR_I32, .shape = {NUMBERS},
                                  .varies = true, .ctx = &divisor);
    weir_tensor *total = weir_call(add, {kept}, .name = "add", .dtype = WEIR_I32, .shape = {1}, .varies = true,
                                   .open = open_total, .close = close_total, .skips = true, .queue = "adder");
    weir_call_many(NULL, print, {weir_length(kept), total}, .name = "print");
    weir_plan *plan = weir_compile(g);
    weir_session *s = plan ? weir_session_open(plan) : NULL;
    weir_status status = s ? weir_session_run(s, 1000) : WEIR_E_GRAPH;
    bool failed = status && status != WEIR_E_END; /* the numbers end before step 1000 */
    if (failed)
        fprintf(stderr, "functions: %s\n", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    return failed;
}
