/* ONNX files: models that are run beside the numbers that they stand for, and files that are wrong. The files are written by
 * tests/support/onnx_file.h. */
#include "tests/support/folder.h"
#include "tests/support/onnx_file.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

TestSuite(onnx, .init = folder_make, .fini = folder_remove, .timeout = 60);

#define F32(name, ...) onnx_file_constant(&f, name, ONNX_FLOAT, 1, (int64_t[]){sizeof((float[]){__VA_ARGS__}) / 4}, (float[]){__VA_ARGS__})
#define I64(name, ...) onnx_file_constant(&f, name, ONNX_INT64, 1, (int64_t[]){sizeof((int64_t[]){__VA_ARGS__}) / 8}, (int64_t[]){__VA_ARGS__})
#define INPUT(name, ...) onnx_file_input(&f, name, ONNX_FLOAT, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})

static const char *save(struct onnx_file *f)
{
    const char *path = folder_path("m.onnx");
    onnx_file_save(f, path);
    return path;
}

/* One step of the model: x goes in, `count` elements of y come out. */
static void run(weir_graph *g, const float *x, float *y, int count)
{
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan, .workers = 1);
    weir_type in = weir_tensor_type(weir_graph_tensor(g, "x")), out = weir_tensor_type(weir_graph_tensor(g, "y"));
    cr_assert_eq(weir_shape_count(&out.shape), count);
    weir_array given = {(void *)(uintptr_t)x, in.dtype, in.shape}, got = {y, out.dtype, out.shape};
    cr_assert_eq(weir_session_write_values(s, g), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_start(s, 1), WEIR_OK);
    cr_assert_eq(weir_session_push(s, "x", &given, 5000), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_pull(s, "y", &got, 5000), WEIR_OK, "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
}

static void expect(const float *got, const float *wanted, int count)
{
    for (int i = 0; i < count; i++)
        cr_expect_float_eq(got[i], wanted[i], 1e-5, "element %d is %g, and not %g", i, (double)got[i], (double)wanted[i]);
}
#define EXPECT(got, ...) expect(got, (float[]){__VA_ARGS__}, sizeof((float[]){__VA_ARGS__}) / 4)

/* ---- models that run ---- */

/* y = relu(x W) + b, where W is a parameter and 1 + 1 a constant. */
static struct onnx_file small_model(void)
{
    struct onnx_file f = {.opset = 13};
    INPUT("x", 2, 2);
    onnx_file_constant(&f, "w", ONNX_FLOAT, 2, (int64_t[]){2, 3}, (float[]){1, 2, 3, 4, 5, 6});
    F32("one", 1);
    onnx_file_node(&f, "Add", "one one", "two");
    onnx_file_node(&f, "MatMul", "x w", "product");
    onnx_file_node(&f, "Relu", "product", "positive");
    onnx_file_node(&f, "Add", "positive two", "y");
    onnx_file_output(&f, "y");
    return f;
}

Test(onnx, a_model_computes_what_its_nodes_say)
{
    struct onnx_file f = small_model();
    weir_graph *g = weir_graph_from_onnx(save(&f), .fetch = true);
    cr_assert(g, "%s", weir_error());
    float y[6];
    run(g, (float[]){1, 1, -1, 0}, y, 6);
    EXPECT(y, 7, 9, 11, 2, 2, 2);
    weir_graph_free(g);
}

Test(onnx, weights_are_parameters_and_constants_are_frozen)
{
    struct onnx_file f = {.opset = 13};
    INPUT("x", 3);
    F32("w", 1, 2, 3);
    onnx_file_node(&f, "Constant", "", "c");
    onnx_file_ints(&f, "value_ints", 3, (int64_t[]){1, 2, 3});
    onnx_file_node(&f, "Cast", "c", "real");
    onnx_file_int(&f, "to", ONNX_FLOAT);
    onnx_file_node(&f, "Mul", "x w", "z");
    onnx_file_node(&f, "Add", "z real", "y");
    onnx_file_output(&f, "y");
    weir_graph *g = weir_graph_from_onnx(save(&f));
    weir_graph_value list[3];
    cr_assert(g, "%s", weir_error());
    cr_assert_eq(weir_graph_values(g, list, 3), 2);
    cr_expect_str_eq(list[0].name, "w");
    cr_expect_not(list[0].frozen);
    cr_expect_str_eq(list[1].name, "real");
    cr_expect(list[1].frozen);
    EXPECT((const float *)list[1].value.data, 1, 2, 3);
    weir_graph_free(g);
}

