/* apps/weir/bench/figures.c: see the header. */
#include "apps/weir/bench/figures.h"

#include "apps/common/measure.h"

#define US 1e6

static bool measured(const struct bench_figures *f, int m)
{
    return !f->over || f->over == f->measures[m].over;
}

static double ratio_median(const struct bench_figures *f, const struct bench_cell *cell, const struct bench_ratio *ratio)
{
    double each[BENCH_ROUNDS_MAX];
    for (int i = 0; i < f->rounds; i++)
        each[i] = cell->seconds[ratio->one][i] / cell->seconds[ratio->other][i];
    return measure_median(each, f->rounds);
}

/* Ratios first: medians sort. */
static void take_medians(const struct bench_figures *f, struct bench_cell *cell)
{
    for (int r = 0; r < f->ratio_count; r++)
        if (measured(f, f->ratios[r].one))
            cell->ratio[r] = ratio_median(f, cell, &f->ratios[r]);
    for (int m = 0; m < f->measure_count; m++)
        if (measured(f, m))
            cell->median[m] = measure_median(cell->seconds[m], f->rounds);
}

weir_status bench_figures_take(struct bench_figures *f)
{
    weir_status status = WEIR_OK;
    for (int i = 0; i < f->rounds; i++)
        for (int c = 0; c < f->cell_count; c++)
            for (int m = 0; m < f->measure_count && !status; m++)
                if (measured(f, m))
                    status = f->measures[m].run(&f->cell[c].round, &f->cell[c].seconds[m][i]);
    for (int c = 0; c < f->cell_count && !status; c++)
        take_medians(f, &f->cell[c]);
    return status;
}

void bench_figures_json(const struct bench_figures *f, const struct bench_cell *cell, FILE *to)
{
    for (int m = 0; m < f->measure_count; m++)
        if (measured(f, m))
            fprintf(to, ", \"%s_%s\": %.*f", f->measures[m].name, f->unit, f->decimals, cell->median[m] * f->per_second);
    for (int r = 0; r < f->ratio_count; r++)
        if (measured(f, f->ratios[r].one))
            fprintf(to, ", \"%s\": %.3f", f->ratios[r].name, cell->ratio[r]);
}

void bench_figures_table(const struct bench_figures *f, const struct bench_cell *cells, int count, FILE *to)
{
    char text[32];
    for (int c = 0; c < count; c++)
        fprintf(to, "%12s", measure_bytes_text(cells[c].round.bytes, text));
    for (int m = 0; m < f->measure_count; m++) {
        if (!measured(f, m))
            continue;
        fprintf(to, "\n%-*s", f->text_width, f->measures[m].text);
        for (int c = 0; c < count; c++)
            fprintf(to, "%12.*f", f->us_decimals, cells[c].median[m] * US);
    }
    for (int r = 0; r < f->ratio_count; r++) {
        if (!measured(f, f->ratios[r].one))
            continue;
        fprintf(to, "\n%-*s", f->text_width, f->ratios[r].name);
        for (int c = 0; c < count; c++)
            fprintf(to, "%12.2f", cells[c].ratio[r]);
    }
    fprintf(to, "\n");
}
