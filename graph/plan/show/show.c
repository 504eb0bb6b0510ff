/* graph/plan/show/show.c: a plan for people. A header, the memory by device and kind, the queues, and the actors of each
 * queue by phase and priority, one line each. A real plan has hundreds of them, so names are cut and lists end after
 * LISTED_MAX; weir_plan_json() leaves nothing out.
 *
 * moved.h counts what a step reads and writes.
 *
 * A section is first written as lines of cells separated by tabs into memory, then measured and printed in aligned
 * columns. Names come from the plan, so they are printed as graph/base/foreign.h says: they would break the table or
 * the terminal.
 */
#define _GNU_SOURCE
#include "graph/base/error.h"
#include "graph/base/foreign.h"
#include "graph/plan/show/moved.h"
#include "graph/plan/show/show_inside.h"
#include "graph/plan/lives/window.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 16
#define LISTED_MAX 2  /* registers named in one cell */
#define NAME_SHOWN 40 /* characters of a name; in lists: */
#define LISTED_NAME_SHOWN 28

/* ---- aligned columns ---- */

/* Characters, not bytes: bytes that continue a UTF-8 sequence do not count. */
static int text_width(const char *text, size_t bytes)
{
    int width = 0;
    for (size_t i = 0; i < bytes; i++)
        width += (text[i] & 0xc0) != 0x80;
    return width;
}

typedef void (*cell_fn)(void *ctx, int column, const char *text, size_t bytes, bool last);

static void each_cell(const char *table, cell_fn visit, void *ctx)
{
    int column = 0;
    while (*table) {
        size_t bytes = strcspn(table, "\t\n");
        bool last = table[bytes] != '\t';
        if (column < COLUMNS_MAX)
            visit(ctx, column, table, bytes, last);
        column = last ? 0 : column + 1;
        table += bytes + (table[bytes] != '\0');
    }
}

typedef struct layout {
    FILE *to;
    int left;  /* columns that are aligned to the left; the others are numbers, but for the last */
    int blank; /* spaces to write before the next text: none at the end of a line */
    int width[COLUMNS_MAX];
} layout;

static void measure_cell(void *ctx, int column, const char *text, size_t bytes, bool last)
{
    layout *l = ctx;
    int width = text_width(text, bytes);
    if (!last && width > l->width[column])
        l->width[column] = width;
}

static void print_cell(void *ctx, int column, const char *text, size_t bytes, bool last)
{
    layout *l = ctx;
    int pad = last ? 0 : l->width[column] - text_width(text, bytes);
    bool right = !(l->left & (1 << column));
    l->blank += (column ? 2 : 0) + (right ? pad : 0);
    if (bytes) {
        fprintf(l->to, "%*s%.*s", l->blank, "", (int)bytes, text);
        l->blank = 0;
    }
    l->blank += right ? 0 : pad;
    if (last) {
        fputs("\n", l->to);
        l->blank = 0;
    }
}

void show_table(const char *text, int left, FILE *to)
{
    layout l = {.to = to, .left = left};
    each_cell(text, measure_cell, &l);
    each_cell(text, print_cell, &l);
}

typedef void (*section_fn)(const weir_plan *plan, FILE *table, uint32_t index);

/* Prints what `write` writes, behind an empty line. `left` is a mask of columns. A head alone is left out, unless `always`. */
static weir_status print_section(const weir_plan *plan, FILE *to, section_fn write, uint32_t index, int left, bool always)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *table = open_memstream(&text, &bytes);
    if (!table)
        return error_set(WEIR_E_MEMORY, "no memory to show the plan");
    write(plan, table, index);
    bool failed = ferror(table) != 0;
    if (fclose(table) || failed) {
        free(text);
        return error_set(WEIR_E_MEMORY, "no memory to show the plan");
    }
    if (always || strchr(text, '\n')[1]) {
        fputs("\n", to);
        show_table(text, left, to);
    }
    free(text);
    return WEIR_OK;
}

weir_status show_end(FILE *to)
{
    return ferror(to) ? error_set(WEIR_E_IO, "the plan cannot be written: %s", strerror(errno)) : WEIR_OK;
}

