/* kernels/fused/fused.c: see the header.
 *
 * A plan may come from anywhere, so `fits` reads the attributes as carefully as a file: each member's own rule is asked
 * about blocks of the first size and of the last, and codes, kinds and counts are checked. The kernel takes for granted what
 * it has accepted.
 *
 * A block lies together in memory: it is one index in the dimensions before `at`, a few in `at`, and all behind. Views
 * of a block are those of the whole with another shape, offset and place, so that kernels know where they are.
 */
#include "kernels/fused/program.h"

#include "graph/base/base.h"
#include "kernels/common/ops.h"
#include "kernels/common/view.h"

#include <string.h>

enum { ALIGN = 64, COLUMNS_MAX = 1 << 24 };

/* ---- attributes ---- */

static int put_words(fused_attrs *attrs, int at, const void *from, int count)
{
    if (!at || at + count > FUSED_WORDS + 1)
        return 0;
    if (count)
        memcpy(&attrs->word[at - 1], from, (size_t)count * sizeof attrs->word[0]);
    return at + count;
}

static int put_word(fused_attrs *attrs, int at, int64_t word)
{
    return put_words(attrs, at, &word, 1);
}

int fused_put(fused_attrs *attrs, int at, const fused_member *m)
{
    char name[FUSED_NAME * 8] = "";
    if (strlen(m->op->name) >= sizeof name)
        return 0;
    strcpy(name, m->op->name);
    at = put_words(attrs, at + 1, name, FUSED_NAME);
    at = put_word(attrs, at, (int64_t)m->key);
    at = put_word(attrs, at, m->in_count);
    at = put_word(attrs, at, m->out_count);
    for (int i = 0; i < m->in_count; i++)
        at = put_word(attrs, at, m->in[i]);
    for (int o = 0; o < m->out_count; o++)
        at = put_word(attrs, at, m->out[o]);
    at = put_word(attrs, at, (int64_t)(m->op->attrs_bytes / 8));
    at = put_words(attrs, at, m->attrs, (int)(m->op->attrs_bytes / 8));
    return at ? at - 1 : 0;
}

/* The member whose words begin at *at, which moves on. */
static bool take_member(const fused_attrs *attrs, int *at, fused_member *m)
{
    fused_words found;
    if (!fused_take(attrs, at, m, &found))
        return false;
    m->op = weir_op_find(found.name);
    return m->op && found.words == (int64_t)(m->op->attrs_bytes / 8);
}

/* ---- blocks ---- */

typedef struct blocks {
    weir_shape lead;    /* the rows' dimensions */
    int at;             /* the one that is cut */
    int64_t each, unit; /* indexes of it in a block, and rows that each stands for */
    int64_t lines;      /* how often it is cut */
} blocks;

static int64_t product(const weir_shape *shape, int from, int to)
{
    int64_t count = 1;
    for (int d = from; d < to; d++)
        count *= shape->dim[d];
    return count;
}

/* A part of about `each` that divides the dimension, if there is one; so no block is short. */
static int64_t even_part(int64_t size, int64_t each)
{
    for (int64_t part = each; part > each / 2; part--)
        if (size % part == 0)
            return part;
    return each;
}

static blocks blocks_of(const weir_shape *like, int64_t rows)
{
    blocks b = {.lead = *like, .unit = 1, .lines = 1};
    b.lead.dim[--b.lead.rank] = 0;
    if (product(&b.lead, 0, b.lead.rank) == 0) /* one block of nothing */
        return b;
    while (b.at + 1 < b.lead.rank && product(&b.lead, b.at + 1, b.lead.rank) > rows)
        b.at++;
    const int64_t size = b.lead.dim[b.at];
    b.unit = product(&b.lead, b.at + 1, b.lead.rank);
    b.lines = product(&b.lead, 0, b.at);
    b.each = rows / b.unit < 1 ? 1 : rows / b.unit < size ? rows / b.unit : size;
    b.each = even_part(size, b.each);
    return b;
}

static bool leads(const weir_shape *shape, const weir_shape *lead)
{
    return !memcmp(shape->dim, lead->dim, sizeof lead->dim[0] * (size_t)lead->rank);
}

