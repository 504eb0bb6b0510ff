/* transport/mail/bus.c: see the header. One pointer per actor rather than a chain of lookups: the route is resolved
 * once, when the session opens. */
#include "transport/mail/bus.h"

#include <assert.h>
#include <stdlib.h>

#include "graph/base/error.h"

weir_status bus_open(struct bus *bus, uint32_t actor_count)
{
    *bus = (struct bus){.actor_count = actor_count};
    bus->ends = calloc(actor_count ? actor_count : 1, sizeof(*bus->ends));
    return bus->ends ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for the routes of %u actors", actor_count);
}

void bus_close(struct bus *bus)
{
    free(bus->ends);
    bus->ends = NULL;
}

void bus_attach(struct bus *bus, uint32_t actor, struct bus_end *end)
{
    assert(actor < bus->actor_count);
    assert(end && !bus->ends[actor]);
    bus->ends[actor] = end;
}