Test(onnx, an_imported_model_trains)
{
    struct onnx_file f = small_model();
    weir_graph *g = weir_graph_from_onnx(save(&f));
    weir_tensor *y = weir_graph_tensor(g, "y"), *loss = weir_mean(weir_mul(y, y));
    weir_train(loss, weir_sgd(.lr = 0.01));
    weir_fetch(loss, .name = "loss");
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan, .workers = 1);
    float x[] = {1, 1, -1, 0}, first = 0, last = 0;
    cr_assert_eq(weir_session_write_values(s, g), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_start(s, 20), WEIR_OK);
    for (int i = 0; i < 20; i++) {
        cr_assert_eq(weir_session_push(s, "x", WEIR_ARRAY(x, WEIR_F32, 2, 2), 5000), WEIR_OK);
        cr_assert_eq(weir_session_pull(s, "loss", WEIR_ARRAY(i ? &last : &first, WEIR_F32), 5000), WEIR_OK);
    }
    cr_expect_lt(last, 0.9f * first);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* The shape that x is reshaped to is computed from the shape of x. */
Test(onnx, arithmetic_of_shapes_leaves_nothing_in_the_graph)
{
    struct onnx_file f = {.opset = 13};
    INPUT("x", -1, 2, 3);
    I64("zero", 0);
    I64("rest", -1);
    onnx_file_node(&f, "Shape", "x", "shape");
    onnx_file_node(&f, "Gather", "shape zero", "batch");
    onnx_file_node(&f, "Concat", "batch rest", "to");
    onnx_file_int(&f, "axis", 0);
    onnx_file_node(&f, "Reshape", "x to", "flat");
    onnx_file_node(&f, "Neg", "flat", "y");
    onnx_file_output(&f, "y");
    weir_graph *g = weir_graph_from_onnx(save(&f), .shape = {{"x", {4, 2, 3}}}, .fetch = true);
    cr_assert(g, "%s", weir_error());
    const weir_shape shape = weir_tensor_type(weir_graph_tensor(g, "y")).shape;
    cr_expect_eq(shape.rank, 2);
    cr_expect_eq(shape.dim[0], 4);
    cr_expect_eq(shape.dim[1], 6);
    cr_expect_eq(weir_graph_values(g, NULL, 0), 0);
    weir_graph_free(g);
}

Test(onnx, a_branch_with_a_known_condition_is_built_in_place)
{
    struct onnx_file f = {.opset = 13}, then = {.opset = 13}, other = {.opset = 13};
    INPUT("x", 2);
    onnx_file_constant(&f, "condition", ONNX_BOOL, 0, NULL, (uint8_t[]){0});
    onnx_file_node(&then, "Neg", "x", "a");
    onnx_file_output(&then, "a");
    onnx_file_node(&other, "Exp", "x", "b");
    onnx_file_output(&other, "b");
    onnx_file_node(&f, "If", "condition", "y");
    onnx_file_graph(&f, "then_branch", &then);
    onnx_file_graph(&f, "else_branch", &other);
    onnx_file_output(&f, "y");
    weir_graph *g = weir_graph_from_onnx(save(&f), .fetch = true);
    float y[2];
    cr_assert(g, "%s", weir_error());
    run(g, (float[]){0, 1}, y, 2);
    EXPECT(y, 1, 2.7182817f);
    weir_graph_free(g);
}

/* sum = sum + x, from step to step. */
Test(onnx, an_output_can_be_the_input_of_the_next_step)
{
    struct onnx_file f = {.opset = 13};
    float x[] = {1, 2}, y[2];
    INPUT("x", 2);
    INPUT("before", 2);
    onnx_file_node(&f, "Add", "before x", "y");
    onnx_file_output(&f, "y");
    weir_graph *g = weir_graph_from_onnx(save(&f), .fetch = true, .state = {{"before", "y"}});
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan, .workers = 1);
    cr_assert_eq(weir_session_start(s, 3), WEIR_OK);
    for (int i = 1; i <= 3; i++) {
        cr_assert_eq(weir_session_push(s, "x", WEIR_ARRAY(x, WEIR_F32, 2), 5000), WEIR_OK);
        cr_assert_eq(weir_session_pull(s, "y", WEIR_ARRAY(y, WEIR_F32, 2), 5000), WEIR_OK);
        cr_expect_eq(y[0], i * x[0]);
        cr_expect_eq(y[1], i * x[1]);
    }
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(onnx, a_model_gives_the_same_over_two_devices)
{
    struct onnx_file f = small_model();
    weir_graph *g = weir_graph_from_onnx(save(&f), .fetch = true, .devices = "cpu:0-1");
    float y[6];
    cr_assert(g, "%s", weir_error());
    run(g, (float[]){1, 1, -1, 0}, y, 6);
    EXPECT(y, 7, 9, 11, 2, 2, 2);
    weir_graph_free(g);
}

