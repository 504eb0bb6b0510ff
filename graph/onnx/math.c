/* graph/onnx/math.c: operators that compute with known elements: one table of functions of one element and one of functions of two.
 * Division and remainder of integers are C's, by 0 a fault.
 */
#include "graph/onnx/fold.h"

#include <math.h>
#include <string.h>

/* ---- functions of one element ---- */

static double minus(double x)
{
    return -x;
}
static double inverse(double x)
{
    return 1 / x;
}
static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double positive(double x)
{
    return x > 0 ? x : 0;
}
static double negated(double x)
{
    return x == 0;
}
static double sign(double x)
{
    return (x > 0) - (x < 0);
}
static double not_a_number(double x)
{
    return x != x;
}
static int64_t whole_minus(int64_t x)
{
    return (int64_t)(0 - (uint64_t)x);
}
static int64_t whole_abs(int64_t x)
{
    return x < 0 ? whole_minus(x) : x;
}

static const struct one {
    const char *op;
    double (*f)(double);
    int64_t (*whole)(int64_t); /* of integers of all 64 bits; NULL: f is exact enough */
    bool truth;                /* the result is a bool */
} ones[] = {
    {"Neg", minus, whole_minus, false},
    {"Abs", fabs, whole_abs, false},
    {"Sqrt", sqrt, NULL, false},
    {"Exp", exp, NULL, false},
    {"Log", log, NULL, false},
    {"Floor", floor, NULL, false},
    {"Ceil", ceil, NULL, false},
    {"Round", rint, NULL, false},
    {"Sign", sign, NULL, false},
    {"Reciprocal", inverse, NULL, false},
    {"Sin", sin, NULL, false},
    {"Cos", cos, NULL, false},
    {"Tanh", tanh, NULL, false},
    {"Sigmoid", sigmoid, NULL, false},
    {"Relu", positive, NULL, false},
    {"Erf", erf, NULL, false},
    {"Not", negated, NULL, true},
    {"IsNaN", not_a_number, NULL, true},
};

bool onnx_fold_unary(onnx_importer *im)
{
    const onnx_array *a = onnx_known_in(im, 0);
    const struct one *one = ones;
    while (strcmp(one->op, im->node->op) != 0) /* table.c names no other operator for this function */
        one++;
    onnx_array *y = a ? onnx_array_new(im, one->truth ? ONNX_BOOL : a->type, a->rank, a->dim) : NULL;
    for (int64_t i = 0; y && i < array_count(y); i++)
        if (one->whole && !onnx_type_real(a->type))
            array_set_integer(y, i, one->whole(array_integer(a, i)));
        else
            array_set_real(y, i, one->f(array_real(a, i)));
    return onnx_set_known(im, 0, y);
}

bool onnx_fold_cast(onnx_importer *im)
{
    const onnx_array *a = onnx_known_in(im, 0);
    onnx_array *y = a ? onnx_array_new(im, (int)onnx_int(im, "to", ONNX_FLOAT), a->rank, a->dim) : NULL;
    if (y)
        array_convert(a, y);
    return onnx_set_known(im, 0, y);
}

/* ---- functions of two ---- */

/* Integers wrap, as ONNX Runtime's do. */
#define WRAP(op) (int64_t)((uint64_t)a op (uint64_t)b)

static bool whole(const char *op, int64_t a, int64_t b, int64_t *y)
{
    switch (op[0] << 8 | op[1]) {
    case 'A' << 8 | 'd': *y = WRAP(+); return true;
    case 'S' << 8 | 'u': *y = op[2] == 'b' ? WRAP(-) : WRAP(+); return true; /* Sub, Sum */
    case 'D' << 8 | 'i': *y = !b ? 0 : b == -1 ? WRAP(*) : a / b; return b;
    case 'M' << 8 | 'u': *y = WRAP(*); return true;
    case 'M' << 8 | 'o': *y = !b || b == -1 ? 0 : a % b; return b;
    case 'M' << 8 | 'i': *y = a < b ? a : b; return true;
    case 'M' << 8 | 'a': *y = a > b ? a : b; return true;
    case 'P' << 8 | 'o': *y = integer_of(pow((double)a, (double)b)); return true;
    case 'E' << 8 | 'q': *y = a == b; return true;
    case 'L' << 8 | 'e': *y = op[4] ? a <= b : a < b; return true; /* LessOrEqual, Less */
    case 'G' << 8 | 'r': *y = op[7] ? a >= b : a > b; return true;
    case 'A' << 8 | 'n': *y = a && b; return true;
    case 'O' << 8 | 'r': *y = a || b; return true;
    case 'X' << 8 | 'o': *y = !a != !b; return true;
    default: return false;
    }
}

