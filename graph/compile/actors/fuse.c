/* graph/compile/actors/fuse.c: kernels of a group that go over the same rows become one.
 *
 * It works on pops, behind the grouping: only there is it known what runs one after the other, and what leaves the
 * group. A *chain* is begun by a pop whose op may be called row by row (rows_in of weir/op.h), and joined by later ones
 * of the group that have the same rows, touch something that the chain touches, and need nothing that is made between:
 * they move up to it. The pop that begins it becomes a call of the op `fused` (kernels/fused/fused.h), the others are
 * gone. A tensor that the chain alone touches needs no more than a block of scratch; the others stay where they were.
 *
 * Passes over memory are cheap as long as the next finds in the last-level cache what the one before left there, and
 * going block by block costs some: streams are short, and are begun again and again. The chains of `weir bench fuse`,
 * processor time fused over apart, in blocks that touch 0.5 and 4 MiB, on a core of an EPYC (Zen 5, 1 MiB second-level
 * cache, 32 MiB shared) whose neighbours were busy:
 *
 *                  f32, 17 MB     f32, 67 MB     bf16, 8 MB     bf16, 34 MB
 *     inner        0.90  0.86     0.74  0.74     1.09  0.91     1.09  0.92      nobody else needs what lies between
 *     norm         0.99  0.92     0.95  0.89     1.06  0.82     1.17  0.91      a residual and its norm
 *     norm_grad    0.94  0.92     1.00  0.99     0.98  0.99     0.96  0.96      its gradient, and the residual's
 *     gelu_grad    0.90  0.91     0.92  0.90     0.81  0.83     0.72  0.73      an activation's, and the bias's
 *
 * So blocks are of 4 MiB, which the last-level cache holds, rather than of a part of the second level's size. Tensors
 * of 2 and 4 MB in f32 take 0.85 to 1.25; fused all the same, those of the step of `weir bench gpt` made it no faster,
 * and those of 1 MB and more in bf16 neither. So a chain is made for tensors that are larger than what is likely to
 * stay in the cache.
 *
 * On a GPU a chain is one launch that keeps in registers what lies between its members (kernels/fused/program.h): it
 * costs nothing to begin, and any tensor that passes by once less is gained. So there is no least size, and a chain may be
 * longer. The rule of the op says which members have a form as a step there; no other op is in a chain.
 */
#include "graph/base/error.h"
#include "graph/compile/actors/passes.h"
#include "kernels/fused/fused.h"
#include "kernels/common/ops.h"

#include <string.h>

enum {
    AHEAD = 24,             /* pops of the group that are looked at for a chain */
    CPU_MEMBERS = 4,        /* of a chain on a CPU, at most */
    TYPES_MAX = FUSED_INS_MAX + FUSED_OUTS_MAX
};
uint64_t fuse_bytes_min = 8 << 20, fuse_block_bytes = 4 << 20;

typedef struct chain {
    compile *c;
    const weir_op *op, *over;          /* as which it is called, and where its output may lie over an input */
    bool launch;                       /* a kernel of a GPU */
    int group, first;                  /* position of the first in the group */
    int member[FUSED_MEMBERS_MAX];     /* pops */
    int count;
    weir_shape like;                   /* a shape with its rows */
    int in[FUSED_INS_MAX], out[FUSED_OUTS_MAX], scratch[FUSED_SCRATCH_MAX]; /* ptensors */
    int in_count, out_count, scratch_count;
} chain;

static pop *pop_at(const chain *x, int member)
{
    return &x->c->phys.op.item[x->member[member]];
}

static int find(const int *list, int count, int value)
{
    for (int i = 0; i < count; i++)
        if (list[i] == value)
            return i;
    return NONE;
}

/* ---- who may join ---- */

/* Whether the tensor is a parameter that this group changes: then before and after are two values. */
static bool changes_here(const compile *c, int tensor, int id)
{
    const ptensor *t = &c->phys.tensor.item[tensor];
    return t->parameter && t->producer >= 0 && c->phys.op.item[t->producer].group == id;
}

