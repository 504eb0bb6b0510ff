/* test_box.c: every conversion gives the logical tensor that was pushed, to the bit.
 *
 * An input x is laid out as A, then as B on the same or another mesh, and fetched. One graph holds many such pairs, so
 * a case is a pair of meshes, a shape and a dtype.
 *
 * Partial sums come in two kinds: those that a conversion makes (every element on one device, zeros on the others), and
 * real ones, of which every device has a term (a sum over a dimension that is split; of integers, so it is exact).
 */
#include "graph/compile/devices/passes.h"
#include "kernels/core/core.h"
#include "kernels/common/ops.h"
#include "tests/support/kernel_check.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct place {
    const char *devices;
    int shape[WEIR_AXES_MAX];
} place;

typedef struct layout_list { /* all ways to lie on a mesh */
    weir_sbp sbp[64][WEIR_AXES_MAX];
    int count;
} layout_list;

typedef struct box_case {
    place from, to;
    int64_t dims[WEIR_DIMS_MAX];
    weir_dtype dtype;
    int every;                 /* of all pairs of layouts take one in so many; 0: all */
} box_case;

enum { PAIRS_MAX = 300 };

static int place_axes(const place *p)
{
    int axes = 1;
    while (axes < WEIR_AXES_MAX && p->shape[axes])
        axes++;
    return axes;
}

static int rank_of(const int64_t *dims)
{
    int rank = 0;
    while (rank < WEIR_DIMS_MAX && dims[rank])
        rank++;
    return rank;
}

static layout_list layouts(const place *p, int rank, weir_dtype dtype)
{
    weir_sbp one[2 + WEIR_DIMS_MAX] = {WEIR_B};
    int kinds = 1, axes = place_axes(p);
    if (dtype == WEIR_F32) /* the compiler keeps terms of halves as f32 */
        one[kinds++] = WEIR_P;
    for (int d = 0; d < rank; d++)
        one[kinds++] = WEIR_S(d);
    layout_list list = {.count = 1};
    for (int a = 0; a < axes; a++)
        list.count *= kinds;
    cr_assert_leq(list.count, 64);
    for (int i = 0; i < list.count; i++)
        for (int a = 0, rest = i; a < axes; a++, rest /= kinds)
            list.sbp[i][a] = one[rest % kinds];
    return list;
}

static weir_mesh *mesh_of(weir_graph *g, const place *p)
{
    return weir_mesh_new_at(g, p->devices, WEIR_OPTS(weir_mesh_opts, .shape = {p->shape[0], p->shape[1], p->shape[2]}));
}

static weir_tensor *laid_out(weir_tensor *x, weir_mesh *mesh, const weir_sbp *sbp)
{
    return weir_shard(x, .mesh = mesh, .sbp = {sbp[0], sbp[1], sbp[2]});
}

/* "B,P>S(0)" */
static const char *pair_name(char name[64], const weir_sbp *from, const weir_sbp *to)
{
    char text[8];
    size_t at = 0;
    for (int i = 0; i < 2 * WEIR_AXES_MAX; i++) {
        weir_sbp sbp = i < WEIR_AXES_MAX ? from[i] : to[i - WEIR_AXES_MAX];
        if (i == WEIR_AXES_MAX)
            at += (size_t)snprintf(name + at, 64 - at, ">");
        if (sbp)
            at += (size_t)snprintf(name + at, 64 - at, "%s,", weir_sbp_text(sbp, text));
    }
    return name;
}

static weir_tensor *input(weir_graph *g, const box_case *c)
{
    weir_input_opts opts = {.size = sizeof opts, .src = WEIR_HERE, .name = "x"};
    memcpy(opts.shape, c->dims, sizeof opts.shape);
    return weir_input_at(g, c->dtype, &opts);
}

/* x -> A -> B -> fetch for all pairs (or every so many); returns how many. */
static int build_pairs(weir_graph *g, const box_case *c)
{
    weir_mesh *from = mesh_of(g, &c->from), *to = mesh_of(g, &c->to);
    weir_tensor *x = input(g, c);
    layout_list a = layouts(&c->from, rank_of(c->dims), c->dtype), b = layouts(&c->to, rank_of(c->dims), c->dtype);
    int pairs = 0;
    for (int i = 0; i < a.count; i++) {
        weir_tensor *xa = laid_out(x, from, a.sbp[i]);
        for (int k = 0; k < b.count; k++) {
            char name[64];
            if (c->every && (i * b.count + k) % c->every)
                continue;
            weir_fetch(laid_out(xa, to, b.sbp[k]), .name = pair_name(name, a.sbp[i], b.sbp[k]));
            pairs++;
        }
    }
    cr_assert_leq(pairs, PAIRS_MAX);
    return pairs;
}

