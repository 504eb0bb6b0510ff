/* tests/macros.c: every macro that a program writes in its own code, as C and as C++. tests/check_headers compiles it in
 * both with all warnings that people switch on; it is never run. */
#include <weir/weir.h>

#ifdef __cplusplus
#define NOTHING nullptr
#else
#define NOTHING NULL
#endif

typedef struct attrs {
    int64_t heads[2];
    double scale;
} attrs;

extern const weir_field fields[2];
const weir_field fields[2] = {WEIR_FIELD_INT(attrs, heads), WEIR_FIELD_REAL(attrs, scale)};

typedef struct callbacks {
    weir_source_fn source;
    weir_sink_fn sink;
    weir_kernel_fn call;
    weir_report_fn report;
} callbacks;

weir_tensor *build(weir_graph *g, const callbacks *c, const char *name, int index);
weir_status run(weir_graph *g, const callbacks *c);

weir_tensor *build(weir_graph *g, const callbacks *c, const char *name, int index)
{
    weir_mesh *mesh = weir_mesh_new(g, "cpu:0-3", .shape = {2, 2});
    weir_tensor *x = weir_input(g, WEIR_F32, {64, 8}, .name = "x", .sbp = {WEIR_S(0)}, .micro = true, .source = c->source);
    weir_data *data = weir_data_tokens("*.bin", .seq = 8, .to = 0.9);
    x = weir_add(x, weir_data_input(g, data, .rows = 64, .name = "tokens", .sbp = {WEIR_S(0)}, .micro_batches = 2, .labels = true));
    x = weir_add(x, weir_data_input(g, weir_data_npy("*.npy", .seed = 1), .rows = 64));
    WEIR_ON(mesh, .name = "layer%d", .index = index)
        x = weir_relu(weir_linear(x, 16, .name = name, .init = WEIR_NORMAL(0.5)));
    WEIR_NAMED(g, name) {
        WEIR_ON(mesh)
            x = weir_gelu(x, .name = name);
    }
    WEIR_NAMED(g, "stage%d", .index = index)
        x = weir_silu(x);
    weir_tensor *w = weir_param(g, WEIR_F32, {8, 16}, .name = "w", .init = WEIR_UNIFORM(-1, 1), .frozen = true);
    weir_tensor *h = weir_state(g, WEIR_F32, {8, 16}, .name = "h", .init = WEIR_VALUE(2));
    weir_state_set(h, w);
    weir_state_append(h, w, weir_argmax(x));
    weir_tensor *y[2];
    weir_call_many(y, c->call, {x}, .out = {{.dtype = WEIR_F32, .shape = {8}}, {.dtype = WEIR_I32, .shape = {2}}});
    x = weir_call(c->call, {x, w}, .dtype = WEIR_F32, .shape = {8}, .ctx = g);
    x = weir_shard(x, .sbp = {WEIR_B, WEIR_P}, .mesh = mesh);
    x = weir_add(weir_sum(x), weir_max(x, .axes = {-1}, .axis_count = 1));
    x = weir_concat(0, {x, x}, .name = "both");
    x = weir_reshape(x, {8, -1});
    x = weir_transpose(x, {0, 2, 1}, .name = "turned");
    x = weir_affine(weir_slice(x, 0, 1, 2), 3, .shift = 0.5);
    x = weir_matmul(weir_affine(x, 3), x, .trans_b = true);
    x = weir_add(weir_constant(g, WEIR_F32, {8, 2}, .name = "c", .value = 0.5), weir_range(g, WEIR_F32, 2, .start = 1, .step = 2));
    x = weir_add(weir_expand(x, {3, 8, 2}), weir_slice(x, 0, 7, 8, .name = "back", .step = -1));
    x = weir_gather(weir_gather_nd(x, x, 0, .name = "nd"), weir_gather_elements(x, x, 1), -1);
    x = weir_one_hot(x, 4, -1, .name = "hot");
    x = weir_add(weir_cumsum(x, -1, .exclusive = true), weir_top_k(x, 2, 0, y, .smallest = true));
    x = weir_resize(weir_pad(x, .before = {1, 2}, .after = {0, 1}, .mode = WEIR_PAD_EDGE), {4, 8}, .mode = WEIR_RESIZE_LINEAR);
    x = weir_mul(weir_min(x, .axes = {0}, .axis_count = 1), weir_prod(x));
    x = weir_embedding_with(weir_argmin(x), weir_cast(weir_argmax(x, .name = "most", .axis = 0, .keep = true), WEIR_F32));
    x = weir_linear_stored(weir_embedding_stored(x, w, .format = WEIR_Q8_0), w, .format = WEIR_Q4_1, .f32_activations = true);
    x = weir_rope(x, NOTHING, .heads = 2, .base = 500000, .scaling = {.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4,
                  .original_max_position = 8192});
    x = weir_attention(x, x, x, .heads = 4, .causal = true, .kv_heads = 2, .window = 8, .mask = w);
    x = weir_attention_kept(x, x, x, w, w, h, .heads = 4, .kv_heads = 2, .window = 8, .mask = w);
    x = weir_layernorm(weir_embedding(x, 3, 4, .weight = {WEIR_S(0)}), .eps = WEIR_ZERO);
    x = weir_batchnorm(weir_batchnorm(x), .eps = WEIR_ZERO, .momentum = 0.2);
    x = weir_lora(x, weir_lora(x, x, 4, 8), 2, 4, .name = "q", .a = {WEIR_S(1)}, .dropout = 0.1);
    x = weir_unbatch(weir_batch(weir_dropout(weir_cast(x, WEIR_F32), 0.1), 2));
    weir_slots(x, 2);
    WEIR_PROGRAM(g, "eval", .train = false)
        weir_fetch(x, .name = "y", .sink = c->sink);
    weir_graph_program(g, "other");
    x = weir_op_apply(WEIR_OF(weir_apply, .src = WEIR_HERE, .op = weir_op_find("neg"), .in = &x, .in_count = 1), NOTHING);
    if (weir_op_check(weir_op_find("neg"), .inputs = {WEIR_ARRAY(NOTHING, WEIR_F32, 7, 5), WEIR_ARRAY(NOTHING, WEIR_F32)}))
        return NOTHING;
    return x;
}

