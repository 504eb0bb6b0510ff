/* graph/base/base.h: what graph/base/base.c gives the library beyond <weir/base.h>. Pure functions; any thread. */
#ifndef GRAPH_BASE_BASE_H
#define GRAPH_BASE_BASE_H

#include <weir/op.h>

#include <string.h>

/* Writes "[8, 16]" to `text` and returns it. */
const char *shape_text(const weir_shape *shape, char *text, size_t bytes);

/* Whether the elements can be counted, and their bytes too. */
bool shape_countable(const weir_shape *shape);

/* "cpu": what device lists, plans and messages call the kind. Static storage. */
const char *device_kind_name(weir_device_kind kind);

/* Kinds by what reaches their memory:
 *
 *                      host's pointers   kernels              beside it
 *     CPU, PINNED      yes               the CPU's
 *     DISK             no                its own (copies)
 *     CUDA, FAKE       no                its own; FAKE's      PINNED of the same index
 *                                        do what the CPU's do
 *
 * An accelerator has memory of its own and computes in it. Values go to the host, and come from it, through the PINNED memory
 * beside it. */
bool device_is_accelerator(weir_device_kind kind);
/* Whether the host may follow pointers into the kind's spaces: they can be shared between processes, and sent. */
bool device_host_reaches(weir_device_kind kind);
/* Which of an op's kernels and workspaces (weir_op.kernel, .workspace) are those of the kind. */
weir_device_kind device_kernels(weir_device_kind kind);
/* Whether devices of the kind have a kernel for the op: op->kernel, or a plugin's. Nothing is loaded to tell. It is where
 * the ops are, as weir_op_find() (kernels/table/registry.c). */
bool op_runs_on(const weir_op *op, weir_device_kind kind);
static inline bool type_equal(const weir_type *a, const weir_type *b)
{
    return a->dtype == b->dtype && weir_shape_equal(&a->shape, &b->shape);
}

/* How often an op was registered, or was already. */
uint64_t registry_accepted(void);

/* The rule that is missing or wrong in an op that has a name: "has no rule infer"; NULL: nothing. There, too. */
const char *op_fault(const weir_op *op);

/* The rule `exact` of a registered op; NULL: it has none, or its program's headers did not have the member yet. There, too. */
weir_kernel_fn op_exact(const char *name);
/* The kernel of an op for devices of the kind, from the copy of the kernels that is for this processor, where there are
 * several (kernels/table/levels.c); NULL: there is none. */
weir_kernel_fn op_kernel(const weir_op *op, weir_device_kind kind);
/* Which copy that is: "v3", or "native-v3" where there is but one. E_ARGUMENT: WEIR_CPU_LEVEL asks for one that is not
 * there, or that this processor cannot execute. The same for the whole life of the process. */
weir_status op_level(const char **level);
/* All that this build has, whether this processor can execute them or not: each higher than the last, then NULL. */
const char *const *op_levels(void);

/* An amount of memory: "512MiB", "2GB", "1.5 GiB", "4096". False: it is none above 0. */
bool bytes_parse(const char *text, uint64_t *bytes);

/* Words that different threads write lie this far apart: a processor fetches a cache line together with its neighbour, so two
 * threads that write to neighbours take them from each other. */
#define APART_BYTES 128

/* FNV-1a, 64 bits: of the text; and of more bytes behind those that `hash` is of (HASH_START: of none). */
#define HASH_START UINT64_C(0xcbf29ce484222325)
#define HASH_PRIME UINT64_C(0x100000001b3)
uint64_t name_hash(const char *name);
static inline uint64_t hash_more(uint64_t hash, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned char byte;
        memcpy(&byte, (const char *)bytes + i, 1); /* a static analyser takes parts of larger numbers for garbage else */
        hash = (hash ^ byte) * HASH_PRIME;
    }
    return hash;
}

/* The random stream of what is called `name` in a plan with this seed: FNV-1a of the name, xor seed *
 * 0x9E3779B97F4A7C15. */
uint64_t name_key(uint64_t seed, const char *name);

#endif