static weir_plan *compiled(weir_graph *g)
{
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* Runs two steps, the second into slots that have been used, and holds every fetch against what was pushed. */
static void expect_pushed(const weir_plan *plan, const box_case *c, int pairs)
{
    weir_shape shape = {.rank = rank_of(c->dims)};
    memcpy(shape.dim, c->dims, sizeof shape.dim);
    run r = run_plan(plan, 2, 2);
    cr_assert_eq(r.count, pairs);
    for (int e = 0; e < r.count; e++) {
        int64_t count = weir_shape_count(&shape);
        cr_assert_eq(r.entry[e].count, 2 * count);
        for (int64_t i = 0; i < 2 * count; i++) {
            double want = run_input("x", c->dtype, i / count, 0, i % count);
            cr_assert_eq(r.entry[e].value[i], want, "%s -> %s: %s: element %ld is %g, not %g", c->from.devices,
                         c->to.devices, r.entry[e].name, (long)i, r.entry[e].value[i], want);
        }
    }
    run_free(&r);
}

static void all_pairs(box_case c)
{
    weir_graph *g = weir_graph_new("box");
    int pairs = build_pairs(g, &c);
    weir_plan *plan = compiled(g);
    expect_pushed(plan, &c, pairs);
    weir_plan_free(plan);
}

static const place line2 = {"cpu:0-1", {2}}, line3 = {"cpu:0-2", {3}}, line4 = {"cpu:0-3", {4}};

static void each_shape(place from, place to, int every)
{
    static const int64_t shapes[][WEIR_DIMS_MAX] = {{8, 12}, {7, 5}, {1, 2}, {3}, {0}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        box_case c = {.from = from, .to = to, .dtype = WEIR_F32, .every = every};
        memcpy(c.dims, shapes[s], sizeof c.dims);
        all_pairs(c);
        c.dtype = WEIR_I32;
        all_pairs(c);
        if (s)
            continue;
        c.dtype = WEIR_BF16;
        all_pairs(c);
    }
}

Test(box, converts_on_one_mesh_of_2_3_and_4_devices, .timeout = 60)
{
    each_shape(line2, line2, 0);
    each_shape(line3, line3, 0);
    each_shape(line4, line4, 0);
}

Test(box, converts_between_meshes_of_other_sizes_on_the_same_devices, .timeout = 60)
{
    each_shape(line2, line3, 0);
    each_shape(line4, line3, 0);
    each_shape(line3, (place){"cpu:0", {1}}, 0);
    each_shape((place){"cpu:2", {1}}, line4, 0);
}

Test(box, converts_between_meshes_that_overlap_or_share_nothing, .timeout = 60)
{
    each_shape(line3, (place){"cpu:2-4", {3}}, 0);
    each_shape(line2, (place){"cpu:2-3", {2}}, 0);
    each_shape((place){"cpu:4-6", {3}}, line2, 0);
}

Test(box, converts_between_orders_of_the_same_devices, .timeout = 60)
{
    each_shape(line2, (place){"cpu:1,0", {2}}, 0);
    each_shape(line4, (place){"cpu:2,0,3,1", {4}}, 0);
}

Test(box, converts_on_meshes_of_two_axes, .timeout = 60)
{
    place square = {"cpu:0-3", {2, 2}}, wide = {"cpu:0-5", {2, 3}};
    each_shape(square, square, 0);
    each_shape(wide, wide, 0);
}

Test(box, converts_between_meshes_of_one_and_two_axes, .timeout = 60)
{
    place square = {"cpu:0-3", {2, 2}}, wide = {"cpu:0-5", {3, 2}};
    each_shape(square, line4, 0);
    each_shape(line3, square, 0);
    each_shape(square, (place){"cpu:3,1,2,0", {2, 2}}, 0);
    each_shape(wide, (place){"cpu:4-7", {2, 2}}, 0);
    each_shape((place){"cpu:0-3", {1, 4}}, (place){"cpu:0-3", {4, 1}}, 0);
}

Test(box, converts_on_meshes_of_three_axes, .timeout = 60)
{
    place cube = {"cpu:0-7", {2, 2, 2}}, flat = {"cpu:0-5", {3, 1, 2}};
    each_shape(cube, cube, 29);
    each_shape(cube, flat, 23);
    each_shape(flat, cube, 31);
    each_shape(flat, (place){"cpu:2-5", {2, 2}}, 5);
}

/* ---- partial sums of which every device has a term ---- */

/* x [dims] is pushed as [terms, dims], each term split off by one device of the mesh; its sum is P everywhere. */
static weir_tensor *real_sum(weir_graph *g, const box_case *c, weir_mesh *from, int terms)
{
    weir_input_opts opts = {.size = sizeof opts, .src = WEIR_HERE, .name = "x", .shape = {terms}};
    memcpy(opts.shape + 1, c->dims, sizeof opts.shape - sizeof *opts.shape);
    weir_tensor *x = weir_cast(weir_input_at(g, WEIR_I32, &opts), WEIR_F32);
    weir_sbp split[WEIR_AXES_MAX] = {0}, sum[WEIR_AXES_MAX] = {0};
    for (int a = 0; a < place_axes(&c->from); a++) {
        split[a] = S(0);
        sum[a] = P;
    }
    weir_tensor *s = weir_sum(laid_out(x, from, split), .axes = {0}, .axis_count = 1);
    return weir_shard(s, .name = "open", .sbp = {sum[0], sum[1], sum[2]});
}

static void expect_sums(const weir_plan *plan, int terms, int64_t count)
{
    run r = run_plan(plan, 1, 2);
    for (int e = 0; e < r.count; e++)
        for (int64_t i = 0; i < count; i++) {
            double want = 0;
            for (int t = 0; t < terms; t++)
                want += run_input("x", WEIR_I32, 0, 0, t * count + i);
            cr_assert_eq(r.entry[e].value[i], want, "%s: element %ld is %g, not %g", r.entry[e].name, (long)i,
                         r.entry[e].value[i], want);
        }
    run_free(&r);
}

/* Kernels of the plan that make the conversion `name`; what they read in *inputs, and of that from other devices in
 * *moved. */
static int boxes(const weir_plan *plan, const char *name, int *inputs, int *moved)
{
    int count = 0;
    *inputs = *moved = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_kernel *kernel = &plan->kernels[k];
        uint32_t here = plan->queues[plan->actors[kernel->actor.i].queue.i].space.i;
        if (strcmp(plan_text(plan, kernel->op), "box") || strcmp(plan_text(plan, kernel->name), name))
            continue;
        count++;
        *inputs += (int)kernel->in.count;
        for (uint32_t o = kernel->in.first; o < kernel->in.first + kernel->in.count; o++) {
            const plan_tensor *t = &plan->tensors[plan->operands[o].tensor.i];
            *moved += t->home == PLAN_IN_REGST && plan->regsts[t->owner].space.i != here;
        }
    }
    return count;
}

