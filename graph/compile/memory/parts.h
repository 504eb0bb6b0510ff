/* graph/compile/memory/parts.h: places the parts of one device's arena that may share bytes.
 *
 * Two parts may share bytes where graph/plan/lives/lives.h proves that they are never needed at the same time. place.h wants
 * to know that of every pair, so it takes a bounded number of parts. Where there are more, the largest are placed as
 * they are, and the others in *bundles*: parts of which lives begin and end close to each other. The parts of a bundle
 * are packed by themselves first, and the bundle is then one part that is needed whenever one of its own is.
 *
 *     parts      a  b  c  d   e f g h   i j k l
 *     placed     a  b  c  d  [ bundle ][ bundle ]      a bundle of e, f, g, h: where f dies before h is made, h lies there
 *
 * A bundle spans more of a step the more parts there are, so bytes and cost grow slowly: there is no number of parts
 * from which on a part shares nothing.
 */
#ifndef GRAPH_COMPILE_MEMORY_PARTS_H
#define GRAPH_COMPILE_MEMORY_PARTS_H

#include "graph/compile/memory/place_same.h"
#include "graph/compile/memory/windows.h"

typedef struct parts {
    const offsets *of;             /* borrowed */
    place_same *same;              /* borrowed */
    int device;
    block **part;                  /* borrowed; guests come with their hosts (windows.h) and are not listed */
    int count;
    uint64_t height;               /* set: the bytes that they take */
} parts;

/* Sets the offset of each part, from 0 on. False: no memory. */
bool parts_place(parts *p);

/* How many are placed at the most: a compilation's, and one that is hasty. Tests change them. */
extern int parts_max, parts_max_hasty;

#endif
