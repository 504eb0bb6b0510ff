/* tests/support/referee.c: see the header. */
#include "tests/graph/verify/doubles.h"

#define player_bytes double_player_bytes
#define player_open double_player_open
#define player_close double_player_close
#define player_run double_player_run
#define player_kept double_player_kept
#define player_kept_name double_player_kept_name
#include "graph/verify/player.c"

#include "tests/support/referee.h"

enum { DATA_SETS = 2, STEPS = 3, ELEMENTS_MAX = 1 << 24 };
#define TOLERANCE 1e-9

/* A whole tensor, put together from its shards; what no shard has is NaN. */
struct outcome {
    char *name; /* owned */
    int64_t step, count;
    int micro;
    double *value; /* owned */
};

struct play {
    int classes;
    uint64_t data; /* the number of the data set */
    struct outcome *outcome; /* owned */
    size_t count, room;
    bool failed;
};

struct referee {
    int classes;
    struct play right[DATA_SETS];
};

/* ---- what a plan is given ---- */

static double normal_of(uint64_t seed, const char *name, const int64_t *numbers, int count)
{
    const double a = field_draw(seed, name, numbers, count).of[0], b = field_draw(seed + 1, name, numbers, count).of[0];
    return sqrt(-2 * log(a + 1e-12)) * cos(2 * M_PI * b);
}

/* The data sets differ in how large their numbers are: a norm of gradients is above its limit of 1 in one, and below in the other. */
static double size_of(const struct play *play)
{
    return play->data ? 0.05 : 1;
}

static bool give(void *ctx, const char *input, int64_t step, int micro, const rule_array *array)
{
    const struct play *play = ctx;
    for (int64_t n = 0; n < array->count; n++) {
        const int64_t numbers[] = {step, micro, rule_logical(array, n)};
        if (weir_dtype_real(array->dtype))
            array->at[n] = field_real(size_of(play) * normal_of(play->data, input, numbers, 3));
        else
            array->at[n] = field_int((int64_t)(field_bits(play->data, input, numbers, 3) % (uint64_t)play->classes));
    }
    return true;
}

/* Means of squares are above 0, and the scale of a loss is a power of two. */
static void begin(void *ctx, const char *kept, const rule_array *array)
{
    const struct play *play = ctx;
    const bool positive = strstr(kept, ":adamw.v"), scale = strstr(kept, PLAN_LOSS_SCALE);
    for (int64_t n = 0; n < array->count; n++) {
        const int64_t place = rule_logical(array, n);
        if (!weir_dtype_real(array->dtype))
            array->at[n] = field_int(1 + (int64_t)(field_bits(play->data, kept, &place, 1) % 3));
        else if (scale)
            array->at[n] = field_int(1024);
        else
            array->at[n] = positive ? field_draw(play->data, kept, &place, 1) : field_real(0.4 * size_of(play) * normal_of(play->data, kept, &place, 1));
    }
}

/* ---- what comes of it ---- */

static struct outcome *find(const struct play *play, const char *name, int64_t step, int micro)
{
    for (size_t i = 0; i < play->count; i++) {
        struct outcome *o = &play->outcome[i];
        if (o->step == step && o->micro == micro && !strcmp(o->name, name))
            return o;
    }
    return NULL;
}

static struct outcome *outcome_new(struct play *play, const char *name, int64_t step, int micro, int64_t count)
{
    if (play->count == play->room) {
        const size_t room = 2 * play->room + 32;
        struct outcome *more = realloc(play->outcome, room * sizeof *more);
        if (!more)
            return NULL;
        play->outcome = more;
        play->room = room;
    }
    struct outcome *o = &play->outcome[play->count];
    *o = (struct outcome){strdup(name), step, count, micro, malloc((size_t)count * sizeof *o->value + 1)};
    if (!o->name || !o->value) {
        free(o->name);
        free(o->value);
        return NULL;
    }
    for (int64_t n = 0; n < count; n++)
        o->value[n] = NAN;
    play->count++;
    return o;
}

