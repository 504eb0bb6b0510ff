/* tests/graph/compile/test_lines.c: each tensor of a plan is at the line of the program that made it, whatever the
 * compiler made of it: gradients, sums, copies in other layouts and dtypes, results that are computed again or wait on
 * a disk, states of optimizers.
 *
 * Every tensor of the model is made on a line of its own, which AT() keeps by name. The name of each tensor in the plan
 * begins with one of these.
 */
#define _GNU_SOURCE
#include "graph/compile/actors/passes.h"
#include "graph/compile/ir/ir.h"
#include "graph/compile/budget/offload.h"
#include "graph/model/build.h"
#include "graph/plan/show/layouts.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

TestSuite(lines, .timeout = 120);

enum { MARKS_MAX = 32 };

static struct mark {
    const char *name;
    uint32_t line;
} marks[MARKS_MAX];
static int mark_count;

static void mark(const char *name, uint32_t line)
{
    cr_assert_lt(mark_count, MARKS_MAX);
    marks[mark_count++] = (struct mark){name, line};
}
#define AT(name, made) (mark(name, __LINE__), made)

struct layout {
    const char *devices;
    bool zero, recompute, micro;
    weir_compile_opts compile;
};

static weir_plan *compiled(const weir_graph *g, const struct layout *layout)
{
    weir_compile_opts opts = layout->compile;
    opts.size = sizeof opts;
    opts.src = WEIR_HERE;
    return weir_compile_at(g, &opts);
}

static weir_graph *model(struct layout layout)
{
    mark_count = 0;
    weir_graph *g = weir_graph_new("lines");
    weir_mesh_new(g, layout.devices);
    weir_tensor *x = AT("x", weir_input(g, WEIR_F32, {8, 16}, .name = "x", .sbp = {WEIR_S(0)}, .micro = layout.micro));
    weir_tensor *w = AT("w", weir_param(g, WEIR_F32, {16, 16}, .name = "w", .init = WEIR_NORMAL(0.1)));
    weir_tensor *fixed = AT("fixed", weir_param(g, WEIR_F32, {16}, .name = "fixed", .init = WEIR_VALUE(1), .frozen = true));
    weir_tensor *a = AT("a", weir_matmul(x, w, .name = "a"));
    weir_tensor *b = AT("b", weir_linear(a, 16, .name = "b"));
    weir_tensor *c = AT("c", weir_gelu(b, .name = "c"));
    weir_tensor *d = AT("d", weir_linear(c, 16, .name = "d", .weight = {WEIR_S(1)}));
    weir_tensor *s = AT("s", weir_add(d, a, .name = "s"));
    weir_tensor *t = AT("t", weir_matmul(s, w, .name = "t"));
    weir_tensor *m = AT("m", weir_mul(t, fixed, .name = "m"));
    weir_tensor *n = AT("n", weir_layernorm(m, .name = "n"));
    weir_tensor *q = AT("q", weir_mul(n, n, .name = "q"));
    weir_tensor *l = AT("l", weir_mean(q, .name = "l"));
    AT("loss", weir_fetch(l, .name = "loss"));
    AT("train", weir_train(l, weir_adamw(.lr = 0.1, .clip_norm = 1), .zero = {layout.zero}, .recompute = layout.recompute));
    return g;
}

/* A number of all gradients belongs to the call that asked for it. */
static bool is_of_all(const char *name)
{
    return !strncmp(name, "add_many", 8) || !strncmp(name, "grad_norm/", 10) || !strncmp(name, "loss_scale/", 11) ||
           !strncmp(name, "grad_seed:", 10);
}

static uint32_t line_of(const char *name)
{
    for (int i = 0; i < mark_count; i++)
        if (!strcmp(marks[i].name, name))
            return marks[i].line;
    return 0;
}

/* The line of the tensor that the name begins with: "d" of "d.grad/linear_dw>S(0)". */
static uint32_t line_wanted(const char *name)
{
    char first[64];
    if (is_of_all(name))
        return line_of("train");
    if (!strncmp(name, "grad_seed", 9))
        return line_of("l");
    snprintf(first, sizeof first, "%.*s", (int)strcspn(name, "./:>"), name);
    return line_of(first);
}

static void expect_lines(const weir_plan *plan, const char *what)
{
    layouts l;
    cr_assert(layouts_make(&l, plan));
    for (uint32_t t = 0; t < l.tensor_count; t++) {
        const logical *of = &l.tensor[t];
        const char *name = plan_text(plan, plan->tensors[l.shard[of->first]].name);
        cr_expect_str_eq(of->file, __FILE__, "%s: %s is in \"%s\"", what, name, of->file);
        if (!strncmp(name, "square_sum", 10)) /* of one gradient, and not called after it */
            cr_expect(of->line >= line_of("w") && of->line <= line_of("l"), "%s: %s is at %u", what, name, of->line);
        else
            cr_expect_eq(of->line, line_wanted(name), "%s: %s is at %u, not %u", what, name, of->line,
                         line_wanted(name));
    }
    layouts_free(&l);
}

static void expect_lines_of(struct layout layout, const char *what)
{
    weir_graph *g = model(layout);
    weir_plan *plan = compiled(g, &layout);
    cr_assert_not_null(plan, "%s: %s", what, weir_error());
    expect_lines(plan, what);
    weir_plan_free(plan);
    weir_graph_free(g);
}

