/* regst/cuda/space.c: memory of devices, and of the host's that they reach.
 *
 * Copies from and to memory of the host's that is not pinned go through the driver's own; such a copy in may return before
 * all has arrived, on the stream that the runtime calls NULL: that is waited for.
 */
#include <stdlib.h>
#include <string.h>

#include "regst/cuda/driver.h"

static weir_status no_memory(uint32_t index, const char *what, uint64_t bytes, cudaError_t error)
{
    char wanted[24], free_text[24], all_text[24];
    size_t free_bytes = 0, all = 0;
    weir_status status = failed(index, what, error);
    if (status != WEIR_E_MEMORY || cudaMemGetInfo(&free_bytes, &all))
        return status;
    return the.host->error_set(status, "cuda:%u: %s of %s: %s (%s free of %s)", index, what, bytes_text(bytes, wanted),
                               cudaGetErrorString(error), bytes_text(free_bytes, free_text), bytes_text(all, all_text));
}

weir_status space_new(const char *path, uint32_t index, uint64_t bytes, void **space)
{
    (void)path;
    int card;
    void *made = NULL;
    weir_status status = card_open(index, &card);
    if (status)
        return status;
    cudaError_t error = cudaMalloc(&made, bytes);
    if (error)
        return no_memory(index, "cudaMalloc", bytes, error);
    status = CALL(index, cudaMemset, made, 0, bytes);
    if (!status)
        status = CALL(index, cudaStreamSynchronize, NULL);
    if (status)
        cudaFree(made);
    else
        *space = made;
    return status;
}

void space_free(void *space, uint64_t bytes)
{
    (void)bytes;
    if (cards_hang())
        return;
    card_set_own();
    cudaFree(space);
    cudaGetLastError();
}

/* Which device it is follows from the address: there is one space of addresses for all. */
static weir_status copy(void *to, const void *from, uint64_t bytes, const char *what)
{
    card_set_own();
    cudaError_t error = cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
    if (!error)
        error = cudaStreamSynchronize(NULL);
    cudaGetLastError();
    return error ? the.host->error_set(WEIR_E_KERNEL, "%s a CUDA device: %s", what, cudaGetErrorString(error)) : WEIR_OK;
}

weir_status space_copy_in(void *to, const void *host, uint64_t bytes)
{
    return copy(to, host, bytes, "a copy to");
}

weir_status space_copy_out(void *host, const void *from, uint64_t bytes)
{
    return copy(host, from, bytes, "a copy from");
}

/* ---- pinned ---- */

/* Beside an accelerator of tests' there is no driver that it should be known to. */
static bool is_known(void)
{
    return !the.absent;
}

weir_status pinned_new(const char *path, uint32_t index, uint64_t bytes, void **space)
{
    (void)path;
    void *made = NULL;
    if (!is_known())
        return the.host->error_set(the.absent, "there is no cuda:%u: %s", index, the.why);
    card_set_own();
    cudaError_t error = cudaHostAlloc(&made, bytes, cudaHostAllocPortable);
    if (error)
        return no_memory(index, "cudaHostAlloc", bytes, error);
    memset(made, 0, bytes);
    *space = made;
    return WEIR_OK;
}

void pinned_free(void *space, uint64_t bytes)
{
    (void)bytes;
    if (cards_hang())
        return;
    card_set_own();
    cudaFreeHost(space);
    cudaGetLastError();
}

weir_status pinned_adopt(void *space, uint64_t bytes)
{
    char text[24];
    card_set_own();
    cudaError_t error = is_known() ? cudaHostRegister(space, bytes, cudaHostRegisterPortable) : cudaSuccess;
    cudaGetLastError();
    return error ? the.host->error_set(WEIR_E_MEMORY, "cudaHostRegister of %s that processes share: %s",
                                       bytes_text(bytes, text), cudaGetErrorString(error))
                 : WEIR_OK;
}

void pinned_leave(void *space, uint64_t bytes)
{
    (void)bytes;
    if (!is_known() || cards_hang())
        return;
    card_set_own();
    cudaHostUnregister(space);
    cudaGetLastError();
}
