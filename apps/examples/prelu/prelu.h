/* prelu.h: an op of one's own, with a parameter: y = x where x > 0, and slope * x elsewhere, with a slope for each
 * column that is learned (He et al. 2015, arXiv:1502.01852). Everything here is made with weir's public headers alone.
 *
 *     h = prelu(weir_linear(x, 64), .name = "act");       // its slope is the parameter act/slope, of shape {64}
 *
 * A program that builds models is linked with prelu.c. One that only loads plans gets it as a shared object:
 *
 *     gcc -shared -fPIC -O2 prelu.c $(pkg-config --cflags weir) -o prelu.so
 *     weir run --load ./prelu.so PLAN ...
 */
#ifndef PRELU_H
#define PRELU_H

#include <weir/weir.h>

typedef struct prelu_opts {
    weir_src src;
    const char *name;
    double slope; /* that all columns begin with [0.25] */
} prelu_opts;

/* x: f32, of one dimension or more. Returns a tensor of its type. */
#define prelu(x, ...) prelu_at(x, (prelu_opts){.src = WEIR_HERE, __VA_ARGS__})
weir_tensor *prelu_at(weir_tensor *x, prelu_opts opts);

#endif
