/* Files of rates, and predictions from them. */
#include "graph/plan/form/plan.h"
#include "graph/time/call.h"
#include "graph/time/rates.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

static weir_plan *small_plan(void)
{
    weir_graph *g = weir_graph_new("small");
    weir_tensor *x = weir_input(g, WEIR_F32, {16, 32}, .name = "x");
    weir_tensor *h = weir_relu(weir_linear(x, 64, .name = "up"));
    weir_fetch(weir_linear(h, 32, .name = "down"), .name = "y");
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

static weir_rates *made_up(void)
{
    weir_rates *r = rates_new();
    cr_assert_not_null(r);
    cr_assert(rates_add(r, &(time_call){.text = "b a=1 f32:2>f32:2", .ps = {5, 6, 7}, .band = 9, .core = 6, .flops = 8, .bytes = 16, .samples = 9}));
    cr_assert(rates_add(r, &(time_call){.text = "a a=1 f32:2>f32:2", .ps = {1, 2, 3}, .samples = 3}));
    r->l2 = 1 << 20, r->l3 = 1 << 25, r->same = 10000, r->worker = 200000, r->process = 300000, r->cores = 2, r->noise_p50 = 1004, r->noise_p90 = 1100;
    r->threads[r->threads_count++] = (rates_threads){1, 1000, 5000};
    r->threads[r->threads_count++] = (rates_threads){4, 3000, 20000};
    strcpy(r->level, "v4");
    time_link *link = &r->links[TIME_HOSTS][TIME_TCP_KEY];
    cr_assert(curve_add(&link->once, 64, 50) && curve_add(&link->once, 65536, 700) && curve_add(&link->stream, 64, 3) &&
              curve_add(&link->sends, 64, 2) && curve_add(&link->receives, 64, 1));
    return r;
}

Test(rates, a_file_is_read_as_it_was_written, .timeout = 30)
{
    size_t bytes, again_bytes;
    weir_rates *r = made_up();
    char *text = rates_text(r, &bytes);
    weir_rates *read = rates_parse("r", text, bytes);
    cr_assert_not_null(read, "%s", weir_error());
    char *again = rates_text(read, &again_bytes);
    cr_expect_eq(again_bytes, bytes);
    cr_expect_str_eq(again, text);
    cr_expect_eq(rates_find(read, "b a=1 f32:2>f32:2")->ps[TIME_FAR], 7);
    cr_expect_eq(rates_find(read, "b a=1 f32:2>f32:2")->band, 9);
    cr_expect_eq(rates_bytes_s(read, 3), 1000, "of fewer threads");
    cr_expect_eq(rates_bytes_s(read, 4), 3000);
    cr_expect_null(rates_find(read, "c"));
    cr_expect(strstr(text, "call warm=1 ") < strstr(text, "call warm=5 "), "calls are sorted");
    free(text), free(again);
    weir_rates_free(r), weir_rates_free(read);
}

/* The text with one part in the place of another, and the right hash. */
static weir_rates *parse_changed(const char *from, const char *to)
{
    size_t bytes;
    weir_rates *r = made_up();
    char *text = rates_text(r, &bytes), changed[4096];
    char *at = strstr(text, from);
    cr_assert_not_null(at, "%s", from);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    *strstr(changed, "hash ") = '\0';
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *c = changed; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    snprintf(changed + strlen(changed), 64, "hash %016llx\n", (unsigned long long)hash);
    weir_rates *read = rates_parse("my.rates", changed, strlen(changed));
    free(text);
    weir_rates_free(r);
    return read;
}

Test(rates, a_wrong_line_is_named, .timeout = 30)
{
    static const struct {
        const char *from, *to, *says;
    } wrong[] = {{"caches l2", "cashes l2", "my.rates:4: a line begins with"},
                 {"l3=", "l4=", "my.rates:4: a number is missing"},
                 {"threads count=4", "threads=4", "my.rates:10: a line begins with"},
                 {"warm=5", "warm=x", "my.rates:3: a number is missing"},
                 {"b a=1", "a a=1", "my.rates:3: the call is there twice"},
                 {"warm=5", "warm=99999999999999999999", "my.rates:3: a number is larger"},
                 {"level=v4", "level=0123456789012345678901234567890123456789", "my.rates:7: it names no level"},
                 {"link hosts", "link moon", "my.rates:6: a link is one of loopback or hosts"},
                 {"tcp+key", "tcp+lock", "my.rates:6: a link is one of loopback or hosts"},
                 {"link hosts tcp+key", "link hosts tcp once=64:1 stream=64:1 sends=64:1 receives=64:1\nlink hosts tcp", "my.rates:7: the link is there twice"},
                 {"once=64:50", "twice=64:50", "my.rates:6: a curve is missing"},
                 {"stream=64:3", "", "my.rates:6: a curve is missing"},
                 {"once=64:50", "once=64", "my.rates:6: a curve has sizes with their times"},
                 {"once=64:50", "once=", "my.rates:6: a curve has sizes with their times"},
                 {",65536:700", ",65536:7", "my.rates:6: a value takes longer than a larger one"},
                 {",65536:700", ",64:700", "my.rates:6: sizes of a curve rise"},
                 {"once=64:50", "once=1:1,2:2,3:3,4:4,5:5,6:6,7:7,8:8,64:50", "my.rates:6: sizes of a curve rise, and are 8 at most"},
                 {"receives=64:1", "receives=64:1 more", "there is more behind the last curve"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weir_rates *r = parse_changed(wrong[i].from, wrong[i].to);
        cr_expect_null(r);
        cr_expect(strstr(weir_error(), wrong[i].says), "%s: %s", wrong[i].to, weir_error());
        weir_rates_free(r);
    }
    weir_rates *r = parse_changed("l2=1048576", "l2=7");
    cr_expect(r && r->l2 == 7);
    weir_rates_free(r);
}

Test(rates, a_file_that_was_changed_or_cut_is_refused, .timeout = 30)
{
    size_t bytes;
    weir_rates *r = made_up();
    char *text = rates_text(r, &bytes);
    for (size_t cut = 0; cut < bytes; cut++)
        cr_expect_null(rates_parse("r", text, cut), "%zu bytes", cut);
    for (size_t at = 0; at < bytes - 1; at++) {
        text[at] ^= 1;
        cr_expect_null(rates_parse("r", text, bytes), "byte %zu", at);
        text[at] ^= 1;
    }
    cr_expect_null(weir_rates_load("/no/such.rates"));
    cr_expect(strstr(weir_error(), "/no/such.rates: cannot be read"), "%s", weir_error());
    free(text);
    weir_rates_free(r);
}

Test(rates, calls_that_were_not_measured_are_told, .timeout = 30)
{
    weir_plan *plan = small_plan();
    weir_rates *none = made_up();
    weir_prediction p;
    cr_assert_eq(weir_predict(plan, none, &p), WEIR_OK, "%s", weir_error());
    cr_expect_eq(p.guessed, 1);
    cr_expect_gt(p.step_s, 0);
    cr_expect_eq(p.workers, 1);
    weir_rates_free(none);
    weir_plan_free(plan);
}

Test(rates, all_calls_of_a_plan_are_measured, .timeout = 120)
{
    weir_plan *plan = small_plan();
    weir_prediction p;
    weir_rates *rates = weir_measure((const weir_plan *const[]){plan}, 1, .noisy = true);
    cr_assert_not_null(rates, "%s", weir_error());
    cr_expect_gt(rates->call_count, 1);
    for (uint32_t i = 0; i < rates->call_count; i++) {
        const time_call *call = &rates->calls[i];
        cr_expect(call->ps[TIME_WARM] && call->ps[TIME_WARM] <= call->ps[TIME_NEAR] && call->ps[TIME_NEAR] <= call->ps[TIME_FAR], "%s", call->text);
        cr_expect(call->band >= call->ps[TIME_FAR] && call->core >= call->ps[TIME_WARM], "%s", call->text);
    }
    cr_expect_gt(rates->threads_count, 0);
    cr_expect_gt(rates->same, 0);
    cr_expect_gt(rates->worker, 0);
    cr_assert_eq(weir_predict(plan, rates, &p), WEIR_OK, "%s", weir_error());
    cr_expect_eq(p.measured, 1);
    cr_expect_gt(p.step_s, 0);
    cr_expect_gt(p.bounds, 0);
    weir_prediction half;
    cr_assert_eq(weir_predict(plan, rates, &half, .set = (const char *[]){"speed(cpu:0)=0.5", NULL}), WEIR_OK, "%s", weir_error());
    cr_expect(half.step_s > p.step_s && half.step_s < 2.01 * p.step_s, "%g %g", half.step_s, p.step_s);
    weir_rates_free(rates);
    weir_plan_free(plan);
}

Test(rates, a_what_if_that_cannot_be_is_one_sentence, .timeout = 30)
{
    static const struct {
        const char *set, *says;
    } wrong[] = {{"colour=blue", "it is none of bandwidth="}, {"bandwidth=fast", "a bandwidth is as 10Gbit"},
                 {"latency=1week", "a latency is as 200us"}, {"slots(nobody)=3", "no register of the plan holds"},
                 {"slots(up)=0", "slots are a whole number"}, {"speed(cuda:7)=2", "no device, actor, op or kernel of that name"},
                 {"speed(cpu:0)=-1", "a speed is a number"}, {"workers(9)=1", "no rank of that number"}, {"workers(0)=1.5", "workers are a whole number"}};
    weir_plan *plan = small_plan();
    weir_rates *rates = made_up();
    weir_prediction p;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_eq(weir_predict(plan, rates, &p, .set = (const char *[]){wrong[i].set, NULL}), WEIR_E_ARGUMENT);
        cr_expect(strstr(weir_error(), wrong[i].says) && strstr(weir_error(), wrong[i].set) && strstr(weir_error(), "test_rates.c:"), "%s", weir_error());
    }
    cr_expect_eq(weir_predict(plan, rates, &p, .program = "eval"), WEIR_E_ARGUMENT);
    cr_expect(strstr(weir_error(), "no program \"eval\""), "%s", weir_error());
    weir_rates_free(rates);
    weir_plan_free(plan);
}

/* How much longer a step takes with a change. */
static double more_with(const weir_plan *plan, const weir_rates *rates, const char *set, const char *other)
{
    weir_prediction without, with;
    cr_assert_eq(weir_predict(plan, rates, &without), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_predict(plan, rates, &with, .set = (const char *[]){set, other, NULL}), WEIR_OK, "%s", weir_error());
    return with.step_s - without.step_s;
}

/* One worker fires the one actor of the plan, so a step takes longer by as much as its kernels do. */
Test(rates, kernels_of_a_name_an_op_an_actor_or_a_device_may_be_slower_or_faster, .timeout = 30)
{
    weir_plan *plan = small_plan();
    weir_rates *rates = made_up();
    const double all = more_with(plan, rates, "speed(cpu:0)=0.5", NULL), up = more_with(plan, rates, "speed(up)=0.5", NULL),
                 down = more_with(plan, rates, "speed(down)=0.5", NULL);
    const char *op = plan_text(plan, plan->kernels[0].op), *actor = plan_text(plan, plan->actors[plan->kernels[0].actor.i].name);
    char of_op[64], of_actor[64];
    snprintf(of_op, sizeof of_op, "speed(%s)=0.5", op);
    snprintf(of_actor, sizeof of_actor, "speed(%s)=0.5", actor);
    cr_assert(up > 0 && down > 0);
    cr_expect_lt(up + down, all, "relu is a third kernel");
    cr_expect_float_eq(more_with(plan, rates, of_op, NULL), up + down, 1e-11, "both are a %s", op);
    cr_expect_float_eq(more_with(plan, rates, of_actor, NULL), all, 1e-11, "both are of %s", actor);
    cr_expect_float_eq(more_with(plan, rates, "speed(up)=0.25", NULL), 3 * up, 1e-11);
    cr_expect_float_eq(more_with(plan, rates, "speed(up)=2", NULL), -up / 2, 1e-11);
    cr_expect_float_eq(more_with(plan, rates, "speed(cpu:0)=0.5", "speed(down)=2"), all - down, 1e-11, "speeds are multiplied");
    weir_rates_free(rates);
    weir_plan_free(plan);
}

/* Where caches hold nothing, each operand of the three kernels is in memory. */
Test(rates, kernels_take_longer_where_caches_hold_less, .timeout = 30)
{
    weir_plan *plan = small_plan();
    weir_rates *rates = made_up();
    weir_prediction warm, far;
    char text[TIME_CALL_BYTES];
    cr_assert_eq(plan->kernels_count, 3);
    for (uint32_t k = 0; k < 3; k++) {
        cr_assert(time_call_text(plan, k, text));
        cr_assert(rates_add(rates, &(time_call){.text = text, .ps = {1000000, 2000000, 3000000}, .band = 3000000, .core = 1000000, .samples = 9}));
    }
    rates->same = 0;
    cr_assert_eq(weir_predict(plan, rates, &warm), WEIR_OK, "%s", weir_error());
    rates->l2 = rates->l3 = 0;
    cr_assert_eq(weir_predict(plan, rates, &far), WEIR_OK, "%s", weir_error());
    cr_expect_float_eq(far.step_s, 9e-6, 1e-12, "%g", far.step_s);
    cr_expect_lt(warm.step_s, 7e-6, "%g", warm.step_s);
    weir_rates_free(rates);
    weir_plan_free(plan);
}

/* Two devices with a relu each, which nobody waits for. */
static weir_plan *two_devices(void)
{
    weir_graph *g = weir_graph_new("two");
    WEIR_ON(weir_mesh_new(g, "cpu:0-1"))
        weir_fetch(weir_relu(weir_input(g, WEIR_F32, {64, 1024}, .name = "x", .sbp = {WEIR_S(0)})), .name = "y");
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

static double step_on(const weir_plan *plan, const weir_rates *rates, int workers)
{
    weir_prediction p;
    cr_assert_eq(weir_predict(plan, rates, &p, .workers = workers), WEIR_OK, "%s", weir_error());
    return p.step_s;
}

Test(rates, calls_take_longer_beside_others_only_as_measured_and_only_on_several_workers, .timeout = 60)
{
    weir_plan *plan = two_devices();
    weir_rates *rates = weir_measure((const weir_plan *const[]){plan}, 1, .noisy = true);
    cr_assert_not_null(rates, "%s", weir_error());
    rates->cores = 2;
    for (uint32_t i = 0; i < rates->call_count; i++) { /* two workers have other operands in their caches than one */
        time_call *call = &rates->calls[i];
        call->ps[TIME_NEAR] = call->ps[TIME_FAR] = call->core = call->band = call->ps[TIME_WARM];
    }
    rates->l2 = rates->l3 = 1 << 30;
    const double one = step_on(plan, rates, 1), two = step_on(plan, rates, 2);
    for (uint32_t i = 0; i < rates->call_count; i++)
        rates->calls[i].core += 10 * rates->calls[i].ps[TIME_FAR], rates->calls[i].band += 10 * rates->calls[i].ps[TIME_FAR];
    cr_expect_eq(step_on(plan, rates, 1), one);
    cr_expect_gt(step_on(plan, rates, 2), 1.5 * two);
    rates->cores = 1;
    cr_expect_geq(step_on(plan, rates, 2), 0.99 * one, "two workers share the core");
    weir_rates_free(rates);
    weir_plan_free(plan);
}

Test(rates, numbers_at_their_limits_are_answered, .timeout = 60)
{
    weir_plan *plan = two_devices();
    weir_rates *rates = weir_measure((const weir_plan *const[]){plan}, 1, .noisy = true);
    weir_prediction p;
    cr_assert_not_null(rates, "%s", weir_error());
    const uint64_t limits[] = {0, UINT64_MAX >> 8};
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 2; b++) {
            for (uint32_t i = 0; i < rates->call_count; i++)
                rates->calls[i] = (time_call){rates->calls[i].text, {limits[a], limits[a], limits[a]}, limits[b], limits[b], limits[b],
                                               limits[a], 1};
            rates->cores = rates->l2 = rates->l3 = rates->same = rates->worker = rates->process = limits[b];
            for (uint32_t t = 0; t < rates->threads_count; t++)
                rates->threads[t] = (rates_threads){limits[b], limits[a], limits[b]};
            const weir_status status = weir_predict(plan, rates, &p, .workers = 2, .set = (const char *[]){"speed(cpu:0)=0.001", NULL});
            cr_expect(status == WEIR_OK || (status == WEIR_E_ARGUMENT && strstr(weir_error(), "longer than 50 days")), "%s", weir_error());
        }
    weir_rates_free(rates);
    weir_plan_free(plan);
}

/* ---- several hosts ---- */

static weir_rates *host(uint64_t ps, uint64_t cores, uint64_t once)
{
    weir_rates *r = made_up();
    cr_assert(rates_add(r, &(time_call){.text = "b a=1 f32:2>f32:2", .ps = {ps, 10 - ps, 20}, .flops = 8, .bytes = 16, .samples = ps}));
    r->cores = cores;
    r->worker = 1000 * ps;
    r->links[TIME_HOSTS][TIME_TCP_KEY].once.ps[1] = once;
    return r;
}

static char *merged(weir_rates *a, weir_rates *b)
{
    size_t bytes;
    cr_assert_eq(weir_rates_merge(a, b), WEIR_OK, "%s", weir_error());
    char *text = rates_text(a, &bytes);
    weir_rates_free(a), weir_rates_free(b);
    return text;
}

Test(rates, of_two_hosts_the_slower_counts, .timeout = 30)
{
    char *one = merged(host(3, 8, 900), host(6, 2, 800)), *other = merged(host(6, 2, 800), host(3, 8, 900));
    cr_expect_str_eq(one, other, "in any order");
    cr_expect(strstr(one, "call warm=6 near=7 far=20 "), "%s", one);
    cr_expect(strstr(one, "n=3 b a=1"), "%s", one);
    cr_expect(strstr(one, "cores=2") && strstr(one, "worker=6000") && strstr(one, "65536:900"), "%s", one);
    free(one), free(other);
}

Test(rates, what_only_one_host_knows_is_kept, .timeout = 30)
{
    weir_rates *some = made_up(), *none = rates_new();
    size_t bytes;
    char *before = rates_text(some, &bytes);
    char *after = merged(none, some);
    cr_expect_str_eq(before, after);
    free(before), free(after);
}

Test(rates, hosts_whose_kernels_round_differently_are_refused, .timeout = 30)
{
    weir_rates *a = made_up(), *b = host(6, 2, 800);
    size_t bytes;
    char *before = rates_text(a, &bytes);
    strcpy(b->level, "v3");
    cr_expect_eq(weir_rates_merge(a, b), WEIR_E_ARGUMENT);
    cr_expect(strstr(weir_error(), "level v4") && strstr(weir_error(), "level v3"), "%s", weir_error());
    char *after = rates_text(a, &bytes);
    cr_expect_str_eq(before, after, "nothing is changed");
    cr_expect_eq(weir_rates_merge(NULL, a), WEIR_E_ARGUMENT);
    cr_expect_eq(weir_rates_merge(a, NULL), WEIR_E_ARGUMENT);
    free(before), free(after);
    weir_rates_free(a), weir_rates_free(b);
}

/* ---- curves ---- */

Test(rates, a_curve_is_straight_between_its_points_and_goes_on_behind_them, .timeout = 30)
{
    time_curve c = {.count = 0};
    cr_expect_eq(curve_at(&c, 1000), 0);
    cr_assert(curve_add(&c, 100, 50));
    cr_expect(curve_at(&c, 0) == 50 && curve_at(&c, UINT64_MAX) == 50);
    cr_assert(curve_add(&c, 200, 150) && curve_add(&c, 400, 250));
    static const uint64_t known[][2] = {{0, 50}, {100, 50}, {150, 100}, {200, 150}, {300, 200}, {400, 250}, {1400, 750}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        cr_expect_eq(curve_at(&c, known[i][0]), known[i][1], "%d bytes", (int)known[i][0]);
    cr_expect_eq(curve_at(&c, UINT64_MAX), UINT64_MAX >> 8, "as much as a file may say");
    cr_expect_not(curve_add(&c, 400, 300));
    cr_assert(curve_add(&c, 500, 10));
    cr_expect_eq(c.ps[3], 250, "larger values take no less");
}
