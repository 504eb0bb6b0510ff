/* tests/kernels/test_prelu.c: the example of an op of a user's own keeps what ops promise: its kernels are what they should
 * be, its signatures are true in every layout, its gradients are those of finite differences. */
#include "apps/examples/prelu/prelu.c"

#include "tests/support/gradient_check.h"
#include "tests/support/op_check.h"

#include <criterion/criterion.h>

TestSuite(prelu, .timeout = 60);

static void reference(const kernel_check *c, int out, double *want)
{
    int64_t columns = c->in[1].shape.dim[0], count = weir_shape_count(&c->in[0].shape);
    for (int64_t i = 0; out == 1 && i < columns; i++)
        want[i] = 0;
    for (int64_t i = 0; i < count; i++) {
        double x = kernel_at(&c->in[0], i), slope = kernel_at(&c->in[1], i % columns);
        double dy = c->in_count > 2 ? kernel_at(&c->in[2], i) : 0;
        if (c->in_count == 2)
            want[i] = x > 0 ? x : slope * x;
        else if (out == 0)
            want[i] = x > 0 ? dy : slope * dy;
        else
            want[i % columns] += x > 0 ? 0 : x * dy;
    }
}

/* Every output against the reference, and every signature on so many devices. */
static void check(const weir_op *op, weir_shape shape)
{
    kernel_check c = kernel_check_new(op, NULL, 5);
    kernel_check_in(&c, WEIR_F32, shape);
    kernel_check_in(&c, WEIR_F32, SHAPE(shape.dim[shape.rank - 1]));
    if (op->in_min > 2)
        kernel_check_in(&c, WEIR_F32, shape);
    kernel_check_run(&c);
    for (int i = 0; i < op->out_count; i++)
        kernel_check_near(&c, i, reference, 1e-5);
    cr_expect_eq(weir_op_register(op), WEIR_OK, "%s", weir_error());
    cr_expect_eq(op_check(&c, 3, 1e-5), shape.rank);
    kernel_check_free(&c);
}

Test(prelu, both_ops_are_what_they_should_be_in_every_layout)
{
    check(&op_prelu, SHAPE(7, 5));
    check(&op_prelu, SHAPE(4, 3, 6));
    check(&op_prelu_grad, SHAPE(7, 5));
    check(&op_prelu_grad, SHAPE(4, 3, 6));
}

static weir_tensor *model(weir_graph *g)
{
    weir_tensor *x = weir_param(g, WEIR_F32, {6, 4}, .name = "x");
    return prelu(x, .name = "act");
}

Test(prelu, gradients_are_those_of_finite_differences)
{
    gradient_check(model, 11, 2e-3);
}

Test(prelu, the_example_s_own_check_finds_every_promise_kept)
{
    cr_expect_eq(prelu_check(), WEIR_OK, "%s", weir_error());
}

Test(prelu, mistakes_name_the_place_in_the_user_s_program)
{
    weir_graph *g = weir_graph_new("mistake");
    weir_tensor *loss = weir_mean(weir_input(g, WEIR_F32, {4}, .name = "x"));
    cr_expect(weir_tensor_poisoned(prelu(loss)));
    cr_expect(strstr(weir_graph_mistake(g), "test_prelu.c:") && strstr(weir_graph_mistake(g), "prelu: x is a scalar"), "%s",
              weir_graph_mistake(g));
    weir_graph_free(g);
    const weir_type in[2] = {{WEIR_F32, {2, {3, 4}}}, {WEIR_F32, {1, {3}}}};
    kernel_check_refuses(&op_prelu, NULL, in, 2, "slope has one value for each column of x");
}