static fused_kind kind_of(const weir_op *op, bool input, int i, const weir_shape *shape, const weir_shape *lead)
{
    uint32_t rows = input ? op->rows_in : op->rows_out, per_row = input ? op->per_row_in : op->per_row_out;
    uint32_t bit = UINT32_C(1) << (i < 31 ? i : 31);
    if (rows & bit) {
        if (shape->rank == lead->rank + 1 && leads(shape, lead))
            return FUSED_ROWS;
        return input && shape_rows(shape) == 1 ? FUSED_WHOLE : FUSED_NEVER;
    }
    if (per_row & bit)
        return shape->rank == lead->rank && leads(shape, lead) ? FUSED_PER_ROW : FUSED_NEVER;
    return input ? FUSED_WHOLE : FUSED_SUM;
}

fused_kind fused_kind_of(const weir_op *op, bool input, int i, const weir_shape *shape, const weir_shape *like)
{
    weir_shape lead = *like;
    lead.rank--;
    return kind_of(op, input, i, shape, &lead);
}

/* The part of a shape that a block has, of `count` indexes. */
static weir_shape block_shape(weir_shape shape, fused_kind kind, const blocks *b, int64_t count)
{
    if (kind != FUSED_ROWS && kind != FUSED_PER_ROW)
        return shape;
    for (int d = 0; d < b->at; d++)
        shape.dim[d] = 1;
    shape.dim[b->at] = count;
    return shape;
}

static weir_type scratch_type(const fused_attrs *attrs, int s, const blocks *b)
{
    weir_type type = {(weir_dtype)attrs->type[s][0], b->lead};
    if (attrs->type[s][1] >= 0)
        type.shape.dim[type.shape.rank++] = attrs->type[s][1];
    return type;
}

static weir_type code_type(const weir_op_args *args, const blocks *b, int code)
{
    return code >= FUSED_SCRATCH ? scratch_type(args->attrs, code - FUSED_SCRATCH, b)
           : code >= FUSED_OUT   ? args->out[code - FUSED_OUT]
                                 : args->in[code];
}

static size_t scratch_bytes(const fused_attrs *attrs, int s, const blocks *b)
{
    int64_t columns = attrs->type[s][1] < 0 ? 1 : attrs->type[s][1];
    size_t bytes = (size_t)(b->each * b->unit * columns) * weir_dtype_bytes((weir_dtype)attrs->type[s][0]);
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- rules ---- */

typedef struct checking {
    const weir_op_args *local;
    const fused_attrs *attrs;
    blocks b;
    fused_kind made[FUSED_SCRATCH + FUSED_SCRATCH_MAX]; /* by code; NEVER: not made yet */
    int last_read, over;                                /* members: the last to read in[0], the one that makes out[0] */
    bool by_rows;                                       /* nobody reads in[0] as a whole */
} checking;

static bool fused_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)args;
    return REFUSE("only the compiler puts ops together");
}

static bool header_ok(const weir_op_args *local, char *error, size_t error_bytes)
{
    const fused_attrs *a = local->attrs;
    if (a->members < 1 || a->members > FUSED_MEMBERS_MAX || a->rows < 1 || a->rows > FUSED_ROWS_MAX || a->scratch < 0 ||
        a->scratch > FUSED_SCRATCH_MAX)
        return REFUSE("%lld members in blocks of %lld rows", (long long)a->members, (long long)a->rows);
    if (a->like < 0 || a->like >= local->in_count || local->in[a->like].shape.rank < 2)
        return REFUSE("input %lld has no rows", (long long)a->like);
    for (int s = 0; s < a->scratch; s++) {
        const int64_t *t = a->type[s];
        bool dtype = t[0] > WEIR_DTYPE_NONE && t[0] < WEIR_DTYPES, columns = t[1] >= -1 && t[1] <= COLUMNS_MAX;
        bool lies = t[2] >= 0 && t[2] <= INT64_C(1) << 40 && t[3] <= INT64_C(1) << 40;
        if (!dtype || !columns || !lies || t[3] < t[2] + t[1])
            return REFUSE("scratch %d is of no type", s);
    }
    return true;
}

static bool code_there(const checking *c, int code)
{
    int from = code >= FUSED_SCRATCH ? FUSED_SCRATCH : code >= FUSED_OUT ? FUSED_OUT : FUSED_IN;
    return code - from < (from == FUSED_SCRATCH ? c->attrs->scratch
                          : from == FUSED_OUT   ? c->local->out_count
                                                : c->local->in_count);
}

