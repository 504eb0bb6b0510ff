/* tests/apps/test_predict.c: `weir measure` and `weir predict`, run as a user runs them. Times are not judged. */
#include "graph/time/rates.h"
#include "tests/apps/shell.h"
#include "tests/support/json.h"

#include <string.h>

TestSuite(predict, .init = shell_begin, .fini = folder_remove, .timeout = 120);

#define GPT APPS_BIN "/weir-gpt --layers 1 --dim 16 --heads 2 --seq 8 --batch 4 --dp 2 --steps 1 --sample 0 --plan $T/plan >/dev/null 2>&1; "

Test(predict, two_ranks_measure_their_line_and_a_plan_is_predicted_over_it)
{
    must_run(GPT "weir launch -n 2 --no-prefix -- " APPS_BIN "/weir measure --between -o $T/link.rates; grep -c '^link hosts tcp+key once=64:' $T/link.rates");
    cr_expect(strstr(output, "link.rates: rates of two hosts") && strstr(output, "\n1\n"), "%s", output);
    must_run("weir launch -n 2 --no-prefix --insecure -- " APPS_BIN "/weir measure --between --merge $T/link.rates -o $T/both.rates; grep -c '^link hosts tcp' "
             "$T/both.rates");
    cr_expect(strstr(output, "\n2\n"), "%s", output);
    must_run("weir predict $T/plan --rates $T/both.rates --ranks 2 --per-host 1 --json");
    cr_expect(json_valid(output), "%s", output);
    cr_expect_eq(json_count(output, "\"from\": "), 2, "%s", output);
    must_run("weir predict $T/plan --rates $T/both.rates --ranks 2 --per-host 1 --no-key");
    cr_expect(strstr(output, "line from rank 0 to rank 1: "), "%s", output);
    must_run("weir predict $T/plan --rates $T/both.rates --ranks 2 --per-host 1 --trace $T/trace && grep -q traceEvents $T/trace");
    must_run("weir predict $T/plan --rates $T/both.rates --ranks 2");
    cr_expect(!strstr(output, "line from"), "ranks of a host share memory: %s", output);
}

/* A machine on which a firing takes 10 us beside its kernels, and a message 1 us in a process, 2 ms between two, and 5 ms over TCP. */
static void write_rates(uint64_t cores)
{
    const time_curve slow = {1, {64}, {5000000000}}, quick = {1, {64}, {1000000}};
    const time_link link = {.once = slow, .stream = quick, .sends = quick, .receives = quick};
    weir_rates *rates = rates_new();
    cr_assert_not_null(rates);
    rates->cores = cores;
    rates->same = 10000000;
    rates->worker = 1000000;
    rates->process = 2000000000;
    rates->links[TIME_LOOPBACK][TIME_TCP_KEY] = rates->links[TIME_HOSTS][TIME_TCP] = link;
    cr_assert_eq(weir_rates_save(rates, folder_path("rates")), WEIR_OK, "%s", weir_error());
    weir_rates_free(rates);
}

#define TRAIN APPS_BIN "/weir-gpt --layers 1 --dim 16 --heads 2 --seq 8 --batch 4 --dp 2 --steps 2 --sample 0 --text README.md "

Test(predict, ranks_train_with_the_rates_of_their_launcher)
{
    write_rates(2);
    must_run("weir launch --rates $T/rates -n 2 -- " TRAIN "--plan $T/plan 2>&1 && "
             "weir show $T/plan | grep \"compiled with rates $(sed -n 's/^hash //p' $T/rates)\"");
    cr_expect(strstr(output, "was predicted"), "%s", output);
    must_run("! WEIR_RATES=$T/rates weir launch -n 2 -- sh -c '[ $RANK = 0 ] || unset WEIR_RATES; exec " TRAIN "' 2>&1");
    cr_expect(strstr(output, " on rank 0 and none on rank 1; give all ranks the same, as weir launch --rates RATES does"), "%s", output);
    must_run("! weir launch -n 2 -- " TRAIN "--rates $T/none 2>&1");
    cr_expect(strstr(output, "none: cannot be read: No such file or directory; weir launch --rates RATES gives its file to all ranks"), "%s", output);
}