static void real_sums(box_case c)
{
    const weir_sbp open[WEIR_AXES_MAX] = {WEIR_P, WEIR_P, WEIR_P};
    weir_graph *g = weir_graph_new("box");
    weir_mesh *from = mesh_of(g, &c.from), *to = mesh_of(g, &c.to);
    int terms = 2 * weir_mesh_size(from) + 1;
    int64_t count = 1;
    for (int d = 0; d < rank_of(c.dims); d++)
        count *= c.dims[d];
    weir_tensor *sum = real_sum(g, &c, from, terms);
    layout_list b = layouts(&c.to, rank_of(c.dims), WEIR_F32);
    for (int k = 0; k < b.count; k++) {
        char name[64];
        weir_fetch(laid_out(sum, to, b.sbp[k]), .name = pair_name(name, open, b.sbp[k]));
    }
    weir_plan *plan = compiled(g);
    expect_sums(plan, terms, count);
    weir_plan_free(plan);
}

Test(box, adds_up_the_terms_of_every_device, .timeout = 60)
{
    place square = {"cpu:0-3", {2, 2}}, cube = {"cpu:0-7", {2, 2, 2}};
    real_sums((box_case){.from = line3, .to = line3, .dims = {7, 5}});
    real_sums((box_case){.from = line4, .to = line2, .dims = {2, 3}});
    real_sums((box_case){.from = line2, .to = {"cpu:3-5", {3}}, .dims = {4}});
    real_sums((box_case){.from = square, .to = square, .dims = {5, 3}});
    real_sums((box_case){.from = square, .to = {"cpu:2-5", {2, 2}}, .dims = {5, 3}});
    real_sums((box_case){.from = cube, .to = cube, .dims = {3, 4}});
    real_sums((box_case){.from = {"cpu:0-8", {3, 3}}, .to = {"cpu:0-8", {9}}, .dims = {3, 4}});
    real_sums((box_case){.from = {"cpu:0-8", {9}}, .to = {"cpu:4-13", {5, 2}}, .dims = {0}});
}

