/* tests/apps/test_run.c: `weir run` with values of a user's own: parameters from a checkpoint, inputs from .npy files,
 * results to such. Its results are those of the library, called from here. */
#define _GNU_SOURCE
#include "tests/apps/shell.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

TestSuite(run, .init = shell_begin, .fini = folder_remove, .timeout = 120);

/* The command says this in one line, and nothing else. */
static void refuses(const char *command, int status, const char *says)
{
    cr_expect_eq(run(command), status, "%s: %s", command, output);
    cr_expect(strstr(output, says), "\"%s\" is not in: %s", says, output);
    char *end = strchr(output, '\n');
    cr_expect(end && !end[1], "%s: not one line: %s", command, output);
}

/* ---- files ---- */

static void write_npy(const char *name, const char *descr, const char *shape, const void *values, size_t bytes)
{
    char all[4096] = "\x93NUMPY\1";
    int length = snprintf(all + 10, sizeof all - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }%40s\n",
                          descr, shape, "");
    all[8] = (char)length;
    memcpy(all + 10 + length, values, bytes);
    folder_write(folder_path("%s.npy", name), all, 10 + (size_t)length + bytes);
}

/* The values of a file that has just this dictionary. */
static void read_npy(const char *name, const char *dictionary, void *values, size_t bytes)
{
    char head[1024] = "";
    FILE *file = fopen(folder_path("%s.npy", name), "rb");
    cr_assert(file, "no %s.npy", name);
    cr_assert_eq(fread(head, 1, 10, file), 10);
    int length = (unsigned char)head[8] | (unsigned char)head[9] << 8;
    cr_assert(length < 1000 && fread(head, 1, (size_t)length, file) == (size_t)length);
    cr_expect(!strncmp(head, dictionary, strlen(dictionary)), "%s, not %s", head, dictionary);
    cr_expect_eq((10 + length) % 64, 0);
    cr_assert_eq(fread(values, 1, bytes, file), bytes, "%s.npy is too short", name);
    cr_expect_eq(fgetc(file), EOF, "%s.npy is too long", name);
    fclose(file);
}

/* ---- models ---- */

enum { ROWS = 2, IN = 3, OUT = 2, STEPS = 2, MICRO = 2, VALUES = STEPS * MICRO };

static const float weight[IN * OUT] = {1, 2, 3, 4, 5, 6}, bias[OUT] = {0.5f, -0.5f};

/* y = x . weight + bias, for each of two micro-batches, on two devices; and its checkpoint. */
static void make_model(void)
{
    weir_graph *g = weir_graph_new("affine");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, IN}, .name = "x", .sbp = {WEIR_S(0)}, .micro = true);
    weir_tensor *id = weir_input(g, WEIR_I32, {ROWS}, .name = "id", .micro = true);
    weir_fetch(weir_linear(x, OUT, .name = "l"), .name = "y");
    weir_fetch(id, .name = "same");
    weir_plan *plan = weir_compile(g, .micro_batches = MICRO);
    cr_assert(plan && !weir_plan_save(plan, folder_path("plan")), "%s", weir_error());
    weir_session *s = weir_session_open(plan);
    cr_assert(s, "%s", weir_error());
    cr_assert(!weir_session_write(s, "l/weight", &(weir_array){(void *)weight, WEIR_F32, {2, {IN, OUT}}}) &&
              !weir_session_write(s, "l/bias", &(weir_array){(void *)bias, WEIR_F32, {1, {OUT}}}) &&
              !weir_session_save(s, folder_path("kept")), "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    must_run("weir checkpoint convert $T/kept $T/kept.safetensors");
}

static float x_of(int i)
{
    return (float)(i % 7) - 2;
}

static void make_feeds(void)
{
    float x[VALUES * ROWS * IN];
    int32_t id[VALUES * ROWS];
    for (int i = 0; i < VALUES * ROWS * IN; i++)
        x[i] = x_of(i);
    for (int i = 0; i < VALUES * ROWS; i++)
        id[i] = 100 + i;
    write_npy("x", "<f4", "4, 2, 3", x, sizeof x);
    write_npy("x3", "<f4", "3, 2, 3", x, sizeof x / 4 * 3);
    write_npy("x2", "<f4", "2, 2, 3", x, sizeof x / 2);
    write_npy("one", "<f4", "2, 3", x, sizeof x / 4);
    write_npy("turned", "<f4", "4, 3, 2", x, sizeof x);
    write_npy("ints", "<i4", "4, 2, 3", x, sizeof x);
    write_npy("wide", "<u8", "4, 2", x, 64);
    write_npy("id", "<i4", "4, 2", id, sizeof id);
}

