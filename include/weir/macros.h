/* weir/macros.h: the macros that a program writes in its own code: options, arrays, places. <weir/base.h> includes it.
 *
 * Options are members of a structure (weir_..._opts) that a macro fills in and gives to a function by address:
 *
 *     weir_compile(g, .memory = "1MiB")   is   weir_compile_at(g, WEIR_OPTS(weir_compile_opts, .memory = "1MiB"))
 *
 * The first member is the structure's size as the program knows it, the second the place in the program. So options can
 * be added, always at the end, and what was compiled before goes on running: the library takes as many bytes as the
 * program has, and the rest is 0. The other way round, a program that sets what an older library does not know gets an
 * error that names its file and line. A program that fills in a structure by itself and leaves `size` 0 gets one, too. NULL
 * in the place of the address: nothing is set.
 *
 * All of them are C11 and C++17. C++ wants options in the order of their structure, by name throughout:
 * WEIR_ON(m, .name = "h%d", .index = i). A compiler warns of members that are left out, and leaving out is how options
 * work; so this header is a system header to it, which silences warnings of these lines and of no line of the program.
 */
#ifndef WEIR_MACROS_H
#define WEIR_MACROS_H

#include <weir/base.h>

#ifdef __GNUC__
#pragma GCC system_header
#endif

/* WEIR_HERE is the place in the program.
 *
 * WEIR_OPTS_AT() is for functions that pass on a place that they were given. The structure lives as long as a local
 * variable there (in C++ until the end of the statement); no call keeps it.
 *
 * WEIR_ARRAY(data, dtype, dimensions...) is the address of a weir_array, which lives as long; without dimensions it is a
 * scalar: weir_session_read(s, "line/weight", WEIR_ARRAY(w, WEIR_F32, 8, 1)). WEIR_OF(type, members...) is the address of any
 * other structure: weir_op_apply(WEIR_OF(weir_apply, .src = WEIR_HERE, .op = op, .graph = g), NULL). */
#ifdef __cplusplus
#define WEIR_HERE (weir_src{__FILE__, __LINE__})
#define WEIR_OPTS_AT(where, type, ...) (weir_address_(type{.size = sizeof(type), .src = where, __VA_ARGS__}))
#define WEIR_OF(type, ...) (weir_address_(type{__VA_ARGS__}))
#define WEIR_COPY_(type, value) (weir_address_<type>(value))
#define WEIR_ARRAY(...) (const_cast<weir_array *>(weir_address_(weir_array_(__VA_ARGS__))))
#else
#define WEIR_HERE ((weir_src){__FILE__, __LINE__})
#define WEIR_OPTS_AT(where, type, ...) (&(const type){.size = sizeof(type), .src = where, __VA_ARGS__})
#define WEIR_OF(type, ...) (&(const type){__VA_ARGS__})
#define WEIR_COPY_(type, value) ((const type[]){value})
#define WEIR_ARRAY(...) WEIR_ARRAY_(__VA_ARGS__, )
#define WEIR_ARRAY_(data, dtype, ...) (&(weir_array){data, dtype, {WEIR_DIMS_(__VA_ARGS__), {__VA_ARGS__}}})
/* How many numbers there are; behind each of them is a comma. */
#define WEIR_DIMS_(...) ((int)(sizeof((const int64_t[]){__VA_ARGS__ 0}) / sizeof(int64_t)) - 1)
#endif
#define WEIR_OPTS(type, ...) WEIR_OPTS_AT(WEIR_HERE, type, __VA_ARGS__)

/* A member of an attribute structure (<weir/op.h>). */
#define WEIR_FIELD_INT(type, member) WEIR_FIELD_(type, member, false)
#define WEIR_FIELD_REAL(type, member) WEIR_FIELD_(type, member, true)
#define WEIR_FIELD_(type, member, real) {#member, offsetof(type, member), (int)(sizeof(((type *)0)->member) / 8), real}

#ifdef __cplusplus
/* C++ has no address of a temporary, but lets a reference to one be given on. */
template <typename T> inline const T *weir_address_(const T &value) { return &value; }

template <typename... Dims> inline weir_array weir_array_(void *data, weir_dtype dtype, Dims... dims)
{
    static_assert(sizeof...(dims) <= WEIR_DIMS_MAX, "a weir_array has too many dimensions");
    return weir_array{data, dtype, {int{sizeof...(dims)}, {static_cast<int64_t>(dims)...}}};
}
#endif
#endif
