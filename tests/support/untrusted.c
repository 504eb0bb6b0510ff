/* tests/support/untrusted.c: see the header. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "tests/support/untrusted.h"

#include "graph/model/build.h"
#include "graph/plan/prove/check.h"
#include "kernels/common/ops.h"
#include "tests/support/mutate_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <weir/weir.h>

enum {
    ITEMS_MAX = 1 << 16,           /* of a tensor, empty dimensions left out: what a kernel may count to */
    SPACE_BYTES_MAX = 1 << 23,
    FIRINGS_MAX = 2000,
    SLOT_BYTES = ITEMS_MAX * 16,   /* room for one operand, and for scratch */
    GUARD_BYTES = 1 << 16,         /* at least a page, on any machine */
    SLOTS = WEIR_ARGS_MAX + 8 + 4 + 1,
    PATIENCE_S = 60
};

/* ---- small enough ---- */

static bool tensor_small(const plan_tensor *tensor)
{
    uint64_t items = 1;
    for (uint32_t d = 0; d < tensor->rank && items <= ITEMS_MAX; d++)
        items *= tensor->shape[d] ? (uint64_t)tensor->shape[d] : 1;
    return items <= ITEMS_MAX;
}

static bool plan_small(const weir_plan *plan)
{
    uint64_t bytes = 0, firings = 0;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        bytes += plan->spaces[s].bytes;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        firings += plan->actors[a].fires;
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        firings += plan->regsts[r].slots;
    for (uint32_t t = 0; t < plan->tensors_count; t++)
        if (!tensor_small(&plan->tensors[t]))
            return false;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (plan->kernels[k].workspace_bytes > SLOT_BYTES)
            return false;
    return bytes <= SPACE_BYTES_MAX && firings <= FIRINGS_MAX;
}

bool untrusted_small(const weir_plan *plan)
{
    check_result result;
    return plan_small(plan) && check_play(plan, &result) == WEIR_OK && result.live;
}

/* ---- values ---- */

static float wild_real(uint64_t *random)
{
    static const float wild[] = {NAN, INFINITY, -INFINITY, 3e38f, -0.0f, 1e-40f};
    uint64_t word = mutate_draw(random);
    return word % 64 ? (float)((double)(word >> 11) * 0x1p-52 - 1) : wild[word / 64 % 6];
}

static int32_t wild_int(uint64_t *random)
{
    static const int32_t wild[] = {-1, INT32_MIN, INT32_MAX, 1 << 16};
    uint64_t word = mutate_draw(random);
    return word % 256 ? (int32_t)(word / 256 % 3) : wild[word / 256 % 4];
}

static void fill(const weir_view *view, uint64_t *random)
{
    int64_t count = weir_shape_count(&view->shape);
    for (int64_t i = 0; i < count; i++) {
        if (view->dtype == WEIR_F32)
            ((float *)view->data)[i] = wild_real(random);
        else if (view->dtype == WEIR_I32)
            ((int32_t *)view->data)[i] = wild_int(random);
        else if (view->dtype == WEIR_I64)
            ((int64_t *)view->data)[i] = wild_int(random);
        else if (weir_dtype_real(view->dtype))
            ((uint16_t *)view->data)[i] = (uint16_t)mutate_draw(random);
        else
            ((uint8_t *)view->data)[i] = (uint8_t)mutate_draw(random);
    }
}

/* ---- calls ---- */

/* Slots between guards, for the operands of one call; made once, reused. */
static char *slot_at(int index)
{
    static char *slots;
    if (!slots) {
        size_t stride = SLOT_BYTES + GUARD_BYTES, bytes = SLOTS * stride + GUARD_BYTES;
        slots = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (slots == MAP_FAILED)
            abort();
        for (size_t i = 0; i < SLOTS; i++)
            if (mprotect(slots + GUARD_BYTES + i * stride, SLOT_BYTES, PROT_READ | PROT_WRITE))
                abort();
    }
    return slots + GUARD_BYTES + (size_t)index * (SLOT_BYTES + GUARD_BYTES);
}

typedef struct calling {
    const weir_plan *plan;
    uint64_t random;
    bool at_end;             /* operands end where their slots end; else they begin where these begin */
    uint32_t operand[SLOTS]; /* of the call so far; the i-th lies in slot i, or where an earlier one does */
    int operand_count;
} calling;

static char *slot_for(const calling *x, int index, uint64_t bytes)
{
    return slot_at(index) + (x->at_end ? SLOT_BYTES - bytes : 0);
}

/* Whether the arena holds both at the same bytes. */
static bool same_place(const weir_plan *plan, const plan_operand *a, const plan_operand *b)
{
    const plan_tensor *x = &plan->tensors[a->tensor.i], *y = &plan->tensors[b->tensor.i];
    if (a->tensor.i == b->tensor.i && a->port.i == b->port.i)
        return true;
    return x->home == y->home && x->owner == y->owner && x->offset == y->offset && a->port.i == b->port.i &&
           x->home != PLAN_IN_STATE && plan_tensor_bytes(x) == plan_tensor_bytes(y);
}