/* ---- cells ---- */

/* The text, cut when it is long. */
static void put_cut(FILE *table, const char *text, int shown_max)
{
    char shown[FOREIGN_CHAR_BYTES];
    for (int width = 0; *text && width < shown_max; width += text_width(shown, strlen(shown))) {
        text += foreign_char(text, shown);
        fputs(shown, table);
    }
    if (*text)
        fputs("..", table);
}

void show_text(FILE *table, const char *text)
{
    put_cut(table, text, NAME_SHOWN);
}

void show_bytes(FILE *table, uint64_t bytes)
{
    char text[PLAN_TEXT_BYTES];
    fprintf(table, "\t%s", bytes ? bytes_text(bytes, text) : "-");
}

/* ---- memory ---- */

/* Shared bytes are counted twice in the cells before, and once in the total. */
static void memory_cells(FILE *table, const uint64_t bytes[PLAN_MEMS], uint64_t shared, uint64_t total)
{
    for (int kind = 0; kind < PLAN_MEMS; kind++)
        show_bytes(table, bytes[kind]);
    show_bytes(table, shared);
    show_bytes(table, total);
    fputs("\n", table);
}

/* "cpu:2", and in a plan that is spread "cpu:2 (rank 1)" */
static void put_space(const weir_plan *plan, FILE *table, uint32_t s)
{
    show_text(table, plan_text(plan, plan->spaces[s].name));
    if (plan->ranks > 1)
        fprintf(table, " (rank %" PRIu32 ")", plan->spaces[s].rank);
}

static void memory_section(const weir_plan *plan, FILE *table, uint32_t index)
{
    uint64_t all[PLAN_MEMS] = {0}, all_shared = 0, all_bytes = 0;
    (void)index;
    fputs("device", table);
    for (uint32_t kind = 0; kind < PLAN_MEMS; kind++)
        fprintf(table, "\t%s", mem_text(kind));
    fputs("\tshared\ttotal\n", table);
    for (uint32_t s = 0; s < plan->spaces_count; s++) {
        uint64_t bytes[PLAN_MEMS], shared = plan_bytes_shared(plan, (plan_space_id){s});
        plan_bytes_by_kind(plan, (plan_space_id){s}, bytes);
        put_space(plan, table, s);
        memory_cells(table, bytes, shared, plan->spaces[s].bytes);
        if (plan->spaces[s].kind == WEIR_MAPPED)
            continue;
        all_shared += shared;
        all_bytes += plan->spaces[s].bytes;
        for (int kind = 0; kind < PLAN_MEMS; kind++)
            all[kind] += bytes[kind];
    }
    if (plan->spaces_count <= 1)
        return;
    fputs("all", table);
    memory_cells(table, all, all_shared, all_bytes);
}

/* ---- queues ---- */

typedef struct queue_sum {
    uint32_t actors, kernels;
    uint64_t firings;
} queue_sum;

static queue_sum sum_queue(const weir_plan *plan, uint32_t queue)
{
    queue_sum sum = {0};
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        if (plan->actors[a].queue.i != queue)
            continue;
        sum.actors++;
        sum.kernels += plan->actors[a].kernels.count;
        sum.firings += plan->actors[a].fires;
    }
    return sum;
}

static void queues_section(const weir_plan *plan, FILE *table, uint32_t index)
{
    (void)index;
    fputs("queue\tdevice\tkind\tactors\tkernels\tfirings a step\tread a step\twritten\tfrom other devices\tworkspace",
          table);
    fputs("\t\n", table);
    for (uint32_t q = 0; q < plan->queues_count; q++) {
        const plan_queue *queue = &plan->queues[q];
        queue_sum sum = sum_queue(plan, q);
        show_text(table, plan_text(plan, queue->name));
        fputs("\t", table);
        show_text(table, plan_text(plan, plan->spaces[queue->space.i].name));
        fprintf(table, "\t%s\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu64, queue_kind_text(queue->kind), sum.actors,
                sum.kernels, sum.firings);
        plan_moved moved = plan_queue_moved(plan, q);
        show_bytes(table, moved.read);
        show_bytes(table, moved.written);
        show_bytes(table, moved.transferred);
        show_bytes(table, queue->workspace_bytes);
        fputs("\t\n", table);
    }
}

