/* weir-gpt: trains a GPT on text, byte by byte or by a tokenizer, on as many devices as asked, and lets it write some; or on token ids.
 *
 *     weir-gpt                                          one device, on the project's own sources
 *     weir-gpt --dp 2 --pp 2 --micro 4 --text book.txt  two pipeline stages of two devices
 *     weir-gpt --tokens 'train_*.bin' --vocab 50257     token ids that another program made
 *     weir-gpt --model DIR --lora 8 --chat talks.jsonl  a LoRA adapter beside a language model
 *     weir-gpt --tokenizer tokenizer.json --text a.txt  text as the tokens of a model
 *     weir-gpt --load DIR --prompt "Once" --sample 500  no training: what a checkpoint's model writes
 *     weir-gpt --model smollm2.gguf --chat              no training: a conversation with a language model
 */
#include "apps/common/model/evaluate.h"
#include "apps/common/model/gpt_checkpoint.h"
#include "apps/common/train/interrupt.h"
#include "apps/common/measure.h"
#include "apps/common/train/params.h"
#include "apps/common/streams.h"
#include "apps/common/train/trainer.h"
#include "apps/weir-gpt/chat.h"
#include "apps/weir-gpt/continue.h"
#include "apps/weir-gpt/corpus.h"
#include "apps/weir-gpt/finetune.h"
#include "apps/weir-gpt/sample.h"

static const char program[] = "weir-gpt";

static int check(const gpt_config *c)
{
    if (c->dim % c->heads)
        return options_wrong(program, "--dim %d cannot be cut into --heads %d equal parts", c->dim, c->heads);
    const int status = layout_check_device(program, c->device);
    return status < 0 ? layout_check(program, &c->layout, c->batch, c->layers) : status;
}

static void set_optimizer(gpt_config *c, double lr, int steps)
{
    c->optimizer = weir_adamw(.lr = lr, .beta2 = 0.95, .weight_decay = 0.1, .clip_norm = 1.0, .warmup = steps / 10,
                              .total = steps, .lr_min = lr / 10);
}

/* Each layer is a group, whose gradients' norm is fetched. */
static void log_gradients(trainer *t, gpt_config *c)
{
    norms_add(&t->norms, &c->optimizer, "wte*", "wte");
    norms_add(&t->norms, &c->optimizer, "wpe", "wpe");
    norms_add(&t->norms, &c->optimizer, "ln*", "ln");
    norms_add(&t->norms, &c->optimizer, "head*", "head");
    norms_add_layers(&t->norms, &c->optimizer, c->layers);
    c->norm = norms_all(&t->norms);
}

static void print_banner(const gpt_config *c, const corpus *from)
{
    int devices = layout_devices(&c->layout);
    fprintf(stderr, "%s: ", program);
    corpus_tell(from);
    fprintf(stderr, "; %d layers, dim %d, on %d device%s\n", c->layers, c->dim, devices, devices == 1 ? "" : "s");
}

static weir_status write_and_tell(struct sample *s)
{
    char time[32];
    double start = measure_seconds();
    interrupt_stops(s->writer->session);
    weir_status status = sample_write(s);
    interrupt_stops(NULL);
    double seconds = measure_seconds() - start;
    if (!status && !interrupt_caught() && s->to && s->opts->bytes)
        fprintf(stderr, "%d %s written in %s, %.3f ms each\n", s->opts->bytes, s->opts->tokenizer ? "tokens" : "bytes",
                measure_time_text(seconds, time), 1e3 * seconds / s->opts->bytes);
    return status;
}

static weir_status write_trained(weir_session *trained, const gpt_config *c, const sample_opts *opts)
{
    struct sample s;
    weir_status status = sample_open(&s, c, opts, ranks_first() ? stdout : NULL);
    status = status ? status : params_copy(trained, s.writer->session, s.writer->plan);
    status = status ? status : write_and_tell(&s);
    sample_close(&s);
    return status;
}

