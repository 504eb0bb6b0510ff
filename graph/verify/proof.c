/* graph/verify/proof.c: see the header. */
#include "graph/verify/proof.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "graph/base/opts.h"
#include "graph/model/build.h" /* graph_now_ns */
#include "graph/verify/field.h"

enum { ROUNDS = 2, PROGRESS_NS = 1000000000 };

weir_status proof_open(proof *p, const weir_verify_opts *given, const char *call)
{
    *p = (proof){.call = call, .told_ns = graph_now_ns()};
    const weir_status status = opts_read(&p->opts, sizeof p->opts, given, call);
    p->opts.rounds = p->opts.rounds > 0 ? p->opts.rounds : ROUNDS;
    return status;
}

/* "model.c:12: weir_plan_verify: ", or less where it is not known. */
static void say_place(const char *call, weir_src src, char *text, size_t bytes)
{
    if (src.file && strcmp(src.file, "?"))
        snprintf(text, bytes, "%s:%d: %s: ", src.file, src.line, call);
    else
        snprintf(text, bytes, "%s: ", call);
}

weir_status proof_refuse(const proof *p, weir_status status, const char *format, ...)
{
    char place[512], text[1024];
    va_list args;
    va_start(args, format);
    text_vprint(text, sizeof text, format, args);
    va_end(args);
    say_place(p->call, opts_src(&p->opts), place, sizeof place);
    return error_set(status, "%s%s", place, text);
}

weir_status proof_memory(const char *call, weir_src src, const char *given, uint64_t *most)
{
    char place[512];
    *most = (uint64_t)sysconf(_SC_PHYS_PAGES) / 2 * (uint64_t)sysconf(_SC_PAGESIZE);
    if (!given || bytes_parse(given, most))
        return WEIR_OK;
    say_place(call, src, place, sizeof place);
    return error_set(WEIR_E_ARGUMENT, "%s\"%s\" is not an amount of memory; write a number above 0 and B, KB, MB, GB, TB, KiB, MiB, "
                     "GiB or TiB, as \"8GiB\"", place, given);
}

weir_status proof_fits(const char *call, weir_src src, const char *name, const char *given, uint64_t bytes, const char *remedy)
{
    char place[512];
    uint64_t most;
    const weir_status status = proof_memory(call, src, given, &most);
    if (status || bytes <= most)
        return status;
    say_place(call, src, place, sizeof place);
    return error_set(WEIR_E_MEMORY, "%sthe proof of \"%s\" takes %.1f GiB, and may take %.1f GiB; %sverify a smaller version of the model "
                     "in the same layout (fewer layers, a smaller width, fewer rows), or give more in .memory",
                     place, name, (double)bytes / 0x1p30, (double)most / 0x1p30, remedy);
}

weir_status proof_may_take(const proof *p, const char *name, uint64_t bytes)
{
    const bool has_local = !strcmp(p->call, "weir_plan_verify");
    return proof_fits(p->call, opts_src(&p->opts), name, p->opts.memory, bytes,
                      has_local ? "judge each kernel alone (.local = true), " : "");
}

bool proof_runs(const proof *p, const weir_plan *plan, uint32_t program)
{
    return !p->opts.program || !strcmp(p->opts.program, plan_text(plan, plan->programs[program].name));
}

weir_status proof_check_program(const proof *p, const weir_plan *plan)
{
    for (uint32_t program = 0; program < plan->programs_count; program++)
        if (proof_runs(p, plan, program))
            return WEIR_OK;
    return proof_refuse(p, WEIR_E_ARGUMENT, "the plan \"%s\" has no program \"%s\"; its first is \"%s\"",
                        plan_text(plan, plan->name), p->opts.program, plan_text(plan, plan->programs[0].name));
}

void proof_expect(proof *p, const weir_plan *plan, int64_t steps)
{
    uint64_t sum = 0;
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        const uint32_t program = plan->actors[a].program.i;
        if (proof_runs(p, plan, program))
            sum += plan->actors[a].fires * (uint64_t)(program ? PROOF_STEPS : steps);
    }
    p->firings += sum * (uint64_t)p->opts.rounds;
}

void proof_fired(proof *p)
{
    p->fired++;
    if (!p->opts.progress || graph_now_ns() - p->told_ns < PROGRESS_NS)
        return;
    p->told_ns = graph_now_ns();
    p->opts.progress(p->opts.ctx, (double)p->fired / (double)(p->fired > p->firings ? p->fired : p->firings));
}

uint64_t proof_seed(const proof *p, int round)
{
    const int64_t number = round;
    return field_bits(p->opts.seed, "round", &number, 1);
}