Test(box, adds_up_large_sums_in_every_layout, .timeout = 60)
{
    place square = {"cpu:0-3", {2, 2}};
    real_sums((box_case){.from = line3, .to = line3, .dims = {83, 61}});
    real_sums((box_case){.from = line4, .to = line2, .dims = {2, 2500}});
    real_sums((box_case){.from = square, .to = square, .dims = {61, 83}});
    real_sums((box_case){.from = square, .to = line3, .dims = {5003}});
    real_sums((box_case){.from = line3, .to = line3, .dims = {40009}});
}

/* ---- the kernel by itself ---- */

/* A row of `count` elements that begins at `start` in the logical tensor; element i of that is first + i. */
static weir_view row_of(int64_t start, int64_t count, float first)
{
    weir_view view = kernel_view_new((weir_type){WEIR_F32, SHAPE(count)}, KERNEL_GARBAGE);
    view.offset[0] = start;
    for (int64_t i = 0; i < count; i++)
        ((float *)view.data)[i] = first + (float)(start + i);
    return view;
}

/* Adds rows into elements [100, 20100), and holds each against what the rows say. */
static void expect_row_sum(weir_view *in, int count)
{
    kernel_check c = kernel_check_new(&op_box, &(box_attrs){.terms = count, .zero = 1}, 1);
    weir_view out = row_of(100, 20000, 0);
    c.in_count = count;
    c.out_count = 1;
    kernel_check_call(&c, in, &out, NULL, false);
    for (int64_t i = 0; i < 20000; i++) {
        double want = 0;
        for (int k = 0; k < count; k++) {
            int64_t at = 100 + i - in[k].offset[0];
            want += at >= 0 && at < in[k].shape.dim[0] ? kernel_at(&in[k], at) : 0;
        }
        cr_assert_eq(kernel_at(&out, i), want, "element %ld is %g, not %g", (long)i, kernel_at(&out, i), want);
    }
    kernel_view_free(&out);
    for (int k = 0; k < count; k++)
        kernel_view_free(&in[k]);
    kernel_check_free(&c);
}

Test(box, sums_rows_of_more_than_a_block, .timeout = 120)
{
    expect_row_sum((weir_view[]){row_of(0, 30000, 1), row_of(0, 30000, 7)}, 2);
    expect_row_sum((weir_view[]){row_of(200, 9000, 1), row_of(200, 9000, 2), row_of(200, 9000, 3)}, 3);
    expect_row_sum((weir_view[]){row_of(0, 4197, 1), row_of(0, 4197, 2), row_of(0, 4197, 3), row_of(0, 4197, 4)}, 4);
}

Test(box, sums_terms_that_do_not_lie_alike, .timeout = 120)
{
    expect_row_sum((weir_view[]){row_of(0, 30000, 1), row_of(5000, 10, 5), row_of(19000, 5000, 3)}, 3);
    expect_row_sum((weir_view[]){row_of(100, 20000, 1), row_of(0, 50, 5)}, 2);
}