/* Evaluates, if there is held-out text, and writes. */
static int use_loaded(struct sample *s)
{
    const gpt_config *c = s->writer->config;
    double loss = 0;
    weir_status status = c->held_out ? evaluate((void *)c, s->writer->session, &loss) : WEIR_OK;
    if (!status && c->held_out)
        fprintf(stderr, "validation loss %.4f\n", loss);
    if (status || write_and_tell(s))
        return options_failed(program);
    return interrupt_caught() ? interrupt_status(interrupt_caught()) : 0;
}

/* Without training: the model is that of a checkpoint. One rank does it. */
static int load_and_write(const char *path, const corpus_opts *data, gpt_config c, const sample_opts *opts)
{
    char why[1024] = "";
    corpus held_out = {.tokens = NULL};
    struct sample s = {0};
    interrupt_catch(NULL);
    c.vocab = opts->tokenizer ? (int)tokenizer_size(opts->tokenizer) : 0;
    weir_checkpoint *from = weir_checkpoint_open(path);
    int status = !from ? options_wrong(program, "--load: %s", options_error(program))
                 : gpt_sizes(from, &c, why, sizeof why) ? -1 : options_wrong(program, "--load: %s", why);
    if (status < 0 && data->validate)
        status = corpus_open_text(&held_out, data, &c);
    c.layout = (layout){0};
    if (status < 0 && sample_open(&s, &c, opts, stdout))
        status = options_failed(program);
    if (status < 0 && !gpt_load(from, s.writer->session, s.writer->plan, why, sizeof why))
        status = options_wrong(program, "--load: %s", why);
    if (status < 0)
        status = use_loaded(&s);
    sample_close(&s);
    weir_checkpoint_close(from);
    corpus_close(&held_out);
    return status;
}

static int train_and_write(trainer *t, gpt_config *c, corpus *from, const corpus_opts *opts, sample_opts *sample)
{
    if (corpus_judges(from))
        t->judge = (trainer_judge){.name = GPT_EVAL_LOSS, .ask = evaluate, .ctx = c};
    int begun = trainer_begin(t);
    if (begun >= 0)
        return trainer_end(t, begun);
    sample->sampler.seed = t->opts.seed;
    int status = corpus_seed(from, opts, c, t->opts.seed);
    if (status < 0 && ranks_first())
        print_banner(c, from);
    if (status < 0)
        status = trainer_train(t, gpt_train_graph(c), c->layout.micro);
    if (status < 0)
        trainer_tell_judged(t);
    if (status < 0 && !trainer_interrupted(t) && sample->bytes && (!from->tokens || sample->tokenizer) && write_trained(t->session, c, sample))
        status = options_failed(program);
    return trainer_end(t, status);
}

static int check_sample(sample_opts *o, const finetune_opts *tune)
{
    if (!*o->prompt)
        return options_wrong(program, "--prompt must not be empty");
    o->chat = tune->chat.bare;
    o->adapter = tune->adapter;
    o->f32_activations = tune->f32_activations;
    if (!tune->model && (o->chat || o->stop.count || o->f32_activations))
        return options_wrong(program, "%s needs --model", o->chat ? "--chat" : o->stop.count ? "--stop" : "--f32-activations");
    if (!o->chat && (o->system || o->room))
        return options_wrong(program, "%s needs --chat", o->system ? "--system" : "--room");
    if (o->bytes < 0 && !o->chat)
        o->bytes = SAMPLE_BYTES;
    return -1;
}

/* A model of bytes has these where the user gives none. */
static void set_sizes(gpt_config *c)
{
    c->seq += c->seq ? 0 : 128;
    c->batch += c->batch ? 0 : 16;
}

