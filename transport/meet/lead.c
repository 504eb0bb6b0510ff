/* transport/meet/lead.c: rank 0's side. Three phases, each with its end:
 *
 *     gathering    until all have come: -> welcoming; until one differs, or the time is over: -> refusing
 *     welcoming    until all have said that they have everything, or nobody has moved for some seconds
 *     refusing     until all have said that they know why, those that come late, too; or two seconds are over
 *
 * A JOIN for a session of another name waits: rank 0 meets for one at a time at its port, and whichever of its threads
 * binds it first goes first. Those meet in turn whose ranks have all come; one whose ranks do not come lets go of the
 * port for a moment when others ask, and all that had come join again.
 *
 * Ranks that were started anew are of the next generation. A JOIN of an older one is a process that has outlived its
 * time: refused by itself. One of a newer one says that rank 0 has: it gives up, with all that have come to it, and the
 * newer one waits for the rank 0 of its own generation, which comes to the same port.
 *
 * A JOIN that does not belong here (another version, another size, a rank that is taken) is an unknown peer's: it is
 * refused by itself, reported, and the others go on waiting. One that belongs here but has another plan ends it for
 * all, since waiting would not help. When a rank is lost after it came, the time tells; its session will find out soon
 * enough.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "graph/base/text.h"
#include "transport/meet/inside.h"
#include "transport/meet/ops.h"
#include "transport/mail/version.h"

enum {
    WELCOME_S = 5,  /* without a word from anybody */
    REFUSE_S = 2,
    YIELD_S = 1,
    YIELD_LAST_S = 3,
    LISTED_MAX = 12 /* ranks that a text names */
};

static const int64_t second_ns = 1000000000;

/* Cards are compared as bytes. */
_Static_assert(sizeof(struct member) == 432 + 4 * 4 + 2 * 8, "a card without gaps");

enum phase { GATHERING, WELCOMING, REFUSING };

struct seat {
    bool came, done; /* done: has said thanks, for the welcome or the refusal */
    uint32_t id_bytes;
    unsigned char id[256];
};

struct leader {
    struct meeting *meeting;
    const struct cluster_env *env;
    struct member *members; /* borrowed */
    struct seat *seats;     /* owned, one a rank; 0 is ours */
    uint32_t came, done;    /* counts of them */
    enum phase phase;
    int64_t until_ns;       /* of the phase */
    uint32_t asked;         /* rank whose ops are being fetched; 0: none */
    struct meet_plan their_plan;
    struct op_list ours, theirs;
    weir_status refusal;    /* and why, once refusing */
    char why[MEET_TEXT_MAX + 1];
    bool over;             /* the ranks have been started anew: whoever did not come does not come any more */
    char refused[512];     /* the last that was refused; "" */
    char other[192];       /* who came last for another session; "" */
    int64_t moved_ns;      /* when it began, or the last rank came */
    int64_t reported_ns;
    uint64_t left_out;
};

/* ---- unknown peers ---- */

__attribute__((format(printf, 3, 4))) static void report_unknown(struct leader *l, bool refuse, const char *format, ...)
{
    char others[64] = "";
    struct meeting *meeting = l->meeting;
    va_list args;
    va_start(args, format);
    text_vprint(l->refused, sizeof l->refused, format, args);
    va_end(args);
    if (refuse) {
        meeting->out = (struct meet_frame){.kind = MEET_REFUSE};
        meeting->out.refuse.status = WEIR_E_PEER;
        snprintf(meeting->out.refuse.text, sizeof meeting->out.refuse.text, "rank 0 refuses: %s", l->refused);
        meet_send(meeting, meeting->id, meeting->id_bytes, NULL, 0);
    }
    int64_t now = meet_now_ns();
    if (l->reported_ns && now - l->reported_ns < second_ns) {
        l->left_out++;
        return;
    }
    if (l->left_out)
        snprintf(others, sizeof others, " (and %" PRIu64 " more since the last report)", l->left_out);
    report_say(meeting->meet->report, "rank 0 refused a peer at %s that wants to join: %s%s", meeting->from,
               l->refused, others);
    l->reported_ns = now;
    l->left_out = 0;
}