static void expect_y(const float *y, int count)
{
    for (int i = 0; i < count * ROWS * OUT; i++) {
        float sum = bias[i % OUT];
        for (int k = 0; k < IN; k++)
            sum += x_of(i / OUT * IN + k) * weight[k * OUT + i % OUT];
        cr_expect_float_eq(y[i], sum, 1e-5, "y[%d] is %g, not %g", i, (double)y[i], (double)sum);
    }
}

Test(run, inference_from_files_to_files)
{
    float y[VALUES * ROWS * OUT];
    int32_t id[VALUES * ROWS];
    make_model();
    make_feeds();
    must_run("weir run $T/plan --load-params $T/kept --feed x=$T/x.npy --feed id=$T/id.npy --fetch y=$T/y.npy "
             "--fetch same=$T/same.npy");
    cr_expect(strstr(output, "2 steps in") && !strstr(output, "step 0"), "%s", output);
    read_npy("y", "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2, 2, ), }", y, sizeof y);
    expect_y(y, VALUES);
    read_npy("same", "{'descr': '<i4', 'fortran_order': False, 'shape': (4, 2, ), }", id, sizeof id);
    for (int i = 0; i < VALUES * ROWS; i++)
        cr_expect_eq(id[i], 100 + i);
    int64_t wide[VALUES * ROWS];
    for (int i = 0; i < VALUES * ROWS; i++)
        wide[i] = 100 + i;
    write_npy("id8", "<i8", "4, 2", wide, sizeof wide);
    must_run("weir run $T/plan --load-params $T/kept --feed x=$T/x.npy --feed id=$T/id8.npy --fetch same=$T/again.npy && "
             "cmp $T/again.npy $T/same.npy");
    wide[1] = INT64_C(1) << 31;
    write_npy("id8", "<i8", "4, 2", wide, sizeof wide);
    refuses("weir run $T/plan --load-params $T/kept --feed x=$T/x.npy --feed id=$T/id8.npy", 1,
            "it has a number that the input's type cannot hold");
    /* The same through pipes and from a single file; what is printed goes beside it. */
    must_run("weir run $T/plan --load-params $T/kept.safetensors --feed x=- --feed id=$T/id.npy --fetch y=- <$T/x.npy "
             "2>$T/said >$T/piped.npy; cmp $T/piped.npy $T/y.npy; cat $T/said");
    cr_expect(strstr(output, "step 1  same (mean) 105.5"), "%s", output);
    must_run("weir run $T/plan --load-params $T/kept --feed x=$T/x.npy --feed id=$T/id.npy --steps 1 "
             "--fetch y=$T/y.npy");
    read_npy("y", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 2, ), }", y, sizeof y / 2);
    expect_y(y, MICRO);
    must_run("weir launch -n 2 -- " APPS_BIN "/weir run $T/plan --load-params $T/kept --feed x=$T/x.npy --feed id=$T/id.npy "
             "--steps 2 --fetch y=$T/launched.npy");
    must_run("cmp $T/launched.npy $T/piped.npy");
}

Test(run, numpy_reads_what_was_fetched_and_what_it_writes_is_fed)
{
    if (system("python3 -c 'import numpy' 2>/dev/null") != 0)
        cr_skip_test("python3 has no numpy here");
    make_model();
    must_run("cd $T && python3 -c \"import numpy as np; np.save('x.npy', np.arange(24, dtype=np.float32)"
             ".reshape(4, 2, 3)); np.save('id.npy', np.zeros((4, 2), np.int32))\"");
    must_run("weir run $T/plan --load-params $T/kept --feed x=$T/x.npy --feed id=$T/id.npy --fetch y=$T/y.npy");
    must_run("cd $T && python3 -c \"import numpy as np; w = np.array([[1, 2], [3, 4], [5, 6]], np.float32); "
             "assert np.allclose(np.load('y.npy'), np.load('x.npy') @ w + [0.5, -0.5])\"");
}