static bool real(const char *op, double a, double b, double *y)
{
    switch (op[0] << 8 | op[1]) {
    case 'A' << 8 | 'd': *y = a + b; return true;
    case 'S' << 8 | 'u': *y = op[2] == 'b' ? a - b : a + b; return true;
    case 'D' << 8 | 'i': *y = a / b; return true;
    case 'M' << 8 | 'u': *y = a * b; return true;
    case 'M' << 8 | 'o': *y = fmod(a, b); return true;
    case 'M' << 8 | 'i': *y = a != a || a < b ? a : b; return true;
    case 'M' << 8 | 'a': *y = a != a || a > b ? a : b; return true;
    case 'P' << 8 | 'o': *y = pow(a, b); return true;
    case 'E' << 8 | 'q': *y = a == b; return true;
    case 'L' << 8 | 'e': *y = op[4] ? a <= b : a < b; return true;
    case 'G' << 8 | 'r': *y = op[7] ? a >= b : a > b; return true;
    default: return false;
    }
}

/* Mod of integers has the sign of the divisor unless the node says fmod. */
static int64_t signed_as(const onnx_importer *im, int64_t y, int64_t b)
{
    const onnx_attribute *c = onnx_attribute_find(im->node, "fmod");
    return y && (y < 0) != (b < 0) && !(c && c->i) ? y + b : y;
}

static const onnx_array *two(onnx_importer *im, const onnx_array *a, const onnx_array *b)
{
    const char *op = im->node->op;
    const bool truth = strchr("ELGAOX", *op) && strcmp(op, "Add") != 0;
    const int rank = a->rank > b->rank ? a->rank : b->rank;
    int64_t dim[ONNX_DIMS_MAX], step[2][ONNX_DIMS_MAX], index[ONNX_DIMS_MAX] = {0}, at[2] = {0}, next[2] = {1, 1};
    for (int d = rank - 1; d >= 0; d--) {
        const int64_t x = d - (rank - a->rank) < 0 ? 1 : a->dim[d - (rank - a->rank)], z = d - (rank - b->rank) < 0 ? 1 : b->dim[d - (rank - b->rank)];
        if (x != z && x != 1 && z != 1)
            return ONNX_WRONG(im, "shapes do not broadcast: %lld and %lld", (long long)x, (long long)z), NULL;
        dim[d] = x == 1 ? z : x;
        step[0][d] = x == 1 ? 0 : next[0], next[0] *= x;
        step[1][d] = z == 1 ? 0 : next[1], next[1] *= z;
    }
    onnx_array *y = onnx_array_new(im, truth ? ONNX_BOOL : a->type, rank, dim);
    for (int64_t i = 0; y && i < array_count(y); i++) {
        int64_t integer = 0;
        double number = 0;
        const bool done = onnx_type_real(a->type) ? real(op, array_real(a, at[0]), array_real(b, at[1]), &number)
                                                  : whole(op, array_integer(a, at[0]), array_integer(b, at[1]), &integer);
        if (!done)
            return ONNX_WRONG(im, "it divides by 0, or has elements of the wrong type"), NULL;
        if (op[0] == 'M' && op[1] == 'o')
            integer = signed_as(im, integer, array_integer(b, at[1]));
        onnx_type_real(a->type) ? array_set_real(y, i, number) : array_set_integer(y, i, integer);
        for (int d = rank - 1; d >= 0; d--) {
            at[0] += step[0][d], at[1] += step[1][d];
            if (++index[d] < dim[d])
                break;
            at[0] -= dim[d] * step[0][d], at[1] -= dim[d] * step[1][d];
            index[d] = 0;
        }
    }
    return y;
}

bool onnx_fold_binary(onnx_importer *im)
{
    const onnx_array *y = onnx_known_in(im, 0);
    for (int i = 1; y && i < im->node->in.count; i++) {
        const onnx_array *b = onnx_known_in(im, i);
        y = b ? two(im, y, b) : NULL;
    }
    return onnx_set_known(im, 0, y);
}

/* ---- others ---- */

/* The element of a broadcast array for the flat index i of an array of shape `dim`. */
static int64_t broadcast_at(const onnx_array *a, int rank, const int64_t *dim, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = rank - 1; d >= 0; d--) {
        const int mine = d - (rank - a->rank);
        if (mine >= 0) {
            at += a->dim[mine] == 1 ? 0 : i % dim[d] * step;
            step *= a->dim[mine];
        }
        i /= dim[d];
    }
    return at;
}

