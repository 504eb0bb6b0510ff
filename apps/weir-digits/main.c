/* weir-digits: trains a perceptron or a small convolutional net on handwritten digits, on as many devices as asked, and tells
 * how well it reads the test set.
 *
 *     weir-digits                              one device
 *     weir-digits --dp 2 --pp 2 --micro 4      two pipeline stages of two devices
 */
#include "apps/common/options_files.h"
#include "apps/common/paths.h"
#include "apps/common/streams.h"
#include "apps/common/train/trainer.h"
#include "apps/weir-digits/model.h"

#include <math.h>

static const char program[] = "weir-digits";
static const char own_data[] = "apps/data/digits.csv";

/* The judge of the trainer: the share of the test images that is read rightly; NAN when the run was stopped. */
static weir_status test(void *ctx, weir_session *session, double *accuracy)
{
    float share = NAN;
    weir_array value = {&share, WEIR_F32, {1, {1}}};
    (void)ctx;
    weir_status status = weir_session_write(session, MODEL_ACCURACY, &value);
    status = status ? status : weir_session_run(session, 1, .program = MODEL_TEST);
    status = status ? status : weir_session_read(session, MODEL_ACCURACY, &value);
    *accuracy = (double)share;
    return status;
}

static int train_and_test(trainer *t, model_config *config)
{
    t->judge = (trainer_judge){.name = MODEL_ACCURACY, .most_is_best = true, .ask = test};
    int status = trainer_begin(t);
    config->data_seed = t->opts.seed;
    if (status < 0)
        status = trainer_train(t, model_train_graph(config), config->layout.micro);
    if (status < 0 && ranks_first() && t->judged_at == t->done)
        printf("test accuracy %.2f %% of %d images\n", 100 * t->judged, DIGITS_TEST);
    return trainer_end(t, status);
}

/* Each layer is a group, whose gradients' norm is fetched. */
static void log_gradients(trainer *t, model_config *c)
{
    static const char *const conv[] = {"conv0", "conv1", "conv2"};
    norms_add(&t->norms, &c->optimizer, "ln*", "ln");
    for (int i = 0; c->conv && i < 3; i++) {
        char match[16];
        snprintf(match, sizeof match, "%s*", conv[i]);
        norms_add(&t->norms, &c->optimizer, match, conv[i]);
    }
    norms_add(&t->norms, &c->optimizer, "out*", "out");
    norms_add_layers(&t->norms, &c->optimizer, c->layers);
    c->norm = norms_all(&t->norms);
}

/* Averages do the work of small steps, and gain by large ones (Izmailov et al. 2018): with them the rate falls to a half only. */
static weir_optimizer optimizer_of(const model_config *c, double lr, int steps)
{
    return weir_adamw(.lr = lr, .weight_decay = 0.01, .total = steps, .lr_min = c->ema > 0 ? lr / 2 : 0);
}

static int load(digits *data, const char *path, const options_spec *spec)
{
    char found[PATHS_BYTES], error[PATHS_BYTES + 200];
    if (!path && !paths_of_data(own_data, found))
        return options_wrong(program, "there is %s; give --data FILE", paths_looked(own_data, error, sizeof error));
    int status = path ? -1 : options_check_input(spec, found);
    if (status >= 0)
        return status;
    if (!digits_load(data, path ? path : found, error, sizeof error))
        return options_wrong(program, "%s", error);
    return -1;
}

static int run_program(int argc, char **argv)
{
    model_config c = {.layers = 1, .dim = 256, .batch = 128, .dropout = 0.3, .ema = NAN, .layout = {1, 1, 1, 1, false}};
    trainer t = {.program = program, .opts = {.saver.keep = SAVER_KEEP_DEFAULT}, .items = "samples"};
    double lr = 2e-3;
    const char *path = NULL;
    const options_entry table[] = {
        {"--conv", OPTIONS_FLAG, &c.conv, .help = "convolutions in front of the hidden layers; then the default of --steps is 2000, else 4000"},
        {"--layers", OPTIONS_INT, &c.layers, .min = 1, .max = 100, .help = "hidden layers"},
        {"--dim", OPTIONS_INT, &c.dim, .min = 1, .max = 65536, .help = "width of the hidden layers"},
        {"--dropout", OPTIONS_REAL, &c.dropout, .min = 0, .max = 0.99, .help = "fraction of activations to drop"},
        {"--ema", OPTIONS_REAL, &c.ema, .min = 0, .max = 0.99999,
         .help = "test averages of the parameters, a = X a + (1 - X) p in each step; and let the rate fall to half of --lr only; 0: the parameters [0.999 with --conv, else 0]"},
        {"--batch", OPTIONS_INT, &c.batch, .min = 1, .max = 1e6, .help = "rows per step"},
        {"--lr", OPTIONS_REAL, &lr, .min = 1e-9, .max = 100, .help = "peak learning rate"},
        LAYOUT_OPTIONS(c.layout),
        LAYOUT_DEVICE_OPTION(c.device),
        TRAINER_OPTIONS(t.opts),
        TRAINER_EVAL_OPTION(t.opts, "evaluations on the test images"),
        {"--data", OPTIONS_TEXT, &path, .value = "FILE", .file = OPTIONS_READS,
         .help = "CSV with 64 pixels and a label per line; default: weir's digits.csv"},
        {.name = NULL},
    };
    const options_spec spec = {program, "Train a perceptron on handwritten digits, or with --conv a convolutional net.", table};
    int status = options_parse(&spec, argc, argv);
    digits data = {0};
    t.opts.steps += t.opts.steps ? 0 : c.conv ? 2000 : 4000;
    if (isnan(c.ema))
        c.ema = c.conv ? 0.999 : 0;
    if (status < 0)
        status = layout_check(program, &c.layout, c.batch, c.layers + 1);
    if (status < 0)
        status = layout_check_device(program, c.device);
    if (status < 0)
        status = load(&data, path, &spec);
    if (status < 0) {
        c.data = &data;
        c.optimizer = optimizer_of(&c, lr, t.opts.steps);
        t.optimizer = c.optimizer;
        if (t.opts.gradients)
            log_gradients(&t, &c);
        t.items_per_step = c.batch;
        status = train_and_test(&t, &c);
    }
    digits_free(&data);
    return status;
}

int main(int argc, char **argv)
{
    streams_begin();
    return streams_end(program, run_program(argc, argv));
}
