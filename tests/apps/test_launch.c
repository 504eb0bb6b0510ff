/* tests/apps/test_launch.c: weir launch on this host: what ranks are told and print, how they end, restarts, signals. */
#include "tests/apps/launcher.h"

#include <pty.h>

TestSuite(launch, .init = make_folder, .fini = remove_folder, .timeout = 60);

/* ---- what ranks are told ---- */

Test(launch, each_rank_is_told_who_it_is)
{
    expect_status(LAUNCH "-n 3 -- sh -c 'echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE at $MASTER_ADDR'",
                  0);
    expect_line(output, "[0] 0 of 3, 0 of 3 at 127.0.0.1");
    expect_line(output, "[1] 1 of 3, 1 of 3 at 127.0.0.1");
    expect_line(output, "[2] 2 of 3, 2 of 3 at 127.0.0.1");
    cr_expect(!errors[0], "%s", errors);
}

Test(launch, options_reach_the_ranks)
{
    const char tell[] = "-- sh -c 'echo $MASTER_PORT $WEIR_LIVENESS $WEIR_STALL $WEIR_JOIN $WEIR_DEVICES "
                        "$WEIR_INSECURE $WEIR_CARRIER.'";
    char command[1024];
    snprintf(command, sizeof command,
             LAUNCH "-n 1 --port 1234 --liveness 1.5 --stall 0 --join 7 --devices 4 --insecure --carrier ipc,tcp %s", tell);
    expect_status(command, 0);
    expect_line(output, "[0] 1234 1.5 0 7 4 1 ipc,tcp.");
    snprintf(command, sizeof command, LAUNCH "-n 1 %s", tell);
    expect_status(command, 0);
    int port = 0;
    cr_expect(sscanf(output, "[0] %d", &port) == 1 && port >= 20000 && port < 30000 && strstr(output, " .\n"),
              "%s", output);
}

Test(launch, hosts_take_ranks_in_their_order)
{
    expect_status("WEIR_RSH=$T/rsh WEIR_FROM_HERE=\"it's\" UCX_FROM_HERE=so " LAUNCH "--hosts a:2,me@b,localhost,a -- "
                  "sh -c 'echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE at $MASTER_ADDR, $WEIR_FROM_HERE "
                  "$UCX_FROM_HERE'", 0);
    expect_line(output, "[0] 0 of 5, 0 of 3 at a, it's so");
    expect_line(output, "[1] 1 of 5, 1 of 3 at a, it's so");
    expect_line(output, "[2] 2 of 5, 0 of 1 at a, it's so");
    expect_line(output, "[3] 3 of 5, 0 of 1 at a, it's so");
    expect_line(output, "[4] 4 of 5, 2 of 3 at a, it's so");
    cr_expect(!errors[0], "%s", errors);
}

/* libgomp binds the launcher itself: what it starts is to have what the launcher was given. */
Test(launch, ranks_get_the_cores_that_the_launcher_was_given)
{
#define TELL "grep Cpus_allowed_list /proc/self/status"
    char masks[2][256];
    for (int bound = 0; bound < 2; bound++) {
        const char *form = bound ? "[0] Cpus_allowed_list: %255s" : "Cpus_allowed_list: %255s";
        expect_status(bound ? "OMP_PROC_BIND=true OMP_PLACES=cores " LAUNCH "-n 1 -- " TELL : TELL, 0);
        cr_assert_eq(sscanf(output, form, masks[bound]), 1, "%s", output);
    }
#undef TELL
    cr_expect(!strcmp(masks[0], masks[1]), "%s rather than %s", masks[1], masks[0]);
}

Test(launch, rank_0_reads_the_standard_input)
{
    expect_status("echo hello | " LAUNCH "-n 2 -- sh -c 'echo $RANK got \"$(cat)\"'", 0);
    expect_line(output, "[0] 0 got hello");
    expect_line(output, "[1] 1 got ");
    expect_status("echo hello | WEIR_RSH=$T/rsh " LAUNCH "--hosts a,b -- sh -c 'echo $RANK got \"$(cat)\"'", 0);
    expect_line(output, "[0] 0 got ");
    expect_line(output, "[1] 1 got ");
}

