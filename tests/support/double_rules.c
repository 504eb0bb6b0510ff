/* tests/support/double_rules.c: the rules of a proof once more, over doubles (tests/graph/verify/doubles.h): for referee.c, and for
 * tests/graph/verify/rule_check.h, which includes this. */
#include "tests/graph/verify/doubles.h"

#include "graph/verify/rule.c"
#include "graph/verify/rules_core.c"
#define sizes_differ product_sizes_differ /* each name is of two files */
#include "graph/verify/rules_product.c"
#include "graph/verify/rules_conv.c"
#include "graph/verify/rules_element.c"
#define norm norm_sizes
#include "graph/verify/rules_reduce.c"
#undef norm
#include "graph/verify/rules_attention.c"
#include "graph/verify/rules_model.c"
#include "graph/verify/rules_loss.c"
#include "graph/verify/rules_update.c"
#include "graph/verify/rules_index.c"
