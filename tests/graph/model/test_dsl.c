/* test_dsl.c: mistakes, names and scopes of the graph language.
 *
 * Every mistake is made on a line of its own; `place()` says which. The graph must keep one sentence that begins with
 * that place and says what is wrong; everything built on it must be poisoned, quiet and harmless.
 */
#include "graph/model/build.h"
#include "kernels/common/ops.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* Every test's own graph. */
static weir_graph *g;

static void open_graph(void)
{
    g = weir_graph_new("dsl");
    cr_assert_not_null(g);
}

static void close_graph(void)
{
    weir_graph_free(g);
}

TestSuite(dsl, .init = open_graph, .fini = close_graph, .timeout = 120);

static weir_tensor *matrix(const char *name, int64_t rows, int64_t columns)
{
    return weir_input(g, WEIR_F32, {rows, columns}, .name = name);
}

/* Fails unless the graph's mistake is at `line` of this file and says `text`. */
static void expect_mistake_at(int line, const char *text)
{
    const char *mistake = weir_graph_mistake(g);
    char place[64];
    cr_assert_not_null(mistake, "line %d: no mistake", line);
    snprintf(place, sizeof place, "tests/graph/model/test_dsl.c:%d: ", line);
    cr_expect(!strncmp(mistake, place, strlen(place)), "not at line %d: %s", line, mistake);
    cr_expect_not_null(strstr(mistake, text), "\"%s\" does not say \"%s\"", mistake, text);
}

/* The mistake is on the line before. */
#define expect_mistake(text) expect_mistake_at(__LINE__ - 1, text)

/* ---- wrong inputs of ops ---- */

Test(dsl, sizes_that_do_not_match_are_named)
{
    weir_tensor *a = matrix("a", 8, 784), *b = matrix("b", 512, 10);
    weir_tensor *y = weir_matmul(a, b);
    expect_mistake("matmul: ");
    cr_expect_not_null(strstr(weir_graph_mistake(g), "784"));
    cr_expect_not_null(strstr(weir_graph_mistake(g), "512"));
    cr_expect(weir_tensor_poisoned(y));
}

Test(dsl, shapes_that_do_not_broadcast_are_named)
{
    weir_add(matrix("a", 8, 3), matrix("b", 8, 4));
    expect_mistake("add: shapes [8, 3] and [8, 4] do not broadcast");
}

Test(dsl, a_wrong_dtype_is_named)
{
    weir_relu(weir_input(g, WEIR_I32, {4}, .name = "ids"));
    expect_mistake("relu: ");
    cr_expect_not_null(strstr(weir_graph_mistake(g), "i32"));
}

Test(dsl, an_input_that_is_null_is_named)
{
    cr_expect(weir_tensor_poisoned(weir_add(matrix("a", 2, 2), NULL)));
    expect_mistake("add: input 1 is NULL");
}

Test(dsl, an_op_with_nothing_at_all_says_where)
{
    cr_expect_null(weir_relu(NULL));
    cr_expect_not_null(strstr(weir_error(), "test_dsl.c"), "%s", weir_error());
    cr_expect_not_null(strstr(weir_error(), "relu: input 0 is NULL"), "%s", weir_error());
    cr_expect_null(weir_graph_mistake(g));
}

Test(dsl, a_tensor_of_another_graph_is_refused)
{
    weir_graph *other = weir_graph_new("other");
    weir_tensor *x = weir_input(other, WEIR_F32, {2, 2}, .name = "x");
    weir_add(matrix("a", 2, 2), x);
    expect_mistake("add: \"x.shard\" belongs to another graph");
    weir_graph_free(other);
}

Test(dsl, a_mesh_of_another_graph_is_refused)
{
    weir_graph *other = weir_graph_new("other");
    weir_mesh *mesh = weir_mesh_new(other, "cpu:0-1");
    weir_tensor *a = matrix("a", 2, 2);
    cr_expect(weir_tensor_poisoned(weir_shard(a, .mesh = mesh)));
    expect_mistake("shard: the mesh belongs to another graph");
    weir_param(g, WEIR_F32, {2}, .name = "p", .mesh = mesh);
    weir_graph_free(other);
    cr_expect_null(weir_compile(g));
}

