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
static void say_place(const proof *p, char *text, size_t bytes)
{
    const weir_src src = opts_src(&p->opts);
    const bool known = strcmp(src.file, "?") != 0;
    if (known)
        snprintf(text, bytes, "%s:%d: %s: ", src.file, src.line, p->call);
    else
        snprintf(text, bytes, "%s: ", p->call);
}

weir_status proof_refuse(const proof *p, weir_status status, const char *format, ...)
{
    char place[512], text[1024];
    va_list args;
    va_start(args, format);
    text_vprint(text, sizeof text, format, args);
    va_end(args);
    say_place(p, place, sizeof place);
    return error_set(status, "%s%s", place, text);
}

weir_status proof_may_take(const proof *p, const char *name, uint64_t bytes)
{
    uint64_t most = (uint64_t)sysconf(_SC_PHYS_PAGES) / 2 * (uint64_t)sysconf(_SC_PAGESIZE);
    if (p->opts.memory && !bytes_parse(p->opts.memory, &most))
        return proof_refuse(p, WEIR_E_ARGUMENT, "\"%s\" is not an amount of memory; write a number above 0 and B, KB, MB, GB, TB, "
                            "KiB, MiB, GiB or TiB, as \"8GiB\"", p->opts.memory);
    if (bytes <= most)
        return WEIR_OK;
    return proof_refuse(p, WEIR_E_MEMORY, "the proof of \"%s\" takes %.1f GiB, and may take %.1f GiB; verify a smaller version of "
                        "the model in the same layout (fewer layers, a smaller width, fewer rows), or give more in .memory",
                        name, (double)bytes / 0x1p30, (double)most / 0x1p30);
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