/* An integer of a constant is given for it, and becomes one of the input's type. */
Test(onnx, an_input_can_be_fixed_at_import)
{
    struct onnx_file f = {.opset = 13};
    int32_t to[] = {3, 2};
    INPUT("x", 2, 3);
    onnx_file_input(&f, "to", ONNX_INT64, 1, (int64_t[]){2});
    onnx_file_node(&f, "Reshape", "x to", "flat");
    onnx_file_node(&f, "Neg", "flat", "y");
    onnx_file_output(&f, "y");
    const char *path = save(&f);
    cr_expect_null(weir_graph_from_onnx(path));
    cr_expect(strstr(weir_error(), "m.onnx:1: Reshape: input 1, to, must be known at import"), "%s", weir_error());
    weir_graph *g = weir_graph_from_onnx(path, .value = {{"to", WEIR_ARRAY(to, WEIR_I32, 2), NULL}});
    cr_assert(g, "%s", weir_error());
    cr_expect_eq(weir_tensor_type(weir_graph_tensor(g, "y")).shape.dim[0], 3);
    weir_graph_free(g);
}

/* ---- files that are wrong ---- */

static void refused(const char *path, const char *why)
{
    weir_graph *g = weir_graph_from_onnx(path);
    cr_expect_null(g, "%s", why);
    cr_expect(strstr(weir_error(), why), "%s: %s", why, weir_error());
    weir_graph_free(g);
}

Test(onnx, all_unknown_operators_are_listed_at_once)
{
    struct onnx_file f = {.opset = 13};
    INPUT("x", 2);
    onnx_file_node(&f, "Bessel", "x", "a");
    onnx_file_node(&f, "Relu", "a", "b");
    onnx_file_node(&f, "Airy", "b", "c");
    onnx_file_node(&f, "Bessel", "c", "y");
    onnx_file_output(&f, "y");
    refused(save(&f), "these operators are not supported: Bessel (2: node 1 ), Airy (1: node 3 )");
}

Test(onnx, a_newer_version_of_the_operators_is_refused)
{
    struct onnx_file f = small_model();
    f.opset = 99;
    refused(save(&f), "it uses version 99 of ONNX's operators; weir reads up to");
}

Test(onnx, an_open_size_is_named)
{
    struct onnx_file f = {.opset = 13};
    INPUT("x", -1, 2);
    onnx_file_node(&f, "Relu", "x", "y");
    onnx_file_output(&f, "y");
    refused(save(&f), "the file leaves dimension 0 of input x open: batch: give its shape, which has 2 dimensions (--shape x=..., .shape)");
}

Test(onnx, a_mistake_of_the_model_has_the_number_of_its_node)
{
    struct onnx_file f = {.opset = 13};
    INPUT("x", 2, 3);
    onnx_file_constant(&f, "w", ONNX_FLOAT, 2, (int64_t[]){2, 2}, (float[]){1, 2, 3, 4});
    onnx_file_node(&f, "Relu", "x", "a");
    onnx_file_node(&f, "MatMul", "a w", "y");
    onnx_file_output(&f, "y");
    refused(save(&f), "m.onnx:2: matmul: inner sizes");
}

Test(onnx, a_value_that_nothing_makes_is_named)
{
    struct onnx_file f = {.opset = 13};
    INPUT("x", 2);
    onnx_file_node(&f, "Add", "x later", "y");
    onnx_file_node(&f, "Neg", "x", "later");
    onnx_file_output(&f, "y");
    refused(save(&f), "m.onnx:1: Add: its input later is made by no node before it");
}

Test(onnx, a_wrong_name_in_the_options_is_named)
{
    struct onnx_file f = small_model();
    const char *path = save(&f);
    cr_expect_null(weir_graph_from_onnx(path, .shape = {{"xx", {2, 2}}}));
    cr_expect(strstr(weir_error(), ".shape: the model has no input 'xx'; there is 'x'"), "%s", weir_error());
    cr_expect_null(weir_graph_from_onnx(path, .state = {{"x", "z"}}));
    cr_expect(strstr(weir_error(), ".state: the model has no value 'z'"), "%s", weir_error());
}