Test(dsl, a_reshape_to_other_elements_is_refused)
{
    weir_reshape(matrix("a", 4, 6), {5, -1});
    expect_mistake("reshape: ");
}

Test(dsl, a_call_without_a_function_is_refused)
{
    weir_call(NULL, {matrix("a", 2, 2)}, .dtype = WEIR_F32, .shape = {2});
    expect_mistake("call: the function is NULL");
}

static weir_status nothing(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

Test(dsl, a_call_without_a_type_is_refused)
{
    weir_call(nothing, {matrix("a", 2, 2)}, .shape = {2});
    expect_mistake("call: there is no dtype 0");
}

Test(dsl, a_call_without_inputs_says_where)
{
    cr_expect_null(weir_call(nothing, {NULL}, .dtype = WEIR_F32));
    cr_expect_not_null(strstr(weir_error(), "call: needs at least one input"), "%s", weir_error());
}

/* ---- inputs, parameters, fetches ---- */

Test(dsl, a_shape_that_is_none_is_refused)
{
    weir_input(g, WEIR_F32, {8, -3}, .name = "x");
    expect_mistake("x: [8, -3] is not a valid shape");
}

Test(dsl, a_shape_that_overflows_is_refused)
{
    weir_param(g, WEIR_F32, {INT64_MAX / 2, 4}, .name = "w");
    expect_mistake("w: ");
}

Test(dsl, a_result_too_large_to_be_counted_is_refused)
{
    weir_tensor *column = matrix("a", INT64_C(1) << 40, 1), *row = matrix("b", 1, INT64_C(1) << 40);
    weir_add(column, row);
    expect_mistake("add: a result of shape [1099511627776, 1099511627776] has too many elements");
}

Test(dsl, a_kind_of_device_without_kernels_is_named)
{
    static weir_op own; /* a program's, with a kernel for CPUs alone */
    own = op_relu;
    own.name = "own";
    cr_assert_eq(weir_op_register(&own), WEIR_OK);
    WEIR_ON(weir_mesh_new(g, "cuda:0"))
        weir_fetch(weir_op_apply(&(weir_apply){.name = "y", .op = &own, .in = (weir_tensor *[]){matrix("x", 2, 2)},
                                               .in_count = 1}, NULL));
    cr_expect_null(weir_compile(g));
    cr_expect_not_null(strstr(weir_error(), "has no kernel for cuda devices"), "%s", weir_error());
}

Test(dsl, a_dtype_that_is_none_is_refused)
{
    weir_input(g, (weir_dtype)17, {8}, .name = "x");
    expect_mistake("x: there is no dtype 17");
}

Test(dsl, a_parameter_without_a_name_is_refused)
{
    cr_expect(weir_tensor_poisoned(weir_param(g, WEIR_F32, {8})));
    expect_mistake("parameter: needs a .name");
}

Test(dsl, a_parameter_is_not_partial)
{
    weir_param(g, WEIR_F32, {8}, .name = "w", .sbp = {P});
    expect_mistake("w: a parameter cannot be P");
}

Test(dsl, an_op_is_told_where_it_will_live_and_what_it_is_called)
{
    weir_mesh *one = weir_mesh_new(g, "cpu:0"), *two = weir_mesh_new(g, "cpu:1");
    weir_tensor *x = matrix("x", 2, 3);
    cr_expect_eq(weir_mesh_for(x), one);
    WEIR_ON(two, .name = "inner") {
        cr_expect_eq(weir_mesh_for(x), two);
        cr_expect_str_eq(weir_name_for(x, "mine", "linear"), "mine");
        cr_expect_str_eq(weir_name_for(x, NULL, "linear"), "linear");
        weir_linear(x, 4);
        cr_expect_str_eq(weir_name_for(x, NULL, "linear"), "linear_1");
    }
    cr_expect_str_eq(weir_name_for(x, NULL, "linear"), "linear");
}

Test(dsl, a_name_is_given_once)
{
    weir_param(g, WEIR_F32, {8}, .name = "w");
    weir_param(g, WEIR_F32, {8}, .name = "w");
    expect_mistake("the name \"w\" is already in use");
}

Test(dsl, a_tensor_is_fetched_once_under_a_name)
{
    weir_tensor *x = matrix("x", 2, 2);
    weir_fetch(x, .name = "y");
    weir_fetch(weir_relu(x), .name = "z");
    weir_fetch(x, .name = "y");
    expect_mistake("fetch: \"y\" is fetched already, at ");
}

Test(dsl, a_fetch_has_slots)
{
    weir_fetch(matrix("x", 2, 2), .slots = -1);
    expect_mistake("fetch: .slots is -1; it must be 1 or more, or 0 for the default");
}

Test(dsl, a_register_has_slots)
{
    weir_tensor *x = weir_relu(matrix("x", 2, 2), .name = "y");
    weir_slots(x, 0);
    expect_mistake("slots: a register needs at least one slot, not 0, for \"y\"");
}

Test(dsl, a_parameter_has_one_slot)
{
    weir_tensor *w = weir_param(g, WEIR_F32, {8}, .name = "w");
    weir_slots(w, 1);
    cr_expect_null(weir_graph_mistake(g));
    weir_slots(w, 2);
    expect_mistake("slots: the parameter \"w\" is changed in place and has one slot, not 2");
}

/* ---- layouts ---- */

Test(dsl, a_split_needs_its_dimension)
{
    weir_tensor *x = matrix("x", 2, 2);
    weir_shard(x, .sbp = {S(2)});
    expect_mistake("shard: S(2) on axis 0 of the mesh \"cpu:0\" does not fit a tensor f32 [2, 2]");
}

Test(dsl, a_split_is_counted_from_the_end_too)
{
    weir_tensor *x = matrix("x", 2, 2);
    weir_tensor *y = weir_shard(x, .sbp = {S(-1)});
    cr_expect_eq(y->sbp[0], S(1));
    weir_shard(x, .sbp = {S(-3)});
    expect_mistake("S(-3) on axis 0 of the mesh \"cpu:0\" does not fit");
}

Test(dsl, a_layout_needs_its_axis)
{
    weir_tensor *x = matrix("x", 2, 2);
    weir_shard(x, .sbp = {B, S(0)});
    expect_mistake("shard: S(0) for mesh axis 1, but the mesh \"cpu:0\" has only 1 axis");
}

Test(dsl, integers_have_no_partial_sums)
{
    weir_tensor *x = weir_input(g, WEIR_I32, {4}, .name = "x");
    weir_shard(x, .sbp = {P});
    expect_mistake("shard: P on axis 0 of the mesh \"cpu:0\" does not fit a tensor i32 [4]");
}

/* ---- meshes ---- */

static void expect_no_mesh(const char *devices, const char *because)
{
    weir_graph *own = weir_graph_new("mesh");
    weir_mesh *mesh = weir_mesh_new(own, devices);
    const char *mistake = weir_graph_mistake(own);
    cr_assert_not_null(mesh, "\"%s\"", devices);
    cr_assert_not_null(mistake, "\"%s\" is taken", devices);
    cr_expect_not_null(strstr(mistake, because), "\"%s\": %s", devices, mistake);
    cr_expect_geq(weir_mesh_size(mesh), 1);
    weir_graph_free(own);
}

Test(dsl, devices_are_listed_as_documented)
{
    static const char *const wrong[] = {"",         "cpu",     "cpu:",      "gpu:0",   "cpu:0-",       "cpu:-1",
                                        "cpu:1-0",  "cpu:0,0", "cpu:0-3,2", "cpu:0,",  "cpu:0;1",      "cpu:0 ",
                                        "cpu: 0",   "cpu:0--1", "cpu:0-1-2", "cpu:0x1", "cpu:+1,cpu:2"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_no_mesh(wrong[i], "is not a list of devices");
    expect_no_mesh(NULL, "is not a list of devices");
    expect_no_mesh("cpu:65536", "\"cpu:65536\" names a device beyond 65535, the last that there can be");
    expect_no_mesh("cpu:3,0-99999", "names a device beyond 65535");
    expect_no_mesh("cpu:99999999999999999999", "names a device beyond 65535");
    cr_expect_eq(weir_mesh_size(weir_mesh_new(g, "cpu:0,2,4-5")), 4);
    cr_expect_eq(weir_mesh_size(weir_mesh_new(g, "cpu:0-65535", .shape = {256, 16, 16})), 65536);
    cr_expect_eq(weir_mesh_size(weir_mesh_new(g, "cpu:65535,1024")), 2);
    cr_expect_eq(weir_mesh_size(weir_mesh_new(g, "cpu:3,1,2", .shape = {1, 3, 1})), 3);
    cr_expect_null(weir_graph_mistake(g));
}

static void expect_no_shape(int a, int b, int c)
{
    weir_graph *own = weir_graph_new("mesh");
    weir_mesh *mesh = weir_mesh_new(own, "cpu:0-3", .shape = {a, b, c});
    const char *mistake = weir_graph_mistake(own);
    cr_assert_not_null(mistake, "{%d, %d, %d} is taken", a, b, c);
    cr_expect_not_null(strstr(mistake, "does not hold the 4 devices of \"cpu:0-3\""), "%s", mistake);
    cr_expect_eq(weir_mesh_size(mesh), 4);
    weir_graph_free(own);
}

Test(dsl, a_shape_holds_the_devices)
{
    expect_no_shape(3, 0, 0);
    expect_no_shape(2, 3, 0);
    expect_no_shape(-4, -1, 0);
    expect_no_shape(0, 4, 0);
    expect_no_shape(2, 0, 2);
    expect_no_shape(65536, 65536, 1);
    expect_no_shape(1 << 30, 1 << 30, 1 << 30);
}

/* ---- training ---- */

static weir_tensor *loss_of(weir_tensor *x)
{
    return weir_mean(weir_linear(x, 3, .name = "layer"), .name = "loss");
}

Test(dsl, what_is_trained_is_a_number)
{
    weir_tensor *y = weir_linear(matrix("x", 4, 2), 3);
    weir_train(y, weir_sgd());
    expect_mistake("the loss must be one f32 number");
}

Test(dsl, what_is_trained_depends_on_parameters)
{
    weir_tensor *y = weir_mean(matrix("x", 4, 2), .name = "m");
    weir_train(y, weir_sgd());
    expect_mistake("train: \"m\" depends on no parameter that trains");
}

Test(dsl, a_graph_is_trained_once)
{
    weir_tensor *loss = loss_of(matrix("x", 4, 2));
    weir_train(loss, weir_sgd());
    weir_train(loss, weir_sgd());
    expect_mistake("train: the graph is trained already");
}

Test(dsl, options_of_an_optimizer_are_in_range)
{
    weir_tensor *loss = loss_of(matrix("x", 4, 2));
    weir_train(loss, weir_adamw(.beta2 = 1));
    expect_mistake("train: .beta2 of the optimizer is 1; it is 0 or more, and less than 1");
}

Test(dsl, a_schedule_is_longer_than_its_warm_up)
{
    weir_tensor *loss = loss_of(matrix("x", 4, 2));
    weir_train(loss, weir_adamw(.warmup = 10, .total = 10));
    expect_mistake("train: .warmup is 10 and .total is 10; ");
}

static bool like_input(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)error;
    (void)error_bytes;
    args->out[0] = args->in[0];
    return true;
}

static void gradient_of_nothing(weir_grad_args *args)
{
    (void)args;
}

static void gradient_too_small(weir_grad_args *args)
{
    args->din[0] = weir_sum(args->dout[0]);
}

static weir_op op_with(void (*grad)(weir_grad_args *args))
{
    return (weir_op){.name = "mine", .in_min = 1, .in_max = 1, .out_count = 1, .infer = like_input, .grad = grad};
}

static void train_through(const weir_op *op)
{
    weir_tensor *h = weir_linear(matrix("x", 4, 2), 3);
    h = weir_op_apply(&(weir_apply){.src = {"mine.c", 9}, .op = op, .in = &h, .in_count = 1}, NULL);
    weir_train(weir_mean(h), weir_sgd());
    cr_assert_not_null(weir_graph_mistake(g));
}

Test(dsl, an_op_without_a_gradient_cannot_lie_on_the_way)
{
    weir_op op = op_with(NULL);
    train_through(&op);
    cr_expect_str_eq(weir_graph_mistake(g),
                     "mine.c:9: mine: has no gradient, and lies between the loss and what is trained");
}

Test(dsl, a_gradient_builder_makes_every_gradient_that_is_needed)
{
    weir_op op = op_with(gradient_of_nothing);
    train_through(&op);
    cr_expect_str_eq(weir_graph_mistake(g), "mine.c:9: mine: its gradient builder made none for input 0");
}

Test(dsl, a_gradient_is_of_the_type_of_its_input)
{
    weir_op op = op_with(gradient_too_small);
    train_through(&op);
    cr_expect_str_eq(weir_graph_mistake(g), "mine.c:9: mine: its gradient for input 0 has another type than the input");
}

/* ---- what mistakes do afterwards ---- */

Test(dsl, the_first_of_ten_mistakes_is_reported)
{
    weir_tensor *x = matrix("x", 4, 2);
    weir_tensor *y = weir_matmul(x, x);
    int line = __LINE__ - 1;
    weir_fetch(y, .name = "y");
    weir_add(y, NULL);
    weir_add(x, NULL);
    weir_reshape(x, {3, 5});
    weir_param(g, WEIR_F32, {2});
    weir_mesh_new(g, "gpu");
    weir_shard(x, .sbp = {S(9)});
    weir_input(g, WEIR_F32, {-1});
    weir_train(y, weir_sgd(.lr = -1));
    weir_slots(x, -1);
    expect_mistake_at(line, "matmul: ");
    cr_expect_null(weir_compile(g));
    cr_expect_str_eq(weir_error(), weir_graph_mistake(g), "compile reports the mistake as it is");
}

Test(dsl, poison_spreads_quietly_and_can_be_asked)
{
    weir_tensor *bad = weir_reshape(matrix("x", 4, 2), {3});
    int line = __LINE__ - 1;
    weir_tensor *all[] = {weir_relu(bad),       weir_add(bad, bad),         weir_matmul(bad, bad),
                          weir_linear(bad, 8),  weir_layernorm(bad),        weir_softmax(bad),
                          weir_sum(bad),        weir_reshape(bad, {2}),     weir_transpose(bad, {1, 0}),
                          weir_slice(bad, 0, 0, 1), weir_concat(0, {bad, bad}), weir_dropout(bad, 0.1),
                          weir_cast(bad, WEIR_I32), weir_shard(bad, .sbp = {S(0)}), weir_affine(bad, 2),
                          weir_attention(bad, bad, bad), weir_cross_entropy(bad, bad), weir_embedding(bad, 4, 4),
                          weir_argmax(bad), weir_call(nothing, {bad}, .dtype = WEIR_F32), weir_rmsnorm(bad)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cr_assert_not_null(all[i], "%zu", i);
        cr_expect(weir_tensor_poisoned(all[i]), "%zu", i);
        cr_expect_eq(weir_tensor_graph(all[i]), g);
        cr_expect_eq(weir_tensor_type(all[i]).shape.rank, 0);
        cr_expect_not_null(weir_tensor_name(all[i]));
    }
    WEIR_ON(weir_tensor_mesh(bad), .name = "inside")
        weir_relu(bad);
    weir_slots(bad, 3);
    weir_fetch(bad);
    weir_train(bad, weir_sgd());
    expect_mistake_at(line, "reshape: ");
}

Test(dsl, good_tensors_are_poisoned_after_a_mistake_too)
{
    weir_tensor *x = matrix("x", 4, 2);
    weir_reshape(x, {3});
    cr_expect(weir_tensor_poisoned(weir_relu(x)));
    cr_expect(!weir_tensor_poisoned(x));
}

Test(dsl, a_mistake_of_an_op_author_is_kept_like_any)
{
    weir_tensor *x = matrix("x", 4, 2);
    weir_tensor *y = weir_mistake(x, (weir_src){"mine.c", 7}, "mine: %d is too few", 3);
    cr_expect(weir_tensor_poisoned(y));
    cr_expect_str_eq(weir_graph_mistake(g), "mine.c:7: mine: 3 is too few");
    cr_expect_null(weir_mistake(NULL, WEIR_HERE, "nobody"));
}

Test(dsl, a_graph_that_does_nothing_is_not_compiled)
{
    matrix("x", 4, 2);
    cr_expect_null(weir_compile(g));
    cr_expect_not_null(strstr(weir_error(), "\"dsl\" fetches nothing and trains nothing"), "%s", weir_error());
    cr_expect_null(weir_compile(NULL));
    cr_expect_not_null(strstr(weir_error(), "compile: the graph is NULL"), "%s", weir_error());
}

Test(dsl, options_of_compile_are_checked)
{
    static const char *const wrong[] = {"", "MiB", "12 apples", "-1GB", "0", "1e30GB", "12MiBs", "nan", "inf"};
    weir_fetch(matrix("x", 4, 2), .name = "y");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_null(weir_compile(g, .memory = wrong[i]), "\"%s\" is taken", wrong[i]);
        cr_expect_not_null(strstr(weir_error(), "is not an amount of memory"), "\"%s\": %s", wrong[i], weir_error());
    }
    cr_expect_null(weir_compile(g, .micro_batches = -1));
    cr_expect_not_null(strstr(weir_error(), "-1 micro-batches"), "%s", weir_error());
    static const char *const right[] = {"1GiB", "2GB", "1.5 GiB", "100000000", "1e6KB", "10TiB"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        weir_plan *plan = weir_compile(g, .memory = right[i]);
        cr_expect_not_null(plan, "\"%s\": %s", right[i], weir_error());
        weir_plan_free(plan);
    }
}

