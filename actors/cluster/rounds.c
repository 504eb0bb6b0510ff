/* actors/cluster/rounds.c: what all ranks do together at rest. See cluster.h.
 *
 * How many marks and shards have come of this round and the next is counted as they come, so that nothing is looked for
 * among all ranks; the session's thread is woken when the round may be over.
 */
#define _GNU_SOURCE
#include "actors/cluster/cluster.h"

#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"
#include "transport/mail/park.h"

#define ASK_NS INT64_C(1000000000) /* between questions to those who do not come */

/* The words of a rank that waits in a round. */
struct question {
    uint64_t about, run; /* what the round is for; how many runs it has begun */
};

weir_status rounds_open(struct rounds *rounds, uint32_t ranks)
{
    pthread_mutex_init(&rounds->lock, NULL);
    rounds->marked = calloc(ranks, sizeof(*rounds->marked));
    rounds->about = calloc(ranks, sizeof(*rounds->about));
    rounds->notes[0] = calloc(ranks, sizeof(*rounds->notes[0]));
    rounds->notes[1] = calloc(ranks, sizeof(*rounds->notes[1]));
    bool ok = rounds->marked && rounds->about && rounds->notes[0] && rounds->notes[1];
    return ok ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for %u ranks", ranks);
}

void rounds_close(struct rounds *rounds)
{
    for (struct arrival *next, *arrival = rounds->arrivals; arrival; arrival = next) {
        next = arrival->next;
        free(arrival);
    }
    free(rounds->marked);
    free(rounds->about);
    free(rounds->notes[0]);
    free(rounds->notes[1]);
    pthread_mutex_destroy(&rounds->lock);
}

#define X(name, text) +1
enum { STATUSES = 0 WEIR_STATUS_LIST(X) };
#undef X

static uint64_t run_number(struct cluster *c)
{
    pthread_mutex_lock(&c->owner->ending->lock);
    uint64_t number = c->owner->run->number;
    pthread_mutex_unlock(&c->owner->ending->lock);
    return number;
}

/* ---- what it is for ---- */

static uint64_t about_of(enum round_kind kind, uint32_t which)
{
    return (uint64_t)kind << 32 | which;
}

static void about_text(const struct cluster *c, uint64_t about, char *text, size_t bytes)
{
    static const char *const verbs[ROUND_KINDS] = {[ROUND_OPEN] = "opens the session",
                                                   [ROUND_READ] = "reads",
                                                   [ROUND_WRITE] = "writes",
                                                   [ROUND_SAVE] = "saves a checkpoint",
                                                   [ROUND_LOAD] = "loads a checkpoint",
                                                   [ROUND_RUN] = "runs"};
    const weir_plan *plan = c->plan;
    uint32_t kind = (uint32_t)(about >> 32), which = (uint32_t)about;
    bool named = kind == ROUND_READ || kind == ROUND_WRITE;
    if (kind >= ROUND_KINDS || (named && which >= plan->params_count) ||
        (kind == ROUND_RUN && which >= plan->programs_count))
        snprintf(text, bytes, "does something else");
    else if (kind == ROUND_RUN)
        snprintf(text, bytes, "%s the program %.200s", verbs[kind], plan_text(plan, plan->programs[which].name));
    else if (!named)
        snprintf(text, bytes, "%s%s", verbs[kind], kind != ROUND_OPEN && which ? " in another way" : "");
    else
        snprintf(text, bytes, "%s %.200s", verbs[kind], plan_text(plan, plan->params[which].name));
}

static void about_differs(struct cluster *c, uint32_t rank, uint64_t about, uint64_t own)
{
    char theirs[256], mine[256];
    about_text(c, about, theirs, sizeof(theirs));
    about_text(c, own, mine, sizeof(mine));
    cluster_lost(c, rank, "rank %u %s while rank %u %s: all ranks make the same calls in the same order",
                      rank, theirs, c->env.rank, mine);
}

/* ---- what comes: by whoever is at the sockets ---- */

