/* graph/time/change.c: see the header. */
#include "graph/time/change.h"

#include "graph/base/error.h"
#include "graph/base/units.h"
#include "graph/time/launch.h"
#include "graph/time/rates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SPEED_MOST 1e15 /* a billion times as fast */

/* A text that is being read. */
typedef struct reading {
    changes *c;
    const weir_plan *plan;
    const char *call, *text; /* for the sentence */
    char name[256];          /* between the brackets; "" without */
    const char *value;
} reading;

static weir_status wrong(const reading *r, const char *why)
{
    return error_set(WEIR_E_ARGUMENT, "%s: cannot set \"%s\": %s", r->call, r->text, why);
}

static bool whole(const reading *r, uint32_t *value)
{
    double number;
    const char *at = r->value;
    if (!number_take(&at, &number) || *at || number < 1 || number > 1 << 20)
        return false;
    *value = (uint32_t)number;
    return (double)*value == number;
}

static bool holds(const weir_plan *plan, uint32_t regst, const char *name)
{
    const plan_range *tensors = &plan->regsts[regst].tensors;
    for (uint32_t t = tensors->first; t < tensors->first + tensors->count; t++)
        if (!strcmp(plan_text(plan, plan->tensors[t].name), name))
            return true;
    return false;
}

static weir_status set_slots(reading *r)
{
    uint32_t slots = 0, found = 0;
    if (!whole(r, &slots))
        return wrong(r, "slots are a whole number from 1 on");
    for (uint32_t i = 0; i < r->plan->regsts_count; i++) {
        if (!holds(r->plan, i, r->name))
            continue;
        if (slots < r->plan->regsts[i].initial)
            return wrong(r, "the register begins with more values than that");
        r->c->slots[i] = slots;
        found++;
    }
    return found ? WEIR_OK : wrong(r, "no register of the plan holds a tensor of that name; weir show lists them");
}

/* A device's name is that of kernels which it computes: copies and collectives of an accelerator have only their own. */
static bool is_called(const weir_plan *plan, uint32_t kernel, const char *name)
{
    const plan_kernel *of = &plan->kernels[kernel];
    const uint32_t queue = plan->actors[of->actor.i].queue.i;
    const plan_str names[] = {plan->actors[of->actor.i].name, of->op, of->name, plan->spaces[plan->queues[queue].space.i].name};
    const bool computes = plan->queues[queue].kind == PLAN_COMPUTE || !launches_device_queue(plan, queue);
    for (size_t i = 0; i < sizeof names / sizeof *names - !computes; i++)
        if (!strcmp(plan_text(plan, names[i]), name))
            return true;
    return false;
}

static void multiply(uint64_t *speed, double by)
{
    *speed = (uint64_t)fmin(fmax((double)*speed * by + 0.5, 1), SPEED_MOST);
}

static weir_status set_speed(reading *r)
{
    double speed;
    const char *at = r->value;
    bool found = false;
    if (!number_take(&at, &speed) || *at || speed < 0.001 || speed > 1000)
        return wrong(r, "a speed is a number from 0.001 to 1000, and 1 is as it is");
    for (uint32_t k = 0; k < r->plan->kernels_count; k++)
        if (is_called(r->plan, k, r->name)) {
            multiply(&r->c->speed[k], speed);
            found = true;
        }
    return found ? WEIR_OK : wrong(r, "the plan has no device, actor, op or kernel of that name; weir show lists actors");
}

static weir_status set_workers(reading *r)
{
    double rank;
    const char *at = r->name;
    uint32_t workers;
    if (!number_take(&at, &rank) || *at || rank >= r->plan->ranks || rank != (double)(uint32_t)rank)
        return wrong(r, "the plan has no rank of that number");
    if (!whole(r, &workers))
        return wrong(r, "workers are a whole number from 1 on");
    r->c->workers[(uint32_t)rank] = workers;
    return WEIR_OK;
}

static weir_status set_bandwidth(reading *r)
{
    double bits;
    const char *at = r->value;
    if (!rate_take(&at, &bits) || *at || bits < 1 || bits > 1e15)
        return wrong(r, "a bandwidth is as 10Gbit: bit, kbit, Mbit, Gbit or Tbit a second");
    r->c->bits_s = (uint64_t)bits;
    return WEIR_OK;
}

static weir_status set_latency(reading *r)
{
    double seconds;
    const char *at = r->value;
    if (!time_take(&at, &seconds) || *at || seconds > 1000)
        return wrong(r, "a latency is as 200us: us, ms or s");
    r->c->latency_ps = (uint64_t)(seconds * TIME_PS_S + 0.5);
    r->c->has_latency = true;
    return WEIR_OK;
}

/* Takes the text apart: KEY=VALUE or KEY(NAME)=VALUE. False: it is neither. */
static bool split(reading *r, const char *key, bool named)
{
    const size_t bytes = strlen(key);
    const char *at = r->text + bytes;
    if (strncmp(r->text, key, bytes) || *at != (named ? '(' : '='))
        return false;
    if (named) {
        const char *end = strstr(at, ")=");
        if (!end || (size_t)(end - at) > sizeof r->name)
            return false;
        memcpy(r->name, at + 1, (size_t)(end - at) - 1);
        r->name[end - at - 1] = '\0';
        at = end + 1;
    }
    r->value = at + 1;
    return true;
}

static weir_status change(reading *r)
{
    static const struct {
        const char *key;
        bool named;
        weir_status (*set)(reading *r);
    } keys[] = {{"bandwidth", false, set_bandwidth}, {"latency", false, set_latency}, {"slots", true, set_slots},
                {"speed", true, set_speed}, {"workers", true, set_workers}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (split(r, keys[i].key, keys[i].named))
            return keys[i].set(r);
    return wrong(r, "it is none of bandwidth=, latency=, slots(NAME)=, speed(NAME)= and workers(RANK)=");
}

weir_status changes_read(changes *c, const weir_plan *plan, const char *const *texts, const char *call)
{
    *c = (changes){.slots = malloc((plan->regsts_count + (size_t)1) * sizeof *c->slots),
                   .speed = malloc((plan->kernels_count + (size_t)1) * sizeof *c->speed),
                   .workers = calloc(plan->ranks + (size_t)1, sizeof *c->workers)};
    weir_status status = c->slots && c->speed && c->workers ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for changes of %u registers and %u kernels", plan->regsts_count,
                                                                                       plan->kernels_count);
    for (uint32_t i = 0; !status && i < plan->regsts_count; i++)
        c->slots[i] = plan->regsts[i].slots;
    for (uint32_t i = 0; !status && i < plan->kernels_count; i++)
        c->speed[i] = CHANGE_SPEED;
    for (; texts && *texts && !status; texts++) {
        reading r = {.c = c, .plan = plan, .call = call, .text = *texts};
        status = change(&r);
    }
    if (status)
        changes_free(c);
    return status;
}

void changes_free(changes *c)
{
    free(c->slots);
    free(c->speed);
    free(c->workers);
    *c = (changes){0};
}
