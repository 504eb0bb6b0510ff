/* graph/verify/dual_author.c: the author, once more, over dual numbers (graph/verify/dual.h). */
#include "graph/verify/dual.h"

#include "graph/verify/draw.c"
#include "graph/verify/author.c"