static const struct arrival *arrival_find(const struct rounds *rounds, uint32_t rank, uint32_t shard, uint64_t round)
{
    const struct arrival *arrival = rounds->arrivals;
    while (arrival && !(arrival->rank == rank && arrival->shard == shard && arrival->round == round))
        arrival = arrival->next;
    return arrival;
}

/* All that this rank waits for has come. With the lock held. */
static bool round_whole(const struct cluster *c, uint64_t round)
{
    const struct rounds *rounds = &c->rounds;
    uint32_t neighbours;
    net_neighbours(c->net, &neighbours);
    return rounds->marks[round & 1] == neighbours && rounds->values[round & 1] >= rounds->expected;
}

/* Behind what the round is for may come a note: a status, and a text without a zero byte. */
static bool note_take(struct round_note *note, const char *data, size_t bytes)
{
    *note = (struct round_note){.status = WEIR_OK};
    if (!bytes)
        return true;
    if (bytes < sizeof(note->status) || bytes >= sizeof(*note) ||
        memchr(data + sizeof(note->status), 0, bytes - sizeof(note->status)))
        return false;
    memcpy(&note->status, data, sizeof(note->status));
    memcpy(note->text, data + sizeof(note->status), bytes - sizeof(note->status));
    return note->status < STATUSES;
}

/* A neighbour's next mark, of this round or the next. */
static bool mark_take(struct cluster *c, uint32_t rank, uint64_t round, const char *data, size_t bytes)
{
    struct rounds *rounds = &c->rounds;
    struct round_note note;
    uint64_t about;
    if (!net_neighbour(c->net, rank) || bytes < sizeof(about) ||
        !note_take(&note, data + sizeof(about), bytes - sizeof(about)))
        return false;
    memcpy(&about, data, sizeof(about));
    pthread_mutex_lock(&rounds->lock);
    uint64_t now = rounds->now, own = rounds->about_now;
    bool fits = round == rounds->marked[rank] + 1 && (round == now || round == now + 1);
    bool differs = fits && round == now && about != own;
    if (fits) {
        rounds->marked[rank] = round;
        rounds->about[rank] = about;
        rounds->notes[round & 1][rank] = note;
        rounds->marks[round & 1]++;
    }
    bool whole = fits && round == now && round_whole(c, round);
    pthread_mutex_unlock(&rounds->lock);
    if (differs)
        about_differs(c, rank, about, own);
    if (whole)
        cluster_news(c);
    return fits;
}

/* A whole shard of the sender's, or what it has kept of one. */
static bool bytes_fit(const struct cluster *c, uint32_t rank, uint32_t shard, size_t bytes)
{
    const weir_plan *plan = c->plan;
    bool kept = shard >= plan->shards_count;
    if (shard == WIRE_STATEMENT)
        return bytes <= NET_STATEMENT_BYTES;
    if (shard / 2 >= plan->shards_count || shard - kept * plan->shards_count >= plan->shards_count)
        return false;
    const plan_tensor *tensor = &plan->tensors[plan->shards[shard - kept * plan->shards_count].i];
    if (kept)
        return bytes == plan_kept_slots(plan, tensor) * plan_tensor_bytes(tensor);
    return plan->spaces[plan_tensor_space(plan, tensor).i].rank == rank && bytes == plan_tensor_bytes(tensor);
}

/* In this round or the next; once. With the lock held. */
static bool shard_fits(const struct cluster *c, uint32_t rank, uint32_t shard, uint64_t round, size_t bytes)
{
    uint64_t now = c->rounds.now;
    return (round == now || round == now + 1) && bytes_fit(c, rank, shard, bytes) &&
           !arrival_find(&c->rounds, rank, shard, round);
}

/* Whether the session's thread has not begun the round, although it has begun more runs than who asks had before it. The
 * run is read first: where all make the same calls the next begins behind the round. */
