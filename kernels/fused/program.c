/* program.c: see the header. Members come in their order, so a value is made before it is read. A program is made twice: in
 * the first one an input is loaded when the first member reads it, which keeps few slots in use, and stays until the last one
 * has. The second one begins with all of these loads. It is taken if it has enough slots. */
#include "kernels/fused/program.h"

#include "kernels/cuda/chunks.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/norm/formula.h"
#include "kernels/random/dropout.h"

#include <string.h>

enum { CODES = FUSED_SCRATCH + FUSED_SCRATCH_MAX, NO_SLOT = -1 };

typedef struct making {
    const fused_types *types;
    fused_program *p;
    weir_shape like;
    int reads[CODES], slot[CODES]; /* of each value: reads that are still to come, and where it is */
    bool used[PROGRAM_SLOTS];
    bool failed;
} making;

/* ---- words ---- */

/* `count` codes at *at, each of one of 0 .. CODES - 1. */
static bool take_codes(const fused_attrs *attrs, int *at, int count, int *codes)
{
    for (int i = 0; i < count; i++, (*at)++) {
        if (*at >= FUSED_WORDS || attrs->word[*at] < 0 || attrs->word[*at] >= CODES)
            return false;
        codes[i] = (int)attrs->word[*at];
    }
    return true;
}

bool fused_take(const fused_attrs *attrs, int *at, fused_member *m, fused_words *found)
{
    const int64_t *word = attrs->word + *at;
    memset(m, 0, sizeof *m);
    if (*at + FUSED_NAME + 3 > FUSED_WORDS || !memchr(word, 0, FUSED_NAME * 8))
        return false;
    found->name = (const char *)word;
    m->key = (uint64_t)word[FUSED_NAME];
    int64_t ins = word[FUSED_NAME + 1], outs = word[FUSED_NAME + 2];
    if (ins < 0 || ins > FUSED_INS_MAX || outs < 0 || outs > FUSED_OUTS_MAX)
        return false;
    m->in_count = (int)ins;
    m->out_count = (int)outs;
    *at += FUSED_NAME + 3;
    if (!take_codes(attrs, at, m->in_count, m->in) || !take_codes(attrs, at, m->out_count, m->out) ||
        *at >= FUSED_WORDS)
        return false;
    found->words = attrs->word[*at];
    if (found->words < 0 || found->words > FUSED_WORDS - *at - 1)
        return false;
    m->attrs = attrs->word + *at + 1;
    *at += 1 + (int)found->words;
    return true;
}

static const char *const names[STEP_CODES] = {
#define X(name) [STEP_##name] = #name,
    STEP_FUNCTIONS(X) STEP_GRADIENTS(X) STEP_PAIRS(X) STEP_OTHERS(X)
#undef X
};

/* The step that the op is; STEP_CODES: none. */
static step_code code_named(const char *name)
{
    int code = STEP_DRAW + 1;
    while (code < STEP_CODES && strcmp(names[code], name) != 0)
        code++;
    return (step_code)code;
}

/* ---- types ---- */

/* How the tensor of a code meets the rows: as a tensor with rows, or a single row that is the same for all. */
typedef struct meeting {
    weir_dtype dtype;
    bool rows;
    int64_t last;
} meeting;

static bool real(weir_dtype dtype)
{
    return dtype == WEIR_F32 || dtype == WEIR_F16 || dtype == WEIR_BF16;
}

static int64_t product(const weir_shape *shape, int end)
{
    int64_t count = 1;
    for (int d = 0; d < end; d++)
        count *= shape->dim[d];
    return count;
}

/* False: it meets them in no such way. */
static bool meet(const making *m, int code, meeting *x)
{
    const int lead = m->like.rank - 1;
    if (code >= FUSED_SCRATCH) {
        const int64_t *type = m->types->attrs->type[code - FUSED_SCRATCH];
        *x = (meeting){(weir_dtype)type[0], true, type[1]};
        return type[1] >= 0;
    }
    const bool out = code >= FUSED_OUT;
    const int at = out ? code - FUSED_OUT : code;
    if (at >= (out ? m->types->out_count : m->types->in_count))
        return false;
    const weir_type *type = out ? &m->types->out[at] : &m->types->in[at];
    const weir_shape *shape = &type->shape;
    *x = (meeting){type->dtype, true, shape->rank ? shape->dim[shape->rank - 1] : 1};
    x->rows = shape->rank == lead + 1 && !memcmp(shape->dim, m->like.dim, sizeof shape->dim[0] * (size_t)lead);
    return x->rows || product(shape, shape->rank - 1) == 1;
}

