/* tests/apps/test_launch.c: weir launch, run as a user runs it, with shells as ranks. Other hosts are played by
 * WEIR_RSH scripts that run here what a remote shell would run there. */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/secret.h"

#define LAUNCH APPS_BIN "/weir launch "
#define OUTPUT_BYTES (1 << 20)

static char folder[] = "/tmp/weir-launch-XXXXXX";
static char output[OUTPUT_BYTES], errors[OUTPUT_BYTES]; /* what the last run() printed */

static void write_script(const char *name, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    cr_assert(file && fputs(text, file) >= 0 && !fclose(file) && !chmod(path, 0755));
}

/* `rsh HOST WORDS...` as ssh has it: one command for the login shell of a session of its own, behind a connection; what
 * becomes of that shell is no news. */
static void make_folder(void)
{
    cr_assert(mkdtemp(folder), "no folder for the test's files");
    setenv("T", folder, 1);
    setenv("WEIR", APPS_BIN "/weir", 1);
    write_script("rsh", "#!/bin/sh\nshift\nunset WEIR_FROM_HERE UCX_FROM_HERE\nexec 3>&2 2>/dev/null\ncat | setsid sh -c \"$*\" 2>&3 3>&-\n");
    write_script("lost", "#!/bin/sh\nread -r line\necho no route >&2\nexit 255\n");
    write_script("cut", "#!/bin/sh\nshift\nexec 3>&2 2>/dev/null\ntimeout 1 cat | setsid sh -c \"$*\" 2>&3 3>&-\n");
    unsetenv("WEIR_LIVENESS");
}

static void remove_folder(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect(system(command) == 0);
}

TestSuite(launch, .init = make_folder, .fini = remove_folder, .timeout = 60);

/* ---- running ---- */

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* Reads a file of the test's folder, as far as it is written; "" when there is none. */
static const char *read_file(const char *name, char text[OUTPUT_BYTES])
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    size_t count = file ? fread(text, 1, OUTPUT_BYTES - 1, file) : 0;
    text[count] = '\0';
    if (file)
        fclose(file);
    return text;
}

static int unlink_file(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return unlink(path);
}

/* Starts a shell command that is a launcher; what it prints goes to the files out and err. */
static pid_t start(const char *command)
{
    pid_t id = fork();
    cr_assert(id >= 0);
    if (id)
        return id;
    char text[4096];
    signal(SIGINT, SIG_DFL);
    snprintf(text, sizeof text, "exec >$T/out 2>$T/err </dev/null; %s", command);
    execl("/bin/sh", "sh", "-c", text, (char *)NULL);
    _exit(99);
}

