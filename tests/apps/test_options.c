/* tests/apps/test_options.c: what programs say of a command line, and of what the library said. */
#include "apps/common/options.h"
#include "graph/base/error.h"
#include "tests/apps/shell.h"

#include <string.h>

TestSuite(options, .init = folder_make, .fini = folder_remove, .timeout = 120);

Test(options, an_error_loses_the_line_of_the_program_s_own_source_and_no_other)
{
    static const char *const cases[][3] = {
        {"weir-gpt", "apps/common/train/trainer.c:63: compile: no", "compile: no"},
        {"weir-gpt", "apps/weir-gpt/main.c:7: no", "no"},
        {"weir run", "apps/weir/run.c:401: weir_session_open: no", "weir_session_open: no"},
        {"weir run", "model.c:12: relu: no", "model.c:12: relu: no"},
        {"weir run", "apps/mine/model.c:12: relu: no", "apps/mine/model.c:12: relu: no"},
        {"weir run", "apps/weir-gpt/main.c:7: no", "apps/weir-gpt/main.c:7: no"},
        {"weir run", "apps/weir/: no", "apps/weir/: no"},
        {"weir run", "apps/common/x.c:: no", "apps/common/x.c:: no"},
        {"weir run", "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        error_set(WEIR_E_ARGUMENT, "%s", cases[i][1]);
        cr_expect_str_eq(options_error(cases[i][0]), cases[i][2]);
    }
}

/* The command ends with this status, and says this, but names no source of its own. */
static void fails(const char *command, int status, const char *says)
{
    int got = run(command);
    cr_expect_eq(got, status, "%s: status %d, not %d: %s", command, got, status, output);
    cr_expect(strstr(output, says), "%s: says \"%s\", not \"%s\"", command, output, says);
    cr_expect(!strstr(output, "apps/common/") && !strstr(output, "apps/weir"), "%s: %s", command, output);
}

#define GPT APPS_BIN "/weir-gpt --layers 1 --dim 16 --heads 2 --seq 16 --batch 4 --text README.md --sample 0 "

Test(options, errors_of_the_command_name_no_source_of_its_own)
{
    fails(GPT "--memory 12foo", 1, "compile: \"12foo\" is not an amount of memory");
    fails(GPT "--memory 1KiB", 1, "more than the limit of 1KiB");
    fails(GPT "--link foo", 1, "compile: \"foo\" is no link between hosts");
    fails(GPT "--offload foo --memory 1GB", 1, "compile: \"foo\" is no place to offload to");
    fails(APPS_BIN "/weir-digits --memory 12foo", 1, "compile: \"12foo\" is not an amount of memory");
    must_run(GPT "--steps 1 --plan $T/plan");
    fails("weir run $T/plan --made-up --program evl", 2, "did you mean");
    fails("weir run $T/plan --made-up --load-params LICENSE", 1, "LICENSE");
}

Test(options, the_event_loop_reads_what_standard_input_is)
{
    must_run("printf '1\\n2\\n3' >$T/three");
    static const char *const from[][2] = {{"<$T/three", "3.5\n6.5\n9.5\n"}, {"</dev/null", ""}, {"<&-", ""}};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        char command[256];
        snprintf(command, sizeof command, "timeout 30 " APPS_BIN "/event_loop %s", from[i][0]);
        must_run(command);
        cr_expect_str_eq(output, from[i][1]);
    }
    must_run("cat $T/three | timeout 30 " APPS_BIN "/event_loop");
    cr_expect_str_eq(output, "3.5\n6.5\n9.5\n");
    fails("timeout 30 " APPS_BIN "/event_loop </tmp", 1, "standard input cannot be read: Is a directory");
}

/* A dot that takes long, in its place. */
#define SLOW_DOT "mkdir -p $T/slow; printf '#!/bin/sh\\necho \"<svg\"; echo $$ >$T/dot; exec sleep 100' >$T/slow/dot; " \
                 "chmod +x $T/slow/dot; "

Test(options, a_picture_that_takes_long_says_so_and_a_signal_leaves_no_file)
{
    must_run(GPT "--steps 1 --plan $T/plan");
    must_run(SLOW_DOT "PATH=$T/slow:$PATH timeout -s TERM 4 " APPS_BIN "/weir show $T/plan --svg $T/new.svg; "
             "test $? = 124 && test ! -e $T/new.svg && ! kill -0 $(cat $T/dot) 2>/dev/null");
    cr_expect(strstr(output, "weir show: dot draws; plans of many actors take minutes\n"), "%s", output);
    must_run(SLOW_DOT "echo old >$T/old.svg; PATH=$T/slow:$PATH timeout -s INT 1 " APPS_BIN
             "/weir show $T/plan --svg $T/old.svg; grep -q old $T/old.svg && ls -A $T");
    cr_expect(!strstr(output, "svg."), "%s", output);
    must_run("ln -s old.svg $T/link.svg; weir show $T/plan --svg $T/link.svg && test -L $T/link.svg && "
             "grep -q '<svg' $T/old.svg");
    fails("weir show $T/plan --svg $T/no/such.svg", 2, "such.svg: No such file or directory");
    fails("weir show $T/plan --svg $T", 2, "Is a directory");
}

Test(options, a_name_that_does_not_exist_is_told_with_those_that_do)
{
    fails("weir shwo", 2, "there is no verb \"shwo\"; did you mean 'show'?");
    fails("weir checkpoint list", 2, "There are 'ls', 'verify' and 'convert'");
    fails("weir bench actor", 2, "did you mean 'actors'?");
    fails(APPS_BIN "/weir-gpt --stepz 3", 2, "unknown option --stepz (did you mean --steps?)");
    fails("weir devices --zzzzzzzzzzz", 2, "there is no option --zzzzzzzzzzz; there is '--json'");
    must_run(GPT "--steps 1 --plan $T/plan");
    fails("weir show $T/plan --tensors --filter lss", 2, "did you mean 'loss'?");
    fails("weir show $T/plan --device cpuu:0", 2, "there is 'cpu:0'");
    fails("weir run $T/plan --made-up --fetch lss=x.npy", 2, "did you mean 'loss'?");
    must_run(GPT "--steps 4 --save $T/runs --save-every 2");
    static const char *const near = "did you mean 'best'? There are 'best', 'step-00000002' and 'step-00000004' in ";
    fails("weir checkpoint ls $T/runs/bets", 2, near);
    fails("weir checkpoint convert $T/runs/bets/ $T/x.safetensors", 2, near);
    fails("weir run $T/plan --made-up --load-params $T/runs/bets", 2, near);
    fails(APPS_BIN "/weir-gpt --load $T/runs/bets", 2, near);
    fails(GPT "--resume $T/runs/bets", 2, near);
    fails("weir show $T/pln", 2, "/plan?)");
    fails("weir=$PWD/" APPS_BIN "/weir; cd $T && $weir check pln", 2, "(did you mean plan?)");
    fails("weir run $T/plan --made-up --feed byts=x.npy", 2, "--feed: \"byts\" is no input");
}
