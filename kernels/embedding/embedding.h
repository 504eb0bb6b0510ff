/* kernels/embedding/embedding.h: rules of ids that pick rows of a table, in[1]. Pure functions; any thread. */
#ifndef KERNELS_EMBEDDING_EMBEDDING_H
#define KERNELS_EMBEDDING_EMBEDDING_H

#include "kernels/embedding/formula.h"

#include <weir/op.h>

/* infer: refuses ids that are not i32, or of which the result would have too many dimensions. */
bool embedding_ids_fit(const weir_type *ids, char *error, size_t error_bytes);

/* refused: element `at` of in[0] is an id that the whole of in[1] has no row for. */
weir_status embedding_refused(const weir_kernel_args *args, int64_t at, int32_t id);

#endif
