/* tests/models/lm_logits.c: logits of a language model, for tests/models/llama.py.
 *
 *     lm_logits FILE.gguf exact|rounded|inputs <LINES
 *
 * A line is a number and the tokens of a text: `200 504 1343 12`. The program runs the tokens one by one, and then as many as the number
 * says that have the greatest logits. For each token it writes the id, i32, and the logits behind it, f32 [vocab]. `inputs` is `rounded`
 * with the left factors of products, f32, behind the logits: those of q, o, gate and down of each block, and that of the head. */
#include "apps/common/model/lm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 8192, VALUES_MAX = 4 * LM_LAYERS_MAX + 2 };

/* A fetch of f32. */
struct value {
    char name[16];
    weir_array at;
};

struct model {
    lm_config c;
    weir_session *session;
    struct value value[VALUES_MAX]; /* the logits first */
    int values;
};

/* ---- the model ---- */

static void add_value(struct model *m, const char *name, weir_type type)
{
    struct value *v = &m->value[m->values++];
    snprintf(v->name, sizeof v->name, "%s", name);
    v->at = (weir_array){malloc((size_t)weir_shape_count(&type.shape) * sizeof(float)), WEIR_F32, type.shape};
}

static weir_tensor *fetch_input(void *ctx, weir_tensor *x, weir_tensor *base, const lm_product *of)
{
    struct model *m = ctx;
    char name[16];
    if (of->part == LM_Q || of->part == LM_O || of->part == LM_GATE || of->part == LM_DOWN || of->part == LM_HEAD) {
        snprintf(name, sizeof name, "input%d", m->values);
        add_value(m, name, weir_tensor_type(x));
        weir_fetch(x, .name = name);
    }
    return base;
}

static bool open_model(struct model *m, const char *path, const char *mode)
{
    char why[1024];
    lm_config *c = &m->c;
    if (!lm_read(path, c, why, sizeof why)) {
        fprintf(stderr, "lm_logits: %s\n", why);
        return false;
    }
    c->stored = true;
    c->room = c->context < TOKENS_MAX ? c->context : TOKENS_MAX;
    c->f32_activations = !strcmp(mode, "exact");
    c->kept = c->f32_activations ? WEIR_F32 : WEIR_BF16;
    add_value(m, "logits", (weir_type){WEIR_F32, {2, {1, c->vocab}}});
    if (!strcmp(mode, "inputs"))
        c->adapt = fetch_input, c->adapt_ctx = m;
    weir_graph *graph = lm_graph(c);
    weir_plan *plan = weir_compile(graph);
    m->session = plan ? weir_session_open(plan, .workers = 1, .cluster = {.alone = true}, .weights = lm_mapped(c)) : NULL;
    return m->session && !lm_load(m->session, c);
}

/* ---- texts ---- */

static int32_t largest(const float *x, int count)
{
    int32_t at = 0;
    for (int32_t i = 1; i < count; i++)
        at = x[i] > x[at] ? i : at;
    return at;
}

/* Runs the token and writes its values; *next: the likeliest token behind it. */
static bool run_token(struct model *m, int32_t token, int32_t position, int32_t *next)
{
    weir_session *s = m->session;
    const weir_array in = {&token, WEIR_I32, {2, {1, 1}}}, place = {&position, WEIR_I32, {.rank = 0}};
    if (weir_session_start(s, 1) || weir_session_push(s, "token", &in, -1) || weir_session_push(s, "position", &place, -1))
        return false;
    bool ok = fwrite(&token, sizeof token, 1, stdout) == 1;
    for (int i = 0; ok && i < m->values; i++) {
        struct value *v = &m->value[i];
        const size_t count = (size_t)weir_shape_count(&v->at.shape);
        ok = !weir_session_pull(s, v->name, &v->at, -1) && fwrite(v->at.data, sizeof(float), count, stdout) == count;
    }
    *next = largest(m->value[0].at.data, m->c.vocab);
    return ok && !weir_session_wait(s, -1);
}

static bool run_line(struct model *m, char *line)
{
    char *rest = line, *end;
    const long more = strtol(rest, &rest, 10);
    int32_t next = 0, position = 0;
    for (long token; position < m->c.room && (token = strtol(rest, &end, 10), end != rest); position++, rest = end)
        if (!run_token(m, (int32_t)token, position, &next))
            return false;
    for (long i = 0; i < more && position < m->c.room; i++, position++)
        if (!run_token(m, next, position, &next))
            return false;
    return true;
}

int main(int argc, char **argv)
{
    static char line[TOKENS_MAX * 8];
    static struct model m;
    bool ok = argc == 3 && open_model(&m, argv[1], argv[2]);
    while (ok && fgets(line, sizeof line, stdin))
        ok = run_line(&m, line);
    if (!ok)
        fprintf(stderr, "lm_logits: %s\n", argc == 3 ? weir_error() : "usage: lm_logits FILE.gguf exact|rounded|inputs <LINES");
    return ok && !fflush(stdout) ? 0 : 1;
}