static bool by_rows(const compile *c, const pop *op)
{
    const weir_op *rules = pop_op(c, op);
    bool plain = !rules->states && !rules->ctx && !rules->open && !rules->effect;
    bool ok = rules->rows_in && plain && !op->accumulate && op->in_count > 0 && op->in_count <= FUSED_INS_MAX &&
              op->out_count <= FUSED_OUTS_MAX;
    for (int i = 0; ok && i < op->in_count; i++)
        ok = !changes_here(c, op->in[i], op->group);
    for (int o = 0; ok && o < op->out_count; o++)
        ok = !c->phys.tensor.item[op->out[o]].parameter;
    return ok;
}

/* The first operand that has rows, if it has more than one dimension. */
static bool rows_like(const compile *c, const pop *op, weir_shape *like)
{
    weir_type types[TYPES_MAX];
    pop_types(c, op, types);
    int i = 0;
    while (i < op->in_count && !(pop_op(c, op)->rows_in >> (i < 31 ? i : 31) & 1))
        i++;
    if (i == op->in_count || types[i].shape.rank < 2)
        return false;
    *like = types[i].shape;
    return true;
}

static bool made_in_chain(const chain *x, int tensor)
{
    for (int m = 0; m < x->count; m++)
        if (find(pop_at(x, m)->out, pop_at(x, m)->out_count, tensor) >= 0)
            return true;
    return false;
}

static bool read_in_chain(const chain *x, int tensor)
{
    for (int m = 0; m < x->count; m++)
        if (find(pop_at(x, m)->in, pop_at(x, m)->in_count, tensor) >= 0)
            return true;
    return false;
}

/* Whether what the pop reads is there when the chain runs: `position` is by pop. */
static bool inputs_there(const chain *x, const pop *op, const int *position)
{
    for (int i = 0; i < op->in_count; i++) {
        int maker = x->c->phys.tensor.item[op->in[i]].producer;
        bool here = maker >= 0 && !x->c->phys.tensor.item[op->in[i]].parameter &&
                    x->c->phys.op.item[maker].group == x->group;
        if (here && !made_in_chain(x, op->in[i]) && position[maker] >= x->first)
            return false;
    }
    return true;
}

/* Whether its operands meet blocks of the chain's rows as it says. The rule of the op that it becomes part of looks at the
 * result again. */
static bool rows_fit(const chain *x, const pop *op)
{
    weir_type types[TYPES_MAX];
    pop_types(x->c, op, types);
    bool rows = false;
    for (int i = 0; i < op->in_count + op->out_count; i++) {
        bool input = i < op->in_count;
        int number = input ? i : i - op->in_count;
        fused_kind kind = fused_kind_of(pop_op(x->c, op), input, number, &types[i].shape, &x->like);
        if (kind == FUSED_NEVER || (input && kind == FUSED_WHOLE && made_in_chain(x, op->in[i])))
            return false;
        rows |= kind == FUSED_ROWS;
    }
    return rows;
}

static weir_type type_of(const chain *x, int tensor)
{
    const ptensor *t = &x->c->phys.tensor.item[tensor];
    weir_type type = x->c->ir.tensors.item[t->tensor].type;
    for (int d = 0; d < type.shape.rank; d++)
        type.shape.dim[d] = t->part.count[d];
    return type;
}

static bool has_rows(const chain *x, const weir_shape *shape)
{
    return shape->rank == x->like.rank &&
           !memcmp(shape->dim, x->like.dim, sizeof shape->dim[0] * (size_t)(x->like.rank - 1));
}

/* Whether it touches a tensor that the chain touches already, and of which it pays that it passes by once less. */
static bool pays_to_join(const chain *x, const pop *op)
{
    for (int i = 0; i < op->in_count; i++) {
        const weir_type type = type_of(x, op->in[i]);
        const bool pays = x->launch ? has_rows(x, &type.shape)
                                    : x->c->phys.tensor.item[op->in[i]].bytes >= fuse_bytes_min;
        if (pays && (made_in_chain(x, op->in[i]) || read_in_chain(x, op->in[i])))
            return true;
    }
    return false;
}

/* ---- what it is made of ---- */

