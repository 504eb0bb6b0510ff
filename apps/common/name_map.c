/* apps/common/name_map.c: how the tensors of one program are made of those of another.
 *
 * A line is parsed into *expressions*, one for each side of a |. With a tensor at hand, an expression is a box of it,
 * so forwards and backwards are the same copy between a whole tensor and a box of another, with the two ends exchanged.
 * Backwards the whole of the box's tensor is not known at first: each line tells how large its dimensions must be,
 * because a box of d elements from 1/3 to 2/3 is of 3 d.
 */
#define _GNU_SOURCE
#include "apps/common/name_map.h"

#include "graph/base/reading.h"

#include <ctype.h>
#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 256
#define ALTERNATIVES_MAX 4
#define LINE_BYTES 1024

struct bound {
    int64_t number, of; /* number / of of the dimension; of 0: elements */
};

struct slice {
    struct bound low, high; /* high.number -1: to the end */
};

struct expression {
    char name[NAME_BYTES];
    int slices; /* 0: the whole tensor */
    struct slice slice[WEIR_DIMS_MAX];
    bool transposed;
};

struct line {
    int number;
    char left[NAME_BYTES];
    int alternatives;
    struct expression right[ALTERNATIVES_MAX];
};

struct name_map {
    char path[NAME_BYTES];
    char prefix[NAME_BYTES];
    struct line *line; /* owned */
    int count, room;
};

/* ---- parsing ---- */

static char *trim(char *text)
{
    text += strspn(text, " \t\r\n");
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1]))
        text[--length] = '\0';
    return text;
}

static bool copy_name(char *to, const char *from)
{
    bool ok = *from && strlen(from) < NAME_BYTES && !strpbrk(from, " \t=|[]");
    if (ok)
        strcpy(to, from);
    return ok;
}

/* "5", "1/3": what follows it, or NULL. */
static char *take_bound(char *at, struct bound *bound)
{
    bound->number = strtoll(at, &at, 10);
    bound->of = 0;
    if (*at == '/')
        bound->of = strtoll(at + 1, &at, 10);
    bool ok = bound->number >= 0 && bound->number < INT32_MAX && bound->of >= 0 && bound->of < 65536 &&
              (!bound->of || bound->number <= bound->of);
    return ok ? at : NULL;
}

static bool take_slice(char *text, struct slice *slice)
{
    char *at = trim(text);
    *slice = (struct slice){.high.number = -1};
    if (isdigit((unsigned char)*at) && !(at = take_bound(at, &slice->low)))
        return false;
    if (*at++ != ':')
        return false;
    if (isdigit((unsigned char)*at) && !(at = take_bound(at, &slice->high)))
        return false;
    return !*at;
}

static bool take_slices(char *text, struct expression *e)
{
    for (char *next; text; text = next) {
        next = strchr(text, ',');
        if (next)
            *next++ = '\0';
        if (e->slices == WEIR_DIMS_MAX || !take_slice(text, &e->slice[e->slices++]))
            return false;
    }
    return true;
}

static bool take_expression(char *text, struct expression *e)
{
    text = trim(text);
    size_t length = strlen(text);
    e->transposed = length > 2 && !strcmp(text + length - 2, ".T");
    if (e->transposed)
        text[length -= 2] = '\0';
    char *open = strchr(text, '[');
    if (!open)
        return copy_name(e->name, text);
    if (text[length - 1] != ']')
        return false;
    text[length - 1] = *open = '\0';
    return copy_name(e->name, text) && take_slices(open + 1, e);
}

/* {i} is on both sides, once, or on neither: else one side would have no end. */
static bool counts_alike(const struct line *line)
{
    const char *left = strstr(line->left, "{i}");
    bool alike = !left || !strstr(left + 3, "{i}");
    for (int a = 0; a < line->alternatives; a++) {
        const char *right = strstr(line->right[a].name, "{i}");
        alike = alike && !left == !right && (!right || !strstr(right + 3, "{i}"));
    }
    return alike;
}

static bool take_line(char *text, struct line *line)
{
    char *equals = strchr(text, '=');
    if (!equals)
        return false;
    *equals = '\0';
    bool ok = copy_name(line->left, trim(text));
    for (char *next = equals + 1, *at; ok && next;) {
        at = next;
        next = strchr(at, '|');
        if (next)
            *next++ = '\0';
        ok = line->alternatives < ALTERNATIVES_MAX && take_expression(at, &line->right[line->alternatives++]);
    }
    return ok && counts_alike(line);
}

