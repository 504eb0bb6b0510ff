/* graph/onnx/write.c: an ONNX file with the values of its parameters.
 *
 * A message of protobuf has its length in front, so all lengths are computed first. Then the values go through memory one by one, each
 * read when its turn comes. protobuf's messages are less than 2 GiB; if the values are more than INLINE_MOST, they go to a file beside
 * the model, PATH.data, and the model says where.
 */
#include "graph/onnx/emit.h"

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/replaced.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define INLINE_MOST ((uint64_t)1 << 30)

enum { MODEL_VERSION = 1, MODEL_PRODUCER = 2, MODEL_PRODUCER_VERSION = 3, MODEL_GRAPH = 7, MODEL_OPSET = 8 };
enum { GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, IR_VERSION = 8 };
enum { TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9, TENSOR_EXTERNAL = 13, TENSOR_LOCATION = 14 };

typedef struct writing {
    onnx_exporter *ex;
    const onnx_export_opts *opts;
    struct replaced model, data;
    char *data_path;            /* owned; NULL: values are in the model */
    uint64_t data_at;           /* of the next value in the data file */
    bool ok;                    /* what was written so far is whole */
    int fault;                  /* else: errno of what failed first */
} writing;

static uint64_t bytes_of(const weir_tensor *x)
{
    return (uint64_t)weir_shape_count(&x->type.shape) * weir_dtype_bytes(x->type.dtype);
}

/* ---- parameters ---- */

static void put_entry(struct proto_out *to, const char *key, const char *value)
{
    struct proto_out entry = {0};
    proto_put_text(&entry, 1, key);
    proto_put_text(&entry, 2, value);
    proto_put_message(to, TENSOR_EXTERNAL, &entry);
}

static void put_number(const writing *w, struct proto_out *to, const char *key, uint64_t value)
{
    const char *text = pool_text(&w->ex->pool, "%llu", (unsigned long long)value);
    put_entry(to, key, text ? text : "");
}

static void put_place(const writing *w, struct proto_out *to, uint64_t at, uint64_t bytes)
{
    const char *name = strrchr(w->data_path, '/');
    put_entry(to, "location", name ? name + 1 : w->data_path);
    put_number(w, to, "offset", at);
    put_number(w, to, "length", bytes);
    proto_put_number(to, TENSOR_LOCATION, 1);
}

/* The field of the graph that a parameter is, as far as the value's bytes, which come behind it if they are in the model. */
static struct proto_out head_of(const writing *w, const weir_tensor *x, uint64_t at)
{
    struct proto_out tensor = {0}, head = {0};
    const uint64_t bytes = bytes_of(x);
    for (int d = 0; d < x->type.shape.rank; d++)
        proto_put_number(&tensor, TENSOR_DIMS, x->type.shape.dim[d]);
    proto_put_number(&tensor, TENSOR_TYPE, export_type(x->type.dtype));
    proto_put_text(&tensor, TENSOR_NAME, w->ex->name[x->id]);
    if (w->data_path)
        put_place(w, &tensor, at, bytes);
    else
        proto_put_length(&tensor, TENSOR_RAW, bytes);
    proto_put_length(&head, GRAPH_INITIALIZER, tensor.count + (w->data_path ? 0 : bytes));
    head.failed |= tensor.failed;
    proto_put(&head, tensor.bytes, tensor.count);
    proto_free(&tensor);
    return head;
}

/* ---- the model ---- */

static void fail(writing *w, int fault)
{
    w->fault = w->ok ? fault : w->fault;
    w->ok = false;
}

static void put(writing *w, struct replaced *to, const void *bytes, size_t count)
{
    if (w->ok && !replaced_write(to, bytes, count))
        fail(w, errno);
}

static void put_out(writing *w, const struct proto_out *out)
{
    if (out->failed)
        fail(w, ENOMEM);
    put(w, &w->model, out->bytes, out->count);
}

/* The fields of the model, and of the graph, that come first. */
static struct proto_out begin(const writing *w, struct proto_out *named)
{
    const onnx_exporter *ex = w->ex;
    struct proto_out model = {0}, opset = {0};
    uint64_t count = 0, at = 0;
    proto_put_text(named, GRAPH_NAME, ex->graph->name ? ex->graph->name : "weir");
    for (int p = 0; p < ex->params.count; p++) {
        struct proto_out head = head_of(w, ex->params.item[p], at);
        model.failed |= head.failed;
        at += bytes_of(ex->params.item[p]);
        count += head.count + (w->data_path ? 0 : bytes_of(ex->params.item[p]));
        proto_free(&head);
    }
    count += named->count + ex->nodes.count + ex->constants.count + ex->inputs.count + ex->outputs.count;
    proto_put_number(&model, MODEL_VERSION, IR_VERSION);
    proto_put_text(&model, MODEL_PRODUCER, "weir");
    proto_put_text(&opset, 1, "");
    proto_put_number(&opset, 2, EXPORT_OPSET);
    proto_put_message(&model, MODEL_OPSET, &opset);
    proto_put_length(&model, MODEL_GRAPH, count);
    return model;
}

