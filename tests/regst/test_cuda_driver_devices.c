/* tests/regst/test_cuda_driver_devices.c: the driver's devices, its versions and its plugin: what a machine without them is told. */
#include "regst/plugin.h"
#include "tests/support/card.h"

#include <criterion/criterion.h>
#include <stdlib.h>

TestSuite(cuda_driver_devices, .timeout = 120);

#define assert_ok(call) cr_assert_eq(call, WEIR_OK, "%s: %s", #call, weir_error())

/* ---- which devices there are ---- */

static void expect_absent(const standin_options *options, uint32_t index, const char *sentence)
{
    card_open(options);
    assert_ok(plugin_need(WEIR_CUDA));
    const struct device_ops *device = device_find(WEIR_CUDA);
    struct device_queue *queue;
    void *space;
    cr_expect_eq(device->space_new("", index, 100, &space), WEIR_E_UNSUPPORTED);
    cr_expect_str_eq(weir_error(), sentence);
    cr_expect_eq(device->queue_new(index, DEVICE_COMPUTE, &queue), WEIR_E_UNSUPPORTED);
    cr_expect_str_eq(weir_error(), sentence);
    card_close();
}

Test(cuda_driver_devices, a_machine_without_devices_says_so)
{
    expect_absent(&(standin_options){.cards = -1}, 0, "there is no cuda:0: this machine has no CUDA device");
}

Test(cuda_driver_devices, a_machine_without_a_driver_says_so)
{
    expect_absent(&(standin_options){.no_driver = true}, 2,
                  "there is no cuda:2: this machine has no CUDA device, and no driver for one");
}

Test(cuda_driver_devices, a_driver_that_is_too_old_is_told_with_both_versions)
{
    expect_absent(&(standin_options){.driver = 11040}, 0,
                  "there is no cuda:0: the driver is one for CUDA 11.4, and this build of weir needs one for CUDA 13.0");
}

Test(cuda_driver_devices, a_device_that_is_not_there_is_told_with_those_that_are)
{
    expect_absent(&(standin_options){.cards = 2}, 4, "there is no cuda:4: this machine has 2 (cuda:0-1)");
}

Test(cuda_driver_devices, a_card_without_kernels_is_named)
{
    expect_absent(&(standin_options){.arch = 75}, 0,
                  "cuda:0 is a stand-in (sm_75), and this build of weir has kernels for sm 80 90 100");
}

Test(cuda_driver_devices, devices_may_share_a_card)
{
    setenv("WEIR_CUDA_LOGICAL", "3", 1);
    card_open(&(standin_options){.cards = 2});
    assert_ok(plugin_need(WEIR_CUDA));
    const struct device_ops *device = device_find(WEIR_CUDA);
    struct device_facts facts;
    uint32_t count;
    assert_ok(device->count(&count));
    cr_expect_eq(count, 6);
    assert_ok(device->describe(5, &facts));
    cr_expect_str_eq(facts.name, "stand-in");
    cr_expect_str_eq(device->link(0, 2), "same card");
    cr_expect_str_eq(device->link(0, 3), "NVLink");
    card_close();
}

/* ---- the plugin ---- */

Test(cuda_driver_devices, a_plugin_that_is_not_there_is_told_with_where_it_was_looked_for)
{
    unsetenv("WEIR_CUDA_PLUGIN");
    setenv("WEIR_CUDA_PLUGIN", "/nowhere/libweir-cuda.so", 1);
    cr_expect_eq(plugin_need(WEIR_CUDA), WEIR_E_UNSUPPORTED);
    cr_expect_str_eq(weir_error(), "there is no plugin for CUDA devices where WEIR_CUDA_PLUGIN says: /nowhere/libweir-cuda.so: "
                                   "cannot open shared object file: No such file or directory");
    cr_expect_null(device_find(WEIR_CUDA));
    cr_expect_eq(plugin_need(WEIR_CPU), WEIR_OK);
}