/* ---- who is here, in words ---- */

/* "rank 1 (node2, pid 314), rank 3 (...)" of those that came, or "rank 2, rank 4" of those that did not. */
static void add_ranks(struct text *words, const struct leader *l, bool came)
{
    uint32_t listed = 0, left_out = 0;
    for (uint32_t r = 0; r < l->env->size; r++) {
        if (l->seats[r].came != came || (listed == LISTED_MAX && ++left_out))
            continue;
        text_add(words, listed++ ? ", rank %u" : "rank %u", r);
        if (came)
            text_add(words, " (%s, pid %u)", l->members[r].name, l->members[r].pid);
    }
    if (left_out)
        text_add(words, " and %u more", left_out);
}

static void missing_text(const struct leader *l, char *text, size_t bytes)
{
    struct text words = {.bytes = text, .room = bytes};
    text_add(&words, "%u of %u ranks have not come to rank 0 at %s, port %u: ", l->env->size - l->came, l->env->size,
             l->env->address, l->env->port);
    add_ranks(&words, l, false);
    text_add(&words, "; here are ");
    add_ranks(&words, l, true);
    if (l->other[0])
        text_add(&words, "; %s", l->other);
    if (l->refused[0])
        text_add(&words, "; refused: %s", l->refused);
}

/* ---- phases ---- */

static void send_refusal(struct leader *l, uint32_t rank)
{
    struct seat *seat = &l->seats[rank];
    struct meet_frame *out = &l->meeting->out;
    *out = (struct meet_frame){.kind = MEET_REFUSE};
    out->refuse.status = l->refusal;
    memcpy(out->refuse.text, l->why, sizeof out->refuse.text);
    meet_send(l->meeting, seat->id, seat->id_bytes, NULL, 0);
}

/* `why` is complete. */
static void refuse_all(struct leader *l, weir_status status)
{
    l->phase = REFUSING;
    l->refusal = status;
    l->until_ns = meet_now_ns() + REFUSE_S * second_ns;
    for (uint32_t r = 1; r < l->env->size; r++)
        if (l->seats[r].came)
            send_refusal(l, r);
}

static void send_cards(struct leader *l, uint32_t rank)
{
    struct seat *seat = &l->seats[rank];
    struct meet_frame *out = &l->meeting->out;
    for (uint32_t first = 0; first < l->env->size; first += MEET_ITEMS_MAX) {
        uint32_t left = l->env->size - first;
        *out = (struct meet_frame){.kind = MEET_WELCOME};
        out->welcome.session = l->meeting->meet->session;
        out->welcome.first = first;
        out->welcome.total = l->env->size;
        out->welcome.count = left < MEET_ITEMS_MAX ? left : MEET_ITEMS_MAX;
        memcpy(out->welcome.card, l->members + first, out->welcome.count * sizeof(struct member));
        meet_send(l->meeting, seat->id, seat->id_bytes, NULL, 0);
    }
}

static weir_status send_part(struct leader *l, uint32_t rank, uint64_t offset)
{
    const void *bytes = NULL;
    size_t count = 0;
    struct meet_frame *out = &l->meeting->out;
    weir_status status = l->meeting->part(l->meeting->part_ctx, rank, &bytes, &count);
    if (status != WEIR_OK || offset >= count)
        return status;
    size_t left = count - offset;
    *out = (struct meet_frame){.kind = MEET_PART};
    out->part.offset = offset;
    out->part.total = count;
    meet_send(l->meeting, l->seats[rank].id, l->seats[rank].id_bytes, (const char *)bytes + offset,
              left < MEET_PART_BYTES ? left : MEET_PART_BYTES);
    return WEIR_OK;
}

static weir_status welcome(struct leader *l, uint32_t rank)
{
    if (l->meeting->purpose == MEET_FOR_PART)
        return send_part(l, rank, 0);
    send_cards(l, rank);
    return WEIR_OK;
}

