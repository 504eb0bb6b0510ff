/* graph/compile/sbp/teams.h: conversions among many devices go by tiers, in teams.
 *
 * A conversion among n devices reads, at each of them, from all n: n x n ports. So where more than TEAM_MAX take part, the
 * mesh axis is seen as several, its *tiers*, of at most TEAM_MAX devices each, and one tier is converted after the
 * other; those that a device then reads from at a tier are its *team*. 64 devices are 8 x 8, and 64 = 8 + 8 neighbours:
 *
 *     tier 1   {0 .. 7} {8 .. 15} ... {56 .. 63}        teams of consecutive devices
 *     tier 2   {0, 8, .. 56} {1, 9, .. 57} ...          one of each
 *
 *     P -> B    P.P > P.S > S.S > B.S > B      scattered within teams, then among them, and gathered the other way round
 *               P.P > P.B > B                  what is small is added up everywhere at once
 *     P -> S    P.P > P.S > S                  the first half
 *     S -> B    S > B.S > B                    the second: among teams first, while the parts are small
 *     S -> S'   S > S'.S > S'
 *
 * (Names of tensors show tiers so: the outermost first.) A mesh with tiers is a mesh like any other, of the same devices
 * in the same places, with more axes; between two layouts of it, or of it and the user's, one conversion is the box that it
 * always is. The innermost tier cuts a dimension first, so that the next tier adds up exactly the parts that the teams have
 * scattered. Back on the user's mesh, where axes cut in their own order, a device's part may be one that another team made;
 * this changes from which devices the last conversion reads (of a gather the first), not from how many.
 *
 * A sum's order is a part of the plan: terms of a team are added in device order, then the sums of teams, and so on. It is
 * the same for all ways to P -> S and P -> B of the same axes, and does not depend on where the plan runs. Up to TEAM_MAX
 * devices nothing goes by tiers, unless hosts are to count (weir_compile(.per_host)): then a tier lies within a host or between
 * hosts, never both, with any number of devices.
 *
 * Tiers are factors of n: the fewest that are possible, and of those the choice with the smallest sum. A number with a prime
 * factor beyond TEAM_MAX has none that would do. There a conversion goes through a *core*, a mesh of the first devices of the
 * axis, the largest number of them that has tiers:
 *
 *     P -> B on 13    P13 > P12 > P.P > P.S > S.S > B.S > B12 > B13
 *                     cpu:12 gives its terms to cpu:11, which adds them to its own; the twelve go by tiers; cpu:12 copies
 *     P -> S, S -> B  P13 > P12 > .. > S12 > S13, S13 > S12 > .. > B12 > B13
 *
 * A conversion from a mesh to its core, or back, keeps the layout. If the core lacks n devices, a device of the core has its
 * own terms, and perhaps those of the left-out device n places behind it; parts are cut anew. So nobody reads from more than a
 * team, or from two or three for a part. The other axes stay. Several axes that need it, and hosts that do, lose devices one
 * after the other: a core may have a core. Where hosts count, each of them loses as many devices, or whole hosts are left out.
 * Where a tensor goes to another mesh it is summed up on its own, and gathered there if the two have the same shape. The lower
 * pass leaves out what nobody reads of it in the end; so a sum that one device reads becomes a tree.
 *
 * Without cores 521 devices are refused, for a conversion has at most 512 shards, and 257 have 12 times as many ports
 * (`weir bench scale --dp 257`: 312 thousand for 25 thousand, 1.1 s for 0.5 s).
 */
#ifndef GRAPH_COMPILE_SBP_TEAMS_H
#define GRAPH_COMPILE_SBP_TEAMS_H

#include "graph/compile/ir/ir.h"

enum { TEAM_MAX = 8 };

typedef struct teams teams;        /* the meshes with tiers of one compilation, in its pool */

/* NULL: no memory; the pool knows. */
teams *teams_new(compile *c);

/* Where a tensor that is to lie as `sbp` on `mesh` goes first: the mesh, and in `through` how it lies there. NULL: it
 * can be converted at once. */
const weir_mesh *teams_through(teams *x, const ir_tensor *t, const weir_mesh *mesh, const weir_sbp *sbp,
                               weir_sbp through[MESH_AXES_MAX]);

/* The mesh on which a conversion's source is described, and in `sbp` its layout there: the source's own mesh, or the
 * destination's if that one has tiers of axes that hold terms. Devices have the same places in both. */
const weir_mesh *teams_view(const ir_tensor *from, const ir_tensor *to, weir_sbp sbp[MESH_AXES_MAX]);

/* Whether `core` is the core of `whole`: a conversion between the two, either way, keeps the layout. */
bool teams_core_is(const weir_mesh *core, const weir_mesh *whole);

/* The coordinate on the whole mesh of the core's coordinate k. *more: the coordinate that the core leaves out and whose terms
 * it has too; -1: none. */
int teams_core_term(const weir_mesh *core, int k, int *more);

/* place: from a place on the core to the place on the whole mesh. beside: the other way; for a device that the core leaves out,
 * the place of the one that has its terms. */
int teams_core_place(const weir_mesh *core, int at);
int teams_core_beside(const weir_mesh *core, int at);

/* The largest tier of a mesh with tiers. */
int teams_largest(const weir_mesh *mesh);

/* The factors that an axis of `n` devices becomes, innermost first; returns how many. */
int teams_tiers(int n, int size[MESH_AXES_MAX]);

#endif
