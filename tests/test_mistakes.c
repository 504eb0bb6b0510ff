/* test_mistakes.c: what a program gets to read after a mistake, the whole sentence.
 *
 * Each mistake is made on a line of its own in a graph of its own, as a user makes it, and weir_error() must then be
 * exactly what the table says, behind "tests/test_mistakes.c:LINE: ". A sentence that changes is changed here, where
 * somebody reads it: whether it says what is wrong, with which value, and what to write instead. Nothing may crash, be
 * silent, or (under the sanitizers) be left allocated.
 */
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

static weir_graph *g;

/* The line of the mistake: HERE stands in front of the call that makes it. */
static int line;
#define HERE line = __LINE__,

static void begin(void)
{
    g = weir_graph_new("mistakes");
    cr_assert_not_null(g);
}

static void end(void)
{
    weir_graph_free(g);
}

enum { MATRIX_LINE = __LINE__ + 3 };
static weir_tensor *matrix(const char *name, int64_t rows, int64_t columns)
{
    return weir_input(g, WEIR_F32, {rows, columns}, .name = name);
}

/* Fails unless the thread's error is `wanted`, in which "@" stands for that line of this file, and "#" for that of
 * matrix(). */
static void expect_error(const char *wanted)
{
    char text[1024] = "";
    size_t at = 0;
    for (; *wanted && at < sizeof text - 64; wanted++)
        if (*wanted == '@' || *wanted == '#')
            at += (size_t)snprintf(text + at, sizeof text - at, "tests/test_mistakes.c:%d",
                                   *wanted == '@' ? line : MATRIX_LINE);
        else
            text[at++] = *wanted;
    text[at] = '\0';
    cr_expect_str_eq(weir_error(), text, "line %d:\nit is   %s\nnot     %s", line, weir_error(), text);
}

/* The graph cannot be compiled, and the error is the mistake. */
static void expect_mistake(const char *wanted)
{
    weir_plan *plan = weir_compile(g);
    cr_expect_null(plan, "nobody noticed: %s", wanted);
    weir_plan_free(plan);
    if (!plan)
        expect_error(wanted);
}

#define MISTAKE(name, sentence, ...)                           \
    Test(mistakes, name, .init = begin, .fini = end)           \
    {                                                          \
        __VA_ARGS__;                                           \
        expect_mistake(sentence);                    \
    }

/* A mistake of which the call itself tells. */
#define REFUSED(name, sentence, ...)                           \
    Test(mistakes, name, .init = begin, .fini = end)           \
    {                                                          \
        cr_expect(!!(__VA_ARGS__), "nobody noticed");          \
        expect_error(sentence);                      \
    }

static weir_tensor *ids(void)
{
    return weir_input(g, WEIR_I32, {4}, .name = "ids");
}

static weir_tensor *loss(void)
{
    return weir_mean(weir_linear(matrix("x", 4, 2), 1, .name = "up"), .name = "loss");
}

