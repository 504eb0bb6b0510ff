/* apps/weir/bench/place.c: reads an instance, packs it, tells the height.
 *
 * The parser takes what the header promises and nothing else: four columns, whole numbers, lives that do not end before
 * they begin, each id once, sizes whose sum is a number. It stops at the first line that is not so.
 */
#include "apps/weir/bench/place.h"
#include "apps/common/options.h"
#include "graph/base/reading.h"
#include "graph/compile/memory/place.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#define HEADER "id,lower,upper,size"

typedef struct name {              /* an id and the line that it stands on */
    char *text;                    /* owned */
    int line;
} name;

typedef struct buffer {             /* a block as the file gives it */
    uint64_t bytes;
    int64_t from, until;           /* alive on [from, until) */
} buffer;

typedef struct instance {
    const char *program, *path;
    int line;                      /* the one that is being read */
    buffer *block;                 /* owned */
    name *id;                      /* owned */
    int count, room;
    uint64_t sum;                  /* of all sizes */
    int status;                    /* the exit status once something was wrong */
} instance;

#define WRONG(x, ...) instance_wrong((x), (x)->line, __VA_ARGS__)

__attribute__((format(printf, 3, 4))) static bool instance_wrong(instance *x, int line, const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    x->status = options_wrong(x->program, "%s:%d: %s", x->path, line, text);
    return false;
}

static bool read_number(instance *x, const char *column, const char *text, int64_t least, int64_t *to)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || *text == ' ' || *text == '\t')
        return WRONG(x, "%s: \"%.40s\" is not a whole number", column, text);
    if (errno == ERANGE)
        return WRONG(x, "%s: %.40s is more than 64 bits hold", column, text);
    if (value < least)
        return WRONG(x, "%s: %lld is less than %" PRId64, column, value, least);
    *to = value;
    return true;
}

static bool instance_room(instance *x)
{
    if (x->count < x->room)
        return true;
    int room = x->room ? 2 * x->room : 256;
    buffer *blocks = realloc(x->block, sizeof *blocks * (size_t)room);
    x->block = blocks ? blocks : x->block;
    name *id = realloc(x->id, sizeof *id * (size_t)room);
    x->id = id ? id : x->id;
    if (!blocks || !id)
        return WRONG(x, "no memory for so many blocks");
    x->room = room;
    return true;
}

/* Splits `line` at its commas, in place; returns how many columns there are. */
static int split(char *line, char *column[4])
{
    int count = 0;
    for (char *at = line; at; count++) {
        char *comma = strchr(at, ',');
        if (count < 4)
            column[count] = at;
        if (comma)
            *comma = '\0';
        at = comma ? comma + 1 : NULL;
    }
    return count;
}

static bool read_block(instance *x, char *line)
{
    char *column[4];
    int64_t from = 0, until = 0, bytes = 0;
    int count = split(line, column);
    if (count != 4)
        return WRONG(x, "%d columns, not the 4 of \"" HEADER "\"", count);
    if (!*column[0])
        return WRONG(x, "id: it is empty");
    if (!read_number(x, "lower", column[1], INT64_MIN, &from) ||
        !read_number(x, "upper", column[2], INT64_MIN, &until) || !read_number(x, "size", column[3], 0, &bytes))
        return false;
    if (until < from)
        return WRONG(x, "block %.40s ends at %" PRId64 ", before it begins at %" PRId64, column[0], until, from);
    x->sum += (uint64_t)bytes;
    if (x->sum > INT64_MAX)
        return WRONG(x, "the sizes up to here are more than 64 bits hold");
    char *id = instance_room(x) ? strdup(column[0]) : NULL;
    if (!id)
        return x->status ? false : WRONG(x, "no memory for so many blocks");
    x->id[x->count] = (name){id, x->line};
    x->block[x->count++] = (buffer){.bytes = (uint64_t)bytes, .from = from, .until = until};
    return true;
}

/* Takes the end of the line off; a NUL inside would hide what follows it. */
static bool read_line(instance *x, FILE *file, char **line, size_t *room)
{
    ssize_t length = getline(line, room, file);
    if (length < 0)
        return false;
    x->line++;
    if ((size_t)length != strlen(*line))
        return WRONG(x, "it is not text");
    while (length > 0 && strchr("\r\n", (*line)[length - 1]))
        (*line)[--length] = '\0';
    return true;
}

