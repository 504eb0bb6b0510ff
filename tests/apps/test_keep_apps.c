/* tests/apps/test_keep_apps.c: programs that are interrupted, killed and resumed, as a user does it: what they leave is
 * whole, and what goes on from it is what an undisturbed run would have been. */
#define _GNU_SOURCE
#include "tests/support/effort.h"
#include "tests/support/json.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TINY APPS_BIN "/weir-gpt --layers 2 --dim 32 --heads 2 --seq 32 --batch 8 --text README.md --sample 0"
/* A step of half a minute and more, in little memory. */
#define SLOW APPS_BIN "/weir-gpt --layers 4 --dim 512 --seq 128 --batch 1024 --micro 1024 --text README.md --sample 0"
#define STEPS_MAX 400
#define WAIT_SECONDS 100

static char folder[] = "/tmp/weir-keep-XXXXXX";

static void make_folder(void)
{
    cr_assert(mkdtemp(folder), "no folder for the test's files");
    setenv("T", folder, 1);
    setenv("TSAN_OPTIONS", "suppressions=tests/support/tsan.supp", 0);
    unsetenv("WEIR_GENERATION");
}

static void remove_folder(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect(system(command) == 0);
}

TestSuite(keep_apps, .init = make_folder, .fini = remove_folder, .timeout = 300);

/* ---- running ---- */

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* A file of the test's folder as far as it is written; "" when there is none. Owned by the caller. */
static char *read_text(const char *name)
{
    size_t room = 1 << 20;
    char *text = calloc(1, room + 1);
    FILE *file = fopen(path_of(name), "r");
    cr_assert(text);
    if (file && fread(text, 1, room, file) == room)
        cr_assert_fail("%s is too long", name);
    if (file)
        fclose(file);
    return text;
}

/* Starts a shell command, whose output goes to out and err; the process is the command's own. */
static pid_t start(const char *command)
{
    pid_t id = fork();
    cr_assert(id >= 0);
    if (id)
        return id;
    char text[2048];
    signal(SIGINT, SIG_DFL);
    snprintf(text, sizeof text, "exec >$T/out 2>$T/err </dev/null; exec %s", command);
    execl("/bin/sh", "sh", "-c", text, (char *)NULL);
    _exit(99);
}

