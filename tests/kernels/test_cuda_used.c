/* Registers, shared memory and loops of the CUDA kernels are those of tables, and no kernel spills registers. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { CANNOT = 77 };

/* The output of the command; its exit status. */
static int run(const char *command, char *text, size_t bytes)
{
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    text[fread(text, 1, bytes - 1, pipe)] = 0;
    const int status = pclose(pipe);
    cr_assert(WIFEXITED(status), "%s", text);
    return WEXITSTATUS(status);
}

static void compare_with_table(const char *command)
{
    static char text[8192];
    const int status = run(command, text, sizeof text);
    if (status == CANNOT)
        cr_skip_test("%s", text);
    cr_expect_eq(status, 0, "%s", text);
}

Test(cuda_used, kernels_take_the_registers_and_the_shared_memory_of_the_table, .timeout = 60)
{
    compare_with_table("tests/cuda/used " BUILT " '" NVCC_USED "' --check 2>&1");
}

Test(cuda_used, loops_are_those_of_the_table, .timeout = 60)
{
    compare_with_table("tests/cuda/loops " BUILT " '" NVCC_USED "' --check 2>&1");
}

/* Rows that are not aligned (<..., false>) are read by overlapping loads, of which some use a part. */
Test(cuda_used, losses_load_16_bytes_at_a_time_and_four_times_before_they_wait)
{
    char file[64], kernel[64], instance[64], line[256];
    int kernels = 0, loads, widest, narrowest, flight, stores, widest_store, narrowest_store;
    FILE *table = fopen("tests/cuda/loops.txt", "r");
    cr_assert_not_null(table);
    while (fgets(line, sizeof line, table)) {
        if (strncmp(line, "loss/", 5))
            continue;
        cr_assert_eq(sscanf(line, "%63s %63s %*d %d %d %d %d %d %d %d %63s", file, kernel, &loads, &widest, &narrowest,
                            &flight, &stores, &widest_store, &narrowest_store, instance), 10);
        cr_expect_eq(widest, 16, "%s", line);
        cr_expect_geq(narrowest, strstr(instance, "false") ? 8 : 16, "%s", line);
        cr_expect_geq(flight, 4, "%s", line);
        cr_expect(!stores || narrowest_store == 16, "%s", line);
        kernels++;
    }
    fclose(table);
    cr_expect_eq(kernels, 18);
}

/* A row's mean and rstd are loads of 4 bytes. */
Test(cuda_used, known_chains_load_a_row_s_operands_16_bytes_at_a_time_before_they_use_any)
{
    char line[256];
    int kernels = 0, loads, widest, flight;
    FILE *table = fopen("tests/cuda/loops.txt", "r");
    cr_assert_not_null(table);
    while (fgets(line, sizeof line, table)) {
        if (!strstr(line, " chain_known "))
            continue;
        cr_assert_eq(sscanf(line, "%*s %*s %*d %d %d %*d %d", &loads, &widest, &flight), 3);
        cr_expect_eq(widest, 16, "%s", line);
        cr_expect_geq(flight, loads, "%s", line);
        kernels++;
    }
    fclose(table);
    cr_expect_geq(kernels, 12);
}

Test(cuda_used, no_kernel_spills_registers)
{
    char file[64], kernel[64], line[256];
    int kernels = 0;
    FILE *table = fopen("tests/cuda/used.txt", "r");
    cr_assert_not_null(table);
    while (fgets(line, sizeof line, table)) {
        const char *last = strrchr(line, ' ');
        if (*line == '#')
            continue;
        cr_assert_eq(sscanf(line, "%63s %63s", file, kernel), 2);
        cr_expect_eq(strtol(last, NULL, 10), 0, "%s of %s spills registers", kernel, file);
        kernels++;
    }
    fclose(table);
    cr_expect_gt(kernels, 50);
}
