/* tests/apps/test_cuda_apps.c: programs with --device cuda, on emulated devices: they say and save what they do on CPUs. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/support/card.h"
#include "tests/support/effort.h"
#include "tests/support/folder.h"

TestSuite(cuda_apps, .init = folder_make, .fini = folder_remove, .timeout = 300);

enum { OUT_BYTES = 1 << 16 };

/* The output of the command, on both streams; its exit status must be `status`. */
static char *say(const char *environment, const char *arguments, int status)
{
    static char out[OUT_BYTES];
    char command[1000];
    snprintf(command, sizeof command, "%s %s/%s 2>&1", environment, APPS_BIN, arguments);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    out[fread(out, 1, sizeof out - 1, pipe)] = 0;
    const int ended = pclose(pipe);
    cr_assert(WIFEXITED(ended) && WEXITSTATUS(ended) == status, "%s: %s", command, out);
    return out;
}

/* The number behind the last `word`. */
static double last(const char *out, const char *word)
{
    const char *at = NULL;
    for (const char *next = strstr(out, word); next; next = strstr(next + 1, word))
        at = next;
    cr_assert_not_null(at, "no %s in: %s", word, out);
    return strtod(at + strlen(word), NULL);
}

/* Both say the same number, to its last digit or the one before. */
static void same(const char *arguments, const char *word, double tolerance)
{
    char cuda[400];
    card_open(NULL);
    snprintf(cuda, sizeof cuda, "%s --device cuda", arguments);
    const double cpu = last(say("", arguments, 0), word), got = last(say("WEIR_CUDA_LOGICAL=4", cuda, 0), word);
    cr_expect(fabs(got - cpu) <= tolerance, "%s: %s %g, on cards %g", arguments, word, cpu, got);
}

Test(cuda_apps, digits_are_learned_alike)
{
    same("weir-digits --steps 20 --batch 32 --dim 32", "loss", 2e-4);
    same("weir-digits --steps 20 --batch 32 --dim 32 --dp 2 --pp 2 --micro 4 --eval-every 20", "accuracy", 1);
}

#if EFFORT(1, 0, 0) /* emulated kernels take long under a sanitizer; which finds no more in these */
Test(cuda_apps, a_gpt_is_trained_alike)
{
    same("weir-gpt --steps 3 --batch 4 --dim 16 --heads 2 --seq 16 --layers 2 --sample 0", "validation loss", 2e-4);
    same("weir-gpt --steps 3 --batch 4 --dim 16 --heads 2 --seq 16 --layers 2 --tp 2 --zero --dp 2 --bf16 --sample 20",
         "validation loss", 5e-3);
}

/* With a device in each of two processes as with both in one. */
Test(cuda_apps, processes_train_alike)
{
    const char *arguments = "weir-gpt --device cuda --dp 2 --steps 3 --batch 4 --dim 16 --heads 2 --seq 16 --layers 2 "
                            "--sample 0";
    char launched[400];
    card_open(NULL);
    card_need(2);
    snprintf(launched, sizeof launched, "weir launch -n 2 -- %s/%s", APPS_BIN, arguments);
    const double one = last(say("STANDIN_CARDS=2", arguments, 0), "validation loss");
    const double two = last(say("STANDIN_CARDS=2", launched, 0), "validation loss");
    cr_expect_eq(one, two, "%g in one process, %g in two", one, two);
}

#endif

/* Training saved on cards goes on on CPUs, and the other way round. */
Test(cuda_apps, checkpoints_know_no_kind_of_device)
{
    char first[600], second[600];
    card_open(NULL);
    snprintf(first, sizeof first, "weir-digits --steps 6 --batch 32 --dim 32 --device cuda --save %s", folder_path("c"));
    snprintf(second, sizeof second, "weir-digits --steps 12 --batch 32 --dim 32 --resume %s", folder_path("c"));
    say("", first, 0);
    const double cpu = last(say("", second, 0), "loss");
    snprintf(first, sizeof first, "weir-digits --steps 12 --batch 32 --dim 32 --device cuda --resume %s", folder_path("c"));
    cr_expect(fabs(last(say("", first, 0), "loss") - cpu) <= 2e-4);
}