/* All that follows the program is its own: options that weir launch has too, and "--". */
Test(launch, the_program_begins_at_the_first_argument_that_is_no_option)
{
    expect_status(LAUNCH "-n 2 echo hello", 0);
    expect_line(output, "[0] hello");
    expect_line(output, "[1] hello");
    expect_status(LAUNCH "--insecure -n=1 --no-prefix printf '%s ' x --help -n 3 -- y", 0);
    cr_expect_str_eq(output, "x --help -n 3 -- y ");
    expect_status(LAUNCH "-n 1 --no-prefix -- printf '%s ' -- --port x", 0);
    cr_expect_str_eq(output, "-- --port x ");
    expect_status(LAUNCH "-n 1 --no-prefix " APPS_BIN "/weir --help", 0);
    cr_expect(strstr(output, "usage: weir VERB"), "%s", output);
    expect_status(LAUNCH "-n 1 --help echo", 0);
    cr_expect(strstr(output, "usage: weir launch"), "%s", output);
}

Test(launch, mistakes_get_one_line_and_status_2)
{
    const char *const wrong[][2] = {
        {"-- true", "needs -n N or --hosts"},
        {"-n 2", "needs a program to start"},
        {"-n 2 --", "needs a program to start"},
        {"true", "needs -n N or --hosts"},
        {"--np 4 true", "unknown option --np (did you mean -n?)"},
        {"-n -- true", "-n needs a value"},
        {"-n 0 -- true", "-n must be between 1 and 1024, not 0"},
        {"-n 3 --hosts a,b -- true", "-n 3, but --hosts has room for 2"},
        {"-n 3 --hosts a,b --min-ranks 1 -- true", "-n 3, but --hosts has room for 2"},
        {"-n 3 --min-ranks 4 -- true", "--min-ranks 4 is more than the 3 ranks"},
        {"--ranks-file /nowhere -- true", "/nowhere says no number of ranks, and there is no -n N"},
        {"--hosts a:x -- true", "\"a:x\" does not end in a count"},
        {"--hosts a,,b -- true", "\"\" is no name of a host"},
        {"--hosts -oProxyCommand=x -- true", "is no name of a host"},
        {"--hosts 'a b' -- true", "\"a b\" is no name of a host"},
        {"--hosts a:1000,b:1000 -- true", "more than 1024 ranks"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char command[256];
        snprintf(command, sizeof command, LAUNCH "%s", wrong[i][0]);
        expect_status(command, 2);
        cr_expect(strstr(errors, wrong[i][1]) && count_text(errors, "\n") == 1, "%s: %s", wrong[i][0], errors);
        cr_expect(!output[0], "%s", output);
    }
}

/* ---- output ---- */

Test(launch, lines_of_several_ranks_never_mix)
{
    expect_status(LAUNCH "-n 4 -- sh -c 'i=0; while [ $i -lt 500 ]; do printf $RANK; printf \" $RANK$RANK\"; echo; "
                         "printf $RANK >&2; echo e >&2; i=$((i + 1)); done' 2>&1", 0);
    int counts[4][2] = {{0}}, lines = 0;
    char *rest = NULL;
    for (char *line = strtok_r(output, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest), lines++)
        for (int r = 0; r < 4; r++) {
            char out[64], err[64];
            snprintf(out, sizeof out, "[%d] %d %d%d", r, r, r, r);
            snprintf(err, sizeof err, "[%d] %de", r, r);
            counts[r][0] += !strcmp(line, out);
            counts[r][1] += !strcmp(line, err);
        }
    cr_expect_eq(lines, 4000);
    for (int r = 0; r < 4; r++)
        cr_expect(counts[r][0] == 500 && counts[r][1] == 500, "rank %d: %d and %d", r, counts[r][0], counts[r][1]);
}

Test(launch, stdout_and_stderr_stay_apart)
{
    expect_status(LAUNCH "-n 1 -- sh -c 'echo result; printf complaint >&2'", 0);
    cr_expect_str_eq(output, "[0] result\n");
    cr_expect_str_eq(errors, "[0] complaint\n");
}

Test(launch, a_long_line_is_cut)
{
    expect_status(LAUNCH "-n 1 -- sh -c 'head -c 200000 /dev/zero | tr \"\\0\" x; echo; echo end'", 0);
    size_t lengths[4] = {65536 + 4, 65536 + 4, 65536 + 4, 200000 - 3 * 65536 + 4};
    const char *line = output;
    for (int i = 0; i < 4; i++) {
        cr_assert(!strncmp(line, "[0] x", 5), "line %d", i);
        cr_expect_eq(strcspn(line, "\n"), lengths[i]);
        line += strcspn(line, "\n") + 1;
    }
    cr_expect_str_eq(line, "[0] end\n");
}

Test(launch, without_prefix_bytes_stay_as_they_are)
{
    expect_status(LAUNCH "-n 1 --no-prefix -- sh -c 'head -c 100000 /dev/zero | tr \"\\0\" x; printf \"\\n\\nend\"'",
                  0);
    cr_expect_eq(strspn(output, "x"), 100000);
    cr_expect_str_eq(output + 100000, "\n\nend");
}

Test(launch, a_reader_that_goes_away_ends_the_ranks)
{
    expect_status("(" LAUNCH "-n 2 -- yes; echo $? >$T/status) | head -n 1 >$T/head", 0);
    cr_expect_str_eq(read_file("status", output), "141\n");
    cr_expect(strstr(errors, "signal 13"), "%s", errors);
}

/* ---- ends ---- */

Test(launch, the_first_failure_decides)
{
    expect_status(LAUNCH "-n 3 --liveness 0.1 -- sh -c '[ $RANK = 1 ] && exit 7; sleep 0.3; exit $((RANK + 1))'", 7);
    int id = 0, used = 0;
    sscanf(errors, "weir launch: rank 1 (pid %d on localhost) ended with status 7\n%n", &id, &used);
    cr_expect(used && !errors[used], "%s", errors);
}

Test(launch, a_rank_that_was_killed_is_named)
{
    expect_status(LAUNCH "-n 3 -- sh -c 'echo $$ >>$T/pids; [ $RANK = 2 ] && kill -9 $$; sleep 0.2'", 137);
    cr_expect(strstr(errors, "on localhost) was ended by signal 9 (Killed)\n"), "%s", errors);
    cr_expect(strstr(errors, "weir launch: rank 2 (pid "), "%s", errors);
    expect_gone(3, 0);
}

/* Rank 1 ends by itself, rank 2 when asked, rank 3 never. */
static void expect_grace(const char *how)
{
    char command[1024];
    snprintf(command, sizeof command,
             "%s --liveness 0.1 -- sh -c 'sleep 300 & echo $$ $! >>$T/pids; case $RANK in "
             "0) sleep 0.3; exit 3;; "
             "1) sleep 0.6; echo noticed; exit 1;; "
             "2) trap \"echo asked; exit 2\" TERM; while :; do sleep 0.1; done;; "
             "3) trap \"\" TERM; echo stays; while :; do sleep 0.1; done;; "
             "esac'", how);
    expect_status(command, 3);
    expect_line(output, "[1] noticed");
    expect_line(output, "[2] asked");
    expect_line(output, "[3] stays");
    cr_expect(count_text(errors, "weir launch:") == 1 && strstr(errors, "weir launch: rank 0 (pid "), "%s", errors);
    expect_gone(8, 0);
}

Test(launch, the_others_get_time_to_end_by_themselves)
{
    expect_grace(LAUNCH "-n 4");
}

Test(launch, the_others_get_time_on_other_hosts_too)
{
    expect_grace("WEIR_RSH=$T/rsh " LAUNCH "--hosts a:2,b:2");
}

/* Rank 1 has stopped; rank 0 declares it lost, rank 2 has the grace of 22 s to say so too. */
static void expect_no_grace(const char *how)
{
    char command[1024];
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    snprintf(command, sizeof command,
             "%s --liveness 20 -- sh -c 'echo $$ >>$T/pids; case $RANK in "
             "0) sleep 0.3; echo \"$WEIR_LAUNCHER lost 1\" >&2; exit 3;; "
             "1) kill -STOP $$;; "
             "2) sleep 1; echo noticed; exit 1;; "
             "esac'", how);
    expect_status(command, 3);
    clock_gettime(CLOCK_MONOTONIC, &end);
    expect_line(output, "[2] noticed");
    cr_expect(count_text(errors, "weir") == 1 && strstr(errors, "weir launch: rank 0 (pid "), "%s", errors);
    cr_expect_lt(end.tv_sec - begin.tv_sec, 10);
    expect_gone(3, 0);
}

Test(launch, a_rank_that_was_declared_lost_gets_no_grace)
{
    expect_no_grace(LAUNCH "-n 3");
}

Test(launch, a_rank_that_was_declared_lost_gets_no_grace_on_other_hosts)
{
    expect_no_grace("WEIR_RSH=$T/rsh " LAUNCH "--hosts a:1,b:2");
}

Test(launch, what_cannot_be_started_gets_one_line)
{
    expect_status(LAUNCH "-n 2 -- /nowhere/program", 127);
    cr_expect_str_eq(errors, "weir launch: cannot start /nowhere/program: No such file or directory\n");
    expect_status(LAUNCH "-n 2 -- /etc/passwd", 126);
    cr_expect_str_eq(errors, "weir launch: cannot start /etc/passwd: Permission denied\n");
    expect_status("WEIR_RSH=/nowhere/rsh " LAUNCH "--hosts a -- true", 127);
    cr_expect_str_eq(errors, "weir launch: cannot start /nowhere/rsh for rank 0 on a: No such file or directory\n");
}

Test(launch, a_rank_that_does_not_start_ends_those_that_did)
{
    expect_status("WEIR_RSH=/nowhere/rsh " LAUNCH "--hosts localhost:2,a -- sh -c 'echo $$ >>$T/pids; sleep 300'", 127);
    expect_gone(0, 0);
}

Test(launch, what_ranks_leave_behind_is_ended)
{
    expect_status(LAUNCH "-n 2 -- sh -c 'sleep 300 & echo $! >>$T/pids; setsid sh -c \"echo \\$\\$ >>$T/pids; "
                         "sleep 301\" >/dev/null 2>&1 & sleep 0.3; echo over'", 0);
    cr_expect_eq(count_text(output, "over\n"), 2);
    expect_gone(4, 0);
}

/* ---- generations ---- */

Test(launch, a_lost_rank_starts_all_anew)
{
    expect_status(LAUNCH "--restarts 3 -n 3 -- sh -c 'echo $$ >>$T/pids; "
                  "echo $RANK of $WORLD_SIZE in $WEIR_GENERATION with $WEIR_RESTARTS left at $MASTER_PORT; "
                  "[ $WEIR_GENERATION = $RANK ] && kill -9 $$; [ $WEIR_GENERATION = 3 ] || sleep 300; true'", 0);
    const char *left[] = {"3", "2", "1", "0"};
    int ports[4] = {0};
    for (int g = 0; g < 4; g++) {
        char begin[64];
        snprintf(begin, sizeof begin, "[2] 2 of 3 in %d with %s left at ", g, left[g]);
        const char *line = strstr(output, begin);
        cr_assert(line, "no '%s': %s%s", begin, output, errors);
        ports[g] = atoi(line + strlen(begin));
    }
    cr_expect(ports[0] != ports[1] || ports[1] != ports[2], "a port that may be a dying process's");
    for (int g = 0; g < 3; g++) {
        char says[160];
        snprintf(says, sizeof says,
                 "on localhost) was ended by signal 9 (Killed); restart %d of 3 as generation %d with 3 ranks\n", g + 1,
                 g + 1);
        cr_expect(strstr(errors, says), "no '%s': %s", says, errors);
    }
    cr_expect_eq(count_text(errors, "\n"), 3, "%s", errors);
    expect_gone(12, 0);
}

Test(launch, restarts_have_an_end)
{
    expect_status(LAUNCH "--restarts 2 -n 2 -- sh -c 'echo in $WEIR_GENERATION; [ $RANK = 0 ] || exit 7; sleep 300'",
                  7);
    expect_line(output, "[0] in 2");
    cr_expect_eq(count_text(errors, "restart "), 2, "%s", errors);
    cr_expect(strstr(errors, " ended with status 7; it was the last of 2 restarts\n"), "%s", errors);
}

/* A mistake in the command line, what cannot be started, and what was stopped on purpose. */
Test(launch, what_would_end_like_that_again_is_not_restarted)
{
    const char *const ends[] = {"exit 2",   "exit 126", "exit 127", "exit 130",
                                "exit 143", "kill -TERM $$", "kill -INT $$"};
    const int statuses[] = {2, 126, 127, 130, 143, 143, 130};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char command[256];
        snprintf(command, sizeof command, LAUNCH "--restarts 5 -n 1 -- sh -c 'echo once; %s'", ends[i]);
        expect_status(command, statuses[i]);
        cr_expect_eq(count_text(output, "once"), 1, "%s: %s", ends[i], output);
        cr_expect(!strstr(errors, "restart"), "%s", errors);
    }
}

