/* actors/keep/mapping.h: a checkpoint whose files are mapped rather than read.
 *
 *     mapping --- weir_checkpoint       headers, read when it is opened: names, types, shapes, offsets
 *        '------- base of each file     PROT_READ, MAP_SHARED; mapped when the first tensor of it is asked for
 *
 * Nothing is copied and no checksum is compared: bytes come from the page cache when somebody reads them, and all processes
 * of a host have the same pages. A tensor that does not begin at a multiple of its elements' size is refused, as programs
 * may not read it in place. A file that is cut short after it was mapped ends its readers by SIGBUS.
 *
 * One owner thread; what it returns may be read by any until it is closed.
 */
#ifndef ACTORS_KEEP_MAPPING_H
#define ACTORS_KEEP_MAPPING_H

#include <weir/checkpoint.h>

struct keep_mapping;

/* All that weir_checkpoint_open() opens. NULL and weir_error(). */
struct keep_mapping *keep_mapping_open(const char *path);
void keep_mapping_close(struct keep_mapping *mapping); /* may be NULL */

/* A question: rows start[0] .. start[0] + part.dim[0] - 1 of the tensor `name`, whose shape is `whole`; each row is whole. */
struct keep_mapped {
    const char *name;
    weir_dtype dtype;
    weir_shape whole, part;
    int64_t start[WEIR_DIMS_MAX];
};

/* *data: its first byte. E_ARGUMENT: the file has no such tensor, or one of another type or shape, or stored otherwise. E_IO: the file
 * cannot be mapped, or is not as long as it was. */
weir_status keep_mapping_find(struct keep_mapping *mapping, const struct keep_mapped *wanted, const void **data);

#endif