/* Whether the chain alone touches the tensor, which one of its members makes. */
static bool is_inner(const chain *x, int tensor)
{
    const ptensor *t = &x->c->phys.tensor.item[tensor];
    for (int r = 0; r < t->readers.count; r++)
        if (find(x->member, x->count, t->readers.item[r]) < 0)
            return false;
    return t->reg < 0 && t->readers.count;
}

static bool add(int *list, int *count, int max, int value)
{
    if (find(list, *count, value) >= 0)
        return true;
    if (*count == max)
        return false;
    list[(*count)++] = value;
    return true;
}

/* Sorts the operands of all members; false: there are too many. */
static bool sort_operands(chain *x)
{
    bool ok = true;
    x->in_count = x->out_count = x->scratch_count = 0;
    for (int m = 0; m < x->count && ok; m++)
        for (int o = 0; o < pop_at(x, m)->out_count && ok; o++) {
            int t = pop_at(x, m)->out[o];
            ok = is_inner(x, t) ? add(x->scratch, &x->scratch_count, FUSED_SCRATCH_MAX, t)
                                : add(x->out, &x->out_count, FUSED_OUTS_MAX, t);
        }
    for (int m = 0; m < x->count && ok; m++)
        for (int i = 0; i < pop_at(x, m)->in_count && ok; i++)
            if (!made_in_chain(x, pop_at(x, m)->in[i]))
                ok = add(x->in, &x->in_count, FUSED_INS_MAX, pop_at(x, m)->in[i]);
    return ok && x->in_count;
}

static int code_of(const chain *x, int tensor)
{
    int at = find(x->in, x->in_count, tensor);
    if (at >= 0)
        return FUSED_IN + at;
    at = find(x->out, x->out_count, tensor);
    return at >= 0 ? FUSED_OUT + at : FUSED_SCRATCH + find(x->scratch, x->scratch_count, tensor);
}

static bool put_member(const chain *x, fused_attrs *attrs, int m, int *at)
{
    const pop *op = pop_at(x, m);
    fused_member member = {.op = pop_op(x->c, op),
                           .attrs = op->attrs,
                           .key = node_key(x->c, &x->c->ir.node[op->node]),
                           .in_count = op->in_count,
                           .out_count = op->out_count};
    for (int i = 0; i < op->in_count; i++)
        member.in[i] = code_of(x, op->in[i]);
    for (int o = 0; o < op->out_count; o++)
        member.out[o] = code_of(x, op->out[o]);
    *at = fused_put(attrs, *at, &member);
    return *at > 0;
}

static void scratch_type(const chain *x, int tensor, int64_t to[4])
{
    const ptensor *t = &x->c->phys.tensor.item[tensor];
    const weir_type *whole = &x->c->ir.tensors.item[t->tensor].type;
    int last = x->like.rank - 1;
    bool per_row = whole->shape.rank <= last;
    to[0] = whole->dtype;
    to[1] = per_row ? -1 : t->part.count[last];
    to[2] = per_row ? 0 : t->part.start[last];
    to[3] = per_row ? 0 : whole->shape.dim[last];
}

/* How many rows' operands fit a block, and which input shows them; false: none does. */
static bool choose_rows(const chain *x, fused_attrs *attrs)
{
    uint64_t bytes = 1;
    const int *const lists[] = {x->in, x->out, x->scratch}, counts[] = {x->in_count, x->out_count, x->scratch_count};
    attrs->like = -1;
    for (int l = 2; l >= 0; l--)
        for (int i = counts[l] - 1; i >= 0; i--) {
            weir_type type = type_of(x, lists[l][i]);
            if (!has_rows(x, &type.shape))
                continue;
            bytes += (uint64_t)type.shape.dim[type.shape.rank - 1] * weir_dtype_bytes(type.dtype);
            attrs->like = l ? -1 : i;
        }
    const uint64_t rows = x->launch ? FUSED_ROWS_MAX : fuse_block_bytes / bytes;
    attrs->rows = rows < 1 ? 1 : rows > FUSED_ROWS_MAX ? FUSED_ROWS_MAX : (int64_t)rows;
    return attrs->like >= 0;
}