/* Rank 1 has not come to hear the signal yet, and rank 0 misses it. */
Test(launch, ranks_that_miss_others_while_their_number_changes_are_no_loss)
{
    pid_t id = start("echo 2 >$T/ranks; exec " LAUNCH "--ranks-file $T/ranks -- sh -c '"
                     "[ $WEIR_GENERATION = 1 ] && echo again $WORLD_SIZE && exit; "
                     "[ $RANK = 0 ] && trap \"sleep 0.3; exit 1\" TERM; echo ready; while :; do sleep 0.05; done'");
    wait_for("ready\n", 2);
    write_script("ranks", "3\n");
    int status = finish(id);
    cr_expect(status == 0, "status %d: %s", status, errors);
    cr_expect_eq(count_text(output, "again 3\n"), 3, "%s%s", output, errors);
    cr_expect(!strstr(errors, "restart"), "%s", errors);
}

Test(launch, restarts_reach_other_hosts)
{
    expect_status("WEIR_RSH=$T/rsh " LAUNCH "--restarts 1 --hosts a,b,localhost -- sh -c 'echo $$ >>$T/pids; "
                  "echo $RANK in $WEIR_GENERATION; [ $WEIR_GENERATION = 1 ] && exit 0; [ $RANK = 1 ] && kill -9 $$; "
                  "sleep 300'", 0);
    expect_line(output, "[0] 0 in 1");
    expect_line(output, "[1] 1 in 1");
    expect_line(output, "[2] 2 in 1");
    cr_expect(strstr(errors, "on b) was ended by signal 9 (Killed); restart 1 of 1 as generation 1 with 3 ranks\n"),
              "%s", errors);
    expect_gone(6, 1000);
}

