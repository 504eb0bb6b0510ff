/* graph/verify/ledger.h: values by name, as two sides have them one after the other. The first side writes what it has; what the
 * second has is held against that.
 *
 *     first:   "w" after step 1, rows 0-3 of 8      second:  "w" after step 1, rows 0-7 of 8
 *              "w" after step 1, rows 4-7 of 8               "w" after step 1, rows 0-7 of 8
 *
 * A side may have an element several times, as replicas have; then each must be the same. It may have the elements in whatever
 * parts; in the end both sides must have had all of them.
 *
 * Names and files are borrowed, from plans. One thread.
 */
#ifndef GRAPH_VERIFY_LEDGER_H
#define GRAPH_VERIFY_LEDGER_H

#include "graph/verify/rule.h"

typedef struct ledger ledger;

/* A value at one time. */
typedef struct ledger_value {
    const char *name;
    bool fetch;       /* else it lives from step to step */
    bool lesser;      /* a difference of another value at that time is reported in its place */
    int64_t when;     /* of a fetch its step, else how many steps are over */
    int micro;        /* of a fetch; -1: it is of the whole step */
    const char *file; /* in the program; "" : not known */
    uint32_t line;
} ledger_value;

/* NULL: no memory. */
ledger *ledger_new(void);
void ledger_free(ledger *l);

/* Bytes that it takes for so many elements of values. */
uint64_t ledger_bytes(uint64_t elements);

/* A shard of a value, as side 0 or 1 has it. False: no memory. */
bool ledger_put(ledger *l, int side, const ledger_value *value, const rule_array *shard);

/* Whether the sides differ; then it writes a sentence about the first value that differs at the earliest time. Both sides have put
 * all that they have. */
bool ledger_differs(const ledger *l, char *text, size_t bytes);

#endif
