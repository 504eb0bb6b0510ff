/* regst/device_cpu.c: the CPU as a device. Its memory space is the process's own memory, its queue is the calling
 * thread. And what lies beside an accelerator, which is the same: its queues are the host's too. A kind of accelerator
 * that wants that memory known to its driver registers a table of its own for it.
 *
 * An arena is mapped, not malloc'ed: it is exactly as large as planned (to the page), starts on a page, is zero, and
 * goes back to the system at once. All its pages are made real at the start, so that no step pays for a page fault
 * and a lack of memory shows before the run. Large arenas ask for huge pages: kernels that stream over parameters
 * then miss the TLB less.
 *
 * One device is one thread: a library that an op of the program's calls is told not to start threads of its own, which
 * would fight the workers for the cores and make the sum order depend on their number. Told is OpenMP, whose number of
 * threads is a setting of the thread that sets it: the program's threads keep theirs. The symbol is weak because weir
 * itself needs no OpenMP.
 */
#include <string.h>
#include <sys/mman.h>

#include "graph/base/error.h"
#include "regst/device.h"

extern void omp_set_num_threads(int count) __attribute__((weak));

#define HUGE_BYTES (2u << 20)
#define PAGE_BYTES 4096

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Makes the pages real. Kernels before 5.14 do not know MADV_POPULATE_WRITE; there each page is written once. */
static void populate(char *space, uint64_t bytes)
{
    if (madvise(space, bytes, MADV_POPULATE_WRITE) == 0)
        return;
    for (uint64_t i = 0; i < bytes; i += PAGE_BYTES)
        ((volatile char *)space)[i] = 0;
}

static weir_status cpu_space_new(const char *path, uint32_t index, uint64_t bytes, void **made)
{
    (void)path;
    (void)index;
    void *space = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED)
        return error_set(WEIR_E_MEMORY, "no memory for an arena of %llu bytes", (unsigned long long)bytes);
    if (bytes >= HUGE_BYTES)
        madvise(space, bytes, MADV_HUGEPAGE);
    populate(space, bytes);
    *made = space;
    return WEIR_OK;
}

static void cpu_space_free(void *space, uint64_t bytes)
{
    munmap(space, bytes);
}

static weir_status cpu_copy(void *to, const void *from, uint64_t bytes)
{
    memcpy(to, from, bytes);
    return WEIR_OK;
}

static weir_status cpu_queue_open(uint32_t index)
{
    (void)index;
    if (omp_set_num_threads)
        omp_set_num_threads(1);
    return WEIR_OK;
}

const struct device_ops device_cpu = {
    .name = "cpu",
    .host = true,
    .space_new = cpu_space_new,
    .space_free = cpu_space_free,
    .copy_in = cpu_copy,
    .copy_out = cpu_copy,
    .queue_open = cpu_queue_open,
};

const struct device_ops device_pinned = {
    .name = "pinned",
    .host = true,
    .space_new = cpu_space_new,
    .space_free = cpu_space_free,
    .copy_in = cpu_copy,
    .copy_out = cpu_copy,
    .queue_open = cpu_queue_open,
};
