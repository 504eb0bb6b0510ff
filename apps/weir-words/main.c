/* weir-words: counts the words of a text file of any size, as a graph of calls.
 *
 *     weir-words FILE                      the ten most frequent words, and how fast they were counted
 *     weir-words --top 0 FILE              all of them, a line each
 */
#define _GNU_SOURCE
#include "apps/common/measure.h"
#include "apps/common/options.h"
#include "apps/common/paths.h"
#include "apps/common/streams.h"
#include "apps/weir-words/words.h"
#include "graph/base/reading.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char program[] = "weir-words";

typedef struct run {
    words_config words;
    const char *plan;
    bool with_graph;
    int top, mib;
} run;

/* As many lanes as there are cores, at most as many as there can be. */
static int lanes_default(void)
{
    cpu_set_t cores;
    int count = sched_getaffinity(0, sizeof cores, &cores) ? 1 : CPU_COUNT(&cores);
    return count < 1 ? 1 : count < WORDS_LANES_MAX ? count : WORDS_LANES_MAX;
}

static int open_file(run *r)
{
    struct stat info;
    char meant[PATHS_BYTES];
    const char *why;
    r->words.file = reading_open(r->words.path, &why); /* lanes read it at several places at once */
    if (r->words.file < 0)
        return options_wrong(program, "cannot read %s: %s%s", r->words.path, why, paths_meant(r->words.path, meant));
    if (fstat(r->words.file, &info))
        return options_wrong(program, "cannot read %s: %s", r->words.path, strerror(errno));
    r->words.bytes = (uint64_t)info.st_size;
    return -1;
}

static int print_words(const run *r)
{
    const table *t = &r->words.total;
    const table_entry **list = table_sorted(t);
    if (!list && t->words)
        return options_wrong(program, "no memory to sort the words");
    for (size_t i = 0; i < t->words && (!r->top || i < (size_t)r->top); i++)
        printf("%9" PRIu64 " %.*s\n", list[i]->count, list[i]->length, list[i]->word);
    free(list);
    return 0;
}

/* On stderr, so that what is on stdout is words alone. */
static void print_figures(const run *r, const weir_plan *plan, double seconds)
{
    uint64_t all = 0;
    char planned[32], peak[32];
    const table *t = &r->words.total;
    for (size_t at = 0; at < t->used; at += table_entry_bytes(((const table_entry *)(t->entries + at))->length))
        all += ((const table_entry *)(t->entries + at))->count;
    fprintf(stderr, "%s: %" PRIu64 " words, %zu of them different, in %" PRIu64 " bytes; %.3f s, %.1f MB/s; planned %s, "
            "peak %s\n", program, all, t->words, r->words.bytes, seconds, (double)r->words.bytes / seconds / 1e6,
            measure_bytes_text(weir_plan_bytes(plan, -1), planned), measure_bytes_text(measure_peak_rss(), peak));
}

static int count_words(run *r, const weir_plan *plan)
{
    double start = measure_seconds();
    weir_session *s = weir_session_open(plan);
    bool failed = !s || (r->words.steps && weir_session_run(s, (int64_t)r->words.steps));
    int status = failed ? options_failed(program) : -1;
    weir_session_close(s);
    if (status >= 0)
        return status;
    print_figures(r, plan, measure_seconds() - start);
    return print_words(r);
}

static int compile_and_count(run *r)
{
    weir_graph *g = words_graph(&r->words);
    weir_plan *plan = g ? weir_compile(g, .keep_graph = r->with_graph) : NULL;
    int status = plan && !(r->plan && weir_plan_save(plan, r->plan)) ? -1 : options_failed(program);
    if (status < 0)
        status = count_words(r, plan);
    weir_plan_free(plan);
    if (g)
        weir_graph_free(g);
    return status;
}

static int run_program(int argc, char **argv)
{
    run r = {.words = {.file = -1, .lanes = lanes_default(), .block = 256 << 10}, .top = 10, .mib = 1024};
    const options_entry entries[] = {
        {"FILE", OPTIONS_TEXT, &r.words.path, .file = OPTIONS_READS, .help = "the text file"},
        {"--lanes", OPTIONS_INT, &r.words.lanes, .min = 1, .max = WORDS_LANES_MAX,
         .help = "blocks to count at a time; default: one per core"},
        {"--block", OPTIONS_INT, &r.words.block, .min = 4096, .max = 8 << 20, .help = "bytes per block"},
        {"--words", OPTIONS_INT, &r.mib, .min = 1, .max = 30000, .help = "MiB for the table of distinct words"},
        {"--top", OPTIONS_INT, &r.top, .min = 0, .max = 2e9, .help = "most frequent words to print; 0: all"},
        {"--plan", OPTIONS_TEXT, &r.plan, .value = "FILE", .file = OPTIONS_WRITES, .help = "save the compiled plan"},
        {"--with-graph", OPTIONS_FLAG, &r.with_graph,
         .help = "with --plan: keep the graph in the plan, for weir check --graph"},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Count the words of a text file.", entries}, argc, argv);
    if (status < 0 && r.with_graph && !r.plan)
        status = options_wrong(program, "--with-graph needs --plan FILE");
    if (status < 0)
        status = open_file(&r);
    r.words.words_bytes = (uint64_t)r.mib << 20;
    if (status < 0 && !table_open(&r.words.total, r.words.words_bytes, false))
        status = options_wrong(program, "no memory");
    if (status < 0)
        status = compile_and_count(&r);
    table_close(&r.words.total);
    if (r.words.file >= 0)
        close(r.words.file);
    return status;
}

int main(int argc, char **argv)
{
    streams_begin();
    return streams_end(program, run_program(argc, argv));
}
