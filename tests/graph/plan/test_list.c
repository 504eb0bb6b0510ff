/* tests/graph/plan/test_list.c: logical tensors, layouts and stages are found in the shards of a plan, and what is asked for
 * is listed, and nothing else. */
#define _GNU_SOURCE
#include "graph/plan/show/layouts.h"
#include "tests/support/json.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

TestSuite(list, .timeout = 60);

/* Two stages of 2 x 2 devices: on the first, rows are split over one axis and columns of the weight over the other. */
static weir_plan *two_stages(void)
{
    weir_graph *g = weir_graph_new("stages");
    weir_mesh *first = weir_mesh_new(g, "cpu:0-3", .shape = {2, 2}), *second = weir_mesh_new(g, "cpu:4-7", .shape = {2, 2});
    weir_tensor *x = NULL, *y = NULL;
    WEIR_ON(first) {
        x = weir_input(g, WEIR_F32, {8, 4}, .name = "x", .sbp = {WEIR_S(0), WEIR_B});
        x = weir_linear(x, 16, .name = "up", .weight = {WEIR_B, WEIR_S(1)});
    }
    WEIR_ON(second)
        y = weir_linear(x, 4, .name = "down", .weight = {WEIR_B, WEIR_S(0)}, .no_bias = true);
    weir_tensor *loss = weir_mean(weir_mul(y, y));
    weir_fetch(loss, .name = "loss");
    weir_train(loss, weir_sgd(.lr = 0.1));
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static const logical *find(const layouts *l, const char *name)
{
    for (uint32_t t = 0; t < l->tensor_count; t++)
        if (!strcmp(plan_text(l->plan, l->plan->tensors[l->shard[l->tensor[t].first]].name), name))
            return &l->tensor[t];
    cr_assert(false, "no tensor %s", name);
    return NULL;
}

static void expect_layout(const layouts *l, const char *name, const char *devices, const char *layout)
{
    char text[256];
    const logical *of = find(l, name);
    cr_expect_str_eq(layouts_text(of, text, sizeof text), layout, "%s: %s, not %s", name, text, layout);
    cr_expect_str_eq(layouts_devices(l, of, text, sizeof text), devices, "%s: %s, not %s", name, text, devices);
}

Test(list, layouts_follow_from_shards)
{
    weir_plan *plan = two_stages();
    layouts l;
    cr_assert(layouts_make(&l, plan));
    expect_layout(&l, "up", "cpu:0-3", "S(0)/2 S(1)/2");
    expect_layout(&l, "up/weight", "cpu:0-3", "S(1)/2 B/2");
    expect_layout(&l, "up/bias", "cpu:0-3", "S(0)/2 B/2");
    expect_layout(&l, "down/weight", "cpu:4-7", "S(0)/2 B/2");
    expect_layout(&l, "down", "cpu:4-7", "S(0)/2 P/2");
    expect_layout(&l, "down.grad/linear_dw", "cpu:4-7", "S(0)/2 P/2");
    cr_expect_eq(l.stage_count, 2);
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        cr_expect_eq(l.stage[s], plan->spaces[s].index < 4 ? 1 : 2);
    const logical *up = find(&l, "up");
    cr_expect(strstr(up->file, "test_list.c") && up->line > 20 && up->line < 35, "%s:%u", up->file, up->line);
    layouts_free(&l);
    weir_plan_free(plan);
}

/* What is listed; owned. NULL: an error. */
static char *listed(const weir_plan *plan, const weir_list_opts *opts)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    weir_status status = weir_plan_list_at(plan, to, opts);
    fclose(to);
    if (status)
        free(text);
    return status ? NULL : text;
}

static void expect_lines(const weir_plan *plan, const weir_list_opts *opts, int lines, const char *has, const char *lacks)
{
    char *text = listed(plan, opts);
    cr_assert(text, "%s", weir_error());
    cr_expect_eq(json_count(text, "\n"), lines, "%d lines: %s", lines, text);
    cr_expect(strstr(text, has), "%s", text);
    cr_expect(!strstr(text, lacks), "%s", text);
    free(text);
}