static void note(struct play *play, const char *name, int64_t step, int micro, const rule_array *shard)
{
    int64_t count = 1;
    for (int d = 0; d < shard->rank; d++)
        count = shard->global[d] > ELEMENTS_MAX / (count + 1) ? ELEMENTS_MAX + 1 : count * shard->global[d];
    struct outcome *o = count > ELEMENTS_MAX ? NULL : find(play, name, step, micro);
    if (!o && count <= ELEMENTS_MAX)
        o = outcome_new(play, name, step, micro, count);
    play->failed |= !o || o->count != count;
    for (int64_t n = 0; !play->failed && n < shard->count; n++) {
        double *value = &o->value[rule_logical(shard, n)];
        const double is = shard->at[n].of[0];
        *value = isnan(*value) || fabs(*value - is) <= TOLERANCE * (fabs(is) + 1) ? is : NAN; /* copies that differ are none */
    }
}

static void see(void *ctx, const char *fetch, int64_t step, int micro, const rule_array *array)
{
    note(ctx, fetch, step, micro, array);
}

static void play_free(struct play *play)
{
    for (size_t i = 0; i < play->count; i++) {
        free(play->outcome[i].name);
        free(play->outcome[i].value);
    }
    free(play->outcome);
}

/* A parameter has the number of a step behind the last. */
static struct play play_plan(const weir_plan *plan, int classes, uint64_t data, uint64_t order)
{
    struct play play = {.classes = classes, .data = data};
    const player_ends ends = {.ctx = &play, .give = give, .begin = begin, .see = see};
    player *p = NULL;
    play.failed = player_open(&p, plan, data, &ends) || player_run(p, 0, STEPS, order);
    for (uint32_t i = 0; i < plan->params_count && !play.failed; i++)
        for (uint32_t s = plan->params[i].shards.first; s < plan->params[i].shards.first + plan->params[i].shards.count; s++)
            note(&play, plan_text(plan, plan->params[i].name), STEPS, 0, player_kept(p, plan->shards[s].i));
    player_close(p);
    return play;
}

static bool same(const struct outcome *a, const struct outcome *b)
{
    double most = 0;
    bool alike = a && a->count == b->count;
    for (int64_t n = 0; n < b->count; n++)
        most = fabs(b->value[n]) > most ? fabs(b->value[n]) : most;
    for (int64_t n = 0; alike && n < b->count; n++)
        alike = fabs(a->value[n] - b->value[n]) <= TOLERANCE * most;
    return alike;
}

static bool is_finite(const struct play *play)
{
    bool finite = true;
    for (size_t i = 0; i < play->count; i++)
        for (int64_t n = 0; finite && n < play->outcome[i].count; n++)
            finite = isfinite(play->outcome[i].value[n]);
    return finite;
}

static bool plays_differ(const struct play *is, const struct play *right)
{
    bool other = is->failed || is->count != right->count;
    for (size_t i = 0; !other && i < right->count; i++) {
        const struct outcome *o = &right->outcome[i];
        other = !same(find(is, o->name, o->step, o->micro), o);
    }
    return other;
}

referee *referee_new(const weir_plan *plan, int classes)
{
    referee *j = calloc(1, sizeof *j);
    bool ok = j != NULL;
    for (int d = 0; d < DATA_SETS && ok; d++) {
        j->classes = classes;
        j->right[d] = play_plan(plan, classes, (uint64_t)d, 0);
        ok = !j->right[d].failed && is_finite(&j->right[d]);
    }
    if (ok)
        return j;
    referee_free(j);
    return NULL;
}

void referee_free(referee *j)
{
    for (int d = 0; j && d < DATA_SETS; d++)
        play_free(&j->right[d]);
    free(j);
}

bool referee_differs(const referee *j, const weir_plan *plan, uint64_t order)
{
    bool differ = false;
    for (int d = 0; !differ && d < DATA_SETS; d++) {
        struct play is = play_plan(plan, j->classes, (uint64_t)d, order);
        differ = plays_differ(&is, &j->right[d]);
        play_free(&is);
    }
    return differ;
}