Test(run, an_input_without_a_file_is_told_and_made_up_only_when_asked_for)
{
    make_model();
    make_feeds();
    refuses("weir run $T/plan", 2, "weir run: no file is given for x f32 [2, 3], id i32 [2]; give each one with --feed "
            "NAME=FILE.npy, or let weir invent values with --made-up");
    refuses("weir run $T/plan --feed x=$T/x.npy", 2, "no file is given for id i32 [2]; ");
    must_run("weir run $T/plan --made-up 2>/dev/null");
    cr_expect(strstr(output, "step 9  y (mean) ") && strstr(output, "step 9  same (mean) 0\n"), "%s", output);
    must_run("weir run $T/plan --made-up --feed x=$T/x.npy");
    cr_expect(strstr(output, "2 steps in"), "%s", output);
}

Test(run, files_that_do_not_fit_are_named_with_what_would)
{
    make_model();
    make_feeds();
#define FEED_ID " --feed id=$T/id.npy"
    refuses("weir run $T/plan --feed z=$T/x.npy", 2, "--feed: \"z\" is no input; the plan's are: x f32 [2, 3], id i32 [2]");
    refuses("weir run $T/plan --feed y=$T/x.npy", 2, "--feed: \"y\" is no input");
    refuses("weir run $T/plan --made-up --fetch x=$T/x.npy", 2, "--fetch: \"x\" is no output; the plan's are: y f32 [2, 2], "
            "same i32 [2]");
    refuses("weir run $T/plan --feed x", 2, "--feed takes NAME=FILE, not \"x\"");
    refuses("weir run $T/plan --feed x=$T/x.npy --feed x=$T/x.npy", 2, "--feed: \"x\" is given twice");
    refuses("weir run $T/plan --feed x=/nowhere", 2, "--feed x f32 [2, 3]: /nowhere: cannot be read: No such file");
    refuses("weir run $T/plan --feed x=$T/plan", 2, "plan: is not an .npy file");
    refuses("weir run $T/plan --feed x=$T/ints.npy", 2, "ints.npy is i32 [4, 2, 3]; the file needs the input's type and shape");
    refuses("weir run $T/plan --feed x=$T/turned.npy", 2, "turned.npy is f32 [4, 3, 2]; the file needs the input's type and shape");
    refuses("weir run $T/plan --feed id=$T/wide.npy", 2, "--feed id i32 [2]: ");
    cr_expect(strstr(output, "is of type <u8"), "%s", output);
    refuses("weir run $T/plan --feed x=$T/x.npy --steps 3" FEED_ID, 2, "x.npy has 4 values, and 3 steps take 6");
    refuses("weir run $T/plan --feed x=$T/one.npy --steps 1" FEED_ID, 2, "one.npy has 1 value, and 1 step takes 2");
    refuses("weir run $T/plan --feed x=$T/x3.npy" FEED_ID, 2, "x3.npy has 3 values, and a step takes 2");
    refuses("weir run $T/plan --feed x=$T/x2.npy" FEED_ID, 2, "x2.npy has values for 1 steps, ");
    refuses("weir run $T/plan --made-up --fetch y=/nowhere/y.npy", 2, "--fetch y: /nowhere/y.npy: cannot be written: No");
    refuses("weir run $T/plan --made-up --fetch y=- --fetch same=-", 2, "--fetch: only one NAME may have - (standard output)");
    refuses("weir run $T/plan --made-up --load-params /nowhere", 2, "--load-params: cannot read /nowhere: No such file");
    refuses("weir run $T/plan --made-up --load-params $T/plan", 1, "weir run: ");
    must_run("weir checkpoint convert $T/kept $T/n --npy; mv $T/n/l/bias.npy $T/n/other.npy; "
             "weir checkpoint convert $T/n $T/lacks.safetensors");
    refuses("weir run $T/plan --made-up --load-params $T/lacks.safetensors", 1, "l/bias");
}

static weir_status half(const weir_kernel_args *args)
{
    *(float *)args->out[0].data = *(const float *)args->in[0].data / 2;
    return WEIR_OK;
}

