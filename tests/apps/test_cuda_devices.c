/* tests/apps/test_cuda_devices.c: `weir devices`, with CUDA devices that are emulated, and where there are none. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/support/card.h"

TestSuite(cuda_devices, .timeout = 60);

/* The output of `weir devices`, under these variables; its exit status is 0. */
static char *devices(const char *environment, const char *options)
{
    static char out[1 << 14];
    char command[600];
    snprintf(command, sizeof command, "%s %s/weir devices %s 2>&1", environment, APPS_BIN, options);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    size_t bytes = fread(out, 1, sizeof out - 1, pipe);
    out[bytes] = 0;
    int status = pclose(pipe);
    cr_assert(WIFEXITED(status) && !WEXITSTATUS(status), "%s: %s", command, out);
    return out;
}

Test(cuda_devices, a_machine_without_a_plugin_has_its_processors)
{
    char *out = devices("WEIR_CUDA_PLUGIN=/nowhere/plugin.so", "");
    cr_expect_eq(strncmp(out, "cpu ", 4), 0, "%s", out);
    cr_expect(strstr(out, "no CUDA devices: there is no plugin for CUDA devices where WEIR_CUDA_PLUGIN says: /nowhere"), "%s",
              out);
}

Test(cuda_devices, each_device_is_listed_with_its_links)
{
    card_open(NULL);
    char *out = devices("STANDIN_CARDS=2 WEIR_CUDA_LOGICAL=2", "");
    const char *const parts[] = {"cuda:3 ", "8.0 GB", "sm_90", "driver for CUDA 13.0", "cuda:0 - cuda:1  same card\n",
                                 "cuda:1 - cuda:2  NVLink\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        cr_expect(strstr(out, parts[i]), "no \"%s\" in: %s", parts[i], out);
    cr_expect_null(strstr(out, "cuda:4"));
}

Test(cuda_devices, who_makes_attention_is_said)
{
    card_open(NULL);
    const char *const cases[][2] = {{"", "attention by weir (there is no cuDNN)"},
                                    {"STANDIN_CUDNN=91900", "attention by cuDNN 9.19.0"},
                                    {"STANDIN_CUDNN=91802", "attention by weir (cuDNN 9.18.2 is older than 9.19)"},
                                    {"STANDIN_CUDNN=91900 WEIR_CUDA_ATTENTION=own",
                                     "attention by weir (WEIR_CUDA_ATTENTION=own)"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *out = devices(cases[i][0], "");
        cr_expect(card_real() || strstr(out, "without cuDNN") || strstr(out, cases[i][1]), "no \"%s\" in: %s", cases[i][1], out);
    }
}

Test(cuda_devices, programs_get_one_json_object)
{
    card_open(NULL);
    json_t *all = json_loads(devices("STANDIN_CARDS=3", "--json"), 0, NULL);
    cr_assert_not_null(all);
    json_t *list = json_object_get(all, "devices"), *last = json_array_get(list, 3);
    cr_assert_eq(json_array_size(list), 4);
    cr_expect_str_eq(json_string_value(json_object_get(json_array_get(list, 0), "kind")), "cpu");
    cr_expect_str_eq(json_string_value(json_object_get(last, "name")), "stand-in");
    cr_expect_eq(json_integer_value(json_object_get(last, "index")), 2);
    cr_expect_eq(json_integer_value(json_object_get(last, "bytes")), 8000000000);
    cr_expect_str_eq(json_string_value(json_object_get(json_object_get(last, "links"), "cuda:0")), "NVLink");
    cr_expect_null(json_object_get(all, "no_cuda"));
    json_decref(all);
}

Test(cuda_devices, a_machine_without_cards_says_why)
{
    card_open(NULL);
    cr_expect(strstr(devices("STANDIN_CARDS=-1", ""), "no CUDA devices: this machine has no CUDA device\n"));
    json_t *all = json_loads(devices("STANDIN_CARDS=-1", "--json"), 0, NULL);
    cr_expect_str_eq(json_string_value(json_object_get(all, "no_cuda")), "this machine has no CUDA device");
    json_decref(all);
}
