/* kernels/cuda/listed.h: the kernels that the plugin may launch, one after the other. Each stands here by the time that the
 * plugin is loaded, as LAUNCH (kernels/cuda/kernel.h) names it: so the driver can load all of them on a card before anything
 * runs there. One that were loaded when it is launched first might wait for what runs, and a collective that runs waits for
 * others. C, and C++ for nvcc and the emulator.
 */
#ifndef KERNELS_CUDA_LISTED_H
#define KERNELS_CUDA_LISTED_H

struct kernel_listed {
    const void *kernel; /* what CUDA's runtime knows it by */
    struct kernel_listed *next;
};

#ifdef __cplusplus
extern "C" {
inline kernel_listed *kernels_listed = nullptr;
}

/* Puts a kernel there, once for each source that launches it. */
struct kernel_lister : kernel_listed {
    explicit kernel_lister(const void *which)
    {
        kernel = which;
        next = kernels_listed;
        kernels_listed = this;
    }
};
template <auto KERNEL_> kernel_lister kernel_is_listed{(const void *)KERNEL_};
#else
extern struct kernel_listed *kernels_listed;
#endif

#endif
