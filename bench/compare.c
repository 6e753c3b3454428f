/* compare.c - did anything get slower? Compares the speedups over dense of a run with stored ones: ratios from one run each
 * hold on a machine that is busier or clocked lower, times do not. `make bench` calls it through the command line. */
#include "bench.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

int bench_row_is_same_cell(const bench_row *a, const bench_row *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->threads == b->threads && !strcmp(a->device, b->device) &&
           !strcmp(a->dtype, b->dtype) && !strcmp(a->precision, b->precision) && !strcmp(a->pattern, b->pattern) &&
           !strcmp(a->layout, b->layout) && !strcmp(a->cache, b->cache) &&
           !strncmp(a->kernel, "peer:", 5) == !strncmp(b->kernel, "peer:", 5);
}

/* The best of the rows of one cell: kernels may be renamed, what the user gets is what counts. NULL: none has a speedup. */
static const bench_row *best_of_cell(const bench_rows *rows, const bench_row *cell)
{
    const bench_row *best = NULL;
    for (size_t i = 0; i < rows->count; i++) {
        const bench_row *row = &rows->items[i];
        if (isfinite(row->speedup) && bench_row_is_same_cell(row, cell) && (!best || row->speedup > best->speedup)) best = row;
    }
    return best;
}

static void print_cell(FILE *to, const bench_row *now, const bench_row *then)
{
    fprintf(to, "slower: %" PRId64 ",%" PRId64 ",%" PRId64 " %s %s %s %s: %.2fx of dense, was %.2fx (%+.0f%%); %s, was %s\n",
            now->m, now->n, now->k, now->pattern, now->dtype, now->layout, now->cache, now->speedup, then->speedup,
            100 * (now->speedup / then->speedup - 1), now->kernel, then->kernel);
}

bench_status bench_compare(const bench_rows *rows, const bench_rows *stored, double tolerance, FILE *to)
{
    size_t cells = 0, slower = 0, faster = 0;
    double logs = 0;
    char model_now[128] = "", model_then[128] = "";
    for (size_t i = 0; i < rows->count; i++) {
        const bench_row *now = best_of_cell(rows, &rows->items[i]);
        if (now != &rows->items[i]) continue;            /* each cell once, by its best row */
        if (!strncmp(now->kernel, "peer:", 5)) continue; /* not ours to keep quick, and not always the same ones */
        const bench_row *then = best_of_cell(stored, now);
        if (!then) continue;
        cells++;
        logs += log(now->speedup / then->speedup);
        bench_info_text(now->device_info, "model", model_now, sizeof model_now);
        bench_info_text(then->device_info, "model", model_then, sizeof model_then);
        faster += now->speedup > then->speedup * (1 + tolerance);
        if (now->speedup >= then->speedup * (1 - tolerance)) continue;
        slower++;
        print_cell(to, now, then);
    }
    if (!cells) {
        fprintf(to, "no cell of this run is among the stored ones, or none has a baseline\n");
        return BENCH_USAGE;
    }
    if (strcmp(model_now, model_then))
        fprintf(to, "the stored results are of another machine (%s, this is %s): ratios may differ\n", model_then, model_now);
    fprintf(to, "%zu cells compared: %zu slower and %zu faster than stored by more than %.0f%%; geometric mean %.3fx\n", cells,
            slower, faster, 100 * tolerance, exp(logs / (double)cells));
    return slower ? BENCH_WRONG : BENCH_OK;
}