/* Whether it is of all rows and columns. */
static bool whole(const making *m, int code)
{
    meeting x;
    return meet(m, code, &x) && x.rows && x.last == m->p->columns && real(x.dtype);
}

static weir_dtype dtype_of(const making *m, int code)
{
    meeting x = {WEIR_DTYPE_NONE, false, 0};
    meet(m, code, &x);
    return x.dtype;
}

/* ---- steps, operands and slots ---- */

static void refuse_unless(making *m, bool ok)
{
    m->failed |= !ok;
}

static program_step *add_step(making *m, step_code code)
{
    refuse_unless(m, m->p->steps < PROGRAM_STEPS);
    if (!m->failed)
        m->p->steps++;
    program_step *step = &m->p->step[m->p->steps ? m->p->steps - 1 : 0];
    *step = (program_step){.code = (uint8_t)code, .dtype = WEIR_F32};
    return step;
}

static uint8_t add_operand(making *m, int code, weir_dtype dtype, int64_t row_step, int column_step)
{
    fused_program *p = m->p;
    for (int o = 0; o < p->operands; o++)
        if (p->code[o] == code && p->operand[o].row_step == row_step && p->operand[o].column_step == column_step)
            return (uint8_t)o;
    refuse_unless(m, p->operands < PROGRAM_OPERANDS && code < FUSED_SCRATCH);
    if (m->failed)
        return 0;
    p->code[p->operands] = (uint8_t)code;
    p->operand[p->operands] = (program_operand){NULL, row_step, (uint8_t)dtype, (uint8_t)column_step, false};
    return (uint8_t)p->operands++;
}

static uint8_t take_slot(making *m)
{
    int s = 0;
    while (s < PROGRAM_SLOTS && m->used[s])
        s++;
    refuse_unless(m, s < PROGRAM_SLOTS);
    if (m->failed)
        return 0;
    m->used[s] = true;
    return (uint8_t)s;
}

static void leave_slot(making *m, int code)
{
    if (m->slot[code] == NO_SLOT)
        return;
    m->used[m->slot[code]] = false;
    m->slot[code] = NO_SLOT;
}

/* The slot of a value that a member reads; an input is loaded, if it is not there. */
static uint8_t read_value(making *m, int code)
{
    meeting x = {0};
    refuse_unless(m, meet(m, code, &x) && (x.last == m->p->columns || x.last == 1) &&
                         (code < FUSED_OUT || m->slot[code] != NO_SLOT));
    if (m->failed || m->slot[code] != NO_SLOT)
        return m->failed ? 0 : (uint8_t)m->slot[code];
    const uint8_t slot = take_slot(m);
    const uint8_t operand = add_operand(m, code, x.dtype, x.rows ? x.last : 0, x.last == m->p->columns);
    program_step *step = add_step(m, STEP_LOAD);
    step->to = slot;
    step->operand[0] = operand;
    if (!m->failed)
        m->slot[code] = slot;
    return slot;
}

/* A member has read it. */
static void release(making *m, int code)
{
    if (--m->reads[code] <= 0)
        leave_slot(m, code);
}

/* The result of a step in `slot` is the tensor: it goes to memory unless only members read it. */
static void made(making *m, int code, uint8_t slot)
{
    meeting x = {0};
    refuse_unless(m, code >= FUSED_OUT && meet(m, code, &x) && x.rows && x.last == m->p->columns &&
                         m->slot[code] == NO_SLOT);
    if (m->failed)
        return;
    m->slot[code] = slot;
    if (code < FUSED_SCRATCH) {
        const uint8_t operand = add_operand(m, code, x.dtype, x.last, 1);
        program_step *step = add_step(m, STEP_STORE);
        step->a = slot;
        step->operand[0] = operand;
    }
    if (!m->reads[code])
        leave_slot(m, code);
}

