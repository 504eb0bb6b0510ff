/* actors/session/weights.c: see the header. */
#include "actors/session/weights.h"

#include <stdlib.h>
#include <string.h>

#include "actors/keep/mapping.h"
#include "actors/session/session.h"
#include "graph/base/error.h"

/* The plan's mapped parameters are counted; *first is the first of them. */
static uint32_t count_mapped(const weir_plan *plan, const plan_param **first)
{
    uint32_t count = 0;
    for (uint32_t p = plan->params_count; p-- > 0;)
        if (plan_is_mapped(plan, &plan->params[p])) {
            *first = &plan->params[p];
            count++;
        }
    return count;
}

/* Whether a file is given exactly if there is something to map. */
static weir_status check_given(const weir_plan *plan, const weir_session_opts *opts, bool *maps)
{
    const plan_param *first = NULL;
    const uint32_t count = count_mapped(plan, &first);
    char more[48] = "";
    *maps = count;
    if (!count == !opts->weights)
        return WEIR_OK;
    if (!count)
        return error_set(WEIR_E_ARGUMENT, "%s:%d: weir_session_open: .weights is \"%s\", but no parameter of the plan is .mapped; "
                         "weir_session_load() reads a file", opts->src.file, opts->src.line, opts->weights);
    if (count > 1)
        snprintf(more, sizeof(more), " and %u more", count - 1);
    return error_set(WEIR_E_ARGUMENT, "%s:%d: weir_session_open: '%s'%s %s mapped, so .weights must be the file that has %s",
                     opts->src.file, opts->src.line, plan_text(plan, first->name), more, count > 1 ? "are" : "is",
                     count > 1 ? "them" : "it");
}

static weir_status place_shard(struct weir_session *s, const plan_param *param, const plan_tensor *shard)
{
    const weir_view view = built_type_view(shard);
    struct keep_mapped wanted = {.name = plan_text(s->plan, param->name), .dtype = view.dtype, .whole = view.global,
                                 .part = view.shape};
    const void *data = NULL;
    memcpy(wanted.start, view.offset, sizeof(wanted.start));
    weir_status status = keep_mapping_find(s->weights.mapping, &wanted, &data);
    s->weights.places[shard->owner] = (char *)data; /* nobody writes a constant */
    return status;
}

static weir_status place_all(struct weir_session *s)
{
    weir_status status = WEIR_OK;
    for (uint32_t p = 0; !status && p < s->plan->params_count; p++) {
        const plan_param *param = &s->plan->params[p];
        for (uint32_t i = 0; !status && i < param->shards.count && plan_is_mapped(s->plan, param); i++)
            if (built_owns_tensor(&s->built, built_shard(&s->built, param, i)))
                status = place_shard(s, param, built_shard(&s->built, param, i));
    }
    return status;
}

weir_status session_open_weights(struct weir_session *s, const weir_session_opts *opts)
{
    bool maps;
    weir_status status = check_given(s->plan, opts, &maps);
    if (status || !maps)
        return status;
    s->weights.mapping = keep_mapping_open(opts->weights);
    if (!s->weights.mapping)
        return WEIR_E_IO;
    s->weights.places = calloc(s->plan->regsts_count + (size_t)1, sizeof(*s->weights.places));
    if (!s->weights.places)
        return error_set(WEIR_E_MEMORY, "no memory for the places of %u registers", s->plan->regsts_count);
    for (uint32_t i = 0; i < s->plan->spaces_count; i++)
        if (s->plan->spaces[i].kind == WEIR_MAPPED)
            s->built.arenas[i].places = s->weights.places;
    return place_all(s);
}

void session_close_weights(struct session_weights *weights)
{
    keep_mapping_close(weights->mapping);
    free(weights->places);
}
