/* kernels/common/rules.h: rules that many ops share. Pure functions of their arguments; any thread. */
#ifndef KERNELS_COMMON_RULES_H
#define KERNELS_COMMON_RULES_H

#include <weir/op.h>

/* infer: refuses inputs that are not f32. */
bool rule_all_f32(const weir_op_args *args, char *error, size_t error_bytes);

/* infer: inputs are f32, f16 or bf16, all of them the same. All that is computed in between is f32
 * (kernels/common/real.h). */
bool rule_all_real(const weir_op_args *args, char *error, size_t error_bytes);

/* infer: the same, or i32 or i64. */
bool rule_all_numbers(const weir_op_args *args, char *error, size_t error_bytes);

/* infer of an op that no graph has. */
bool infer_never(weir_op_args *args, char *error, size_t error_bytes);

/* infer: every input is like the first, and so is out[0]. _f32: and they are f32; _real: or f16 or bf16; _number: or i32 or
 * i64. */
bool infer_alike(weir_op_args *args, char *error, size_t error_bytes);
bool infer_alike_real(weir_op_args *args, char *error, size_t error_bytes);
bool infer_alike_number(weir_op_args *args, char *error, size_t error_bytes);
bool infer_alike_f32(weir_op_args *args, char *error, size_t error_bytes);

/* fits, of an op with .either_out: infer gives out[], but that out[0] may be f32 where infer has a half. */
bool fits_either(const weir_op_args *local, char *error, size_t error_bytes);

/* signatures: S(d) for every dimension d below `dims`, of all inputs and outputs, which have the same shape there. */
void sign_split_alike(const weir_op_args *args, weir_signature_list *list, int dims);

/* signatures: P -> P of an op that is linear in its input `in`, while the others (if any) are B. */
void sign_linear_in(const weir_op_args *args, weir_signature_list *list, int in);

/* signatures: all inputs P -> out[0] P, of an op that is linear in all of them at once. */
void sign_linear(const weir_op_args *args, weir_signature_list *list);

/* signatures: S(d) for every dimension. _linear: and all P -> P. */
void sign_alike(const weir_op_args *args, weir_signature_list *list);
void sign_alike_linear(const weir_op_args *args, weir_signature_list *list);
/* For gradient ops (saved, ..., dy) -> dx: S(d), and P -> P in the last input. */
void sign_alike_grad(const weir_op_args *args, weir_signature_list *list);

/* cost: every operand is moved once; `flops` in all. */
void cost_moved(const weir_op_args *args, weir_cost *cost, double flops);

#define RULES_SHAPE_TEXT 160 /* bytes, enough for shape_text() */

#endif
