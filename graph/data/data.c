/* graph/data/data.c: see the header, and <weir/data.h>. */
#include "graph/data/data.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/opts.h"
#include "graph/data/order.h"
#include "graph/data/paths.h"

/* So many files stay open: fewer than the descriptors that a process usually may have. The others are opened for each read. */
enum { FILES_KEPT = 512 };

/* ---- opening ---- */

/* Adds "model.c:12: weir_data_tokens: " to the sentence. */
static weir_status failed(const weir_data *data, const weir_data_opts *opts, weir_status status)
{
    return error_set(status, "%s:%d: %s: %s", opts->src.file ? opts->src.file : "?", opts->src.line, data->call, weir_error());
}

static weir_status check_opts(const weir_data *data, const weir_data_opts *o)
{
    const double to = o->to == 0 ? 1 : o->to;
    if (data->tokens && o->seq < 1)
        return error_set(WEIR_E_ARGUMENT, ".seq = %" PRId64 ": a window has at least 1 token", o->seq);
    if (data->tokens && (o->vocab < 0 || o->vocab > INT64_C(1) << 31))
        return error_set(WEIR_E_ARGUMENT, ".vocab = %" PRId64 ": it must be 1 to 2^31", o->vocab);
    if (!data->tokens && (o->seq || o->vocab))
        return error_set(WEIR_E_ARGUMENT, ".seq and .vocab are for weir_data_tokens()");
    if (!(o->from >= 0 && o->from < to && to <= 1))
        return error_set(WEIR_E_ARGUMENT, ".from = %g and .to = %g; 0 <= .from < .to <= 1 must hold", o->from, to);
    if (o->samples < 0)
        return error_set(WEIR_E_ARGUMENT, ".samples = %" PRId64 ": it must be 1 or more", o->samples);
    if (o->file_count < 0 || (o->file_count && !o->files))
        return error_set(WEIR_E_ARGUMENT, ".file_count = %d: it is the number of paths in .files", o->file_count);
    return WEIR_OK;
}

static weir_status find_files(struct data_paths *paths, const char *first, const weir_data_opts *o)
{
    weir_status status = first ? data_paths_add(paths, first) : WEIR_OK;
    for (int i = 0; !status && i < o->file_count; i++)
        status = o->files[i] ? data_paths_add(paths, o->files[i]) : error_set(WEIR_E_ARGUMENT, ".files[%d] is NULL", i);
    return !status && !paths->count ? error_set(WEIR_E_ARGUMENT, "no file is given") : status;
}

/* The type of a sample is that of the first file; the others have to agree. */
static weir_status join_type(weir_data *data, const struct data_file *file)
{
    weir_type is = {data_file_dtype(file), {.rank = file->shape.rank - 1}};
    memcpy(is.shape.dim, file->shape.dim + 1, sizeof *is.shape.dim * (size_t)is.shape.rank);
    if (data->tokens)
        return WEIR_OK;
    if (file == data->file)
        data->info.type = is;
    const weir_type *type = &data->info.type;
    char have[160], want[160];
    if (is.dtype != type->dtype || !weir_shape_equal(&is.shape, &type->shape))
        return error_set(WEIR_E_ARGUMENT, "%s: its samples are %s %s, and those of %s are %s %s; all files must have the same", file->path,
                         weir_dtype_name(is.dtype), shape_text(&is.shape, have, sizeof have), data->file->path,
                         weir_dtype_name(type->dtype), shape_text(&type->shape, want, sizeof want));
    data->sample_elements = weir_shape_count(&type->shape);
    if (!data->sample_elements)
        return error_set(WEIR_E_ARGUMENT, "%s: its samples are %s and have no elements", file->path,
                         shape_text(&type->shape, want, sizeof want));
    return WEIR_OK;
}

static int64_t samples_of(const weir_data *data, const struct data_file *file)
{
    if (!data->tokens)
        return file->shape.dim[0];
    return file->elements ? (file->elements - 1) / data->sample_elements : 0;
}