/* Options that only mean something beside others. */
static int check_model(const finetune_opts *o, const corpus_opts *data, const char *loaded)
{
    const char *alone = o->chat.count ? "--chat" : o->rank ? "--lora" : o->adapter ? "--adapter" : NULL;
    if (!o->model && alone)
        return options_wrong(program, "%s needs --model", alone);
    if (o->model && loaded)
        return options_wrong(program, "--load and --model each name a model; give one of them");
    if (o->model && o->rank && !finetune_trains(o, data))
        return options_wrong(program, "--lora needs something to train on: --chat, --text or --tokens");
    if (o->model && (data->vocab || data->tokenizer))
        return options_wrong(program, "%s is not for --model, which has its own", data->vocab ? "--vocab" : "--tokenizer");
    return -1;
}

/* Options of training that would change nothing. */
static int check_writing(const gpt_config *c, const trainer_opts *t)
{
    const struct {
        const char *name;
        bool given;
    } trains[] = {
        {"--dp", c->layout.dp > 1}, {"--pp", c->layout.pp > 1}, {"--micro", c->layout.micro > 1}, {"--zero", c->layout.zero},
        {"--device", c->device && strcmp(c->device, "cpu")}, {"--memory", t->memory}, {"--bf16", t->bf16}, {"--f16", t->f16},
        {"--save", t->saver.save}, {"--resume", t->saver.resume}, {"--plan", t->plan},
    };
    for (size_t i = 0; i < sizeof trains / sizeof *trains; i++)
        if (trains[i].given)
            return options_wrong(program, "%s is for training a --model: add --text, --tokens or --chat FILE, or leave it out; a model that only "
                                          "writes is shared by CPUs with --tp", trains[i].name);
    return -1;
}

/* A language model goes on with a text, or talks. */
static int write_model(const char *path, const gpt_config *c, const trainer_opts *t, sample_opts *sample)
{
    const int status = check_writing(c, t);
    if (status >= 0)
        return status;
    sample->tp = c->layout.tp;
    sample->workers = t->workers;
    sample->pin = t->pin;
    sample->trace = t->trace;
    return !sample->chat ? continue_text(program, path, sample) : ranks_first() ? chat(program, path, sample) : 0;
}

/* For texts and for samples. */
static int read_tokenizer(const char *path, corpus_opts *data, sample_opts *sample, struct tokenizer **read)
{
    *read = path ? tokenizer_read(path) : NULL;
    data->tokenizer = sample->tokenizer = *read;
    return !path || *read ? -1 : options_wrong(program, "--tokenizer: %s", tokens_error());
}

/* Trains a GPT of weir's own, and lets it write. */
static int train_new(trainer *t, gpt_config *c, const corpus_opts *data, sample_opts *sample, double lr, const options_spec *spec)
{
    corpus from = {.tokens = NULL};
    c->heads += c->heads ? 0 : 4;
    int status = check(c);
    if (status < 0)
        status = corpus_open(&from, data, c, spec);
    if (status < 0) {
        set_optimizer(c, lr ? lr : 2e-3, t->opts.steps);
        t->optimizer = c->optimizer;
        if (t->opts.gradients)
            log_gradients(t, c);
        t->items_per_step = (double)c->batch * c->seq;
        status = train_and_write(t, c, &from, data, sample);
    }
    corpus_close(&from);
    return status;
}