static bool has_tensor(const weir_plan *plan, const char *part)
{
    for (uint32_t t = 0; t < plan->tensors_count; t++)
        if (strstr(plan_text(plan, plan->tensors[t].name), part))
            return true;
    return false;
}

static bool has_kernel(const weir_plan *plan, const char *part)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (strstr(plan_text(plan, plan->kernels[k].name), part))
            return true;
    return false;
}

Test(lines, each_tensor_is_at_the_line_that_made_it)
{
    expect_lines_of((struct layout){.devices = "cpu:0"}, "one device");
    expect_lines_of((struct layout){.devices = "cpu:0", .recompute = true}, "computed again");
}

Test(lines, conversions_and_sums_over_devices_are_at_the_line_of_what_they_carry)
{
    expect_lines_of((struct layout){.devices = "cpu:0-1", .zero = true}, "two devices");
    expect_lines_of((struct layout){.devices = "cpu:0-3", .compile.per_host = 2}, "four devices, in two hosts");
}

Test(lines, sums_over_micro_batches_are_at_the_line_of_what_they_sum)
{
    expect_lines_of((struct layout){.devices = "cpu:0-1", .micro = true, .compile.micro_batches = 4}, "micro-batches");
}

Test(lines, casts_and_the_scale_of_the_loss_are_at_the_line_of_what_they_are_made_from)
{
    expect_lines_of((struct layout){.devices = "cpu:0", .compile.precision = WEIR_F16}, "f16");
    expect_lines_of((struct layout){.devices = "cpu:0-1", .zero = true, .compile.precision = WEIR_BF16}, "bf16");
}

Test(lines, copies_for_accelerators_are_at_the_line_of_what_they_copy)
{
    mesh_takes_fakes = true;
    expect_lines_of((struct layout){.devices = "fake:0"}, "an accelerator");
    expect_lines_of((struct layout){.devices = "fake:0-1", .zero = true, .compile.reduce = WEIR_FAST}, "two of them");
    mesh_takes_fakes = false;
}

/* The least that the model can be given, by the words of the error. */
static uint64_t least_bytes(struct layout layout)
{
    weir_graph *g = model(layout);
    layout.compile.memory = "1B";
    cr_assert_null(compiled(g, &layout));
    const char *said = strstr(weir_error(), "limit that would do is ");
    unsigned long long bytes = 0;
    cr_assert(said && sscanf(said, "limit that would do is %llu", &bytes) == 1, "%s", weir_error());
    weir_graph_free(g);
    return bytes;
}

Test(lines, results_that_are_computed_again_or_wait_on_a_disk_are_at_their_first_line)
{
    double window = offload_window;
    offload_window = 0.1; /* the model is small */
    for (int disk = 0; disk < 2; disk++) {
        char limit[32];
        struct layout layout = {.devices = "cpu:0", .micro = true, .compile = {.micro_batches = 4}};
        layout.compile.offload = disk ? "disk:/tmp" : NULL;
        snprintf(limit, sizeof limit, "%llu", (unsigned long long)least_bytes(layout));
        layout.compile.memory = limit;
        expect_lines_of(layout, disk ? "with a disk" : "with a limit");
    }
    offload_window = window;
}

Test(lines, members_of_a_fused_kernel_are_each_at_their_own_line)
{
    uint64_t bytes_min = fuse_bytes_min;
    fuse_bytes_min = 1;
    struct layout layout = {.devices = "cpu:0"};
    weir_graph *g = model(layout);
    weir_plan *plan = compiled(g, &layout);
    cr_assert_not_null(plan, "%s", weir_error());
    cr_assert(has_kernel(plan, "fused("), "nothing is fused");
    expect_lines(plan, "fused");
    weir_plan_free(plan);
    weir_graph_free(g);
    expect_lines_of((struct layout){.devices = "cpu:0", .compile.precision = WEIR_BF16}, "fused, in bf16");
    fuse_bytes_min = bytes_min;
}

Test(lines, a_state_is_at_its_own_line_and_not_at_the_one_that_sets_it)
{
    weir_graph *g = weir_graph_new("counts");
    mark_count = 0;
    weir_tensor *x = AT("x", weir_input(g, WEIR_F32, {4}, .name = "x"));
    weir_tensor *h = AT("h", weir_state(g, WEIR_F32, {4}, .name = "h"));
    weir_tensor *y = AT("y", weir_add(h, x, .name = "y"));
    AT("set", weir_state_set(h, y));
    AT("out", weir_fetch(y, .name = "out"));
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    expect_lines(plan, "a state");
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(lines, parameters_that_nothing_changes_are_at_the_line_that_makes_them)
{
    weir_graph *g = weir_graph_new("reads");
    mark_count = 0;
    weir_tensor *x = AT("x", weir_input(g, WEIR_F32, {4, 4}, .name = "x"));
    weir_tensor *y = AT("y", weir_linear(x, 4, .name = "y"));
    weir_tensor *w = AT("w", weir_param(g, WEIR_F32, {4, 4}, .name = "w"));
    weir_tensor *z = AT("z", weir_matmul(weir_layernorm(y, .name = "z/norm"), w, .name = "z"));
    AT("out", weir_fetch(z, .name = "out"));
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    expect_lines(plan, "without training");
    cr_expect(has_tensor(plan, "y/weight"));
    weir_plan_free(plan);
    weir_graph_free(g);
}