/* An input that is one f32 for each column, or for each row. */
static uint8_t beside(making *m, int code, bool by_row)
{
    refuse_unless(m, code < FUSED_OUT);
    return add_operand(m, code, WEIR_F32, by_row, !by_row);
}

/* An output of one f32 for each row. */
static uint8_t row_out(making *m, int code)
{
    refuse_unless(m, code >= FUSED_OUT && code < FUSED_SCRATCH && !m->reads[code]);
    return add_operand(m, code, WEIR_F32, 1, 0);
}

/* An output of sums over the rows. */
static uint8_t add_sum(making *m, int code)
{
    fused_program *p = m->p;
    refuse_unless(m, p->sums < PROGRAM_SUMS && code >= FUSED_OUT && code < FUSED_SCRATCH && !m->reads[code]);
    if (m->failed)
        return 0;
    p->sum[p->sums] = (program_sum){(uint8_t)(code - FUSED_OUT), NULL};
    if (p->way == PROGRAM_EACH)
        p->way = PROGRAM_TILE;
    return (uint8_t)p->sums++;
}

/* ---- members ---- */

/* One step, of which in[first], and in[second] if that is not negative, are the values, and out[0] is the result. */
static program_step *make_value(making *m, const fused_member *x, step_code code, int first, int second)
{
    const uint8_t a = read_value(m, x->in[first]), b = second < 0 ? a : read_value(m, x->in[second]);
    for (int i = 0; i < x->in_count && !m->failed; i++)
        release(m, x->in[i]);
    const uint8_t to = take_slot(m);
    program_step *step = add_step(m, code);
    step->a = a;
    step->b = b;
    step->to = to;
    step->dtype = (uint8_t)dtype_of(m, x->out[0]);
    refuse_unless(m, real((weir_dtype)step->dtype));
    return step;
}

static void put_value(making *m, const fused_member *x, step_code code, int first, int second)
{
    const bool pair = code >= STEP_PAIRS_FIRST && code < STEP_PAIRS_END;
    refuse_unless(m, pair || (whole(m, x->in[first]) && (second < 0 || whole(m, x->in[second]))));
    const uint8_t to = make_value(m, x, code, first, second)->to;
    made(m, x->out[0], to);
}

/* The sum is of f32, and rounded by the last addition. */
static void put_add_many(making *m, const fused_member *x)
{
    uint8_t sum = 0;
    for (int i = 0; i < x->in_count && !m->failed; i++) {
        refuse_unless(m, whole(m, x->in[i]));
        const uint8_t term = read_value(m, x->in[i]);
        if (i == 0)
            sum = take_slot(m);
        program_step *step = add_step(m, i ? STEP_add : STEP_cast);
        step->a = i ? sum : term;
        step->b = term;
        step->to = sum;
        step->dtype = (uint8_t)(i == x->in_count - 1 ? dtype_of(m, x->out[0]) : WEIR_F32);
        release(m, x->in[i]);
    }
    made(m, x->out[0], sum);
}

static void put_affine(making *m, const fused_member *x)
{
    const affine_attrs *attrs = x->attrs;
    refuse_unless(m, whole(m, x->in[0]));
    program_step *step = make_value(m, x, STEP_affine, 0, -1);
    step->scale = (float)attrs->scale;
    step->shift = (float)attrs->shift;
    made(m, x->out[0], step->to);
}

/* out[1] is the mask. */
static void put_dropout(making *m, const fused_member *x)
{
    const dropout_attrs *attrs = x->attrs;
    fused_program *p = m->p;
    refuse_unless(m, whole(m, x->in[0]) && p->draws < PROGRAM_DRAWS && dtype_of(m, x->out[1]) == WEIR_U8);
    const uint8_t a = read_value(m, x->in[0]), mask = take_slot(m);
    if (m->failed)
        return;
    p->draw[p->draws] = (program_draw){(uint8_t)x->out[0], dropout_threshold(attrs), x->key};
    program_step *draw = add_step(m, STEP_DRAW);
    draw->to = mask;
    draw->draw = (uint8_t)p->draws++;
    release(m, x->in[0]);
    const uint8_t to = take_slot(m);
    program_step *step = add_step(m, STEP_dropout);
    step->a = a;
    step->b = mask;
    step->to = to;
    step->dtype = (uint8_t)dtype_of(m, x->out[0]);
    step->scale = dropout_scale(attrs);
    made(m, x->out[0], to);
    made(m, x->out[1], mask);
}