/* Results of members may be read in blocks, and nothing of them as a whole. */
static bool input_ok(checking *c, const fused_member *m, int number, int i)
{
    int code = m->in[i];
    if (!code_there(c, code))
        return false;
    weir_type type = code_type(c->local, &c->b, code);
    fused_kind kind = kind_of(m->op, true, i, &type.shape, &c->b.lead);
    if (code == FUSED_IN) {
        c->last_read = number;
        c->by_rows &= kind == FUSED_ROWS;
    }
    return kind != FUSED_NEVER && (code < FUSED_OUT || (kind == c->made[code] && kind != FUSED_WHOLE));
}

static bool output_ok(checking *c, const fused_member *m, int o)
{
    int code = m->out[o];
    if (code < FUSED_OUT || !code_there(c, code) || c->made[code] != FUSED_NEVER)
        return false;
    weir_type type = code_type(c->local, &c->b, code);
    c->made[code] = kind_of(m->op, false, o, &type.shape, &c->b.lead);
    return c->made[code] != FUSED_NEVER && (c->made[code] != FUSED_SUM || code < FUSED_SCRATCH);
}

/* The types of a member's operands in a block; returns the arguments of its rules. */
static weir_op_args block_args(const weir_op_args *local, const blocks *b, const fused_member *m, int64_t count,
                               weir_type *in, weir_type *out)
{
    for (int i = 0; i < m->in_count; i++) {
        in[i] = code_type(local, b, m->in[i]);
        in[i].shape = block_shape(in[i].shape, kind_of(m->op, true, i, &in[i].shape, &b->lead), b, count);
    }
    for (int o = 0; o < m->out_count; o++) {
        out[o] = code_type(local, b, m->out[o]);
        out[o].shape = block_shape(out[o].shape, kind_of(m->op, false, o, &out[o].shape, &b->lead), b, count);
    }
    return (weir_op_args){m->op, in, m->in_count, out, m->out_count, m->attrs};
}

/* The member's own rule, as a plan's validation asks it. */
static bool block_fits(const checking *c, const fused_member *m, int64_t count, char *error, size_t error_bytes)
{
    weir_type in[FUSED_INS_MAX], out[FUSED_OUTS_MAX], inferred[FUSED_OUTS_MAX] = {0};
    weir_op_args args = block_args(c->local, &c->b, m, count, in, out);
    if (m->op->fits)
        return m->op->fits(&args, error, error_bytes);
    args.out = inferred;
    if (!m->op->infer(&args, error, error_bytes))
        return false;
    for (int o = 0; o < m->out_count; o++)
        if (inferred[o].dtype != out[o].dtype || !weir_shape_equal(&inferred[o].shape, &out[o].shape))
            return REFUSE("output %d is of another type than it makes", o);
    return true;
}

static bool member_ok(checking *c, const fused_member *m, int number, char *error, size_t error_bytes)
{
    const weir_op *op = m->op;
    if (!op->rows_in || !op->kernel[WEIR_CPU] || op->states || op->ctx || op->open || m->in_count < op->in_min ||
        m->in_count > op->in_max || m->out_count != op->out_count)
        return REFUSE("%s is no member of %d inputs and %d outputs", op->name, m->in_count, m->out_count);
    for (int i = 0; i < m->in_count; i++)
        if (!input_ok(c, m, number, i))
            return REFUSE("input %d of %s cannot be read in blocks", i, op->name);
    for (int o = 0; o < m->out_count; o++) {
        if (!output_ok(c, m, o))
            return REFUSE("output %d of %s cannot be made in blocks", o, op->name);
        if (m->out[o] == FUSED_OUT)
            c->over = number;
    }
    int64_t size = c->b.lead.dim[c->b.at], rest = c->b.each ? size % c->b.each : 0;
    return block_fits(c, m, c->b.each, error, error_bytes) &&
           (!rest || block_fits(c, m, rest, error, error_bytes));
}

/* Whether a block of out[0] may lie over that of in[0]: the member that makes it is the last to read that, and may work
 * in its place. */
