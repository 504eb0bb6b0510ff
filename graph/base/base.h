/* graph/base/base.h: what graph/base/base.c gives the library beyond <weir/base.h>. Pure functions; any thread. */
#ifndef GRAPH_BASE_BASE_H
#define GRAPH_BASE_BASE_H

#include <weir/op.h>

/* Writes "[8, 16]" to `text` and returns it. */
const char *shape_text(const weir_shape *shape, char *text, size_t bytes);

/* Whether the elements can be counted, and their bytes too. */
bool shape_countable(const weir_shape *shape);

/* "cpu": what device lists, plans and messages call the kind. Static storage. */
const char *device_kind_name(weir_device_kind kind);

/* FNV-1a, 64 bits: of the text; and of more bytes behind those that `hash` is of (HASH_START: of none). */
#define HASH_START UINT64_C(0xcbf29ce484222325)
#define HASH_PRIME UINT64_C(0x100000001b3)
uint64_t name_hash(const char *name);
uint64_t hash_more(uint64_t hash, const void *bytes, size_t count);

/* The random stream of what is called `name` in a plan with this seed: FNV-1a of the name, xor seed *
 * 0x9E3779B97F4A7C15. */
uint64_t name_key(uint64_t seed, const char *name);

#endif