static bool question_take(struct cluster *c, uint32_t rank, uint64_t round, const void *data, size_t bytes)
{
    struct question question;
    char theirs[256];
    if (bytes != sizeof(question))
        return false;
    memcpy(&question, data, sizeof(question));
    uint64_t run = run_number(c);
    if (round != atomic_load(&c->rounds.now) + 1 || run <= question.run)
        return true;
    about_text(c, question.about, theirs, sizeof(theirs));
    cluster_lost(c, c->env.rank,
                      "rank %u runs while rank %u %s: all ranks make the same calls in the same order", c->env.rank, rank,
                      theirs);
    return true;
}

bool cluster_round_take(struct cluster *c, uint32_t rank, uint32_t shard, uint64_t round, const void *data,
                        size_t bytes)
{
    struct rounds *rounds = &c->rounds;
    if (shard == WIRE_MARK)
        return mark_take(c, rank, round, data, bytes);
    if (shard == WIRE_QUESTION)
        return question_take(c, rank, round, data, bytes);
    struct arrival *arrival = malloc(sizeof(*arrival) + bytes);
    if (!arrival) {
        cluster_lost(c, c->env.rank, "no memory for %zu bytes of rank %u", bytes, rank);
        return true;
    }
    *arrival = (struct arrival){.rank = rank, .shard = shard, .round = round, .bytes = bytes};
    if (bytes)
        memcpy(arrival->data, data, bytes);
    pthread_mutex_lock(&rounds->lock);
    bool fits = shard_fits(c, rank, shard, round, bytes);
    if (fits) {
        arrival->next = rounds->arrivals;
        rounds->arrivals = arrival;
        rounds->values[round & 1]++;
    }
    bool whole = fits && round == rounds->now && round_whole(c, round);
    pthread_mutex_unlock(&rounds->lock);
    if (!fits)
        free(arrival);
    if (whole)
        cluster_news(c);
    return fits;
}

/* ---- the session's thread ---- */

/* A neighbour that has left, and gave no mark before. UINT32_MAX: none. */
static uint32_t left_without_mark(struct cluster *c)
{
    uint32_t count, found = UINT32_MAX;
    const uint32_t *ranks = net_neighbours(c->net, &count);
    if (!atomic_load(&c->left_count))
        return UINT32_MAX;
    pthread_mutex_lock(&c->rounds.lock);
    for (uint32_t i = 0; i < count && found == UINT32_MAX; i++)
        if (atomic_load(&c->left[ranks[i]]) >= 0 && c->rounds.marked[ranks[i]] < c->rounds.now)
            found = ranks[i];
    pthread_mutex_unlock(&c->rounds.lock);
    return found;
}

/* Those whose marks are missing are asked. */
static void ask(struct cluster *c)
{
    uint32_t count;
    const uint32_t *ranks = net_neighbours(c->net, &count);
    struct question question = {.about = c->rounds.about_now, .run = run_number(c)};
    for (uint32_t i = 0; i < count; i++) {
        pthread_mutex_lock(&c->rounds.lock);
        bool missing = c->rounds.marked[ranks[i]] < c->rounds.now;
        pthread_mutex_unlock(&c->rounds.lock);
        if (missing && atomic_load(&c->left[ranks[i]]) < 0)
            cluster_round_send_to(c, ranks[i], WIRE_QUESTION, &question, sizeof(question));
    }
}

/* A rank's BYE comes behind its marks. One that has gone fails the session: who is no neighbour of it waits for rank 0,
 * and would not hear of it otherwise. A failure is looked for before the marks: those that came before it count. */
static weir_status round_wait(struct cluster *c)
{
    for (;;) {
        uint32_t news = atomic_load_explicit(&c->news, memory_order_acquire); /* pairs with cluster_news() */
        uint32_t left = left_without_mark(c);
        bool failed = ending_failed(c->owner->ending);
        pthread_mutex_lock(&c->rounds.lock);
        bool whole = round_whole(c, c->rounds.now);
        pthread_mutex_unlock(&c->rounds.lock);
        if (whole)
            return WEIR_OK;
        if (failed)
            return ending_failure(c->owner->ending);
        if (left != UINT32_MAX)
            cluster_lost(c, left, "rank %u (pid %u on %s) has closed its session after %lld steps", left,
                              c->members[left].pid, c->members[left].name, (long long)atomic_load(&c->left[left]));
        else if (!park_wait(&c->news, news, park_now_ns() + ASK_NS))
            ask(c);
    }
}