/* Its exit status; -1 when a signal ended it. */
static int finish(pid_t id)
{
    int status = 0;
    while (waitpid(id, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect_status(const char *command, int wanted)
{
    int status = finish(start(command));
    char *said = read_text("err");
    cr_assert(status == wanted, "%s: status %d, not %d: %s", command, status, wanted, said);
    free(said);
}

/* Waits until the file has the text so many times. */
static void wait_for(const char *name, const char *text, int times)
{
    for (int i = 0; i < WAIT_SECONDS * 50; i++, sleep_ms(20)) {
        char *now = read_text(name);
        int count = json_count(now, text);
        free(now);
        if (count >= times)
            return;
    }
    cr_assert_fail("%s does not say \"%s\" %d times: %s", name, text, times, read_text("err"));
}

static void expect_said(const char *text)
{
    char *said = read_text("err");
    cr_expect(strstr(said, text), "says \"%s\", not \"%s\"", said, text);
    free(said);
}

/* ---- what is left ---- */

/* How many folders of the folder `name` begin so. */
static int count_folders(const char *name, const char *begin)
{
    DIR *dir = opendir(path_of(name));
    int count = 0;
    for (struct dirent *e; dir && (e = readdir(dir));)
        count += !strncmp(e->d_name, begin, strlen(begin));
    if (dir)
        closedir(dir);
    return count;
}

/* Every line of the log is JSON with its end; the losses go to loss[step], NAN where there are none. Returns the steps
 * that the summary tells, -1 when there is none. */
static int read_log(const char *name, double loss[STEPS_MAX])
{
    char *text = read_text(name);
    int steps = -1;
    for (int i = 0; i < STEPS_MAX; i++)
        loss[i] = NAN;
    size_t length = strlen(text);
    cr_expect(!length || text[length - 1] == '\n', "%s ends in a line", name);
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) && rest;) {
        int step = -1;
        cr_expect(json_valid(line), "%s: %s", name, line);
        if (sscanf(line, "{\"step\": %d, \"loss\": ", &step) == 1 && step < STEPS_MAX)
            loss[step] = strtod(strstr(line, "\"loss\": ") + 8, NULL);
        sscanf(line, "{\"summary\": true, \"steps\": %d", &steps);
    }
    free(text);
    return steps;
}

/* Both logs have all losses, alike but for a part of `tolerance`. */
static void expect_same(const char *name, const char *other, int steps, double tolerance)
{
    double a[STEPS_MAX], b[STEPS_MAX];
    cr_expect_eq(read_log(name, a), steps);
    cr_expect_eq(read_log(other, b), steps);
    for (int i = 0; i < steps; i++)
        cr_expect(fabs(a[i] - b[i]) <= tolerance * fabs(a[i]), "step %d: %.9g in %s, %.9g in %s", i, a[i], name, b[i],
                  other);
}

/* ---- signals ---- */

static void is_ended_by(int sig, int wanted)
{
    double loss[STEPS_MAX];
    char name[64], *trace;
    pid_t id = start(TINY " --steps 1000000 --save $T/runs --log $T/log --trace $T/trace");
    wait_for("log", "\"step\"", 5);
    kill(id, sig);
    int status = finish(id), steps = read_log("log", loss);
    cr_expect(status == wanted, "status %d, not %d", status, wanted);
    cr_expect(steps >= 5 && steps < 1000000, "%d steps", steps);
    snprintf(name, sizeof name, "step-%08d", steps);
    cr_expect(count_folders("runs", name) == 1 && count_folders("runs", "step-") == 1, "not %s", name);
    trace = json_read(path_of("trace"));
    cr_expect(json_valid(trace) && json_count(trace, "\"ts\"") > 10, "no trace");
    free(trace);
    expect_status(APPS_BIN "/weir checkpoint verify $T/runs", 0);
}

Test(keep_apps, sigint_ends_after_the_step_with_a_checkpoint_summary_and_trace)
{
    is_ended_by(SIGINT, 130);
}

Test(keep_apps, sigterm_does_as_well)
{
    is_ended_by(SIGTERM, 143);
}

Test(keep_apps, a_second_signal_ends_at_once)
{
    pid_t id = start(SLOW " --steps 2 --log $T/log");
    wait_for("err", "weir-gpt: 1 file", 1);
    sleep_ms(5000); /* it is open by then, else the first one ends it */
    kill(id, SIGINT);
    sleep_ms(500);
    kill(id, SIGINT);
    time_t before = time(NULL);
    int status = finish(id);
    cr_expect(status == 130, "status %d", status);
    cr_expect(time(NULL) - before < 60, "it took %d seconds", (int)(time(NULL) - before));
}

Test(keep_apps, a_signal_before_there_is_anything_to_keep_ends_at_once)
{
    pid_t id = start("env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29517 " TINY
                     " --dp 2 --trace $T/trace");
    wait_for("err", "weir-gpt: 1 file", 1);
    sleep_ms(1000); /* it waits for the other rank, a minute */
    kill(id, SIGTERM);
    int status = finish(id);
    cr_expect(status == 143, "status %d", status);
}

Test(keep_apps, what_was_ignored_when_it_was_started_stays_ignored)
{
    expect_status("sh -c 'trap \"\" INT; " TINY " --steps 300 --log $T/log & id=$!; sleep 0.2; kill -INT $id; "
                  "wait $id'",
                  0);
}

Test(keep_apps, weir_run_ends_after_the_step)
{
    expect_status(TINY " --steps 1 --plan $T/plan", 0);
    pid_t id = start(APPS_BIN "/weir run $T/plan --made-up --steps 1000000 --trace $T/trace");
    sleep_ms(3000);
    kill(id, SIGINT);
    int status = finish(id);
    char *said = read_text("err"), *trace = json_read(path_of("trace"));
    cr_expect(status == 130 && strstr(said, " steps in "), "status %d: %s", status, said);
    cr_expect(json_valid(trace), "no trace");
    free(said), free(trace);
}

/* ---- going on ---- */

Test(keep_apps, what_was_interrupted_goes_on_as_if_it_had_not_been)
{
    expect_status(TINY " --steps 300 --seed 5 --log $T/whole", 0);
    pid_t id = start(TINY " --steps 300 --seed 5 --log $T/log --save $T/runs");
    wait_for("log", "\"step\"", 20);
    kill(id, SIGINT);
    int status = finish(id);
    cr_assert(status == 130 || status == 0, "status %d", status); /* it may have been faster */
    expect_status(TINY " --steps 300 --log $T/log --save $T/runs --resume $T/runs", 0);
    expect_said("goes on at step ");
    expect_same("whole", "log", 300, 0);
}

#if EFFORT(1, 1, 0) /* the next one that is killed is enough */
Test(keep_apps, what_was_killed_goes_on_from_the_last_checkpoint)
{
    double loss[STEPS_MAX];
    expect_status(TINY " --steps 300 --log $T/whole", 0);
    pid_t id = start(TINY " --steps 300 --log $T/log --save $T/runs --save-every 10 --keep 2");
    wait_for("log", "\"step\"", 60);
    kill(id, SIGKILL);
    finish(id);
    read_log("log", loss);
    expect_status(TINY " --steps 300 --log $T/log --save $T/runs --save-every 10 --keep 2 --resume $T/runs", 0);
    expect_same("whole", "log", 300, 0);
    cr_expect_eq(count_folders("runs", "step-"), 2);
    cr_expect_eq(count_folders("runs", "step-00000300"), 1);
    cr_expect_eq(count_folders("runs", ".step-"), 0);
    expect_status(TINY " --steps 300 --log $T/log --save $T/runs --resume $T/runs", 0); /* there is nothing to do */
}
#endif

Test(keep_apps, it_goes_on_in_other_layouts)
{
    static const char *const layout[] = {"--dp 2 --zero", "--tp 2 --micro 2", "--pp 2 --micro 4"};
    char command[512];
    expect_status(TINY " --steps 30 --log $T/whole", 0);
    expect_status("timeout -s KILL 100 " TINY " --steps 30 --log $T/log --save $T/runs --save-every 10 --keep 3", 0);
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command, "sh -c 'head -10 $T/log >$T/other; " TINY
                 " --steps 30 --log $T/other --resume $T/runs/step-00000010 %s'", layout[i]);
        expect_status(command, 0);
        expect_same("whole", "other", 30, 1e-4);
    }
}

