/* apps/common/train/norms.h: the norms of gradients that a training program logs: of all parameters together, and layer by
 * layer.
 *
 *     norms n = {0};
 *     norms_add(&n, &optimizer, "out*", "out");           parameters whose names match: "grad_norm/out"
 *     norms_add_layers(&n, &optimizer, 4);                h0/... to h3/...: "grad_norm/h0" to "grad_norm/h3"
 *     weir_train(loss, optimizer, .norm = norms_all(&n));
 *
 * Each is a group of the optimizer, of which there are at most WEIR_GROUPS_MAX. If there are more layers than groups left, ten
 * or a hundred layers share one: "grad_norm/h10-19". Their parameters train as they would without the group; a norm by which
 * gradients are clipped is then added up in another order, so its last bit may differ.
 *
 * One thread. The texts that the optimizer gets are those of the norms, which must live as long as the graph is built.
 */
#ifndef APPS_COMMON_TRAIN_NORMS_H
#define APPS_COMMON_TRAIN_NORMS_H

#include <weir/weir.h>

#define NORMS_MAX (1 + WEIR_GROUPS_MAX)
#define NORMS_BYTES 48
#define NORMS_LAYERS_MAX 1000

/* Zero: there is none. The first is that of all parameters. */
typedef struct norms {
    int count;
    char name[NORMS_MAX][NORMS_BYTES];  /* the name of the fetch, and in the log */
    char match[NORMS_MAX][NORMS_BYTES]; /* of the group */
} norms;

/* The name of the norm of all gradients, for .norm of weir_train(); NULL: there are no norms. */
const char *norms_all(const norms *n);

/* Adds the norm of the parameters whose names match, and the optimizer's group for it. */
void norms_add(norms *n, weir_optimizer *optimizer, const char *match, const char *name);

/* Adds those of so many layers, at most NORMS_LAYERS_MAX, whose parameters begin with h0/, h1/, ... */
void norms_add_layers(norms *n, weir_optimizer *optimizer, int layers);

#endif