/* Files begin where those before them end. */
static weir_status open_files(weir_data *data, const struct data_paths *paths)
{
    weir_status status = WEIR_OK;
    data->file = calloc((size_t)paths->count, sizeof *data->file);
    if (!data->file)
        return error_set(WEIR_E_MEMORY, "no memory for %d files", paths->count);
    data->info.hash = HASH_START;
    for (int i = 0; !status && i < paths->count; i++) {
        struct data_file *file = &data->file[data->info.files++];
        status = data_file_open(file, paths->item[i], data->tokens, i < FILES_KEPT);
        status = status ? status : join_type(data, file);
        file->first = data->count;
        if (!status && (__builtin_add_overflow(data->count, samples_of(data, file), &data->count) ||
                        __builtin_add_overflow(data->info.elements, file->elements, &data->info.elements) ||
                        data->count > INT64_C(1) << 62))
            status = error_set(WEIR_E_ARGUMENT, "%s: with this file there are more samples than can be counted", file->path);
        data->info.hash = hash_more(data->info.hash, &file->hash, sizeof file->hash);
    }
    return status;
}

/* Chooses the range that is used. */
static weir_status choose_range(weir_data *data, const weir_data_opts *o)
{
    const int64_t all = data->count;
    const char *more = data->info.files > 1 ? " and the others" : "";
    const int64_t end = o->to == 0 || o->to == 1 ? all : (int64_t)((double)all * o->to);
    data->begin = (int64_t)((double)all * o->from);
    data->count = end - data->begin;
    data->info.samples = o->samples && o->samples < data->count ? o->samples : data->count;
    if (data->info.samples > 0)
        return WEIR_OK;
    if (all)
        return error_set(WEIR_E_ARGUMENT, "%s%s: the range from %g to %g of %" PRId64 " samples is empty", data->file->path, more, o->from,
                         o->to == 0 ? 1 : o->to, all);
    if (data->tokens)
        return error_set(WEIR_E_ARGUMENT, "%s%s: %" PRId64 " tokens are too few for .seq = %" PRId64 ": a window and its labels take %" PRId64
                         " of one file", data->file->path, more, data->info.elements, o->seq, o->seq + 1);
    return error_set(WEIR_E_ARGUMENT, "%s%s: there are no samples", data->file->path, more);
}

static weir_status open_data(weir_data *data, const char *files, const weir_data_opts *o)
{
    struct data_paths paths = {0};
    weir_status status = check_opts(data, o);
    data->sequential = o->sequential;
    data->seed = o->seed;
    data->vocab = o->vocab ? o->vocab : INT64_C(1) << 31;
    if (data->tokens) {
        data->sample_elements = o->seq;
        data->info.type = (weir_type){WEIR_I32, {1, {o->seq}}};
    }
    status = status ? status : find_files(&paths, files, o);
    status = status ? status : open_files(data, &paths);
    status = status ? status : choose_range(data, o);
    data_paths_free(&paths);
    return status;
}

static weir_data *data_new(const char *files, const weir_data_opts *given, const char *call, bool tokens)
{
    weir_data_opts opts;
    if (opts_read(&opts, sizeof opts, given, call))
        return NULL;
    weir_data *data = calloc(1, sizeof *data);
    if (!data) {
        error_set(WEIR_E_MEMORY, "%s: no memory", call);
        return NULL;
    }
    data->call = call;
    data->tokens = tokens;
    const weir_status status = open_data(data, files, &opts);
    if (!status)
        return data;
    failed(data, &opts, status);
    weir_data_close(data);
    return NULL;
}

weir_data *weir_data_tokens_at(const char *files, const weir_data_opts *given)
{
    return data_new(files, given, "weir_data_tokens", true);
}

weir_data *weir_data_npy_at(const char *files, const weir_data_opts *given)
{
    return data_new(files, given, "weir_data_npy", false);
}

void weir_data_close(weir_data *data)
{
    if (!data)
        return;
    for (struct data_feed *feed = data->feeds, *next; feed; feed = next) {
        next = feed->next;
        free(feed);
    }
    for (int i = 0; data->file && i < data->info.files; i++)
        data_file_close(&data->file[i]);
    free(data->file);
    free(data);
}

const weir_data_info *weir_data_get_info(const weir_data *data)
{
    static const weir_data_info none;
    return data ? &data->info : &none;
}

/* ---- reading ---- */

/* The file that has the sample, counted over all files. */
static const struct data_file *file_of(const weir_data *data, int64_t sample)
{
    int low = 0, high = data->info.files - 1;
    while (low < high) {
        const int middle = low + (high - low + 1) / 2;
        if (data->file[middle].first <= sample)
            low = middle;
        else
            high = middle - 1;
    }
    return &data->file[low];
}

