/* tests/apps/test_bench.c: `weir bench`, run as a user runs it: each benchmark for a moment. Its figures are not judged. */
#include "tests/apps/shell.h"
#include "tests/support/effort.h"
#include "tests/support/json.h"

#include <string.h>

TestSuite(bench, .init = shell_begin, .fini = folder_remove, .timeout = 120);

/* ---- benchmarks ---- */

Test(bench, bench_place_packs_a_file)
{
    must_run("{ printf 'id,lower,upper,size\\r\\nb1,0,3,4\\r\\nb2,3,9,4\\nb3,0,9,4\\n\\n';"
             "printf 'b4,9,21,4\\nb5,0,21,4'; } >$T/five.csv; weir bench place $T/five.csv --json");
    cr_expect(json_valid(output), "%s", output);
    cr_expect_eq(json_member(output, "height"), 12, "%s", output);
    cr_expect_eq(json_member(output, "lower_bound"), 12, "%s", output);
    cr_expect_eq(json_member(output, "gap_percent"), 0, "%s", output);
    must_run("echo id,lower,upper,size >$T/none.csv; weir bench place $T/none.csv");
    cr_expect(strstr(output, "height                         0\n"), "%s", output);
}

Test(bench, only_bench_gpt_maps_openblas_and_onednn)
{
    must_run(APPS_BIN "/weir-gpt --layers 1 --dim 16 --heads 2 --seq 8 --batch 4 "
             "--steps 1 --plan $T/plan >/dev/null 2>&1; { export LD_DEBUG=libs; for verb in \"show $T/plan\" \"check $T/plan\" "
             "devices --version \"launch -n 1 -- true\" \"checkpoint ls $T\" \"keygen $T/key\" \"bench nothing\" "
             "\"bench scale --quick --devices 2\"; do " APPS_BIN "/weir $verb; done } >$T/all 2>&1; unset LD_DEBUG; grep -c "
             "'calling init.*libzmq' $T/all; grep -cE 'openblas|dnnl|gomp' $T/all || true");
    cr_expect_str_eq(output, "9\n0\n");
}

Test(bench, bench_gpt_without_openblas_names_the_package_that_has_it)
{
    must_run(": >$T/libopenblas.so.0; ! LD_LIBRARY_PATH=$T weir bench gpt --quick 2>&1");
    cr_expect(strstr(output, "weir bench: gpt compares with OpenBLAS, which cannot be loaded: ") &&
              strstr(output, "; Debian's package libopenblas0 has it"), "%s", output);
}

Test(bench, bench_scale_compiles_a_plan_of_each_size)
{
    must_run("weir bench scale --json --quick --devices 16");
    cr_expect(json_valid(output), "%s", output);
    cr_expect(strstr(output, "{\"plans\": [{\"layers\": 4, \"dp\": 8, \"tp\": 1, \"pp\": 1, \"devices\": 8, "), "%s",
              output);
    cr_expect_eq(json_count(output, "\"plan_bytes\": "), 2, "%s", output);
    cr_expect(strstr(output, "\"devices\": 16, "), "%s", output);
    must_run("weir bench scale --json --quick --layers 3 --dp 2 --tp 2 --pp 3");
    cr_expect(json_valid(output), "%s", output);
    cr_expect_eq(json_member(output, "devices"), 12, "%s", output);
    cr_expect(json_member(output, "compile_s") > 0, "%s", output);
    cr_expect(json_member(output, "ports") > 0 && json_member(output, "plan_bytes") > json_member(output, "ports"), "%s", output);
    must_run("weir bench scale --quick --dp 2");
    cr_expect(strstr(output, "layers dp x tp x pp devices"), "%s", output);
}

/* ---- benchmarks that fork ---- */

/* All that the list names is there, and took some time. */
static void measures(const char *json, const char *const *names)
{
    for (; *names; names++)
        cr_expect(json_member(json, *names) > 0, "%s in %s", *names, json);
}

Test(bench, bench_link_measures_a_register_beside_what_the_machine_can_do)
{
    static const char *const names[] = {"ring_ns", "shm_ns", "shm_read_ns", "copy_ns", "shm_of_ring", "socket_ns",
                                        "spin_ns", "zmq_ns", "tcp_ns", "tcp_key_ns", "socket_stream_ns", "spin_stream_ns",
                                        "zmq_stream_ns", "tcp_stream_ns", "tcp_key_stream_ns", "tcp_of_socket",
                                        "tcp_key_of_socket", "tcp_of_zmq", "tcp_key_of_zmq", "tcp_stream_of_socket",
                                        "tcp_key_stream_of_socket", "tcp_stream_of_zmq", "tcp_key_stream_of_zmq", NULL};
    must_run("weir bench link --json --quick");
    cr_expect(json_valid(output), "%s", output);
    cr_expect_eq(json_count(output, "\"bytes\": "), 4);
    measures(output, names);
}

/* With one round a ratio is that of its times. */
static void is_ratio(const char *json, const char *name, const char *one, const char *other)
{
    const double ratio = json_member(json, one) / json_member(json, other);
    cr_expect_float_eq(json_member(json, name), ratio, 1e-3 + 1e-2 * ratio, "%s in %s", name, json);
}