static bool over_ok(const checking *c, const fused_member *maker)
{
    const weir_type *in = &c->local->in[0], *out = &c->local->out[0];
    bool blocks_alike = c->made[FUSED_OUT] == FUSED_ROWS && weir_shape_equal(&in->shape, &out->shape) &&
                        weir_dtype_bytes(in->dtype) == weir_dtype_bytes(out->dtype);
    for (int i = 0; i < maker->in_count; i++)
        blocks_alike &= maker->in[i] != FUSED_IN || i == maker->op->inplace - 1;
    return blocks_alike && c->by_rows && c->last_read <= c->over;
}

static bool members_ok(checking *c, fused_member *maker, char *error, size_t error_bytes)
{
    int at = 0;
    for (int n = 0; n < c->attrs->members; n++) {
        fused_member m;
        if (!take_member(c->attrs, &at, &m))
            return REFUSE("member %d cannot be read", n);
        if (!member_ok(c, &m, n, error, error_bytes))
            return false;
        if (c->over == n)
            *maker = m;
    }
    for (int o = 0; o < c->local->out_count; o++)
        if (c->made[FUSED_OUT + o] == FUSED_NEVER)
            return REFUSE("no member makes output %d", o);
    return true;
}

static bool fused_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    checking c = {.local = local, .attrs = local->attrs, .last_read = -1, .over = -1, .by_rows = true};
    fused_member maker = {0};
    if (!header_ok(local, error, error_bytes))
        return false;
    c.b = blocks_of(&local->in[c.attrs->like].shape, c.attrs->rows);
    for (size_t code = 0; code < sizeof c.made / sizeof *c.made; code++)
        c.made[code] = FUSED_NEVER;
    if (!members_ok(&c, &maker, error, error_bytes))
        return false;
    return !local->op->inplace || over_ok(&c, &maker) || REFUSE("output 0 may not lie over input 0");
}

/* So too, and the members are one program. */
static bool launch_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    const fused_types types = {local->attrs, local->in, local->out, local->in_count, local->out_count};
    fused_program program;
    return fused_fits(local, error, error_bytes) &&
           (fused_program_make(&types, &program) || REFUSE("the members cannot be one kernel of a GPU"));
}

static bool has_sums(const weir_op_args *args, const blocks *b, const fused_member *m)
{
    for (int o = 0; o < m->out_count; o++) {
        const weir_type type = code_type(args, b, m->out[o]);
        if (kind_of(m->op, false, o, &type.shape, &b->lead) == FUSED_SUM)
            return true;
    }
    return false;
}

/* Bytes that a member asks for, for any block. */
static size_t member_bytes(const weir_op_args *args, const blocks *b, const fused_member *m, weir_device_kind kind)
{
    const int64_t size = b->lead.dim[b->at], counts[] = {b->each, b->each ? size % b->each : 0};
    size_t most = 0;
    for (int c = 0; c < 2 && m->op->workspace; c++) {
        weir_type in[FUSED_INS_MAX], out[FUSED_OUTS_MAX];
        const weir_op_args local = block_args(args, b, m, counts[c], in, out);
        const size_t wanted = c && !counts[c] ? 0 : m->op->workspace(&local, kind);
        most = wanted > most ? wanted : most;
    }
    return (most + ALIGN - 1) / ALIGN * ALIGN;
}

/* Scratch, then the workspaces of members with sums, then one for the others. */
static size_t fused_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const fused_attrs *attrs = args->attrs;
    const blocks b = blocks_of(&args->in[attrs->like].shape, attrs->rows);
    size_t bytes = 0, most = 0;
    for (int s = 0; s < attrs->scratch; s++)
        bytes += scratch_bytes(attrs, s, &b);
    for (int n = 0, at = 0; n < attrs->members; n++) {
        fused_member m;
        take_member(attrs, &at, &m);
        const size_t wanted = member_bytes(args, &b, &m, kind);
        if (has_sums(args, &b, &m))
            bytes += wanted;
        else
            most = wanted > most ? wanted : most;
    }
    return bytes + most;
}

/* On a GPU nothing is between members; there are the sums of chunks. */
static size_t launch_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const fused_types types = {args->attrs, args->in, args->out, args->in_count, args->out_count};
    fused_program program;
    if (kind != WEIR_CUDA)
        return fused_workspace(args, kind);
    return fused_program_make(&types, &program) ? fused_program_bytes(&program) : 0;
}

/* ---- the kernel ---- */

typedef struct moving { /* an operand that goes from block to block */
    weir_view *view;
    const weir_view *whole;
    char *first;
    size_t row_bytes;   /* 0: it stays where it is, in scratch */
} moving;