/* ---- scopes and names ---- */

static const char *fresh(void)
{
    return weir_tensor_name(weir_param(g, WEIR_F32, {1}, .name = "p"));
}

Test(dsl, scopes_put_their_names_before)
{
    weir_mesh *mesh = weir_mesh_new(g, "cpu:0");
    cr_expect_str_eq(fresh(), "p");
    WEIR_ON(mesh, .name = "h%d", 3) {
        cr_expect_str_eq(fresh(), "h3/p");
        WEIR_ON(mesh, .name = "inner")
            cr_expect_str_eq(fresh(), "h3/inner/p");
        WEIR_NAMED(g, "named")
            cr_expect_str_eq(fresh(), "h3/named/p");
        WEIR_ON(mesh) {
            weir_tensor *x = weir_param(g, WEIR_F32, {1}, .name = "q");
            cr_expect_str_eq(weir_tensor_name(x), "h3/q");
        }
    }
    WEIR_ON(mesh, .name = "a%db", -2)
        cr_expect_str_eq(fresh(), "a-2b/p");
    cr_expect_eq(g->scopes.count, 0);
    cr_expect_null(weir_graph_mistake(g), "%s", weir_graph_mistake(g));
}

static int leave_by_return(weir_mesh *mesh)
{
    WEIR_ON(mesh, .name = "return")
        WEIR_ON(mesh, .name = "deep") {
            fresh();
            return 1;
        }
    return 0;
}