static weir_status nothing(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

/* ---- NULL ---- */

MISTAKE(a_graph_that_is_null, "@: x: the graph is NULL", HERE weir_input(NULL, WEIR_F32, {2}, .name = "x"))
MISTAKE(a_mesh_of_no_graph, "@: mesh: the graph is NULL", HERE weir_mesh_new(NULL, "cpu:0"))
MISTAKE(a_parameter_of_no_graph, "@: w: the graph is NULL", HERE weir_param(NULL, WEIR_F32, {2}, .name = "w"))
MISTAKE(a_state_of_no_graph, "@: h: the graph is NULL", HERE weir_state(NULL, WEIR_F32, {2}, .name = "h"))
MISTAKE(a_program_of_no_graph, "@: program: the graph is NULL", HERE weir_graph_program(NULL, "eval"))
REFUSED(a_compilation_of_nothing, "@: compile: the graph is NULL", HERE !weir_compile(NULL))
MISTAKE(an_op_of_null, "@: relu: input 0 is NULL", HERE weir_relu(NULL))
MISTAKE(an_op_of_null_and_more, "@: add: input 1 is NULL", HERE weir_add(matrix("x", 2, 2), NULL))
MISTAKE(a_layer_of_null, "@: linear: input 0 is NULL", HERE weir_linear(NULL, 4))
MISTAKE(a_norm_of_null, "@: layernorm: input 0 is NULL", HERE weir_layernorm(NULL))
MISTAKE(a_table_of_null, "@: embedding: input 0 is NULL", HERE weir_embedding(NULL, 4, 4))
MISTAKE(an_attention_of_null, "@: attention: input 0 is NULL", HERE weir_attention(NULL, matrix("k", 2, 2), NULL))
MISTAKE(a_loss_without_labels, "@: cross_entropy: input 1 is NULL",
        HERE weir_cross_entropy(matrix("x", 4, 2), NULL, .ignore = true))
MISTAKE(a_fetch_of_null, "@: fetch: the tensor of y is NULL", HERE weir_fetch(NULL, .name = "y"))
MISTAKE(a_layout_of_null, "@: shard: the tensor is NULL", HERE weir_shard(NULL, .sbp = {WEIR_B}))
MISTAKE(slots_of_null, "@: slots: the tensor is NULL", HERE weir_slots(NULL, 2))
MISTAKE(training_of_null, "@: train: the loss is NULL", HERE weir_train(NULL, weir_sgd()))
MISTAKE(a_state_set_to_null, "@: state_set: the value is NULL",
        HERE weir_state_set(weir_state(g, WEIR_F32, {2}, .name = "h"), NULL))
MISTAKE(a_call_of_null, "@: call: needs at least one input, or a .graph", HERE weir_call(nothing, {NULL}, .dtype = WEIR_F32))
MISTAKE(a_call_with_a_gap, "@: call: input 1 is NULL, and others follow it",
        HERE weir_call(nothing, {matrix("x", 2, 2), NULL, matrix("y", 2, 2)}, .dtype = WEIR_F32))
MISTAKE(a_call_without_a_function, "@: call: the function is NULL", HERE weir_call(NULL, {ids()}, .dtype = WEIR_F32))
MISTAKE(a_place_that_is_null, "@: the mesh is NULL, and so is the graph: nothing can be placed or named here",
        (void)(HERE 0); WEIR_ON((weir_mesh *)NULL, .name = "up"))
REFUSED(a_plan_that_is_null, "@: weir_session_open: the plan is NULL", HERE !weir_session_open(NULL))
REFUSED(a_null_plan_saved, "weir_plan_save: the plan is NULL", HERE weir_plan_save(NULL, "/tmp/plan"))
REFUSED(a_plan_from_null, "weir_plan_load: the path is NULL", HERE !weir_plan_load(NULL))
REFUSED(a_null_plan_checked, "weir_plan_check: the plan is NULL", HERE weir_plan_check(NULL))
REFUSED(a_null_plan_shown, "weir_plan_show: the plan is NULL", HERE weir_plan_show(NULL, stdout))
REFUSED(slots_of_a_null_plan, "weir_predict_slots: the plan is NULL", HERE weir_predict_slots(NULL, NULL, NULL, NULL))
REFUSED(a_checkpoint_from_null, "weir_checkpoint_open: the path is NULL", HERE !weir_checkpoint_open(NULL))

Test(mistakes, the_first_stray_mistake_is_told_once, .init = begin, .fini = end)
{
    weir_tensor *y = (HERE weir_relu(NULL));
    weir_fetch(weir_add(y, y), .name = "y");
    weir_fetch(weir_relu(matrix("x", 2, 2)), .name = "z");
    expect_mistake("@: relu: input 0 is NULL");
    weir_plan *plan = weir_compile(g);
    cr_expect_not_null(plan, "%s", weir_error());
    weir_plan_free(plan);
}

/* ---- graphs that are mixed ---- */

static weir_graph *other;

static weir_tensor *stranger(void)
{
    other = weir_graph_new("other");
    return weir_input(other, WEIR_F32, {2, 2}, .name = "s");
}

MISTAKE(tensors_of_two_graphs, "@: add: \"s.shard\" belongs to another graph",
        HERE weir_add(matrix("x", 2, 2), stranger());
        weir_graph_free(other))
MISTAKE(tensors_of_two_graphs_turned, "@: add: \"x.shard\" belongs to this graph, and another input to another",
        HERE weir_add(stranger(), matrix("x", 2, 2)); weir_graph_free(other))
MISTAKE(a_poisoned_tensor_of_another_graph, "@: add: \"poisoned\" belongs to another graph",
        weir_tensor *bad = weir_relu(weir_reshape(stranger(), {3}));
        HERE weir_add(matrix("x", 2, 2), bad);
        weir_graph_free(other))
MISTAKE(a_mesh_of_another_graph, "@: relu: the WEIR_ON, WEIR_NAMED or WEIR_PROGRAM around it is another graph's",
        weir_tensor *x = matrix("x", 2, 2); stranger();
        (void)(HERE 0); WEIR_ON(weir_mesh_new(other, "cpu:0-1")) weir_fetch(weir_relu(x)); weir_graph_free(other))
MISTAKE(an_input_placed_by_another_graph, "@: y: the WEIR_ON, WEIR_NAMED or WEIR_PROGRAM around it is another graph's",
        stranger(); (void)(HERE 0); WEIR_ON(weir_mesh_new(other, "cpu:0-1")) weir_input(g, WEIR_F32, {2}, .name = "y");
        weir_graph_free(other))
MISTAKE(a_layout_on_another_graph, "@: shard: the mesh belongs to another graph",
        stranger(); HERE weir_shard(matrix("x", 2, 2), .mesh = weir_mesh_new(other, "cpu:0")); weir_graph_free(other))

Test(mistakes, a_graph_that_is_made_in_a_scope_of_another_is_no_mistake, .init = begin, .fini = end)
{
    WEIR_ON(weir_mesh_new(g, "cpu:0-1"))
        weir_fetch(weir_relu(stranger()), .name = "y");
    weir_plan *plan = weir_compile(other);
    cr_expect_not_null(plan, "%s", weir_error());
    weir_plan_free(plan);
    weir_graph_free(other);
}

/* ---- meshes ---- */

MISTAKE(a_gpu, "@: mesh: \"gpu:0\" is not a list of devices; a GPU is \"cuda:0\"", HERE weir_mesh_new(g, "gpu:0"))
MISTAKE(a_kind_of_device_that_is_none,
        "@: mesh: \"cpuu:0\" is not a list of devices: there is no such kind; did you mean 'cpu'? There are 'cpu' and 'cuda'",
        HERE weir_mesh_new(g, "cpuu:0"))
MISTAKE(no_device, "@: mesh: \"four\" is not a list of devices; write \"cpu:0-3\" or \"cpu:0,2\", each at most once",
        HERE weir_mesh_new(g, "four"))
MISTAKE(a_device_too_far, "@: mesh: \"cpu:65536\" names a device beyond 65535, the last that there can be",
        HERE weir_mesh_new(g, "cpu:65536"))
MISTAKE(an_arrangement_of_others, "@: mesh: the shape {3, 0, 0} does not hold the 4 devices of \"cpu:0-3\"",
        HERE weir_mesh_new(g, "cpu:0-3", .shape = {3}))

/* ---- shapes, dtypes, layouts ---- */

MISTAKE(a_dimension_of_none, "@: x: dimension 1 is 0, and 4 follows it; a dimension is at least 1",
        HERE weir_input(g, WEIR_F32, {4, 0, 4}, .name = "x"))
MISTAKE(a_parameter_of_none, "@: w: dimension 0 is 0, and 3 follows it; a dimension is at least 1",
        HERE weir_param(g, WEIR_F32, {0, 3}, .name = "w"))
MISTAKE(a_negative_size, "@: x: [8, -3] is not a valid shape: each dimension must be at least 1, and there may be at most 2^57 - 1 elements",
        HERE weir_input(g, WEIR_F32, {8, -3}, .name = "x"))
MISTAKE(a_huge_size,
        "@: w: [4611686018427387904, 4] is not a valid shape: each dimension must be at least 1, and there may be at most 2^57 - 1 elements",
        HERE weir_param(g, WEIR_F32, {INT64_C(1) << 62, 4}, .name = "w"))
MISTAKE(a_dtype_that_is_none, "@: x: there is no dtype 17; there are WEIR_F32, WEIR_I32, WEIR_U8, WEIR_F16, WEIR_BF16, WEIR_I64 and WEIR_I8", HERE weir_input(g, (weir_dtype)17, {8}, .name = "x"))
MISTAKE(a_parameter_without_a_name, "@: parameter: needs a .name: its initial values follow from it",
        HERE weir_param(g, WEIR_F32, {8}))
MISTAKE(a_split_without_its_dimension,
        "@: shard: S(2) on axis 0 of the mesh \"cpu:0-3\" does not fit a tensor f32 [2, 2]",
        weir_mesh_new(g, "cpu:0-3"); HERE weir_shard(matrix("x", 2, 2), .sbp = {WEIR_S(2)}))
MISTAKE(a_split_over_no_axis, "@: shard: S(0) for mesh axis 1, but the mesh \"cpu:0\" has only 1 axis",
        HERE weir_shard(matrix("x", 2, 2), .sbp = {WEIR_B, WEIR_S(0)}))
MISTAKE(partial_integers,
        "@: shard: P on axis 0 of the mesh \"cpu:0,2\" does not fit a tensor i32 [4]: integers have no partial sums",
        weir_mesh_new(g, "cpu:0,2"); HERE weir_shard(ids(), .sbp = {WEIR_P}))
MISTAKE(a_layout_that_is_none, "@: shard: no SBP on axis 0 of the mesh \"cpu:0\" does not fit a tensor f32 [2, 2]",
        HERE weir_shard(matrix("x", 2, 2), .sbp = {7}))
MISTAKE(a_partial_parameter, "@: w: a parameter cannot be P, as on axis 0 of the mesh \"cpu:0\"",
        HERE weir_param(g, WEIR_F32, {8}, .name = "w", .sbp = {WEIR_P}))

/* ---- names ---- */

MISTAKE(a_name_given_twice, "@: the name \"w\" is already in use, since @",
        weir_param(g, WEIR_F32, {8}, .name = "w"); HERE weir_param(g, WEIR_F32, {8}, .name = "w"))
MISTAKE(a_parameter_named_as_an_op, "@: the name \"y\" is already in use, since @",
        weir_relu(matrix("x", 2, 2), .name = "y"); HERE weir_param(g, WEIR_F32, {8}, .name = "y"))
MISTAKE(two_fetches_of_a_name, "@: fetch: \"y\" is fetched already, at @; give one of the two a .name of its own",
        weir_tensor *x = matrix("x", 2, 2); weir_fetch(x, .name = "y"); HERE weir_fetch(x, .name = "y"))
MISTAKE(a_program_without_a_name, "@: program: a name must have 1 to 63 bytes, without '/' and ':'",
        HERE weir_graph_program(g, ""))

/* ---- ops ---- */

MISTAKE(sizes_that_differ, "@: matmul: inner sizes 784 and 512 differ",
        HERE weir_matmul(matrix("a", 8, 784), matrix("b", 512, 10)))
MISTAKE(shapes_that_do_not_broadcast, "@: add: shapes [8, 3] and [8, 4] do not broadcast",
        HERE weir_add(matrix("a", 8, 3), matrix("b", 8, 4)))
MISTAKE(an_integer_activated, "@: relu: input 0 is i32, and only f32, f16 or bf16 will do", HERE weir_relu(ids()))
MISTAKE(dtypes_that_differ, "@: add: dtypes f32 and i32 differ",
        HERE weir_add(matrix("a", 4, 4), ids()))
static weir_tensor *four(weir_dtype dtype, const char *name)
{
    return weir_input(g, dtype, {4}, .name = name);
}
MISTAKE(a_small_integer_added, "@: add: input 0 is i8, and only f32, f16, bf16, i32 or i64 will do",
        HERE weir_add(four(WEIR_I8, "a"), four(WEIR_I8, "b")))
MISTAKE(a_byte_without_a_sign, "@: sign: input 0 is u8, and only f32, f16, bf16, i32 or i64 will do",
        HERE weir_sign(four(WEIR_U8, "a")))
MISTAKE(an_integer_turned, "@: sin: input 0 is i64, and only f32, f16 or bf16 will do", HERE weir_sin(four(WEIR_I64, "a")))
MISTAKE(a_power_of_integers, "@: pow: input 0 is i32, and only f32, f16 or bf16 will do",
        HERE weir_pow(ids(), four(WEIR_I32, "b")))
MISTAKE(a_comparison_of_two_dtypes, "@: less: dtypes i32 and f32 differ", HERE weir_greater(matrix("a", 8, 4), ids()))
MISTAKE(a_comparison_of_small_integers, "@: equal: the inputs are i8, and only f32, f16, bf16, i32, i64 or u8 will do",
        HERE weir_equal(four(WEIR_I8, "a"), four(WEIR_I8, "b")))
MISTAKE(a_number_as_a_truth, "@: logical_and: input 1 is i32, and only u8 will do", HERE weir_and(four(WEIR_U8, "a"), ids()))
MISTAKE(a_number_that_is_not, "@: logical_not: input 0 is i32, and only u8 will do", HERE weir_not(ids()))
MISTAKE(an_integer_that_is_nan, "@: is_nan: input 0 is i32, and only f32, f16 or bf16 will do", HERE weir_is_nan(ids()))
MISTAKE(a_condition_of_numbers, "@: where: the condition is i32, not u8",
        HERE weir_where(ids(), matrix("a", 2, 4), matrix("b", 2, 4)))
MISTAKE(a_choice_of_two_dtypes, "@: where: dtypes i32 and f32 differ",
        HERE weir_where(four(WEIR_U8, "c"), ids(), matrix("a", 8, 4)))
MISTAKE(a_choice_of_wrong_shapes, "@: where: shapes [4, 2, 3] and [2, 5] do not broadcast",
        HERE weir_where(weir_reshape(four(WEIR_U8, "c"), {4, 1, 1}), matrix("a", 2, 3), matrix("b", 2, 5)))
MISTAKE(bounds_that_cross, "@: clip: .lo is 2 and .hi is 1; .lo is at most .hi", HERE weir_clip(matrix("a", 8, 4), .lo = 2, .hi = 1))
MISTAKE(a_mean_without_a_count,
        "@: mean: .axes says which dimensions, but not how many: say .axis_count, as in .axes = {-1}, .axis_count = 1",
        HERE weir_mean(matrix("a", 8, 3), .axes = {1}))
MISTAKE(a_sum_over_the_first_without_a_count,
        "@: sum: .axes says which dimensions, but not how many: say .axis_count, as in .axes = {-1}, .axis_count = 1",
        HERE weir_sum(matrix("a", 8, 3), .axes = {0}))
Test(mistakes, axes_in_a_name_or_of_another_structure_are_no_axes)
{
    const struct { int64_t axes; } of = {0};
    begin();
    cr_expect(!weir_tensor_poisoned(weir_sum(matrix("a", 8, 3), .name = "my.axes_sum")), "%s", weir_error());
    cr_expect(!weir_tensor_poisoned(weir_sum(matrix("b", 8, 3), .name = "my.axes")), "%s", weir_error());
    cr_expect(!weir_tensor_poisoned(weir_sum(matrix("c", 8, 3), .name = "\"x\" .axes = ")), "%s", weir_error());
    cr_expect(!weir_tensor_poisoned(weir_sum(matrix("d", 8, 3), .keep = of.axes)), "%s", weir_error());
    end();
}
MISTAKE(a_maximum_over_no_dimension, "@: max: axis 2 is not one of the 2 dimensions",
        HERE weir_max(matrix("a", 8, 3), .axes = {2}, .axis_count = 1))
MISTAKE(a_sum_over_one_twice, "@: sum: axis -1 is named twice",
        HERE weir_sum(matrix("a", 8, 3), .axes = {1, -1}, .axis_count = 2))
MISTAKE(too_many_axes, "@: sum: .axis_count is 9, of a tensor with 2 dimensions",
        HERE weir_sum(matrix("a", 8, 3), .axis_count = 9))
MISTAKE(a_reshape_to_others, "@: reshape: shapes [4, 6] and [5, 5] have different numbers of elements",
        HERE weir_reshape(matrix("a", 4, 6), {5, 5}))
MISTAKE(a_reshape_with_a_rest, "@: reshape: 24 elements leave no whole number for the -1",
        HERE weir_reshape(matrix("a", 4, 6), {5, -1}))
MISTAKE(a_reshape_to_none, "@: reshape: dimension 1 is 0, and 6 follows it; a dimension is at least 1",
        HERE weir_reshape(matrix("a", 4, 6), {4, 0, 6}))
MISTAKE(a_transpose_of_too_many, "@: transpose: dimension 2 is named, as number 3 of 2",
        HERE weir_transpose(matrix("a", 4, 6), {1, 0, 2}))
MISTAKE(a_transpose_of_one_twice, "@: transpose: dimension 1 is used twice",
        HERE weir_transpose(matrix("a", 4, 6), {1, 1}))
MISTAKE(a_slice_beyond, "@: slice: 4 elements from 4 on are not all within dimension 1, which has 6",
        HERE weir_slice(matrix("a", 4, 6), 1, 4, 4))
MISTAKE(a_slice_of_no_dimension, "@: slice: axis 5 is not one of the 2 dimensions",
        HERE weir_slice(matrix("a", 4, 6), 5, 0, 1))
MISTAKE(a_concat_of_others, "@: concat: f32 [4, 6] and f32 [5, 5] differ beside dimension 0",
        HERE weir_concat(0, {matrix("a", 4, 6), matrix("b", 5, 5)}))
MISTAKE(a_position_of_other_rows, "@: rope: the position has shape [4]; it needs one element, or the batch and seq of x, [1, 4]",
        weir_tensor *x = weir_input(g, WEIR_F32, {1, 4, 8}, .name = "x"), *at = weir_input(g, WEIR_I32, {4}, .name = "at");
        HERE weir_rope(x, at, .heads = 2))
MISTAKE(heads_that_do_not_divide, "@: attention: 3 heads do not divide dim 8",
        weir_tensor *x = weir_input(g, WEIR_F32, {1, 4, 8}, .name = "x"); HERE weir_attention(x, x, x, .heads = 3))
MISTAKE(a_layer_of_a_vector, "@: linear: x has 1 dimensions; it needs two or more",
        HERE weir_linear(weir_input(g, WEIR_F32, {4}, .name = "x"), 2))
MISTAKE(a_layer_without_outputs, "@: linear: the size of the output is -2; it must be at least 1", HERE weir_linear(matrix("x", 4, 2), -2))
#define IMAGE(rows, columns) weir_input(g, WEIR_F32, {2, 4, rows, columns}, .name = "x")
#define FILTER(...) weir_param(g, WEIR_F32, {__VA_ARGS__}, .name = "w")
MISTAKE(a_convolution_of_a_matrix, "@: conv: x has 2 dimensions; it needs a batch, channels and 1 to 3 more",
        HERE weir_conv(matrix("x", 4, 2), 8, {3}))
MISTAKE(a_kernel_of_other_dimensions, "@: conv: the kernel has 1 sizes; x has 2 spatial dimensions", HERE weir_conv(IMAGE(5, 5), 8, {3}))
MISTAKE(groups_that_do_not_divide_channels, "@: conv: 4 input and 8 output channels; both must be multiples of 3 groups",
        HERE weir_conv(IMAGE(5, 5), 8, {3, 3}, .groups = 3))
MISTAKE(a_stride_below_one, "@: conv: .stride[1] is -1; it must be 1 to 268435456", HERE weir_conv(IMAGE(5, 5), 8, {3, 3}, .stride = {1, -1}))
MISTAKE(a_pad_of_a_dimension_too_many, "@: conv: .pad has 3 numbers or more; x has 2 spatial dimensions",
        HERE weir_conv(IMAGE(5, 5), 8, {3, 3}, .pad = {1, 1, 1}))
MISTAKE(a_window_that_is_too_large, "@: conv: the window spans 7 elements of dimension 2, which has 6 with its pads",
        HERE weir_conv(IMAGE(4, 9), 8, {4, 3}, .pad = {1, 0}, .dilation = {2, 1}))
MISTAKE(a_weight_for_other_channels, "@: conv: x has 4 channels, which are not groups of the weight's 3",
        HERE weir_conv_with(IMAGE(5, 5), FILTER(6, 3, 3, 3), NULL))
MISTAKE(groups_that_the_weight_does_not_have, "@: conv_with: .groups is 4, but x has 4 channels and the weight is for 2 in a group",
        HERE weir_conv_with(IMAGE(5, 5), FILTER(6, 2, 3, 3), NULL, .groups = 4))
MISTAKE(a_bias_for_other_channels, "@: conv: the bias must have one dimension, of 6 channels",
        HERE weir_conv_with(IMAGE(5, 5), FILTER(6, 4, 3, 3), weir_param(g, WEIR_F32, {4}, .name = "b")))
MISTAKE(an_output_pad_of_a_convolution, "@: conv_with: .output_pad[0] is 1; only a transposed convolution has it",
        HERE weir_conv_with(IMAGE(5, 5), FILTER(6, 4, 3, 3), NULL, .output_pad = {1}))
MISTAKE(an_output_pad_as_large_as_the_stride, "@: conv_transpose: .output_pad[1] is 2; it must be at least 0 and less than the stride, 2",
        HERE weir_conv_transpose_with(IMAGE(5, 5), FILTER(4, 6, 3, 3), NULL, .stride = {2, 2}, .output_pad = {0, 2}))
MISTAKE(a_transposed_convolution_of_other_channels, "@: conv_transpose: x has 4 channels and the weight 5",
        HERE weir_conv_transpose_with(IMAGE(5, 5), FILTER(5, 6, 3, 3), NULL))
MISTAKE(a_transposed_convolution_into_nothing, "@: conv_transpose: dimension 2 becomes -1; it must be at least 1",
        HERE weir_conv_transpose_with(IMAGE(1, 5), FILTER(4, 6, 1, 1), NULL, .pad = {1, 1}))
MISTAKE(a_pool_of_pads, "@: max_pool: a pad of 2 in dimension 3; it must be less than what the window spans, 2",
        HERE weir_max_pool(IMAGE(5, 5), {2, 2}, .pad = {0, 2}))
MISTAKE(a_maximum_that_counts_pads, "@: max_pool: .count_pad is for an average; the pads of a maximum never count",
        HERE weir_max_pool(IMAGE(5, 5), {2, 2}, .count_pad = true))
MISTAKE(neighbours_that_are_none, "@: lrn: the size is 0; it must be at least 1", HERE weir_lrn(IMAGE(5, 5), 0))
MISTAKE(a_batch_without_channels, "@: batchnorm: x has 1 dimensions; it needs a batch and channels",
        HERE weir_batchnorm(weir_reshape(matrix("x", 2, 2), {4})))
MISTAKE(a_batch_of_integers, "@: batchnorm: x is i32; it must be f32, f16 or bf16", HERE weir_batchnorm(weir_reshape(ids(), {2, 2})))
MISTAKE(a_batch_of_one, "@: batchnorm: x [1, 4] has one element per channel; a variance needs two or more",
        HERE weir_batchnorm(matrix("x", 1, 4)))
MISTAKE(a_momentum_above_1, "@: batchnorm: .momentum is 1.5; it must be more than 0 and at most 1",
        HERE weir_batchnorm(matrix("x", 4, 4), .momentum = 1.5))
MISTAKE(an_eps_below_0, "@: batchnorm: .eps is -1; it must be a finite number of 0 or more", HERE weir_batchnorm(matrix("x", 4, 4), .eps = -1))
MISTAKE(two_layers_of_one_name, "@: the name \"bn/gain\" is already in use, since @",
        HERE weir_batchnorm(weir_batchnorm(matrix("x", 4, 4), .name = "bn"), .name = "bn"))
MISTAKE(a_stored_weight_of_another_format,
        "@: linear_stored: the weight is not u8 [out, blocks, 20], which Q4_1 needs",
        HERE weir_linear_stored(matrix("x", 4, 64), weir_input(g, WEIR_U8, {8, 2, 18}, .name = "w"), .format = WEIR_Q4_1))
MISTAKE(a_stored_weight_without_a_format,
        "@: embedding_stored: the weight is u8 with 3 dimensions; without a .format it needs to be f32, f16 or bf16 with two",
        HERE weir_embedding_stored(ids(), weir_input(g, WEIR_U8, {8, 2, 18}, .name = "w")))
MISTAKE(a_table_of_nothing, "@: embedding: a table of 0 rows of 8; it needs 1 to 2^31 - 1 rows of at least 1", HERE weir_embedding(ids(), 0, 8))
MISTAKE(labels_of_reals,
        "@: cross_entropy: logits are f32 and labels f32; they need to be f32, f16 or bf16, and i32",
        HERE weir_cross_entropy(matrix("x", 4, 2), matrix("y", 4, 1)))
MISTAKE(labels_of_another_shape, "@: cross_entropy: labels have shape [4] where logits have [5, 2]",
        HERE weir_cross_entropy(matrix("x", 5, 2), ids()))
MISTAKE(a_rate_of_dropout, "@: dropout: rate 1 is not in [0, 1)", HERE weir_dropout(matrix("x", 2, 2), 1))
MISTAKE(an_eps_that_is_no_number, "@: rmsnorm: .eps is nan; it must be a finite number of 0 or more", HERE weir_rmsnorm(matrix("x", 2, 2), .eps = NAN))
MISTAKE(a_cast_to_none, "@: cast: there is no dtype 9; there are WEIR_F32, WEIR_I32, WEIR_U8, WEIR_F16, WEIR_BF16, WEIR_I64 and WEIR_I8", HERE weir_cast(matrix("x", 2, 2), (weir_dtype)9))
MISTAKE(an_init_that_is_no_number, "@: w: .init has the numbers nan and 0; both must be finite",
        HERE weir_param(g, WEIR_F32, {2}, .name = "w", .init = WEIR_NORMAL(NAN)))
#define KINDS "; write WEIR_VALUE(value), WEIR_NORMAL(deviation) or WEIR_UNIFORM(low, high)"
MISTAKE(an_init_with_a_number_and_no_kind, "@: w: .init has the number 0.1 and no kind" KINDS,
        HERE weir_param(g, WEIR_F32, {2}, .name = "w", .init = {0.1}))
MISTAKE(an_init_with_a_second_number_and_no_kind, "@: w: .init has the number 2 and no kind" KINDS,
        HERE weir_param(g, WEIR_F32, {2}, .name = "w", .init = {0, 2}))
MISTAKE(an_init_that_begins_with_the_kind, "@: w: .init has the number 1 and no kind" KINDS,
        HERE weir_param(g, WEIR_F32, {2}, .name = "w", .init = {WEIR_INIT_ZERO}))
MISTAKE(an_init_of_a_state_without_a_kind, "@: h: .init has the number -3 and no kind" KINDS,
        HERE weir_state(g, WEIR_F32, {2}, .name = "h", .init = {-3}))
MISTAKE(an_init_of_a_layer_without_a_kind, "@: up/weight: .init has the number 0.1 and no kind" KINDS,
        HERE weir_linear(matrix("x", 2, 2), 2, .name = "up", .init = {0.1}))
MISTAKE(an_init_of_a_layer_with_zero_and_no_kind, "@: up/weight: .init has the number 0 and no kind" KINDS,
        HERE weir_linear(matrix("x", 2, 2), 2, .name = "up", .init = {WEIR_ZERO}))
MISTAKE(an_init_of_a_table_without_a_kind, "@: t/weight: .init has the number 0.1 and no kind" KINDS,
        HERE weir_embedding(ids(), 10, 8, .name = "t", .init = {0.1}))
MISTAKE(an_init_of_zeros_with_a_number, "@: w: .init has the kind WEIR_INIT_ZERO and the number 3" KINDS,
        HERE weir_param(g, WEIR_F32, {2}, .name = "w", .init = {3, 0, WEIR_INIT_ZERO}))
MISTAKE(an_init_of_no_kind_that_there_is, "@: w: there is no kind of .init with the number 77" KINDS,
        HERE weir_param(g, WEIR_F32, {2}, .name = "w", .init = {3, 0, (weir_init_kind)77}))
MISTAKE(an_sbp_that_is_a_number,
        "@: x: .sbp has the number 1 on axis 0 of the mesh \"cpu:0-1\"; write WEIR_S(1), WEIR_B or WEIR_P",
        weir_mesh_new(g, "cpu:0-1");
        HERE weir_input(g, WEIR_F32, {4, 2}, .name = "x", .sbp = {1}))
MISTAKE(a_split_input_that_is_pushed, "@: x: .split needs a .source; a value that weir_session_push() gives is whole",
        HERE weir_input(g, WEIR_F32, {4, 2}, .name = "x", .sbp = {WEIR_S(0)}, .split = true))
MISTAKE(an_op_that_is_not_registered,
        "@: op_apply: .op is NULL or has no name: weir_op_find() gives NULL for an op that is not registered",
        HERE weir_op_apply(&(weir_apply){.src = WEIR_HERE, .op = weir_op_find("swish"), .graph = g}, NULL))
MISTAKE(a_call_without_a_type, "@: call: there is no dtype 0; there are WEIR_F32, WEIR_I32, WEIR_U8, WEIR_F16, WEIR_BF16, WEIR_I64 and WEIR_I8", HERE weir_call(nothing, {ids()}, .shape = {2}))

static weir_op ruleless = {.name = "ruleless", .in_max = 1, .out_count = 1};
MISTAKE(an_op_without_a_rule, "@: ruleless: the op has no rule infer",
        weir_tensor *x = ids();
        HERE weir_op_apply(&(weir_apply){.src = WEIR_HERE, .op = &ruleless, .in = &x, .in_count = 1}, NULL))
REFUSED(an_op_registered_without_a_rule, "op_register: the op ruleless has no rule infer",
        HERE weir_op_register(&ruleless))

/* ---- states, slots, programs ---- */

MISTAKE(a_state_set_to_another_shape, "@: state_set: \"h\" is f32 [2], the value \"x.shard\" is f32 [2, 2]",
        weir_tensor *h = weir_state(g, WEIR_F32, {2}, .name = "h");
        HERE weir_state_set(h, matrix("x", 2, 2)))
MISTAKE(a_state_set_twice, "@: state_set: \"h\" is set already, at @",
        weir_tensor *h = weir_state(g, WEIR_F32, {2, 2}, .name = "h"), *x = matrix("x", 2, 2);
        weir_state_set(h, x); HERE weir_state_set(h, x))
MISTAKE(no_state_set, "@: state_set: \"y\" is no state",
        weir_tensor *y = weir_relu(matrix("x", 2, 2), .name = "y"); HERE weir_state_set(y, y))
MISTAKE(a_delay_of_less_than_none, "@: h: a delay of -1 steps; from 1 to 65536 can be",
        HERE weir_state(g, WEIR_F32, {2}, .name = "h", .delay = -1))
MISTAKE(no_slots, "@: slots: a register needs at least one slot, not 0, for \"y\"",
        HERE weir_slots(weir_relu(matrix("x", 2, 2), .name = "y"), 0))
MISTAKE(slots_of_a_parameter, "@: slots: the parameter \"w\" is changed in place and has one slot, not 2",
        HERE weir_slots(weir_param(g, WEIR_F32, {2}, .name = "w"), 2))
MISTAKE(a_fetch_with_less_than_no_slots, "@: fetch: .slots is -1; it must be 1 or more, or 0 for the default",
        HERE weir_fetch(matrix("x", 2, 2), .slots = -1))
MISTAKE(another_programs_tensor,
        "@: relu: \"y\" is computed in the program main; eval can read only parameters and states of it",
        weir_tensor *y = weir_relu(matrix("x", 2, 2), .name = "y"); weir_graph_program(g, "eval"); HERE weir_relu(y))

/* ---- training ---- */

MISTAKE(a_rate_that_is_no_number, "@: train: .lr of the optimizer is nan; it is 0 or more, and at most 3.4e38",
        HERE weir_train(loss(), weir_sgd(.lr = NAN)))
MISTAKE(a_rate_below_zero, "@: train: .lr of the optimizer is -0.1; it is 0 or more, and at most 3.4e38",
        HERE weir_train(loss(), weir_sgd(.lr = -0.1)))
MISTAKE(a_rate_that_is_infinite_in_f32, "@: train: .lr of the optimizer is 1e+39; it is 0 or more, and at most 3.4e38",
        HERE weir_train(loss(), weir_sgd(.lr = 1e39)))
MISTAKE(a_momentum_of_one, "@: train: .momentum of the optimizer is 1; it is 0 or more, and less than 1",
        HERE weir_train(loss(), weir_sgd(.momentum = 1)))
MISTAKE(a_beta_beyond, "@: train: .beta2 of the optimizer is 1.5; it is 0 or more, and less than 1",
        HERE weir_train(loss(), weir_adamw(.beta2 = 1.5)))
MISTAKE(an_infinite_clip, "@: train: .clip_norm of the optimizer is inf; it is 0 or more, and at most 3.4e38",
        HERE weir_train(loss(), weir_adamw(.clip_norm = INFINITY)))
MISTAKE(an_option_of_another_optimizer, "@: train: .momentum is SGD's; AdamW has .beta1",
        HERE weir_train(loss(), weir_adamw(.momentum = 0.9)))
MISTAKE(a_warm_up_beyond_the_end, "@: train: .warmup is 100 and .total is 50; neither may be negative, and .warmup must be less than a .total that is given",
        HERE weir_train(loss(), weir_adamw(.warmup = 100, .total = 50)))
MISTAKE(training_twice, "@: train: the graph is trained already, at @", weir_tensor *l = loss(); 
        HERE weir_train(l, weir_sgd()), weir_train(l, weir_sgd()))
MISTAKE(training_of_a_matrix, "@: train: the loss must be one f32 number; \"up\" is f32 [4, 1]",
        HERE weir_train(weir_linear(matrix("x", 4, 2), 1, .name = "up"), weir_sgd()))
MISTAKE(training_of_nothing, "@: train: \"loss\" depends on no parameter that trains",
        HERE weir_train(weir_mean(matrix("x", 4, 2), .name = "loss"), weir_sgd()))
MISTAKE(training_of_what_does_not_train,
        "@: train: the program eval was made without .train = true, so it cannot train (and its dropout is off)",
        weir_graph_program(g, "eval"); HERE weir_train(loss(), weir_sgd()))

MISTAKE(a_group_that_fits_nothing,
        "@: train: .groups[1].match \"up/wieght\" fits no parameter that trains; did you mean 'up/weight'? There are 'up/weight' and 'up/bias'",
        HERE weir_train(loss(), weir_sgd(.groups = {{.match = "*bias"}, {.match = "up/wieght"}})))
MISTAKE(a_group_behind_another,
        "@: train: .groups[1].match \"*bias\" fits only parameters of the groups before it; the first group that fits a parameter has it, so write this one earlier",
        HERE weir_train(loss(), weir_sgd(.groups = {{.match = "up*"}, {.match = "*bias", .lr = 1}})))
MISTAKE(a_group_without_a_pattern,
        "@: train: .groups[0] has no .match, and .groups[1] has one; the first group without .match ends the list",
        HERE weir_train(loss(), weir_sgd(.groups = {{.lr = 1}, {.match = "*bias", .lr = 1}})))
MISTAKE(a_group_with_a_rate_below_zero, "@: train: .groups[0].lr is -1; it is 0 or more, and at most 3.4e38",
        HERE weir_train(loss(), weir_sgd(.groups = {{.match = "*bias", .lr = -1}})))
MISTAKE(groups_that_freeze_all, "@: train: all parameters that \"loss\" depends on are in groups with .frozen",
        HERE weir_train(loss(), weir_sgd(.groups = {{.match = "*", .frozen = true}})))

MISTAKE(a_momentum_of_adagrad, "@: train: .momentum is SGD's; Adagrad has .eps",
        HERE weir_train(loss(), weir_adagrad(.momentum = 0.9)))
MISTAKE(a_beta_of_adagrad, "@: train: Adagrad has no .beta1 and no .beta2; it has .eps",
        HERE weir_train(loss(), weir_adagrad(.beta1 = 0.9)))
MISTAKE(an_eps_of_lion, "@: train: Lion has no .eps; it has .beta1 and .beta2", HERE weir_train(loss(), weir_lion(.eps = 0.1)))
MISTAKE(nesterov_without_momentum, "@: train: .nesterov needs weir_sgd() with a .momentum, as .momentum = 0.9",
        HERE weir_train(loss(), weir_sgd(.nesterov = true)))
MISTAKE(a_schedule_without_an_end, "@: train: the .schedule needs a .total, the step from which the rate is .lr_min",
        HERE weir_train(loss(), weir_sgd(.schedule = WEIR_SCHEDULE_LINEAR)))
MISTAKE(a_constant_schedule_that_ends,
        "@: train: .total is 9, but with WEIR_SCHEDULE_CONSTANT the rate never falls; leave .total out, or choose another .schedule",
        HERE weir_train(loss(), weir_sgd(.schedule = WEIR_SCHEDULE_CONSTANT, .total = 9)))
MISTAKE(a_decay_that_is_too_long, "@: train: .decay is 8; it is 1 or more, and at most the 7 steps from .warmup to .total",
        HERE weir_train(loss(), weir_sgd(.schedule = WEIR_SCHEDULE_STABLE, .warmup = 2, .total = 9, .decay = 8)))
MISTAKE(a_decay_of_another_schedule, "@: train: .decay is of WEIR_SCHEDULE_STABLE; the other schedules fall from .warmup to .total",
        HERE weir_train(loss(), weir_sgd(.total = 9, .decay = 8)))
MISTAKE(a_least_rate_above_the_rate, "@: train: .lr_min is 2 and .lr is 1; with this .schedule .lr_min is at most .lr",
        HERE weir_train(loss(), weir_sgd(.schedule = WEIR_SCHEDULE_LINEAR, .total = 9, .lr = 1, .lr_min = 2)))
MISTAKE(a_rate_that_is_a_vector, "@: train: .rate must be one f32 number; \"x.shard\" is f32 [4, 2]",
        weir_tensor *x = matrix("x", 4, 2), *l = weir_mean(weir_linear(x, 1)); HERE weir_train(l, weir_sgd(.rate = x)))
MISTAKE(a_rate_of_micro_batches,
        "@: train: .rate \"r.shard\" exists once for every micro-batch, but a step has one rate",
        weir_tensor *r = weir_input(g, WEIR_F32, {0}, .name = "r", .micro = true), *l = loss();
        HERE weir_train(l, weir_sgd(.rate = r)))
MISTAKE(an_average_that_forgets_nothing, "@: train: .ema is 1; it is more than 0 and less than 1, or 0 for no averages",
        HERE weir_train(loss(), weir_sgd(), .ema = 1))
MISTAKE(averages_that_come_too_late,
        "@: train: the program eval reads averages and was built before weir_train(.ema), so it has \"up/weight\" itself; build it afterwards",
        weir_tensor *l = loss();
        WEIR_PROGRAM(g, "eval", .averages = true) weir_fetch(weir_linear(matrix("y", 4, 2), 1, .name = "up"));
        HERE weir_train(l, weir_sgd(), .ema = 0.5))
MISTAKE(a_norm_of_a_name_that_is_taken, "@: fetch: \"n\" is fetched already, at @; give one of the two a .name of its own",
        weir_tensor *l = loss(); HERE weir_fetch(l, .name = "n"), weir_train(l, weir_sgd(), .norm = "n"))
MISTAKE(tied_to_nothing, "@: tied: \"loss\" is not the result of weir_embedding() or weir_linear(), so it has no weight",
        weir_tensor *x = matrix("y", 4, 2); HERE weir_tied(x, loss()))
MISTAKE(an_addend_of_other_rows, "@: lora: x [4, 2] and the base [3, 2] must have two or more dimensions, all but the last one the same",
        weir_tensor *x = matrix("x", 4, 2), *y = matrix("y", 3, 2); HERE weir_lora(x, y, 2, 2))
MISTAKE(an_addend_of_no_rank, "@: lora: the rank is 0; it must be at least 1", weir_tensor *x = matrix("x", 4, 2); HERE weir_lora(x, x, 0, 2))
MISTAKE(an_addend_times_infinity, "@: lora: alpha is inf; it must be a finite number",
        weir_tensor *x = matrix("x", 4, 2); HERE weir_lora(x, x, 1, (double)INFINITY))
MISTAKE(an_addend_of_which_all_is_dropped, "@: lora: .dropout is 1; it must be at least 0 and less than 1",
        weir_tensor *x = matrix("x", 4, 2); HERE weir_lora(x, x, 1, 2, .dropout = 1))
MISTAKE(an_addend_of_integers, "@: lora: x is i32 and the base f32; both must be f32, f16 or bf16",
        weir_tensor *x = matrix("x", 4, 2); HERE weir_lora(weir_reshape(ids(), {2, 2}), x, 1, 2))
MISTAKE(an_addend_of_nothing, "@: lora: the base is NULL", HERE weir_lora(matrix("x", 4, 2), NULL, 1, 2))
MISTAKE(a_loss_of_nothing, "@: sub: input 1 is NULL", HERE weir_mse(matrix("x", 4, 2), NULL))

/* ---- compiling ---- */

#define UNCOMPILED(name, sentence, options, ...)                              \
    Test(mistakes, name, .init = begin, .fini = end)                          \
    {                                                                         \
        __VA_ARGS__;                                                          \
        line = line ? line : __LINE__;                                        \
        weir_plan *plan = weir_compile(g, COMPILED_WITH options);             \
        cr_expect_null(plan, "nobody noticed");                               \
        weir_plan_free(plan);                                                 \
        expect_error(sentence);                                     \
    }
#define COMPILED_WITH(...) __VA_ARGS__

static void trained(void)
{
    weir_train(loss(), weir_adamw());
}

UNCOMPILED(a_graph_without_anything,
           "@: compile: the graph \"mistakes\" fetches nothing and trains nothing", (.seed = 1), )
UNCOMPILED(a_fetch_of_what_is_poisoned, "@: relu: input 0 is i32, and only f32, f16 or bf16 will do", (.seed = 1),
           HERE weir_fetch(weir_relu(ids())))
static bool same(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)error, (void)error_bytes;
    args->out[0] = args->in[0];
    return true;
}

