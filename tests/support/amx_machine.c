/* tests/support/amx_machine.c: seven instructions of AMX, executed by a handler of SIGILL.
 *
 * All have the same form: a VEX prefix of three bytes (C4, then m-mmmm = 2 and W = 0, L = 0), an opcode, ModRM, and for
 * memory SIB and a displacement:
 *
 *     prefix  opcode  ModRM             instruction
 *     none    49      memory, reg 0     LDTILECFG   64 bytes: palette, start row, bytes of a row [8], rows [8]
 *     none    49      C0                TILERELEASE
 *     F2      49      11 reg 0          TILEZERO    tile reg
 *     F2      4B      memory with SIB   TILELOADD   tile reg: row i is at base + displacement + i * index * scale
 *     F3      4B      memory with SIB   TILESTORED  the other way
 *     F3      5C      11 reg rm         TDPBF16PS   tile reg += tile rm x tile vvvv, pairs of bf16
 *     F3      5E      11 reg rm         TDPBSUD     the same of four bytes, signed ones of rm and unsigned ones of vvvv
 */
#define _GNU_SOURCE
#include "tests/support/amx_machine.h"

#include "graph/base/base.h"
#include "kernels/matmul/amx.h"
#include "tests/support/kernel_check.h"

#include <criterion/criterion.h>

#ifdef __x86_64__

#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <ucontext.h>

enum { TILES = 8, ROWS_MAX = 16, ROW_BYTES_MAX = 64 };

typedef struct tile {
    int rows, row_bytes; /* 0: not set up */
    uint32_t at[ROWS_MAX][ROW_BYTES_MAX / 4];
} tile;

/* Of one thread. */
typedef struct registers {
    bool set_up;
    tile tile[TILES];
} registers;

static _Thread_local registers thread_registers;
static struct sigaction before;
static amx_machine machine;
static uint64_t products;

/* ---- an instruction ---- */

typedef struct instruction {
    const uint8_t *at, *end;
    int prefix, opcode, mod, reg, rm, source;
    bool x, b;            /* the fourth bits of index and base */
    uint64_t address;     /* of memory */
    uint64_t stride;      /* where there is a SIB byte */
    bool has_sib;
} instruction;

