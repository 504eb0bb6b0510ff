/* apps/common/train/norms.c: the norms of gradients that a training program logs.
 *
 * A group's pattern stands for any digit by a '?', so layers that share a group are those of a decade: 0 to 9, 10 to 19, ...
 */
#include "apps/common/train/norms.h"

#include <assert.h>
#include <stdio.h>

#define ALL "grad_norm"

const char *norms_all(const norms *n)
{
    return n->count ? n->name[0] : NULL;
}

void norms_add(norms *n, weir_optimizer *optimizer, const char *match, const char *name)
{
    if (!n->count)
        snprintf(n->name[n->count++], NORMS_BYTES, ALL);
    assert(n->count < NORMS_MAX);
    snprintf(n->match[n->count], NORMS_BYTES, "%s", match);
    snprintf(n->name[n->count], NORMS_BYTES, ALL "/%s", name);
    optimizer->groups[n->count - 1].match = n->match[n->count];
    optimizer->groups[n->count - 1].norm = n->name[n->count];
    n->count++;
}

/* How many layers share the group that begins with the layer `first`, when at most `width` (1, 10 or 100) may: those whose
 * numbers have as many digits. */
static int layers_from(int first, int width)
{
    return first >= width || width == 1 ? width : first ? 9 * first : 10;
}

static int groups_needed(int layers, int width)
{
    int groups = 0;
    for (int first = 0; first < layers; first += layers_from(first, width))
        groups++;
    return groups;
}

void norms_add_layers(norms *n, weir_optimizer *optimizer, int layers)
{
    const int room = NORMS_MAX - (n->count ? n->count : 1);
    int width = 1;
    while (groups_needed(layers, width) > room)
        width *= 10;
    for (int first = 0; first < layers;) {
        char match[32], name[32];
        const int next = first + layers_from(first, width), last = (next < layers ? next : layers) - 1;
        const char *any = next - first == 1 ? "" : next - first == 10 ? "?" : "??";
        if (first >= width)
            snprintf(match, sizeof match, "h%d%s/*", first / width, any);
        else
            snprintf(match, sizeof match, width == 1 ? "h0/*" : "h%s/*", any);
        snprintf(name, sizeof name, last > first ? "h%d-%d" : "h%d", first, last);
        norms_add(n, optimizer, match, name);
        first = next;
    }
}