static const weir_op unregistered = {.name = "swish", .in_min = 1, .in_max = 1, .out_count = 1, .infer = same,
                                     .kernel = {nothing}};
UNCOMPILED(an_op_that_nobody_registered,
           "@: swish: the op swish is not registered, or not under this name alone; weir_op_register() makes it known",
           (.seed = 1), weir_tensor *x = matrix("x", 2, 2);
           (void)(HERE 0); weir_apply apply = {.src = WEIR_HERE, .op = &unregistered, .in = &x, .in_count = 1};
           weir_fetch(weir_op_apply(&apply, NULL)))
UNCOMPILED(micro_batches_below_zero,
           "@: compile: -1 micro-batches; from 1 to 65536 can be", (.micro_batches = -1), trained())
UNCOMPILED(an_amount_that_is_none,
           "@: compile: \"lots\" is not an amount of memory; write a number above 0 and B, KB, MB, "
           "GB, TB, KiB, MiB, GiB or TiB, as \"512MiB\"",
           (.memory = "lots"), trained())
UNCOMPILED(an_amount_below_zero,
           "@: compile: \"-1GB\" is not an amount of memory; write a number above 0 and B, KB, MB, "
           "GB, TB, KiB, MiB, GiB or TiB, as \"512MiB\"",
           (.memory = "-1GB"), trained())