/* 256 and three times 1: rounded after each of them it would stay 256. */
Test(box, sums_halves_in_f32_and_rounds_once, .timeout = 120)
{
    for (int dtype = WEIR_F16; dtype <= WEIR_BF16; dtype++) {
        const double base = dtype == WEIR_BF16 ? 256 : 2048;
        kernel_check c = kernel_check_new(&op_box, &(box_attrs){.terms = 4}, 1);
        weir_view in[4], out = kernel_view_new((weir_type){(weir_dtype)dtype, SHAPE(3000)}, KERNEL_GARBAGE);
        c.in_count = 4;
        c.out_count = 1;
        for (int k = 0; k < 4; k++) {
            in[k] = kernel_view_new((weir_type){(weir_dtype)dtype, SHAPE(3000)}, 0);
            for (int64_t i = 0; i < 3000; i++)
                kernel_set(&in[k], i, k ? 1 : base * (double)(1 + i % 3));
        }
        kernel_check_call(&c, in, &out, NULL, false);
        for (int64_t i = 0; i < 3000; i++)
            cr_assert_eq(kernel_at(&out, i), kernel_round((weir_dtype)dtype, base * (double)(1 + i % 3) + 3));
        for (int k = 0; k < 4; k++)
            kernel_view_free(&in[k]);
        kernel_view_free(&out);
    }
}

/* ---- how it is done ---- */

static weir_plan *sum_to_all(int64_t rows, int64_t columns)
{
    weir_graph *g = weir_graph_new("box");
    box_case c = {.from = line4, .dims = {rows, columns}};
    weir_tensor *sum = real_sum(g, &c, mesh_of(g, &line4), 4);
    weir_tensor *all = weir_shard(sum, .sbp = {B});
    weir_fetch(all, .name = "at 0");
    weir_fetch(weir_shard(all, .mesh = weir_mesh_new(g, "cpu:3")), .name = "at 3");
    return compiled(g);
}

Test(box, a_large_sum_for_all_is_scattered_then_gathered, .timeout = 120)
{
    int inputs, moved;
    weir_plan *plan = sum_to_all(100, 50);
    cr_expect_eq(boxes(plan, "open>S(0)", &inputs, &moved), 4);
    cr_expect_eq(inputs, 16);
    cr_expect_eq(moved, 12);
    cr_expect_eq(boxes(plan, "open>S(0)>B", &inputs, &moved), 2, "one for each of the two devices that need it");
    cr_expect_eq(inputs, 8);
    cr_expect_eq(moved, 6);
    cr_expect_eq(boxes(plan, "open>B", &inputs, &moved), 0);
    weir_plan_free(plan);
}

Test(box, a_small_sum_for_all_goes_directly, .timeout = 120)
{
    int inputs, moved;
    weir_plan *plan = sum_to_all(10, 50);
    cr_expect_eq(boxes(plan, "open>S(0)", &inputs, &moved), 0);
    cr_expect_eq(boxes(plan, "open>B", &inputs, &moved), 2);
    cr_expect_eq(inputs, 8);
    weir_plan_free(plan);
}

/* ---- chunks ---- */

/* Compiles, for a moment with chunks of `bytes`. */
static weir_plan *compiled_in_chunks(weir_graph *g, uint64_t bytes)
{
    uint64_t usual = lower_chunk_bytes;
    lower_chunk_bytes = bytes;
    weir_plan *plan = compiled(g);
    lower_chunk_bytes = usual;
    return plan;
}

/* Actors that have a kernel named `name`, and the registers that these make. */
static int makers(const weir_plan *plan, const char *name, int *regsts)
{
    int actors = 0;
    *regsts = 0;
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        const plan_range of = plan->actors[a].kernels;
        bool makes = false;
        for (uint32_t k = of.first; k < of.first + of.count; k++)
            makes |= !strcmp(plan_text(plan, plan->kernels[k].name), name);
        actors += makes;
        *regsts += makes ? (int)plan->actors[a].regsts.count : 0;
    }
    return actors;
}