/* The rank whose mark of this round, which came early, is for something else; UINT32_MAX: none. With the lock held. */
static uint32_t early_differs(const struct cluster *c)
{
    uint32_t count;
    const uint32_t *ranks = net_neighbours(c->net, &count);
    for (uint32_t i = 0; i < count && c->rounds.marks[c->rounds.now & 1]; i++)
        if (c->rounds.marked[ranks[i]] == c->rounds.now && c->rounds.about[ranks[i]] != c->rounds.about_now)
            return ranks[i];
    return UINT32_MAX;
}

void cluster_round_begin(struct cluster *c, enum round_kind kind, uint32_t which)
{
    struct rounds *rounds = &c->rounds;
    pthread_mutex_lock(&rounds->lock);
    rounds->about_now = about_of(kind, which);
    rounds->expected = 0;
    rounds->mine = (struct round_note){.status = WEIR_OK};
    rounds->now++;
    uint32_t differs = early_differs(c);
    uint64_t about = differs != UINT32_MAX ? rounds->about[differs] : 0;
    pthread_mutex_unlock(&rounds->lock);
    if (differs != UINT32_MAX)
        about_differs(c, differs, about, about_of(kind, which));
}

weir_status cluster_round_send_to(struct cluster *c, uint32_t rank, uint32_t shard, const void *data, size_t bytes)
{
    struct wire_frame frame = {.kind = WIRE_VALUE, .value = {.shard = shard, .round = c->rounds.now}};
    return net_request(c->net, rank, &frame, data, bytes);
}

weir_status cluster_round_send(struct cluster *c, uint32_t shard, const void *data, size_t bytes)
{
    return cluster_round_send_to(c, NET_ALL, shard, data, bytes);
}

static weir_status marks_send(struct cluster *c)
{
    struct wire_frame frame = {.kind = WIRE_VALUE, .value = {.shard = WIRE_MARK, .round = c->rounds.now}};
    const struct round_note *note = &c->rounds.mine;
    size_t text = strlen(note->text), bytes = sizeof(c->rounds.about_now);
    char mark[sizeof(c->rounds.about_now) + sizeof(*note)];
    memcpy(mark, &c->rounds.about_now, bytes);
    if (note->status || text) {
        memcpy(mark + bytes, &note->status, sizeof(note->status));
        memcpy(mark + bytes + sizeof(note->status), note->text, text);
        bytes += sizeof(note->status) + text;
    }
    return net_request(c->net, NET_NEIGHBOURS, &frame, mark, bytes);
}

static void says(struct round_note *note, uint32_t rank, weir_status status, const char *text)
{
    char sentence[ROUND_NOTE_BYTES];
    snprintf(sentence, sizeof(sentence), "%s", text);
    note->status = status;
    snprintf(note->text, sizeof(note->text), "rank %u: %.1000s", rank, sentence);
}

/* Rank 0 has heard all: the first that has not come so far speaks for all. */
static void verdict(struct cluster *c)
{
    struct rounds *rounds = &c->rounds;
    for (uint32_t r = 1; !rounds->mine.status && r < c->env.size; r++) {
        const struct round_note *note = &rounds->notes[rounds->now & 1][r];
        if (note->status)
            says(&rounds->mine, r, (weir_status)note->status, note->text);
    }
}

weir_status cluster_round_end(struct cluster *c, uint32_t shards)
{
    bool last = c->env.rank == 0;
    weir_status status = last ? WEIR_OK : marks_send(c);
    pthread_mutex_lock(&c->rounds.lock);
    c->rounds.expected = shards;
    pthread_mutex_unlock(&c->rounds.lock);
    if (!status)
        status = round_wait(c);
    if (!status && last)
        verdict(c);
    return status || !last ? status : marks_send(c);
}