Test(cuda_apps, a_kind_that_is_not_there_is_told)
{
    cr_expect(strstr(say("", "weir-digits --device gpu", 2), "weir-digits: --device is cpu or cuda, not gpu\n"));
    cr_expect(strstr(say("WEIR_CUDA_PLUGIN=/nowhere/plugin.so", "weir-digits --device cuda", 1), "/nowhere/plugin.so"));
    card_open(&(standin_options){.cards = 1});
    cr_expect(strstr(say("STANDIN_CARDS=1", "weir-digits --device cuda --dp 2", 1), "there is no cuda:1: this machine has 1"));
}

#if EFFORT(1, 0, 0)
/* Bytes that a device may take beside those that are planned: for the clocks of queues; on a real one the driver takes some
 * 500 MB for its context and the code of kernels, and libraries take more. */
static int64_t beside(void)
{
    return card_real() ? INT64_C(2) << 30 : 4096;
}

/* No figure is judged here, but that they are there. */
Test(cuda_apps, a_step_of_a_gpt_is_measured)
{
    static const char *const numbers[] = {"tokens_per_s", "gemm_tflops", "gemm_share", "host_us_per_step", "planned_bytes",
                                          "used_bytes"};
    card_open(NULL);
    json_t *all = json_loads(say("", "weir bench gpt --device cuda --quick --json", 0), 0, NULL);
    cr_assert_not_null(all);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cr_expect(json_number_value(json_object_get(all, numbers[i])) > 0, "%s", numbers[i]);
    cr_expect_float_eq(json_number_value(json_object_get(all, "loss")), log(320), 0.5);
    const json_int_t used = json_integer_value(json_object_get(all, "used_bytes"));
    const json_int_t planned = json_integer_value(json_object_get(all, "planned_bytes"));
    cr_expect(used >= planned && used <= planned + beside(), "beside what is planned: %lld, %lld", (long long)used,
              (long long)planned);
    json_decref(all);
    cr_expect(strstr(say("", "weir bench gpt --device cuda --no-fusion --quick --json", 0), "\"tokens_per_s\""));
    cr_expect(strstr(say("", "weir bench gpt --no-fusion", 2), "--no-fusion need it"));
    cr_expect(strstr(say("", "weir bench gpt --device gpu", 2), "--device must be cuda"));
    cr_expect(strstr(say("WEIR_CUDA_PLUGIN=/nowhere/plugin.so", "weir bench gpt --device cuda --quick", 1), "/nowhere"));
}

/* Two devices in one process, and in a process each. */
Test(cuda_apps, a_sum_over_cards_is_measured)
{
    const char *arguments = "weir bench allreduce --device cuda --quick --json --bytes 32768";
    char launched[200];
    card_open(NULL);
    card_need(2);
    snprintf(launched, sizeof launched, "weir launch -n 2 -- %s/%s", APPS_BIN, arguments);
    for (int processes = 1; processes <= 2; processes++) {
        const char *said = strchr(say("STANDIN_CARDS=2", processes == 1 ? arguments : launched, 0), '{');
        json_t *all = json_loads(said ? said : "", JSON_DISABLE_EOF_CHECK, NULL);
        const json_t *sums = json_object_get(all, "sums"), *most = json_array_get(sums, 0);
        cr_expect_eq(json_integer_value(json_object_get(all, "devices")), 2);
        cr_expect_eq(json_integer_value(json_object_get(all, "processes")), processes);
        cr_expect_eq(json_integer_value(json_object_get(most, "bytes")), 32768);
        cr_expect(json_number_value(json_object_get(most, "moves_us")) > 0);
        cr_expect(json_number_value(json_object_get(most, "fast_us")) > 0);
        cr_expect(json_number_value(json_object_get(most, "kernels_us")) > 0);
        json_decref(all);
    }
    cr_expect(strstr(say("", "weir bench allreduce --device cuda", 1), "a sum takes two"));
    cr_expect(strstr(say("", "weir bench allreduce --device cuda --tcp", 2), "--shm and --tcp do not work"));
}

Test(cuda_apps, queues_of_a_card_are_measured)
{
    static const char *const numbers[] = {"ahead_launch_ns", "ahead_queues_ns", "ahead_host_ns", "raw_handoff_ns"};
    card_open(NULL);
    json_t *all = json_loads(say("", "weir bench actors --device cuda --quick --json", 0), 0, NULL);
    cr_assert_not_null(all);
    cr_expect_eq(json_object_size(all), 4);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cr_expect(json_number_value(json_object_get(all, numbers[i])) > 0, "%s", numbers[i]);
    json_decref(all);
    cr_expect(strstr(say("", "weir bench link --device cuda", 2), "--device works only with gpt, actors and allreduce"));
}
#endif