static bool add_line(struct name_map *map, char *text, int number)
{
    text[strcspn(text, "#")] = '\0';
    text = trim(text);
    if (!*text)
        return true;
    if (!strncmp(text, "prefix ", 7))
        return copy_name(map->prefix, trim(text + 7)) || tensors_failed("%s:%d: is not a prefix", map->path, number);
    if (map->count == map->room) {
        int room = map->room ? 2 * map->room : 16;
        struct line *grown = realloc(map->line, (size_t)room * sizeof *grown);
        if (!grown)
            return tensors_failed("%s: no memory for it", map->path);
        map->line = grown;
        map->room = room;
    }
    struct line *line = &map->line[map->count++];
    *line = (struct line){.number = number};
    return take_line(text, line) ||
           tensors_failed("%s:%d: is not NAME = NAME[slices].T, or several of these with | between", map->path, number);
}

bool name_map_read(struct name_map **to, const char *path)
{
    char text[LINE_BYTES];
    const char *why;
    FILE *file = reading_stream(path, &why);
    struct name_map *map = *to = calloc(1, sizeof *map);
    bool ok = file && map;
    if (ok)
        snprintf(map->path, sizeof map->path, "%s", path);
    else
        tensors_failed("%s: cannot be read: %s", path, map ? why : "no memory");
    for (int number = 1; ok && fgets(text, sizeof text, file); number++)
        ok = add_line(map, text, number);
    if (file)
        fclose(file);
    return ok;
}

void name_map_free(struct name_map *map)
{
    if (map)
        free(map->line);
    free(map);
}

/* ---- names ---- */

/* Puts the number in the place of {i}. Whether there is one. */
static bool expand(const char *name, int i, char to[2 * NAME_BYTES])
{
    const char *place = strstr(name, "{i}");
    if (place)
        snprintf(to, 2 * NAME_BYTES, "%.*s%d%s", (int)(place - name), name, i, place + 3);
    else
        snprintf(to, 2 * NAME_BYTES, "%s", name);
    return place;
}

static const struct tensor *find(const struct name_map *map, const struct tensors *from, const char *name, int i)
{
    char full[2 * NAME_BYTES], prefixed[3 * NAME_BYTES];
    expand(name, i, full);
    const struct tensor *t = tensors_find(from, full);
    if (t || !*map->prefix)
        return t;
    snprintf(prefixed, sizeof prefixed, "%s%s", map->prefix, full);
    return tensors_find(from, prefixed);
}

/* ---- boxes ---- */

/* Element that the bound is at; -1: a fraction that is no whole one. */
static int64_t place_of(const struct bound *b, int64_t dim)
{
    if (b->number < 0)
        return dim;
    if (!b->of)
        return b->number;
    return dim * b->number % b->of ? -1 : dim * b->number / b->of;
}

static bool box_of(const struct expression *e, const weir_shape *shape, int64_t *start, weir_shape *box)
{
    *box = *shape;
    memset(start, 0, WEIR_DIMS_MAX * sizeof *start);
    if ((e->slices && e->slices != shape->rank) || (e->transposed && shape->rank != 2))
        return false;
    for (int d = 0; d < e->slices; d++) {
        int64_t low = place_of(&e->slice[d].low, shape->dim[d]), high = place_of(&e->slice[d].high, shape->dim[d]);
        if (low < 0 || high < low || high > shape->dim[d])
            return false;
        start[d] = low;
        box->dim[d] = high - low;
    }
    return true;
}

static weir_shape turned(const weir_shape *shape, bool transposed)
{
    return transposed ? (weir_shape){2, {shape->dim[1], shape->dim[0]}} : *shape;
}

/* ---- forwards ---- */

static bool make_left(const struct name_map *map, const struct line *line, const struct expression *e,
                      const struct tensor *from, struct tensors *to, int i)
{
    static const int64_t zero[WEIR_DIMS_MAX];
    char name[2 * NAME_BYTES];
    int64_t start[WEIR_DIMS_MAX];
    weir_shape box;
    expand(line->left, i, name);
    if (!box_of(e, &from->value.shape, start, &box))
        return tensors_failed("%s:%d: tensor %s has no such slice, or cannot be transposed", map->path, line->number,
                              from->name);
    if (tensors_find(to, name))
        return tensors_failed("%s:%d: tensor %s is made twice", map->path, line->number, name);
    weir_shape shape = turned(&box, e->transposed);
    struct tensor *made = tensors_add(to, name, from->value.dtype, &shape, 1);
    if (!made)
        return tensors_failed("no memory for tensor %s", name);
    made->frozen = from->frozen;
    tensor_copy_box(from->value.data, &from->value.shape, start, made->value.data, &shape, zero, &box, e->transposed,
                    weir_dtype_bytes(from->value.dtype));
    return true;
}