/* Sums over the mesh `from`, of fractions, one for every layout on `to`. */
static weir_plan *fractions(const box_case *c, uint64_t chunk_bytes)
{
    weir_graph *g = weir_graph_new("box");
    weir_mesh *from = mesh_of(g, &c->from), *to = mesh_of(g, &c->to);
    weir_input_opts opts = {.size = sizeof opts, .src = WEIR_HERE, .name = "x", .shape = {weir_mesh_size(from)}};
    memcpy(opts.shape + 1, c->dims, sizeof opts.shape - sizeof *opts.shape);
    weir_sbp split[WEIR_AXES_MAX] = {0}, open[WEIR_AXES_MAX] = {0};
    for (int a = 0; a < place_axes(&c->from); a++) {
        split[a] = S(0);
        open[a] = P;
    }
    weir_tensor *x = laid_out(weir_input_at(g, WEIR_F32, &opts), from, split);
    layout_list b = layouts(&c->to, rank_of(c->dims), WEIR_F32);
    for (int k = 0; k < b.count; k++) {
        char name[64];
        weir_tensor *sum = weir_sum(x, .axes = {0}, .axis_count = 1);
        sum = weir_shard(sum, .sbp = {open[0], open[1], open[2]});
        weir_fetch(laid_out(sum, to, b.sbp[k]), .name = pair_name(name, open, b.sbp[k]));
    }
    return compiled_in_chunks(g, chunk_bytes);
}

/* The same bits whether in chunks or not; the second step goes into slots that have been used. */
static void same_in_chunks(box_case c)
{
    weir_plan *whole = fractions(&c, UINT64_MAX);
    run want = run_plan(whole, 2, 2);
    for (uint64_t bytes = PLAN_ALIGN; bytes < 1 << 14; bytes *= 5) {
        weir_plan *plan = fractions(&c, bytes);
        cr_expect_gt(plan->kernels_count, whole->kernels_count);
        run got = run_plan(plan, 2, 2);
        run_near(&got, &want, 0, "in chunks");
        run_free(&got);
        weir_plan_free(plan);
    }
    run_free(&want);
    weir_plan_free(whole);
}

Test(box, chunks_give_the_same_bits_on_2_3_and_4_devices, .timeout = 60)
{
    same_in_chunks((box_case){.from = line2, .to = line2, .dims = {83, 101}});
    same_in_chunks((box_case){.from = line3, .to = line3, .dims = {83, 101}});
    same_in_chunks((box_case){.from = line4, .to = line4, .dims = {2, 10007}});
    same_in_chunks((box_case){.from = line4, .to = line4, .dims = {10007}});
    same_in_chunks((box_case){.from = line3, .to = line3, .dims = {5, 7, 211}});
}

Test(box, chunks_give_the_same_bits_between_meshes, .timeout = 60)
{
    place square = {"cpu:0-3", {2, 2}};
    same_in_chunks((box_case){.from = line2, .to = line3, .dims = {83, 101}});
    same_in_chunks((box_case){.from = line3, .to = {"cpu:3-5", {3}}, .dims = {83, 101}});
    same_in_chunks((box_case){.from = square, .to = square, .dims = {83, 101}});
    same_in_chunks((box_case){.from = square, .to = {"cpu:2-5", {2, 2}}, .dims = {101, 83}});
    same_in_chunks((box_case){.from = line4, .to = square, .dims = {3, 10007}});
}

/* A sum of 128 x 100 over four devices, for all of them; 8 of the 32 rows that a device adds up are a chunk. */
static weir_plan *sum_in_chunks(bool read_between)
{
    weir_graph *g = weir_graph_new("box");
    box_case c = {.from = line4, .dims = {128, 100}};
    weir_tensor *sum = real_sum(g, &c, mesh_of(g, &line4), 4);
    weir_fetch(weir_relu(weir_shard(sum, .sbp = {B})), .name = "all");
    if (read_between)
        weir_fetch(weir_relu(weir_shard(sum, .sbp = {S(0)})), .name = "split");
    return compiled_in_chunks(g, UINT64_C(8) * 100 * 4);
}

Test(box, each_chunk_has_its_own_actor_and_register, .timeout = 120)
{
    int inputs, moved, regsts;
    weir_plan *plan = sum_in_chunks(false);
    cr_expect_eq(boxes(plan, "open>S(0)", &inputs, &moved), 4 * 4);
    cr_expect_eq(inputs, 4 * 4 * 4);
    cr_expect_eq(makers(plan, "open>S(0)", &regsts), 4 * 4);
    cr_expect_eq(regsts, 4 * 4);
    cr_expect_eq(boxes(plan, "open>S(0)>B", &inputs, &moved), 4, "everybody gathers once");
    cr_expect_eq(inputs, 4 * 4 * 4);
    cr_expect_eq(moved, 4 * 3 * 4);
    weir_plan_free(plan);
}