static void put_dropout_grad(making *m, const fused_member *x)
{
    refuse_unless(m, dtype_of(m, x->in[0]) == WEIR_U8 && whole(m, x->in[1]));
    program_step *step = make_value(m, x, STEP_dropout, 1, 0);
    step->scale = dropout_scale(x->attrs);
    made(m, x->out[0], step->to);
}

/* x, gain, bias -> y, mean, rstd; rmsnorm has neither bias nor mean. */
static void put_norm(making *m, const fused_member *x, step_code code)
{
    const struct norm_attrs *attrs = x->attrs;
    const bool centred = code == STEP_layernorm;
    m->p->way = PROGRAM_ROW;
    refuse_unless(m, whole(m, x->in[0]));
    const uint8_t gain = beside(m, x->in[1], false), bias = centred ? beside(m, x->in[2], false) : 0;
    const uint8_t mean = centred ? row_out(m, x->out[1]) : 0, rstd = row_out(m, x->out[centred ? 2 : 1]);
    program_step *step = make_value(m, x, code, 0, -1);
    memcpy(step->operand, (uint8_t[]){gain, bias, mean, rstd}, sizeof step->operand);
    step->eps = attrs->eps;
    made(m, x->out[0], step->to);
}

/* x, gain, mean, rstd, dy -> dx, dgain, dbias */
static void put_norm_grad(making *m, const fused_member *x, step_code code)
{
    const bool centred = code == STEP_layernorm_grad;
    const int dy = x->in_count - 1;
    m->p->way = PROGRAM_ROW;
    refuse_unless(m, whole(m, x->in[0]) && whole(m, x->in[dy]));
    const uint8_t gain = beside(m, x->in[1], false), mean = centred ? beside(m, x->in[2], true) : 0;
    const uint8_t rstd = beside(m, x->in[centred ? 3 : 2], true);
    const uint8_t dgain = add_sum(m, x->out[1]), dbias = centred ? add_sum(m, x->out[2]) : 0;
    program_step *step = make_value(m, x, code, 0, dy);
    memcpy(step->operand, (uint8_t[]){gain, 0, mean, rstd}, sizeof step->operand);
    step->sum = dgain;
    step->more = dbias;
    made(m, x->out[0], step->to);
}

static void put_softmax(making *m, const fused_member *x, step_code code)
{
    m->p->way = PROGRAM_ROW;
    put_value(m, x, code, 0, code == STEP_softmax ? -1 : 1);
}

static void put_linear_db(making *m, const fused_member *x)
{
    refuse_unless(m, whole(m, x->in[0]));
    const uint8_t a = read_value(m, x->in[0]), sum = add_sum(m, x->out[0]);
    program_step *step = add_step(m, STEP_linear_db);
    step->a = a;
    step->sum = sum;
    release(m, x->in[0]);
}

static void put_member(making *m, const fused_member *x, step_code code)
{
    if (code > STEP_DRAW && code < STEP_FUNCTIONS_END)
        put_value(m, x, code, 0, -1);
    else if (code >= STEP_FUNCTIONS_END && code < STEP_PAIRS_END)
        put_value(m, x, code, 0, 1);
    else if (code == STEP_cast)
        put_value(m, x, code, 0, -1);
    else if (code == STEP_affine)
        put_affine(m, x);
    else if (code == STEP_add_many)
        put_add_many(m, x);
    else if (code == STEP_dropout)
        put_dropout(m, x);
    else if (code == STEP_dropout_grad)
        put_dropout_grad(m, x);
    else if (code == STEP_layernorm || code == STEP_rmsnorm)
        put_norm(m, x, code);
    else if (code == STEP_layernorm_grad || code == STEP_rmsnorm_grad)
        put_norm_grad(m, x, code);
    else if (code == STEP_softmax || code == STEP_softmax_grad)
        put_softmax(m, x, code);
    else
        put_linear_db(m, x);
}

