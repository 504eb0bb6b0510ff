/* transport/line/links.c: see the header. Packing is one more copy, so it is kept for what would otherwise be many small
 * spans, or many rows; a slice along the first dimension, which is what most conversions read, is direct. */
#include "transport/line/links.h"

#include <stdlib.h>
#include <string.h>
#include <weir/op.h>

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/plan/lives/arrivals.h"
#include "graph/plan/spread/spread.h"
#include "graph/plan/form/view.h"
#include "regst/device.h"

#define DIRECT_BYTES 8192 /* a smaller piece is not worth a frame of its own */
#define SPANS_MAX 1024    /* of a transfer, before the rest is packed */
#define GAP_BYTES 1024    /* so many bytes that nobody wants may go along to keep two pieces in one frame */

enum { OUTS_MAX = 8 }; /* of an op */

struct building {
    struct links *links;
    const weir_plan *plan;
    uint32_t rank;
    const bool *wired;
    const weir_op *op; /* of the kernel whose pieces are made; NULL: none, or it reads all of its inputs */
    weir_view in[WEIR_ARGS_MAX], out[OUTS_MAX]; /* and its operands; without data */
    weir_kernel_args call;
    uint32_t pieces_room, spans_room, transfers_room;
    bool failed;
};

/* Room for one more element at the end of an array; NULL when there is no memory. */
static void *more(struct building *b, void **array, uint32_t *count, uint32_t *room, size_t item_bytes)
{
    if (*count == *room) {
        uint32_t wanted = *room ? 2 * *room : 16;
        void *grown = realloc(*array, wanted * item_bytes);
        if (!grown) {
            b->failed = true;
            return NULL;
        }
        *array = grown;
        *room = wanted;
    }
    char *item = (char *)*array + (*count)++ * item_bytes;
    memset(item, 0, item_bytes);
    return item;
}

/* ---- pieces ---- */

static int views_of(const weir_plan *plan, plan_range range, weir_view *views)
{
    for (uint32_t i = 0; i < range.count; i++)
        views[i] = plan_view_of(&plan->tensors[plan->operands[range.first + i].tensor.i]);
    return (int)range.count;
}

/* Its op is asked about the kernel's inputs from here on, if it has a rule for what it reads. */
static void ask_about(struct building *b, const plan_kernel *kernel)
{
    const weir_op *op = weir_op_find(plan_text(b->plan, kernel->op));
    b->op = op && op->reads ? op : NULL;
    if (b->op)
        b->call = (weir_kernel_args){.in = b->in,
                                     .in_count = views_of(b->plan, kernel->in, b->in),
                                     .out = b->out,
                                     .out_count = views_of(b->plan, kernel->out, b->out),
                                     .attrs = b->plan->words + kernel->attrs.first};
}

static bool part_within(const weir_view *part, const weir_view *whole)
{
    for (int d = 0; d < whole->shape.rank; d++)
        if (part->shape.dim[d] < 0 || part->shape.dim[d] > whole->shape.dim[d] || part->offset[d] < whole->offset[d] ||
            part->offset[d] - whole->offset[d] > whole->shape.dim[d] - part->shape.dim[d])
            return false;
    return true;
}

static bool part_empty(const weir_view *part)
{
    for (int d = 0; d < part->shape.rank; d++)
        if (part->shape.dim[d] == 0)
            return true;
    return false;
}

/* The slice of input number `input` that is read; its op may be the user's, so its answer is held against the shard.
 * False: none. */
static bool slice_read(const struct building *b, int input, const plan_tensor *from, struct piece *piece)
{
    const weir_view whole = plan_view_of(from);
    weir_view part = whole;
    if (b->op)
        b->op->reads(&b->call, input, &part);
    part.shape.rank = whole.shape.rank;
    if (part_empty(&part))
        return false;
    const weir_view *read = part_within(&part, &whole) ? &part : &whole;
    memcpy(piece->start, read->offset, from->rank * sizeof(*piece->start));
    memcpy(piece->count, read->shape.dim, from->rank * sizeof(*piece->count));
    return !part_empty(read);
}

/* Where the piece lies in the slot, and whether in one run: behind the first dimension that it does not have whole,
 * all must be; before it, all must be of one element. */
