/* tests/kernels/by_name.h: attributes of an op under test by their names; and the op whole and in parts. */
#ifndef TESTS_KERNELS_BY_NAME_H
#define TESTS_KERNELS_BY_NAME_H

#include "tests/support/kernel_check.h"
#include "tests/support/shard_check.h"

#include <criterion/criterion.h>
#include <string.h>

typedef union word {
    int64_t i;
    double r;
} word;

static inline void attr_set(const weir_op *op, word *attrs, const char *name, double value)
{
    for (int f = 0; f < op->field_count; f++)
        if (!strcmp(op->fields[f].name, name)) {
            word *at = attrs + op->fields[f].offset / sizeof(word);
            if (op->fields[f].real)
                at->r = value;
            else
                at->i = (int64_t)value;
            return;
        }
    cr_assert_fail("%s has no attribute %s", op->name, name);
}

static inline double attr_get(const kernel_check *c, const char *name)
{
    for (int f = 0; f < c->op->field_count; f++)
        if (!strcmp(c->op->fields[f].name, name)) {
            const word *at = (const word *)c->attrs + c->op->fields[f].offset / sizeof(word);
            return c->op->fields[f].real ? at->r : (double)at->i;
        }
    cr_assert_fail("%s has no attribute %s", c->op->name, name);
    return 0;
}

/* Runs the op whole, then on 2 and 3 devices in every way that it says it may be split. */
static inline void run_all_ways(kernel_check *c, double tolerance)
{
    kernel_check_run(c);
    for (int i = 0; i < c->in_count; i++)
        if (weir_shape_count(&c->in[i].shape) == 0)
            return;
    for (int devices = 2; devices <= 3; devices++) {
        int played = shard_check(c, devices, tolerance);
        cr_assert(played > 0 || c->in[0].shape.rank < 2, "%s lists no signature", c->op->name);
    }
}

#endif
