/* graph/compile/actors/merge.c: see the header. */
#include "graph/compile/actors/merge.h"
#include "graph/compile/devices/exchange.h"

#include <string.h>

bool collectives_fit(const compile *c, int a, int b, uint64_t bytes_max)
{
    const phys *p = &c->phys;
    const pcollective *x = &p->collective.item[a], *y = &p->collective.item[b];
    bool fit = x->members.count == y->members.count && x->sum == y->sum;
    for (int m = 0; fit && m < x->members.count; m++) {
        const pop *one = &p->op.item[x->members.item[m]], *other = &p->op.item[y->members.item[m]];
        fit = one->device == other->device && one->in_count + other->in_count <= WEIR_ARGS_MAX &&
              one->out_count + other->out_count <= WEIR_ARGS_MAX &&
              one->bytes_in + other->bytes_in <= bytes_max && one->bytes_out + other->bytes_out <= bytes_max;
    }
    return fit;
}

/* The operands of `from` become operands of `to`; of a sum each input has its output. */
static void operands_append(compile *c, int to_id, int from_id, bool sum)
{
    pop *to = &c->phys.op.item[to_id];
    const pop *from = &c->phys.op.item[from_id];
    const int *in = to->in, *out = to->out, ins = to->in_count, outs = to->out_count;
    if (!collective_room(c, to, ins + from->in_count, outs + from->out_count))
        return;
    memcpy(to->in, in, sizeof *in * (size_t)ins);
    memcpy(to->out, out, sizeof *out * (size_t)outs);
    for (int i = 0; i < from->in_count; i++)
        collective_operand(c, to_id, true, from->in[i], !sum);
    for (int o = 0; o < from->out_count; o++)
        collective_operand(c, to_id, false, from->out[o], !sum);
}

/* Readers of it for `from` read it for `to`. */
static void reader_becomes(ptensor *t, int from, int to)
{
    bool there = false;
    int kept = 0;
    for (int r = 0; r < t->readers.count; r++)
        there |= t->readers.item[r] == to;
    for (int r = 0; r < t->readers.count; r++)
        if (t->readers.item[r] != from)
            t->readers.item[kept++] = t->readers.item[r];
        else if (!there)
            t->readers.item[kept++] = to;
    t->readers.count = kept;
}

static void member_merge(compile *c, int to_id, int from_id, bool sum)
{
    phys *p = &c->phys;
    pop *to = &p->op.item[to_id], *from = &p->op.item[from_id];
    for (int i = 0; i < from->in_count; i++)
        reader_becomes(&p->tensor.item[ptensor_whole(p, from->in[i])], from_id, to_id);
    for (int o = 0; o < from->out_count; o++)
        p->tensor.item[from->out[o]].producer = p->tensor.item[ptensor_whole(p, from->out[o])].producer = to_id;
    operands_append(c, to_id, from_id, sum);
    from->dead = true;
    from->group = to->group;
}

void collectives_merge(compile *c, int a, int b)
{
    phys *p = &c->phys;
    pcollective *x = &p->collective.item[a], *y = &p->collective.item[b];
    for (int i = 0; i < y->moves.count; i++) {
        pmove *move = &p->move.item[y->moves.item[i]];
        int *at = POOL_PUSH(&c->pool, &x->moves);
        if (!at)
            return;
        *at = y->moves.item[i];
        move->from = x->members.item[collective_member(y, move->from)];
        move->to = x->members.item[collective_member(y, move->to)];
    }
    for (int m = 0; m < x->members.count; m++)
        member_merge(c, x->members.item[m], y->members.item[m], x->sum != NONE);
    y->members.count = y->moves.count = 0;
}
