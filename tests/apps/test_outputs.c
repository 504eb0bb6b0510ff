/* tests/apps/test_outputs.c: programs never say 0 when an output is lost, and never write two outputs, or an output over
 * an input, into one file. */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "tests/apps/shell.h"

#define GPT APPS_BIN "/weir-gpt --layers 1 --dim 8 --heads 1 --seq 8 --batch 1 --steps 2 --text $T/text "
#define FULL "No space left on device"

static void make_folder(void)
{
    folder_make();
    must_run("head -c 3000 README.md >$T/text; cp $T/text $T/kept; " GPT "--sample 0 --plan $T/plan");
}

TestSuite(outputs, .init = make_folder, .fini = folder_remove, .timeout = 120);

/* The command must end with `status` and say `says`. */
static void fails(const char *command, int status, const char *says)
{
    int got = run(command);
    cr_expect_eq(got, status, "%s: status %d, not %d: %s", command, got, status, output);
    cr_expect(strstr(output, says), "%s: says \"%s\", not \"%s\"", command, output, says);
}

/* ---- streams ---- */

Test(outputs, every_verb_fails_when_standard_output_is_full)
{
    static const char *const verbs[] = {
        "--help", "--version", "keygen", "keygen --help", "show $T/plan", "show $T/plan --json", "show --help",
        "show $T/plan --tensors", "check $T/plan", "devices", "devices --json", "run $T/plan --made-up --steps 1",
        "launch -n 2 -- echo hello", "checkpoint --help", "checkpoint ls --help", "bench --help",
    };
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        char command[256];
        snprintf(command, sizeof command, "weir %s >/dev/full", verbs[i]);
        fails(command, 1, "cannot write standard output: " FULL "\n");
    }
}

Test(outputs, every_program_fails_when_standard_output_is_full)
{
    fails(APPS_BIN "/weir-words --words 1 $T/text >/dev/full", 1, "weir-words: cannot write standard output: " FULL);
    fails(APPS_BIN "/weir-words --help >/dev/full", 1, "weir-words: cannot write standard output: " FULL);
    fails(APPS_BIN "/weir-digits --steps 1 --dim 8 >/dev/full", 1, "weir-digits: cannot write standard output: " FULL);
    fails(APPS_BIN "/weir-digits --help >/dev/full", 1, "weir-digits: cannot write standard output: " FULL);
    fails(GPT "--sample 20 >/dev/full", 1, "weir-gpt: cannot write standard output: " FULL);
    fails("echo 1 | " APPS_BIN "/event_loop >/dev/full", 1, "");
    fails(APPS_BIN "/ten_lines >/dev/full", 1, "");
    fails(APPS_BIN "/prelu $T/prelu.plan $T/prelu >/dev/full", 1, "");
}

Test(outputs, a_closed_standard_output_is_an_error_if_something_is_printed)
{
    fails("weir keygen >&-", 1, "weir keygen: cannot write standard output: Bad file descriptor\n");
    fails("weir show $T/plan --json >&-", 1, "cannot write standard output: Bad file descriptor\n");
    must_run(GPT "--sample 0 >&-");
    must_run("weir keygen $T/key >&- 2>&-");
}

Test(outputs, a_closed_standard_output_is_no_file_that_the_program_opens)
{
    fails(GPT "--sample 20 --log $T/log >&-", 1, "cannot write standard output");
    must_run("test $(grep -vc '^{.*}$' $T/log) = 0; test $(wc -l <$T/log) = 4");
    must_run(GPT "--sample 0 --log $T/log >&- 2>&-; test $(grep -vc '^{.*}$' $T/log) = 0");
}

Test(outputs, a_reader_that_has_gone_is_an_error_where_sigpipe_is_ignored)
{
    fails("trap '' PIPE; { weir show $T/plan; echo $? >$T/status; } | true; exit $(cat $T/status)", 1, "Broken pipe");
}

/* ---- one file, two names ---- */

static void refuses_pair(const char *options, const char *says)
{
    char command[1024];
    snprintf(command, sizeof command, GPT "--sample 0 %s", options);
    must_run("cat $T/text $T/plan | md5sum >$T/sum");
    fails(command, 2, says);
    cr_expect(strstr(output, " are one file; "), "%s: %s", options, output);
    must_run("cat $T/text $T/plan | md5sum | cmp - $T/sum; test ! -e $T/run.json; test ! -e $T/d/run.json");
}