bool onnx_fold_where(onnx_importer *im)
{
    const onnx_array *in[3];
    int64_t dim[ONNX_DIMS_MAX];
    int rank = 0;
    for (int i = 0; i < 3; i++)
        if (!(in[i] = onnx_known_in(im, i)))
            return false;
        else
            rank = in[i]->rank > rank ? in[i]->rank : rank;
    for (int d = 0; d < rank; d++) {
        dim[d] = 1;
        for (int i = 0; i < 3; i++) {
            const int mine = d - (rank - in[i]->rank);
            const int64_t size = mine < 0 ? 1 : in[i]->dim[mine];
            if (size != 1 && dim[d] != 1 && size != dim[d])
                return ONNX_WRONG(im, "shapes do not broadcast: %lld and %lld", (long long)size, (long long)dim[d]);
            dim[d] = size == 1 ? dim[d] : size;
        }
    }
    onnx_array *y = onnx_array_new(im, in[1]->type, rank, dim);
    for (int64_t i = 0; y && i < array_count(y); i++) {
        const onnx_array *from = array_integer(in[0], broadcast_at(in[0], rank, dim, i)) ? in[1] : in[2];
        const int64_t at = broadcast_at(from, rank, dim, i);
        onnx_type_real(y->type) ? array_set_real(y, i, array_real(from, at)) : array_set_integer(y, i, array_integer(from, at));
    }
    return onnx_set_known(im, 0, y);
}

bool onnx_fold_non_zero(onnx_importer *im)
{
    const onnx_array *a = onnx_known_in(im, 0);
    int64_t found = 0;
    for (int64_t i = 0; a && i < array_count(a); i++)
        found += array_real(a, i) != 0;
    const int64_t dim[] = {a ? a->rank : 0, found};
    onnx_array *y = a ? onnx_array_new(im, ONNX_INT64, 2, dim) : NULL;
    for (int64_t i = 0, k = 0; y && i < array_count(a); i++) {
        if (array_real(a, i) == 0)
            continue;
        int64_t rest = i;
        for (int d = a->rank - 1; d >= 0; d--) {
            array_set_integer(y, d * found + k, rest % a->dim[d]);
            rest /= a->dim[d];
        }
        k++;
    }
    return onnx_set_known(im, 0, y);
}

/* The operator on two elements that a reduction repeats. */
static const char *repeated(const char *reduction)
{
    const char *kind = reduction + strlen("Reduce");
    return !strcmp(kind, "Prod") ? "Mul" : !strcmp(kind, "Min") || !strcmp(kind, "Max") ? kind : "Add";
}

/* y[to] = y[to] op x[i], or x[i] if it is the first. Sums of reals are rounded each time, as elements of y. */
static void reduce_one(const char *op, const onnx_array *x, int64_t i, const onnx_array *y, int64_t to, bool first)
{
    double number = array_real(x, i);
    int64_t integer = array_integer(x, i);
    if (onnx_type_real(x->type)) {
        if (!first)
            real(op, array_real(y, to), number, &number);
        array_set_real(y, to, number);
    } else {
        if (!first)
            whole(op, array_integer(y, to), integer, &integer);
        array_set_integer(y, to, integer);
    }
}

/* The result's sizes with the axes kept as 1, and as the node wants them; the rank of these, or -1 after a fault. */
static int reduced_sizes(onnx_importer *im, const onnx_array *a, int64_t *dim, int64_t *kept)
{
    int axes[ONNX_DIMS_MAX], rank = 0;
    const int count = onnx_axes(im, 1, a->rank, axes);
    const bool none = !count && onnx_int(im, "noop_with_empty_axes", 0);
    for (int d = 0; d < a->rank && count >= 0; d++) {
        bool goes = !count && !none;
        for (int i = 0; i < count; i++)
            goes |= axes[i] == d;
        dim[d] = goes ? 1 : a->dim[d];
        if (!goes || onnx_int(im, "keepdims", 1))
            kept[rank++] = dim[d];
    }
    return count < 0 ? -1 : rank;
}

/* ReduceSum, ReduceProd, ReduceMin, ReduceMax, ReduceMean. */
bool onnx_fold_reduce(onnx_importer *im)
{
    const onnx_array *a = onnx_known_in(im, 0);
    onnx_array wide = {.rank = a ? a->rank : 0};
    int64_t kept[ONNX_DIMS_MAX];
    const int rank = a ? reduced_sizes(im, a, wide.dim, kept) : -1;
    onnx_array *y = rank < 0 ? NULL : onnx_array_new(im, a->type, rank, kept);
    bool *there = y ? POOL_NEW(im->pool, bool, array_count(y) + 1) : NULL;
    if (!there)
        return im->status ? false : onnx_no_memory(im);
    for (int64_t i = 0; i < array_count(a); i++) {
        const int64_t to = broadcast_at(&wide, a->rank, a->dim, i);
        reduce_one(repeated(im->node->op), a, i, y, to, !there[to]);
        there[to] = true;
    }
    const double terms = (double)array_count(a) / (double)(array_count(y) ? array_count(y) : 1);
    for (int64_t i = 0; !strcmp(im->node->op, "ReduceMean") && i < array_count(y); i++)
        array_set_real(y, i, array_real(y, i) / terms);
    return onnx_set_known(im, 0, y);
}