static void piece_place(const plan_tensor *from, struct piece *piece)
{
    uint64_t item = weir_dtype_bytes((weir_dtype)from->dtype), offset = 0, elements = 1;
    bool whole = true;
    piece->contiguous = true;
    for (uint32_t d = 0; d < from->rank; d++) {
        offset = offset * (uint64_t)from->shape[d] + (uint64_t)(piece->start[d] - from->start[d]);
        elements *= (uint64_t)piece->count[d];
    }
    for (uint32_t d = from->rank; d-- > 0;) {
        if (!whole && piece->count[d] > 1)
            piece->contiguous = false;
        whole = whole && piece->count[d] == from->shape[d];
    }
    piece->slot_offset = from->offset + offset * item;
    piece->bytes = elements * item;
}

static bool piece_same(const struct piece *a, const struct piece *b)
{
    return a->tensor == b->tensor && !memcmp(a->start, b->start, sizeof(a->start)) &&
           !memcmp(a->count, b->count, sizeof(a->count));
}

/* The transfer's piece that is this slice; made when there is none. LINKS_NONE: nothing is read, or no memory. */
static uint32_t piece_add(struct building *b, struct transfer *transfer, int input, uint32_t tensor)
{
    struct links *l = b->links;
    struct piece piece = {.tensor = tensor};
    if (!slice_read(b, input, &b->plan->tensors[tensor], &piece))
        return LINKS_NONE;
    for (uint32_t i = transfer->pieces.first; i < l->pieces_count; i++)
        if (piece_same(&l->pieces[i], &piece))
            return i;
    piece_place(&b->plan->tensors[tensor], &piece);
    struct piece *to = more(b, (void **)&l->pieces, &l->pieces_count, &b->pieces_room, sizeof(*to));
    if (!to)
        return LINKS_NONE;
    *to = piece;
    transfer->pieces.count++;
    return l->pieces_count - 1;
}

static bool operand_reads(const weir_plan *plan, const plan_operand *operand, uint32_t port)
{
    return operand->port.i == port && plan->tensors[operand->tensor.i].home == PLAN_IN_REGST;
}

/* The tensors that the kernel reads through the port. */
static void pieces_of_kernel(struct building *b, struct transfer *transfer, uint32_t port, const plan_kernel *kernel)
{
    bool asked = false;
    for (uint32_t o = kernel->in.first; o < kernel->in.first + kernel->in.count; o++) {
        if (!operand_reads(b->plan, &b->plan->operands[o], port))
            continue;
        if (!asked)
            ask_about(b, kernel);
        asked = true;
        b->links->piece_of[o] = piece_add(b, transfer, (int)(o - kernel->in.first), b->plan->operands[o].tensor.i);
    }
}

/* All pieces that the port's actor reads through it. An outside actor, which has no kernels, reads everything. */
static void pieces_of_port(struct building *b, struct transfer *transfer, uint32_t port)
{
    const weir_plan *plan = b->plan;
    const plan_actor *actor = &plan->actors[plan->ports[port].actor.i];
    const plan_regst *regst = &plan->regsts[plan->ports[port].regst.i];
    for (uint32_t k = actor->kernels.first; k < actor->kernels.first + actor->kernels.count; k++)
        pieces_of_kernel(b, transfer, port, &plan->kernels[k]);
    b->op = NULL;
    if (plan->queues[actor->queue.i].kind == PLAN_OUTSIDE)
        for (uint32_t t = regst->tensors.first; t < regst->tensors.first + regst->tensors.count; t++)
            piece_add(b, transfer, 0, t);
}

/* ---- spans ---- */

/* Whether the piece continues the direct span. */
static bool span_goes_on(const struct span *span, const struct piece *piece)
{
    uint64_t end = span->slot_offset + span->bytes;
    return span->direct && piece->contiguous && piece->slot_offset >= end && piece->slot_offset - end <= GAP_BYTES;
}