weir_status run(weir_graph *g, const callbacks *c)
{
    float value[8] = {0};
    const int64_t start[] = {7, 0};
    int64_t rows = 4;
    weir_tensor *loss = weir_cross_entropy(build(g, c, "up", 0), NOTHING, .ignore = true, .ignore_index = -1);
    const weir_optimizer sgd = weir_sgd();
    weir_train(loss, sgd);
    weir_train(loss, weir_adamw(.lr = 0.1, .clip_norm = 1), .zero = {true});
    weir_train(weir_mse(loss, weir_tied(loss, loss)), weir_lion(.groups = {{.match = "*bias", .lr = 0.1}, {.match = "*"}},
               .schedule = WEIR_SCHEDULE_LINEAR, .rate = loss), .norm = "norm", .ema = 0.99);
    weir_train(weir_binary_cross_entropy(loss, loss, .sum = true), weir_adam(.eps = 1));
    weir_train(loss, weir_lamb()), weir_train(loss, weir_adagrad());
    weir_plan *plan = weir_compile(g, .memory = "1MiB", .precision = WEIR_BF16);
    weir_session *s = weir_session_open(plan, .workers = 2, .cluster = {.alone = true}, .report = c->report);
    if (weir_session_push(s, "x", WEIR_ARRAY(value, WEIR_F32, 2, 4), -1) || weir_session_run(s, 3) ||
        weir_session_start(s, 10, .program = "eval") || weir_session_pull(s, "y", WEIR_ARRAY(value, WEIR_F32, rows), 0) ||
        weir_session_read(s, "w", WEIR_ARRAY(value, WEIR_F32)) || weir_session_save(s, "runs/a", .keep = 3) ||
        weir_session_load(s, "runs/a") || weir_plan_list(plan, NOTHING, .json = true))
        return WEIR_E_STATE;
    weir_checkpoint *checkpoint = weir_checkpoint_open("runs/a", .unverified = true);
    weir_status status = weir_checkpoint_read(checkpoint, weir_checkpoint_find(checkpoint, "w"), 0, start,
                                              WEIR_ARRAY(value, WEIR_F32, 1, 8));
    weir_checkpoint_writer *writer = weir_checkpoint_create("runs/b", .step = 3);
    status = weir_checkpoint_add(writer, WEIR_OF(weir_checkpoint_value, .name = "w", .value = {value, WEIR_F32, {1, {8}}}));
    weir_checkpoint_abandon(writer);
    return status;
}