typedef struct calling {
    const weir_kernel_args *args;
    blocks b;
    fused_member member[FUSED_MEMBERS_MAX];
    weir_kernel_fn kernel[FUSED_MEMBERS_MAX];
    weir_view in[FUSED_MEMBERS_MAX][FUSED_INS_MAX], out[FUSED_MEMBERS_MAX][FUSED_OUTS_MAX];
    weir_view scratch[FUSED_SCRATCH_MAX];
    moving moving[FUSED_MEMBERS_MAX * (FUSED_INS_MAX + FUSED_OUTS_MAX)];
    int moving_count;
    char *workspace[FUSED_MEMBERS_MAX];
    size_t workspace_bytes[FUSED_MEMBERS_MAX];
} calling;

/* Scratch lies as the rows that it belongs to do. Returns its end. */
static char *scratch_views(calling *c, const fused_attrs *attrs)
{
    const weir_view *like = &c->args->in[attrs->like];
    char *at = c->args->workspace;
    for (int s = 0; s < attrs->scratch; s++) {
        weir_type type = scratch_type(attrs, s, &c->b);
        weir_view *v = &c->scratch[s];
        *v = (weir_view){.data = at, .dtype = type.dtype, .shape = type.shape, .global = type.shape};
        memcpy(v->offset, like->offset, sizeof v->offset[0] * (size_t)c->b.lead.rank);
        memcpy(v->global.dim, like->global.dim, sizeof v->offset[0] * (size_t)c->b.lead.rank);
        if (attrs->type[s][1] >= 0) {
            v->offset[c->b.lead.rank] = attrs->type[s][2];
            v->global.dim[c->b.lead.rank] = attrs->type[s][3];
        }
        at += scratch_bytes(attrs, s, &c->b);
    }
    return at;
}

/* Each member's workspace, from `at` on, in the order of fused_workspace(). */
static void member_workspaces(calling *c, char *at)
{
    const weir_kernel_args *args = c->args;
    const char *const end = (char *)args->workspace + args->workspace_bytes;
    const int members = (int)((const fused_attrs *)args->attrs)->members;
    weir_type in[FUSED_INS_MAX], out[FUSED_OUTS_MAX];
    for (int i = 0; i < args->in_count; i++)
        in[i] = (weir_type){args->in[i].dtype, args->in[i].shape};
    for (int o = 0; o < args->out_count; o++)
        out[o] = (weir_type){args->out[o].dtype, args->out[o].shape};
    const weir_op_args local = {.in = in, .in_count = args->in_count, .out = out, .out_count = args->out_count,
                                .attrs = args->attrs};
    bool own[FUSED_MEMBERS_MAX];
    for (int n = 0; n < members; n++) {
        own[n] = has_sums(&local, &c->b, &c->member[n]);
        if (!own[n])
            continue;
        c->workspace[n] = at;
        c->workspace_bytes[n] = member_bytes(&local, &c->b, &c->member[n], WEIR_CPU);
        at += c->workspace_bytes[n];
    }
    for (int n = 0; n < members; n++)
        if (!own[n]) {
            c->workspace[n] = at;
            c->workspace_bytes[n] = (size_t)(end - at);
        }
}

static void operand_view(calling *c, int code, fused_kind kind, weir_view *view)
{
    const weir_view *whole = code >= FUSED_SCRATCH ? &c->scratch[code - FUSED_SCRATCH]
                             : code >= FUSED_OUT   ? &c->args->out[code - FUSED_OUT]
                                                   : &c->args->in[code];
    *view = *whole;
    if (kind != FUSED_ROWS && kind != FUSED_PER_ROW)
        return;
    size_t columns = kind == FUSED_ROWS ? (size_t)shape_last(&whole->shape) : 1;
    c->moving[c->moving_count++] =
        (moving){view, whole, whole->data, code >= FUSED_SCRATCH ? 0 : columns * weir_dtype_bytes(whole->dtype)};
}

