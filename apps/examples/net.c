/* net.c: runs an ONNX model on made-up values and prints the mean of each output.
 *
 *     net MODEL.onnx
 */
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

/* Room for one value of an input or output. */
static weir_array room_for(const weir_host_info *at)
{
    return (weir_array){calloc((size_t)weir_shape_count(&at->type.shape), weir_dtype_bytes(at->type.dtype)), at->type.dtype, at->type.shape};
}

static weir_status push_made_up(weir_session *s, const weir_host_info *at)
{
    weir_array value = room_for(at);
    for (int64_t i = 0; value.dtype == WEIR_F32 && i < weir_shape_count(&value.shape); i++)
        ((float *)value.data)[i] = weir_random_normal(7, (uint64_t)i);
    weir_status status = weir_session_push(s, at->name, &value, -1);
    free(value.data);
    return status;
}

static weir_status print_mean(weir_session *s, const weir_host_info *at)
{
    weir_array value = room_for(at);
    weir_status status = weir_session_pull(s, at->name, &value, -1);
    const int64_t count = weir_shape_count(&value.shape);
    double sum = 0;
    for (int64_t i = 0; value.dtype == WEIR_F32 && i < count; i++)
        sum += (double)((float *)value.data)[i];
    if (!status)
        printf("%s: %lld elements, mean %.4f\n", at->name, (long long)count, sum / (double)count);
    free(value.data);
    return status;
}

int main(int argc, char **argv)
{
    weir_graph *g = argc > 1 ? weir_graph_from_onnx(argv[1], .fetch = true) : NULL;
    weir_plan *plan = g ? weir_compile(g) : NULL;
    weir_session *s = plan ? weir_session_open(plan) : NULL;
    weir_status status = s ? weir_session_write_values(s, g) : WEIR_E_ARGUMENT; /* the weights, as the file has them */
    weir_host_info at;
    if (!status)
        status = weir_session_start(s, 1);
    for (int i = 0; !status && i < weir_plan_host_count(plan); i++)
        if (!weir_plan_host(plan, i, &at) && at.kind == WEIR_HOST_PUSH)
            status = push_made_up(s, &at);
    for (int i = 0; !status && i < weir_plan_host_count(plan); i++)
        if (!weir_plan_host(plan, i, &at) && at.kind == WEIR_HOST_PULL)
            status = print_mean(s, &at);
    if (argc < 2)
        fprintf(stderr, "usage: net MODEL.onnx\n");
    else if (status)
        fprintf(stderr, "net: %s\n", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    return status ? 1 : 0;
}
