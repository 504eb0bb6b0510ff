/* tests/transport/net/test_links.c: what of a register goes to readers on other ranks. Random models in random layouts
 * are spread over ranks none of which share memory; what the links say of each transfer is held against loops over
 * every element. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#include "graph/plan/spread/spread.h"
#include "kernels/common/ops.h"
#include "tests/support/effort.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/ops.h"
#include "tests/support/random_model.h"
#include "tests/support/sdf.h"
#include "tests/support/small_plans.h"
#include "regst/arena.h"
#include "transport/line/links.h"

enum { MODELS = EFFORT(100, 8, 8) };

enum { SEED = 77001, RANKS = 4, GAP_BYTES = 1024 };

TestSuite(links, .timeout = 120);

/* ---- plans and links ---- */

struct spread {
    weir_plan *plan;
    uint32_t ranks;
    char name[64];
    struct links links[RANKS]; /* of each rank, to all others */
};

static void links_make(struct links *links, const weir_plan *plan, uint32_t ranks, uint32_t rank)
{
    bool wired[RANKS];
    for (uint32_t r = 0; r < ranks; r++)
        wired[r] = r != rank;
    cr_assert_eq(links_open(links, plan, rank, wired), WEIR_OK, "%s", weir_error());
}

/* Takes the plan over. NULL: it needs fewer ranks. */
static struct spread *spread_new(weir_plan *plan, uint32_t ranks)
{
    struct spread *s = calloc(1, sizeof *s);
    cr_assert(s);
    s->ranks = ranks;
    s->plan = plan_spread(plan, ranks, 0);
    cr_assert_not_null(s->plan, "%s", weir_error());
    weir_plan_free(plan);
    for (uint32_t r = 0; r < ranks; r++)
        links_make(&s->links[r], s->plan, ranks, r);
    return s;
}

static void spread_free(struct spread *s)
{
    for (uint32_t r = 0; r < s->ranks; r++)
        links_close(&s->links[r]);
    weir_plan_free(s->plan);
    free(s);
}

/* `of`: plans by number; the small ones come first. */
static struct spread *spread_of(int of)
{
    uint32_t ranks = 2 + (uint32_t)of % (RANKS - 1);
    uint64_t model = (uint64_t)(SEED + of);
    weir_plan *plan = NULL;
    if (of < SMALL_PLANS) {
        plan = small_plan(of);
    } else {
        weir_graph *graph = random_model(model, model * 5 + 2);
        plan = weir_compile(graph, .micro_batches = random_model_micro(model));
        weir_graph_free(graph);
    }
    cr_assert_not_null(plan, "plan %d: %s", of, weir_error());
    struct spread *s = spread_new(plan, ranks);
    snprintf(s->name, sizeof s->name, "plan %d over %u ranks", of, ranks);
    return s;
}

/* Calls `test` with every transfer, as its sender sees it. Returns how many there were. */
typedef void (*transfer_test)(const struct spread *s, const struct links *links, const struct transfer *transfer);
static int each_transfer(transfer_test test)
{
    int count = 0;
    cr_log_info("seed %d", SEED);
    for (int of = 0; of < MODELS + SMALL_PLANS; of++) {
        struct spread *s = spread_of(of);
        for (uint32_t r = 0; r < s->ranks; r++)
            for (uint32_t i = 0; i < s->links[r].transfers_count; i++) {
                if (s->links[r].transfers[i].from != r)
                    continue;
                test(s, &s->links[r], &s->links[r].transfers[i]);
                count++;
            }
        spread_free(s);
    }
    return count;
}

/* ---- elements ---- */

/* The place of an element of a box, row by row; counts up the indexes of the next one. False: that was the last. */
static bool next_element(uint32_t rank, const int64_t *count, int64_t *index)
{
    for (int d = (int)rank - 1; d >= 0; d--) {
        if (++index[d] < count[d])
            return true;
        index[d] = 0;
    }
    return false;
}

static int64_t place_in(uint32_t rank, const int64_t *count, const int64_t *start, const int64_t *global)
{
    int64_t place = 0;
    for (uint32_t d = 0; d < rank; d++)
        place = place * count[d] + global[d] - start[d];
    return place;
}

static bool inside(uint32_t rank, const int64_t *start, const int64_t *count, const int64_t *global)
{
    for (uint32_t d = 0; d < rank; d++)
        if (global[d] < start[d] || global[d] >= start[d] + count[d])
            return false;
    return true;
}

