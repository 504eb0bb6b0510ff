/* weir/train.h: from a loss to updated parameters.
 *
 * weir_train() adds the backward graph, the clipping and one update op per parameter to the graph. They are ops like all
 * others. The gradient is that of the mean of the loss over the micro-batches of a step. With .count it is that of the sum of
 * the losses, divided by the sum of the counts. An update runs once a step, and changes the parameter in place after its last
 * reader has finished.
 *
 *     weir_tensor *loss = weir_cross_entropy(logits, labels);
 *     weir_train(loss, weir_adamw(.lr = 0.001, .clip_norm = 1));
 */
#ifndef WEIR_TRAIN_H
#define WEIR_TRAIN_H

#include <weir/graph.h>

WEIR_C_BEGIN

typedef enum weir_optimizer_kind { WEIR_SGD, WEIR_ADAMW, WEIR_ADAM, WEIR_ADAGRAD, WEIR_LION, WEIR_LAMB } weir_optimizer_kind;

/* How the learning rate goes on after the warm-up, in which it rises linearly: to .lr_min, which it has from step .total on. */
typedef enum weir_schedule {
    WEIR_SCHEDULE_DEFAULT,  /* COSINE with a .total, else CONSTANT */
    WEIR_SCHEDULE_CONSTANT, /* stays at .lr */
    WEIR_SCHEDULE_COSINE,   /* along a half cosine (Loshchilov and Hutter 2017) */
    WEIR_SCHEDULE_LINEAR,   /* along a line */
    WEIR_SCHEDULE_STABLE    /* stays at .lr, and falls along a line in the last .decay steps (Hu et al. 2024) */
} weir_schedule;

/* Other options for some of the parameters. `match` is a glob over a parameter's whole name, as "*bias" or "h0?up*": a '*'
 * stands for any characters, also for a slash, and a '?' for one. */
#define WEIR_GROUPS_MAX 16
typedef struct weir_optimizer_group {
    const char *match;
    double lr;           /* [that of the optimizer]; .lr_min is multiplied by the same factor */
    double weight_decay; /* of all of them, however many dimensions they have [that of the optimizer, for parameters with two or
                            more dimensions]; WEIR_ZERO: none */
    double clip_norm;    /* their gradients are clipped by their own norm, and do not count for that of the optimizer's
                            .clip_norm [they are clipped with the others]; WEIR_ZERO: they are not clipped */
    bool frozen;         /* they are not trained, as with .frozen of weir_param() */
    const char *norm;    /* fetches the norm of their gradients under this name, as .norm of weir_train() [none] */
} weir_optimizer_group;

/* A member that is left out has the default in brackets; write .lr = WEIR_ZERO for the number 0. */
typedef struct weir_optimizer {
    size_t size;
    weir_src src;
    weir_optimizer_kind kind;
    double lr;              /* learning rate [0.01 SGD and Adagrad, 0.001 AdamW, Adam and LAMB, 0.0001 Lion] */
    double momentum;        /* SGD [0] */
    double beta1, beta2;    /* AdamW, Adam, LAMB [0.9, 0.999]; Lion [0.9, 0.99] */
    double eps;             /* AdamW, Adam [1e-8]; LAMB [1e-6]; Adagrad [1e-10] */
    double weight_decay;    /* [0] for parameters with two or more dimensions: AdamW, Lion and LAMB subtract it from p; SGD, Adam and
                               Adagrad add decay * p to the gradient */
    double clip_norm;       /* [0: no clipping] gradients are scaled by min(1, clip_norm / norm of all of them), without those of a
                               group that has a .clip_norm of its own. A step whose norm is not finite is skipped: it changes no
                               parameter and no counter but that of skipped steps, the state
                               "grad_norm/clip:clip_scale.skipped" (i32) */
    int64_t warmup;         /* steps over which the rate rises linearly to lr [0]: lr (step + 1) / warmup */
    int64_t total;          /* the step from which the rate is lr_min [0: it stays at lr] */
    double lr_min;          /* [0] */
    weir_optimizer_group groups[WEIR_GROUPS_MAX]; /* end at the first without .match. A parameter belongs to the first group that
                                                     matches its name. A group to which none belongs is a mistake */
    weir_schedule schedule; /* [COSINE with a .total, else CONSTANT] */
    int64_t decay;          /* of WEIR_SCHEDULE_STABLE: steps before .total in which the rate falls [a tenth of .total] */
    weir_tensor *rate;      /* the learning rate of a step is multiplied by it: an f32 scalar that exists once a step. It may be an
                               input (to reduce the rate when the loss no longer falls) or computed. A step whose rate is not
                               finite changes no parameter and no state of the optimizer [none: 1] */
    bool nesterov;          /* of SGD with momentum: looks ahead (Sutskever et al. 2013) */
} weir_optimizer;