/* Where the next piece goes in a packed span. */
static uint64_t span_end(const struct span *span)
{
    return (span->bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
}

/* Whether the packed span can take the piece. Slices of one tensor may overlap and so be more, together, than there is
 * in the slot; a frame is no larger than that, which is what the other end allows. */
static bool span_has_room(const struct span *span, const struct piece *piece, uint64_t slot_bytes)
{
    return !span->direct && span_end(span) + piece->bytes <= slot_bytes;
}

static void span_take(struct span *span, uint32_t number, struct piece *piece)
{
    piece->span = number;
    if (span->direct) {
        piece->span_offset = piece->slot_offset - span->slot_offset;
        span->bytes = piece->span_offset + piece->bytes;
    } else {
        piece->span_offset = span_end(span);
        span->bytes = piece->span_offset + piece->bytes;
    }
    span->pieces.count++;
}

/* Where spans lie in a receive slot, and the number by which both ends see that they cut alike (FNV-1a). */
static void receive_lay_out(struct links *l, struct transfer *transfer)
{
    transfer->shape = 2166136261u;
    for (uint32_t i = 0; i < transfer->spans.count; i++) {
        struct span *span = &l->spans[transfer->spans.first + i];
        span->receive_offset = transfer->receive_bytes;
        transfer->bytes += span->bytes;
        transfer->receive_bytes += (span->bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
        for (int byte = 0; byte < 8; byte++)
            transfer->shape = (transfer->shape ^ (uint32_t)(span->bytes >> 8 * byte & 0xff)) * 16777619u;
    }
}

static void spans_cut(struct building *b, struct transfer *transfer)
{
    struct links *l = b->links;
    uint64_t slot_bytes = b->plan->regsts[transfer->regst].slot_bytes;
    struct span *span = NULL;
    transfer->spans.first = l->spans_count;
    for (uint32_t i = transfer->pieces.first; i < transfer->pieces.first + transfer->pieces.count; i++) {
        struct piece *piece = &l->pieces[i];
        bool alone = piece->contiguous && piece->bytes >= DIRECT_BYTES && transfer->spans.count < SPANS_MAX;
        bool joins = span && (span_goes_on(span, piece) || (!alone && span_has_room(span, piece, slot_bytes)));
        if (!joins) {
            span = more(b, (void **)&l->spans, &l->spans_count, &b->spans_room, sizeof(*span));
            if (!span)
                return;
            *span = (struct span){.pieces.first = i, .slot_offset = piece->slot_offset, .direct = alone};
            transfer->spans.count++;
        }
        span_take(span, transfer->spans.count - 1, piece);
    }
    receive_lay_out(l, transfer);
}

/* ---- transfers ---- */

static bool transfer_same(const struct links *l, const struct transfer *a, const struct transfer *b)
{
    if (a->regst != b->regst || a->program != b->program || a->to != b->to || a->pieces.count != b->pieces.count)
        return false;
    for (uint32_t i = 0; i < a->pieces.count; i++)
        if (!piece_same(&l->pieces[a->pieces.first + i], &l->pieces[b->pieces.first + i]))
            return false;
    return true;
}

/* The operands of the port follow the pieces of another transfer. */
static void operands_move(struct building *b, uint32_t port, const struct transfer *from, const struct transfer *to)
{
    const weir_plan *plan = b->plan;
    const plan_actor *actor = &plan->actors[plan->ports[port].actor.i];
    for (uint32_t k = actor->kernels.first; k < actor->kernels.first + actor->kernels.count; k++)
        for (uint32_t o = plan->kernels[k].in.first; o < plan->kernels[k].in.first + plan->kernels[k].in.count; o++)
            if (operand_reads(plan, &plan->operands[o], port) && b->links->piece_of[o] != LINKS_NONE)
                b->links->piece_of[o] += to->pieces.first - from->pieces.first;
}

/* Takes back the transfer made last when an earlier one of this register is the same. `first`: where to look from. */
static void transfer_merge(struct building *b, uint32_t port, uint32_t first)
{
    struct links *l = b->links;
    uint32_t last = l->transfers_count - 1;
    for (uint32_t i = first; i < last; i++) {
        if (!transfer_same(l, &l->transfers[i], &l->transfers[last]))
            continue;
        operands_move(b, port, &l->transfers[last], &l->transfers[i]);
        l->pieces_count = l->transfers[last].pieces.first;
        l->transfers_count = last;
        l->transfer_of[port] = i;
        return;
    }
    spans_cut(b, &l->transfers[last]);
}

static bool crosses(const struct building *b, uint32_t port, uint32_t *from, uint32_t *to)
{
    const plan_regst *regst = &b->plan->regsts[b->plan->ports[port].regst.i];
    *from = b->plan->spaces[regst->space.i].rank;
    *to = plan_rank_of(b->plan, b->plan->ports[port].actor.i);
    return *from != *to && ((*from == b->rank && b->wired[*to]) || (*to == b->rank && b->wired[*from]));
}

static void transfer_new(struct building *b, uint32_t port, uint32_t first)
{
    struct links *l = b->links;
    uint32_t from, to;
    if (!crosses(b, port, &from, &to))
        return;
    struct transfer *transfer =
        more(b, (void **)&l->transfers, &l->transfers_count, &b->transfers_room, sizeof(*transfer));
    if (!transfer)
        return;
    const plan_port *of = &b->plan->ports[port];
    bool constant = b->plan->regsts[of->regst.i].producer.i == PLAN_NONE;
    *transfer = (struct transfer){.leader = port,
                                  .program = constant ? 0 : b->plan->actors[of->actor.i].program.i,
                              .regst = b->plan->ports[port].regst.i,
                              .from = from,
                              .to = to,
                              .pieces.first = l->pieces_count};
    l->transfer_of[port] = l->transfers_count - 1;
    pieces_of_port(b, transfer, port);
    transfer_merge(b, port, first);
}

/* Ports in the order of their registers, and of one register in the order of ports, which is that of its edges: the
 * leader's READY then is the first that its producer sends. */
static uint32_t *ports_by_regst(const weir_plan *plan)
{
    uint32_t *first = calloc((size_t)plan->regsts_count + 1, sizeof(*first));
    uint32_t *order = calloc((size_t)plan->ports_count + 1, sizeof(*order));
    for (uint32_t p = 0; first && order && p < plan->ports_count; p++)
        first[plan->ports[p].regst.i + 1]++;
    for (uint32_t r = 0; first && order && r < plan->regsts_count; r++)
        first[r + 1] += first[r];
    for (uint32_t p = 0; first && order && p < plan->ports_count; p++)
        order[first[plan->ports[p].regst.i]++] = p;
    if (!first) {
        free(order);
        order = NULL;
    }
    free(first);
    return order;
}

static void transfers_make(struct building *b)
{
    const weir_plan *plan = b->plan;
    uint32_t *order = ports_by_regst(plan);
    b->failed |= !order;
    uint32_t first = 0;
    for (uint32_t i = 0; !b->failed && i < plan->ports_count; i++) {
        if (i && plan->ports[order[i]].regst.i != plan->ports[order[i - 1]].regst.i)
            first = b->links->transfers_count;
        transfer_new(b, order[i], first);
    }
    free(order);
}

/* Whether all of a register of one slot and one tensor comes in one run, for one port. */
static bool comes_whole(const struct building *b, const struct transfer *transfer, const uint32_t *ports)
{
    const struct links *l = b->links;
    const plan_regst *regst = &b->plan->regsts[transfer->regst];
    const struct piece *piece = &l->pieces[transfer->pieces.first];
    return transfer->to == b->rank && ports[transfer - l->transfers] == 1 && regst->slots == 1 &&
           transfer->pieces.count == 1 && transfer->spans.count == 1 && l->spans[transfer->spans.first].direct &&
           piece->tensor == regst->tensors.first &&
           piece->bytes == plan_tensor_bytes(&b->plan->tensors[regst->tensors.first]);
}

/* Whether each transfer that might comes in place. */
static weir_status arrivals_place(struct building *b, arrival *list, uint32_t *ports)
{
    struct links *l = b->links;
    uint32_t count = 0;
    for (uint32_t p = 0; p < b->plan->ports_count; p++)
        if (l->transfer_of[p] != LINKS_NONE)
            ports[l->transfer_of[p]]++;
    for (uint32_t i = 0; i < l->transfers_count; i++)
        if (comes_whole(b, &l->transfers[i], ports))
            list[count++].port = l->transfers[i].leader;
    weir_status status = count ? arrivals_prove(b->plan, list, count) : WEIR_OK;
    for (uint32_t i = 0; !status && i < count; i++) {
        struct transfer *transfer = links_find(l, list[i].port);
        transfer->in_place = list[i].proven;
        transfer->space = list[i].space;
        transfer->place = list[i].place;
        l->in_place_bytes += transfer->in_place ? transfer->bytes : 0;
    }
    return status;
}

static weir_status arrivals_find(struct building *b)
{
    arrival *list = calloc(b->links->transfers_count + (size_t)1, sizeof(*list));
    uint32_t *ports = calloc(b->links->transfers_count + (size_t)1, sizeof(*ports));
    weir_status status = list && ports ? arrivals_place(b, list, ports)
                                       : error_set(WEIR_E_MEMORY, "no memory for the links between ranks");
    free(list);
    free(ports);
    return status;
}

static void receive_place(struct links *links, const weir_plan *plan, uint32_t rank)
{
    for (uint32_t i = 0; i < links->transfers_count; i++) {
        struct transfer *transfer = &links->transfers[i];
        if (transfer->to != rank || transfer->in_place)
            continue;
        transfer->receive_offset = links->receive_bytes;
        links->receive_bytes += plan->regsts[transfer->regst].slots * transfer->receive_bytes;
    }
}

weir_status links_receive_open(struct links *links, const struct arena *arenas)
{
    void *memory = NULL;
    weir_status status =
        links->receive_bytes ? device_find(WEIR_CPU)->space_new(NULL, 0, links->receive_bytes, &memory) : WEIR_OK;
    if (status)
        return error_set(status, "no memory for what arrives from other hosts: %llu bytes",
                         (unsigned long long)links->receive_bytes);
    links->receive = memory;
    for (uint32_t i = 0; i < links->transfers_count; i++) {
        struct transfer *transfer = &links->transfers[i];
        if (transfer->in_place)
            transfer->receive = arenas[transfer->space.i].base + transfer->place;
        else if (memory)
            transfer->receive = links->receive + transfer->receive_offset;
    }
    return WEIR_OK;
}

weir_status links_open(struct links *links, const weir_plan *plan, uint32_t rank, const bool *wired)
{
    struct building b = {.links = links, .plan = plan, .rank = rank, .wired = wired};
    *links = (struct links){0};
    links->transfer_of = malloc(((size_t)plan->ports_count + 1) * sizeof(*links->transfer_of));
    links->piece_of = malloc(((size_t)plan->operands_count + 1) * sizeof(*links->piece_of));
    b.failed = !links->transfer_of || !links->piece_of;
    if (!b.failed) {
        memset(links->transfer_of, 0xff, ((size_t)plan->ports_count + 1) * sizeof(*links->transfer_of));
        memset(links->piece_of, 0xff, ((size_t)plan->operands_count + 1) * sizeof(*links->piece_of));
        transfers_make(&b);
    }
    weir_status status =
        b.failed ? error_set(WEIR_E_MEMORY, "no memory for the links between ranks") : arrivals_find(&b);
    if (status)
        links_close(links);
    else
        receive_place(links, plan, rank);
    return status;
}

void links_close(struct links *links)
{
    if (links->receive)
        device_find(WEIR_CPU)->space_free(links->receive, links->receive_bytes);
    free(links->pieces);
    free(links->spans);
    free(links->transfers);
    free(links->transfer_of);
    free(links->piece_of);
    *links = (struct links){0};
}

/* ---- packing ---- */

static void piece_pack(const plan_tensor *from, const struct piece *piece, const char *slot, char *to)
{
    uint64_t item = weir_dtype_bytes((weir_dtype)from->dtype);
    int last = (int)from->rank - 1;
    uint64_t row_bytes = last < 0 ? item : (uint64_t)piece->count[last] * item;
    int64_t index[WEIR_DIMS_MAX] = {0};
    for (uint64_t done = 0; done < piece->bytes; done += row_bytes) {
        uint64_t offset = 0;
        for (int d = 0; d <= last; d++)
            offset = offset * (uint64_t)from->shape[d] + (uint64_t)(piece->start[d] - from->start[d] + index[d]);
        memcpy(to + done, slot + from->offset + offset * item, row_bytes);
        for (int d = last - 1; d >= 0 && ++index[d] == piece->count[d]; d--)
            index[d] = 0;
    }
}

void links_pack(const struct links *links, const weir_plan *plan, const struct span *span, const char *slot, char *to)
{
    for (uint32_t i = span->pieces.first; i < span->pieces.first + span->pieces.count; i++) {
        const struct piece *piece = &links->pieces[i];
        piece_pack(&plan->tensors[piece->tensor], piece, slot, to + piece->span_offset);
    }
}