/* Number i of the line; *there: whether there is such a tensor. */
static bool apply_one(const struct name_map *map, const struct line *line, const struct tensors *from,
                      struct tensors *to, int i, bool *there)
{
    *there = false;
    for (int a = 0; a < line->alternatives; a++) {
        const struct tensor *t = find(map, from, line->right[a].name, i);
        if (!t)
            continue;
        *there = true;
        return make_left(map, line, &line->right[a], t, to, i);
    }
    return i > 0 || tensors_failed("%s:%d: there is no tensor %s", map->path, line->number, line->right[0].name);
}

static bool apply_forwards(const struct name_map *map, const struct tensors *from, struct tensors *to)
{
    char name[2 * NAME_BYTES];
    for (int l = 0; l < map->count; l++) {
        bool there = true, many = expand(map->line[l].left, 0, name);
        for (int i = 0; there && (many || !i); i++)
            if (!apply_one(map, &map->line[l], from, to, i, &there))
                return false;
    }
    return true;
}

/* ---- backwards ---- */

/* The least size of the whole dimension that a piece of `size` elements between these bounds tells: how many it has at least.
 * -1: it cannot be. */
static int64_t whole_of(const struct slice *s, int64_t size)
{
    const struct bound low = s->low, high = s->high;
    int64_t low_of = low.of ? low.of : 1, high_number = high.number < 0 ? 1 : high.number;
    int64_t high_of = high.number < 0 ? 1 : high.of;
    if (high.number >= 0 && !high.of)
        return high.number;
    if (low.number && !low.of)
        return high.number < 0 ? low.number + size : -1;
    int64_t share = high_number * low_of - low.number * high_of;
    return share > 0 && size * low_of * high_of % share == 0 ? size * low_of * high_of / share : -1;
}

/* Makes room in `to` for what the line is a slice of; grows what other lines have made. */
static bool size_right(const struct name_map *map, const struct line *line, const struct tensor *left,
                       const char *name, weir_shape *shape)
{
    const struct expression *e = &line->right[0];
    weir_shape box = left->value.shape;
    if (e->transposed && box.rank != 2)
        return tensors_failed("%s:%d: tensor %s cannot be transposed", map->path, line->number, left->name);
    box = turned(&box, e->transposed);
    if ((e->slices && e->slices != box.rank) || (shape->rank && shape->rank != box.rank))
        return tensors_failed("%s:%d: tensor %s has not as many dimensions as the slice", map->path, line->number,
                              left->name);
    shape->rank = box.rank;
    for (int d = 0; d < box.rank; d++) {
        int64_t whole = e->slices ? whole_of(&e->slice[d], box.dim[d]) : box.dim[d];
        if (whole < 0)
            return tensors_failed("%s:%d: tensor %s cannot be a slice of %s", map->path, line->number, left->name,
                                  name);
        shape->dim[d] = whole > shape->dim[d] ? whole : shape->dim[d];
    }
    return true;
}

/* A tensor of weir's, and the line that says what it is a part of. */
struct piece {
    const struct line *line;
    const struct tensor *left;
    struct piece *next;
};

/* A tensor of the other's that is to be made, with its pieces in the order of the lines. */
struct right {
    char name[2 * NAME_BYTES];
    struct piece *first, **end; /* owned */
    struct right *next;
};

struct backwards {
    const struct name_map *map;
    const struct tensors *from;
    struct tensors *to;
    struct right *first, **end; /* owned, in the order of their first pieces */
    void *named;                /* a tree of them by name */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct right *)a)->name, ((const struct right *)b)->name);
}

static void keep(void *entry)
{
    (void)entry;
}

static void backwards_free(struct backwards *b)
{
    tdestroy(b->named, keep);
    for (struct right *right = b->first, *next; right; right = next) {
        next = right->next;
        for (struct piece *piece = right->first, *after; piece; piece = after) {
            after = piece->next;
            free(piece);
        }
        free(right);
    }
}