#define WEIR_OPTIMIZER_(...) (*WEIR_OPTS(weir_optimizer, __VA_ARGS__))
/* In the formulas g is the gradient, clipped. Squares, roots and quotients are of each element; m, v and s are states of the
 * parameter and begin at 0. */

/* p -= lr (g + decay p), or with momentum v = momentum v + g + decay p; p -= lr v. With .nesterov the last is
 * p -= lr (g + decay p + momentum v). */
#define weir_sgd(...) WEIR_OPTIMIZER_(.kind = WEIR_SGD, __VA_ARGS__)
/* AdamW (Loshchilov and Hutter 2019). The bias correction of m and v goes by the number of updates of the parameter, which is a
 * state ("h0/q/weight:adamw.updates", i32): a parameter that a loaded checkpoint did not have starts at 0. Warm-up and decay
 * of the rate go by the step of the run. */
#define weir_adamw(...) WEIR_OPTIMIZER_(.kind = WEIR_ADAMW, __VA_ARGS__)

/* Adam (Kingma and Ba 2015) with L2: g += decay p, then m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
 * p -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps), where t counts updates as with AdamW. */
#define weir_adam(...) WEIR_OPTIMIZER_(.kind = WEIR_ADAM, __VA_ARGS__)
/* Adagrad (Duchi et al. 2011) with L2: g += decay p; s += g^2; p -= lr g / (sqrt(s) + eps) */
#define weir_adagrad(...) WEIR_OPTIMIZER_(.kind = WEIR_ADAGRAD, __VA_ARGS__)
/* Lion (Chen et al. 2023): p -= lr (sign(beta1 m + (1 - beta1) g) + decay p); m = beta2 m + (1 - beta2) g */
#define weir_lion(...) WEIR_OPTIMIZER_(.kind = WEIR_LION, __VA_ARGS__)
/* LAMB (You et al. 2020): m and v as Adam's, of g; u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + decay p;
 * p -= lr (|p| / |u|) u with the norms of the whole parameter, and a quotient of 1 if one of them is 0. The sums of squares of a
 * parameter that is split over devices are added, so the last bits depend on the layout. */
#define weir_lamb(...) WEIR_OPTIMIZER_(.kind = WEIR_LAMB, __VA_ARGS__)

typedef struct weir_train_opts {
    size_t size;
    weir_src src;
    bool zero[WEIR_AXES_MAX]; /* split parameters' master copies and optimizer state over these mesh axes, and gather the
                                 parameters once a step (Rajbhandari et al. 2020): {[DP] = true} */
    weir_tensor *count;       /* the number of terms of which `loss` is the sum, an f32 scalar of each micro-batch, as with
                                 weir_cross_entropy(.sum = true) and weir_label_count(). A step whose counts add up to 0 is
                                 skipped, as one whose norm is not finite is (.clip_norm) [none: `loss` is a mean, and all
                                 micro-batches have the same weight] */
    bool recompute;           /* in the backward pass, compute the results of cheap ops (normalisation, gelu, silu) again
                                 instead of keeping them (Chen et al. 2016): less memory for activations, a little more
                                 time */
    const char *norm;         /* fetches the norm of all gradients under this name, once a step: before clipping, after the division
                                 by .count, NaN if the step is skipped. As with .clip_norm, a step whose norm is not finite is
                                 skipped [none] */
    double ema;               /* 0 < ema < 1: keeps an average of each parameter that trains, a = ema a + (1 - ema) p, in the state
                                 "NAME.ema". The value p is that with which a step begins. While an average has seen n values
                                 and n / (n + 1) is less than ema, that takes its place, so the first average is the parameter.
                                 A program with .averages (weir_graph_program) reads the averages [0: none] */
} weir_train_opts;

/* Trains all parameters that `loss` (a scalar) depends on and that are not frozen. Once per graph. */
#define weir_train(loss, optimizer, ...) \
    weir_train_at(loss, WEIR_COPY_(weir_optimizer, optimizer), WEIR_OPTS(weir_train_opts, __VA_ARGS__))
void weir_train_at(weir_tensor *loss, const weir_optimizer *optimizer, const weir_train_opts *opts);

WEIR_C_END
#endif