UNCOMPILED(a_precision_that_is_none,
           "@: compile: a precision of i32; f32, bf16 and f16 can be", (.precision = WEIR_I32),
           trained())
UNCOMPILED(a_scale_that_is_no_number, "@: compile: .loss_scale is nan and .loss_scale_steps is 0; both must be 0 or more",
           (.loss_scale = NAN), trained())
UNCOMPILED(a_place_that_is_no_disk, "@: compile: \"/var/tmp\" is no place to offload to; write \"disk:DIRECTORY\"",
           (.memory = "1GB", .offload = "/var/tmp"), trained())
UNCOMPILED(a_program_without_effect, "@: compile: the program eval fetches nothing, trains nothing and sets nothing",
           (.seed = 1), trained(); weir_graph_program(g, "eval"); weir_relu(matrix("y", 2, 2)))
UNCOMPILED(devices_below_zero, "@: compile: -4 devices per host; 0 or more can be", (.per_host = -4), trained())
UNCOMPILED(a_link_without_a_round_trip,
           "@: compile: \"10Gbit\" is no link between hosts; write its bandwidth and round trip, as \"10Gbit 200us\"",
           (.link = "10Gbit"), trained())
UNCOMPILED(a_limit_that_is_too_small,
        "@: compile: cpu:0 needs at least 768 B, 668 B more than the limit of 100B: parameters 128 B, "
        "optimizer state 384 B, activations 64 B, gradients 128 B, inputs and fetches 64 B, workspace 64 B; "
        "of which 64 B are shared. The smallest limit that would do is 768 B. What may make it less: inputs "
        "with .micro = true and more .micro_batches, .offload = \"disk:DIRECTORY\", .precision = WEIR_BF16, "
        "more devices", (.memory = "100B"), trained())