/* ---- actors ---- */

static void put_separator(FILE *table, uint32_t i)
{
    fputs(i ? ", " : "", table);
}

/* Says how many more there are after LISTED_MAX; true when it did, and the list is over. */
static bool put_rest(FILE *table, uint32_t i, uint32_t count)
{
    if (i < LISTED_MAX)
        return false;
    fprintf(table, ", +%" PRIu32, count - i);
    return true;
}

/* The name of its first tensor, and how many more there are. */
static void put_regst_name(const weir_plan *plan, FILE *table, uint32_t r)
{
    const plan_range *tensors = &plan->regsts[r].tensors;
    if (!tensors->count) {
        fprintf(table, "register %" PRIu32, r);
        return;
    }
    put_cut(table, plan_text(plan, plan->tensors[tensors->first].name), LISTED_NAME_SHOWN);
    if (tensors->count > 1)
        fprintf(table, "+%" PRIu32, tensors->count - 1);
}

static void put_reads(const weir_plan *plan, FILE *table, const plan_range *ports)
{
    for (uint32_t i = 0; i < ports->count && !put_rest(table, i, ports->count); i++) {
        const plan_port *port = &plan->ports[ports->first + i];
        put_separator(table, i);
        put_regst_name(plan, table, port->regst.i);
        if (port->hold > 1)
            fprintf(table, " (hold %" PRIu32 ")", port->hold);
    }
}

static void put_regst(const weir_plan *plan, FILE *table, uint32_t r)
{
    char text[PLAN_TEXT_BYTES];
    const plan_regst *regst = &plan->regsts[r];
    put_regst_name(plan, table, r);
    fprintf(table, " %" PRIu32 "x%s", regst->slots, bytes_text(regst->slot_bytes, text));
    if (regst->fill > 1)
        fprintf(table, " (fill %" PRIu32 ")", regst->fill);
    if (regst->initial)
        fprintf(table, " (%" PRIu32 " full)", regst->initial);
}

static void put_makes(const weir_plan *plan, FILE *table, const plan_range *regsts)
{
    for (uint32_t i = 0; i < regsts->count && !put_rest(table, i, regsts->count); i++) {
        put_separator(table, i);
        put_regst(plan, table, regsts->first + i);
    }
}

void show_actor(const weir_plan *plan, FILE *table, uint32_t a)
{
    const plan_actor *actor = &plan->actors[a];
    plan_moved moved = plan_actor_moved(plan, a);
    fprintf(table, "%" PRIu32 "\t", actor->priority);
    show_text(table, plan_text(plan, actor->name));
    fprintf(table, "\t%s\t%" PRIu32 "\t%" PRIu32, phase_text(actor->phase), actor->fires, actor->kernels.count);
    show_bytes(table, moved.read);
    show_bytes(table, moved.written);
    fputs("\t", table);
    put_makes(plan, table, &actor->regsts);
    fputs(actor->ports.count ? "\t<- " : "\t", table);
    put_reads(plan, table, &actor->ports);
    fputs("\n", table);
}

int show_order(const plan_actor *x, const plan_actor *y)
{
    if (x->phase != y->phase)
        return x->phase < y->phase ? -1 : 1;
    return (x->priority > y->priority) - (x->priority < y->priority);
}

static int compare_actors(const void *a, const void *b, void *of)
{
    const plan_actor *actors = of;
    return show_order(&actors[*(const uint32_t *)a], &actors[*(const uint32_t *)b]);
}

static void actors_section(const weir_plan *plan, FILE *table, uint32_t queue)
{
    uint32_t count = 0;
    uint32_t *order = malloc((plan->actors_count + (size_t)1) * sizeof *order);
    for (uint32_t a = 0; order && a < plan->actors_count; a++)
        if (plan->actors[a].queue.i == queue)
            order[count++] = a;
    if (order)
        qsort_r(order, count, sizeof *order, compare_actors, plan->actors);
    show_text(table, plan_text(plan, plan->queues[queue].name));
    fputs(SHOW_ACTOR_HEAD, table);
    for (uint32_t i = 0; i < count; i++)
        show_actor(plan, table, order[i]);
    free(order);
}