/* Asked to stop, a rank of these saves. */
#define SAVE "trap \"echo saved; exit 143\" TERM; trap \"echo saved; exit 130\" INT; "

static void expect_stop(int sig)
{
    pid_t id = start("exec " LAUNCH "--restarts 3 -n 2 -- sh -c '" SAVE "echo ready $WEIR_GENERATION; while :; do "
                     "sleep 0.05; done'");
    wait_for("ready 0", 2);
    kill(id, sig);
    int status = finish(id);
    cr_expect_eq(status, 128 + sig, "%d: %s%s", status, output, errors);
    cr_expect_eq(count_text(output, "saved"), 2, "%s", output);
    cr_expect(!strstr(errors, "weir launch"), "%s", errors);
}

Test(launch, an_interrupt_stops_all_for_good)
{
    expect_stop(SIGINT);
}

Test(launch, a_termination_stops_all_for_good)
{
    expect_stop(SIGTERM);
}

Test(launch, another_number_of_ranks_takes_over)
{
    pid_t id = start("echo 2 >$T/ranks; exec " LAUNCH "--ranks-file $T/ranks -- sh -c '" SAVE
                     "echo ready $RANK of $WORLD_SIZE in $WEIR_GENERATION; while [ ! -e $T/over ]; do sleep 0.05; "
                     "done'");
    wait_for("of 2 in 0", 2);
    write_script("ranks", "4\n");
    wait_for("of 4 in 1", 4);
    cr_expect_eq(count_text(output, "saved"), 2, "%s", output);
    write_script("ranks", "many\n");
    sleep_ms(500);
    write_script("ranks", "1\n");
    wait_for("of 1 in 2", 1);
    cr_expect_eq(count_text(output, "saved"), 6, "%s", output);
    write_script("over", "");
    cr_expect_eq(finish(id), 0);
    expect_line(errors, "weir launch: from 2 to 4 ranks: those that run stop, and go on as generation 1");
    expect_line(errors, "weir launch: from 4 to 1 ranks: those that run stop, and go on as generation 2");
    cr_expect(strstr(errors, "/ranks says \"many\", which is no number of ranks between 1 and 1024\n"), "%s", errors);
}