static uint64_t register_of(const ucontext_t *context, int number)
{
    static const int place[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                  REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return (uint64_t)context->uc_mcontext.gregs[place[number]];
}

static int64_t displacement(instruction *i, int bytes)
{
    int8_t byte;
    int32_t word;
    memcpy(&byte, i->end, sizeof byte);
    memcpy(&word, i->end, sizeof word);
    i->end += bytes;
    return bytes == 0 ? 0 : bytes == 1 ? byte : word;
}

static void read_sib(instruction *i, const ucontext_t *context, bool *no_base)
{
    const int sib = *i->end++, index = (sib >> 3 & 7) | i->x << 3, base = (sib & 7) | i->b << 3;
    i->has_sib = true;
    i->stride = index == 4 ? 0 : register_of(context, index) << (sib >> 6);
    *no_base = (sib & 7) == 5 && i->mod == 0;
    i->address = *no_base ? 0 : register_of(context, base);
}

static void read_memory(instruction *i, const ucontext_t *context)
{
    bool no_base = false;
    const bool beside = i->rm == 5 && i->mod == 0; /* relative to the next instruction */
    if (i->rm == 4)
        read_sib(i, context, &no_base);
    else if (!beside)
        i->address = register_of(context, i->rm | i->b << 3);
    i->address += (uint64_t)displacement(i, beside || no_base || i->mod == 2 ? 4 : i->mod == 1 ? 1 : 0);
    if (beside)
        i->address += (uint64_t)(uintptr_t)i->end;
}

/* false: none of AMX. */
static bool read_instruction(instruction *i, const ucontext_t *context)
{
    const uint8_t *at = (const uint8_t *)(uintptr_t)context->uc_mcontext.gregs[REG_RIP]; /* NOLINT: where the code is */
    if (at[0] != 0xC4 || (at[1] & 0x1F) != 2 || at[2] & 0x84)
        return false;
    *i = (instruction){.at = at, .prefix = at[2] & 3, .source = ~at[2] >> 3 & 15, .opcode = at[3], .mod = at[4] >> 6,
                       .reg = (at[4] >> 3 & 7) | (~at[1] >> 7 & 1) << 3, .rm = at[4] & 7, .x = ~at[1] & 0x40,
                       .b = ~at[1] & 0x20, .end = at + 5};
    if (i->mod != 3)
        read_memory(i, context);
    return true;
}

/* ---- what they do ---- */

static bool load_config(registers *r, const uint8_t *at)
{
    registers made = {.set_up = true};
    for (int i = 0; i < 16; i++)
        if (i > 0 && (at[i] || (i >= TILES && (at[16 + 2 * i] || at[17 + 2 * i] || at[48 + i]))))
            return false;
    for (int i = 0; i < TILES; i++) {
        made.tile[i].row_bytes = at[16 + 2 * i] | at[17 + 2 * i] << 8;
        made.tile[i].rows = at[48 + i];
        if (made.tile[i].row_bytes > ROW_BYTES_MAX || made.tile[i].rows > ROWS_MAX ||
            !made.tile[i].rows != !made.tile[i].row_bytes)
            return false;
    }
    *r = made;
    return at[0] == 1;
}

static tile *usable(registers *r, int number)
{
    return r->set_up && number < TILES && r->tile[number].rows && r->tile[number].row_bytes % 4 == 0 ? &r->tile[number]
                                                                                                     : NULL;
}

static bool clear(tile *t)
{
    if (t)
        memset(t->at, 0, sizeof t->at);
    return t;
}

static bool load(tile *t, const instruction *i)
{
    if (!clear(t) || !i->has_sib)
        return false;
    for (int row = 0; row < t->rows; row++)
        memcpy(t->at[row], (const char *)(uintptr_t)(i->address + (uint64_t)row * i->stride), /* NOLINT */
               (size_t)t->row_bytes);
    return true;
}

static bool store(const tile *t, const instruction *i)
{
    if (!t || !i->has_sib)
        return false;
    for (int row = 0; row < t->rows; row++)
        memcpy((char *)(uintptr_t)(i->address + (uint64_t)row * i->stride), t->at[row], /* NOLINT */
               (size_t)t->row_bytes);
    return true;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Denormals count as zeros, and are made zeros. */
static float flushed(float x)
{
    return fpclassify(x) == FP_SUBNORMAL ? copysignf(0, x) : x;
}

/* Even and odd terms have a sum each, that begins at 0; the two are added to what was there. */
static void add_pairs(tile *sum, const tile *a, const tile *b, int row, int column)
{
    float even = 0, odd = 0, old = float_of(sum->at[row][column]);
    for (int k = 0; k < b->rows; k++) {
        const uint32_t x = a->at[row][k], y = b->at[k][column];
        even = flushed(fmaf(flushed(float_of(x << 16)), flushed(float_of(y << 16)), even));
        odd = flushed(fmaf(flushed(float_of(x & 0xFFFF0000)), flushed(float_of(y & 0xFFFF0000)), odd));
    }
    old = flushed(flushed(old) + flushed(even + odd));
    memcpy(&sum->at[row][column], &old, sizeof old);
}

/* The sum wraps around. */
static void add_bytes(tile *sum, const tile *a, const tile *b, int row, int column)
{
    for (int k = 0; k < b->rows; k++)
        for (int shift = 0; shift < 32; shift += 8) {
            const int32_t product = (int8_t)(a->at[row][k] >> shift) * (int32_t)(uint8_t)(b->at[k][column] >> shift);
            sum->at[row][column] += (uint32_t)product;
        }
}

static bool multiply(registers *r, const instruction *i, void (*add)(tile *sum, const tile *a, const tile *b, int row, int column))
{
    const bool broken = machine == (add == add_bytes ? AMX_MACHINE_BROKEN_BYTES : AMX_MACHINE_BROKEN_PAIRS);
    tile *sum = usable(r, i->reg);
    const tile *a = usable(r, i->rm | i->b << 3), *b = usable(r, i->source);
    if (!sum || !a || !b || sum == a || sum == b || a == b || sum->rows != a->rows || sum->row_bytes != b->row_bytes ||
        a->row_bytes != 4 * b->rows)
        return false;
    for (int row = 0; row < sum->rows - (broken && sum->rows == ROWS_MAX); row++)
        for (int column = 0; column < sum->row_bytes / 4; column++)
            add(sum, a, b, row, column);
    __atomic_fetch_add(&products, 1, __ATOMIC_RELAXED);
    return true;
}

/* false: a processor would refuse it. */
static bool execute(registers *r, const instruction *i)
{
    enum { PLAIN = 0, F3 = 2, F2 = 3 };
    const bool memory = i->mod != 3;
    if (i->opcode == 0x49 && i->prefix == PLAIN && memory && i->reg == 0)
        return load_config(r, (const uint8_t *)(uintptr_t)i->address); /* NOLINT */
    if (i->opcode == 0x49 && i->prefix == PLAIN && !memory && i->reg == 0 && i->rm == 0)
        return *r = (registers){0}, true;
    if (i->opcode == 0x49 && i->prefix == F2 && !memory && i->rm == 0)
        return clear(usable(r, i->reg));
    if (i->opcode == 0x4B && i->prefix == F2 && memory)
        return load(usable(r, i->reg), i);
    if (i->opcode == 0x4B && i->prefix == F3 && memory)
        return store(usable(r, i->reg), i);
    if (i->opcode == 0x5C && i->prefix == F3 && !memory)
        return multiply(r, i, add_pairs);
    return i->opcode == 0x5E && i->prefix == F3 && !memory && multiply(r, i, add_bytes);
}

/* ---- the handler ---- */

/* Also executes those that follow, for a signal takes longer than they do. One that is not executed is met again, by
 * whoever handled SIGILL before. */
static void on_illegal(int number, siginfo_t *info, void *context)
{
    ucontext_t *at = context;
    instruction i;
    bool any = false;
    (void)info;
    for (; read_instruction(&i, at) && execute(&thread_registers, &i); any = true)
        at->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)i.end;
    if (!any)
        sigaction(number, &before, NULL);
}

void amx_machine_start(amx_machine kind)
{
    struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO};
    machine = kind;
    products = 0;
    sigaction(SIGILL, &action, &before);
}

uint64_t amx_machine_stop(void)
{
    sigaction(SIGILL, &before, NULL);
    return products;
}

/* ---- in place of a processor's ---- */

static bool real;

void amx_machine_enter(void)
{
    const char *level;
    if (kernel_check_kind() != WEIR_CPU)
        cr_skip_test("the kernels are not the processor's");
    real = amx_usable();
    op_level(&level); /* now, for it says to all kernels whether its level has AMX */
    if (!real)
        amx_machine_start(AMX_MACHINE_RIGHT);
    amx_pretend(true);
}

void amx_machine_leave(void)
{
    const uint64_t done = real ? 1 : amx_machine_stop();
    amx_pretend(real);
    cr_assert(done, "no tile was multiplied");
}

#else

void amx_machine_start(amx_machine kind)
{
    (void)kind;
    cr_skip_test("processors of this kind have no AMX");
}

uint64_t amx_machine_stop(void)
{
    return 0;
}

void amx_machine_enter(void)
{
    amx_machine_start(AMX_MACHINE_RIGHT);
}

void amx_machine_leave(void)
{
}

#endif
