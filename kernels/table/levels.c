/* kernels/table/levels.c: one library for all processors of a kind.
 *
 * A portable build (`make PORTABLE=1`) compiles everything for any x86-64, and the kernels, with what they call in their
 * loops, once more for each of these levels:
 *
 *     v1        any x86-64                          the library's own copy, which has all the rules, too
 *     v3        x86-64-v3: AVX2, FMA, F16C
 *     v4        x86-64-v4: AVX-512
 *     v4-bf16   the same copy, with AVX512_BF16: products of bf16 are pairs of terms
 *     v4-amx    the same copy, with AMX: so they are in tiles
 *
 * A copy is one object, of which nothing can be seen but its table of ops (level_ops.c): it has its own of every
 * function but those of amx.c, so nothing is renamed and no kernel knows of levels. An op is the library's own, with one address and one
 * set of rules; when a session is opened, and where one kernel calls others (fused), its kernel is looked up in the
 * table of the level. The level is the highest that the processor has, or the one that WEIR_CPU_LEVEL names.
 *
 * Within a level the bits of a result depend on nothing but the plan and its values. Two levels round differently (a
 * product and a sum are one operation from v3 on), so all ranks of a session have to be of one, which they compare when
 * they meet: where processors differ WEIR_CPU_LEVEL has to name one that all have. The scratch that a kernel needs is the
 * same on all: a plan made on one runs on the others.
 *
 * A build for one processor has what the compiler was told, as "native-v3", and above it "native-v3-amx" where AMX is
 * found when it runs. The names say all that kernels ask of a processor and that changes bits. Other differences between
 * compilers, and between processors of a level, changed no bit where they were tried: a GPT trained to the same parameters
 * with kernels from GCC 12 for x86-64-v3, Haswell and Zen 3, and from GCC and Clang for one with AVX-512.
 *
 * Why not target_clones, or ifunc: they are of single functions, and the kernels' loops are inlined from headers into
 * hundreds. Why not libraries in glibc-hwcaps/: programs that link the archive would have none of it.
 */
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "kernels/matmul/amx.h"
#include "kernels/common/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct level {
    const char *name;
    const weir_op *const *ops;
    bool (*is_here)(void); /* whether this processor can execute it */
} level;

static bool always(void)
{
    return true;
}

#ifdef WEIR_LEVELS

extern const weir_op *const level_v3[OPS_COUNT], *const level_v4[OPS_COUNT];

static bool has_v3(void)
{
    return __builtin_cpu_supports("x86-64-v3");
}

static bool has_v4(void)
{
    return __builtin_cpu_supports("x86-64-v4");
}

static bool has_bf16(void)
{
    return has_v4() && __builtin_cpu_supports("avx512bf16");
}

static bool has_amx(void)
{
    return has_bf16() && amx_usable();
}

/* name, ops, is_here; whoever has one has those above it, too */
#define LEVELS(X) \
    X("v1", level_ops, always) \
    X("v3", level_v3, has_v3) \
    X("v4", level_v4, has_v4) \
    X("v4-bf16", level_v4, has_bf16) \
    X("v4-amx", level_v4, has_amx)

#else

/* The level that the compiler was told about; AMX is found out when the library runs. */
#if defined __AVX512BF16__
#define NATIVE "native-v4-bf16"
#elif defined __AVX512F__
#define NATIVE "native-v4"
#elif defined __AVX2__ && defined __FMA__
#define NATIVE "native-v3"
#elif defined __FMA__ || defined __FMA4__
#define NATIVE "native-v1-fma"
#elif defined __x86_64__
#define NATIVE "native-v1"
#elif defined __aarch64__
#define NATIVE "native-aarch64"
#else
#define NATIVE "native"
#endif

static bool has_amx(void)
{
    return amx_usable();
}

static bool has_v4(void)
{
    return false; /* as a level of its own */
}

#define LEVELS(X) X(NATIVE, level_ops, always) X(NATIVE "-amx", level_ops, has_amx)

#endif

#define ENTRY(name, ops, is_here) {name, ops, is_here},
#define NAME(name, ops, is_here) name,
static const level levels[] = {LEVELS(ENTRY)};
static const char *const names[] = {LEVELS(NAME) NULL};

enum { LEVEL_COUNT = sizeof levels / sizeof *levels };

/* The last that is here, or that which is asked for; NULL: it is not there, or not here. */
static const level *choose(const char *asked)
{
    const level *found = NULL;
    for (int i = 0; i < LEVEL_COUNT; i++)
        if ((!asked || !strcmp(asked, levels[i].name)) && levels[i].is_here())
            found = &levels[i];
    return found;
}

/* The environment is read once. Threads that ask at the same time find the same, or the one that was first. Relaxed:
 * what it points to is constant. */
static const level *level_now(void)
{
    static const level *chosen;
    const level *now = __atomic_load_n(&chosen, __ATOMIC_RELAXED), *none = NULL;
    if (now)
        return now;
    const char *asked = getenv("WEIR_CPU_LEVEL");
    now = choose(asked && *asked ? asked : NULL);
    if (now && !__atomic_compare_exchange_n(&chosen, &none, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return none;
    if (now && now->is_here != has_amx) /* copies would use what the level has not */
        amx_pretend(false);
    if (now && now->is_here == has_v4)
        pairs_forbid();
    return now;
}

weir_status op_level(const char **name)
{
    const level *now = level_now();
    char here[128] = "";
    *name = now ? now->name : "";
    if (now)
        return WEIR_OK;
    for (int i = 0; i < LEVEL_COUNT; i++)
        if (levels[i].is_here())
            snprintf(here + strlen(here), sizeof here - strlen(here), "%s%s", *here ? ", " : "", levels[i].name);
    return error_set(WEIR_E_ARGUMENT, "WEIR_CPU_LEVEL is \"%s\"; this library on this processor has %s",
                     getenv("WEIR_CPU_LEVEL"), here);
}

const char *const *op_levels(void)
{
    return names;
}

weir_kernel_fn op_kernel(const weir_op *op, weir_device_kind kind)
{
    const level *now = level_now();
    kind = device_kernels(kind);
    for (int i = 0; now && kind == WEIR_CPU && i < OPS_COUNT; i++)
        if (level_ops[i] == op)
            return now->ops[i]->kernel[kind];
    return op->kernel[kind];
}