static weir_view view_of(calling *x, uint32_t operand)
{
    const plan_operand *operands = x->plan->operands;
    const plan_tensor *tensor = &x->plan->tensors[operands[operand].tensor.i];
    weir_view view = {.dtype = (weir_dtype)tensor->dtype};
    int slot = 0;
    x->operand[x->operand_count++] = operand;
    while (!same_place(x->plan, &operands[x->operand[slot]], &operands[operand]))
        slot++;
    view.data = slot_for(x, slot, plan_tensor_bytes(tensor));
    view.shape.rank = view.global.rank = (int)tensor->rank;
    memcpy(view.shape.dim, tensor->shape, sizeof tensor->shape);
    memcpy(view.global.dim, tensor->global, sizeof tensor->global);
    memcpy(view.offset, tensor->start, sizeof tensor->start);
    return view;
}

static void views_of(calling *x, const plan_range *range, weir_view *views)
{
    for (uint32_t i = 0; i < range->count; i++) {
        views[i] = view_of(x, range->first + i);
        fill(&views[i], &x->random);
    }
}

/* Aligned as weir_kernel_args promises. */
static void *scratch_for(const calling *x, uint64_t bytes)
{
    return bytes ? slot_for(x, SLOTS - 1, (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN) : NULL;
}

static void call(calling *x, const plan_kernel *k, const weir_op *op)
{
    static weir_view in[WEIR_ARGS_MAX];
    weir_view out[8], state[4];
    char error[256];
    x->operand_count = 0;
    views_of(x, &k->in, in);
    views_of(x, &k->out, out);
    views_of(x, &k->state, state);
    weir_kernel_args args = {.in = in,
                             .in_count = (int)k->in.count,
                             .out = out,
                             .out_count = (int)k->out.count,
                             .state = state,
                             .state_count = (int)k->state.count,
                             .attrs = k->attrs.count ? x->plan->words + k->attrs.first : NULL,
                             .workspace = scratch_for(x, k->workspace_bytes),
                             .workspace_bytes = k->workspace_bytes,
                             .key = k->key,
                             .step = (int64_t)(mutate_draw(&x->random) % 5),
                             .error = error,
                             .error_bytes = sizeof error};
    op->kernel[WEIR_CPU](&args);
    args.accumulate = k->accumulate;
    if (args.accumulate)
        op->kernel[WEIR_CPU](&args);
}

int untrusted_calls(const weir_plan *plan, uint64_t seed)
{
    calling x = {.plan = plan, .random = seed};
    int calls = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const weir_op *op = weir_op_find(plan_text(plan, plan->kernels[k].op));
        if (plan->kernels[k].host != PLAN_NONE)
            continue;
        x.at_end = mutate_draw(&x.random) % 4 != 0;
        call(&x, &plan->kernels[k], op);
        calls++;
    }
    return calls;
}

/* ---- a run ---- */

static weir_status give(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    uint64_t random = (uint64_t)step * 31 + (uint64_t)micro + (uint64_t)(uintptr_t)ctx;
    fill(dst, &random);
    return WEIR_OK;
}

static void read_all(const weir_view *view)
{
    const volatile unsigned char *byte = view->data;
    size_t bytes = (size_t)weir_shape_count(&view->shape) * weir_dtype_bytes(view->dtype);
    for (size_t i = 0; i < bytes; i++)
        (void)byte[i];
}

static weir_status take(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)step, (void)micro;
    read_all(value);
    return WEIR_OK;
}

static weir_status give_and_take(const weir_kernel_args *args)
{
    weir_status status = WEIR_OK;
    for (int i = 0; i < args->in_count; i++)
        read_all(&args->in[i]);
    for (int o = 0; o < args->out_count && !status; o++) {
        status = give(args->host, &args->out[o], args->step, args->micro);
        if (args->out[o].length)
            *args->out[o].length = (int32_t)((args->firing + o) % (args->out[o].shape.dim[0] + 1));
    }
    return status;
}

static bool bind_all(weir_plan *plan)
{
    plan->bindings = calloc(plan->hosts_count + 1, sizeof *plan->bindings);
    for (uint32_t h = 0; plan->bindings && h < plan->hosts_count; h++)
        switch (plan->hosts[h].kind) {
        case PLAN_SOURCE:
            plan->bindings[h].fn.source = give;
            break;
        case PLAN_SINK:
            plan->bindings[h].fn.sink = take;
            break;
        case PLAN_CALL:
            plan->bindings[h].fn.call = give_and_take;
            break;
        default:
            break;
        }
    return plan->bindings;
}

