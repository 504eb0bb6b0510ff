/* regst/device.c: the kinds of devices that this process knows. */
#include "regst/device.h"

static _Atomic(const struct device_ops *) kinds[WEIR_DEVICE_KINDS] = {
    [WEIR_CPU] = &device_cpu,
    [WEIR_DISK] = &device_disk,
    [WEIR_PINNED] = &device_pinned,
    [WEIR_MAPPED] = &device_mapped,
};

const struct device_ops *device_find(uint32_t kind)
{
    /* acquire: pairs with device_register(); what the table points to is there */
    return kind < WEIR_DEVICE_KINDS ? atomic_load_explicit(&kinds[kind], memory_order_acquire) : NULL;
}

void device_register(uint32_t kind, const struct device_ops *ops)
{
    atomic_store_explicit(&kinds[kind], ops, memory_order_release);
}

bool device_host(uint32_t kind)
{
    const struct device_ops *device = device_find(kind);
    return device && device->host;
}