Test(dsl, scopes_are_left_by_break_continue_and_return)
{
    weir_mesh *mesh = weir_mesh_new(g, "cpu:0");
    int rounds = 0;
    WEIR_ON(mesh, .name = "break") {
        fresh();
        break;
    }
    cr_expect_eq(g->scopes.count, 0);
    for (int i = 0; i < 3; i++)
        WEIR_ON(mesh, .name = "c%d", i) {
            fresh();
            rounds++;
            continue;
        }
    cr_expect_eq(rounds, 3);
    cr_expect_eq(g->scopes.count, 0);
    cr_expect_eq(leave_by_return(mesh), 1);
    cr_expect_eq(g->scopes.count, 0);
    cr_expect_str_eq(fresh(), "p");
    cr_expect_null(weir_graph_mistake(g), "%s", weir_graph_mistake(g));
}

Test(dsl, names_that_are_not_given_are_made_unique)
{
    weir_tensor *x = matrix("x", 2, 2);
    cr_expect_str_eq(weir_tensor_name(weir_relu(x)), "relu");
    cr_expect_str_eq(weir_tensor_name(weir_relu(x)), "relu_1");
    cr_expect_str_eq(weir_tensor_name(weir_relu(x, .name = "relu_2")), "relu_2");
    cr_expect_str_eq(weir_tensor_name(weir_relu(x)), "relu_3");
    WEIR_NAMED(g, "in")
        cr_expect_str_eq(weir_tensor_name(weir_relu(x)), "in/relu");
    cr_expect_null(weir_graph_mistake(g), "%s", weir_graph_mistake(g));
}