/* Host b is there, then it is not, then it is again. */
Test(launch, goes_on_without_a_host_that_is_gone_until_it_is_back)
{
    write_script("down", "#!/bin/sh\n[ $1 != b ] || [ ! -e $T/b-is-down ] || exit 255\nexec $T/rsh \"$@\"\n");
    pid_t id = start("WEIR_RSH=$T/down exec " LAUNCH "--restarts 9 --min-ranks 2 --hosts a:2,b:2 -- sh -c '"
                     "echo ready $RANK of $WORLD_SIZE in $WEIR_GENERATION; while [ ! -e $T/kill-$WEIR_GENERATION ]; do "
                     "sleep 0.05; done; [ $WEIR_GENERATION -lt 3 ] || exit 0; [ $RANK = 0 ] && kill -9 $$; sleep 300'");
    wait_for("of 4 in 0", 4);
    write_script("b-is-down", "");
    write_script("kill-0", "");
    wait_for("of 2 in 2", 2); /* in 1 two did not start */
    cr_expect_eq(unlink_file("b-is-down"), 0);
    sleep_ms(6000); /* it is asked every 5 s */
    write_script("kill-2", "");
    wait_for("of 4 in 3", 4);
    write_script("kill-3", "");
    cr_expect_eq(finish(id), 0, "%s", errors);
    cr_expect(strstr(errors, " did not start on b: the remote shell ended with status 255; restart 2 of 9 as "
                             "generation 2 with 2 ranks\n"), "%s", errors);
}

