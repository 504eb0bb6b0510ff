/* apps/weir-digits/model.c: the perceptron and its batches. The pixels and the labels come from two sources which draw
 * the same rows, because a draw depends on nothing but (seed, step, row). */
#include "apps/weir-digits/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static weir_status fill_pixels(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    const model_config *c = ctx;
    float *to = dst->data;
    int64_t rows = dst->shape.dim[0];
    for (int64_t i = 0, row = micro * rows; i < rows; i++, row++) {
        const digits_image *image = &c->data->image[digits_draw(c->data, c->data_seed, step, row)];
        digits_bend(image, c->data_seed, step, row, to + i * DIGITS_PIXELS);
    }
    return WEIR_OK;
}

static weir_status fill_labels(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    const model_config *c = ctx;
    int32_t *to = dst->data;
    int64_t rows = dst->shape.dim[0];
    for (int64_t i = 0; i < rows; i++)
        to[i] = c->data->image[digits_draw(c->data, c->data_seed, step, micro * rows + i)].label;
    return WEIR_OK;
}

/* The test images are the last ones. */
static weir_status fill_test(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    const model_config *c = ctx;
    const digits_image *image = c->data->image + digits_train_count(c->data);
    (void)step, (void)micro;
    for (int i = 0; i < DIGITS_TEST; i++)
        memcpy((float *)dst->data + i * DIGITS_PIXELS, image[i].pixel, sizeof image[i].pixel);
    return WEIR_OK;
}

/* The share of the test images that is read rightly. */
static weir_status judge(const weir_kernel_args *args)
{
    const model_config *c = args->host;
    const digits_image *image = c->data->image + digits_train_count(c->data);
    const int32_t *read = args->in[0].data;
    int right = 0;
    for (int i = 0; i < DIGITS_TEST; i++)
        right += read[i] == image[i].label;
    *(float *)args->out[0].data = (float)right / DIGITS_TEST;
    return WEIR_OK;
}

/* ---- the position that a checkpoint keeps ----
 *
 * A draw follows from the step, so there is none to keep; but whose images they are, and from which seed. */

static const char note_format[] = "data_seed %" SCNu64 " images %d hash %" SCNx64;

static weir_status save_pixels(void *ctx, int64_t step, void *bytes, size_t *count)
{
    const model_config *c = ctx;
    (void)step;
    *count = (size_t)snprintf(bytes, WEIR_SOURCE_BYTES_MAX, note_format, c->data_seed, c->data->count,
                              digits_hash(c->data));
    return WEIR_OK;
}

/* Other images, or other draws of them, may be what is wanted; that is told. */
static weir_status restore_pixels(void *ctx, int64_t step, const void *bytes, size_t count, char *why, size_t why_bytes)
{
    const model_config *c = ctx;
    char line[128] = "";
    uint64_t seed, hash;
    int images;
    (void)step;
    memcpy(line, bytes, count < sizeof line ? count : sizeof line - 1);
    if (sscanf(line, note_format, &seed, &images, &hash) != 3)
        return WEIR_OK;
    if (images != c->data->count || hash != digits_hash(c->data))
        snprintf(why, why_bytes, "the images are not those that it was saved with");
    else if (seed != c->data_seed)
        snprintf(why, why_bytes, "the images are drawn with seed %" PRIu64 ", and were with %" PRIu64,
                 c->data_seed, seed);
    return WEIR_OK;
}

/* ---- the model ---- */

/* A convolution of 3 x 3 elements; the weight starts as that of a hidden layer. */
static weir_tensor *filters(weir_tensor *x, int channels, const char *name)
{
    const double terms = 9 * (double)weir_tensor_type(x).shape.dim[1];
    return weir_relu(weir_conv(x, channels, {3, 3}, .pad = {1, 1}, .name = name, .init = WEIR_NORMAL(sqrt(2 / terms))));
}