static weir_status welcome_all(struct leader *l)
{
    weir_status status = WEIR_OK;
    l->phase = WELCOMING;
    l->until_ns = meet_now_ns() + WELCOME_S * second_ns;
    for (uint32_t r = 1; r < l->env->size && status == WEIR_OK; r++)
        status = welcome(l, r);
    return status;
}

/* ---- JOIN ---- */

/* Why a JOIN is none of this session's; false: it is one. */
static bool is_unknown(struct leader *l)
{
    const struct meet_frame *in = &l->meeting->in;
    const uint32_t rank = in->join.rank;
    if (in->version != WIRE_VERSION)
        report_unknown(l, true, "it speaks version %u, rank 0 speaks %d", in->version, WIRE_VERSION);
    else if (in->join.plan_version != PLAN_VERSION)
        report_unknown(l, true, "its plans are of version %u, rank 0's of %d", in->join.plan_version, PLAN_VERSION);
    else if (in->join.generation < l->env->generation)
        report_unknown(l, true, "rank %u (%s, pid %u) is of generation %u, which is over: rank 0 is of generation %u",
                       rank, in->join.card.name, in->join.card.pid, in->join.generation, l->env->generation);
    else if (in->join.size != l->env->size)
        report_unknown(l, true, "it says that there are %u ranks, rank 0 that there are %u", in->join.size,
                       l->env->size);
    else if (!rank || rank >= l->env->size)
        report_unknown(l, true, "it says that it is rank %u of %u", rank, l->env->size);
    else if (l->seats[rank].came && memcmp(&l->members[rank], &in->join.card, sizeof(struct member)) != 0)
        report_unknown(l, true, "rank %u is here already (%s, pid %u), and %s, pid %u, says that it is rank %u, too",
                       rank, l->members[rank].name, l->members[rank].pid, in->join.card.name, in->join.card.pid, rank);
    else
        return false;
    return true;
}

/* The lower of two levels; NULL: another build's is among them. */
static const char *lower_level(const struct cluster_env *env, const char *one, const char *other)
{
    const char *lower = NULL;
    int found = 0;
    for (const char *const *level = env->levels; level && *level; level++) {
        if (strcmp(*level, one) != 0 && strcmp(*level, other) != 0)
            continue;
        lower = lower ? lower : *level;
        found++;
    }
    return found == 2 ? lower : NULL;
}

/* Whether the kernels round differently, and what to do about it. */
static bool differs_in_level(struct leader *l)
{
    const struct meet_frame *in = &l->meeting->in;
    const struct member *here = &l->members[0], *card = &in->join.card;
    const char *ours = l->env->level ? l->env->level : "", *theirs = in->join.level;
    if (l->meeting->purpose != MEET_FOR_SESSION || !strcmp(ours, theirs))
        return false;
    struct text why = {.bytes = l->why, .room = sizeof l->why};
    const char *lower = lower_level(l->env, ours, theirs);
    text_add(&why, "rank %u (%s, pid %u) has kernels of level %s, rank 0 (%s, pid %u) of level %s, and these round "
             "differently: ", in->join.rank, card->name, card->pid, theirs, here->name, here->pid, ours);
    if (lower)
        text_add(&why, "set WEIR_CPU_LEVEL=%s on all ranks", lower);
    else
        text_add(&why, "no build has both; all ranks need the same one, made with PORTABLE=1 if their processors differ, "
                 "and the same WEIR_CPU_LEVEL");
    return true;
}

/* Whether it may use other carriers. */
static bool differs_in_carriers(struct leader *l)
{
    const struct meet_frame *in = &l->meeting->in;
    const struct member *here = &l->members[0], *card = &in->join.card;
    char ours[CLUSTER_CARRIERS_BYTES];
    cluster_carriers_text(l->env->carriers, ours);
    if (l->meeting->purpose != MEET_FOR_SESSION || !strcmp(ours, in->join.carriers))
        return false;
    snprintf(l->why, sizeof l->why, "rank %u (%s, pid %u) may use the carriers %s, rank 0 (%s, pid %u) %s: WEIR_CARRIER must "
             "list the same on all ranks", in->join.rank, card->name, card->pid, in->join.carriers, here->name, here->pid,
             ours);
    return true;
}

