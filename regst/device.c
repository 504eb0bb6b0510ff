/* regst/device.c: the kinds of devices that this process knows. */
#include "regst/device.h"

static const struct device_ops *kinds[WEIR_DEVICE_KINDS] = {
    [WEIR_CPU] = &device_cpu,
    [WEIR_DISK] = &device_disk,
    [WEIR_PINNED] = &device_pinned,
};

const struct device_ops *device_find(uint32_t kind)
{
    return kind < WEIR_DEVICE_KINDS ? kinds[kind] : NULL;
}

void device_register(uint32_t kind, const struct device_ops *ops)
{
    kinds[kind] = ops;
}

bool device_host(uint32_t kind)
{
    const struct device_ops *device = device_find(kind);
    return device && device->host;
}
