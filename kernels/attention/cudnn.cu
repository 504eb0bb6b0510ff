/* kernels/attention/cudnn.cu: attention of halves by cuDNN's fused kernels; attention.c has the rules.
 *
 * The library is told what to compute as a graph of small operations (matmul, pointwise, reduction, reshape), and has an
 * engine that makes all of it in one kernel. Its C interface for that (the backend API) is all that is used: descriptors
 * are made, given attributes and finalized (cudnn_graph.h). Operands are [batch, heads, rows, head_dim] with the strides
 * that they have here, so nothing is moved:
 *
 *     forward      S = Q K^T     X = scale S, -inf above the diagonal     m = max X     l = sum e^(X - m)
 *                  lse = m + log l     P = e^(X - m) / l, in halves     O = P V
 *     gradient     delta = sum dO * O     P = e^(scale Q K^T - lse), 0 above the diagonal     dV = P^T dO
 *                  dS = scale P (dO V^T - delta)     dK = dS^T Q     dQ = dS K
 *
 * lse and delta are in memory; so a forward pass of this library and a gradient by weir's own kernels go together, and
 * the other way round. All the rest has ids of virtual tensors.
 *
 * The same bits each time. The library's fastest gradient adds to dQ from several blocks in any order, and says nothing
 * of that in its engine's notes. The graph makes the difference: with dQ in halves as the product's own result, and no sums
 * in f32 in memory, dS goes to the workspace as a whole and dQ is a product of its own. That is its documented way to be
 * deterministic; it takes rows x keys halves for each head, so the gradient is made in parts of some sequences or heads
 * (parts_of(), which is also what plans give it). On cards of the 10th generation only one configuration of one engine is,
 * which takes no such room; it is asked for by its number, up to the version from which it has another name.
 *
 * A process may choose the fastest gradient all the same (WEIR_CUDA_ATTENTION=fast): dQ is added up in f32 in the workspace,
 * which the library fills with zeros, and then rounded. That takes heads x queries x head_dim numbers for each sequence,
 * and is made in parts of as many sequences as the plan's workspace has room for.
 *
 * The maker of a call is decided once for each distinct problem of a card, when a session opens (cudnn_attention() with
 * `once`), and kept as long as the process: the library's plan, with all that it was made of, or why it has none. Then the
 * plan runs once, since its code is loaded by the first who runs it. Making a plan takes some tenths of a second, up to ten
 * on the newest cards; who has calls on the same card waits as long. A call that finds its plan makes one descriptor, of
 * addresses. It takes the first engine of the library's heuristic whose notes do not say that it is nondeterministic, and
 * that needs no more workspace than there is.
 *
 * A refusal of the library before a plan has run is no error if it means that it cannot do this (refusal()): weir's own
 * kernels make the call. All else is one, and so is whatever it says later.
 */
#include "kernels/attention/cudnn_graph.h"

#include "graph/base/locale.h"
#include "kernels/attention/cores.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "graph/base/library.h"

static const char choice_name[] = "WEIR_CUDA_ATTENTION";

/* ---- who is to make it ---- */

static char wanted[48]; /* what the environment says; "": nothing */
static pthread_once_t wanted_once = PTHREAD_ONCE_INIT;

static void read_wanted()
{
    const char *text = getenv(choice_name);
    snprintf(wanted, sizeof wanted, "%.40s", text ? text : "");
}

/* Read once: what was decided when a session opened holds for its calls. */
static const char *chosen()
{
    pthread_once(&wanted_once, read_wanted);
    return wanted;
}