/* The size is rounded up, as slots are. */
Test(bench, bench_link_measures_one_size_over_one_way)
{
    must_run("weir bench link --json --quick --tcp --bytes 1000");
    cr_expect(json_valid(output), "%s", output);
    cr_expect_eq(json_count(output, "\"bytes\": "), 1, "%s", output);
    cr_expect_eq(json_member(output, "bytes"), 1024, "%s", output);
    cr_expect(!strstr(output, "shm") && !strstr(output, "ring") && !strstr(output, "copy"), "%s", output);
    is_ratio(output, "tcp_key_of_socket", "socket_ns", "tcp_key_ns");
    is_ratio(output, "tcp_stream_of_zmq", "zmq_stream_ns", "tcp_stream_ns");
    is_ratio(output, "tcp_key_stream_of_socket", "socket_stream_ns", "tcp_key_stream_ns");
    must_run("weir bench link --quick --shm --bytes 64");
    cr_expect(strstr(output, "64 B\nspinning ring ") && strstr(output, "shm_of_ring") && !strstr(output, "TCP"), "%s",
              output);
}

Test(bench, bench_allreduce_measures_one_size_over_sockets)
{
    must_run("weir bench allreduce --json --quick --tcp --ranks 3 --bytes 40000");
    cr_expect(json_valid(output), "%s", output);
    cr_expect_eq(json_count(output, "\"bytes\": "), 1, "%s", output);
    cr_expect_eq(json_member(output, "bytes"), 40000, "%s", output);
    cr_expect(!strstr(output, "shm") && !strstr(output, "\"bare_us\""), "%s", output);
    is_ratio(output, "tcp_of_bare", "tcp_us", "bare_tcp_us");
    is_ratio(output, "tcp_key_of_bare", "tcp_key_us", "bare_tcp_us");
}

#if EFFORT(1, 0, 0)
Test(bench, bench_loop_measures_from_push_to_pull)
{
    must_run("weir bench loop --json --quick");
    cr_expect(json_valid(output), "%s", output);
    cr_expect_gt(json_member(output, "pull_us"), 0, "%s", output);
    cr_expect_gt(json_member(output, "fd_us"), 0, "%s", output);
    cr_expect_geq(json_member(output, "fd_p99_us"), json_member(output, "fd_us"), "%s", output);
    cr_expect_gt(json_member(output, "sink_us"), 0, "%s", output);
    cr_expect_gt(json_member(output, "echo_us"), 0, "%s", output);
}

Test(bench, bench_save_measures_a_checkpoint_beside_the_disk)
{
    static const char *const names[] = {"bytes",         "step_ms", "copy_ms",       "written_ms",   "save_ms",
                                        "save_mb_per_s", "disk_ms", "disk_mb_per_s", "save_of_disk", NULL};
    must_run("TMPDIR=$T weir bench save --json --quick");
    cr_expect(json_valid(output), "%s", output);
    measures(output, names);
    must_run("ls $T");
    cr_expect_str_eq(output, "");
}
#endif

Test(bench, bench_actors_measures_chains_and_columns_beside_the_same_by_hand)
{
    static const char *const names[] = {"chain8_1w_ns", "raw_chain8_1w_ns", "chain8_2w_ns", "pingpong_ns",
                                        "raw_pingpong_ns", "chain8_1us_ns", "chain8_200us_ns", "fan2_ns", "raw_fan2_ns",
                                        "fan2_uneven_ns", "stencil_ns", "raw_stencil_ns", "fan4_50us_ns",
                                        "raw_fan4_50us_ns", "raw_handoff_ns", NULL};
    static const char *const tails[] = {"short_fan2_p50_ns", "short_fan2_p99_ns", "raw_short_fan2_p90_ns",
                                        "short_fan4_50us_p50_ns", "raw_short_fan4_50us_p99_ns", NULL};
    must_run("weir bench actors --json --quick");
    cr_expect(json_valid(output), "%s", output);
    measures(output, names);
    measures(output, tails);
    cr_expect(json_member(output, "short_fan4_50us_p50_ns") >= 2 * 50000, "faster than its kernels: %s", output);
    cr_expect(strstr(output, "\"short_fan2_sleeps_per_s\"") && strstr(output, "\"shared_cache\""), "%s", output);
    cr_expect(json_member(output, "fan4_50us_ns") >= 2 * 50000, "faster than its kernels: %s", output);
    cr_expect(json_member(output, "chain8_200us_ns") >= 200000 / 2.0, "faster than its kernels: %s", output);
    must_run("weir bench --help");
    for (int i = 0; names[i]; i++)
        cr_expect(!strncmp(names[i], "raw_", 4) || strstr(output, names[i]), "--help does not name %s", names[i]);
}

#if EFFORT(1, 1, 0) /* a quarter of a minute there, and the sums are those of test_ranks */
Test(bench, bench_allreduce_measures_a_sum_beside_a_bare_loop)
{
    static const char *const names[] = {"ranks",       "bare_us", "shm_us",        "shm_steady_us",
                                        "bare_tcp_us", "tcp_us",  "tcp_steady_us", "tcp_key_us",
                                        "shm_of_bare", "tcp_of_bare", "tcp_key_of_bare", NULL};
    must_run("weir bench allreduce --json --quick");
    cr_expect(json_valid(output), "%s", output);
    cr_expect_eq(json_count(output, "\"bytes\": "), 6);
    measures(output, names);
}
#endif