/* The reasons that can be seen without the ops. False: no difference. */
static bool differs_plainly(struct leader *l)
{
    const struct meet_frame *in = &l->meeting->in;
    const struct meeting *meeting = l->meeting;
    uint32_t rank = in->join.rank, ours = l->members[0].devices, theirs = in->join.card.devices;
    size_t bytes = sizeof l->why;
    if (in->join.purpose != (uint32_t)meeting->purpose)
        snprintf(l->why, bytes, "rank %u wants %s, rank 0 %s: they are not at the same call", rank,
                 in->join.purpose == MEET_FOR_PART ? "a part of a plan" : "to open a session",
                 meeting->purpose == MEET_FOR_PART ? "gives out the parts of a plan" : "opens a session");
    else if (theirs != ours && meeting->purpose == MEET_FOR_SESSION)
        snprintf(l->why, bytes, "rank %u has %u devices, rank 0 has %u: WEIR_DEVICES must be the same on all ranks", rank,
                 theirs, ours);
    else if (in->join.plan.hash && !meeting->plan.hash)
        snprintf(l->why, bytes, "rank %u has a plan, rank 0 has none", rank);
    else
        return differs_in_level(l) || differs_in_carriers(l);
    return true;
}

/* Whether the JOIN shows that the ranks have been started anew since: then this rank 0 and whoever came to it end, and
 * who said it waits for another rank 0. */
static bool ends_generation(struct leader *l)
{
    const struct meet_frame *in = &l->meeting->in;
    struct meet_frame *out = &l->meeting->out;
    bool good = in->version == WIRE_VERSION && in->join.rank && in->join.rank < in->join.size;
    if (!good || in->join.generation <= l->env->generation)
        return false;
    *out = (struct meet_frame){.kind = MEET_WAIT};
    snprintf(out->wait.text, sizeof out->wait.text, "the rank 0 that answers is of generation %u, which is over",
             l->env->generation);
    meet_send(l->meeting, l->meeting->id, l->meeting->id_bytes, NULL, 0);
    if (l->phase == REFUSING)
        return true;
    snprintf(l->why, sizeof l->why, "generation %u of the ranks is over: rank %u (%s, pid %u) is of generation %u",
             l->env->generation, in->join.rank, in->join.card.name, in->join.card.pid, in->join.generation);
    l->over = true;
    refuse_all(l, WEIR_E_PEER);
    return true;
}

/* Whether the process that the rank came from has another card now. */
static bool is_second(const struct leader *l)
{
    const struct meet_frame *in = &l->meeting->in;
    const struct member *card = &in->join.card;
    uint32_t rank = in->join.rank;
    if (!rank || rank >= l->env->size || !l->seats[rank].came)
        return false;
    const struct member *here = &l->members[rank];
    return here->pid == card->pid && !strcmp(here->host, card->host) && memcmp(here, card, sizeof *card) != 0;
}

/* A rank for a later call waits until rank 0 comes to that; so does a second session of this name of the same process. */
static bool is_for_another(struct leader *l)
{
    const struct meet_frame *in = &l->meeting->in;
    struct meet_frame *out = &l->meeting->out;
    bool other = strcmp(in->join.name, l->meeting->name) != 0, again = !other && is_second(l);
    bool current = in->version == WIRE_VERSION && in->join.generation == l->env->generation;
    if (!current || (!other && !again))
        return false;
    if (other)
        snprintf(l->other, sizeof l->other, "rank 0 met for '%.63s', rank %u wants '%.63s'", l->meeting->name,
                 in->join.rank, in->join.name);
    *out = (struct meet_frame){.kind = MEET_WAIT};
    snprintf(out->wait.text, sizeof out->wait.text, "%s",
             other ? l->other : "another session of this process meets under the same name");
    meet_send(l->meeting, l->meeting->id, l->meeting->id_bytes, NULL, 0);
    return true;
}