static bool write_attrs(const chain *x, fused_attrs *attrs)
{
    int at = 0;
    *attrs = (fused_attrs){.members = x->count, .scratch = x->scratch_count};
    for (int s = 0; s < x->scratch_count; s++)
        scratch_type(x, x->scratch[s], attrs->type[s]);
    bool ok = choose_rows(x, attrs);
    for (int m = 0; m < x->count && ok; m++)
        ok = put_member(x, attrs, m, &at);
    return ok;
}

/* ---- one kernel ---- */

static void swap(int *list, int a, int b)
{
    int kept = list[a];
    list[a] = list[b];
    list[b] = kept;
}

/* Asks the op about the call; on success its workspace is known. */
static bool fits(const chain *x, const weir_op *op, const fused_attrs *attrs, uint64_t *workspace)
{
    weir_type in[FUSED_INS_MAX], out[FUSED_OUTS_MAX];
    char error[256];
    for (int i = 0; i < x->in_count; i++)
        in[i] = type_of(x, x->in[i]);
    for (int o = 0; o < x->out_count; o++)
        out[o] = type_of(x, x->out[o]);
    weir_op_args local = {op, in, x->in_count, out, x->out_count, attrs};
    if (!op->fits(&local, error, sizeof error))
        return false;
    *workspace = round_up(op->workspace(&local, device_kernels(x->c->phys.device.item[pop_at(x, 0)->device].kind)));
    return true;
}

/* An input that out[0] may lie over, if there is one: it becomes in[0]. Temporaries alone are worth it. */
static const weir_op *choose_over(chain *x, fused_attrs *attrs, uint64_t *workspace)
{
    for (int o = 0; o < x->out_count; o++)
        for (int i = 0; i < x->in_count; i++) {
            const ptensor *from = &x->c->phys.tensor.item[x->in[i]], *to = &x->c->phys.tensor.item[x->out[o]];
            if (from->reg >= 0 || from->parameter || to->reg >= 0 || from->bytes != to->bytes)
                continue;
            swap(x->in, 0, i);
            swap(x->out, 0, o);
            if (write_attrs(x, attrs) && fits(x, x->over, attrs, workspace))
                return x->over;
            swap(x->in, 0, i);
            swap(x->out, 0, o);
        }
    return write_attrs(x, attrs) && fits(x, x->op, attrs, workspace) ? x->op : NULL;
}

static const char *name_of(const chain *x)
{
    pool *p = &x->c->pool;
    char *ops = pool_text(p, "fused(%s", pop_op(x->c, pop_at(x, 0))->name);
    for (int m = 1; m < x->count; m++)
        ops = pool_text(p, "%s, %s", ops, pop_op(x->c, pop_at(x, m))->name);
    return pool_text(p, "%s) %s..%s", ops, x->c->ir.node[pop_at(x, 0)->node].name,
                     x->c->ir.node[pop_at(x, x->count - 1)->node].name);
}

/* In a tensor's list of readers the chain's first pop stands for all of them. */
static void replace_readers(const chain *x, ptensor *t, bool still)
{
    int kept = 0;
    for (int r = 0; r < t->readers.count; r++)
        if (find(x->member, x->count, t->readers.item[r]) < 0 || (still && t->readers.item[r] == x->member[0]))
            t->readers.item[kept++] = t->readers.item[r];
    t->readers.count = kept;
}

/* A tensor that only a later member read is now read by the first, too: it takes that one's place in the list. */
static void read_by_first(const chain *x, ptensor *t)
{
    bool there = find(t->readers.item, t->readers.count, x->member[0]) >= 0;
    for (int r = 0; r < t->readers.count && !there; r++)
        if (find(x->member, x->count, t->readers.item[r]) >= 0) {
            t->readers.item[r] = x->member[0];
            there = true;
        }
    replace_readers(x, t, true);
}