/* Many a plan that was changed fails, which needs no report. */
static void pass_over(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

/* Pushes or pulls one value of the end, if it can. */
static weir_status serve_end(weir_session *s, const weir_host_info *info, uint64_t *random)
{
    static _Alignas(PLAN_ALIGN) char value[SLOT_BYTES];
    weir_array array = {value, info->type.dtype, info->type.shape};
    if (info->kind == WEIR_HOST_PULL)
        return weir_session_pull(s, info->name, &array, 0);
    fill(&(weir_view){.data = value, .dtype = array.dtype, .shape = array.shape}, random);
    return weir_session_push(s, info->name, &array, 0);
}

typedef struct ends {
    weir_session *session;
    const weir_plan *plan;
    uint64_t random;
    uint32_t program;
    int *left; /* values of the step, by host */
    int sum;
} ends;

static void ends_count(ends *x)
{
    weir_host_info info;
    for (uint32_t h = 0; h < x->plan->hosts_count; h++)
        if (x->plan->hosts[h].kind >= PLAN_PUSH &&
            x->plan->actors[x->plan->hosts[h].actor.i].program.i == x->program && weir_plan_host(x->plan, (int)h, &info) == WEIR_OK)
            x->sum += x->left[h] = info.per_step;
}

/* One try for each end. *moved: a value went through. False when the session failed. */
static bool ends_turn(ends *x, bool *moved)
{
    weir_host_info info;
    *moved = false;
    for (uint32_t h = 0; h < x->plan->hosts_count; h++) {
        if (!x->left[h] || weir_plan_host(x->plan, (int)h, &info))
            continue;
        weir_status status = serve_end(x->session, &info, &x->random);
        if (status && status != WEIR_E_TIMEOUT)
            return false;
        x->left[h] -= !status;
        x->sum -= !status;
        *moved |= !status;
    }
    return true;
}

/* Serves every end until all had their values or the session failed. False when nothing moves any more. */
static bool serve(ends *x)
{
    time_t last = time(NULL);
    bool moved = true;
    ends_count(x);
    while (x->sum && time(NULL) - last < PATIENCE_S) {
        if (!ends_turn(x, &moved))
            return true;
        if (moved)
            last = time(NULL);
        else
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    return !x->sum;
}

static bool has_actors(const weir_plan *plan, uint32_t program)
{
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (plan->actors[a].program.i == program)
            return true;
    return false;
}

/* A step of the program. False: it does not come to its end. */
static bool run_program(ends *x)
{
    const char *name = plan_text(x->plan, x->plan->programs[x->program].name);
    memset(x->left, 0, x->plan->hosts_count * sizeof *x->left);
    x->sum = 0;
    return weir_session_start(x->session, 1, .program = name) == WEIR_OK && serve(x) &&
           weir_session_wait(x->session, PATIENCE_S * 1000) != WEIR_E_TIMEOUT;
}

/* A step of each, and of the first once more: what one left behind others have to live with. */
static bool run_programs(ends *x)
{
    for (uint32_t i = 0; i <= x->plan->programs_count; i++) {
        x->program = i % x->plan->programs_count;
        bool failed = i && weir_session_wait(x->session, 0) != WEIR_OK;
        if (!failed && has_actors(x->plan, x->program) && !run_program(x))
            return false;
    }
    return true;
}

bool untrusted_run(weir_plan *plan, uint64_t seed)
{
    if (plan->ranks > 1 || plan->part)
        return false;
    if (!bind_all(plan))
        abort();
    weir_session *s = weir_session_open(plan, .workers = 2, .report = pass_over);
    if (!s)
        return false;
    ends x = {.session = s, .plan = plan, .random = seed, .left = calloc(plan->hosts_count + 1, sizeof *x.left)};
    bool moves = x.left && (!plan->programs_count || run_programs(&x));
    free(x.left);
    if (!moves) {
        fprintf(stderr, "a live plan does not come to its end: %s\n", weir_error());
        abort();
    }
    weir_session_close(s);
    return true;
}

/* ---- a proof ---- */

enum { DELAY_PLAYED_MAX = 8 };

/* A step more for each step that a value waits. */
static bool graph_small(const weir_plan *plan)
{
    for (uint32_t t = 0; t < plan->graph_tensors_count; t++)
        if (plan->graph_tensors[t].delay > DELAY_PLAYED_MAX)
            return false;
    return plan->table_version && plan->micro_batches <= DELAY_PLAYED_MAX;
}

bool untrusted_proof(const weir_plan *plan)
{
    weir_graph *graph = NULL;
    const bool got = graph_small(plan) && weir_plan_graph(plan, &graph) == WEIR_OK;
    if (got && graph_hash(graph) != plan->graph)
        abort();
    if (got) {
        weir_plan_verify(graph, plan, .rounds = 1, .memory = "32MiB");
        weir_plan_verify(graph, plan, .local = true, .memory = "32MiB");
    }
    weir_graph_free(graph);
    return got;
}
