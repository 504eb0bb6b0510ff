/* apps/common/options.h: command lines, from a table.
 *
 * A program lists what it takes as an array that ends at a NULL name; an entry names where the value goes, so that its
 * default is what stands there before:
 *
 *     int steps = 100;
 *     const options_entry table[] = {
 *         {"--steps", OPTIONS_INT, &steps, .min = 1, .max = 1e9, .help = "training steps"},
 *         {.name = NULL},
 *     };
 *     int status = options_parse(&(options_spec){"demo", "trains something", table}, argc, argv);
 *     if (status >= 0)
 *         return status;
 *
 * A name without dashes is a positional argument; those are filled in the order of the table. `--steps 5` and
 * `--steps=5` are the same; `--help` prints the table. A mistake is one line on stderr, and the exit status is 2. Two
 * outputs with one file, or an output and an input, are a mistake.
 *
 * Values point into argv, which must outlive them. Any thread; keeps no state. From here on the calling thread has the
 * C locale, so that all numbers of a program have a point, even where a preloaded library calls setlocale().
 */
#ifndef APPS_COMMON_OPTIONS_H
#define APPS_COMMON_OPTIONS_H

#include <stdbool.h>

#define OPTIONS_WRONG 2     /* exit status of a command line that makes no sense, or names a file that cannot be read */
#define OPTIONS_LIST_MAX 64 /* values of one OPTIONS_LIST */

/* kind, type that `to` points to, what help calls the value */
#define OPTIONS_KIND_LIST(X)        \
    X(FLAG, bool, "")               \
    X(INT, int, "N")                \
    X(U64, uint64_t, "N")           \
    X(REAL, double, "X")            \
    X(TEXT, const char *, "TEXT")   \
    X(LIST, options_list, "TEXT")

typedef enum options_kind {
#define X(kind, type, value) OPTIONS_##kind,
    OPTIONS_KIND_LIST(X)
#undef X
} options_kind;

/* A TEXT or LIST may name files; this says what the program does with them. An output must not be one file with another output
 * or an input (options_files.h). */
typedef enum options_file {
    OPTIONS_NO_FILE,
    OPTIONS_READS,
    OPTIONS_READS_NAMED,  /* the value is NAME=FILE; a FILE - is standard input */
    OPTIONS_WRITES,
    OPTIONS_WRITES_NAMED, /* NAME=FILE; a FILE - is standard output */
    OPTIONS_WRITES_RANKS, /* each rank its own (ranks_path()) */
} options_file;

/* All values of an option that is given several times (`--feed x=1 --feed y=2`) or, with .several, takes all that
 * follow (`--text a b`). */
typedef struct options_list {
    const char *value[OPTIONS_LIST_MAX];
    int count;
    bool bare; /* the option was given without a value, which .optional allows */
} options_list;

typedef struct options_entry {
    const char *name;  /* "--steps", or "PLAN" for a positional argument (TEXT) */
    options_kind kind;
    void *to;          /* borrowed */
    double min, max;   /* INT and REAL, both included; no limits when both are 0 */
    const char *help;
    const char *value; /* what help calls the value; NULL: by kind */
    bool optional;     /* of a positional argument: may be left out; of a LIST: needs no value */
    bool several;      /* of a LIST: takes every argument up to the next option; the last positional one: all that are left */
    options_file file;
} options_entry;

typedef struct options_spec {
    const char *program; /* "weir-gpt", or "weir show": begins every message */
    const char *about;   /* one line for --help */
    const options_entry *table;
} options_spec;

/* Fills the table from argv[1..]. Returns -1 to go on; else the exit status: 0 after --help, OPTIONS_WRONG after a
 * mistake. */
int options_parse(const options_spec *spec, int argc, char **argv);

/* Where options of the table end, for a program that starts another one: the index of "--", or of the first argument that
 * is neither an option nor a value of one; argc when there is none. */
int options_end(const options_spec *spec, int argc, char **argv);

/* "weir-gpt: " and the sentence, as one line on stderr; returns OPTIONS_WRONG. */
int options_wrong(const char *program, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* weir_error() without the line of the program's own sources that it may begin with, "apps/common/train/trainer.c:63: ": who
 * runs the program has no use for that. The line of another program, whose plan this one runs, stays. */
const char *options_error(const char *program);

/* "weir-gpt: " and options_error(), as one line on stderr; returns 1, the exit status of what went wrong at work. */
int options_failed(const char *program);

#endif
