/* graph/compile/sbp/teams.h: conversions among many devices go by levels, in teams.
 *
 * A conversion among n devices reads, at each of them, from all n: n x n ports. So where more than TEAM_MAX take part, the
 * mesh axis is seen as several, its *levels*, of at most TEAM_MAX devices each, and one level is converted after the
 * other; those that a device then reads from at a level are its *team*. 64 devices are 8 x 8, and 64 = 8 + 8 neighbours:
 *
 *     level 1   {0 .. 7} {8 .. 15} ... {56 .. 63}        teams of consecutive devices
 *     level 2   {0, 8, .. 56} {1, 9, .. 57} ...          one of each
 *
 *     P -> B    P.P > P.S > S.S > B.S > B      scattered within teams, then among them, and gathered the other way round
 *               P.P > P.B > B                  what is small is added up everywhere at once
 *     P -> S    P.P > P.S > S                  the first half
 *     S -> B    S > B.S > B                    the second: among teams first, while the parts are small
 *     S -> S'   S > S'.S > S'
 *
 * (Names of tensors show levels so: the outermost first.) A mesh with levels is a mesh like any other, of the same devices
 * in the same places, with more axes; between two layouts of it, or of it and the user's, one conversion is the box that it
 * always is. Dimensions are cut by the innermost level first, so that what a team has scattered is what its level of teams
 * adds up. Back on the user's mesh, where axes cut in their own order, a device's part may be one that another team made;
 * that is which devices the last conversion (of a gather the first) reads from, not how many.
 *
 * A sum's order is a part of the plan: terms of a team are added in device order, then the sums of teams, and so on. It is
 * the same for all ways to P -> S and P -> B of the same axes, and does not depend on where the plan runs. Up to TEAM_MAX
 * devices nothing goes by levels, unless hosts are to count (weir_compile(.per_host)): then a level does not cross from
 * within a host to others, however few there are.
 *
 * Levels come from the factors of n: as few as can be, and of those the smallest. A number with a prime factor beyond
 * TEAM_MAX has none that would do. There a conversion goes through a *core*, a mesh of the first devices of the axis, the
 * largest number of them that has levels:
 *
 *     P -> B on 13    P13 > P12 > P.P > P.S > S.S > B.S > B12 > B13
 *                     cpu:12 gives its terms to cpu:11, which adds them to its own; the twelve go by levels; cpu:12 copies
 *     P -> S, S -> B  P13 > P12 > .. > S12 > S13, S13 > S12 > .. > B12 > B13
 *
 * From a mesh to its core and back a layout stays what it is: a device of the core has its own terms, and with them those
 * of at most one that the core lacks, the one as many places behind as it lacks; parts are cut anew. So nobody reads from
 * more than a team, or from two or three for a part. The other axes stay. Several axes that need it, and hosts that do,
 * lose devices one after the other: a core may have a core. Where hosts count, each of them loses as many devices, or
 * whole hosts are left out. Where a tensor goes to another mesh it is summed up on its own, and gathered there if the two have the
 * same shape. The lower pass leaves out what nobody reads of it in the end; so a sum that one device reads becomes a tree.
 *
 * Without cores 521 devices are refused, for a conversion has at most 512 shards, and 257 have 12 times as many ports
 * (`weir bench scale --dp 257`: 312 thousand for 25 thousand, 1.1 s for 0.5 s).
 */
#ifndef GRAPH_COMPILE_SBP_TEAMS_H
#define GRAPH_COMPILE_SBP_TEAMS_H

#include "graph/compile/ir/ir.h"

enum { TEAM_MAX = 8 };

typedef struct teams teams;        /* the meshes with levels of one compilation, in its pool */

/* NULL: no memory; the pool knows. */
teams *teams_new(compile *c);

/* Where a tensor that is to lie as `sbp` on `mesh` goes first: the mesh, and in `through` how it lies there. NULL: it
 * can be converted at once. */
const weir_mesh *teams_through(teams *x, const ir_tensor *t, const weir_mesh *mesh, const weir_sbp *sbp,
                               weir_sbp through[MESH_AXES_MAX]);

/* The mesh that the source of a conversion is best seen on, and in `sbp` how it lies there: its own, or the destination's
 * where that has levels of axes of terms. Devices are in the same places of both. */
const weir_mesh *teams_view(const ir_tensor *from, const ir_tensor *to, weir_sbp sbp[MESH_AXES_MAX]);

/* Whether a conversion between the two is one from a mesh to its core: of the same layout, as there and back. */
bool teams_core_is(const weir_mesh *core, const weir_mesh *whole);

/* The coordinate, on the mesh that a core is one of, of the core's coordinate k on its axis, and the one of which it has
 * the terms besides; -1: none. */
int teams_core_term(const weir_mesh *core, int k, int *more);

/* The place there of the core's device `at`; and the core's of that mesh's device `at`, or of the one that has its terms
 * where it is left out. */
int teams_core_place(const weir_mesh *core, int at);
int teams_core_beside(const weir_mesh *core, int at);

/* The largest level of a mesh with levels. */
int teams_largest(const weir_mesh *mesh);

/* The factors that an axis of `n` devices becomes, innermost first; returns how many. */
int teams_levels(int n, int size[MESH_AXES_MAX]);

#endif