/* ---- sessions and checkpoints ---- */

static weir_plan *plan_of_two(void)
{
    weir_fetch(weir_linear(weir_relu(matrix("x", 2, 2), .name = "r"), 3, .name = "up"), .name = "y");
    return weir_compile(g);
}

#define RUN(name, sentence, ...)                                          \
    Test(mistakes, name, .init = begin, .fini = end)                      \
    {                                                                     \
        float number[6] = {0};                                            \
        weir_array six = {number, WEIR_F32, {2, {2, 3}}};                 \
        weir_plan *plan = plan_of_two();                                  \
        weir_session *s = weir_session_open(plan);                        \
        cr_assert_not_null(s, "%s", weir_error());                        \
        cr_expect((__VA_ARGS__), "nobody noticed");                       \
        expect_error(sentence);                                 \
        weir_session_close(s);                                            \
        weir_plan_free(plan);                                             \
        (void)six;                                                        \
    }

RUN(workers_below_none,
    "@: weir_session_open: .workers is -1; from 1 to 65536 can be, and no more than there are devices are started",
    HERE !weir_session_open(plan, .workers = -1))
RUN(workers_beyond_all,
    "@: weir_session_open: .workers is 100000; from 1 to 65536 can be, and no more than there are devices are started",
    HERE !weir_session_open(plan, .workers = 100000))