Test(onnx, external_data_lies_below_the_folder_of_the_model)
{
    const float data[] = {0, 1, 2, 3};
    const char *wrong[] = {"../w.bin", "/etc/passwd", "a/../../w.bin", "link"};
    folder_write(folder_path("w.bin"), data, sizeof data);
    cr_assert_eq(symlink("/etc/hostname", folder_path("link")), 0);
    for (int i = 0; i < 4; i++) {
        struct onnx_file f = {.opset = 13};
        onnx_file_external(&f, "w", 2, wrong[i], "0");
        onnx_file_output(&f, "w");
        refused(save(&f), "it is not below the model's folder");
    }
    struct onnx_file f = {.opset = 13};
    INPUT("x", 2);
    onnx_file_external(&f, "w", 2, "w.bin", "4");
    onnx_file_node(&f, "Mul", "x w", "y");
    onnx_file_output(&f, "y");
    weir_graph *g = weir_graph_from_onnx(save(&f), .fetch = true);
    float y[2];
    cr_assert(g, "%s", weir_error());
    run(g, (float[]){10, 10}, y, 2);
    EXPECT(y, 10, 20);
    weir_graph_free(g);
    onnx_file_external(&f, "w", 2, "w.bin", "12");
    onnx_file_output(&f, "w");
    refused(save(&f), "w.bin has 16 bytes; the tensor needs 8, from byte 12");
}

/* Sizes that no memory holds, and lists that are longer than the file. */
Test(onnx, a_file_that_lies_about_sizes_is_refused)
{
    struct onnx_file f = {.opset = 13};
    onnx_file_constant(&f, "w", ONNX_FLOAT, 0, NULL, (float[]){1});
    I64("huge", INT64_C(1) << 40, INT64_C(1) << 30);
    onnx_file_node(&f, "Expand", "w huge", "y");
    onnx_file_output(&f, "y");
    refused(save(&f), "m.onnx:1: Expand: it makes a constant of FLOAT");
}

/* Each byte less, and each byte another: a graph or a sentence, and nothing is read that is not there. */
Test(onnx, any_damage_gives_a_graph_or_a_sentence)
{
    struct onnx_file f = small_model();
    struct proto_out bytes = onnx_file_bytes(&f);
    const char *path = folder_path("m.onnx");
    int graphs = 0;
    for (size_t i = 0; i < 2 * bytes.count; i++) {
        bytes.bytes[i / 2] ^= i % 2 ? 0x55 : 0;
        folder_write(path, bytes.bytes, i % 2 ? bytes.count : i / 2);
        bytes.bytes[i / 2] ^= i % 2 ? 0x55 : 0;
        weir_graph *g = weir_graph_from_onnx(path);
        cr_expect(g || strstr(weir_error(), "m.onnx"), "%s", weir_error());
        graphs += g != NULL;
        weir_graph_free(g);
    }
    cr_expect_gt(graphs, 0);
    free(bytes.bytes);
}

Test(onnx, a_file_that_is_not_there_is_named)
{
    refused("no/such.onnx", "no/such.onnx: cannot be read: No such file or directory");
    cr_expect_null(weir_graph_from_onnx(NULL));
    cr_expect(strstr(weir_error(), "weir_graph_from_onnx"), "%s", weir_error());
}

/* ---- a convolution with a batch norm behind it ---- */

/* With `seen`, the convolution's result is an output, too. */
static struct onnx_file normed_model(bool seen)
{
    struct onnx_file f = {.opset = 13};
    float w[3 * 2 * 9];
    for (int i = 0; i < 3 * 2 * 9; i++)
        w[i] = (float)(i % 7) - 3;
    INPUT("x", 1, 2, 4, 4);
    onnx_file_constant(&f, "w", ONNX_FLOAT, 4, (int64_t[]){3, 2, 3, 3}, w);
    F32("b", 1, 2, 3);
    F32("scale", 1, 2, -1);
    F32("shift", 0, 1, 2);
    F32("mean", 1, -1, 0);
    F32("variance", 4, 1, 0.25f);
    onnx_file_node(&f, "Conv", "x w b", "c");
    onnx_file_ints(&f, "pads", 4, (int64_t[]){1, 1, 0, 0});
    onnx_file_ints(&f, "strides", 2, (int64_t[]){2, 1});
    onnx_file_node(&f, "BatchNormalization", "c scale shift mean variance", "n");
    onnx_file_node(&f, "MaxPool", "n", "p");
    onnx_file_ints(&f, "kernel_shape", 2, (int64_t[]){2, 2});
    onnx_file_node(&f, "Flatten", "p", "y");
    onnx_file_output(&f, "y");
    if (seen)
        onnx_file_output(&f, "c");
    return f;
}

