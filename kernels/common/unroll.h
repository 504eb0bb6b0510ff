/* kernels/common/unroll.h: UNROLL, in the line before a loop, writes all of its few rounds out one after the other.
 *
 * For loops whose number of rounds is a constant where they are compiled: then what is indexed by their counter can lie
 * in registers. Else sums would have a place in memory, to be loaded, stored and cleared. Neither compiler takes notice
 * of the other's pragma, nor says so: a product compiled by clang took three times as long with GCC's. Header-only.
 */
#ifndef KERNELS_COMMON_UNROLL_H
#define KERNELS_COMMON_UNROLL_H

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 24") /* at most so many rounds */
#endif

#endif