/* Whether the kernel reads this element of what is handed to it: a conversion, what is in its output, too. */
static bool is_read(const weir_plan *plan, const plan_kernel *kernel, const plan_tensor *from, const int64_t *global)
{
    if (!kernel || strcmp(plan_text(plan, kernel->op), op_box.name))
        return true;
    const plan_tensor *to = &plan->tensors[plan->operands[kernel->out.first].tensor.i];
    return inside(from->rank, to->start, to->shape, global);
}

/* ---- what arrives ---- */

/* The payload of one span, made as a sender makes it. Owned by the caller. */
static char *frame_of(const struct spread *s, const struct links *links, const struct span *span, const char *slot)
{
    char *frame = malloc(span->bytes + 1);
    cr_assert(frame);
    memset(frame, 0, span->bytes);
    if (span->direct)
        memcpy(frame, slot + span->slot_offset, span->bytes);
    else
        links_pack(links, s->plan, span, slot, frame);
    return frame;
}

static char *slot_filled(const plan_regst *regst)
{
    uint64_t random = SEED + regst->slot_bytes;
    char *slot = malloc(regst->slot_bytes + 8);
    cr_assert(slot);
    for (uint64_t i = 0; i < regst->slot_bytes; i += 8) {
        uint64_t word = mutate_draw(&random);
        memcpy(slot + i, &word, 8);
    }
    return slot;
}

/* Element for element: what the kernel is to find in the frame is what lies in the slot, and there is no other. */
static void operand_finds_all(const struct spread *s, const struct links *links, const struct transfer *transfer,
                              const plan_kernel *kernel, const plan_tensor *from, uint32_t number, const char *slot)
{
    const struct piece *piece = number == LINKS_NONE ? NULL : &links->pieces[number];
    const struct span *span = piece ? &links->spans[transfer->spans.first + piece->span] : NULL;
    char *frame = span ? frame_of(s, links, span, slot) : NULL;
    uint64_t item = weir_dtype_bytes((weir_dtype)from->dtype);
    int64_t index[WEIR_DIMS_MAX] = {0}, reads = 0, count = 1, wrong = 0;
    for (uint32_t d = 0; d < from->rank; d++)
        count *= from->shape[d];
    for (bool more = count > 0; more; more = next_element(from->rank, from->shape, index)) {
        int64_t global[WEIR_DIMS_MAX];
        for (uint32_t d = 0; d < from->rank; d++)
            global[d] = from->start[d] + index[d];
        if (!is_read(s->plan, kernel, from, global))
            continue;
        reads++;
        cr_assert(piece && inside(from->rank, piece->start, piece->count, global), "%s: an element is not sent", s->name);
        uint64_t at = piece->span_offset + (uint64_t)place_in(from->rank, piece->count, piece->start, global) * item;
        uint64_t lies = from->offset + (uint64_t)place_in(from->rank, from->shape, from->start, global) * item;
        cr_assert_leq(at + item, span->bytes, "%s: an element is behind the end of its frame", s->name);
        wrong += memcmp(frame + at, slot + lies, item) != 0;
    }
    cr_assert_eq(wrong, 0, "%s: %lld elements of %s are others", s->name, (long long)wrong,
                 plan_text(s->plan, from->name));
    cr_assert_eq(piece ? piece->bytes : 0, (uint64_t)reads * item, "%s: of %s %lld elements are read", s->name,
                 plan_text(s->plan, from->name), (long long)reads);
    free(frame);
}

static void port_finds_all(const struct spread *s, const struct links *links, const struct transfer *transfer,
                           uint32_t port, const char *slot)
{
    const weir_plan *plan = s->plan;
    const plan_actor *actor = &plan->actors[plan->ports[port].actor.i];
    for (uint32_t k = actor->kernels.first; k < actor->kernels.first + actor->kernels.count; k++)
        for (uint32_t o = plan->kernels[k].in.first; o < plan->kernels[k].in.first + plan->kernels[k].in.count; o++) {
            const plan_tensor *tensor = &plan->tensors[plan->operands[o].tensor.i];
            if (plan->operands[o].port.i == port && tensor->home == PLAN_IN_REGST)
                operand_finds_all(s, links, transfer, &plan->kernels[k], tensor, links->piece_of[o], slot);
        }
    const plan_regst *regst = &plan->regsts[transfer->regst];
    for (uint32_t i = 0; plan->queues[actor->queue.i].kind == PLAN_OUTSIDE && i < regst->tensors.count; i++)
        operand_finds_all(s, links, transfer, NULL, &plan->tensors[regst->tensors.first + i],
                          transfer->pieces.first + i, slot);
}