Test(box, what_others_than_conversions_read_is_not_cut, .timeout = 120)
{
    int inputs, moved;
    weir_plan *plan = sum_in_chunks(true);
    cr_expect_eq(boxes(plan, "open>S(0)", &inputs, &moved), 4);
    weir_plan_free(plan);
}

/* On each device, the chunk with the lower rows goes first. */
Test(box, chunks_are_made_in_the_order_of_their_rows, .timeout = 120)
{
    weir_plan *plan = sum_in_chunks(false);
    int64_t row[4] = {-1, -1, -1, -1}, priority[4] = {-1, -1, -1, -1};
    int chunks = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_actor *actor = &plan->actors[plan->kernels[k].actor.i];
        const plan_tensor *made = &plan->tensors[plan->operands[plan->kernels[k].out.first].tensor.i];
        uint32_t space = plan->queues[actor->queue.i].space.i;
        if (strcmp(plan_text(plan, plan->kernels[k].name), "open>S(0)"))
            continue;
        cr_assert_lt(space, 4);
        cr_expect_gt(made->start[0], row[space]);
        cr_expect_gt((int64_t)actor->priority, priority[space]);
        row[space] = made->start[0];
        priority[space] = actor->priority;
        chunks++;
    }
    cr_expect_eq(chunks, 16);
    weir_plan_free(plan);
}

/* Shards that change the device when a tensor on 2 x 2 devices that lies as `from` is converted to `to`. */
static int movedbetween(const weir_sbp *from, const weir_sbp *to, const char *name)
{
    weir_graph *g = weir_graph_new("box");
    place square = {"cpu:0-3", {2, 2}};
    weir_mesh *mesh = mesh_of(g, &square);
    weir_tensor *x = weir_input(g, WEIR_F32, {8, 8}, .name = "x", .sbp = {from[0], from[1]});
    weir_tensor *y = weir_shard(weir_relu(x), .name = "y", .sbp = {from[0], from[1]});
    weir_fetch(weir_relu(laid_out(weir_relu(laid_out(y, mesh, to)), mesh, to)), .name = "out");
    weir_plan *plan = compiled(g);
    int inputs, moved, count = boxes(plan, name, &inputs, &moved);
    weir_plan_free(plan);
    return count ? moved : -1;
}

Test(box, what_is_there_is_not_sent_again, .timeout = 120)
{
    static const weir_sbp bb[] = {WEIR_B, WEIR_B}, sb[] = {WEIR_S0, WEIR_B}, ss[] = {WEIR_S0, WEIR_S(1)},
                          to_b[3] = {WEIR_B, WEIR_B}, to_sb[3] = {WEIR_S0, WEIR_B}, to_ss[3] = {WEIR_S0, WEIR_S(1)};
    cr_expect_eq(movedbetween(bb, to_b, "y>B,B"), -1, "nothing to do");
    cr_expect_eq(movedbetween(bb, to_sb, "y>S(0),B"), 0, "from B everyone cuts out its own");
    cr_expect_eq(movedbetween(bb, to_ss, "y>S(0),S(1)"), 0);
    cr_expect_eq(movedbetween(sb, to_ss, "y>S(0),S(1)"), 0);
    cr_expect_eq(movedbetween(sb, to_b, "y>B,B"), 4, "the other half, once for each device");
    cr_expect_eq(movedbetween(ss, to_b, "y>B,B"), 12);
}

Test(box, on_an_axis_of_one_device_every_layout_is_the_same, .timeout = 120)
{
    weir_graph *g = weir_graph_new("box");
    weir_mesh_new(g, "cpu:0-1", .shape = {2, 1});
    weir_tensor *x = weir_input(g, WEIR_F32, {8, 8}, .name = "x", .sbp = {S(0), B});
    weir_tensor *y = weir_shard(weir_relu(x), .name = "y", .sbp = {S(0), S(1)});
    weir_fetch(weir_neg(weir_shard(y, .sbp = {S(0), P})), .name = "neg");
    weir_plan *plan = compiled(g);
    int boxes_all = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        boxes_all += !strcmp(plan_text(plan, plan->kernels[k].op), "box");
    cr_expect_eq(boxes_all, 3, "two that deal x out and one that gathers the result, not %d", boxes_all);
    weir_plan_free(plan);
}
