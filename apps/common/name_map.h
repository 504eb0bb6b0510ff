/* apps/common/name_map.h: how the tensors of one program are made of those of another.
 *
 *     # gpt2.map: weir-gpt's parameters, from Hugging Face's GPT-2
 *     prefix transformer.
 *     wte/weight    = wte.weight
 *     h{i}/q/weight = h.{i}.attn.c_attn.weight[:, 0:1/3]
 *     head/weight   = lm_head.weight.T | wte.weight.T
 *
 * A line names a tensor of weir's and says what it is: a tensor of the other's, or a part of it. `{i}` stands for 0, 1,
 * ... as long as there are such tensors. In brackets is a slice for each dimension: all of it (:), elements (0:768), or
 * fractions of the dimension (1/3:2/3). `.T` transposes a matrix, after slicing. The first alternative of | that is there is
 * taken. `prefix` is one that the other's names may have. # begins a comment.
 *
 * The same lines read backwards make the other's tensors of weir's: of each line the first that | divides, put together
 * from all lines that are slices of it; what two lines would write is taken from the first.
 */
#ifndef APPS_COMMON_NAME_MAP_H
#define APPS_COMMON_NAME_MAP_H

#include "apps/common/tensors.h"

struct name_map;

/* false: tensors_error() names file and line. */
bool name_map_read(struct name_map **map, const char *path);
void name_map_free(struct name_map *map);

/* Fills `to`, which is empty. `backwards`: from weir's names to the other's. */
bool name_map_apply(const struct name_map *map, const struct tensors *from, struct tensors *to, bool backwards);

#endif