/* *read is freed by the caller. */
static int run_program(int argc, char **argv, struct tokenizer **read)
{
    gpt_config c = {.layers = 4, .dim = 128, .layout = {1, 1, 1, 1, false}};
    trainer t = {.program = program, .opts = {.steps = 300, .saver.keep = SAVER_KEEP_DEFAULT}, .items = "tokens"};
    sample_opts sample = SAMPLE_DEFAULTS;
    corpus_opts data = {.vocab = 0};
    finetune_opts tune = {.model = NULL};
    const char *loaded = NULL, *tokenizer = NULL;
    double lr = 0;
    const options_entry table[] = {
        {"--text", OPTIONS_LIST, &data.files, .several = true, .value = "FILE...", .file = OPTIONS_READS,
         .help = "files to train on; default: the project's sources"},
        {"--tokens", OPTIONS_LIST, &data.tokens, .several = true, .value = "FILE...",
         .help = "train on token ids, in files or patterns as 'data/*.bin': u16, llm.c's .bin or .npy; no text is written then without --tokenizer"},
        {"--tokenizer", OPTIONS_TEXT, &tokenizer, .value = "FILE", .file = OPTIONS_READS,
         .help = "train on a text's tokens, and write them: a tokenizer.json, tekken.json, tokenizer.model or GGUF file, or the folder of a model"},
        {"--vocab", OPTIONS_INT, &data.vocab, .min = 1, .max = 1e7, .help = "with --tokens or --tokenizer: ids are 0 to N - 1 [the tokenizer's; or 50257, of GPT-2]"},
        {"--validate", OPTIONS_TEXT, &data.validate, .value = "FILE", .file = OPTIONS_READS,
         .help = "file to evaluate on; default: the last tenth of the text or tokens, held out"},
        {"--layers", OPTIONS_INT, &c.layers, .min = 1, .max = 1000, .help = "transformer blocks"},
        {"--dim", OPTIONS_INT, &c.dim, .min = 1, .max = 65536, .help = "width"},
        {"--heads", OPTIONS_INT, &c.heads, .min = 1, .max = 1024, .help = "attention heads; must divide --dim [4]"},
        {"--seq", OPTIONS_INT, &c.seq, .min = 1, .max = 65536, .help = "bytes or tokens that the model sees at once [128; of a --model 512]"},
        {"--batch", OPTIONS_INT, &c.batch, .min = 1, .max = 1e6, .help = "rows per step, over all devices [16; of a --model 8]"},
        {"--lr", OPTIONS_REAL, &lr, .min = 1e-9, .max = 100, .help = "peak learning rate [0.002; of a --model 2e-05, of an adapter 0.0002]"},
        LAYOUT_OPTIONS(c.layout),
        LAYOUT_DEVICE_OPTION(c.device),
        {"--recompute", OPTIONS_FLAG, &c.recompute, .help = "keep fewer activations and compute them again"},
        TRAINER_OPTIONS(t.opts),
        TRAINER_EVAL_OPTION(t.opts, "evaluations on held-out text"),
        {"--load", OPTIONS_TEXT, &loaded, .value = "PATH", .file = OPTIONS_READS,
         .help = "do not train; write text with the model of a checkpoint, or of a .safetensors or .gguf file"},
        FINETUNE_OPTIONS(tune),
        SAMPLE_OPTIONS(sample),
        {.name = NULL},
    };
    const options_spec spec = {program, "Train a GPT on text, byte by byte or by a tokenizer, or on token ids.", table};
    int status = options_parse(&spec, argc, argv);
    if (status < 0)
        status = read_tokenizer(tokenizer, &data, &sample, read);
    if (status < 0)
        status = check_sample(&sample, &tune);
    if (status < 0 && loaded && data.tokens.count)
        status = options_wrong(program, "--load writes text with a model of bytes; it cannot be used with --tokens");
    if (status < 0)
        status = check_model(&tune, &data, loaded);
    if (status >= 0)
        return status;
    data.eval_every = t.opts.eval_every;
    sample.sampler.seed = t.opts.seed;
    if (tune.model && finetune_trains(&tune, &data))
        return finetune(&t, &tune, &data, &c, lr, &spec);
    if (tune.model)
        return write_model(tune.model, &c, &t.opts, &sample);
    set_sizes(&c);
    if (loaded)
        return ranks_first() ? load_and_write(loaded, &data, c, &sample) : 0;
    return train_new(&t, &c, &data, &sample, lr, &spec);
}

int main(int argc, char **argv)
{
    struct tokenizer *read = NULL;
    streams_begin();
    const int status = run_program(argc, argv, &read);
    tokenizer_free(read);
    return streams_end(program, status);
}