Test(keep_apps, a_program_that_is_started_again_goes_on_by_itself)
{
    setenv("WEIR_GENERATION", "1", 1);
    expect_status(TINY " --steps 20 --log $T/log --save $T/runs --save-every 10", 0);
    expect_status("rm -r $T/runs/step-00000020", 0);
    expect_status(TINY " --steps 20 --log $T/log --save $T/runs", 0);
    expect_said("goes on at step 10 of ");
    unsetenv("WEIR_GENERATION");
    expect_status(TINY " --steps 20 --log $T/whole", 0);
    expect_same("whole", "log", 20, 0);
}

/* ---- one program at a time ---- */

Test(keep_apps, second_run_with_the_same_save_folder_is_refused_at_its_start)
{
    pid_t first = start(TINY " --steps 1000000 --save $T/runs --log $T/log");
    wait_for("log", "\"step\"", 2);
    int status = finish(start(TINY " --steps 5 --save $T/runs"));
    char *said = read_text("err");
    cr_expect(status == 2 && strstr(said, "another program saves there: weir-gpt, process "), "status %d: %s", status, said);
    free(said);
    kill(first, SIGINT);
    cr_expect_eq(finish(first), 130);
    cr_expect_eq(count_folders("runs", "step-"), 1);
    cr_expect_eq(count_folders("runs", "."), 2, "the lock is left"); /* "." and ".." */
}

Test(keep_apps, next_generation_waits_for_the_one_before_it_to_give_the_folder_up)
{
    pid_t first = start(TINY " --steps 1000000 --save $T/runs --log $T/log");
    wait_for("log", "\"step\"", 2);
    setenv("WEIR_GENERATION", "1", 1);
    setenv("WEIR_LIVENESS", "1", 1);
    cr_expect_eq(finish(start(TINY " --steps 5 --save $T/runs")), 2);
    setenv("WEIR_LIVENESS", "60", 1);
    pid_t second = start(TINY " --steps 1000000 --save $T/runs --log $T/other");
    sleep_ms(500);
    kill(first, SIGKILL);
    finish(first);
    wait_for("other", "\"step\"", 2);
    kill(second, SIGINT);
    cr_expect_eq(finish(second), 130);
    unsetenv("WEIR_GENERATION");
    unsetenv("WEIR_LIVENESS");
}

Test(keep_apps, restart_never_begins_anew_beside_a_damaged_checkpoint)
{
    expect_status(TINY " --steps 4 --save $T/runs", 0);
    expect_status("truncate -s 100 $T/runs/step-00000004/index.json", 0);
    setenv("WEIR_GENERATION", "1", 1);
    expect_status(TINY " --steps 5 --save $T/runs", 2);
    unsetenv("WEIR_GENERATION");
    expect_said("--save: ");
    expect_said("step-00000004/index.json");
}

