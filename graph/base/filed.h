/* graph/base/filed.h: memory whose bytes lie in a file.
 *
 * Such a stretch is mapped, so whoever has a pointer may follow it: an initial value is written, a parameter read, as in
 * any memory. But a mapped page counts as the process's own for as long as it is mapped, and a disk that fails shows as
 * a signal. So what moves large values in a step, a copy, does not follow the pointer: it asks here which file and
 * place that is, and reads or writes it there by a call that returns an error. Both see the same bytes: the system
 * keeps one copy of a file's page.
 *
 * The file has no name from the start, so it is gone with the process, however that ends. Its room on the disk is taken
 * when it is made: a full disk is an error then, not in a step.
 *
 * Stretches are known to the whole process, as addresses are. Any thread may call any function; copies of bytes that
 * meet are the callers' to order.
 */
#ifndef GRAPH_BASE_FILED_H
#define GRAPH_BASE_FILED_H

#include <stdint.h>
#include <weir/base.h>

/* The directory of "disk:DIRECTORY", in which users name such places; NULL: it names none. */
const char *filed_place(const char *text);

/* Zeroed memory of `bytes` > 0 in a file of its own in the directory. E_IO, E_MEMORY: there is none. */
weir_status filed_new(const char *directory, uint64_t bytes, void **base);
void filed_free(void *base);

/* As memcpy(), where one or both may be filed. E_IO: the disk failed, or `error` (of `error_bytes`, may be NULL) tells
 * what it was. */
weir_status filed_copy(void *to, const void *from, uint64_t bytes, char *error, size_t error_bytes);

#endif