static void ask(struct leader *l, uint32_t rank)
{
    const struct seat *seat = &l->seats[rank];
    l->meeting->out = (struct meet_frame){.kind = MEET_ASK};
    l->meeting->out.ask.first = l->theirs.count;
    meet_send(l->meeting, seat->id, seat->id_bytes, NULL, 0);
}

static void compare(struct leader *l, uint32_t rank)
{
    const struct meet_plan *plan = &l->meeting->in.join.plan;
    if (differs_plainly(l)) {
        refuse_all(l, WEIR_E_PEER);
    } else if (plan->hash && plan->hash != l->meeting->plan.hash && (!l->asked || l->asked == rank)) {
        l->asked = rank;
        l->their_plan = *plan;
        ask(l, rank);
    }
}

static void send_wait(struct leader *l, uint32_t rank)
{
    struct meet_frame *out = &l->meeting->out;
    *out = (struct meet_frame){.kind = MEET_WAIT};
    missing_text(l, out->wait.text, sizeof out->wait.text);
    meet_send(l->meeting, l->seats[rank].id, l->seats[rank].id_bytes, NULL, 0);
}

static void take_seat(struct leader *l, uint32_t rank)
{
    struct seat *seat = &l->seats[rank];
    memcpy(seat->id, l->meeting->id, sizeof seat->id);
    seat->id_bytes = (uint32_t)l->meeting->id_bytes;
    if (seat->came)
        return;
    seat->came = true;
    l->came++;
    l->moved_ns = meet_now_ns();
    l->members[rank] = l->meeting->in.join.card;
}

static weir_status take_join(struct leader *l)
{
    uint32_t rank = l->meeting->in.join.rank;
    if (ends_generation(l) || is_for_another(l) || is_unknown(l))
        return WEIR_OK;
    take_seat(l, rank);
    if (l->phase == GATHERING)
        compare(l, rank);
    if (l->phase == WELCOMING)
        return welcome(l, rank);
    if (l->phase == REFUSING)
        send_refusal(l, rank);
    else if (l->came == l->env->size && !l->asked)
        return welcome_all(l);
    else if (l->asked != rank)
        send_wait(l, rank);
    return WEIR_OK;
}

/* ---- other frames ---- */

/* The seat of who sent the frame; 0: nobody's. */
static uint32_t sender(const struct leader *l)
{
    const struct meeting *meeting = l->meeting;
    for (uint32_t r = 1; r < l->env->size; r++)
        if (l->seats[r].came && l->seats[r].id_bytes == meeting->id_bytes &&
            !memcmp(l->seats[r].id, meeting->id, meeting->id_bytes))
            return r;
    return 0;
}

static weir_status take_ops(struct leader *l, uint32_t rank)
{
    const struct meet_frame *in = &l->meeting->in;
    if (l->phase != GATHERING || rank != l->asked || in->ops.first != l->theirs.count)
        return WEIR_OK;
    weir_status status = op_list_add(&l->theirs, in->ops.op, in->ops.count);
    if (status == WEIR_OK && l->theirs.count < in->ops.total && in->ops.count) {
        ask(l, rank);
        return WEIR_OK;
    }
    if (status == WEIR_OK)
        status = op_list_of(l->meeting->meet->plan, &l->ours);
    if (status != WEIR_OK)
        return status;
    difference_text(&l->ours, &l->meeting->plan, &l->theirs, &l->their_plan, rank, l->why);
    refuse_all(l, WEIR_E_PEER);
    return WEIR_OK;
}

static void take_thanks(struct leader *l, uint32_t rank)
{
    if (l->phase == GATHERING)
        return;
    l->done += !l->seats[rank].done;
    l->seats[rank].done = true;
    if (l->phase == WELCOMING)
        l->until_ns = meet_now_ns() + WELCOME_S * second_ns;
}

static weir_status take_want(struct leader *l, uint32_t rank)
{
    if (l->phase != WELCOMING || l->meeting->purpose != MEET_FOR_PART)
        return WEIR_OK;
    l->until_ns = meet_now_ns() + WELCOME_S * second_ns;
    return send_part(l, rank, l->meeting->in.want.offset);
}

