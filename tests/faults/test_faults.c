/* tests/faults/test_faults.c: programs whose file functions fail, one call after the other (inject.c).
 *
 * A scenario is a command over a folder "work". It is run for n = 1, 2, ... with the n-th call failing, each time on a
 * fresh copy of the folder, until the command makes fewer calls. The command always ends by itself, not by a
 * signal. Either it says nothing, its status is 0 and all that it was to make is there, complete; or it says a sentence
 * that names a file. The old file is still whole, or the new one is.
 *
 * The errors take turns, and of many calls some are left out. WEIR_FAULTS_ALL=1 makes every call fail with each error,
 * which takes minutes; WEIR_FAULTS=NAME runs one scenario alone.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "tests/apps/shell.h"

#define W "$W" /* without links, as the system has it */
#define GPT APPS_BIN "/weir-gpt --layers 1 --dim 8 --heads 1 --seq 8 --batch 1 --text $T/text --sample 0 "
#define DIGITS APPS_BIN "/weir-digits --layers 1 --dim 4 --batch 8 "
#define WEIR APPS_BIN "/weir "
#define NOT_MET 77
#define CALLS_MAX 1000
#define STRIDE 10 /* calls, from one that is left out to the next; later more are left out */

typedef struct scenario {
    const char *name;
    const char *fresh;    /* what is in the folder before */
    const char *command;
    const char *complete; /* all is there that the command was to make */
    const char *kept;     /* what must be there in any case */
} scenario;

/* A root with a checkpoint, and with what is a user's own. */
#define ROOT "cp -a $T/root " W "/run; echo note >" W "/run/notes; mkdir " W "/run/mine; echo mine >" W "/run/mine/file"
#define ROOT_KEPT "weir checkpoint verify " W "/run && test -e " W "/run/best/index.json && " \
    "test \"$(cat " W "/run/notes)\" = note && test \"$(cat " W "/run/mine/file)\" = mine"
#define OLD_OR_NEW(file) "cmp -s " W "/" file " $T/fresh/" file " || cmp " W "/" file " $T/ref/" file
#define NEW(file) "cmp " W "/" file " $T/ref/" file

static const scenario checkpoints[] = {
    {"save", ROOT, DIGITS "--steps 4 --resume " W "/run --save " W "/run --save-every 3 --keep 2",
     "test -e " W "/run/step-00000004/index.json", ROOT_KEPT},
    {"first_save", "true", DIGITS "--steps 2 --save " W "/run",
     "weir checkpoint verify " W "/run && test -e " W "/run/best && test -e " W "/run/step-00000002", "true"},
    {"resume", ROOT, DIGITS "--steps 3 --resume " W "/run", "true", ROOT_KEPT},
    {"load", "cp -a $T/gpt " W "/run", GPT "--sample 40 --temperature 0 --load " W "/run >" W "/out", NEW("out"), "true"},
    {"load_file", "cp $T/model.safetensors " W, GPT "--sample 40 --temperature 0 --load " W "/model.safetensors >" W "/out",
     NEW("out"), "cmp " W "/model.safetensors $T/model.safetensors"},
    {"verify", "cp -a $T/root " W "/run", WEIR "checkpoint verify " W "/run/best >" W "/out", NEW("out"), "true"},
    {"list", "cp -a $T/root " W "/run", WEIR "checkpoint ls --json " W "/run/best >" W "/out", NEW("out"), "true"},
};

static const scenario conversions[] = {
    {"convert_to_file", "cp -a $T/root " W "/run; cp $T/older.safetensors " W "/m.safetensors",
     WEIR "checkpoint convert " W "/run " W "/m.safetensors", NEW("m.safetensors"),
     OLD_OR_NEW("m.safetensors") " && weir checkpoint verify " W "/run"},
    {"convert_to_folder", "cp $T/small.safetensors " W, WEIR "checkpoint convert " W "/small.safetensors " W "/made",
     "weir checkpoint verify " W "/made", "cmp " W "/small.safetensors $T/small.safetensors"},
    {"convert_to_npy", "cp $T/small.safetensors " W, WEIR "checkpoint convert --npy " W "/small.safetensors " W "/npy",
     "diff -r " W "/npy $T/ref/npy", "cmp " W "/small.safetensors $T/small.safetensors"},
    {"convert_from_npy", "cp -a $T/npy " W, WEIR "checkpoint convert " W "/npy " W "/made.safetensors", NEW("made.safetensors"),
     "diff -r " W "/npy $T/npy"},
};