/* [rows, pixels] -> [rows, features] */
static weir_tensor *convolutions(weir_tensor *x)
{
    const int64_t rows = weir_tensor_type(x).shape.dim[0];
    x = weir_reshape(x, {rows, 1, DIGITS_SIDE, DIGITS_SIDE}, .name = "image");
    x = filters(filters(x, 16, "conv0"), 32, "conv1");
    x = filters(weir_max_pool(x, {2, 2}, .name = "pool"), 32, "conv2");
    return weir_reshape(x, {rows, -1}, .name = "features");
}

/* Hidden layer `i`: the weight starts with standard deviation sqrt(2/in) (He et al. 2015). */
static weir_tensor *hidden(weir_tensor *x, int i, const model_config *c)
{
    double in = (double)weir_tensor_type(x).shape.dim[1];
    x = weir_linear(x, c->dim, .name = "fc", .weight = {[TP] = S(i % 2 == 0)}, .init = WEIR_NORMAL(sqrt(2 / in)));
    x = weir_relu(x, .name = "relu");
    return c->dropout > 0 ? weir_dropout(x, c->dropout, .name = "dropout") : x;
}

static weir_tensor *model(weir_tensor *x, weir_mesh **stage, const model_config *c, const layout *l)
{
    WEIR_ON(stage[0]) {
        x = weir_layernorm(x, .name = "ln");
        x = c->conv ? convolutions(x) : x;
    }
    for (int i = 0; i < c->layers; i++)
        WEIR_ON(stage[layout_stage(l, i, c->layers + 1)], .name = "h%d", i)
            x = hidden(x, i, c);
    WEIR_ON(stage[l->pp - 1])
        x = weir_linear(x, DIGITS_CLASSES, .name = "out");
    return x;
}

/* The results for the digits become a state: that is what all ranks can read, whether they own a device or not. */
static void add_test(weir_graph *g, weir_mesh **stage, const model_config *c, const layout *l)
{
    WEIR_PROGRAM(g, MODEL_TEST, .averages = c->ema > 0) {
        weir_tensor *x = NULL;
        WEIR_ON(stage[0])
            x = weir_input(g, WEIR_F32, {DIGITS_TEST, DIGITS_PIXELS}, .name = "pixels", .sbp = {[DP] = S(0)},
                           .source = fill_test, .ctx = (void *)c);
        x = weir_argmax(model(x, stage, c, l), .name = "digits");
        WEIR_ON(stage[l->pp - 1])
            weir_state_set(weir_state(g, WEIR_F32, {1}, .name = MODEL_ACCURACY),
                           weir_call(judge, {x}, .name = "judge", .dtype = WEIR_F32, .shape = {1}, .ctx = (void *)c));
    }
}

weir_graph *model_train_graph(const model_config *c)
{
    weir_graph *g = weir_graph_new("digits");
    if (!g)
        return NULL;
    layout l = layout_full(c->layout);
    weir_mesh *stage[LAYOUT_STAGES_MAX];
    layout_meshes(&l, c->device, g, stage);
    int rows = c->batch / l.micro;
    weir_tensor *x = NULL, *loss = NULL;
    WEIR_ON(stage[0])
        x = weir_input(g, WEIR_F32, {rows, DIGITS_PIXELS}, .name = "pixels", .sbp = {[DP] = S(0)}, .micro = true,
                       .source = fill_pixels, .ctx = (void *)c, .save = save_pixels, .restore = restore_pixels);
    x = model(x, stage, c, &l);
    WEIR_ON(stage[l.pp - 1]) {
        weir_tensor *labels = weir_input(g, WEIR_I32, {rows}, .name = "labels", .sbp = {[DP] = S(0)}, .micro = true,
                                         .source = fill_labels, .ctx = (void *)c);
        loss = weir_cross_entropy(x, labels, .name = "loss");
    }
    weir_train(loss, c->optimizer, .zero = {[DP] = l.zero}, .norm = c->norm, .ema = c->ema);
    weir_fetch(loss, .name = "loss", .slots = 2 * l.micro);
    add_test(g, stage, c, &l);
    return g;
}