/* A checkpoint knows which images it was trained on, and how they are drawn. */
Test(keep_apps, digits_tell_when_the_images_are_others_or_drawn_otherwise)
{
    static const char digits[] = APPS_BIN "/weir-digits --dim 16 --layers 1 --steps 4 --resume $T/runs";
    char command[512];
    expect_status(APPS_BIN "/weir-digits --dim 16 --layers 1 --steps 2 --save $T/runs", 0);
    snprintf(command, sizeof command, "%s --seed 7", digits);
    expect_status(command, 0);
    expect_said("the images are drawn with seed 7, and were with 0");
    expect_status("head -1700 apps/data/digits.csv >$T/some.csv", 0);
    snprintf(command, sizeof command, "%s --data $T/some.csv", digits);
    expect_status(command, 0);
    expect_said("the images are not those that it was saved with");
    expect_status(digits, 0);
    char *said = read_text("err");
    cr_expect(!strstr(said, "the source"), "says \"%s\" when they are the same", said);
    free(said);
}

Test(keep_apps, what_was_best_stays_and_is_known_when_it_goes_on)
{
    char *first, *second;
    const char *const ls = APPS_BIN "/weir checkpoint ls $T/runs/best";
    expect_status(APPS_BIN "/weir-digits --steps 300 --eval-every 100 --save $T/runs", 0);
    expect_status(ls, 0);
    first = read_text("out");
    expect_status(APPS_BIN "/weir-digits --steps 330 --lr 99 --eval-every 10 --save $T/runs --resume $T/runs", 0);
    expect_status(ls, 0);
    second = read_text("out");
    cr_expect_str_eq(first, second);
    expect_status(APPS_BIN "/weir-digits --steps 1000 --eval-every 100 --save $T/runs --resume $T/runs/best", 2);
    free(first), free(second);
}

Test(keep_apps, saves_come_by_the_clock_too)
{
    expect_status("timeout -s INT 5 " TINY " --steps 1000000 --save $T/runs --save-every 0.005min --keep 100 "
                  "--log $T/log", 124);
    int count = count_folders("runs", "step-");
    cr_expect(count >= 2 && count <= 25, "%d checkpoints in five seconds, one each 0.3", count);
}

/* ---- what is refused, and what fails ---- */

static void refuses(const char *arguments, int status, const char *says)
{
    char command[512];
    snprintf(command, sizeof command, TINY " %s", arguments);
    expect_status(command, status);
    expect_said(says);
}

Test(keep_apps, what_makes_no_sense_gets_a_sentence_before_training)
{
    refuses("--save-every 5", 2, "weir-gpt: --save-every needs --save DIR\n");
    refuses("--save $T/x --save-every 5h", 2, "--save-every takes a number of steps, or minutes as 5min, not \"5h\"\n");
    refuses("--save README.md/x", 2, "weir-gpt: --save: README.md/x: cannot be made a folder of checkpoints: Not a directory\n");
    refuses("--resume /nowhere", 2, "weir-gpt: --resume: ");
    refuses("--steps 4 --save $T/runs", 0, "weir-gpt: step 4 is saved in ");
    refuses("--steps 8 --save $T/runs", 2, "has a checkpoint of step 4 already; --resume ");
    refuses("--steps 8 --dim 64 --resume $T/runs", 1, "weir-gpt: ");
    refuses("--steps 8 --layers 3 --resume $T/runs", 1, "weir-gpt: ");
}

Test(keep_apps, a_save_that_fails_is_told_and_only_the_last_one_decides)
{
    pid_t id = start(TINY " --steps 1000000 --save $T/runs --save-every 50 --log $T/log");
    wait_for("log", "\"step\"", 60);
    cr_assert(system("touch $T/file; until mv $T/runs $T/gone$$ && mv -T $T/file $T/runs; do rm -rf $T/gone$$; done "
                     "2>/dev/null") == 0);
    wait_for("log", "\"step\"", 200);
    kill(id, SIGTERM);
    int status = finish(id);
    expect_said("was not saved: ");
    cr_expect(status == 1, "status %d", status);
    double loss[STEPS_MAX];
    cr_expect(read_log("log", loss) > 0, "no summary");
}

/* ---- several ranks ---- */

