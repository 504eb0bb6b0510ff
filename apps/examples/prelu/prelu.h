/* prelu.h: an op of one's own, with a parameter: y = x where x > 0, and slope * x elsewhere, with a slope for each
 * column that is learned (He et al. 2015, arXiv:1502.01852). Everything here is made with weir's public headers alone.
 *
 *     h = prelu(weir_linear(x, 64), .name = "act");       // its slope is the parameter act/slope, of shape {64}
 *
 * `learn check` holds the op to its promises with weir_op_check(): that is the first thing to do with a new op, as a wrong
 * signature gives wrong results on two devices and says nothing.
 *
 * A program that builds models is linked with prelu.c. One that only loads plans gets it as a shared object:
 *
 *     gcc -shared -fPIC -O2 prelu.c $(pkg-config --cflags weir) -o prelu.so
 *     weir run --load ./prelu.so PLAN ...
 */
#ifndef PRELU_H
#define PRELU_H

#include <weir/weir.h>

WEIR_C_BEGIN

typedef struct prelu_opts {
    size_t size;
    weir_src src;
    const char *name;
    double slope; /* that all columns begin with [0.25] */
} prelu_opts;

/* x: f32, of one dimension or more. Returns a tensor of its type. */
#define prelu(x, ...) prelu_at(x, WEIR_OPTS(prelu_opts, __VA_ARGS__))
weir_tensor *prelu_at(weir_tensor *x, const prelu_opts *opts);

/* Whether the op and its gradient keep what their rules promise; if not, weir_error() says which promise is broken. */
weir_status prelu_check(void);

WEIR_C_END

#endif