static void readers_find_all(const struct spread *s, const struct links *links, const struct transfer *transfer)
{
    char *slot = slot_filled(&s->plan->regsts[transfer->regst]);
    for (uint32_t p = 0; p < s->plan->ports_count; p++)
        if (links_find(links, p) == transfer)
            port_finds_all(s, links, transfer, p, slot);
    free(slot);
}

Test(links, readers_find_exactly_what_they_read)
{
    cr_expect_gt(each_transfer(readers_find_all), 100);
}

/* ---- spans ---- */

static bool slow_contiguous(const plan_tensor *from, const struct piece *piece)
{
    int64_t index[WEIR_DIMS_MAX] = {0}, expected = -1;
    bool more = true;
    while (more) {
        int64_t global[WEIR_DIMS_MAX];
        for (uint32_t d = 0; d < from->rank; d++)
            global[d] = piece->start[d] + index[d];
        int64_t place = place_in(from->rank, from->shape, from->start, global);
        if (expected >= 0 && place != expected)
            return false;
        expected = place + 1;
        more = next_element(from->rank, piece->count, index);
    }
    return true;
}

static void pieces_fit(const struct spread *s, const struct links *links, const struct transfer *transfer,
                       const struct span *span, uint32_t number)
{
    uint64_t end = 0;
    for (uint32_t i = span->pieces.first; i < span->pieces.first + span->pieces.count; i++) {
        const struct piece *piece = &links->pieces[i];
        const plan_tensor *from = &s->plan->tensors[piece->tensor];
        cr_assert_eq(piece->span, number);
        cr_assert_eq(from->owner, transfer->regst);
        cr_assert_eq(piece->contiguous, slow_contiguous(from, piece), "%s: %s", s->name, plan_text(s->plan, from->name));
        cr_assert_geq(piece->span_offset, end, "%s: pieces overlap", s->name);
        cr_assert_leq(piece->span_offset - end, GAP_BYTES);
        cr_assert_eq(piece->span_offset % weir_dtype_bytes((weir_dtype)from->dtype), 0);
        end = piece->span_offset + piece->bytes;
        if (span->direct) {
            cr_assert(piece->contiguous);
            cr_assert_eq(piece->slot_offset, span->slot_offset + piece->span_offset);
        }
    }
    cr_assert_eq(end, span->bytes, "%s: a span of %llu bytes ends after %llu", s->name, (unsigned long long)span->bytes,
                 (unsigned long long)end);
}

static void spans_fit(const struct spread *s, const struct links *links, const struct transfer *transfer)
{
    const plan_regst *regst = &s->plan->regsts[transfer->regst];
    uint32_t piece = transfer->pieces.first;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < transfer->spans.count; i++) {
        const struct span *span = &links->spans[transfer->spans.first + i];
        cr_assert_eq(span->pieces.first, piece, "%s: pieces are left out", s->name);
        cr_assert_leq(span->bytes, regst->slot_bytes, "%s: a span of %llu bytes out of a slot of %llu", s->name,
                      (unsigned long long)span->bytes, (unsigned long long)regst->slot_bytes);
        if (span->direct)
            cr_assert_leq(span->slot_offset + span->bytes, regst->slot_bytes);
        pieces_fit(s, links, transfer, span, i);
        piece += span->pieces.count;
        bytes += span->bytes;
    }
    cr_assert_eq(piece, transfer->pieces.first + transfer->pieces.count);
    cr_assert_eq(bytes, transfer->bytes);
}

/* ---- receive slots ---- */

/* Spans lie one behind the other, each at a multiple of 64, and fill the slot. */
static void receive_slot_fits(const struct spread *s, const struct links *links, const struct transfer *transfer)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < transfer->spans.count; i++) {
        const struct span *span = &links->spans[transfer->spans.first + i];
        cr_assert_gt(span->bytes, 0, "%s: a span of nothing", s->name);
        cr_assert_eq(span->receive_offset % 64, 0);
        cr_assert(span->receive_offset >= end && span->receive_offset - end < 64, "%s: span %u is at %llu", s->name, i,
                  (unsigned long long)span->receive_offset);
        end = span->receive_offset + span->bytes;
    }
    cr_assert_eq(transfer->receive_bytes % 64, 0);
    cr_assert(transfer->receive_bytes >= end && transfer->receive_bytes - end < 64);
}