Test(launch, waits_for_hosts_when_too_few_are_left)
{
    write_script("down", "#!/bin/sh\n[ ! -e $T/down-$1 ] || exit 255\nexec $T/rsh \"$@\"\n");
    write_script("down-b", "");
    write_script("down-c", "");
    expect_status("WEIR_RSH=$T/down " LAUNCH "--restarts 9 --join 1 --min-ranks 2 --hosts a,b,c -- sleep 300", 1);
    cr_expect(strstr(errors, "weir launch: waits for hosts that are gone (b, c): there is room for 1 ranks\n"), "%s",
              errors);
    cr_expect(strstr(errors, "weir launch: no longer waits for hosts that are gone"), "%s", errors);
}

/* ---- signals ---- */

#define LISTEN \
    "sh -c 'trap \"echo usr1\" USR1; trap \"echo usr2\" USR2; trap \"echo hup\" HUP; trap \"echo int; exit 4\" INT; " \
    "trap \"echo quit\" QUIT; echo ready; while :; do sleep 0.05; done'"

static void expect_signals(const char *command, int ranks)
{
    static const struct {
        int sig;
        const char *says;
    } signals[] = {{SIGUSR1, "] usr1\n"}, {SIGUSR2, "] usr2\n"}, {SIGHUP, "] hup\n"},
                   {SIGQUIT, "] quit\n"}, {SIGINT, "] int\n"}};
    pid_t id = start(command);
    wait_for("] ready\n", ranks);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        kill(id, signals[i].sig);
        wait_for(signals[i].says, ranks);
    }
    int status = finish(id);
    cr_expect(status == 4, "status %d: %s", status, errors);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        cr_expect_eq(count_text(output, signals[i].says), ranks, "%s: %s", signals[i].says, output);
}