Test(dsl, thousands_of_names_are_made_in_no_time)
{
    weir_tensor *x = matrix("x", 2, 2);
    for (int i = 0; i < 20000; i++)
        x = weir_relu(x);
    cr_expect_str_eq(weir_tensor_name(x), "relu_19999");
}

Test(dsl, names_are_copied)
{
    char name[] = "mine", mesh[] = "cpu:0-1";
    weir_mesh_new(g, mesh);
    weir_tensor *x = weir_input(g, WEIR_F32, {2, 2}, .name = name);
    weir_tensor *y = weir_relu(x, .name = name + 1);
    memset(name, 'z', 4);
    memset(mesh, 'z', 7);
    cr_expect_str_eq(weir_tensor_name(x), "mine.shard");
    cr_expect_str_eq(weir_tensor_name(y), "ine");
}

/* ---- placement ---- */

Test(dsl, ops_live_where_the_scope_or_their_input_says)
{
    weir_mesh *first = weir_mesh_new(g, "cpu:0"), *second = weir_mesh_new(g, "cpu:1-2");
    weir_tensor *x = matrix("x", 2, 2), *y = NULL, *w = NULL;
    cr_expect_eq(weir_tensor_mesh(x), first, "inputs are on the first mesh");
    WEIR_ON(second) {
        y = weir_relu(x);
        WEIR_ON(NULL, .graph = g, .name = "as outside")
            cr_expect_eq(weir_tensor_mesh(weir_relu(x)), second);
        w = weir_param(g, WEIR_F32, {2}, .name = "w");
    }
    cr_expect_eq(weir_tensor_mesh(y), second);
    cr_expect_eq(weir_tensor_mesh(w), second);
    cr_expect_eq(weir_tensor_mesh(weir_relu(y)), second, "as its input");
    cr_expect_eq(weir_tensor_mesh(weir_add(w, x)), first, "parameters do not decide");
    cr_expect_eq(weir_tensor_mesh(weir_relu(w)), second, "unless there is nothing else");
    cr_expect_eq(weir_tensor_mesh(weir_call(nothing, {y}, .dtype = WEIR_F32, .shape = {2})), second);
    cr_expect_null(weir_graph_mistake(g), "%s", weir_graph_mistake(g));
}

Test(dsl, a_graph_without_meshes_is_on_cpu_0)
{
    weir_tensor *x = matrix("x", 2, 2);
    cr_expect_eq(weir_mesh_size(weir_tensor_mesh(x)), 1);
    cr_expect_eq(weir_tensor_mesh(x)->device[0], 0);
}