/* ---- the constants, which no actor makes ---- */

static void constants_section(const weir_plan *plan, FILE *table, uint32_t index)
{
    (void)index;
    fputs("constant\tdevice\t\n", table);
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        if (plan->regsts[r].producer.i != PLAN_NONE)
            continue;
        put_regst(plan, table, r);
        fputs("\t", table);
        show_text(table, plan_text(plan, plan->spaces[plan->regsts[r].space.i].name));
        fputs("\t\n", table);
    }
}

/* ---- kernels that are several in one ---- */

size_t show_fused(const char *name)
{
    const char *end = strchr(name, ')');
    return end && !strncmp(name, "fused(", 6) ? (size_t)(end - name) + 1 : 0;
}

static bool same_members(const weir_plan *plan, uint32_t a, uint32_t b)
{
    const char *x = plan_text(plan, plan->kernels[a].name), *y = plan_text(plan, plan->kernels[b].name);
    return show_fused(x) && !strncmp(x, y, show_fused(x));
}

static void fused_row(const weir_plan *plan, FILE *table, uint32_t first)
{
    uint32_t kernels = 0;
    plan_moved sum = {0};
    for (uint32_t k = first; k < plan->kernels_count; k++)
        if (same_members(plan, first, k)) {
            plan_moved one = plan_kernel_moved(plan, k);
            uint32_t fires = plan->actors[plan->kernels[k].actor.i].fires;
            kernels++;
            sum.read += one.read * fires;
            sum.written += one.written * fires;
        }
    char members[PLAN_TEXT_BYTES];
    const char *name = plan_text(plan, plan->kernels[first].name);
    snprintf(members, sizeof members, "%.*s", (int)show_fused(name), name);
    put_cut(table, members, PLAN_TEXT_BYTES);
    fprintf(table, "\t%" PRIu32, kernels);
    show_bytes(table, sum.read);
    show_bytes(table, sum.written);
    fputs("\t\n", table);
}

/* One line for each list of members, where it first occurs. */
static void fused_section(const weir_plan *plan, FILE *table, uint32_t index)
{
    (void)index;
    fputs("in one pass\tkernels\tread a step\twritten\t\n", table);
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        uint32_t before = 0;
        while (before < k && !same_members(plan, before, k))
            before++;
        if (before == k && show_fused(plan_text(plan, plan->kernels[k].name)))
            fused_row(plan, table, k);
    }
}

/* Whether the kernel reads or makes values of this dtype. */
static bool kernel_touches(const weir_plan *plan, const plan_kernel *k, weir_dtype dtype)
{
    const plan_range *range[2] = {&k->in, &k->out};
    for (int r = 0; r < 2; r++)
        for (uint32_t i = range[r]->first; i < range[r]->first + range[r]->count; i++)
            if (plan->tensors[plan->operands[i].tensor.i].dtype == (uint32_t)dtype)
                return true;
    return false;
}

/* ", 64 of them in bf16" */
static void show_precision(const weir_plan *plan, weir_dtype dtype, FILE *to)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        count += kernel_touches(plan, &plan->kernels[k], dtype);
    if (count)
        fprintf(to, ", %" PRIu32 " of them in %s", count, weir_dtype_name(dtype));
}

/* "12 copies in, 3.0 MiB": firings of kernels on queues of that kind, and what they write. */
static uint64_t show_copies(const weir_plan *plan, plan_queue_kind kind, const char *before, FILE *to)
{
    uint64_t copies = 0, bytes = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_actor *actor = &plan->actors[plan->kernels[k].actor.i];
        if (plan->queues[actor->queue.i].kind != (uint32_t)kind)
            continue;
        copies += actor->fires;
        bytes += plan_kernel_moved(plan, k).written * actor->fires;
    }
    char text[PLAN_TEXT_BYTES];
    if (copies)
        fprintf(to, "%s%" PRIu64 " %s %s, %s", before, copies, copies == 1 ? "copy" : "copies",
                kind == PLAN_COPY_IN ? "in" : "out", bytes_text(bytes, text));
    return copies;
}