/* The sample at this place of the endless list of epochs, counted over all files. */
static int64_t sample_at(const weir_data *data, int64_t place)
{
    const uint64_t count = (uint64_t)data->info.samples, epoch = (uint64_t)place / count, index = (uint64_t)place % count;
    const uint64_t at = data->sequential ? index : order_at(count, data->seed, epoch, index);
    return data->begin + (int64_t)((unsigned __int128)at * (uint64_t)data->count / count);
}

static weir_status read_elements(const weir_data *data, const struct data_file *file, int64_t at, int64_t count, void *to)
{
    return data->tokens ? data_file_read_ids(file, at, count, data->vocab, to) : data_file_read(file, at, count, to);
}

/* Goes on to the next index of dimensions 1 to outer - 1 of the view. False: there is none. */
static bool step_index(const weir_view *view, int outer, int64_t *at)
{
    int d = outer - 1;
    for (; d > 0 && ++at[d] == view->shape.dim[d]; d--)
        at[d] = 0;
    return d > 0;
}

/* Reads the elements of one sample that the view has, in runs of elements that lie together in the file. */
static weir_status read_sample(const weir_data *data, int64_t sample, bool labels, const weir_view *dst, char *to)
{
    const struct data_file *file = file_of(data, sample);
    const int64_t base = (sample - file->first) * data->sample_elements + labels;
    const int rank = dst->shape.rank;
    int64_t at[WEIR_DIMS_MAX] = {0}, run = 1;
    weir_status status;
    int outer = rank; /* a run has the dimensions from here on, of which all but the first are whole */
    while (outer > 1 && (outer == rank || dst->shape.dim[outer] == dst->global.dim[outer]))
        run *= dst->shape.dim[--outer];
    do {
        int64_t element = 0;
        for (int d = 1; d < rank; d++)
            element = element * dst->global.dim[d] + dst->offset[d] + at[d];
        status = read_elements(data, file, base + element, run, to);
        to += run * (int64_t)weir_dtype_bytes(dst->dtype);
    } while (!status && step_index(dst, outer, at));
    return status;
}

/* Whether the view is one of samples. */
static weir_status check_view(const weir_data *data, int64_t first, bool labels, const weir_view *dst)
{
    const weir_type *type = &data->info.type;
    bool fits = dst->dtype == type->dtype && dst->shape.rank == type->shape.rank + 1 && dst->global.rank == dst->shape.rank;
    for (int d = 0; fits && d < dst->shape.rank; d++)
        fits = dst->offset[d] >= 0 && dst->shape.dim[d] >= 0 && dst->shape.dim[d] <= dst->global.dim[d] - dst->offset[d] &&
               (!d || dst->global.dim[d] == type->shape.dim[d - 1]);
    if (!fits)
        return error_set(WEIR_E_ARGUMENT, "weir_data_read: the view is not of samples of %s: its dtype, and the dimensions of .global behind "
                         "the first, must be those of weir_data_get_info()->type", data->file->path);
    if (labels && !data->tokens)
        return error_set(WEIR_E_ARGUMENT, "weir_data_read: labels are for weir_data_tokens(); %s has rows", data->file->path);
    if (first < 0 || first > INT64_MAX - dst->global.dim[0])
        return error_set(WEIR_E_ARGUMENT, "weir_data_read: the first sample has the number %" PRId64 "; it must be at least 0, and those of all "
                         "rows below 2^63", first);
    return WEIR_OK;
}

weir_status weir_data_read(const weir_data *data, int64_t first, bool labels, const weir_view *dst)
{
    if (error_null(data, "weir_data_read", "data") || error_null(dst, "weir_data_read", "view"))
        return WEIR_E_ARGUMENT;
    weir_status status = check_view(data, first, labels, dst);
    if (status || !weir_shape_count(&dst->shape))
        return status;
    const int64_t row_bytes = weir_shape_count(&dst->shape) / dst->shape.dim[0] * (int64_t)weir_dtype_bytes(dst->dtype);
    for (int64_t row = 0; !status && row < dst->shape.dim[0]; row++)
        status = read_sample(data, sample_at(data, first + dst->offset[0] + row), labels, dst, (char *)dst->data + row * row_bytes);
    return status;
}