Test(outputs, two_outputs_with_one_file_are_refused_before_anything_is_written)
{
    must_run("mkdir $T/d; ln -s d $T/e; ln -s run.json $T/soft; ln -s $T/soft $T/softer; ln $T/plan $T/hard");
    refuses_pair("--log $T/run.json --trace $T/run.json", "each output needs one of its own");
    refuses_pair("--log $T/run.json --plan $T/./d/..//run.json", "--");
    refuses_pair("--log $T/d/run.json --trace $T/e/run.json", "--");
    refuses_pair("--trace $T/run.json --plan $T/softer", "--");
    refuses_pair("--trace $T/plan --plan $T/hard", "--");
    refuses_pair("--log $T/new/run.json --plan $T/new/run.json", "");
    must_run("cd $T; ! $OLDPWD/" GPT "--sample 0 --log run.json --trace d/../run.json; test ! -e run.json");
    must_run(GPT "--sample 0 --log /dev/null --trace /dev/null --plan /dev/null; test -c /dev/null");
}

Test(outputs, an_output_with_the_file_of_an_input_is_refused)
{
    must_run("ln -s text $T/soft; ln $T/text $T/hard");
    refuses_pair("--plan $T/text", "an output must not be an input too");
    refuses_pair("--log $T/soft", "--text");
    refuses_pair("--trace $T/hard", "--text");
    refuses_pair("--validate $T/kept --log $T/kept", "");
    must_run("cmp $T/text $T/kept");
    fails("weir show $T/plan --svg $T/plan", 2, "PLAN ");
    fails("weir show $T/plan --dot $T/plan", 2, "PLAN ");
    fails("weir run $T/plan --made-up --trace $T/plan", 2, "PLAN ");
    fails("weir run $T/plan --made-up --fetch loss=$T/plan", 2, "--fetch loss=");
    fails("weir run $T/plan --made-up --fetch loss=$T/x.npy --trace $T/x.npy", 2, "--fetch loss=");
    must_run("test ! -e $T/x.npy");
    fails(APPS_BIN "/weir-words $T/text --plan $T/hard", 2, "FILE ");
    fails(APPS_BIN "/weir-gpt --steps 1 --plan README.md", 2, "its input ");
    fails(APPS_BIN "/weir-digits --steps 1 --plan apps/data/digits.csv", 2, "its input ");
    must_run("git diff --quiet README.md apps/data || test ! -d .git; weir check $T/plan");
}

Test(outputs, a_stream_that_leads_to_the_file_of_an_output_or_an_input_is_refused)
{
    fails("cp $T/text $T/t; " APPS_BIN "/weir-words $T/t >>$T/t", 2, "standard output and FILE ");
    must_run("cmp $T/text $T/t");
    fails(GPT "--sample 0 --log $T/x >$T/x", 2, "standard output and --log ");
    fails(GPT "--sample 0 --log $T/x 2>$T/x; s=$?; cat $T/x; exit $s", 2, "standard error and --log ");
    fails("weir run $T/plan --made-up --fetch loss=- --trace $T/x.npy >$T/x.npy", 2, "standard output and --trace ");
    must_run(GPT "--sample 0 --log /dev/stdout | grep -q summary");
}

Test(outputs, the_traces_of_all_ranks_count)
{
    fails("weir launch -n 2 -- " GPT "--dp 1 --sample 0 --trace $T/r.json --log $T/r.rank1.json", 2,
          "--log ");
    must_run("test ! -e $T/r.rank1.json; test ! -e $T/r.rank0.json");
}

/* ---- what is no regular file, and what is a link ---- */

Test(outputs, a_device_is_written_and_stays)
{
    must_run("mknod $T/full c 1 7 2>/dev/null || ln -s /dev/full $T/full; test -c $T/full");
    fails(GPT "--sample 0 --plan $T/full", 1, "/full: cannot be written: " FULL "\n");
    fails(GPT "--sample 0 --trace $T/full", 1, "/full: the trace cannot be written: " FULL "\n");
    fails("weir run $T/plan --made-up --trace $T/full", 1, "/full: the trace cannot be written: " FULL "\n");
    fails("weir run $T/plan --made-up --fetch loss=$T/full", 1, "/full: cannot be written: " FULL "\n");
    fails("weir show $T/plan --dot $T/full", 2, "/full: " FULL "\n");
    fails("weir show $T/plan --svg $T/full", 2, "/full: " FULL "\n");
    fails(APPS_BIN "/weir-words --words 1 --plan $T/full $T/text", 1, "/full: cannot be written: " FULL "\n");
    fails("weir keygen $T/full", 2, "/full: File exists\n");
    must_run("test -c $T/full; ls $T; test $(ls -A $T | wc -l) = 4"); /* text, kept, plan */
}