static void spans_fit_both_ends(const struct spread *s, const struct links *links, const struct transfer *transfer)
{
    spans_fit(s, links, transfer);
    receive_slot_fits(s, links, transfer);
}

Test(links, spans_hold_each_piece_once_and_fit_into_both_slots)
{
    cr_expect_gt(each_transfer(spans_fit_both_ends), 100);
}

/* The receive slots of all transfers to the rank lie one behind the other, and there are no others. */
static uint32_t receive_slots_fit(const struct spread *s, uint32_t rank)
{
    const struct links *links = &s->links[rank];
    uint64_t end = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < links->transfers_count; i++) {
        const struct transfer *transfer = &links->transfers[i];
        if (transfer->to != rank || transfer->in_place)
            continue;
        cr_assert_eq(transfer->receive_offset, end, "%s, rank %u: transfer %u", s->name, rank, i);
        end += s->plan->regsts[transfer->regst].slots * transfer->receive_bytes;
        count++;
    }
    cr_assert_eq(links->receive_bytes, end, "%s, rank %u", s->name, rank);
    return count;
}

static struct arena *arenas_of(const weir_plan *plan)
{
    struct arena *arenas = calloc(plan->spaces_count, sizeof *arenas);
    cr_assert_not_null(arenas);
    for (uint32_t i = 0; i < plan->spaces_count; i++)
        cr_assert_not_null(arenas[i].base = malloc(plan->spaces[i].bytes + 1));
    return arenas;
}

static void arenas_free(const weir_plan *plan, struct arena *arenas)
{
    for (uint32_t i = 0; i < plan->spaces_count; i++)
        free(arenas[i].base);
    free(arenas);
}

/* A transfer in place arrives in the arena of the rank's own space. */
static void is_in_arena(const struct spread *s, const struct transfer *transfer, const struct arena *arenas)
{
    const plan_space *space = &s->plan->spaces[transfer->space.i];
    cr_assert_eq(space->rank, transfer->to);
    cr_assert_eq(s->plan->regsts[transfer->regst].slots, 1);
    cr_assert_eq(transfer->receive, arenas[transfer->space.i].base + transfer->place);
    cr_assert(transfer->place % 64 == 0 && transfer->place + transfer->bytes <= space->bytes);
}

/* Every byte of every one is there, is zero, and is no other's. */
static void receive_slots_are_there(struct spread *s, uint32_t rank)
{
    struct links *links = &s->links[rank];
    struct arena *arenas = arenas_of(s->plan);
    cr_assert_eq(links_receive_open(links, arenas), WEIR_OK, "%s", weir_error());
    cr_assert_eq(links->receive != NULL, links->receive_bytes > 0);
    cr_assert_eq((uintptr_t)links->receive % 4096, 0);
    for (uint32_t i = 0; i < links->transfers_count; i++) {
        const struct transfer *transfer = &links->transfers[i];
        if (transfer->in_place)
            is_in_arena(s, transfer, arenas);
        for (uint32_t slot = 0; transfer->to == rank && !transfer->in_place && slot < s->plan->regsts[transfer->regst].slots; slot++)
            for (uint32_t k = 0; k < transfer->spans.count; k++) {
                const struct span *span = &links->spans[transfer->spans.first + k];
                char *at = links_receive(transfer, span, slot);
                cr_assert(at >= links->receive && at + span->bytes <= links->receive + links->receive_bytes);
                for (uint64_t b = 0; b < span->bytes; b++)
                    cr_assert(!at[b], "%s, rank %u: a byte is another's, too", s->name, rank);
                memset(at, 1, span->bytes);
            }
    }
    arenas_free(s->plan, arenas);
}

Test(links, receive_slots_are_memory_of_their_own)
{
    uint32_t count = 0;
    for (int of = 0; of < 12; of++) {
        struct spread *s = spread_of(of);
        for (uint32_t r = 0; r < s->ranks; r++) {
            count += receive_slots_fit(s, r);
            receive_slots_are_there(s, r);
        }
        spread_free(s);
    }
    cr_expect_gt(count, 20);
}

enum { SHAPES_MAX = 4096, SIZES_MAX = 64 };