RUN(a_step_below_zero, "@: weir_session_open: .first_step is -5; from 0 to 9223372036854775807 can be",
    HERE !weir_session_open(plan, .first_step = -5))
RUN(no_steps, "weir_session_start: cannot run 0 steps; .steps must be 1 or more, .first_step 0 or more, and the last step times the micro-batches must fit in 63 bits", HERE weir_session_run(s, 0))
RUN(a_program_that_is_none, "weir_session_start: the plan has no program 'eval'; there is 'main'",
    HERE weir_session_run(s, 1, .program = "eval"))
RUN(a_push_to_nothing, "weir_session_push: there is no 'z' to push; there is 'x'",
        HERE weir_session_push(s, "z", &six, 0))
RUN(a_push_of_another_shape, "#: weir_session_push: 'x' is f32 [2, 2], the array given is f32 [2, 3]",
        HERE weir_session_push(s, "x", &six, 0))
RUN(a_push_of_nothing, "#: weir_session_push: 'x': no array is given", HERE weir_session_push(s, "x", NULL, 0))
RUN(a_pull_of_nothing, "weir_session_pull: there is no 'x' to pull; there is 'y'",
        HERE weir_session_pull(s, "x", &six, 0))
RUN(a_parameter_that_is_none, "weir_session_read: the plan has no parameter 'w'; there are 'up/bias' and 'up/weight'", HERE weir_session_read(s, "w", &six))
RUN(a_parameter_of_another_shape, "weir_session_read: 'up/weight' is f32 [2, 3], the array given is f32 [6]",
        HERE weir_session_read(s, "up/weight", &(weir_array){number, WEIR_F32, {1, {6}}}))
