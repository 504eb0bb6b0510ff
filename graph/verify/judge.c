/* graph/verify/judge.c: see the header. */
#include "graph/verify/judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/verify/sample.h"

struct verdict {
    uint64_t key[2];
    bool right;
    bool term[INS_MAX];
    struct outcome out[OUTS_MAX];
};

struct judge {
    uint64_t seed;
    sample *sample;            /* owned; that of the call */
    struct verdict **verdicts; /* owned, each; a hash set, by key */
    size_t count, room;        /* a power of two */
};

/* ---- classes ---- */

static void stir_word(uint64_t key[2], uint64_t word)
{
    const int64_t words[] = {(int64_t)key[0], (int64_t)key[1], (int64_t)word};
    key[0] = field_bits(key[1], "class", words, 3);
    key[1] = field_bits(key[0], "ssalc", words, 3);
}

/* Everything that a verdict depends on. */
static void class_key(const sample *s, uint64_t key[2])
{
    const judge_call *call = s->call;
    key[0] = field_bits(s->seed, call->op->name, NULL, 0);
    key[1] = key[0] ^ (uint64_t)call->in_count << 32 ^ (uint64_t)call->out_count << 16 ^ (uint64_t)call->state_count;
    for (size_t w = 0; w < call->op->attrs_bytes / sizeof *call->words; w++)
        stir_word(key, (uint64_t)call->words[w].i);
    for (int o = 0; o < s->operands; o++) {
        const judge_operand *operand = sample_operand(call, o);
        stir_word(key, (uint64_t)operand->array.dtype << 8 ^ (uint64_t)operand->array.rank);
        for (int d = 0; d < operand->array.rank; d++) {
            const struct atom *atom = sample_atom(s, o, d);
            stir_word(key, (uint64_t)(atom ? atom->unit : operand->array.global[d]));
            stir_word(key, atom ? 1 + (uint64_t)atom->key : 0);
        }
        if (o < s->ins) {
            stir_word(key, operand->scale.of[0]);
            stir_word(key, operand->scale.of[1]);
            stir_word(key, s->term[o]);
        }
    }
    for (int k = 0; k < s->key_count; k++)
        for (int c = 1; c <= PARTS; c++)
            stir_word(key, (uint64_t)s->keys[k].cut[c]);
    stir_word(key, (uint64_t)call->micros);
}

/* Where the class is, or where there is room for it. */
static struct verdict **verdict_at(const judge *j, const uint64_t key[2])
{
    size_t at = key[0] & (j->room - 1);
    while (j->verdicts[at] && (j->verdicts[at]->key[0] != key[0] || j->verdicts[at]->key[1] != key[1]))
        at = (at + 1) & (j->room - 1);
    return &j->verdicts[at];
}

/* A new one. NULL: no memory. */
static struct verdict *verdict_new(judge *j, const uint64_t key[2])
{
    const judge old = *j;
    if (2 * j->count >= j->room) {
        struct verdict **more = calloc(2 * j->room, sizeof *more);
        if (!more)
            return NULL;
        j->room *= 2;
        j->verdicts = more;
        for (size_t i = 0; i < old.room; i++)
            if (old.verdicts[i])
                *verdict_at(j, old.verdicts[i]->key) = old.verdicts[i];
        free(old.verdicts);
    }
    struct verdict *verdict = calloc(1, sizeof *verdict);
    if (verdict) {
        memcpy(verdict->key, key, sizeof verdict->key);
        *verdict_at(j, key) = verdict;
        j->count++;
    }
    return verdict;
}

/* ---- shares ---- */

/* A random function of a fraction, 0 at 0 and 1 at 1: its differences are shares of parts. */
static field_value measure(uint64_t seed, const int64_t numbers[3], int64_t above, int64_t below)
{
    const int64_t common = common_divisor(above, below);
    if (!above || above == below)
        return field_int(above != 0);
    return field_draw(seed, "share", (const int64_t[]){numbers[0], numbers[1], numbers[2], above / common, below / common}, 5);
}