Test(run, a_plan_that_calls_its_program_is_refused)
{
    weir_graph *g = weir_graph_new("halves");
    weir_tensor *x = weir_input(g, WEIR_F32, {1}, .name = "x");
    weir_fetch(weir_call(half, {x}, .dtype = WEIR_F32, .shape = {1}, .name = "half"), .name = "y");
    weir_plan *plan = weir_compile(g);
    cr_assert(plan && !weir_plan_save(plan, folder_path("halves")), "%s", weir_error());
    refuses("weir run $T/halves --made-up", 1, "the plan calls a function of its program (\"half\"), so only that program can run it");
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* A pipe that ends or a disk that is full fails the run in one line; nobody can know of them before. */
Test(run, files_that_fail_during_the_run_end_it)
{
    make_model();
    make_feeds();
    refuses("head -c 200 $T/x.npy | weir run $T/plan --feed x=- --feed id=$T/id.npy --fetch y=$T/y.npy --fetch "
            "same=$T/same.npy", 1, "weir run: --feed x: standard input: value 3 cannot be read: it ends before");
    refuses("weir run $T/plan --made-up --steps 2000 --fetch y=/dev/full --fetch same=$T/same.npy", 1,
            "weir run: --fetch y: /dev/full: cannot be written: No space left");
}

/* ---- training ---- */

static weir_status source_nobody_calls(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx, (void)dst, (void)step, (void)micro;
    return WEIR_E_IO;
}

/* Its x is a source and its loss a sink, which were functions of this program. */
static weir_status collect(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)micro;
    ((float *)ctx)[step] = *(const float *)value->data;
    return WEIR_OK;
}

static weir_status replay(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)micro;
    memcpy(dst->data, (const float *)ctx + step * ROWS * IN, ROWS * IN * sizeof(float));
    return WEIR_OK;
}

enum { LEARNS = 8 };

