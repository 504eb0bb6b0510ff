/* tests/cudnn/accepts.cc: whether the real cuDNN takes what kernels/attention/cudnn.cu asks of it, for a card that is not
 * here; tests/cudnn/accepts builds and runs it. It is linked with that file as the emulator has it, and is its library:
 * calls go to the real one, but the card is one that is described (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR) instead of a handle,
 * and nothing is executed. A plan's last step is that its compiled kernel is loaded: that one fails here, which counts as a
 * plan.
 */
#include "kernels/attention/cudnn.h"
#include "tests/cuda/emulated.h"
#include "tests/cuda/standin_cudnn.h"

#include <dlfcn.h>
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>

static cudnn_calls real;
static cudnnBackendDescriptor_t card; /* described */
static int major_here;
static std::map<cudnnBackendDescriptor_t, cudnnBackendDescriptor_t> config_of; /* of plans */
static std::map<cudnnBackendDescriptor_t, cudnnBackendDescriptorType_t> type_of;
static int executed;
static int64_t engine_here, bytes_here;

static cudnnStatus_t create(cudnnHandle_t *handle)
{
    static int one;
    *handle = (cudnnHandle_t)&one;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set_stream(cudnnHandle_t, cudaStream_t)
{
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *to)
{
    const cudnnStatus_t status = real.BackendCreateDescriptor(type, to);
    type_of[*to] = type;
    return status;
}

static cudnnStatus_t set_card(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name)
{
    return real.BackendSetAttribute(to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &card);
}

static cudnnStatus_t set_attribute(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count, const void *from)
{
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE)
        return CUDNN_STATUS_SUCCESS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        return set_card(to, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
        config_of[to] = *(const cudnnBackendDescriptor_t *)from;
    const cudnnStatus_t status = real.BackendSetAttribute(to, name, type, count, from);
    if (!status && name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)
        return set_card(to, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
    return !status && name == CUDNN_ATTR_ENGINE_OPERATION_GRAPH ? set_card(to, CUDNN_ATTR_ENGINE_DEVICEPROP) : status;
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t at)
{
    const cudnnStatus_t status = real.BackendFinalize(at);
    const bool plan = type_of[at] == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
    return plan && CUDNN_STATUS_CATEGORY((int)status) == CUDNN_STATUS_EXECUTION_FAILED ? CUDNN_STATUS_SUCCESS : status;
}

static cudnnStatus_t get_attribute(cudnnBackendDescriptor_t const from, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t most, int64_t *count, void *to)
{
    if (name != CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
        return real.BackendGetAttribute(from, name, type, most, count, to);
    return real.BackendGetAttribute(config_of[from], CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, type, most, count, to);
}

/* Notes the engine and its workspace, and runs nothing. */
static cudnnStatus_t execute(cudnnHandle_t, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t)
{
    cudnnBackendDescriptor_t engine;
    int64_t count;
    real.BackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
    cudnnStatus_t status = real.BackendGetAttribute(config_of[plan], CUDNN_ATTR_ENGINECFG_ENGINE,
                                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine);
    if (!status)
        status = real.BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &engine_here);
    if (!status)
        status = real.BackendGetAttribute(config_of[plan], CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                          &bytes_here);
    real.BackendDestroyDescriptor(engine);
    executed++;
    return status;
}

/* ---- what the emulator would have ---- */

const cudnn_calls *standin_cudnn(void)
{
    static cudnn_calls calls;
    calls = real;
    calls.Create = create;
    calls.SetStream = set_stream;
    calls.BackendCreateDescriptor = create_descriptor;
    calls.BackendSetAttribute = set_attribute;
    calls.BackendGetAttribute = get_attribute;
    calls.BackendFinalize = finalize;
    calls.BackendExecute = execute;
    return &calls;
}

int standin_cudnn_major(void)
{
    return major_here;
}

/* ---- cards and shapes ---- */

struct described {
    const char *name;
    int version, processors, shared;
};

static bool describe(const described &is)
{
    char json[1024];
    const int bytes = snprintf(
        json, sizeof json,
        "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
        "\"multiProcessorCount\":%d,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
        "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"
        "\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":80000000000,"
        "\"smClockRateKHz\":1800000,\"memClockRateKHz\":2600000,\"l2CacheSize\":52428800,\"cudaDeviceId\":0,\"deviceVer\":%d,"
        "\"driverVer\":13000,\"deviceName\":\"%s\"}",
        is.processors, is.shared, is.version, is.name);
    major_here = is.version / 100;
    return !real.BackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &card) &&
           !real.BackendSetAttribute(card, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, bytes, json) &&
           !real.BackendFinalize(card);
}

struct shape {
    int64_t batch, seq, keys, heads, head_dim, causal;
};

/* One call of weir's, of addresses that nobody follows. */
static bool ask(const shape &is, weir_dtype dtype, bool gradient)
{
    alignas(256) static char nowhere[256];
    const int64_t dim = is.heads * is.head_dim;
    const weir_view q = {nowhere, dtype, {3, {is.batch, is.seq, dim}}}, k = {nowhere, dtype, {3, {is.batch, is.keys, dim}}};
    const weir_view lse = {nowhere, WEIR_F32, {3, {is.batch, is.heads, is.seq}}};
    weir_view in[6] = {q, k, k, q, lse, q}, out[3] = {q, gradient ? k : lse, k};
    attention_attrs attrs = {is.head_dim, is.causal, 0.125};
    char error[512] = "";
    weir_kernel_args args = {};
    args.in = in;
    args.in_count = gradient ? 6 : 3;
    args.out = out;
    args.out_count = gradient ? 3 : 2;
    args.attrs = &attrs;
    args.workspace = nowhere;
    args.workspace_bytes = (size_t)1 << 40;
    args.error = error;
    args.error_bytes = sizeof error;
    bool taken;
    executed = 0;
    const weir_status status = cudnn_attention(&args, sizes_of(&args), gradient, false, &taken);
    printf("  %s %lld x %lld of %lld, %lld x %lld%s%s: ", dtype == WEIR_F16 ? "f16 " : "bf16", (long long)is.batch,
           (long long)is.heads, (long long)is.head_dim, (long long)is.seq, (long long)is.keys, is.causal ? ", causal" : "",
           gradient ? ", gradient" : "");
    if (status)
        printf("%s\n", error);
    else
        printf("engine %d, workspace %lld, parts %d\n", (int)engine_here, (long long)bytes_here, executed);
    return !status;
}

template <class F> static bool find(void *library, const char *name, F *call)
{
    *call = (F)dlsym(library, name);
    return *call;
}

static bool open_library()
{
    void *library = dlopen("libcudnn.so.9", RTLD_NOW);
    bool found = library;
    if (!library)
        printf("%s\n", dlerror());
#define X(name) found = found && find(library, "cudnn" #name, &real.name);
    CUDNN_CALLS(X)
#undef X
    return found;
}

int main(int argc, char **argv)
{
    static const described cards[] = {{"A100", 800, 108, 166912}, {"H100", 900, 132, 232448}, {"B200", 1000, 148, 232448}};
    static const shape shapes[] = {{8, 1024, 1024, 12, 64, 1}, {2, 77, 77, 3, 8, 1},   {2, 77, 77, 3, 40, 0}, {1, 5, 130, 2, 128, 1},
                                   {1, 130, 5, 2, 128, 1},     {3, 1, 9, 2, 64, 1},    {2, 4096, 4096, 16, 128, 1}};
    if (!open_library())
        return 77;
    setenv("WEIR_CUDA_ATTENTION", "cudnn", 1);
    bool well = true;
    for (const described &is : cards) {
        if (argc != 2 || strcmp(argv[1], is.name) != 0)
            continue;
        printf("cuDNN %d, %s\n", (int)real.GetVersion(), is.name);
        well &= describe(is);
        for (const shape &s : shapes)
            for (int way = 0; way < 4; way++)
                well &= ask(s, way % 2 ? WEIR_F16 : WEIR_BF16, way >= 2);
    }
    return !well;
}