struct shape {
    uint32_t number, spans;
    uint64_t bytes[SIZES_MAX];
};

static struct shape *shapes;
static int shapes_count;

static void shape_add(const struct links *links, const struct transfer *transfer)
{
    struct shape *shape = &shapes[shapes_count];
    if (shapes_count == SHAPES_MAX || transfer->spans.count > SIZES_MAX)
        return;
    memset(shape, 0, sizeof *shape);
    shape->number = transfer->shape;
    shape->spans = transfer->spans.count;
    for (uint32_t i = 0; i < transfer->spans.count; i++)
        shape->bytes[i] = links->spans[transfer->spans.first + i].bytes;
    shapes_count++;
}

/* Two transfers have the same number when their spans have the same sizes, and, but for bad luck, only then. */
Test(links, the_shape_tells_the_sizes_of_the_spans)
{
    int same = 0, other = 0, wrong = 0;
    shapes = calloc(SHAPES_MAX, sizeof *shapes);
    cr_assert(shapes);
    for (int of = 0; of < 20; of++) {
        struct spread *s = spread_of(of);
        for (uint32_t r = 0; r < s->ranks; r++)
            for (uint32_t i = 0; i < s->links[r].transfers_count; i++)
                shape_add(&s->links[r], &s->links[r].transfers[i]);
        spread_free(s);
    }
    for (int i = 0; i < shapes_count; i++)
        for (int k = 0; k < i; k++) {
            bool sizes = shapes[i].spans == shapes[k].spans &&
                         !memcmp(shapes[i].bytes, shapes[k].bytes, sizeof shapes[i].bytes);
            *(sizes ? &same : &other) += 1;
            wrong += sizes != (shapes[i].number == shapes[k].number);
        }
    cr_expect(same > 100 && other > 100, "%d pairs of the same sizes, %d of others", same, other);
    cr_expect_eq(wrong, 0);
    free(shapes);
}

/* Each port that crosses has a transfer, one per set of pieces, and it is sent for the first of its ports. */
static void leads(const struct spread *s, const struct links *links, const struct transfer *transfer)
{
    uint32_t first = UINT32_MAX;
    for (uint32_t p = s->plan->ports_count; p-- > 0;)
        if (links_find(links, p) == transfer)
            first = p;
    cr_expect_eq(transfer->leader, first);
    cr_expect_eq(transfer->to, plan_rank_of(s->plan, s->plan->ports[first].actor.i));
}

Test(links, the_first_port_of_a_transfer_leads)
{
    cr_expect_gt(each_transfer(leads), 100);
}

Test(links, ports_that_cross_have_transfers_and_others_have_none)
{
    for (int of = 0; of < 12; of++) {
        struct spread *s = spread_of(of);
        for (uint32_t r = 0; r < s->ranks; r++)
            for (uint32_t p = 0; p < s->plan->ports_count; p++) {
                const plan_regst *regst = &s->plan->regsts[s->plan->ports[p].regst.i];
                uint32_t from = s->plan->spaces[regst->space.i].rank;
                uint32_t to = plan_rank_of(s->plan, s->plan->ports[p].actor.i);
                bool crosses = from != to && (from == r || to == r);
                cr_assert_eq(links_find(&s->links[r], p) != NULL, crosses, "%s, rank %u, port %u", s->name, r, p);
            }
        spread_free(s);
    }
}

/* ---- ops that read a part ---- */

enum { LONG = 5000, TAIL = 7 };

/* x on device 0 -> an op on device 1. */
static struct spread *spread_of_op(const char *op)
{
    test_ops();
    sdf *s = sdf_new(op, 1);
    uint32_t first = sdf_device(s), second = sdf_device(s);
    uint32_t x = sdf_regst(s, sdf_actor(s, first, "x", .kernel = "test_sum"), .slots = 2, .items = LONG);
    uint32_t reader = sdf_actor(s, second, "reader", .kernel = op);
    sdf_port(s, reader, x);
    sdf_regst(s, reader, .slots = 1, .items = TAIL);
    return spread_new(sdf_plan(s), 2);
}