static void make_one(chain *x, const weir_op *op, const fused_attrs *attrs, uint64_t workspace)
{
    compile *c = x->c;
    const char *name = name_of(x);
    const void *kept = pool_copy(&c->pool, attrs, sizeof *attrs);
    int *in = pool_copy(&c->pool, x->in, sizeof *in * (size_t)x->in_count);
    int *out = pool_copy(&c->pool, x->out, sizeof *out * (size_t)(x->out_count + 1));
    if (!name || !kept || !in || !out)
        return;
    for (int i = 0; i < x->in_count; i++)
        read_by_first(x, &c->phys.tensor.item[in[i]]);
    for (int o = 0; o < x->out_count; o++) {
        replace_readers(x, &c->phys.tensor.item[out[o]], false);
        c->phys.tensor.item[out[o]].producer = x->member[0];
    }
    for (int s = 0; s < x->scratch_count; s++) {
        c->phys.tensor.item[x->scratch[s]].producer = NONE;
        c->phys.tensor.item[x->scratch[s]].readers.count = 0;
    }
    for (int m = 1; m < x->count; m++)
        pop_at(x, m)->dead = true;
    pop *first = pop_at(x, 0);
    first->fused = op;
    first->fused_name = name;
    first->attrs = kept;
    first->in = in;
    first->in_count = x->in_count;
    first->out = out;
    first->out_count = x->out_count;
    first->scratch = workspace;
}

/* ---- chains ---- */

static bool joins(const chain *x, const pop *op, const int *position)
{
    return !op->dead && by_rows(x->c, op) && inputs_there(x, op, position) && rows_fit(x, op) && pays_to_join(x, op);
}

/* Takes the pop in if all of it still can be one kernel. */
static void try_join(chain *x, int id)
{
    fused_attrs attrs;
    uint64_t workspace;
    x->member[x->count++] = id;
    if (!sort_operands(x) || !write_attrs(x, &attrs) || !fits(x, x->op, &attrs, &workspace))
        x->count--;
}

/* As what chains of the group's device are called; false: it calls none. */
static bool choose_op(chain *x)
{
    const weir_device_kind kind = x->c->phys.device.item[x->c->phys.group.item[x->group].device].kind;
    x->launch = kind == WEIR_CUDA;
    x->op = x->launch ? &op_fused_launch : &op_fused;
    x->over = x->launch ? &op_fused_launch_over : &op_fused_over;
    return op_runs_on(x->op, kind);
}

/* The chain that the pop at `at` of the group begins. */
static void fuse_from(compile *c, int id, int at, const int *position)
{
    const group *g = &c->phys.group.item[id];
    chain x = {.c = c, .group = id, .first = at, .member = {g->pops.item[at]}, .count = 1};
    if (!choose_op(&x))
        return;
    const int most = x.launch ? FUSED_MEMBERS_MAX : CPU_MEMBERS;
    pop *first = pop_at(&x, 0);
    if (first->dead || !by_rows(c, first) || !rows_like(c, first, &x.like) || !rows_fit(&x, first))
        return;
    for (int i = at + 1; i < g->pops.count && i <= at + AHEAD && x.count < most; i++)
        if (joins(&x, &c->phys.op.item[g->pops.item[i]], position))
            try_join(&x, g->pops.item[i]);
    fused_attrs attrs;
    uint64_t workspace = 0;
    if (x.count < 2 || !sort_operands(&x))
        return;
    const weir_op *op = choose_over(&x, &attrs, &workspace);
    if (op)
        make_one(&x, op, &attrs, workspace);
}

/* The pops that are left. */
static void group_close_up(phys *p, group *g)
{
    int kept = 0;
    for (int i = 0; i < g->pops.count; i++)
        if (!p->op.item[g->pops.item[i]].dead)
            g->pops.item[kept++] = g->pops.item[i];
    g->pops.count = kept;
}

bool pass_fuse(compile *c)
{
    int *position = POOL_NEW(&c->pool, int, c->phys.op.count + 1);
    for (int g = 0; g < c->phys.group.count && position && !c->opts.no_fusion; g++) {
        group *of = &c->phys.group.item[g];
        for (int i = 0; i < of->pops.count; i++)
            position[of->pops.item[i]] = i;
        for (int i = 0; i < of->pops.count && !c->pool.failed; i++)
            fuse_from(c, g, i, position);
        group_close_up(&c->phys, of);
    }
    return !c->pool.failed || error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name) == WEIR_OK;
}
