/* actors/keep/format/convert.h: numbers of other types, as safetensors files of other programs have them, as f32 and i32.
 * Halves and I64 are read as they are where that is wanted, and converted otherwise. Pure functions; any thread. */
#ifndef ACTORS_KEEP_FORMAT_CONVERT_H
#define ACTORS_KEEP_FORMAT_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/base.h>

/* For a type by its name in the file: bytes of an element; whether there are values of it that the dtype as which they are
 * read does not hold. */
size_t keep_stored_bytes(const char *stored);
bool keep_stored_may_not_fit(const char *stored, weir_dtype dtype);

/* `count` elements to f32 (F16, BF16, F64) or i32 (I64). f64 is rounded to the nearest. False: a finite number is too
 * large, or a whole one out of range. */
bool keep_convert(const char *stored, const void *from, size_t count, void *to);

#endif