static const scenario outputs[] = {
    {"plan", "cp $T/words.plan " W "/plan", GPT "--steps 1 --plan " W "/plan", NEW("plan"), OLD_OR_NEW("plan")},
    {"plan_link", "cp $T/words.plan " W "/plan; ln -s plan " W "/link", GPT "--steps 1 --plan " W "/link", NEW("plan"),
     OLD_OR_NEW("plan") " && test -L " W "/link"},
    {"log", "true", GPT "--steps 3 --log " W "/log", "test $(grep -c '^{.*}$' " W "/log) = 5", "true"},
    {"log_goes_on", "cp -a $T/root " W "/run; printf '{}\n{' >" W "/log", DIGITS "--steps 4 --resume " W "/run --log " W "/log",
     "test $(grep -c '^{\"s.*}$' " W "/log) = 4 || grep -q '^open .*/log$' $T/met", /* written, though not read: log.c */
     "head -1 " W "/log | grep -q '^{}$'"},
    {"trace", "true", GPT "--steps 3 --trace " W "/trace", "tail -c 4 " W "/trace | grep -q ']}'", "true"},
    {"run_trace", "cp $T/plan " W, WEIR "run " W "/plan --made-up --steps 2 --trace " W "/trace",
     "tail -c 4 " W "/trace | grep -q ']}'", "cmp " W "/plan $T/plan"},
    {"fetch", "cp $T/plan " W, WEIR "run " W "/plan --made-up --steps 3 --fetch loss=" W "/loss.npy", NEW("loss.npy"),
     "cmp " W "/plan $T/plan"},
    {"feed", "cp $T/plan $T/x.npy " W, WEIR "run " W "/plan --made-up --feed tokens=" W "/x.npy --fetch loss=" W "/loss.npy",
     NEW("loss.npy"), "cmp " W "/x.npy $T/x.npy"},
    {"dot", "cp $T/plan " W, WEIR "show " W "/plan --dot " W "/dot", NEW("dot"), "cmp " W "/plan $T/plan"},
    {"show", "cp $T/plan " W, WEIR "show " W "/plan >" W "/out", NEW("out"), "cmp " W "/plan $T/plan"},
    {"keygen", "true", WEIR "keygen " W "/key", "test $(wc -c <" W "/key) = 41",
     "test ! -s " W "/key || test $(wc -c <" W "/key) = 41"},
    {"words", "cp $T/text " W, APPS_BIN "/weir-words --words 1 --plan " W "/plan " W "/text >" W "/out", NEW("out"), "cmp " W "/text $T/text"},
};

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static const int errors[] = {ENOSPC, EIO, EACCES, EDQUOT, EINTR};
enum { ERRORS = COUNT(errors), SHORT = 0 };

static void make_folder(void)
{
    folder_make();
    setenv("W", folder_path("work"), 1);
    must_run("set -e; head -c 1500 README.md >$T/text; weir() { " WEIR "\"$@\"; }; " GPT "--steps 2 --save $T/gpt --plan $T/plan;" DIGITS "--steps 2 --save $T/root;"
             "weir checkpoint convert $T/gpt $T/model.safetensors; weir checkpoint convert $T/root $T/small.safetensors;"
             "weir checkpoint convert --npy $T/root $T/npy; weir checkpoint convert --all $T/root $T/older.safetensors;"
             APPS_BIN "/weir-words --words 1 --plan $T/words.plan $T/text;"
             "{ printf '\\223NUMPY\\001\\000\\166\\000%-117s\\n' \"{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1, 8), }\";"
             "head -c 64 /dev/zero; } >$T/x.npy");
}

TestSuite(faults, .init = make_folder, .fini = folder_remove, .timeout = 1800);

/* The folder before; and, in $T/ref, after a command that meets nothing. */
static void prepare(const scenario *s)
{
    char command[3000];
    snprintf(command, sizeof command,
             "set -e; rm -rf $T/fresh $T/ref " W "; mkdir " W "; %s; cp -a " W " $T/fresh; %s 2>$T/err; cp -a " W " $T/ref; %s; %s",
             s->fresh, s->command, s->complete, s->kept);
    cr_assert_eq(run(command), 0, "%s, without a fault: %s", s->name, output);
}

/* One run. False: the command made fewer calls. */
static bool play(const scenario *s, int call, int error)
{
    char command[4000];
    snprintf(command, sizeof command,
             "rm -rf " W " $T/met; cp -a $T/fresh " W ";"
             "FAULTS_BELOW=" W " FAULTS_MET=$T/met FAULTS_AT=%d FAULTS_ERRNO=%d FAULTS_SHORT=%d LD_PRELOAD=" INJECTOR
             " timeout -s KILL 20 sh -c 'exec %s' 2>$T/err; s=$?; test -e $T/met || exit %d;"
             "cat $T/met; sed 's/^/  | /' $T/err; echo \"  status $s\";"
             "test $s -lt 124 || exit 1;"
             "grep -v ' goes on \\| is saved ' $T/err | grep -q \"" W "\\|standard output\"; said=$?;"
             "test $s = 0 || test $said = 0 || { echo NO FILE; exit 3; };"
             "test $s != 0 || test $said = 0 || { %s; } || { echo INCOMPLETE; exit 2; };"
             "{ %s; } || { echo LOST; exit 4; }",
             call, error, error == SHORT, s->command, NOT_MET, s->complete, s->kept);
    int status = run(command);
    cr_expect(!status || status == NOT_MET, "%s, call %d, %s: %s", s->name, call,
              error == SHORT ? "half" : strerrorname_np(error), output);
    return status != NOT_MET;
}

static void play_all(const scenario *s)
{
    bool all = getenv("WEIR_FAULTS_ALL") != NULL, more = true;
    int call = 1;
    prepare(s);
    for (; more && call < CALLS_MAX; call += all ? 1 : 1 + call / STRIDE)
        for (int e = 0; e < (all ? ERRORS : 1) && more; e++)
            more = play(s, call, errors[(call + e) % ERRORS]);
    cr_expect(call > 2 && call < CALLS_MAX, "%s makes %d calls", s->name, call);
    for (more = true, call = 1; more && call < CALLS_MAX; call += all ? 1 : 1 + call / STRIDE)
        more = play(s, call, SHORT);
}

static void play_list(const scenario *list, int count)
{
    const char *name = getenv("WEIR_FAULTS");
    for (int i = 0; i < count; i++)
        if (!name || !strcmp(name, list[i].name))
            play_all(&list[i]);
}

Test(faults, a_file_function_that_fails_loses_no_checkpoint_and_is_reported)
{
    play_list(checkpoints, COUNT(checkpoints));
}

Test(faults, a_file_function_that_fails_loses_nothing_that_is_converted_and_is_reported)
{
    play_list(conversions, COUNT(conversions));
}

Test(faults, a_file_function_that_fails_loses_no_output_and_is_reported)
{
    play_list(outputs, COUNT(outputs));
}