/* Its exit status, or -1 when a signal ended it. */
static int finish(pid_t id)
{
    int status = 0;
    while (waitpid(id, &status, 0) < 0 && errno == EINTR)
        continue;
    read_file("out", output);
    read_file("err", errors);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int run(const char *command)
{
    return finish(start(command));
}

static int count_text(const char *in, const char *text)
{
    int count = 0;
    for (const char *at = in; (at = strstr(at, text)); at += strlen(text))
        count++;
    return count;
}

/* Waits until what is printed so far has `text` so many times. */
static void wait_for(const char *text, int times)
{
    for (int i = 0; i < 2000; i++, sleep_ms(5))
        if (count_text(read_file("out", output), text) >= times)
            return;
    cr_assert_fail("\"%s\" was not printed %d times: %s%s", text, times, output, read_file("err", errors));
}

static void expect_status(const char *command, int status)
{
    int got = run(command);
    cr_expect(got == status, "%s: status %d, not %d: %s%s", command, got, status, output, errors);
}

static void expect_line(const char *in, const char *line)
{
    char text[4200];
    snprintf(text, sizeof text, "\n%s\n", line);
    cr_expect(strstr(in, text) || !strncmp(in, text + 1, strlen(text) - 1), "no line \"%s\" in: %s", line, in);
}

/* Whether a process runs; one that has ended and waits to be reaped does not. */
static bool is_alive(int id)
{
    char path[64], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", id);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = 'X';
    if (file)
        fclose(file);
    return state != 'X' && state != 'Z';
}

/* Every process whose number was written to the file `pids` ends within `ms`; there are at least `least`. */
static void expect_gone(int least, int ms)
{
    char *rest = NULL;
    int count = 0;
    read_file("pids", errors);
    for (char *word = strtok_r(errors, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest), count++) {
        for (; is_alive(atoi(word)) && ms > 0; ms -= 5)
            sleep_ms(5);
        cr_expect(!is_alive(atoi(word)), "process %s is still there", word);
    }
    cr_expect(count >= least, "only %d processes have told their number", count);
}

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

/* ---- other hosts ---- */

/* Every byte that an argument can have, each way. */
static void expect_bytes(const char *host)
{
    char all[256];
    for (int i = 0; i < 255; i++)
        all[i] = (char)(i + 1);
    all[255] = '\0';
    pid_t id = fork();
    if (!id) {
        char path[64];
        snprintf(path, sizeof path, "%s/out", folder);
        int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(file, STDOUT_FILENO);
        snprintf(path, sizeof path, "%s/rsh", folder);
        setenv("WEIR_RSH", path, 1);
        execl(APPS_BIN "/weir", "weir", "launch", "--hosts", host, "--no-prefix", "--", "printf", "%s|", all, "",
              "it's \"$HOME\" `x` \\", "two\nlines\n", "--", "-n", "\xc3\xa9\xe2\x82\xac", (char *)NULL);
        _exit(99);
    }
    cr_expect_eq(finish(id), 0);
    cr_expect(!strncmp(output, all, 255), "%s: bytes were changed", host);
    cr_expect_str_eq(output + 255, "||it's \"$HOME\" `x` \\|two\nlines\n|--|-n|\xc3\xa9\xe2\x82\xac|", "%s", host);
}

Test(launch, arguments_arrive_as_they_are)
{
    expect_bytes("localhost");
    expect_bytes("elsewhere");
}

Test(launch, a_script_larger_than_a_pipe_arrives)
{
    expect_status("WEIR_RSH=$T/rsh " LAUNCH
                  "--hosts a -- sh -c 'echo ${#1}' sh $(head -c 100000 /dev/zero | tr '\\0' x)", 0);
    expect_line(output, "[0] 100000");
}

Test(launch, other_hosts_begin_in_the_same_folder)
{
    expect_status("weir=$PWD/" APPS_BIN "/weir; mkdir \"$T/it's here\"; cd \"$T/it's here\"; "
                  "WEIR_RSH=$T/rsh $weir launch --hosts a -- sh -c 'echo ${PWD##*/}'", 0);
    expect_line(output, "[0] it's here");
}

Test(launch, ends_elsewhere_are_told_as_here)
{
    expect_status("WEIR_RSH=$T/rsh " LAUNCH "--hosts a,b -- sh -c 'printf text >&2; exit $((RANK * 5))'", 5);
    expect_line(errors, "[1] text");
    cr_expect(strstr(errors, "weir launch: rank 1 (pid "), "%s", errors);
    cr_expect(strstr(errors, " on b) ended with status 5\n"), "%s", errors);
    expect_status("WEIR_RSH=$T/rsh " LAUNCH "--hosts a,b -- sh -c '[ $RANK = 0 ] || kill -9 $$'", 137);
    cr_expect(strstr(errors, " on b) was ended by signal 9 (Killed)\n"), "%s", errors);
    cr_expect_eq(count_text(errors, "\n"), 1, "%s", errors);
}

Test(launch, a_host_that_cannot_be_reached_is_named)
{
    expect_status("WEIR_RSH=$T/lost " LAUNCH "--hosts b -- true", 255);
    expect_line(errors, "[0] no route");
    expect_line(errors, "weir launch: rank 0 did not start on b: the remote shell ended with status 255");
}

Test(launch, a_lost_connection_ends_the_program_there)
{
    expect_status("WEIR_RSH=$T/cut " LAUNCH "--hosts b -- sh -c 'sleep 300 & echo $$ $! >>$T/pids; wait; true'", 137);
    cr_expect(strstr(errors, " on b) was lost with the connection to its host\n"), "%s", errors);
    expect_gone(2, 1000);
}

Test(launch, the_secret_is_in_no_argument_list)
{
    expect_status("WEIR_RSH=$T/rsh " LAUNCH "--hosts a,b,localhost -- sh -c 'sleep 0.2; case "
                  "\"$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr -d \"\\0\")\" in *\"$(cat $WEIR_KEY_FILE)\"*) echo seen;; "
                  "*weir*launch*) echo hidden $(wc -c <$WEIR_KEY_FILE);; esac'", 0);
    cr_expect(count_text(output, "] hidden 4") == 3, "%s%s", output, errors);
}

/* ---- folders in memory ---- */

#define LEAVE "echo $WEIR_SNAPSHOTS >>$T/folders; [ $WEIR_GENERATION = 1 ] || touch $WEIR_SNAPSHOTS/left-$RANK; "

/* So many different folders, or files, are named in the file "folders"; they are there, or are gone within `ms`. */
static void expect_folders(int count, bool there, int ms)
{
    static char folders[OUTPUT_BYTES], seen[OUTPUT_BYTES];
    char *rest = NULL;
    int different = 0;
    seen[0] = '\0';
    read_file("folders", folders);
    for (char *path = strtok_r(folders, "\n", &rest); path; path = strtok_r(NULL, "\n", &rest)) {
        cr_expect(!strncmp(path, "/dev/shm/weir-", 14), "%s", path);
        for (; (access(path, F_OK) == 0) != there && ms > 0; ms -= 5)
            sleep_ms(5);
        cr_expect((access(path, F_OK) == 0) == there, "%s", path);
        different += !strstr(seen, path);
        strcat(strcat(seen, path), "\n");
    }
    cr_expect(different == count, "%d folders: %s", different, seen);
}

static bool has_memory(void)
{
    char folder_name[] = "/dev/shm/weir-test-XXXXXX";
    return mkdtemp(folder_name) && !rmdir(folder_name);
}

Test(launch, each_host_has_a_folder_in_memory_that_outlives_its_ranks)
{
    if (!has_memory())
        cr_skip_test("no /dev/shm");
    expect_status("WEIR_RSH=$T/rsh " LAUNCH "--restarts 1 --hosts a,b:2,localhost -- sh -c '" LEAVE
                  "[ $WEIR_GENERATION = 1 ] && ls $WEIR_SNAPSHOTS && exit; sleep 0.5; "
                  "[ $RANK = 2 ] && kill -KILL $$; sleep 300'", 0);
    expect_line(output, "[0] left-0");
    expect_line(output, "[1] left-1");
    expect_line(output, "[1] left-2");
    expect_line(output, "[2] left-1");
    expect_line(output, "[3] left-3");
    cr_expect_eq(count_text(output, "left-"), 6, "%s%s", output, errors);
    expect_folders(3, false, 0);
    unlink_file("folders");
    expect_status(LAUNCH "-n 1 -- sh -c 'echo in ${WEIR_SNAPSHOTS-none}'", 0);
    expect_line(output, "[0] in none");
}

Test(launch, folders_in_memory_go_with_a_launcher_that_is_killed)
{
    if (!has_memory())
        cr_skip_test("no /dev/shm");
    pid_t id = start("WEIR_RSH=$T/rsh exec " LAUNCH "--restarts 1 --hosts a,localhost -- sh -c '" LEAVE
                     "echo ready; sleep 300'");
    wait_for("ready\n", 2);
    expect_folders(2, true, 0);
    kill(id, SIGKILL);
    finish(id);
    expect_folders(2, false, 10000);
}

Test(launch, a_folder_that_nobody_holds_any_more_is_removed)
{
    if (!has_memory())
        cr_skip_test("no /dev/shm");
    char *left[2] = {(char[]){"/dev/shm/weir-snapshots-XXXXXX"}, (char[]){"/dev/shm/weir-snapshots-XXXXXX"}};
    char command[256];
    cr_assert(mkdtemp(left[0]) && mkdtemp(left[1]));
    int held = open(left[1], O_RDONLY | O_DIRECTORY);
    cr_assert(held >= 0 && !flock(held, LOCK_SH));
    snprintf(command, sizeof command, "mkdir %s/step-00000004; touch %s/step-00000004/index.json; " LAUNCH
             "--restarts 1 -n 1 -- true", left[0], left[0]);
    expect_status(command, 0);
    cr_expect(access(left[0], F_OK), "%s is still there", left[0]);
    cr_expect(!access(left[1], F_OK), "%s is gone", left[1]);
    close(held);
    cr_assert(mkdtemp(strcpy(left[0], "/dev/shm/weir-snapshots-XXXXXX")));
    expect_status("WEIR_RSH=$T/rsh " LAUNCH "--restarts 1 --hosts a -- sleep 0.5", 0); /* by its keeper */
    cr_expect(access(left[0], F_OK) && access(left[1], F_OK), "%s or %s is still there", left[0], left[1]);
}

/* A launcher that is killed together with its guard, as by `pkill -9 weir`. */
static void kill_with_guard(pid_t launcher)
{
    char command[256];
    kill(launcher, SIGSTOP); /* it would see that its guard is gone */
    snprintf(command, sizeof command, "for child in $(cat /proc/%d/task/%d/children); do "
             "[ \"$(cat /proc/$child/comm)\" = weir-guard ] && kill -9 $child && echo killed; done", (int)launcher, (int)launcher);
    FILE *pipe = popen(command, "r");
    char said[16] = "";
    cr_assert(pipe && fgets(said, sizeof said, pipe) && !strcmp(said, "killed\n"), "%s", said);
    pclose(pipe);
    kill(launcher, SIGKILL);
    finish(launcher);
}

/* The folder that the first rank named. */
static int hold_folder(void)
{
    static char path[OUTPUT_BYTES];
    read_file("folders", path);
    path[strcspn(path, "\n")] = '\0';
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert(fd >= 0 && !flock(fd, LOCK_SH), "%s", path);
    return fd;
}

Test(launch, the_next_launch_removes_what_a_killed_launcher_left)
{
    if (!has_memory())
        cr_skip_test("no /dev/shm");
    static const char *const next[] = {LAUNCH "-n 1 -- true", LAUNCH "-n 1 --restarts 1 -- true",
                                       "WEIR_RSH=$T/rsh " LAUNCH "--hosts a -- true"};
    cr_assert_eq(run("mkdir $T/precious; echo mine >$T/precious/file"), 0);
    for (size_t i = 0; i < sizeof next / sizeof *next; i++) {
        unlink_file("out");
        pid_t id = start("exec " LAUNCH "-n 1 --restarts 1 -- sh -c '" LEAVE "mkdir -p $WEIR_SNAPSHOTS/step-4/deep; "
                         "mkfifo $WEIR_SNAPSHOTS/fifo; ln -s $T/precious $WEIR_SNAPSHOTS/step-4/link; "
                         "ln -s $T/precious/file $WEIR_SNAPSHOTS/step-4/deep/file; echo ready; exec sleep 300'");
        wait_for("ready\n", 1);
        int held = hold_folder(); /* or a launch beside this test would remove it */
        kill_with_guard(id);
        expect_folders(1, true, 0);
        for (int turn = 0; turn < 4000 && flock(held, LOCK_EX | LOCK_NB); turn++) /* what is killed takes a moment to go */
            sleep_ms(5);
        close(held);
        expect_status(next[i], 0);
        expect_folders(1, false, 0);
        cr_expect_eq(run("grep -q mine $T/precious/file"), 0, "%s: what a link led to is gone", next[i]);
        unlink_file("folders");
    }
}

/* In /dev/shm; $N is five letters of the test's own. */
static const struct left {
    bool stays;
    const char *name, *make;
} lefts[] = {
    {true, "weir-snapshots-s$N", "ln -s $T/precious $P"},       /* to a folder of the user's */
    {true, "weir-snapshots-s$N", "echo mine >$P; chmod 700 $P"}, /* a file */
    {true, "weir-snapshots-s$N", "mkfifo -m 700 $P"},
    {true, "weir-snapshots-s$N", "mkdir -m 755 $P; echo mine >$P/file"},
    {true, "weir-snapshots-s$N-mine", "mkdir -m 700 $P; echo mine >$P/file"}, /* other names */
    {true, "weir-snapshots-s$N.bak", "mkdir -m 700 $P"},
    {true, "weir-snapshots-$N", "mkdir -m 700 $P"},
    {true, ".weir-snapshots-h$N", "mkdir -m 700 $P"}, /* it may be about to be locked */
    {false, "weir-snapshots-s$N", "mkdir -m 700 $P; echo mine >$P/file; ln -s $T/precious $P/link"},
    {false, "weir-snapshots-0123456789abcdef-12", "mkdir -m 700 $P"},
    {false, ".weir-snapshots-h$N", "mkdir -m 700 $P; touch -d \"2 minutes ago\" $P"},
};

static void expect_lefts(const char *launch)
{
    char command[1024];
    cr_assert_eq(run("mkdir $T/precious; echo mine >$T/precious/file; echo $T | tr -dc a-zA-Z0-9 | tail -c 5 >$T/five"), 0);
    for (size_t i = 0; i < sizeof lefts / sizeof *lefts; i++) {
        const struct left *left = &lefts[i];
        snprintf(command, sizeof command, "N=$(cat $T/five); export P=/dev/shm/%s MAKE='%s'; %s; [ -e $P ]; there=$?; "
                 "rm -rf $P $T/made; grep -q mine $T/precious/file || there=2; exit $there", left->name, left->make, launch);
        expect_status(command, left->stays ? 0 : 1);
    }
}

Test(launch, removes_only_folders_of_launches)
{
    if (!has_memory())
        cr_skip_test("no /dev/shm");
    expect_lefts("eval \"$MAKE\"; " LAUNCH "-n 1 -- true");
}

/* They are made behind the launcher's own look, which is at the same folder here. */
Test(launch, removes_only_folders_of_launches_on_other_hosts)
{
    if (!has_memory())
        cr_skip_test("no /dev/shm");
    write_script("late", "#!/bin/sh\n[ -e $T/made ] || { eval \"$MAKE\"; touch $T/made; }\nexec $T/rsh \"$@\"\n");
    expect_lefts("WEIR_RSH=$T/late " LAUNCH "--restarts 1 --hosts a -- true");
}

/* ---- secrets ---- */

#define TELL_KEY "-- sh -c 'echo key $(stat -c %a $WEIR_KEY_FILE) $(cat $WEIR_KEY_FILE). $WEIR_KEY_FILE'"

/* The secret that rank 0 printed, of a file that only the user could read, and that is gone. */
static void read_key(const char *command, char key[64])
{
    char path[64];
    expect_status(command, 0);
    const char *line = strstr(output, "[0] key ");
    cr_assert(line && sscanf(line, "[0] key 600 %60s %60s", key, path) == 2, "%s%s", output, errors);
    cr_expect(access(path, F_OK), "%s is still there", path);
}

Test(launch, every_job_has_its_own_secret)
{
    char key[2][64];
    for (int i = 0; i < 2; i++) {
        read_key(LAUNCH "-n 2 " TELL_KEY, key[i]);
        cr_expect_eq(strlen(key[i]), 41, "%s", key[i]);
        const char *line = strstr(output, "[1] key 600 ");
        cr_expect(line && !strncmp(line + 12, key[i], 41), "%s", output);
    }
    cr_expect(strcmp(key[0], key[1]));
    expect_status(LAUNCH "-n 1 --insecure -- sh -c 'echo file ${WEIR_KEY_FILE-none}'", 0);
    expect_line(output, "[0] file none");
}

Test(launch, a_secret_goes_with_a_launcher_that_is_killed)
{
    if (!has_memory())
        cr_skip_test("no /dev/shm");
    pid_t id = start("WEIR_RSH=$T/rsh exec " LAUNCH "--hosts a,b,localhost -- sh -c 'echo $WEIR_KEY_FILE >>$T/folders; "
                     "echo ready; sleep 300'");
    wait_for("ready\n", 3);
    expect_folders(3, true, 0);
    kill(id, SIGKILL);
    finish(id);
    expect_folders(3, false, 10000);
}

Test(launch, a_secret_of_a_file_is_shared)
{
    char key[64];
    expect_status("$WEIR keygen $T/key", 0);
    const char *const ways[] = {LAUNCH "-n 1 --key $T/key " TELL_KEY, "WEIR_KEY_FILE=$T/key " LAUNCH "-n 1 " TELL_KEY,
                                "WEIR_RSH=$T/rsh WEIR_KEY_FILE=$T/key " LAUNCH "--hosts a " TELL_KEY,
                                "WEIR_KEY_FILE=/nowhere " LAUNCH "-n 1 --insecure --key $T/key " TELL_KEY};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        read_key(ways[i], key);
        read_file("key", output);
        cr_expect(strlen(key) == 41 && !strncmp(key, output, 40), "%s: %s, not %s", ways[i], key, output);
    }
}