/* The tensor of this name; a new one unless a piece before was of it. NULL: no memory. */
static struct right *right_of(struct backwards *b, const char *name)
{
    struct right *right = calloc(1, sizeof *right);
    if (!right)
        return NULL;
    strcpy(right->name, name);
    struct right **found = tsearch(right, &b->named, by_name);
    if (!found || *found != right) {
        free(right);
        return found ? *found : NULL;
    }
    right->end = &right->first;
    *b->end = right;
    b->end = &right->next;
    return right;
}

static bool add_piece(struct backwards *b, const struct line *line, const struct tensor *left, int i)
{
    char name[2 * NAME_BYTES];
    expand(line->right[0].name, i, name);
    struct right *right = right_of(b, name);
    struct piece *piece = right ? malloc(sizeof *piece) : NULL;
    if (!piece)
        return tensors_failed("no memory for tensor %s", name);
    *piece = (struct piece){line, left, NULL};
    *right->end = piece;
    right->end = &piece->next;
    return true;
}

/* Finds, for every tensor of weir's that a line names, what it is a piece of. */
static bool sort_pieces(struct backwards *b)
{
    char left[2 * NAME_BYTES];
    for (int l = 0; l < b->map->count; l++) {
        const struct line *line = &b->map->line[l];
        bool many = expand(line->left, 0, left);
        const struct tensor *t = tensors_find(b->from, left);
        for (int i = 0; t; t = tensors_find(b->from, left)) {
            if (!add_piece(b, line, t, i))
                return false;
            if (!many)
                break;
            expand(line->left, ++i, left);
        }
    }
    return true;
}

/* Copies the elements that no piece before has set; `set`: which these are. */
static bool copy_piece(const struct backwards *b, const struct piece *piece, struct tensor *made, unsigned char *set)
{
    static const int64_t zero[WEIR_DIMS_MAX];
    const struct line *line = piece->line;
    const struct tensor *left = piece->left;
    const struct expression *e = &line->right[0];
    int64_t start[WEIR_DIMS_MAX];
    weir_shape box, whole = made->value.shape;
    size_t element = weir_dtype_bytes(left->value.dtype);
    weir_shape shape = turned(&left->value.shape, e->transposed);
    if (!box_of(e, &whole, start, &box) || !weir_shape_equal(&box, &shape) || made->value.dtype != left->value.dtype)
        return tensors_failed("%s:%d: tensor %s has not the shape or type of that slice of %s", b->map->path,
                              line->number, left->name, made->name);
    unsigned char *ones = malloc((size_t)weir_shape_count(&box) + 1);
    if (!ones)
        return tensors_failed("no memory for tensor %s", made->name);
    memset(ones, 1, (size_t)weir_shape_count(&box));
    int64_t first = 0;
    for (int d = 0; d < box.rank; d++)
        first = first * whole.dim[d] + start[d];
    if (weir_shape_count(&box) && !set[first]) {
        tensor_copy_box(left->value.data, &left->value.shape, zero, made->value.data, &whole, start,
                        &left->value.shape, e->transposed, element);
        tensor_copy_box(ones, &box, zero, set, &whole, start, &box, false, 1);
    }
    free(ones);
    return true;
}

static bool make_right(const struct backwards *b, const struct right *right)
{
    weir_shape shape = {.rank = 0};
    for (const struct piece *piece = right->first; piece; piece = piece->next)
        if (!size_right(b->map, piece->line, piece->left, right->name, &shape))
            return false;
    size_t count = (size_t)weir_shape_count(&shape);
    struct tensor *made = tensors_add(b->to, right->name, right->first->left->value.dtype, &shape, 1);
    unsigned char *set = calloc(count + 1, 1);
    bool ok = made && set;
    if (!ok)
        tensors_failed("no memory for tensor %s", right->name);
    for (const struct piece *piece = right->first; piece && ok; piece = piece->next)
        ok = copy_piece(b, piece, made, set);
    if (ok && set && memchr(set, 0, count))
        ok = tensors_failed("%s: tensor %s: no line says what some of its elements are", b->map->path, right->name);
    free(set);
    return ok;
}

static bool apply_backwards(const struct name_map *map, const struct tensors *from, struct tensors *to)
{
    struct backwards b = {.map = map, .from = from, .to = to};
    b.end = &b.first;
    bool ok = sort_pieces(&b);
    for (const struct right *right = b.first; right && ok; right = right->next)
        ok = right->first ? make_right(&b, right) : true;
    backwards_free(&b);
    return ok;
}

bool name_map_apply(const struct name_map *map, const struct tensors *from, struct tensors *to, bool backwards)
{
    return backwards ? apply_backwards(map, from, to) : apply_forwards(map, from, to);
}
