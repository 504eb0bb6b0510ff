/* kernels/table/level_ops.c: the table of the built-in ops. In a portable build it is compiled again with each copy of the
 * kernels, whose ops it lists, and is the one name of the copy that others see (kernels/table/levels.c). */
#include "kernels/common/ops.h"

const weir_op *const LEVEL_OPS[OPS_COUNT] = {
#define X(name) &op_##name,
    OPS_LIST(X)
#undef X
};