RUN(a_checkpoint_that_is_nowhere, "/nowhere: cannot be opened: No such file or directory",
        HERE weir_session_load(s, "/nowhere"))
RUN(a_trace_to_nowhere, "/nowhere/trace: the trace cannot be written: No such file or directory",
    HERE !weir_session_open(plan, .trace = "/nowhere/trace"))
RUN(a_binding_of_nothing, "weir_session_open: the plan has no source, sink or call named 'd' to bind; there is none",
    HERE !weir_session_open(plan, .bindings = (weir_binding[]){{.name = "d", .call = nothing}, {.name = NULL}}))
RUN(a_directory_that_is_no_place, "\"/tmp\" is no place to offload to; write \"disk:DIRECTORY\"",
    HERE !weir_session_open(plan, .offload = "/tmp"))
RUN(a_save_to_nowhere, "@: weir_session_save: there is no folder", HERE weir_session_save(s, NULL))
RUN(a_host_that_is_none, "weir_plan_host: the plan has 2 host functions, none with the index 7",
    HERE weir_plan_host(plan, 7, &(weir_host_info){0}))

REFUSED(a_plan_that_is_nowhere, "/nowhere: cannot be opened: No such file or directory", !weir_plan_load("/nowhere"))
REFUSED(a_plan_that_is_none, "/etc/passwd: this is not a weir plan, or a part of one", !weir_plan_load("/etc/passwd"))
REFUSED(a_checkpoint_that_is_none, "/proc/self: is no checkpoint, and has none (step-...) in it",
        !weir_checkpoint_open("/proc/self"))