static void calling_begin(calling *c, const weir_kernel_args *args)
{
    const fused_attrs *attrs = args->attrs;
    c->args = args;
    c->b = blocks_of(&args->in[attrs->like].shape, attrs->rows);
    c->moving_count = 0;
    char *const rest = scratch_views(c, attrs);
    for (int n = 0, at = 0; n < attrs->members; n++) {
        fused_member *m = &c->member[n];
        take_member(attrs, &at, m);
        c->kernel[n] = op_kernel(m->op, WEIR_CPU);
        for (int i = 0; i < m->in_count; i++) {
            weir_view *v = &c->in[n][i];
            operand_view(c, m->in[i], FUSED_WHOLE, v);
            operand_view(c, m->in[i], kind_of(m->op, true, i, &v->shape, &c->b.lead), v);
        }
        for (int o = 0; o < m->out_count; o++) {
            weir_view *v = &c->out[n][o];
            operand_view(c, m->out[o], FUSED_WHOLE, v);
            operand_view(c, m->out[o], kind_of(m->op, false, o, &v->shape, &c->b.lead), v);
        }
    }
    member_workspaces(c, rest);
}

/* Puts the views on `count` indexes from `from` on, of line `line`. */
static void move_to(calling *c, int64_t line, int64_t from, int64_t count)
{
    const blocks *b = &c->b;
    int64_t index[WEIR_DIMS_MAX] = {0}, row = (line * b->lead.dim[b->at] + from) * b->unit;
    index[b->at] = from;
    for (int d = b->at - 1; d >= 0; d--) {
        index[d] = line % b->lead.dim[d];
        line /= b->lead.dim[d];
    }
    for (int i = 0; i < c->moving_count; i++) {
        moving *m = &c->moving[i];
        m->view->shape = block_shape(m->view->shape, FUSED_ROWS, b, count);
        for (int d = 0; d <= b->at; d++)
            m->view->offset[d] = m->whole->offset[d] + index[d];
        m->view->data = m->first + (size_t)row * m->row_bytes;
    }
}

static weir_status call_members(calling *c, bool first)
{
    const fused_attrs *attrs = c->args->attrs;
    weir_status status = WEIR_OK;
    for (int n = 0; n < attrs->members && !status; n++) {
        const fused_member *m = &c->member[n];
        weir_kernel_args call = *c->args;
        call.in = c->in[n];
        call.in_count = m->in_count;
        call.out = c->out[n];
        call.out_count = m->out_count;
        call.attrs = m->op->attrs_bytes ? m->attrs : NULL;
        call.key = m->key;
        call.workspace = c->workspace[n];
        call.workspace_bytes = c->workspace_bytes[n];
        call.continues = !first;
        status = c->kernel[n](&call);
    }
    return status;
}

static weir_status fused_cpu(const weir_kernel_args *args)
{
    calling c;
    weir_status status = WEIR_OK;
    calling_begin(&c, args);
    const int64_t size = c.b.lead.dim[c.b.at], each = c.b.each ? c.b.each : 1;
    for (int64_t line = 0; line < c.b.lines; line++)
        for (int64_t from = 0; (from < size || (!c.b.each && !from)) && !status; from += each) {
            move_to(&c, line, from, size - from < c.b.each ? size - from : c.b.each);
            status = call_members(&c, !line && !from);
        }
    return status;
}

static const weir_field fused_fields[] = {
    WEIR_FIELD_INT(fused_attrs, members), WEIR_FIELD_INT(fused_attrs, rows), WEIR_FIELD_INT(fused_attrs, like),
    WEIR_FIELD_INT(fused_attrs, scratch), WEIR_FIELD_INT(fused_attrs, type), WEIR_FIELD_INT(fused_attrs, word),
};

#define FUSED_OP(opname, allowed, scratch, over)        \
    const weir_op op_##opname = {                       \
        .name = #opname,                                \
        .fields = fused_fields,                         \
        .field_count = 6,                               \
        .attrs_bytes = sizeof(fused_attrs),             \
        .in_min = 1,                                    \
        .in_max = FUSED_INS_MAX,                        \
        .out_count = FUSED_OUTS_MAX,                    \
        .out_fewer = true,                              \
        .infer = fused_infer,                           \
        .fits = allowed,                                \
        .workspace = scratch,                           \
        .kernel = {[WEIR_CPU] = fused_cpu},             \
        .inplace = over,                                \
    };
FUSED_OP(fused, fused_fits, fused_workspace, 0)
FUSED_OP(fused_over, fused_fits, fused_workspace, 1)
FUSED_OP(fused_launch, launch_fits, launch_workspace, 0)
FUSED_OP(fused_launch_over, launch_fits, launch_workspace, 1)
