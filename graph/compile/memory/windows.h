/* graph/compile/memory/windows.h: which registers could lie within what they are made of, or what is made of them
 * (graph/plan/lives/window.h): a sum over a part of its own term, and a device's own share within what it gathers.
 *
 *     terms  [ ======= : ------- ]     host: the first that is needed
 *     sum    [ ======= ]               guest, where its term was
 *     whole  [ ======= : ======= ]     guest: the other shares come where terms were, which have been read
 *
 * Layout asks for all there are, once, and places the others as guests of one part. Guests that share bytes with each other
 * or with their host may do so for one of these reasons, or because their lives are apart.
 *
 * They pay where terms of large sums are a good part of an arena: data parallel, few rows a device, no --zero. Bytes of
 * all devices (`weir-gpt .. --plan FILE`, `weir show --json FILE`), and a step over two workers (median of 7, in turns),
 * of a build without windows against one with them:
 *
 *     --layers 12 --dim 768 --heads 12 --dp 2 --batch 2     bytes + 12.4 %
 *     --layers 6 --dim 384 --heads 6 --dp 2 --batch 2       bytes +  7.8 %   58 ms -> 64 ms
 *     --layers 8 --dim 512 --heads 8 --dp 4 --batch 8       bytes +  4.0 %
 *     --layers 12 --dim 768 --heads 12 --dp 8 --batch 8     bytes +  2.1 %
 *     --layers 2 --dim 512 --heads 8 --dp 2 --batch 2 --seq 16               14.5 ms -> 15.7 ms
 *     --layers 4 --tp 2                                     bytes -  1.3 %   35.1 ms -> 35.0 ms
 *     others of dp, tp, pp, --zero, --bf16, up to 8 devices bytes alike, within 0.4 %
 *
 * With a limit on memory the second fits in 183 MB a device, and without windows in 197 MB. A sum of 16 MiB over two ranks,
 * for which an arena grows by its windows (offsets.c), takes 1.26 ms, and 1.74 ms if it may not (`weir bench allreduce`).
 */
#ifndef GRAPH_COMPILE_MEMORY_WINDOWS_H
#define GRAPH_COMPILE_MEMORY_WINDOWS_H

#include "graph/compile/memory/offsets.h"

typedef struct window_wish {
    int device, reg, tensor;       /* a register of one tensor, and the ptensor that it is to lie within */
    bool onto;                     /* which is a term of it; else it is gathered from it */
    uint64_t bytes, at;            /* of the register; from the start of the ptensor */
    int next;                      /* the next of this register, or NONE */
} window_wish;

typedef struct window_list {
    window_wish *item;             /* by device: sums first, then the largest first; the compilation's pool */
    int *first;                    /* by device: its first; one more than there are devices */
    int *of_reg;                   /* by register: the first for it, or NONE */
    int count;
} window_list;

/* Looks for all, in the plan that the compilation was written as without offsets. False: no memory. */
bool windows_list(const offsets *o, window_list *list);

/* Makes guests of parts of one device for which it is proven safe, as far as they were to be placed: `known` has entered
 * the device. Returns how many. */
int windows_enter(const offsets *o, const window_list *list, int device);

/* Nothing on the device is within anything any more. */
void windows_leave(block *const *part, int count);

/* The life of a part, in the plan's terms. */
life windows_life(const offsets *o, const block *b);

#endif
