#include "tests/support/onnx_case.h"

#include "graph/onnx/array.h"
#include "graph/onnx/import.h"
#include "graph/onnx/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#define PORTS_MAX 16

typedef struct onnx_case {
    pool pool;
    onnx_model model;
    onnx_initializer in[PORTS_MAX], out[PORTS_MAX];
    weir_array given[PORTS_MAX];
    int ins, outs;
} onnx_case;

static bool read_tensor(onnx_case *c, const char *folder, const char *kind, int i, onnx_initializer *tensor)
{
    char path[600];
    snprintf(path, sizeof path, "%s/test_data_set_0/%s_%d.pb", folder, kind, i);
    return !access(path, R_OK) && !onnx_tensor_read(&c->pool, path, tensor);
}

/* Test data has bf16 as numbers of 16 bits: the model says what they are. */
static int type_of(const onnx_array *a, const onnx_port *port)
{
    return onnx_type_bytes(a->type) == onnx_type_bytes(port->type) ? port->type : a->type;
}

static weir_array array_of(const onnx_array *a)
{
    weir_array array = {.data = (void *)(uintptr_t)a->data, .dtype = onnx_dtype(a->type), .shape = {.rank = a->rank}};
    for (int d = 0; d < a->rank && d < WEIR_DIMS_MAX; d++)
        array.shape.dim[d] = a->dim[d];
    return array;
}

static bool load(onnx_case *c, const char *folder, char *why, size_t why_bytes)
{
    char path[600];
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    if (onnx_model_read(&c->pool, path, &c->model)) {
        snprintf(why, why_bytes, "%s", weir_error());
        return false;
    }
    while (c->ins < PORTS_MAX && c->ins < c->model.graph.inputs.count && read_tensor(c, folder, "input", c->ins, &c->in[c->ins])) {
        c->in[c->ins].array.type = type_of(&c->in[c->ins].array, &c->model.graph.inputs.item[c->ins]);
        c->given[c->ins] = array_of(&c->in[c->ins].array);
        c->ins++;
    }
    while (c->outs < PORTS_MAX && c->outs < c->model.graph.outputs.count && read_tensor(c, folder, "output", c->outs, &c->out[c->outs])) {
        c->out[c->outs].array.type = type_of(&c->out[c->outs].array, &c->model.graph.outputs.item[c->outs]);
        c->outs++;
    }
    snprintf(why, why_bytes, "its data has no outputs, or some of a type that is not read");
    return c->outs > 0 && c->outs == c->model.graph.outputs.count;
}

static bool whole_numbers(const onnx_array *a)
{
    return a->type == ONNX_INT64 || a->type == ONNX_INT32 || (a->rank == 0 && onnx_dtype(a->type));
}

/* The graph, with the values of inputs `from` and later given at import. */
static weir_graph *import(onnx_case *c, const char *folder, int from)
{
    char path[600];
    weir_onnx_opts opts = {.size = sizeof opts, .src = WEIR_HERE, .fetch = true};
    int shapes = 0, values = 0;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    for (int i = 0; i < c->ins; i++) {
        const char *name = c->model.graph.inputs.item[i].name;
        if (i >= from && whole_numbers(&c->in[i].array)) {
            opts.value[values++] = (weir_onnx_value){.name = name, .value = &c->given[i]};
            continue;
        }
        opts.shape[shapes].name = name;
        memcpy(opts.shape[shapes++].shape, c->given[i].shape.dim, sizeof c->given[i].shape.dim);
    }
    return weir_graph_from_onnx_at(path, &opts);
}

static bool same(double got, double wanted, double part)
{
    if (got != got || wanted != wanted)
        return got != got && wanted != wanted;
    return got == wanted || fabs(got - wanted) <= 1e-6 + part * fabs(wanted);
}

static bool compare(const onnx_array *wanted, const weir_array *got, char *why, size_t why_bytes)
{
    onnx_array have = {.type = wanted->type, .rank = wanted->rank, .data = got->data};
    const double part = wanted->type == ONNX_BFLOAT16 ? 8e-3 : 1e-3; /* the data cuts the last bits of bf16 */
    memcpy(have.dim, wanted->dim, sizeof have.dim);
    for (int64_t i = 0; i < array_count(wanted); i++) {
        const double g = array_real(&have, i), w = array_real(wanted, i);
        if (onnx_type_real(wanted->type) ? same(g, w, part) : g == w)
            continue;
        snprintf(why, why_bytes, "element %lld is %g, and not %g", (long long)i, g, w);
        return false;
    }
    return true;
}

/* Inputs that are given at import, or on which nothing depends, are not in the plan. */
static bool takes(const weir_plan *plan, const char *name)
{
    weir_host_info info;
    for (int i = 0; i < weir_plan_host_count(plan); i++)
        if (!weir_plan_host(plan, i, &info) && info.kind == WEIR_HOST_PUSH && !strcmp(info.name, name))
            return true;
    return false;
}

static bool run(onnx_case *c, weir_session *s, const weir_plan *plan, char *why, size_t why_bytes)
{
    weir_status status = weir_session_start(s, 1);
    for (int i = 0; i < c->ins && !status; i++)
        if (takes(plan, c->model.graph.inputs.item[i].name))
            status = weir_session_push(s, c->model.graph.inputs.item[i].name, &c->given[i], 5000);
    for (int k = 0; k < c->outs && !status; k++) {
        weir_array value = array_of(&c->out[k].array);
        value.data = pool_alloc(&c->pool, (size_t)array_count(&c->out[k].array) * 8 + 8);
        status = weir_session_pull(s, c->model.graph.outputs.item[k].name, &value, 5000);
        if (!status && !compare(&c->out[k].array, &value, why, why_bytes))
            return false;
    }
    if (!status)
        status = weir_session_wait(s, 5000);
    if (status)
        snprintf(why, why_bytes, "%s", weir_error());
    return !status;
}

static enum onnx_outcome run_graph(onnx_case *c, weir_graph *g, char *why, size_t why_bytes)
{
    weir_plan *plan = weir_compile(g);
    weir_session *s = plan ? weir_session_open(plan, .workers = 1) : NULL;
    bool passed = s && !weir_session_write_values(s, g);
    if (!passed)
        snprintf(why, why_bytes, "%s", weir_error());
    passed = passed && run(c, s, plan, why, why_bytes);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    return passed ? ONNX_PASSED : ONNX_FAILED;
}

enum onnx_outcome onnx_case_run(const char *folder, char *why, size_t why_bytes)
{
    onnx_case c = {.ins = 0};
    enum onnx_outcome outcome = ONNX_REFUSED;
    if (load(&c, folder, why, why_bytes)) {
        weir_graph *g = import(&c, folder, c.ins);
        for (int from = c.ins > 1 ? 1 : 0; !g && from >= 0 && strstr(weir_error(), "must be known"); from--)
            g = import(&c, folder, from);
        if (g)
            outcome = run_graph(&c, g, why, why_bytes);
        else
            snprintf(why, why_bytes, "%s", weir_error());
    }
    pool_free(&c.pool);
    return outcome;
}
