/* apps/weir-gpt/finetune.c: see the header. */
#include "apps/weir-gpt/finetune.h"
#include "apps/common/model/adapter_lm.h"
#include "apps/weir-gpt/finetune_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char program[] = "weir-gpt";
enum { SEQ_DEFAULT = 512, BATCH_DEFAULT = 8 };

typedef struct tuning {
    trainer *t;
    const finetune_opts *o;
    const corpus_opts *files;
    lm_config config;
    lm_training training;
    adapter adapter;              /* rank 0: there is none */
    lm_adapter beside;
    struct tokenizer *tokenizer;  /* owned, as what follows */
    struct encoder *encoder;
    finetune_data data;
} tuning;

bool finetune_trains(const finetune_opts *o, const corpus_opts *data)
{
    return o->chat.count || data->files.count || data->tokens.count;
}

/* ---- what is trained ---- */

static int open_adapter(tuning *f)
{
    const finetune_opts *o = f->o;
    char why[1024];
    if (o->adapter && (o->rank || o->alpha || o->targets || o->dropout))
        return options_wrong(program, "--adapter goes on with an adapter as it is; --lora and its options begin a new one");
    if (!o->adapter && !o->rank && (o->alpha || o->targets || o->dropout))
        return options_wrong(program, "--lora-alpha, --lora-dropout and --lora-targets need --lora RANK");
    if (o->adapter && !adapter_read(o->adapter, &f->adapter, why, sizeof why))
        return options_wrong(program, "--adapter: %s", why);
    if (o->rank) {
        f->adapter = (adapter){.rank = o->rank, .alpha = o->alpha ? o->alpha : 2 * o->rank, .dropout = o->dropout};
        if (!adapter_take_targets(&f->adapter, o->targets ? o->targets : lm_adapter_targets(&f->config), why, sizeof why))
            return options_wrong(program, "--lora-targets: %s", why);
    }
    snprintf(f->adapter.base, sizeof f->adapter.base, "%s", o->model);
    f->adapter.fan_in_fan_out = f->config.in_first;
    f->beside = (lm_adapter){.adapter = &f->adapter, .config = &f->config};
    f->config.adapt = f->adapter.rank ? lm_adapter_adapt : NULL;
    f->config.adapt_ctx = &f->beside;
    return -1;
}

static int check_sizes(const tuning *f)
{
    const lm_training *t = &f->training;
    if (t->seq > f->config.context)
        return options_wrong(program, "--seq %d is more than the %d tokens that the model sees", t->seq, f->config.context);
    const int status = layout_check_device(program, t->device);
    return status < 0 ? layout_check(program, &t->layout, t->batch, f->config.layers) : status;
}

static int open_tokenizer(tuning *f)
{
    f->tokenizer = tokenizer_read(f->o->model);
    f->encoder = f->tokenizer ? encoder_new(f->tokenizer) : NULL;
    if (!f->encoder)
        return options_wrong(program, "--model: %s", tokens_error());
    if (tokenizer_size(f->tokenizer) > (uint32_t)f->config.vocab)
        return options_wrong(program, "--model: %s: its tokenizer has more tokens than the model", f->o->model);
    return -1;
}

static int open_model(tuning *f, const options_spec *spec)
{
    char why[1024];
    if (!lm_read(f->o->model, &f->config, why, sizeof why))
        return options_wrong(program, "--model: %s", why);
    int status = open_adapter(f);
    if (status < 0)
        status = check_sizes(f);
    if (status < 0 && !f->files->tokens.count)
        status = open_tokenizer(f);
    const samples_reader reader = {f->encoder, f->training.seq, f->config.ends_count ? f->config.ends[0] : -1};
    return status < 0 ? finetune_data_open(&f->data, f->o, f->files, &reader, &f->config, &f->training, spec) : status;
}

/* ---- training ---- */

/* Linear warm-up, then half a cosine to a tenth. Only whole training decays weights: those of an adapter are an addend, whose size means
 * something else. */
static weir_optimizer optimizer_of(const tuning *f, double lr, int steps)
{
    const bool whole = !f->adapter.rank;
    lr = lr ? lr : whole ? 2e-5 : 2e-4;
    return weir_adamw(.lr = lr, .weight_decay = whole ? 0.01 : 0, .clip_norm = 1.0, .warmup = steps / 20, .total = steps, .lr_min = lr / 10);
}