Test(onnx, a_batch_norm_is_in_the_weights_of_its_convolution)
{
    float x[32], y[2][6];
    int values[2];
    for (int i = 0; i < 32; i++)
        x[i] = (float)(i * 5 % 11) - 4;
    for (int seen = 0; seen < 2; seen++) {
        struct onnx_file f = normed_model(seen);
        weir_graph *g = weir_graph_from_onnx(save(&f));
        cr_assert(g, "%s", weir_error());
        weir_fetch(weir_graph_tensor(g, "y"));
        values[seen] = weir_graph_values(g, NULL, 0);
        run(g, x, y[seen], 6);
        weir_graph_free(g);
    }
    cr_expect_eq(values[0], 2, "%d values", values[0]); /* weight and bias */
    cr_expect_gt(values[1], 2);
    expect(y[0], y[1], 6);
}

/* The tensor with the norm in it has the norm's name; and a state that a later step reads is what the file says. */
Test(onnx, a_convolution_with_its_norm_has_the_name_of_the_norm)
{
    struct onnx_file f = normed_model(false);
    weir_graph *g = weir_graph_from_onnx(save(&f));
    cr_expect(weir_graph_tensor(g, "n"), "%s", weir_error());
    cr_expect_null(weir_graph_tensor(g, "c"));
    weir_graph_free(g);
    f = normed_model(false);
    onnx_file_input(&f, "before", ONNX_FLOAT, 4, (int64_t[]){1, 3, 2, 3});
    g = weir_graph_from_onnx(save(&f), .state = {{"before", "c"}});
    cr_assert(g, "%s", weir_error());
    cr_expect(weir_graph_tensor(g, "c"), "%s", weir_error());
    weir_graph_free(g);
}

Test(onnx, weights_of_recurrent_layers_train)
{
    struct onnx_file f = {.opset = 13};
    weir_graph_value list[4];
    INPUT("x", 3, 1, 2);
    onnx_file_constant(&f, "w", ONNX_FLOAT, 3, (int64_t[]){1, 8, 2}, (float[16]){1, -1, 0.5f});
    onnx_file_constant(&f, "r", ONNX_FLOAT, 3, (int64_t[]){1, 8, 2}, (float[16]){0.5f, 1});
    onnx_file_node(&f, "LSTM", "x w r", "y");
    onnx_file_int(&f, "hidden_size", 2);
    onnx_file_output(&f, "y");
    weir_graph *g = weir_graph_from_onnx(save(&f));
    cr_assert(g, "%s", weir_error());
    cr_assert_eq(weir_graph_values(g, list, 4), 2);
    cr_expect_str_eq(list[0].name, "w");
    cr_expect_not(list[0].frozen || list[1].frozen);
    weir_graph_free(g);
}

/* ---- numbers at the ends ---- */

Test(onnx, integers_are_computed_with_64_bits)
{
    struct onnx_file f = {.opset = 13};
    const int64_t large = (INT64_C(1) << 60) + 1;
    weir_graph_value list[2];
    I64("a", large, 5);
    I64("axes", 0);
    onnx_file_node(&f, "Neg", "a", "minus");
    onnx_file_node(&f, "ReduceSum", "a axes", "sum");
    onnx_file_int(&f, "keepdims", 0);
    onnx_file_node(&f, "Add", "minus sum", "y");
    onnx_file_output(&f, "y");
    weir_graph *g = weir_graph_from_onnx(save(&f));
    cr_assert(g, "%s", weir_error());
    cr_assert_eq(weir_graph_values(g, list, 2), 1);
    cr_expect_eq(((const int64_t *)list[0].value.data)[0], 5);
    cr_expect_eq(((const int64_t *)list[0].value.data)[1], large);
    weir_graph_free(g);
}

