/* tests/apps/test_launch_hosts.c: weir launch on other hosts, the folders in memory that it makes and removes, and secrets. */
#include "tests/apps/launcher.h"

#include "graph/time/rates.h"
#include "tests/support/secret.h"

TestSuite(launch_hosts, .init = make_folder, .fini = remove_folder, .timeout = 60);

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

Test(launch_hosts, arguments_arrive_as_they_are)
{
    expect_bytes("localhost");
    expect_bytes("elsewhere");
}

Test(launch_hosts, a_script_larger_than_a_pipe_arrives)
{
    expect_status("WEIR_RSH=$T/rsh " LAUNCH
                  "--hosts a -- sh -c 'echo ${#1}' sh $(head -c 100000 /dev/zero | tr '\\0' x)", 0);
    expect_line(output, "[0] 100000");
}

Test(launch_hosts, other_hosts_begin_in_the_same_folder)
{
    expect_status("weir=$PWD/" APPS_BIN "/weir; mkdir \"$T/it's here\"; cd \"$T/it's here\"; "
                  "WEIR_RSH=$T/rsh $weir launch --hosts a -- sh -c 'echo ${PWD##*/}'", 0);
    expect_line(output, "[0] it's here");
}

Test(launch_hosts, ends_elsewhere_are_told_as_here)
{
    expect_status("WEIR_RSH=$T/rsh " LAUNCH "--hosts a,b -- sh -c 'printf text >&2; exit $((RANK * 5))'", 5);
    expect_line(errors, "[1] text");
    cr_expect(strstr(errors, "weir launch: rank 1 (pid "), "%s", errors);
    cr_expect(strstr(errors, " on b) ended with status 5\n"), "%s", errors);
    expect_status("WEIR_RSH=$T/rsh " LAUNCH "--hosts a,b -- sh -c '[ $RANK = 0 ] || kill -9 $$'", 137);
    cr_expect(strstr(errors, " on b) was ended by signal 9 (Killed)\n"), "%s", errors);
    cr_expect_eq(count_text(errors, "\n"), 1, "%s", errors);
}

Test(launch_hosts, a_host_that_cannot_be_reached_is_named)
{
    expect_status("WEIR_RSH=$T/lost " LAUNCH "--hosts b -- true", 255);
    expect_line(errors, "[0] no route");
    expect_line(errors, "weir launch: rank 0 did not start on b: the remote shell ended with status 255");
}

Test(launch_hosts, a_lost_connection_ends_the_program_there)
{
    expect_status("WEIR_RSH=$T/cut " LAUNCH "--hosts b -- sh -c 'sleep 300 & echo $$ $! >>$T/pids; wait; true'", 137);
    cr_expect(strstr(errors, " on b) was lost with the connection to its host\n"), "%s", errors);
    expect_gone(2, 1000);
}

Test(launch_hosts, the_secret_is_in_no_argument_list)
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

Test(launch_hosts, each_host_has_a_folder_in_memory_that_outlives_its_ranks)
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

Test(launch_hosts, folders_in_memory_go_with_a_launcher_that_is_killed)
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

Test(launch_hosts, a_folder_that_nobody_holds_any_more_is_removed)
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

Test(launch_hosts, the_next_launch_removes_what_a_killed_launcher_left)
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

Test(launch_hosts, removes_only_folders_of_launches)
{
    if (!has_memory())
        cr_skip_test("no /dev/shm");
    expect_lefts("eval \"$MAKE\"; " LAUNCH "-n 1 -- true");
}

/* They are made behind the launcher's own look, which is at the same folder here. */
Test(launch_hosts, removes_only_folders_of_launches_on_other_hosts)
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

Test(launch_hosts, every_job_has_its_own_secret)
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

Test(launch_hosts, a_secret_goes_with_a_launcher_that_is_killed)
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

Test(launch_hosts, a_secret_of_a_file_is_shared)
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

Test(launch_hosts, a_file_that_holds_no_secret_is_refused)
{
    expect_wrong("umask 077; echo short >$T/key; " LAUNCH "-n 1 --key $T/key -- true", "holds no key");
    expect_wrong("chmod 644 $T/key; " LAUNCH "-n 1 --key $T/key -- true", "is open to others (mode 644)");
    expect_wrong(LAUNCH "-n 1 --key /nowhere -- true", "cannot read /nowhere: No such file or directory");
}

/* ---- rates ---- */

static void write_rates(uint64_t cores)
{
    char path[64];
    weir_rates *rates = rates_new();
    cr_assert_not_null(rates);
    rates->cores = cores;
    snprintf(path, sizeof path, "%s/rates", folder);
    cr_assert_eq(weir_rates_save(rates, path), WEIR_OK, "%s", weir_error());
    weir_rates_free(rates);
}

#define TELL_RATES "sh -c 'sed -n \"s/^machine//p\" $WEIR_RATES; echo $WEIR_RATES >>$T/folders'"

Test(launch_hosts, every_rank_has_the_rates_of_the_launcher)
{
    const char *const ways[] = {"WEIR_RSH=$T/rsh WEIR_RATES=/nowhere " LAUNCH "--rates $T/rates --hosts a:2,localhost:2 -- " TELL_RATES,
                                "WEIR_RSH=$T/rsh WEIR_RATES=$T/rates " LAUNCH "--hosts a:2,localhost:2 -- " TELL_RATES};
    if (!has_memory())
        cr_skip_test("no /dev/shm");
    write_rates(3);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        expect_status(ways[i], 0);
        cr_expect_eq(count_text(output, " cores=3 level="), 4, "%s: %s%s", ways[i], output, errors);
        expect_folders(3, false, 0); /* a file for each rank elsewhere, one for all that are here */
        unlink_file("folders");
    }
}

Test(launch_hosts, ranks_that_start_again_have_the_rates_that_the_launcher_read)
{
    write_rates(3);
    expect_status("WEIR_RSH=$T/rsh " LAUNCH "--restarts 1 --rates $T/rates --hosts a,localhost -- sh -c '"
                  "sed -n \"s/^machine//p\" $WEIR_RATES; [ $WEIR_GENERATION = 1 ] && exit; echo other >$T/rates; sleep 0.5; "
                  "[ $RANK = 1 ] && kill -KILL $$; sleep 300'", 0);
    cr_expect_eq(count_text(output, " cores=3 level="), 4, "%s%s", output, errors);
}

Test(launch_hosts, a_file_that_holds_no_rates_is_refused)
{
    expect_wrong(LAUNCH "-n 2 --rates /nowhere -- true", "weir launch: --rates: /nowhere: cannot be read: No such file or directory");
    expect_wrong("echo x >$T/rates; WEIR_RATES=$T/rates " LAUNCH "-n 2 -- true", "it is no file of rates");
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

Test(launch_hosts, has_no_copy_of_the_key)
{
    expect_no_copy("-n 3");
    expect_no_copy("--hosts elsewhere:3");
}

Test(launch_hosts, keygen_says_when_its_output_is_lost)
{
    cr_expect_neq(run(APPS_BIN "/weir keygen >/dev/full"), 0);
    expect_line(errors, "weir keygen: cannot write standard output: No space left on device");
    cr_expect_eq(run(APPS_BIN "/weir keygen"), 0);
    cr_expect_eq(strlen(output), WEIR_KEY_BYTES, "%s", output);
}