static weir_status refused(const weir_kernel_args *args, weir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static weir_status refused(const weir_kernel_args *args, weir_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (args->error_bytes)
        text_vprint(args->error, args->error_bytes, format, list);
    va_end(list);
    return status;
}

#if __has_include(<cudnn_graph.h>)

enum { OLDEST = 91900, NEWER_KNOBS = 92300, DEVICES = 64, CONFIGS_MOST = 8, PINNED_MAJOR = 10 };

/* ---- the library ---- */

#ifdef WEIR_EMULATED
#include "tests/cuda/standin_cudnn.h"

static const cudnn_calls *loaded(const char **why)
{
    *why = "there is no libcudnn.so.9";
    return standin_cudnn();
}

static int card_here(int *major)
{
    *major = standin_cudnn_major();
    return 0;
}

#else
#include <dlfcn.h>

static cudnn_calls calls;
static char trouble[200]; /* why there are none; "": there are */
static pthread_once_t once = PTHREAD_ONCE_INIT;

template <class F> static void find(void *library, const char *name, F *call)
{
    *call = library ? (F)dlsym(library, name) : nullptr;
    if (library && !*call)
        snprintf(trouble, sizeof trouble, "libcudnn.so.9 has no %s", name);
}

static void fill()
{
    static const char *const names[] = {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9"};
    void *library = library_open(names[0], trouble, sizeof trouble);
    char again[sizeof trouble];
    if (!library && (library = library_open(names[1], again, sizeof again)))
        trouble[0] = 0;
#define X(name) find(library, "cudnn" #name, &calls.name);
    CUDNN_CALLS(X)
#undef X
}

static const cudnn_calls *loaded(const char **why)
{
    pthread_once(&once, fill);
    *why = trouble;
    return *trouble ? nullptr : &calls;
}

/* The card that this thread has chosen, and its generation; -1: there is none, or there are too many. */
static int card_here(int *major)
{
    int card = 0;
    if (cudaGetDevice(&card) || cudaDeviceGetAttribute(major, cudaDevAttrComputeCapabilityMajor, card))
        return -1;
    return card < DEVICES ? card : -1;
}
#endif

static void version_text(int version, const char *format, char *text, size_t bytes)
{
    snprintf(text, bytes, format, version / 10000, version % 10000 / 100, version % 100);
}

/* NULL, with the reason, which is the thread's: it is not there, or older than all that follows. */
static const cudnn_calls *library(const char **why)
{
    static thread_local char old[80];
    const cudnn_calls *cudnn = loaded(why);
    if (!cudnn || cudnn->GetVersion() >= OLDEST)
        return cudnn;
    version_text((int)cudnn->GetVersion(), "cuDNN %d.%d.%d is older than 9.19", old, sizeof old);
    *why = old;
    return nullptr;
}

/* ---- an engine ---- */

/* The engines of the heuristic, best first; how many. */
static int64_t listed(cudnn_builder *b, descriptor graph, cudnnBackendHeurMode_t mode,
                      descriptor (&configs)[CONFIGS_MOST])
{
    const descriptor asked = cudnn_make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    cudnn_set(b, asked, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    cudnn_set(b, asked, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
    cudnn_finalized(b, asked, "its engines cannot be asked for");
    for (descriptor &config : configs)
        config = cudnn_make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    return cudnn_get(b, asked, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, configs, CONFIGS_MOST);
}

/* The configuration that is deterministic on cards of the 10th generation. */
static descriptor pinned(cudnn_builder *b, descriptor graph)
{
    static const struct {
        cudnnBackendKnobType_t type;
        int64_t value;
    } knobs[] = {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}};
    const int64_t number = 5;
    const descriptor engine = cudnn_make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    descriptor choices[2];
    cudnn_set(b, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    cudnn_set(b, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, &number);
    cudnn_finalized(b, engine, "its engine is not taken");
    for (int i = 0; i < 2; i++) {
        choices[i] = cudnn_make(b, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        cudnn_set(b, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, &knobs[i].type);
        cudnn_set(b, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, &knobs[i].value);
        cudnn_finalized(b, choices[i], "its engine's choices are not taken");
    }
    const descriptor config = cudnn_make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    cudnn_set(b, config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    cudnn_set(b, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, choices, 2);
    return cudnn_finalized(b, config, "its engine's configuration is not taken");
}

/* Whether its engine says that results may differ from call to call. */
static bool wavers(cudnn_builder *b, descriptor config)
{
    const descriptor engine = cudnn_make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    descriptor got[] = {engine};
    cudnn_get(b, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, got, 1);
    const int64_t count = cudnn_get(b, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes,
                              CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    bool found = false;
    for (int64_t i = 0; i < count; i++)
        found |= notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    return found;
}

/* Bytes that it takes; more than any room where it cannot be asked. */
static int64_t workspace_of(cudnn_builder *b, descriptor from, cudnnBackendAttributeName_t name)
{
    int64_t bytes = 0;
    return cudnn_get(b, from, name, CUDNN_TYPE_INT64, &bytes, 1) == 1 ? bytes : INT64_MAX;
}

/* The plan of an engine; NULL where it does not fit. The configuration's workspace is asked first: a plan takes long. */
static descriptor plan_of(cudnn_builder *b, cudnnHandle_t handle, const cudnn_problem *is, descriptor config)
{
    if ((!is->fast && wavers(b, config)) || workspace_of(b, config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE) > is->room)
        return nullptr;
    const descriptor plan = cudnn_make(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    cudnn_set(b, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &handle);
    cudnn_set(b, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    cudnn_finalized(b, plan, "its plan is not taken");
    const int64_t bytes = workspace_of(b, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    return !b->status && bytes <= is->room ? plan : nullptr;
}

/* It means that the library, as it is there, has no way to do this: a part of it is missing, it does not take the question
 * as it is put, or supports no such thing. */
static bool refusal(cudnnStatus_t status)
{
    const int category = CUDNN_STATUS_CATEGORY((int)status);
    return category == 1000 || category == CUDNN_STATUS_BAD_PARAM || category == CUDNN_STATUS_NOT_SUPPORTED;
}

/* The first of them whose plan fits; that one is refused is no error. */
static descriptor first_fit(cudnn_builder *b, cudnnHandle_t handle, const cudnn_problem *is, const descriptor *configs,
                            int64_t count)
{
    descriptor plan = nullptr;
    for (int64_t i = 0; i < count && !plan && !b->status; i++) {
        plan = plan_of(b, handle, is, configs[i]);
        if (refusal(b->status))
            b->status = CUDNN_STATUS_SUCCESS;
    }
    return plan;
}

static descriptor best_plan(cudnn_builder *b, cudnnHandle_t handle, const cudnn_problem *is, int major)
{
    const descriptor graph = cudnn_graph_of(b, handle, is);
    descriptor configs[CONFIGS_MOST], plan = nullptr;
    if (is->gradient && !is->fast && major == PINNED_MAJOR) {
        configs[0] = pinned(b, graph);
        return first_fit(b, handle, is, configs, 1);
    }
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    for (int i = 0; i < 2 && !plan && !b->status; i++)
        plan = first_fit(b, handle, is, configs, listed(b, graph, modes[i], configs));
    return plan;
}

/* ---- what is kept ---- */

struct kept {
    cudnn_problem asked;
    descriptor plan;     /* NULL: there is none, */
    char why[240];       /* for this reason */
    bool ran;            /* it was enqueued once */
    cudnn_builder owner; /* of that and all that it was made of */
    kept *next;
};

/* Of a card; all under the lock. A handle has one stream at a time, so calls are enqueued under it, too. */
static struct card {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    cudnnHandle_t handle; /* NULL: there was nothing to make yet */
    kept *all;            /* owned, as long as the process */
} cards[DEVICES];

static void problem_text(const cudnn_problem *is, char *text, size_t bytes)
{
    snprintf(text, bytes, "attention%s of %lld x %lld heads of %lld, %lld queries and %lld keys",
             is->gradient ? "'s gradient" : "", (long long)is->batch, (long long)is->heads, (long long)is->head_dim,
             (long long)is->seq, (long long)is->keys);
}

/* The call that failed, in the library's own words. */
static void trouble_text(const cudnn_builder *b, char *text, size_t bytes)
{
    char more[120] = "";
    b->cudnn->GetLastErrorString(more, sizeof more);
    snprintf(text, bytes, "%s: %s%s%s", b->what, b->cudnn->GetErrorString(b->status), *more ? ", " : "", more);
    for (char *at = text; *at; at++)
        if (*at == '\n')
            *at = ' ';
}

static weir_status failed(const weir_kernel_args *args, const cudnn_problem *is, const cudnn_builder *b)
{
    char problem[160], trouble_is[240];
    problem_text(is, problem, sizeof problem);
    trouble_text(b, trouble_is, sizeof trouble_is);
    return refused(args, WEIR_E_KERNEL, "cuDNN: %s: %s (%s=own does without)", problem, trouble_is, choice_name);
}

static kept *find_kept(const card *at, const cudnn_problem *is)
{
    kept *found = at->all;
    while (found && memcmp(&found->asked, is, sizeof *is))
        found = found->next;
    return found;
}

/* From now on weir's own kernels make it. */
static void give_up(kept *one)
{
    if (one->owner.status) {
        char trouble_is[200];
        trouble_text(&one->owner, trouble_is, sizeof trouble_is);
        snprintf(one->why, sizeof one->why, "cuDNN refuses it: %s", trouble_is);
    } else {
        snprintf(one->why, sizeof one->why,
                 "cuDNN has no engine for it on this card that gives the same bits each time in %lld bytes of workspace",
                 (long long)one->asked.room);
    }
    one->plan = nullptr;
    cudnn_destroy(&one->owner);
}

/* Makes the plan of the problem, or notes that there is none. An error is not kept: it may be gone the next time. */
static weir_status decide(const weir_kernel_args *args, const cudnn_calls *cudnn, card *at, int major,
                          const cudnn_problem *is, kept **to)
{
    kept *made = (kept *)calloc(1, sizeof *made);
    if (!made)
        return refused(args, WEIR_E_MEMORY, "no memory for a plan of cuDNN's");
    cudnn_builder *b = &made->owner;
    made->asked = *is;
    b->cudnn = cudnn;
    if (!at->handle)
        cudnn_fine(b, cudnn->Create(&at->handle), "it does not begin");
    made->plan = best_plan(b, at->handle, is, major);
    if (b->status && !refusal(b->status)) {
        const weir_status status = failed(args, is, b);
        cudnn_destroy(b);
        free(made);
        return status;
    }
    if (b->status || !made->plan)
        give_up(made);
    made->next = at->all;
    at->all = *to = made;
    return WEIR_OK;
}

/* ---- a call ---- */

/* The workspace: sums of the gradient's rows, those of dQ in a fast one, and what is left of it. */
struct rooms {
    char *sums, *dq, *rest;
    int64_t bytes;
};

static char *up(char *at)
{
    const uintptr_t more = (uintptr_t)FUSED_ALIGNMENT - 1;
    return (char *)(((uintptr_t)at + more) & ~more);
}

static rooms rooms_of(const weir_kernel_args *args, const attention_sizes &z, bool gradient)
{
    char *const first = up((char *)args->workspace);
    char *const rest = gradient ? up(first + z.all * z.seq * (int64_t)sizeof(float)) : first;
    return {first, rest, rest, (char *)args->workspace + args->workspace_bytes - rest};
}

/* Where the operands of a part begin. */
struct operand {
    int64_t id;
    void *at;
};

static char *from(const weir_view *view, int64_t elements)
{
    return (char *)view->data + elements * (view->dtype == WEIR_F32 ? 4 : 2);
}

/* Adds the operands of the part from sequence `batch` and head `head` on; how many there are then. */
static int operands_of(const weir_kernel_args *args, const attention_sizes &z, const cudnn_problem *is, int64_t batch,
                       int64_t head, const rooms *room, operand *to)
{
    const int64_t q = (batch * z.seq * z.dim) + head * z.head_dim, k = (batch * z.keys * z.dim) + head * z.head_dim;
    const int64_t row = (batch * z.heads + head) * z.seq;
    const weir_view *in = args->in, *out = args->out;
    const operand both[] = {{ID_Q, from(&in[0], q)}, {ID_K, from(&in[1], k)}, {ID_V, from(&in[2], k)}};
    const operand made[] = {{ID_OUT, from(&out[0], q)}, {ID_LSE, from(&out[1], row)}};
    int count = 3;
    memcpy(to, both, sizeof both);
    if (!is->gradient) {
        memcpy(to + count, made, sizeof made);
        return count + 2;
    }
    const operand more[] = {{ID_OUT, from(&in[3], q)}, {ID_LSE, from(&in[4], row)}, {ID_DOUT, from(&in[5], q)},
                            {ID_DQ, from(&out[0], q)}, {ID_DK, from(&out[1], k)},   {ID_DV, from(&out[2], k)},
                            {ID_DELTA, room->sums}};
    memcpy(to + count, more, sizeof more);
    count += 7;
    if (is->fast)
        to[count++] = {ID_DQ_SUMS, room->dq};
    return count;
}

/* Enqueues a part; the handle has a stream. */
static void enqueue(cudnn_builder *b, cudnnHandle_t handle, descriptor plan, const operand *operands, int count, void *room)
{
    int64_t ids[16];
    void *at[16];
    for (int i = 0; i < count; i++) {
        ids[i] = operands[i].id;
        at[i] = operands[i].at;
    }
    const descriptor pack = cudnn_make(b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    cudnn_set(b, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids, count);
    cudnn_set(b, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, at, count);
    cudnn_set(b, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &room);
    cudnn_finalized(b, pack, "addresses are not taken");
    if (!b->status)
        cudnn_fine(b, b->cudnn->BackendExecute(handle, plan, pack), "it does not start");
    cudnn_destroy(b);
}

/* The numbers of the graph, which the library reads when it is called. */
static int numbers_of(const cudnn_problem *is, float *scale, operand *to)
{
    static float unseen = -INFINITY, one = 1;
    int count = 0;
    to[count++] = {ID_SCALE, scale};
    if (is->causal)
        to[count++] = {ID_UNSEEN, &unseen};
    if (is->gradient)
        to[count++] = {ID_ONE, &one};
    return count;
}

/* Enqueues all parts of the call. A call that is refused at the first time is weir's own from then on. */
static weir_status run(const weir_kernel_args *args, const attention_sizes &z, const card *at, kept *by, const rooms *room)
{
    const cudnn_problem *is = &by->asked;
    cudnn_builder b = {};
    float scale = z.scale;
    operand operands[16];
    const int numbers = numbers_of(is, &scale, operands);
    b.cudnn = by->owner.cudnn;
    cudnn_fine(&b, b.cudnn->SetStream(at->handle, (cudaStream_t)args->queue), "the queue is not taken");
    for (int64_t batch = 0; batch < z.all / z.heads && !b.status; batch += is->batch)
        for (int64_t head = 0; head < z.heads && !b.status; head += is->heads) {
            const int count = operands_of(args, z, is, batch, head, room, operands + numbers);
            enqueue(&b, at->handle, by->plan, operands, numbers + count, room->rest);
        }
    const weir_status told = launched(args); /* what the driver says of it is clearer than the library's number */
    if (b.status && !told && !by->ran && refusal(b.status)) {
        by->owner.status = b.status;
        by->owner.what = b.what;
        give_up(by);
        return WEIR_OK;
    }
    by->ran |= !b.status && !told;
    return b.status && !told ? failed(args, is, &b) : told;
}

/* The sums of dQ of so many sequences. */
static int64_t dq_bytes(const attention_sizes &z, int64_t batch)
{
    return batch * z.heads * z.seq * z.head_dim * (int64_t)sizeof(float);
}

/* *why: it is not for the library. */
static weir_status made_by(const weir_kernel_args *args, const attention_sizes &z, const cudnn_calls *cudnn, card *at,
                           int major, const cudnn_problem *is, bool once, const char **why)
{
    rooms room = rooms_of(args, z, is->gradient);
    weir_status status = WEIR_OK;
    if (is->fast)
        room.rest = up(room.dq + dq_bytes(z, is->batch));
    pthread_mutex_lock(&at->lock);
    kept *found = find_kept(at, is);
    if (!found)
        status = decide(args, cudnn, at, major, is, &found);
    if (!status && found->plan && !(once && found->ran))
        status = run(args, z, at, found, &room);
    if (!status && !found->plan)
        *why = found->why;
    pthread_mutex_unlock(&at->lock);
    return status;
}

/* Why the call is not for the library, whatever that has; NULL: it may be. */
static const char *unfit(const weir_kernel_args *args, const attention_sizes &z, bool gradient)
{
    if (!cores_fit(args, z) || z.head_dim > FUSED_HEAD_MOST)
        return "attention is by cuDNN where it is of halves, with heads of a multiple of 8, up to 128";
    if (z.group != 1 || z.hides)
        return "attention of groups of heads, or with a window or a mask, is by weir's own kernels";
    if (!z.all || !z.seq || (gradient && z.seq == 1 && z.keys == 1))
        return "cuDNN has no gradient of one query of one key, and nothing of none";
    return nullptr;
}

/* The parts of the call that the library makes at a time, and its workspace; no heads: that would be too much. */
static attention_parts part_of(const attention_sizes &z, bool gradient, int major)
{
    const int64_t batch = z.all / z.heads;
    attention_parts part = {batch, z.heads, 0};
    if (gradient && major != PINNED_MAJOR)
        part = parts_of(batch, z.heads, z.seq, z.keys);
    part.bytes += FUSED_BYTES_MORE;
    return part;
}

/* Whether it is known how a gradient is made that repeats. */
static bool repeats(const cudnn_calls *cudnn, int major)
{
    return major == 8 || major == 9 || (major == PINNED_MAJOR && cudnn->GetVersion() < NEWER_KNOBS);
}

/* Sequences of which a fast gradient's sums are made at a time; no heads: there is no room for one. */
static attention_parts fast_part(const weir_kernel_args *args, const attention_sizes &z)
{
    const int64_t room = rooms_of(args, z, true).bytes - FUSED_BYTES_MORE - FUSED_ALIGNMENT;
    const int64_t batch = room > 0 ? share_of(z.all / z.heads, dq_bytes(z, 1), room) : 0;
    return {batch, batch ? z.heads : 0, FUSED_BYTES_MORE};
}

static weir_status attempt(const weir_kernel_args *args, const attention_sizes &z, bool gradient, bool fast, bool once,
                           const char **why)
{
    int major = 0;
    if ((*why = unfit(args, z, gradient)))
        return WEIR_OK;
    const char *absent = nullptr;
    const cudnn_calls *cudnn = library(&absent);
    const int card = cudnn ? card_here(&major) : -1;
    const attention_parts part = fast ? fast_part(args, z) : part_of(z, gradient, major);
    if (!cudnn)
        *why = absent;
    else if (card < 0)
        *why = "no card is chosen that cuDNN could use";
    else if (gradient && !fast && !repeats(cudnn, major))
        *why = "of this version of cuDNN it is not known how its gradient gives the same bits each time on this card";
    else if (!part.heads || rooms_of(args, z, gradient).bytes < part.bytes)
        *why = "scores of one head are more than the workspace of a gradient by cuDNN may be";
    if (*why)
        return WEIR_OK;
    const cudnn_problem is = {gradient, args->in[0].dtype, part.batch, part.heads, z.seq, z.keys, z.head_dim, z.dim,
                              z.causal, part.bytes, fast};
    return made_by(args, z, cudnn, &cards[card], major, &is, once, why);
}

extern "C" void cudnn_told(char *text, size_t bytes)
{
    const char *why = "";
    const cudnn_calls *cudnn = library(&why);
    if (!strcmp(chosen(), "own"))
        snprintf(text, bytes, "attention by weir (%s=own)", choice_name);
    else if (cudnn)
        version_text((int)cudnn->GetVersion(),
                     strcmp(chosen(), "fast") ? "attention by cuDNN %d.%d.%d"
                                              : "attention by cuDNN %d.%d.%d, with gradients that differ from run to run",
                     text, bytes);
    else
        snprintf(text, bytes, "attention by weir (%s)", strncmp(why, "cuDNN", 5) ? "there is no cuDNN" : why);
}

#else /* its headers were not found when this was built */

static weir_status attempt(const weir_kernel_args *, const attention_sizes &, bool, bool, bool, const char **why)
{
    *why = "weir was built without cuDNN's headers";
    return WEIR_OK;
}

extern "C" void cudnn_told(char *text, size_t bytes)
{
    snprintf(text, bytes, "attention by weir (built without cuDNN)");
}
#endif

weir_status cudnn_attention(const weir_kernel_args *args, const attention_sizes &z, bool gradient, bool once, bool *taken)
{
    const char *by = chosen(), *why = nullptr;
    *taken = false;
    if (!strcmp(by, "own"))
        return WEIR_OK;
    const bool fast = !strcmp(by, "fast");
    if (*by && !fast && strcmp(by, "cudnn"))
        return refused(args, WEIR_E_UNSUPPORTED, "%s is \"%s\"; it may be own, cudnn or fast", choice_name, by);
    weir_status status = attempt(args, z, gradient, gradient && fast, once, &why);
    if (!status && why && gradient && fast) /* what repeats will do */
        status = attempt(args, z, gradient, false, once, &why);
    if (why && *by && !fast)
        return refused(args, WEIR_E_UNSUPPORTED, "%s=cudnn, but %s", choice_name, why);
    *taken = !status && !why;
    return status;
}