/* An id of more than 32 bits is not one of fewer bits. */
Test(onnx, an_id_out_of_range_is_refused)
{
    struct onnx_file f = {.opset = 13};
    float y[2];
    INPUT("x", 3);
    I64("ids", (INT64_C(1) << 32) + 1, 0);
    onnx_file_node(&f, "Gather", "x ids", "y");
    onnx_file_output(&f, "y");
    weir_graph *g = weir_graph_from_onnx(save(&f), .fetch = true);
    cr_assert(g, "%s", weir_error());
    weir_plan *plan = weir_compile(g);
    weir_session *s = weir_session_open(plan, .workers = 1);
    cr_assert_eq(weir_session_write_values(s, g), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_start(s, 1), WEIR_OK);
    cr_assert_eq(weir_session_push(s, "x", WEIR_ARRAY(((float[]){1, 2, 3}), WEIR_F32, 3), 5000), WEIR_OK);
    cr_expect_neq(weir_session_pull(s, "y", WEIR_ARRAY(y, WEIR_F32, 2), 5000), WEIR_OK);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(onnx, a_bound_is_one_number)
{
    struct onnx_file f = {.opset = 13};
    INPUT("x", 2);
    F32("lo", 0, 1);
    onnx_file_node(&f, "Clip", "x lo", "y");
    onnx_file_output(&f, "y");
    refused(save(&f), "m.onnx:1: Clip: input 1, a bound, is not one number");
}

/* A size of 0 beside sizes whose product overflows. */
Test(onnx, empty_constants_with_huge_sizes_are_refused)
{
    struct onnx_file f = {.opset = 13};
    onnx_file_constant(&f, "w", ONNX_FLOAT, 0, NULL, (float[]){1});
    I64("huge", 0, INT64_C(1) << 40, INT64_C(1) << 40);
    onnx_file_node(&f, "Expand", "w huge", "y");
    onnx_file_output(&f, "y");
    refused(save(&f), "m.onnx:1: Expand: it makes a constant of FLOAT");
    f = (struct onnx_file){.opset = 13};
    INPUT("x", 1, 1, 4, 4);
    onnx_file_constant(&f, "w", ONNX_FLOAT, 4, (int64_t[]){1, 1, 2, 2}, (float[]){1, 2, 3, 4});
    onnx_file_node(&f, "Conv", "x w", "y");
    onnx_file_ints(&f, "dilations", 2, (int64_t[]){INT64_MAX, 1});
    onnx_file_output(&f, "y");
    refused(save(&f), "m.onnx:1: Conv: its attribute dilations has the number");
}

/* ---- the fuzzer's corpus ---- */

static struct onnx_file recurrent_model(void)
{
    struct onnx_file f = {.opset = 13}, then = {.opset = 13}, other = {.opset = 13};
    INPUT("x", 3, 1, 2);
    onnx_file_constant(&f, "w", ONNX_FLOAT, 3, (int64_t[]){1, 8, 2}, (float[16]){1, -1, 0.5f});
    onnx_file_constant(&f, "r", ONNX_FLOAT, 3, (int64_t[]){1, 8, 2}, (float[16]){0.5f, 1});
    onnx_file_constant(&f, "yes", ONNX_BOOL, 0, NULL, (uint8_t[]){1});
    I64("flat", 0, -1);
    onnx_file_node(&f, "LSTM", "x w r", "h - c");
    onnx_file_int(&f, "hidden_size", 2);
    onnx_file_text(&f, "direction", "reverse");
    onnx_file_node(&then, "Reshape", "h flat", "a");
    onnx_file_output(&then, "a");
    onnx_file_node(&other, "Neg", "h", "b");
    onnx_file_output(&other, "b");
    onnx_file_node(&f, "If", "yes", "y");
    onnx_file_graph(&f, "then_branch", &then);
    onnx_file_graph(&f, "else_branch", &other);
    onnx_file_output(&f, "y");
    return f;
}

static void corpus(const char *path, struct onnx_file f)
{
    if (getenv("WEIR_TEST_WRITE"))
        onnx_file_save(&f, path);
    else
        free(onnx_file_bytes(&f).bytes);
    weir_graph *g = weir_graph_from_onnx(path);
    cr_expect(g, "%s; WEIR_TEST_WRITE=1 build/release/tests/test_onnx --filter 'onnx/the_corpus*' writes it", weir_error());
    weir_graph_free(g);
}

Test(onnx, the_corpus_of_the_fuzzer_is_there)
{
    corpus("tests/fuzz/corpus/onnx/small", small_model());
    corpus("tests/fuzz/corpus/onnx/normed", normed_model(false));
    corpus("tests/fuzz/corpus/onnx/recurrent", recurrent_model());
}