/* Checks that both ends have one transfer, of `count` elements from `start` on. */
static void expect_read(const char *op, int64_t start, int64_t count)
{
    struct spread *s = spread_of_op(op);
    for (uint32_t r = 0; r < 2; r++) {
        const struct links *links = &s->links[r];
        cr_assert_eq(links->transfers_count, 1, "%s: %u transfers", op, links->transfers_count);
        cr_expect_eq(links->transfers[0].bytes, (uint64_t)count * 4, "%s: %llu bytes", op,
                     (unsigned long long)links->transfers[0].bytes);
        cr_assert_eq(links->pieces_count, count > 0);
        cr_expect(!count || (links->pieces[0].start[0] == start && links->pieces[0].count[0] == count));
    }
    spread_free(s);
}

Test(links, what_an_op_says_that_it_reads_crosses_and_no_more)
{
    expect_read("test_tail", LONG - TAIL, TAIL);
    expect_read("test_blind", 0, 0);
}

Test(links, all_crosses_when_an_op_says_that_it_reads_what_is_not_there)
{
    expect_read("test_wild", 0, LONG);
}

/* ---- both ends ---- */

/* All but the tensors' numbers, which differ in parts of a plan; their names do not. */
static void same_pieces(const weir_plan *plan_a, const struct links *a, const struct transfer *of_a,
                        const weir_plan *plan_b, const struct links *b, const struct transfer *of_b)
{
    cr_assert(of_a->regst == of_b->regst && of_a->from == of_b->from && of_a->to == of_b->to);
    cr_assert(of_a->pieces.count == of_b->pieces.count && of_a->spans.count == of_b->spans.count);
    cr_assert_eq(of_a->bytes, of_b->bytes);
    cr_assert(of_a->shape == of_b->shape && of_a->receive_bytes == of_b->receive_bytes);
    for (uint32_t i = 0; i < of_a->pieces.count; i++) {
        struct piece x = a->pieces[of_a->pieces.first + i], y = b->pieces[of_b->pieces.first + i];
        cr_assert_str_eq(plan_text(plan_a, plan_a->tensors[x.tensor].name),
                         plan_text(plan_b, plan_b->tensors[y.tensor].name));
        cr_assert(!memcmp(x.start, y.start, sizeof x.start) && !memcmp(x.count, y.count, sizeof x.count));
        cr_assert(x.span == y.span && x.slot_offset == y.slot_offset && x.span_offset == y.span_offset);
        cr_assert(x.bytes == y.bytes && x.contiguous == y.contiguous);
    }
    for (uint32_t i = 0; i < of_a->spans.count; i++) {
        const struct span *x = &a->spans[of_a->spans.first + i], *y = &b->spans[of_b->spans.first + i];
        cr_assert(x->slot_offset == y->slot_offset && x->bytes == y->bytes && x->direct == y->direct);
        cr_assert_eq(x->receive_offset, y->receive_offset);
    }
}

static void ends_agree(const weir_plan *plan_a, const struct links *a, const weir_plan *plan_b, const struct links *b,
                       uint32_t from, uint32_t to)
{
    for (uint32_t p = 0; p < plan_a->ports_count; p++) {
        const struct transfer *of_a = links_find(a, p), *of_b = links_find(b, p);
        if (!of_a || of_a->from != from || of_a->to != to)
            continue;
        cr_assert(of_b && of_a->leader == of_b->leader, "port %u has no such transfer at the other end", p);
        same_pieces(plan_a, a, of_a, plan_b, b, of_b);
    }
}

Test(links, both_ends_compute_the_same_from_the_whole_and_from_their_parts)
{
    for (int of = 0; of < MODELS + SMALL_PLANS; of++) {
        struct spread *s = spread_of(of);
        weir_plan *part[RANKS];
        struct links links[RANKS];
        for (uint32_t r = 0; r < s->ranks; r++) {
            part[r] = plan_part(s->plan, r);
            cr_assert_not_null(part[r], "%s", weir_error());
            links_make(&links[r], part[r], s->ranks, r);
            cr_assert_eq(links[r].transfers_count, s->links[r].transfers_count, "%s, rank %u", s->name, r);
        }
        for (uint32_t from = 0; from < s->ranks; from++)
            for (uint32_t to = 0; to < s->ranks; to++) {
                if (from == to)
                    continue;
                ends_agree(s->plan, &s->links[from], s->plan, &s->links[to], from, to);
                ends_agree(part[from], &links[from], part[to], &links[to], from, to);
                ends_agree(s->plan, &s->links[from], part[to], &links[to], from, to);
            }
        for (uint32_t r = 0; r < s->ranks; r++) {
            links_close(&links[r]);
            weir_plan_free(part[r]);
        }
        spread_free(s);
    }
}