static weir_status take_frame(struct leader *l)
{
    const struct meet_frame *in = &l->meeting->in;
    if (in->kind == MEET_JOIN)
        return take_join(l);
    uint32_t rank = in->version == WIRE_VERSION ? sender(l) : 0;
    if (rank && in->kind == MEET_OPS)
        return take_ops(l, rank);
    if (rank && in->kind == MEET_THANKS)
        take_thanks(l, rank);
    else if (rank && in->kind == MEET_WANT)
        return take_want(l, rank);
    else
        report_unknown(l, false, "it sends what nobody asked for (kind %u, version %u)", in->kind, in->version);
    return WEIR_OK;
}

/* As much as is there, but not for ever: who floods the port does not stop the clock. */
static weir_status take_some(struct leader *l)
{
    weir_status status = WEIR_OK;
    for (int taken = 0; taken < 256 && status == WEIR_OK; taken++) {
        enum meet_got got = meet_receive(l->meeting);
        if (got == MEET_NOTHING)
            break;
        if (got == MEET_FRAME)
            status = take_frame(l);
        else
            report_unknown(l, false, "%s", weir_error());
    }
    return status;
}

/* ---- the meeting ---- */

/* Whom rank 0 still waits for when it gives up. */
static uint32_t waited_for(const struct leader *l)
{
    return l->over || l->refusal == WEIR_E_TIMEOUT ? l->came - 1 : l->env->size - 1;
}

static void give_up(struct leader *l)
{
    if (l->asked)
        snprintf(l->why, sizeof l->why, "rank %u's graph is not rank 0's, and it did not say in what", l->asked);
    else
        missing_text(l, l->why, sizeof l->why);
    refuse_all(l, l->asked ? WEIR_E_PEER : WEIR_E_TIMEOUT);
}

/* Ranks that come for another session, while none of this one do, may have to be met first. Not when the time is nearly
 * over: what is to be said then is who has come, and who came for what else. */
static bool should_yield(const struct leader *l)
{
    int64_t now = meet_now_ns();
    return l->phase == GATHERING && l->other[0] && !l->asked && now - l->moved_ns > YIELD_S * second_ns &&
           l->until_ns - now > YIELD_LAST_S * second_ns;
}

static weir_status gather(struct leader *l)
{
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && (l->phase == GATHERING || l->done < waited_for(l))) {
        if (should_yield(l)) {
            l->meeting->yields = true;
            break;
        }
        if (meet_now_ns() >= l->until_ns) {
            if (l->phase != GATHERING)
                break;
            give_up(l);
        }
        status = meet_wait(l->meeting, l->until_ns);
        if (status == WEIR_OK)
            status = take_some(l);
    }
    return status;
}

static weir_status gather_or_say(struct leader *l)
{
    weir_status status = gather(l);
    if (status == WEIR_OK)
        return l->phase == REFUSING ? error_set(l->refusal, "%s", l->why) : WEIR_OK;
    if (l->phase != REFUSING) {
        snprintf(l->why, sizeof l->why, "rank 0 failed: %s", weir_error());
        refuse_all(l, WEIR_E_PEER);
    }
    return status;
}

weir_status meet_lead(struct meeting *meeting)
{
    const struct cluster_env *env = meeting->meet->env;
    struct leader *l = calloc(1, sizeof *l);
    struct seat *seats = calloc(env->size, sizeof *seats);
    weir_status status;
    if (l && seats) {
        seats[0].came = true;
        *l = (struct leader){.meeting = meeting,
                             .env = env,
                             .members = meeting->meet->members,
                             .seats = seats,
                             .came = 1,
                             .moved_ns = meet_now_ns(),
                             .until_ns = meeting->deadline_ns};
        status = gather_or_say(l);
        op_list_free(&l->ours);
        op_list_free(&l->theirs);
    } else {
        status = error_set(WEIR_E_MEMORY, "no memory to meet %u ranks", env->size);
    }
    free(seats);
    free(l);
    return status;
}