Test(launch, signals_are_passed_on_once)
{
    expect_signals("exec " LAUNCH "-n 3 -- " LISTEN, 3);
}

Test(launch, signals_are_passed_on_to_other_hosts)
{
    expect_signals("WEIR_RSH=$T/rsh exec " LAUNCH "--hosts a,b,localhost -- " LISTEN, 3);
}

Test(launch, a_signal_ends_what_does_not_listen)
{
    pid_t id = start("exec " LAUNCH "-n 2 -- sh -c 'echo ready; sleep 300'");
    wait_for("ready", 2);
    kill(id, SIGTERM);
    cr_expect_eq(finish(id), 128 + SIGTERM);
    cr_expect(strstr(errors, "was ended by signal 15 (Terminated)"), "%s", errors);
}

Test(launch, the_second_interrupt_kills)
{
    pid_t id = start("WEIR_RSH=$T/rsh exec " LAUNCH "--hosts localhost,a -- sh -c 'trap \"\" INT TERM; sleep 300 & "
                     "echo $$ $! >>$T/pids; echo ready; while :; do sleep 0.1; done'");
    wait_for("ready", 2);
    kill(id, SIGINT);
    sleep_ms(100);
    kill(id, SIGINT);
    cr_expect_eq(finish(id), 128 + SIGKILL);
    expect_gone(4, 0);
}

Test(launch, what_the_caller_ignores_stays_ignored)
{
    pid_t id = start("trap '' HUP; exec " LAUNCH "-n 1 -- sh -c 'echo ready; sleep 0.5; echo over'");
    wait_for("ready", 1);
    kill(id, SIGHUP);
    cr_expect_eq(finish(id), 0);
    expect_line(output, "[0] over");
}

static void expect_nothing_left(const char *command, int ranks)
{
    pid_t id = start(command);
    wait_for("ready", ranks);
    kill(id, SIGKILL);
    cr_expect_eq(finish(id), -1);
    expect_gone(2 * ranks, 5000);
}

Test(launch, a_launcher_that_is_killed_leaves_nothing)
{
    expect_nothing_left("exec " LAUNCH "-n 3 -- sh -c 'sleep 300 & echo $$ $! >>$T/pids; echo ready; wait; true'", 3);
}

Test(launch, a_launcher_that_is_killed_leaves_nothing_elsewhere)
{
    expect_nothing_left("WEIR_RSH=$T/rsh exec " LAUNCH "--hosts a:2,b -- sh -c 'sleep 300 & echo $$ $! >>$T/pids; "
                        "echo ready; wait; true'", 3);
}

/* On a terminal Ctrl-C goes to all of the foreground, where rank 0 has to be to read it; nobody gets it twice. */
Test(launch, a_terminal_interrupts_once)
{
    int terminal, status;
    char text[4096] = "";
    size_t used = 0;
    pid_t id = forkpty(&terminal, NULL, NULL, NULL);
    cr_assert(id >= 0);
    if (!id) {
        execl("/bin/sh", "sh", "-c",
              "exec " LAUNCH "-n 2 -- sh -c 'trap \"n=\\$((n + 1))\" INT; echo ready; [ $RANK = 0 ] && read -r l && "
              "echo read $l; for i in 1 2 3 4 5 6; do sleep 0.1; done; echo caught $n'", (char *)NULL);
        _exit(99);
    }
    const char *const say[] = {"line\n", "\003", NULL}, *const when[] = {"] ready", "[0] read line", NULL};
    int said = 0;
    for (ssize_t count; used < sizeof text - 1 && (count = read(terminal, text + used, sizeof text - 1 - used)) > 0;) {
        used += (size_t)count;
        text[used] = '\0';
        if (say[said] && count_text(text, when[said]) == 2 - said) {
            cr_assert(write(terminal, say[said], strlen(say[said])) > 0);
            said++;
        }
    }
    waitpid(id, &status, 0);
    cr_expect(WIFEXITED(status) && !WEXITSTATUS(status), "%s", text);
    cr_expect(strstr(text, "[0] caught 1\r\n") && strstr(text, "[1] caught 1\r\n"), "%s", text);
    close(terminal);
}
