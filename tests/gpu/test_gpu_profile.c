/* The table that tests/gpu/profile makes of what ncu says: a step is two profiled runs' difference, added up by kind. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/support/folder.h"

TestSuite(gpu_profile, .init = folder_make, .fini = folder_remove, .timeout = 60);

struct launch {
    const char *kernel, *unit, *value;
};

/* Launches that both runs have, then those that the second one has besides. */
static const struct launch both[] = {{"nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "ns", "1,234,000"},
                                     {"void chain_rows<4, (program_way)1>(fused_program, chain_call)", "ns", "50,000"}};
static const struct launch step[] = {{"nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "us", "1,000"},
                                     {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "ns", "234000"},
                                     {"void chain_rows<4, (program_way)1>(fused_program, chain_call)", "ns", "50,000"},
                                     {"void cores_dq<__nv_bfloat16, 64>(sizes, grads)", "ns", "300,000"},
                                     {"void update<adamw>(updates)", "ns", "100,000"},
                                     {"void cross_entropy_row<float>(a, b)", "ms", "0.5"},
                                     {"something_else(int)", "ns", "2,000"}};

static void write_launches(FILE *to, const struct launch *launches, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fprintf(to, "\"%zu\",\"12\",\"weir-gpt\",\"127.0.0.1\",\"%s\",\"1\",\"7\",\"(256, 1, 1)\",\"(10, 1, 1)\",\"0\",\"9.0\","
                    "\"Command line profiler metrics\",\"gpu__time_duration.sum\",\"%s\",\"%s\"\n",
                i, launches[i].kernel, launches[i].unit, launches[i].value);
}

static const char *csv(const char *name, bool whole)
{
    const char *path = folder_path("%s", name);
    FILE *to = fopen(path, "w");
    cr_assert_not_null(to);
    fprintf(to, "==PROF== Connected to process 12\nstep 0: loss 5.5\n\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel "
                "Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"Section Name\",\"Metric "
                "Name\",\"Metric Unit\",\"Metric Value\"\n");
    write_launches(to, both, sizeof both / sizeof *both);
    if (whole)
        write_launches(to, step, sizeof step / sizeof *step);
    fclose(to);
    return path;
}

static int table(const char *one, const char *two, char *text, size_t bytes)
{
    char command[800];
    snprintf(command, sizeof command, "tests/gpu/profile --table %s %s 0.0025 2>&1", one, two);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    text[fread(text, 1, bytes - 1, pipe)] = 0;
    const int status = pclose(pipe);
    cr_assert(WIFEXITED(status), "%s", text);
    return WEXITSTATUS(status);
}

Test(gpu_profile, a_step_is_told_by_kind_and_with_its_gaps)
{
    static const char *const lines[] = {"kind                      launches        ms   share\n",
                                        "products                         2     1.234  49.4 %\n",
                                        "attention                        1     0.300  12.0 %\n",
                                        "norms and their chains           1     0.050   2.0 %\n",
                                        "loss                             1     0.500  20.0 %\n",
                                        "optimizer                        1     0.100   4.0 %\n",
                                        "other kernels                    1     0.002   0.1 %\n",
                                        "all kernels                      7     2.186  87.4 %\n",
                                        "gaps                                   0.314  12.6 %\n"};
    char text[4096], one[300];
    snprintf(one, sizeof one, "%s", csv("one.csv", false));
    cr_assert_eq(table(one, csv("two.csv", true), text, sizeof text), 0, "%s", text);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cr_expect(strstr(text, lines[i]), "no %s in\n%s", lines[i], text);
}

Test(gpu_profile, a_file_without_kernels_is_said_to_be_one)
{
    char text[4096], one[300];
    snprintf(one, sizeof one, "%s", csv("one.csv", false));
    FILE *empty = fopen(folder_path("two.csv"), "w");
    cr_assert_not_null(empty);
    fputs("==ERROR== The user does not have permission to access NVIDIA GPU Performance Counters\n", empty);
    fclose(empty);
    cr_expect_eq(table(one, folder_path("two.csv"), text, sizeof text), 1);
    cr_expect_str_eq(text, "ncu told of no kernels\n");
}
