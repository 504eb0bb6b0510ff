/* weir-digits: trains a perceptron on handwritten digits, on as many devices as asked, and tells how well it reads the
 * test set.
 *
 *     weir-digits                              one device
 *     weir-digits --dp 2 --pp 2 --micro 4      two pipeline stages of two devices
 */
#include "apps/common/params.h"
#include "apps/common/paths.h"
#include "apps/common/trainer.h"
#include "apps/weir-digits/model.h"

#include <string.h>

static const char program[] = "weir-digits";

/* Reads the test images with the trained parameters; how many of them rightly goes to `right`. In a cluster every rank
 * does: reading parameters takes all of them, and the rest takes no time. */
static weir_status read_test(weir_session *trained, const weir_plan *plan, const digits *data, int *right)
{
    float pixel[DIGITS_TEST * DIGITS_PIXELS];
    int32_t digit[DIGITS_TEST];
    const digits_image *image = data->image + digits_train_count(data);
    for (int i = 0; i < DIGITS_TEST; i++)
        memcpy(pixel + i * DIGITS_PIXELS, image[i].pixel, sizeof image[i].pixel);
    weir_session *session = weir_session_open(plan, .cluster = {.alone = true});
    if (!session)
        return WEIR_E_STATE;
    weir_array in = {pixel, WEIR_F32, {2, {DIGITS_TEST, DIGITS_PIXELS}}}, out = {digit, WEIR_I32, {1, {DIGITS_TEST}}};
    weir_status status = params_copy(trained, session, plan);
    status = status ? status : weir_session_push(session, "pixels", &in, -1);
    status = status ? status : weir_session_start(session, 1);
    status = status ? status : weir_session_pull(session, "digits", &out, -1);
    status = status ? status : weir_session_wait(session, -1);
    weir_session_close(session);
    *right = 0;
    for (int i = 0; !status && i < DIGITS_TEST; i++)
        *right += digit[i] == image[i].label;
    return status;
}

/* The judge of the trainer: the share of the test images that is read rightly. */
static weir_status test(void *ctx, weir_session *trained, double *accuracy)
{
    const model_config *config = ctx;
    weir_graph *graph = model_read_graph(config, DIGITS_TEST);
    weir_plan *plan = graph ? weir_compile(graph) : NULL;
    int right = 0;
    weir_status status = plan ? read_test(trained, plan, config->data, &right) : WEIR_E_MEMORY;
    weir_graph_free(graph);
    weir_plan_free(plan);
    *accuracy = (double)right / DIGITS_TEST;
    return status;
}

static int train_and_test(trainer *t, model_config *config)
{
    t->judge = (trainer_judge){.name = "test_accuracy", .most_is_best = true, .ask = test, .ctx = config};
    int status = trainer_begin(t);
    config->data_seed = t->opts.seed;
    if (status < 0)
        status = trainer_train(t, model_train_graph(config), config->layout.micro);
    if (status < 0 && ranks_first() && t->judged_at == t->done)
        printf("test accuracy %.2f %% of %d images\n", 100 * t->judged, DIGITS_TEST);
    return trainer_end(t, status);
}

static int load(digits *data, const char *path)
{
    char found[PATHS_BYTES], error[PATHS_BYTES + 200];
    if (!path && !paths_in_project("apps/data/digits.csv", found))
        return options_wrong(program, "apps/data/digits.csv is not above the program; give --data FILE");
    if (!digits_load(data, path ? path : found, error, sizeof error))
        return options_wrong(program, "%s", error);
    return -1;
}

int main(int argc, char **argv)
{
    model_config c = {.layers = 1, .dim = 256, .batch = 128, .dropout = 0.3, .layout = {1, 1, 1, 1, false}};
    trainer t = {.program = program, .opts = {.steps = 4000, .saver.keep = SAVER_KEEP_DEFAULT}, .items = "samples"};
    double lr = 2e-3;
    const char *path = NULL;
    const options_entry table[] = {
        {"--layers", OPTIONS_INT, &c.layers, .min = 1, .max = 100, .help = "hidden layers"},
        {"--dim", OPTIONS_INT, &c.dim, .min = 1, .max = 65536, .help = "width of the hidden layers"},
        {"--dropout", OPTIONS_REAL, &c.dropout, .min = 0, .max = 0.99, .help = "share of activations dropped"},
        {"--batch", OPTIONS_INT, &c.batch, .min = 1, .max = 1e6, .help = "rows per step"},
        {"--lr", OPTIONS_REAL, &lr, .min = 1e-9, .max = 100, .help = "learning rate at its highest"},
        LAYOUT_OPTIONS(c.layout),
        TRAINER_OPTIONS(t.opts),
        TRAINER_EVAL_OPTION(t.opts, "the test images are read"),
        {"--data", OPTIONS_TEXT, &path, .value = "FILE", .help = "CSV of 64 pixels and a label a line"},
        {.name = NULL},
    };
    const options_spec spec = {program, "Trains a perceptron on handwritten digits.", table};
    int status = options_parse(&spec, argc, argv);
    digits data = {0};
    if (status < 0)
        status = layout_check(program, &c.layout, c.batch, c.layers + 1);
    if (status < 0)
        status = load(&data, path);
    if (status < 0) {
        c.data = &data;
        c.optimizer = weir_adamw(.lr = lr, .weight_decay = 0.01, .total = t.opts.steps);
        t.items_per_step = c.batch;
        status = train_and_test(&t, &c);
    }
    digits_free(&data);
    return status;
}