static int name_order(const void *a, const void *b)
{
    const name *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order ? order : x->line - y->line;
}

static void check_names(instance *x)
{
    if (x->count)
        qsort(x->id, (size_t)x->count, sizeof *x->id, name_order);
    for (int i = 1; i < x->count && !x->status; i++)
        if (!strcmp(x->id[i - 1].text, x->id[i].text))
            instance_wrong(x, x->id[i].line, "id: \"%.40s\" stands on line %d too", x->id[i].text, x->id[i - 1].line);
}

static void read_lines(instance *x, FILE *file, char **line, size_t *room)
{
    if (!read_line(x, file, line, room)) {
        if (!x->status && !ferror(file))
            x->status = options_wrong(x->program, "cannot read %s: it is empty", x->path);
        return;
    }
    if (strcmp(*line, HEADER)) {
        WRONG(x, "the header is \"%.80s\"; it must be \"" HEADER "\"", *line);
        return;
    }
    while (read_line(x, file, line, room) && (!**line || read_block(x, *line)))
        ;
}

static void read_all(instance *x, FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    read_lines(x, file, &line, &room);
    if (ferror(file) && !x->status)
        x->status = options_wrong(x->program, "cannot read %s: %s", x->path, strerror(errno));
    free(line);
    if (!x->status)
        check_names(x);
}

static bool meet(const buffer *x, const buffer *y)
{
    return x->from < y->until && y->from < x->until;
}

/* The bits of blocks whose lives meet; NULL: no memory. */
static uint64_t *conflicts_of(const instance *x)
{
    uint64_t *conflict = calloc(place_matrix_words(x->count) + 1, sizeof *conflict);
    for (int a = 0; a < x->count && conflict; a++)
        for (int b = 0; b < a; b++)
            if (meet(&x->block[a], &x->block[b]))
                place_matrix_set(conflict, x->count, a, b);
    return conflict;
}

/* The most bytes that are alive at one time: no placement is lower. That time is when some life begins. */
static uint64_t most_alive(const instance *x)
{
    uint64_t most = 0;
    for (int a = 0; a < x->count; a++) {
        uint64_t bytes = 0;
        for (int b = 0; b < x->count; b++)
            if (x->block[b].from <= x->block[a].from && x->block[a].from < x->block[b].until)
                bytes += x->block[b].bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Sets the height of the packing; false: no memory. A block with an empty life takes no space. */
static bool pack(const instance *x, uint64_t *height)
{
    uint64_t *conflict = conflicts_of(x);
    place_block *block = calloc((size_t)x->count + 1, sizeof *block);
    place_problem problem = {.block = block, .count = x->count, .conflict = conflict};
    for (int v = 0; v < x->count && block; v++)
        block[v].bytes = x->block[v].from < x->block[v].until ? x->block[v].bytes : 0;
    bool good = block && conflict && place(&problem);
    *height = problem.height;
    free(block);
    free(conflict);
    return good;
}

static void report(const instance *x, uint64_t height, bool json, FILE *to)
{
    uint64_t bound = most_alive(x);
    double gap = bound ? 100 * ((double)height / (double)bound - 1) : 0;
    if (json)
        fprintf(to, "{\"blocks\": %d, \"height\": %" PRIu64 ", \"lower_bound\": %" PRIu64 ", \"gap_percent\": %.3f}\n",
                x->count, height, bound, gap);
    else
        fprintf(to, "blocks      %20d\nheight      %20" PRIu64 "\nlower_bound %20" PRIu64 "\ngap         %18.2f %%\n",
                x->count, height, bound, gap);
}

int bench_place(const char *program, const char *path, bool json, FILE *to)
{
    instance x = {.program = program, .path = path};
    const char *why;
    uint64_t height = 0;
    FILE *file = reading_stream(path, &why);
    if (!file)
        return options_wrong(program, "cannot read %s: %s", path, why);
    read_all(&x, file);
    fclose(file);
    if (!x.status && !pack(&x, &height))
        x.status = options_wrong(program, "%s: no memory to pack %d blocks", path, x.count);
    if (!x.status)
        report(&x, height, json, to);
    for (int i = 0; i < x.count; i++)
        free(x.id[i].text);
    free(x.id);
    free(x.block);
    return x.status;
}