static bool give_values(void *ctx, weir_session *session, const weir_plan *plan)
{
    tuning *f = ctx;
    char why[1024];
    if (lm_load(session, &f->config)) {
        options_failed(program);
        return false;
    }
    const adapter_files from = {f->o->adapter, lm_adapter_order, &f->config};
    if (f->o->adapter && !adapter_load(&from, session, plan, why, sizeof why)) {
        options_wrong(program, "--adapter: %s", why);
        return false;
    }
    return true;
}

static int save_adapter(tuning *f)
{
    char why[1024];
    const trainer *t = f->t;
    const adapter_files to = {t->opts.saver.save, lm_adapter_order, &f->config};
    if (!f->adapter.rank || !to.folder)
        return -1;
    if (!adapter_save(&to, &f->adapter, t->session, t->plan, ranks_first(), why, sizeof why))
        return options_wrong(program, "--save: %s", why), 1;
    if (ranks_first())
        fprintf(stderr, "%s: the adapter is in %s\n", program, to.folder);
    return -1;
}

static void print_banner(const tuning *f)
{
    const int devices = layout_devices(&f->training.layout);
    fprintf(stderr, "%s: ", program);
    finetune_data_tell(&f->data, f->o->chat.count);
    fprintf(stderr, "; %d layers, dim %d, ", f->config.layers, f->config.dim);
    if (f->adapter.rank)
        fprintf(stderr, "an adapter of rank %d, ", f->adapter.rank);
    fprintf(stderr, "on %d device%s\n", devices, devices == 1 ? "" : "s");
}

/* NULL and *status: a target of the adapter was not found, which has been reported. */
static weir_graph *graph_of(tuning *f, int *status)
{
    char why[512];
    weir_graph *graph = lm_train_graph(&f->config, &f->training);
    if (!graph || !f->adapter.rank || lm_adapter_used(&f->beside, why, sizeof why))
        return graph;
    weir_graph_free(graph);
    *status = options_wrong(program, "%s: %s", f->o->adapter ? "--adapter" : "--lora-targets", why);
    return NULL;
}

static int train(tuning *f)
{
    trainer *t = f->t;
    const int begun = trainer_begin(t);
    if (begun >= 0)
        return trainer_end(t, begun);
    int status = finetune_data_seed(&f->data, f->files, t->opts.seed);
    finetune_data_sources(&f->data, &f->training);
    if (status < 0 && ranks_first())
        print_banner(f);
    weir_graph *graph = status < 0 ? graph_of(f, &status) : NULL;
    if (status < 0)
        status = trainer_train(t, graph, f->training.layout.micro);
    if (status < 0)
        trainer_tell_judged(t);
    if (status < 0)
        status = save_adapter(f);
    return trainer_end(t, status);
}

/* Cards cannot read a mapped file: they get copies of the weights, in f32. */
static bool on_cpus(const char *device)
{
    return !device || !strcmp(device, "cpu");
}

int finetune(trainer *t, const finetune_opts *o, const corpus_opts *files, const gpt_config *c, double lr, const options_spec *spec)
{
    tuning *f = calloc(1, sizeof *f);
    if (!f)
        return options_wrong(program, "out of memory"), 1;
    *f = (tuning){.t = t, .o = o, .files = files};
    f->training = (lm_training){.batch = c->batch ? c->batch : BATCH_DEFAULT, .seq = c->seq ? c->seq : SEQ_DEFAULT, .layout = layout_full(c->layout),
                                .device = c->device, .frozen = o->rank || o->adapter, .recompute = c->recompute};
    int status = open_model(f, spec);
    if (status < 0) {
        t->optimizer = f->training.optimizer = optimizer_of(f, lr, t->opts.steps);
        t->items_per_step = (double)f->training.batch * f->training.seq;
        t->counted = true;
        f->config.stored = f->training.frozen && on_cpus(f->training.device);
        f->config.f32_activations = o->f32_activations;
        t->start = (trainer_start){give_values, f, lm_mapped(&f->config)};
        if (finetune_data_judges(&f->data))
            t->judge = (trainer_judge){.name = LM_EVAL_LOSS, .ask = finetune_data_judge, .ctx = &f->data};
        status = train(f);
    }
    finetune_data_close(&f->data);
    encoder_free(f->encoder);
    tokenizer_free(f->tokenizer);
    free(f);
    return status;
}
