/* weir/macros.h: the macros that a program uses: options, arrays, source lines. <weir/base.h> includes it.
 *
 * Options are members of a structure (weir_..._opts) that a macro fills in and passes to a function by address:
 *
 *     weir_compile(g, .memory = "1MiB")   is   weir_compile_at(g, WEIR_OPTS(weir_compile_opts, .memory = "1MiB"))
 *
 * The first member is the size of the structure in the program's headers, the second the program's file and line. New
 * options are only added at the end. The library reads `size` bytes and treats the rest as 0, so a program compiled with
 * older headers runs with a newer library. If a program sets an option that an older library does not know, it gets an error
 * with its file and line, and so does a program that fills in a structure by itself and leaves `size` 0. NULL in place of
 * the address means that no option is set.
 *
 * All macros are C11 and C++17. C++ needs options in the order of their structure, and all by name:
 * WEIR_ON(m, .name = "h%d", .index = i). Compilers warn of members that are left out, which options need; so this header is
 * a system header, which silences warnings about its own lines and about no line of the program.
 */
#ifndef WEIR_MACROS_H
#define WEIR_MACROS_H

#include <weir/base.h>

#ifdef __GNUC__
#pragma GCC system_header
#endif

/* WEIR_HERE is the file and line at which it stands.
 *
 * WEIR_OPTS_AT() is for functions that pass on the file and line of their caller. The structure lives as long as a local
 * variable there (in C++ until the end of the statement); no call keeps it.
 *
 * WEIR_ARRAY(data, dtype, dimensions...) is the address of a weir_array with the same lifetime, and a scalar without
 * dimensions: weir_session_read(s, "line/weight", WEIR_ARRAY(w, WEIR_F32, 8, 1)). WEIR_OF(type, members...) is the address of
 * any other structure: weir_op_apply(WEIR_OF(weir_apply, .src = WEIR_HERE, .op = op, .graph = g), NULL). */
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
/* The number of arguments, each with a comma after it. */
#define WEIR_DIMS_(...) ((int)(sizeof((const int64_t[]){__VA_ARGS__ 0}) / sizeof(int64_t)) - 1)
#endif
#define WEIR_OPTS(type, ...) WEIR_OPTS_AT(WEIR_HERE, type, __VA_ARGS__)

/* A member of an attribute structure (<weir/op.h>). */
#define WEIR_FIELD_INT(type, member) WEIR_FIELD_(type, member, false)
#define WEIR_FIELD_REAL(type, member) WEIR_FIELD_(type, member, true)
#define WEIR_FIELD_(type, member, real) {#member, offsetof(type, member), (int)(sizeof(((type *)0)->member) / 8), real}

#ifdef __cplusplus
/* C++ does not allow the address of a temporary, but a reference to it. */
template <typename T> inline const T *weir_address_(const T &value) { return &value; }

template <typename... Dims> inline weir_array weir_array_(void *data, weir_dtype dtype, Dims... dims)
{
    static_assert(sizeof...(dims) <= WEIR_DIMS_MAX, "a weir_array has too many dimensions");
    return weir_array{data, dtype, {int{sizeof...(dims)}, {static_cast<int64_t>(dims)...}}};
}
#endif
#endif