Test(outputs, a_log_that_cannot_be_written_is_reported_once_when_it_happens)
{
    fails(GPT "--sample 0 --log /dev/full 2>&1 | tee $T/said; exit ${PIPESTATUS:-2}", 2, "training goes on\n");
    must_run("test $(grep -c -- --log $T/said) = 1");
    must_run("test $(sed -n '/--log/=' $T/said) -lt $(sed -n '/^2 steps in/=' $T/said)");
    fails(GPT "--sample 0 --log /dev/full", 2, "--log: cannot write /dev/full: " FULL "; the log ends here, training");
}

Test(outputs, links_are_written_through)
{
    must_run("mkdir $T/d; for f in plan trace log; do echo old >$T/d/$f.file; ln -s d/$f.file $T/$f.link; done");
    must_run(GPT "--sample 0 --plan $T/plan.link --trace $T/trace.link --log $T/log.link");
    must_run("for f in plan trace log; do test -L $T/$f.link; test -f $T/d/$f.file; ! grep -q old $T/d/$f.file; done");
    must_run("weir check $T/d/plan.file; test $(ls -A $T/d | wc -l) = 3");
}

Test(outputs, links_that_lead_nowhere_make_their_file)
{
    must_run("mkdir $T/d; for f in plan trace log; do ln -s $f.more $T/$f.link; ln -s d/$f.file $T/$f.more; done");
    must_run(GPT "--sample 0 --plan $T/plan.link --trace $T/trace.link --log $T/log.link");
    must_run("for f in plan trace log; do test -L $T/$f.link; test -L $T/$f.more; test -s $T/d/$f.file; done");
    must_run("weir check $T/plan.link; test $(ls -A $T/d | wc -l) = 3");
}

Test(outputs, a_plan_goes_to_a_fifo_and_to_standard_output)
{
    must_run("mkfifo $T/fifo; cat $T/fifo >$T/a & " GPT "--sample 0 --plan $T/fifo; wait; cmp $T/a $T/plan; test -p $T/fifo");
    must_run(GPT "--sample 0 --plan /dev/stdout 2>/dev/null | cmp - $T/plan");
    must_run(APPS_BIN "/weir-words --words 1 --plan $T/w $T/text >$T/words 2>/dev/null");
    must_run(APPS_BIN "/weir-words --words 1 --plan /dev/fd/3 $T/text 3>$T/v >/dev/null 2>&1; cmp $T/v $T/w");
}

Test(outputs, a_run_that_is_refused_makes_no_file_and_leaves_old_ones)
{
    must_run("echo old >$T/log; ln -s nowhere $T/link");
    fails(GPT "--sample 0 --trace $T/link --plan /nowhere/plan --log $T/log", 2, "--plan: cannot write /nowhere/plan");
    fails(GPT "--sample 0 --trace /nowhere/x --plan $T/new", 2, "--trace: cannot write /nowhere/x");
    fails(GPT "--sample 0 --memory 1KiB --plan $T/new --log $T/log", 1, "limit of 1KiB");
    must_run("test -L $T/link; test ! -e $T/nowhere; test ! -e $T/new; test \"$(cat $T/log)\" = old");
}

Test(outputs, an_old_trace_stays_until_the_new_one_is_written)
{
    must_run("seq 100000 >$T/trace; cp $T/trace $T/old");
    must_run(APPS_BIN "/weir run $T/plan --made-up --steps 1e9 --trace $T/trace >$T/steps & p=$!; "
             "until test -s $T/steps; do sleep 0.1; done; kill -KILL $p; wait $p; cmp $T/trace $T/old");
    must_run("weir run $T/plan --made-up --steps 1 --trace $T/trace; tail -c 4 $T/trace | grep -q ']}'; ! grep -q '^9$' $T/trace");
}

Test(outputs, a_safetensors_file_behind_a_link_is_replaced_there)
{
    must_run(GPT "--sample 0 --save $T/run; mkdir $T/d; ln -s d/m $T/m.safetensors");
    must_run("weir checkpoint convert $T/run $T/m.safetensors; test -L $T/m.safetensors; test -f $T/d/m");
    must_run("weir checkpoint verify $T/m.safetensors; test $(ls -A $T/d | wc -l) = 1");
    must_run("ln -s /dev/full $T/full.safetensors");
    fails("weir checkpoint convert $T/run $T/full.safetensors", 1, "full.safetensors: ");
    must_run("test -L $T/full.safetensors; test -c $T/full.safetensors; weir checkpoint verify $T/run");
}