static void expect_wrong(const char *command, const char *says)
{
    expect_status(command, 2);
    cr_expect(strstr(errors, says) && count_text(errors, "\n") == 1, "%s: %s", command, errors);
}

Test(launch, a_file_that_holds_no_secret_is_refused)
{
    expect_wrong("umask 077; echo short >$T/key; " LAUNCH "-n 1 --key $T/key -- true", "holds no key");
    expect_wrong("chmod 644 $T/key; " LAUNCH "-n 1 --key $T/key -- true", "is open to others (mode 644)");
    expect_wrong(LAUNCH "-n 1 --key /nowhere -- true", "cannot read /nowhere: No such file or directory");
}

/* ---- its key ---- */

/* While ranks run, which it may have to start again, the launcher's memory has no copy: of the file, of the settings or of
 * the scripts for other hosts. */
static void expect_no_copy(const char *options)
{
    char command[512], path[64];
    snprintf(command, sizeof command, "%s keygen $T/key && WEIR_RSH=$T/rsh exec " LAUNCH
             "--key $T/key %s -- sh -c 'echo runs; while [ ! -e $T/done ]; do sleep 0.05; done'", APPS_BIN "/weir", options);
    pid_t launcher = start(command);
    wait_for("runs", 3);
    snprintf(path, sizeof path, "%s/key", folder);
    const struct secret secret = secret_read(path);
    cr_expect_eq(secret_count(&secret, launcher), 0, "%s: %d", options, secret_count(&secret, launcher));
    write_script("done", "");
    cr_expect_eq(finish(launcher), 0, "%s", errors);
    unlink_file("done");
    unlink_file("key");
    unlink_file("out");
}

Test(launch, has_no_copy_of_the_key)
{
    expect_no_copy("-n 3");
    expect_no_copy("--hosts elsewhere:3");
}

Test(launch, keygen_says_when_its_output_is_lost)
{
    cr_expect_neq(run(APPS_BIN "/weir keygen >/dev/full"), 0);
    expect_line(errors, "weir keygen: cannot write standard output: No space left on device");
    cr_expect_eq(run(APPS_BIN "/weir keygen"), 0);
    cr_expect_eq(strlen(output), WEIR_KEY_BYTES, "%s", output);
}