Test(run, training_by_hand_gives_the_bits_of_a_program)
{
    float x[LEARNS * ROWS * IN], own[LEARNS], its[LEARNS];
    for (int i = 0; i < LEARNS * ROWS * IN; i++)
        x[i] = weir_random_normal(7, (uint64_t)i);
    weir_graph *g = weir_graph_new("learn");
    weir_tensor *in = weir_input(g, WEIR_F32, {ROWS, IN}, .name = "x", .source = source_nobody_calls);
    weir_tensor *error = weir_sub(weir_linear(in, IN, .name = "l"), in);
    weir_tensor *loss = weir_mean(weir_mul(error, error));
    weir_fetch(loss, .name = "loss", .sink = collect, .ctx = own);
    weir_train(loss, weir_sgd(.lr = 0.1));
    weir_plan *plan = weir_compile(g);
    cr_assert(plan && !weir_plan_save(plan, folder_path("plan")), "%s", weir_error());
    weir_session *s = weir_session_open(plan, .bindings = (weir_binding[]){{.name = "x", .source = replay, .ctx = x}, {0}});
    cr_assert(s && !weir_session_run(s, LEARNS), "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    write_npy("x", "<f4", "8, 2, 3", x, sizeof x);
    refuses("weir run $T/plan", 2, "no file is given for x f32 [2, 3]; ");
    must_run("weir run $T/plan --feed x=$T/x.npy --fetch loss=$T/loss.npy");
    read_npy("loss", "{'descr': '<f4', 'fortran_order': False, 'shape': (8, ), }", its, sizeof its);
    cr_expect(!memcmp(own, its, sizeof own) && its[0] > 0, "%g and %g", (double)own[7], (double)its[7]);
    refuses("head -c 200 $T/x.npy | weir run $T/plan --feed x=- --fetch loss=$T/l.npy", 1, "value 3 cannot be read: it ends before");
}

Test(run, each_device_of_a_split_source_reads_its_shard_of_the_file)
{
    float x[VALUES * ROWS * IN];
    weir_graph *g = weir_graph_new("parts");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *in = weir_input(g, WEIR_F32, {ROWS, IN}, .name = "x", .sbp = {WEIR_S(0)}, .micro = true,
                                 .source = source_nobody_calls, .split = true);
    weir_fetch(weir_affine(in, 1), .name = "y");
    weir_plan *plan = weir_compile(g, .micro_batches = MICRO);
    cr_assert(plan && !weir_plan_save(plan, folder_path("plan")), "%s", weir_error());
    weir_plan_free(plan);
    weir_graph_free(g);
    make_feeds();
    must_run("weir run $T/plan --feed x=$T/x.npy --fetch y=$T/y.npy");
    read_npy("y", "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2, 3, ), }", x, sizeof x);
    for (int i = 0; i < VALUES * ROWS * IN; i++)
        cr_expect_eq(x[i], x_of(i));
    must_run("weir launch -n 2 -- " APPS_BIN "/weir run $T/plan --feed x=$T/x.npy --steps 2 --fetch y=$T/launched.npy && "
             "cmp $T/launched.npy $T/y.npy");
    must_run("weir run $T/plan --made-up --fetch y=$T/made.npy");
    refuses("cat $T/x.npy | weir run $T/plan --feed x=- --fetch y=$T/y.npy", 1,
            "each device of a split input reads its own shard, so the file cannot be a pipe");
}

/* ---- ops from a shared object ---- */

#define PRELU " --load " APPS_BIN "/prelu.so "

Test(run, a_plan_with_ops_of_its_own_runs_with_the_object_that_has_them)
{
    float x[32], y[32];
    for (int i = 0; i < 32; i++)
        x[i] = weir_random_normal(3, (uint64_t)i);
    write_npy("x", "<f4", "8, 4", x, sizeof x);
    must_run(APPS_BIN "/prelu $T/plan $T/kept");
    cr_expect_str_eq(output, "slopes: 0.100 0.200 0.300 0.400\n");
    refuses("weir check $T/plan", 1, "ops.prelu: there is no such op in this program; weir_op_load(), or --load, takes it");
    must_run("weir check $T/plan" PRELU);
    must_run("weir show --json $T/plan" PRELU " | grep -c '\"op\": *\"prelu_grad\"'");
    must_run("weir run $T/plan" PRELU PRELU "--program apply --load-params $T/kept --feed apply/x=$T/x.npy "
             "--fetch apply/y=$T/y.npy");
    read_npy("y", "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 8, 4, ), }", y, sizeof y);
    for (int i = 0; i < 32; i++)
        cr_expect_float_eq(y[i], x[i] > 0 ? x[i] : 0.1f * (float)(1 + i % 4) * x[i], 1e-4);
    must_run("cd " APPS_BIN " && ./weir launch -n 2 -- ./weir run --load prelu.so $T/plan --made-up");
    cr_expect(strstr(output, "10 steps in"), "%s", output);
}

static void make_object(const char *name, const char *text)
{
    char command[512];
    folder_write(folder_path("%s.c", name), text, strlen(text));
    snprintf(command, sizeof command, "gcc -shared -fPIC -Iinclude $T/%s.c -o $T/%s.so", name, name);
    must_run(command);
}

Test(run, objects_that_have_no_ops_are_told)
{
    make_object("none", "int x;\n");
    make_object("empty", "#include <weir/weir.h>\nweir_status weir_register_ops(void) { return WEIR_OK; }\n");
    make_object("lacks", "#include <weir/weir.h>\nvoid weir_of_tomorrow(void);\n"
                         "weir_status weir_register_ops(void) { weir_of_tomorrow(); return WEIR_OK; }\n");
    make_object("taken", "#include <weir/weir.h>\nstatic const weir_op op = {.name = \"relu\"};\n"
                         "weir_status weir_register_ops(void) { return weir_op_register(&op); }\n");
    refuses("weir check --load /nowhere.so README.md", 2, "weir check: cannot read /nowhere.so: No such file");
    refuses("weir check --load README.md README.md", 1, "weir check: README.md cannot be loaded: ");
    refuses("weir show --load $T/none.so README.md", 1, "none.so: defines no weir_register_ops(), which registers its ops");
    refuses("weir run --load $T/empty.so README.md", 1, "empty.so: has registered no op here: is it linked with a libweir");
    refuses("weir run --load $T/lacks.so README.md", 1, "lacks.so cannot be loaded: ");
    cr_expect(strstr(output, "weir_of_tomorrow"), "%s", output);
    refuses("weir run --load $T/taken.so README.md", 1,
            "taken.so: weir_register_ops() gave E_ARGUMENT: op_register: the op relu has no rule infer");
}
