/* tests/graph/verify/small_field.h: the field of a proof, as small as a test wants it. The compiler includes this before each file
 * of graph/verify for test_bound, so that the integers are those modulo 2^small_field_bits - 1, which has to be a prime: of 5, 7,
 * 13 or 61 bits. With small_field_elements of 1 both elements of a pair are equal.
 */
#ifndef TESTS_GRAPH_VERIFY_SMALL_FIELD_H
#define TESTS_GRAPH_VERIFY_SMALL_FIELD_H

extern int small_field_bits, small_field_elements;

#define FIELD_BITS small_field_bits
#define FIELD_ELEMENTS small_field_elements

#endif