/* Reads a value, also if a write before it failed: all ranks of a session have to read the same. So without memory, too: then the
 * reader fails on all of them. */
static weir_status put_value(writing *w, const weir_tensor *x)
{
    const uint64_t bytes = bytes_of(x);
    weir_array value = {.dtype = x->type.dtype, .shape = x->type.shape, .data = malloc((size_t)bytes + 1)};
    const weir_status status = w->opts->read(w->opts->ctx, x->name, &value);
    if (!status)
        put(w, w->data_path ? &w->data : &w->model, value.data, (size_t)bytes);
    free(value.data);
    return status;
}

static weir_status put_params(writing *w)
{
    weir_status status = WEIR_OK;
    for (int p = 0; !status && p < w->ex->params.count; p++) {
        const weir_tensor *x = w->ex->params.item[p];
        struct proto_out head = head_of(w, x, w->data_at);
        put_out(w, &head);
        proto_free(&head);
        status = put_value(w, x);
        w->data_at += bytes_of(x);
    }
    return status;
}

static weir_status put_all(writing *w)
{
    const onnx_exporter *ex = w->ex;
    struct proto_out named = {0}, model = begin(w, &named);
    put_out(w, &model);
    put_out(w, &named);
    put_out(w, &ex->inputs);
    put_out(w, &ex->outputs);
    put_out(w, &ex->nodes);
    put_out(w, &ex->constants);
    proto_free(&model);
    proto_free(&named);
    return put_params(w);
}

/* ---- files ---- */

static weir_status io_fault(const char *path, int fault)
{
    return error_set(WEIR_E_IO, "%s: cannot be written: %s", path, strerror(fault));
}

static weir_status read_only(onnx_exporter *ex, const onnx_export_opts *opts)
{
    writing w = {.ex = ex, .opts = opts};
    weir_status status = WEIR_OK;
    for (int p = 0; !status && p < ex->params.count; p++)
        status = put_value(&w, ex->params.item[p]);
    return status;
}

/* The path of the file of values; NULL: there is none. False: no memory. */
static bool name_data(const onnx_exporter *ex, const onnx_export_opts *opts, char **path)
{
    const size_t length = strlen(ex->path) + sizeof ".data";
    uint64_t bytes = 0;
    *path = NULL;
    for (int p = 0; p < ex->params.count; p++)
        bytes += bytes_of(ex->params.item[p]);
    if (bytes <= (opts->inline_most ? opts->inline_most : INLINE_MOST))
        return true;
    *path = malloc(length);
    if (*path)
        snprintf(*path, length, "%s.data", ex->path);
    return *path;
}

static bool open_files(writing *w)
{
    w->ok = replaced_open(&w->model, w->ex->path);
    if (!w->ok)
        return io_fault(w->ex->path, errno), false;
    w->ok = !w->data_path || replaced_open(&w->data, w->data_path);
    if (!w->ok) {
        io_fault(w->data_path, errno);
        replaced_close(&w->model, false);
    }
    return w->ok;
}

/* The data comes to its place first: the model needs it. */
static weir_status close_files(writing *w, weir_status status)
{
    const bool whole = w->ok && !status;
    const bool data = !w->data_path || replaced_close(&w->data, whole) || !whole;
    if (!data)
        status = io_fault(w->data_path, errno);
    const bool model = replaced_close(&w->model, whole && data) || !whole || !data;
    if (!model)
        status = io_fault(w->ex->path, errno);
    return status || w->ok ? status : io_fault(w->ex->path, w->fault);
}

weir_status export_write(onnx_exporter *ex, const onnx_export_opts *opts)
{
    writing w = {.ex = ex, .opts = opts, .ok = true};
    if (ex->nodes.failed || ex->constants.failed || ex->inputs.failed || ex->outputs.failed || ex->making.failed)
        export_no_memory(ex);
    if (!ex->status && !opts->writes)
        return read_only(ex, opts);
    if (!ex->status && !name_data(ex, opts, &w.data_path))
        export_no_memory(ex);
    if (!ex->status) {
        const bool opened = open_files(&w);
        const weir_status status = opened ? put_all(&w) : WEIR_E_IO;
        ex->status = opened ? close_files(&w, status) : status;
    }
    free(w.data_path);
    return ex->status;
}