/* Two ranks, each of which leaves its number; the signal goes to the launcher (-1), or one of them. */
static void ranks_are_ended_by(int sig, int rank, const char *every, int wanted)
{
    char name[64], *text, command[512];
    double loss[STEPS_MAX];
    snprintf(command, sizeof command, APPS_BIN "/weir launch -n 2 -- sh -c 'echo $$ >$T/pid$RANK; exec " TINY
             " --dp 2 --steps 1000000 --save $T/runs --save-every %s --log $T/log --trace $T/t.json'", every);
    pid_t id = start(command);
    wait_for("log", "\"step\"", 20);
    snprintf(name, sizeof name, "pid%d", rank);
    text = read_text(name);
    kill(rank < 0 ? id : atoi(text), sig);
    int status = finish(id), steps = read_log("log", loss);
    char *said = read_text("err");
    cr_expect(status == wanted, "status %d, not %d: %s", status, wanted, said);
    cr_expect(steps >= 20, "%d steps: %s", steps, said);
    snprintf(name, sizeof name, "step-%08d", steps);
    cr_expect(count_folders("runs", name) == 1, "not %s: %s", name, said);
    for (int r = 0; r < 2; r++) {
        char *trace = json_read(path_of(r ? "t.rank1.json" : "t.rank0.json"));
        cr_expect(json_valid(trace), "no trace of rank %d", r);
        free(trace);
    }
    expect_status(APPS_BIN "/weir checkpoint verify $T/runs", 0);
    free(text);
    free(said);
}

Test(keep_apps, ranks_end_together_when_the_launcher_is_signalled)
{
    ranks_are_ended_by(SIGINT, -1, "1000", 130);
}

Test(keep_apps, ranks_end_together_when_one_of_them_is_signalled)
{
    ranks_are_ended_by(SIGTERM, 1, "1000", 143);
}

Test(keep_apps, ranks_end_together_when_the_first_is_signalled)
{
    ranks_are_ended_by(SIGTERM, 0, "1000", 143);
}

/* There a run that ends early is a save that is due, for ranks that were not signalled. */
Test(keep_apps, ranks_that_save_by_the_clock_end_together_too)
{
    ranks_are_ended_by(SIGTERM, 1, "0.01min", 143);
}

Test(keep_apps, the_first_of_ranks_that_save_by_the_clock_is_signalled)
{
    ranks_are_ended_by(SIGTERM, 0, "0.01min", 143);
}

Test(keep_apps, ranks_go_on_as_one_process_would)
{
    expect_status(TINY " --dp 2 --steps 60 --log $T/whole", 0);
    expect_status(APPS_BIN "/weir launch -n 2 -- " TINY " --dp 2 --steps 60 --save-every 20 --save $T/runs", 0);
    expect_status("sh -c 'rm -r $T/runs/step-00000040 $T/runs/step-00000060; head -20 $T/whole >$T/log'", 0);
    expect_status(APPS_BIN "/weir launch -n 2 -- " TINY " --dp 2 --steps 60 --resume $T/runs --log $T/log", 0);
    expect_same("whole", "log", 60, 0);
}

/* ---- started again ---- */

/* Sixty steps that take long enough for a rank to be killed in the middle of them. */
#if EFFORT(1, 0, 0)
#define HEAVY_SIZE "--layers 4 --dim 128 --seq 64 --batch 32"
#else
#define HEAVY_SIZE "--layers 1 --dim 64 --seq 64 --batch 8"
#endif
#define HEAVY APPS_BIN "/weir-gpt " HEAVY_SIZE " --text README.md --sample 0 --dp 2 --steps 60"

/* A snapshot in memory is newer than what is on the disk; no folder is left of it. */
Test(keep_apps, ranks_that_are_started_again_go_on_from_the_newest_snapshot)
{
    expect_status(HEAVY " --log $T/whole", 0);
    pid_t id = start(APPS_BIN "/weir launch -n 2 --restarts 1 -- sh -c 'echo $$ >$T/pid$RANK; "
                     "echo $WEIR_SNAPSHOTS >$T/where; exec " HEAVY
                     " --save $T/runs --save-every 50 --snapshot-every 4 --log $T/log'");
    wait_for("log", "\"step\"", 15);
    char *pid = read_text("pid1"), *where = read_text("where");
    kill(atoi(pid), SIGKILL);
    int status = finish(id), step = -1;
    char *said = read_text("err"), *goes_on = strstr(said, "goes on at step ");
    cr_expect(status == 0, "status %d: %s", status, said);
    cr_assert(goes_on && sscanf(goes_on, "goes on at step %d of", &step) == 1, "%s", said);
    cr_expect(step >= 4 && step % 4 == 0 && step < 50, "step %d", step);
    cr_expect(strstr(goes_on, "/weir-snapshots-"), "%s", said);
    expect_same("whole", "log", 60, 0);
    where[strcspn(where, "\n")] = '\0';
    cr_expect(*where && access(where, F_OK), "%s is left", where);
    free(pid);
    free(where);
    free(said);
}

Test(keep_apps, snapshots_need_a_launcher_that_starts_ranks_again)
{
    expect_status(TINY " --snapshot-every 4", 2);
    expect_said("--snapshot-every needs `weir launch --restarts N`");
}
