/* resnet.c: a small residual net (He et al. 2016) with batch norm, which learns to read handwritten digits.
 *
 *     resnet digits.csv [DEVICES [STEPS]]     trains on all but the last 360 images, and reads those
 *
 * Each line of the file has 64 pixels, row by row, from 0 to 16, and what they show.
 */
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

enum { SIDE = 8, PIXELS = SIDE * SIDE, CLASSES = 10, IMAGES_MAX = 4096, TEST = 360, BATCH = 128, STEPS = 600, MOVE = 1 };

static float pixel[IMAGES_MAX][PIXELS];
static int32_t label[IMAGES_MAX];
static int images;

/* Returns the line at which reading ends for a wrong number; 0: all is read. */
static int read_images(FILE *file)
{
    char line[512];
    for (images = 0; images < IMAGES_MAX && fgets(line, sizeof line, file); images++) {
        char *at = line;
        for (int i = 0; i <= PIXELS; i++) {
            char *end;
            const long value = strtol(at, &end, 10);
            if (end == at || value < 0 || value > (i < PIXELS ? 16 : CLASSES - 1) || *end != (i < PIXELS ? ',' : '\n'))
                return images + 1;
            if (i < PIXELS)
                pixel[images][i] = (float)value / 16;
            else
                label[images] = (int32_t)value;
            at = end + 1;
        }
    }
    return images > TEST ? 0 : images + 1;
}

/* ---- batches: a training image is moved by at most MOVE pixels to each side ---- */

static int64_t drawn(int64_t step, int64_t row, int64_t of, uint64_t word)
{
    return (int64_t)(weir_random_uniform(4 * (uint64_t)step + word, (uint64_t)row) * (float)of);
}

static weir_status give_pixels(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int64_t i = 0; i < BATCH * PIXELS; i++) {
        const int64_t row = i / PIXELS, from = drawn(step, row, images - TEST, 0);
        const int64_t v = i % PIXELS / SIDE + drawn(step, row, 2 * MOVE + 1, 1) - MOVE, u = i % SIDE + drawn(step, row, 2 * MOVE + 1, 2) - MOVE;
        ((float *)x->data)[i] = u < 0 || u >= SIDE || v < 0 || v >= SIDE ? 0 : pixel[from][v * SIDE + u];
    }
    return WEIR_OK;
}

static weir_status give_labels(void *ctx, const weir_view *y, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int64_t row = 0; row < BATCH; row++)
        ((int32_t *)y->data)[row] = label[drawn(step, row, images - TEST, 0)];
    return WEIR_OK;
}

static weir_status give_test(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx, (void)step, (void)micro;
    for (int i = 0; i < TEST * PIXELS; i++)
        ((float *)x->data)[i] = pixel[images - TEST + i / PIXELS][i % PIXELS];
    return WEIR_OK;
}

/* ---- the model ---- */

static weir_tensor *conv(weir_tensor *x, int channels, int stride, const char *name)
{
    x = weir_conv(x, channels, {3, 3}, .stride = {stride, stride}, .pad = {1, 1}, .name = name, .no_bias = true);
    char norm[16];
    snprintf(norm, sizeof norm, "%s/norm", name);
    return weir_batchnorm(x, .name = norm);
}

/* x + f(x); with a stride of 2, a convolution of one pixel makes x as small. */
static weir_tensor *residual(weir_tensor *x, int channels, int stride)
{
    weir_tensor *y = conv(weir_relu(conv(x, channels, stride, "a")), channels, 1, "b");
    if (stride > 1)
        x = weir_conv(x, channels, {1, 1}, .stride = {stride, stride}, .name = "past");
    return weir_relu(weir_add(x, y));
}

/* Built once for each program: under the same names, so with the same parameters and running statistics. */
static weir_tensor *net(weir_graph *g, weir_tensor *x)
{
    x = weir_relu(conv(x, 16, 1, "first"));
    for (int i = 0; i < 3; i++)
        WEIR_NAMED(g, "block%d", .index = i)
            x = residual(x, i ? 32 : 16, i == 1 ? 2 : 1);
    x = weir_mean(x, .axes = {2, 3}, .axis_count = 2); /* [rows, 32] */
    return weir_linear(x, CLASSES, .name = "out");
}

static weir_graph *build(int devices, int steps)
{
    char list[32];
    snprintf(list, sizeof list, "cpu:0-%d", devices - 1);
    weir_graph *g = weir_graph_new("resnet");
    weir_mesh_new(g, list);
    weir_tensor *x = weir_input(g, WEIR_F32, {BATCH, 1, SIDE, SIDE}, .name = "x", .sbp = {WEIR_S(0)}, .source = give_pixels);
    weir_tensor *y = weir_input(g, WEIR_I32, {BATCH}, .name = "y", .sbp = {WEIR_S(0)}, .source = give_labels);
    weir_tensor *loss = weir_cross_entropy(net(g, x), y);
    weir_fetch(loss, .name = "loss", .slots = 8);
    weir_train(loss, weir_sgd(.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 5e-4, .warmup = steps / 20, .total = steps));
    WEIR_PROGRAM(g, "test") {
        x = weir_input(g, WEIR_F32, {TEST, 1, SIDE, SIDE}, .name = "x", .sbp = {WEIR_S(0)}, .source = give_test);
        weir_fetch(weir_argmax(net(g, x)), .name = "read");
    }
    return g;
}

static weir_status train_and_test(weir_session *s, int steps)
{
    float loss = 0;
    int32_t read[TEST];
    int right = 0;
    weir_status status = weir_session_start(s, steps);
    for (int i = 1; i <= steps && !status; i++) {
        status = weir_session_pull(s, "loss", WEIR_ARRAY(&loss, WEIR_F32), -1);
        if (!status && !weir_rank() && (i % 100 == 0 || i == steps))
            printf("step %d: loss %.4f\n", i, (double)loss);
    }
    status = status ? status : weir_session_wait(s, -1);
    status = status ? status : weir_session_start(s, 1, .program = "test");
    status = status ? status : weir_session_pull(s, "test/read", WEIR_ARRAY(read, WEIR_I32, TEST), -1);
    status = status ? status : weir_session_wait(s, -1);
    for (int i = 0; i < TEST && !status; i++)
        right += read[i] == label[images - TEST + i];
    if (!status && !weir_rank())
        printf("%d of %d read rightly\n", right, TEST);
    return status;
}

int main(int argc, char **argv)
{
    const int devices = argc > 2 ? atoi(argv[2]) : 1, steps = argc > 3 ? atoi(argv[3]) : STEPS;
    if (argc < 2 || devices < 1 || devices > 8 || steps < 1)
        return fputs("usage: resnet digits.csv [DEVICES [STEPS]], with 1 to 8 devices\n", stderr), 2;
    FILE *file = fopen(argv[1], "r");
    const int wrong = file ? read_images(file) : 0;
    if (file)
        fclose(file);
    if (!file || wrong)
        return fprintf(stderr, file ? "resnet: %s:%d: not 64 pixels and a digit\n" : "resnet: cannot read %s\n", argv[1], wrong), 2;
    weir_graph *g = build(devices, steps);
    weir_plan *plan = weir_compile(g, .seed = 1);
    weir_session *s = plan ? weir_session_open(plan) : NULL;
    const weir_status status = s ? train_and_test(s, steps) : WEIR_E_ARGUMENT;
    if (status)
        fprintf(stderr, "resnet: %s\n", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    return status ? 1 : 0;
}