Test(list, what_is_asked_for_is_listed)
{
    weir_plan *plan = two_stages();
    expect_lines(plan, WEIR_OPTS(weir_list_opts, .tensors = true, .filter = "up/weight"), 2,
                 "f32 [4, 16]  cpu:0-3  S(1)/2 B/2", "down");
    expect_lines(plan, WEIR_OPTS(weir_list_opts, .tensors = true, .filter = "*/weight", .stage = 2), 2, "down/weight",
                 "up");
    expect_lines(plan, WEIR_OPTS(weir_list_opts, .filter = "linear", .device = "cpu:[0-1]", .stage = 1), 4, "cpu:1",
                 "cpu:2");
    char *text = listed(plan, WEIR_OPTS(weir_list_opts, .tensors = true, .json = true));
    cr_expect(json_valid(text), "%s", text);
    cr_expect_eq(json_count(text, "\"name\":\"down\",\"dtype\":\"f32\",\"shape\":[8,4],\"devices\":\"cpu:4-7\","
                                  "\"layout\":\"S(0)/2 P/2\",\"parts\":[2,1],\"terms\":2,\"alike\":1,\"stage\":2"), 1, "%s", text);
    free(text);
    text = listed(plan, WEIR_OPTS(weir_list_opts, .json = true, .stage = 2));
    cr_expect(json_valid(text) && strstr(text, "\"cpu:7\"") && !strstr(text, "\"cpu:3\""), "%s", text);
    free(text);
    weir_plan_free(plan);
}

Test(list, what_nothing_has_is_told)
{
    weir_plan *plan = two_stages();
    static const struct {
        weir_list_opts opts;
        const char *says;
    } wrong[] = {
        {{.tensors = true, .filter = "nothing*"}, "no tensor there is called \"nothing*\"; there are '"},
        {{.filter = "nothing*"}, "no actor, and no kernel, there is called \"nothing*\"; there are '"},
        {{.device = "cuda:*"}, "no device is called \"cuda:*\"; there are 'cpu:0'"},
        {{.stage = 3}, "the plan has no stage 3, but 2"},
        {{.stage = 2, .device = "cpu:0"}, "no device of that stage is called \"cpu:0\""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weir_list_opts opts = wrong[i].opts;
        opts.size = sizeof opts;
        cr_expect_null(listed(plan, &opts));
        cr_expect(strstr(weir_error(), wrong[i].says), "%s, not %s", weir_error(), wrong[i].says);
    }
    weir_plan_free(plan);
}

/* ---- the picture ---- */

static char *drawn(const weir_plan *plan)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    cr_assert_eq(weir_plan_picture(plan, to), WEIR_OK, "%s", weir_error());
    fclose(to);
    return text;
}

Test(list, a_picture_has_a_box_for_each_stage_and_one_node_for_layers_that_have_numbers)
{
    weir_graph *g = weir_graph_new("layers");
    weir_mesh *stage[2] = {weir_mesh_new(g, "cpu:0-1"), weir_mesh_new(g, "cpu:2-3")};
    weir_tensor *x = NULL;
    WEIR_ON(stage[0])
        x = weir_linear(weir_input(g, WEIR_F32, {8, 4}, .name = "x", .sbp = {WEIR_S(0)}), 4, .name = "first");
    for (int i = 0; i < 6; i++)
        WEIR_ON(stage[i / 3], .name = "h%d", i)
            x = weir_relu(weir_linear(x, 4, .name = "up"));
    weir_tensor *loss = weir_mean(weir_linear(x, 4, .name = "last"), .name = "loss");
    weir_fetch(loss, .name = "l");
    weir_train(loss, weir_sgd(.lr = 0.1));
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    char *text = drawn(plan);
    cr_expect_eq(json_count(text, "subgraph cluster_"), 2, "%s", text);
    cr_expect_eq(json_count(text, "stage 2: cpu:2 .. cpu:3, "), 1, "%s", text);
    cr_expect_eq(json_count(text, "\"h0 .. h2  forward\\n"), 1, "%s", text);
    cr_expect_eq(json_count(text, "\"h3 .. h5  backward\\n"), 1, "%s", text);
    cr_expect_eq(json_count(text, "\"first  forward\\n"), 1, "%s", text);
    cr_expect_eq(json_count(text, "\"last, loss  forward\\n"), 1, "%s", text);
    cr_expect_eq(json_count(text, "\"update\\n"), 2, "%s", text);
    cr_expect_eq(json_count(text, "shape=ellipse"), 2, "%s", text);
    cr_expect_eq(json_count(text, "legend ["), 1, "%s", text);
    cr_expect(json_count(text, "kernels a device") <= 10, "%s", text);
    free(text);
    weir_plan_free(plan);
    weir_graph_free(g);
}