REFUSED(an_op_of_a_name_that_is_taken, "op_register: there is another op with the name relu",
        weir_op_register(&(weir_op){.name = "relu", .infer = same}))

Test(mistakes, a_checkpoint_of_another_model, .init = folder_make, .fini = folder_remove)
{
    begin();
    weir_plan *plan = plan_of_two();
    weir_session *s = weir_session_open(plan);
    float number[4] = {0};
    weir_array four = {number, WEIR_F32, {2, {2, 2}}};
    weir_checkpoint_writer *w = weir_checkpoint_create(folder_path("a.safetensors"));
    cr_assert_eq(weir_checkpoint_add(w, &(weir_checkpoint_value){.name = "down", .value = four}), WEIR_OK);
    cr_assert_eq(weir_checkpoint_finish(w), WEIR_OK, "%s", weir_error());
    cr_expect_eq(weir_session_load(s, folder_path("a.safetensors"), .parameters = true), WEIR_E_ARGUMENT);
    char wanted[512];
    snprintf(wanted, sizeof wanted, "weir_session_load: %s has no 'up/weight', which is f32 [2, 3] here; nor 'up/bias'",
             folder_path("a.safetensors"));
    expect_error(wanted);
    weir_session_close(s);
    weir_plan_free(plan);
    end();
}