void cluster_round_say(struct cluster *c, weir_status mine, const char *word)
{
    struct round_note *note = &c->rounds.mine;
    bool first = c->env.rank == 0;
    if (mine && first)
        says(note, 0, mine, weir_error());
    else if (mine || (first && word))
        note->status = mine, snprintf(note->text, ROUND_NOTE_BYTES, "%s", mine ? weir_error() : word);
}

weir_status cluster_round_said(struct cluster *c, weir_status mine, char *word)
{
    struct rounds *rounds = &c->rounds;
    /* what rank 0 says, which has heard all: this thread wrote it, or it came with its mark */
    const struct round_note *note = c->env.rank ? &rounds->notes[rounds->now & 1][0] : &rounds->mine;
    if (note->status)
        return mine ? mine : error_set((weir_status)note->status, "%s", note->text);
    if (word)
        snprintf(word, ROUND_NOTE_BYTES, "%s", note->text);
    return WEIR_OK;
}

weir_status cluster_agree(struct cluster *c, enum round_kind kind, uint32_t which, weir_status mine, char *word)
{
    cluster_round_begin(c, kind, which);
    cluster_round_say(c, mine, word);
    weir_status status = cluster_round_end(c, 0);
    if (!status)
        status = cluster_round_said(c, mine, word);
    cluster_round_close(c);
    return status;
}

weir_status cluster_collect(struct cluster *c, enum round_kind kind, const void *mine, size_t bytes,
                            cluster_take_fn take, void *ctx)
{
    bool first = c->env.rank == 0;
    cluster_round_begin(c, kind, ROUND_SURVEY);
    weir_status status = first ? WEIR_OK : cluster_round_send_to(c, 0, WIRE_STATEMENT, mine, bytes);
    if (!status)
        status = cluster_round_end(c, first ? c->env.size - 1 : 0);
    for (uint32_t r = 1; !status && first && r < c->env.size; r++) {
        const struct arrival *arrival = cluster_round_find(c, r, WIRE_STATEMENT);
        if (arrival)
            take(ctx, r, arrival->data, arrival->bytes);
    }
    cluster_round_close(c);
    return status;
}

weir_status cluster_spread(struct cluster *c, enum round_kind kind, const void *mine, size_t bytes,
                           cluster_take_fn take, void *ctx)
{
    bool first = c->env.rank == 0;
    cluster_round_begin(c, kind, ROUND_SURVEY);
    weir_status status = first ? cluster_round_send(c, WIRE_STATEMENT, mine, bytes) : WEIR_OK;
    if (!status)
        status = cluster_round_end(c, first ? 0 : 1);
    const struct arrival *arrival = status || first ? NULL : cluster_round_find(c, 0, WIRE_STATEMENT);
    if (arrival)
        take(ctx, 0, arrival->data, arrival->bytes);
    cluster_round_close(c);
    return status;
}

/* The messages found stay until the round is closed; what comes early for the next one is put in front of it meanwhile. */
const struct arrival *cluster_round_find(struct cluster *c, uint32_t rank, uint32_t shard)
{
    pthread_mutex_lock(&c->rounds.lock);
    const struct arrival *arrival = arrival_find(&c->rounds, rank, shard, c->rounds.now);
    pthread_mutex_unlock(&c->rounds.lock);
    return arrival;
}

void cluster_round_close(struct cluster *c)
{
    struct rounds *rounds = &c->rounds;
    pthread_mutex_lock(&rounds->lock);
    rounds->marks[rounds->now & 1] = rounds->values[rounds->now & 1] = 0;
    for (struct arrival **at = &rounds->arrivals; *at;) {
        struct arrival *arrival = *at;
        if (arrival->round > rounds->now) {
            at = &arrival->next;
            continue;
        }
        *at = arrival->next;
        free(arrival);
    }
    pthread_mutex_unlock(&rounds->lock);
}