static void show_header(const weir_plan *plan, FILE *to)
{
    char text[PLAN_TEXT_BYTES];
    fputs("plan ", to);
    show_text(to, plan_text(plan, plan->name));
    fprintf(to, ": %" PRIu32 " device%s, %" PRIu32 " micro-batch%s a step, %" PRIu32 " actors, %" PRIu32 " kernels",
            plan_devices(plan), plan_devices(plan) == 1 ? "" : "s", plan->micro_batches,
            plan->micro_batches == 1 ? "" : "es", plan->actors_count, plan->kernels_count);
    show_precision(plan, WEIR_BF16, to);
    show_precision(plan, WEIR_F16, to);
    fprintf(to, ", %s", bytes_text(weir_plan_bytes(plan, -1), text));
    if (plan_bytes_mapped(plan))
        fprintf(to, " and %s of files that are mapped", bytes_text(plan_bytes_mapped(plan), text));
    if (plan_ordering_edges(plan))
        fprintf(to, ", %" PRIu32 " ordering edges", plan_ordering_edges(plan));
    if (window_bytes(plan))
        fprintf(to, ", gathers leave %s in place", bytes_text(window_bytes(plan), text));
    for (uint32_t p = 0; plan->programs_count > 1 && p < plan->programs_count; p++) {
        fputs(p ? ", " : ", programs ", to);
        show_text(to, plan_text(plan, plan->programs[p].name));
    }
    if (plan->table_version)
        fprintf(to, ", with its graph of %" PRIu32 " nodes", plan->graph_nodes_count);
    if (plan->part)
        fprintf(to, ", rank %" PRIu32 "'s part of %016" PRIx64, plan->part - 1, plan->whole);
    if (plan->ranks > 1)
        fprintf(to, ", on %" PRIu32 " ranks", plan->ranks);
    if (plan->rates)
        fprintf(to, ", compiled with rates %016" PRIx64, plan->rates);
    fprintf(to, ", seed %" PRIu64 ", hash %016" PRIx64 "\n", plan->seed, plan->hash);
    if (weir_plan_limited(plan, text, sizeof text))
        fprintf(to, "%s\n", text);
    uint64_t in = show_copies(plan, PLAN_COPY_IN, "accelerators, a step: ", to);
    in += show_copies(plan, PLAN_COPY_OUT, in ? "; " : "accelerators, a step: ", to);
    if (show_collectives_sum(plan, in ? "; " : "accelerators, a step: ", to) || in)
        fputs("\n", to);
}

weir_status weir_plan_show(const weir_plan *plan, FILE *to)
{
    if (error_null(plan, "weir_plan_show", "plan") || error_null(to, "weir_plan_show", "file"))
        return WEIR_E_ARGUMENT;
    static const struct {
        section_fn write;
        int left;
    } last[] = {{show_collectives, SHOW_LEFT(0) | SHOW_LEFT(1) | SHOW_LEFT(2) | SHOW_LEFT(3)},
                {fused_section, SHOW_LEFT(0)},
                {constants_section, SHOW_LEFT(0) | SHOW_LEFT(1)}};
    show_header(plan, to);
    weir_status status = print_section(plan, to, memory_section, 0, SHOW_LEFT(0), true);
    if (!status)
        status = print_section(plan, to, queues_section, 0, SHOW_LEFT(0) | SHOW_LEFT(1) | SHOW_LEFT(2), true);
    for (uint32_t q = 0; !status && q < plan->queues_count; q++)
        status = print_section(plan, to, actors_section, q, SHOW_ACTOR_LEFT, true);
    for (size_t i = 0; !status && i < sizeof last / sizeof *last; i++)
        status = print_section(plan, to, last[i].write, 0, last[i].left, false);
    return status ? status : show_end(to);
}