/* ---- the program ---- */

/* All members; and how often each value is read. */
static bool read_members(making *m, fused_member *members, step_code *codes)
{
    const fused_attrs *attrs = m->types->attrs;
    for (int n = 0, at = 0; n < attrs->members; n++) {
        fused_words found;
        if (!fused_take(attrs, &at, &members[n], &found) || members[n].in_count < 1 || members[n].out_count < 1)
            return false;
        codes[n] = code_named(found.name);
        for (int i = 0; i < members[n].in_count; i++)
            m->reads[members[n].in[i]]++;
        if (codes[n] == STEP_CODES)
            return false;
    }
    return true;
}

/* The type of the first tensor that has rows: the first member's result, or what it sums. */
static bool choose_columns(making *m, const fused_member *first)
{
    meeting out, in;
    const bool makes = meet(m, first->out[0], &out) && out.rows;
    if (!meet(m, first->in[0], &in))
        return false;
    m->p->columns = makes ? out.last : in.last;
    return true;
}

/* Where no operand is one for each row or column, all elements are a single row. */
static void one_row(fused_program *p)
{
    bool alike = p->way == PROGRAM_EACH;
    for (int o = 0; o < p->operands; o++)
        alike &= p->operand[o].column_step && p->operand[o].row_step == p->columns;
    if (!alike)
        return;
    p->columns *= p->rows;
    p->rows = 1;
    for (int o = 0; o < p->operands; o++)
        p->operand[o].row_step = 0;
}

static size_t shared_bytes(const fused_program *p)
{
    return (size_t)(p->sums * fused_program_threads(p) * fused_program_each(p)) * sizeof(double);
}

/* The leading loads, as far as they are to slots 0, 1, ... */
static int leading_loads(const fused_program *p)
{
    int loads = 0;
    while (loads < p->steps && p->step[loads].code == STEP_LOAD && p->step[loads].to == loads)
        loads++;
    return loads;
}

/* The program begins with the loads of `late`, if that is not NULL. */
static bool make_program(const fused_types *types, const fused_program *late, fused_program *program)
{
    making m = {.types = types, .p = program, .like = types->in[types->attrs->like].shape};
    fused_member members[FUSED_MEMBERS_MAX];
    step_code codes[FUSED_MEMBERS_MAX];
    memset(program, 0, sizeof *program);
    for (int code = 0; code < CODES; code++)
        m.slot[code] = NO_SLOT;
    if (!read_members(&m, members, codes) || !choose_columns(&m, &members[0]))
        return false;
    program->rows = product(&m.like, m.like.rank - 1);
    for (int s = 0; late && s < late->steps && !m.failed; s++)
        if (late->step[s].code == STEP_LOAD)
            read_value(&m, late->code[late->step[s].operand[0]]);
    for (int n = 0; n < types->attrs->members && !m.failed; n++)
        put_member(&m, &members[n], codes[n]);
    if (m.failed || (program->way == PROGRAM_ROW && program->columns > ROW_HELD) ||
        shared_bytes(program) > PROGRAM_SHARED_BYTES)
        return false;
    program->loads = leading_loads(program);
    one_row(program);
    return true;
}

bool fused_program_make(const fused_types *types, fused_program *program)
{
    fused_program late;
    if (!make_program(types, NULL, &late))
        return false;
    if (!make_program(types, &late, program))
        *program = late;
    return true;
}

int fused_program_threads(const fused_program *p)
{
    if (p->way == PROGRAM_ROW)
        return row_threads(p->columns);
    return p->way == PROGRAM_EACH ? PROGRAM_THREADS : threads_for(p->columns, PROGRAM_THREADS);
}

int fused_program_each(const fused_program *p)
{
    return p->way == PROGRAM_ROW ? ROW_NEAR : PROGRAM_NEAR;
}

size_t fused_program_bytes(const fused_program *p)
{
    return (size_t)p->sums * chunks_bytes(p->rows, p->columns);
}