/* The prediction that ranks print is that of weir predict with these options; the others give another. */
static void expect_predicted(const char *launch, const char *same, const char *others)
{
    char command[2048];
    snprintf(command, sizeof command,
             "predicted() { weir predict $T/plan --rates $T/rates --json $1 | sed -n 's/.*\"step_s\": \\(.*\\),/\\1/p' | awk '{ printf \"%%.2f\", 1000 * $1 }'; }; "
             "%s " TRAIN "--plan $T/plan --rates $T/rates >$T/log 2>&1 || cat $T/log; "
             "told=$(sed -n 's/.* took .* ms, and \\(.*\\) ms was predicted/\\1/p' $T/log); "
             "[ \"$told\" ] && [ $told = $(predicted '%s') ] && [ $told != $(predicted '%s') ] || { cat $T/log; echo $told $(predicted '%s') $(predicted '%s'); false; }",
             launch, same, others, same, others);
    must_run(command);
}

Test(predict, ranks_predict_the_plan_as_they_run_it)
{
    write_rates(2);
    expect_predicted("weir launch --no-prefix -n 2 -- ", "--ranks 2", "");
    expect_predicted("weir launch --no-prefix -n 2 --carrier ipc,tcp -- ", "--ranks 2 --carrier tcp", "--ranks 2");
    expect_predicted("", "", "--ranks 2");
    must_run("weir launch --no-prefix -n 2 --carrier tcp --insecure -- " TRAIN "--rates $T/rates");
    cr_expect(strstr(output, "no time of a step was predicted: weir_session_predict: the rates have no link loopback tcp from rank 0 to rank 1"), "%s", output);
}

/* Ranks in process namespaces of their own take each other for other hosts. */
Test(predict, ranks_on_other_hosts_are_predicted_there)
{
    if (run("unshare -Upf true"))
        cr_skip_test("no namespaces");
    write_rates(2);
    expect_predicted("weir launch --no-prefix --insecure -n 2 -- unshare -Upf ", "--ranks 2 --per-host 1 --no-key", "--ranks 2");
    must_run("weir launch --no-prefix --insecure -n 3 -- sh -c '[ $RANK = 1 ] && exec unshare -Upf \"$@\"; exec \"$@\"' sh " TRAIN "--rates $T/rates");
    cr_expect(strstr(output, "no time of a step was predicted: weir_session_predict: each host must have as many ranks"), "%s", output);
}

Test(predict, what_cannot_be_predicted_or_measured_is_one_sentence)
{
    must_run(GPT "weir measure --no-links --noisy -o $T/link.rates");
    must_run("! weir predict $T/plan --rates $T/link.rates --ranks 2 --carrier tcp 2>&1");
    cr_expect(strstr(output, "weir predict: weir_predict: the rates have no link loopback tcp+key from rank 0 to rank 1"), "%s", output);
    must_run("! weir predict $T/plan --rates $T/link.rates --carrier pigeon 2>&1");
    cr_expect(strstr(output, "there is no carrier \"pigeon\"; allowed: shm, ipc, tcp, ucx"), "%s", output);
    must_run("! weir measure --between -o $T/x 2>&1");
    cr_expect(strstr(output, "--between needs two ranks, not 1"), "%s", output);
    must_run("! weir measure $T/plan --between -o $T/x 2>&1");
    cr_expect(strstr(output, "--between measures the link alone"), "%s", output);
    must_run("! weir measure --merge $T/plan -o $T/x 2>&1");
    cr_expect(strstr(output, "it is no file of rates"), "%s", output);
}

#define FIRING(name, step, us) "{\"name\":\"" name "\",\"ph\":\"X\",\"ts\":0,\"dur\":" us ",\"args\":{\"step\":" step "}}"

/* The first trace has fewer steps, and in its last one only an actor that runs ahead has fired. */
Test(predict, traces_are_compared_by_the_mean_time_of_a_firing_whatever_steps_they_have)
{
    must_run("echo '{\"traceEvents\":[" FIRING("a", "0", "10") "," FIRING("a", "1", "10") "," FIRING("b", "0", "30") "]}' > $T/few; "
             "echo '{\"traceEvents\":[" FIRING("a", "0", "10") "," FIRING("a", "1", "10") "," FIRING("a", "2", "10") "," FIRING("b", "0", "20") ","
             FIRING("b", "1", "20") "," FIRING("b", "2", "40") "," FIRING("c", "2", "40") "]}' > $T/many; weir trace diff $T/few $T/many");
    cr_expect(strstr(output, "30.00        26.67   +9.09%  b\n"), "%s", output);
    cr_expect(strstr(output, "10.00        10.00   +0.00%  a\n1 actors are in one trace alone\n"), "%s", output);
    cr_expect(strstr(output, "together the times of actors differ by 9.1 % of the second's"), "%s", output);
    must_run("! weir trace diff $T/few /dev/null 2>&1");
    cr_expect(strstr(output, "weir trace diff: /dev/null is no trace"), "%s", output);
}