static field_value share_of_atom(const sample *s, const struct atom *atom)
{
    const struct fractions *f = &s->keys[atom->key];
    const int64_t numbers[] = {(int64_t)s->call->origin, atom->operand, atom->dim};
    return field_sub(measure(s->seed, numbers, f->end, f->all), measure(s->seed, numbers, f->first, f->all));
}

/* Terms of several sums are terms of one: their shares are mixed with weights that are the same everywhere. */
static field_value share_of(const sample *s, const struct verdict *verdict, const struct outcome *out)
{
    field_value sum = field_int(0), weights = field_int(0), share = field_int(1);
    for (int i = -1; i < s->ins && out->terms; i++) {
        if (i < 0 ? !out->joint : !verdict->term[i])
            continue;
        const int64_t numbers[] = {(int64_t)s->call->origin, i};
        const field_value weight = field_draw(s->seed, "weight", numbers, 2);
        const field_value own = i < 0 ? share_of_atom(s, &s->atoms[out->contracted[0]]) : s->call->in[i].share;
        sum = field_add(sum, field_mul(weight, own));
        weights = field_add(weights, weight);
    }
    if (out->terms)
        share = field_div(sum, weights);
    for (int c = out->joint; c < out->count; c++)
        share = field_mul(share, share_of_atom(s, &s->atoms[out->contracted[c]]));
    return share;
}

/* ---- judge ---- */

judge *judge_new(uint64_t seed, uint64_t elements_max)
{
    judge *j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    *j = (judge){.seed = seed, .room = 64};
    j->verdicts = calloc(j->room, sizeof *j->verdicts);
    j->sample = calloc(1, sizeof *j->sample);
    if (j->verdicts && j->sample) {
        j->sample->seed = seed;
        j->sample->elements_max = elements_max;
        return j;
    }
    judge_free(j);
    return NULL;
}

void judge_free(judge *j)
{
    if (!j)
        return;
    for (size_t i = 0; j->verdicts && i < j->room; i++)
        free(j->verdicts[i]);
    free(j->verdicts);
    free(j->sample);
    free(j);
}

static bool is_scaled(const judge_call *call)
{
    bool scaled = false;
    for (int i = 0; i < call->in_count; i++)
        scaled = scaled || !field_equal(call->in[i].scale, field_int(1));
    return scaled;
}

/* Nothing is cut, a term, or scaled: the call is the op. */
static weir_status take_whole(const judge_call *call)
{
    for (int o = 0; o < call->out_count + call->state_count; o++) {
        judge_operand *out = o < call->out_count ? &call->out[o] : &call->state[o - call->out_count];
        out->share = out->scale = field_int(1);
    }
    return WEIR_OK;
}

static weir_status judge_sample(judge *j, sample *s)
{
    const judge_call *call = s->call;
    uint64_t key[2];
    weir_status status = WEIR_OK;
    class_key(s, key);
    struct verdict *verdict = *verdict_at(j, key);
    if (!verdict) {
        verdict = verdict_new(j, key);
        status = verdict ? sample_judge(s, is_scaled(call), verdict->out, &verdict->right) : WEIR_E_MEMORY;
        if (!status)
            memcpy(verdict->term, s->term, sizeof verdict->term);
    }
    if (status) {
        snprintf(s->error, s->error_bytes, "its operands take more memory than there is");
        return status;
    }
    for (int o = 0; verdict->right && o < s->operands - s->ins; o++) {
        judge_operand *out = o < call->out_count ? &call->out[o] : &call->state[o - call->out_count];
        out->share = share_of(s, verdict, &verdict->out[o]);
        out->scale = verdict->out[o].scale;
    }
    if (!verdict->right)
        snprintf(s->error, s->error_bytes, "its results are neither parts nor terms of what %s computes of its inputs",
                 call->op->name);
    return verdict->right ? WEIR_OK : WEIR_E_WRONG;
}

weir_status judge_make(judge *j, const judge_call *call, char *error, size_t error_bytes)
{
    sample *s = j->sample;
    if (!sample_open(s, call, error, error_bytes)) {
        snprintf(error, error_bytes, "it cuts its operands in more ways than can be judged");
        return WEIR_E_MEMORY;
    }
    return s->atom_count || s->has_terms || is_scaled(call) ? judge_sample(j, s) : take_whole(call);
}
