/* bench_run.c - `lacuna bench` while it runs: asks bench/ for what the settings say, and prints a line for each result. */
#include "bench_work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what bench/ tells */

static void on_message(void *user, const char *message)
{
    bench_work *work = user;
    cli_progress_finish(&work->progress);
    cli_error(NULL, NULL, "%s", message);
}

/* Beside the table, which it is about; a CSV has the load in its device_info. */
static void on_notice(void *user, const char *notice)
{
    bench_work *work = user;
    cli_progress_finish(&work->progress);
    if (work->table) printf("%s\n", notice);
}

static void on_progress(void *user, uint64_t done, uint64_t total, const char *what)
{
    cli_progress_show(&((bench_work *)user)->progress, done, total, what);
}

static int should_stop(void *user)
{
    (void)user;
    return cli_interrupted();
}

static void print_row(bench_work *work, const bench_row *row)
{
    if (!work->titled)
        printf("%-17s %-12s %-4s %-28s %11s %7s %11s %8s %9s %8s\n", "m,n,k", "pattern", "type", "kernel", "time us", "spread",
               "dense us", "speedup", "GFLOP/s", "ceiling");
    work->titled = 1;
    char shape[80], dense[32] = "-", speedup[32] = "-";
    snprintf(shape, sizeof shape, "%lld,%lld,%lld", (long long)row->m, (long long)row->n, (long long)row->k);
    if (isfinite(row->dense_us)) snprintf(dense, sizeof dense, "%.1f", row->dense_us);
    if (isfinite(row->speedup)) snprintf(speedup, sizeof speedup, "%.2fx", row->speedup);
    const char *colour = !isfinite(row->speedup) ? "plain" : row->speedup < 0.98 ? "red" : "green";
    printf("%-17s %-12s %-4s %-28s %11.1f %6.1f%% %11s %s%8s%s %9.1f %7.0f%%\n", shape, row->pattern, row->dtype, row->kernel,
           row->time_us, 100 * row->spread, dense, cli_colour(colour), speedup, cli_colour("plain"), 1e3 * row->tflops_real,
           100 * row->share_of_ceiling);
    cli_output_flush();
}

static void on_row(void *user, const bench_row *row)
{
    bench_work *work = user;
    cli_progress_finish(&work->progress);
    if (bench_rows_add(&work->rows, row)) {
        cli_error(NULL, NULL, "out of memory");
        work->failed = 1;
    }
    if (work->table) print_row(work, row);
    cli_bench_write_row(work, row);
}

/* ---- what it is asked */

static int read_shapes(const bench_settings *s, bench_shapes *shapes)
{
    char why[512];
    bench_status status = BENCH_OK;
    for (size_t i = 0; !status && i < s->shapes.count; i++)
        status = bench_shapes_parse(shapes, s->shapes.items[i], why, sizeof why);
    if (!status && s->shape_file) status = bench_shapes_read(shapes, s->shape_file, why, sizeof why);
    if (!status && !shapes->count) {
        status = bench_shapes_parse(shapes, "1,2048,2048", why, sizeof why);
        if (!status) status = bench_shapes_parse(shapes, "128,2048,2048", why, sizeof why);
    }
    if (status) cli_error(NULL, NULL, "%s", why);
    bench_shapes_scale(shapes, s->max_m);
    return (int)status;
}

/* One pattern of each family, for those who name none. */
static const char *const family_texts[] = {"2:4", "vw32:8:32", "bw4x4:2:8", "64:2:8", "shfl64:25%"};
enum { FAMILIES = sizeof family_texts / sizeof *family_texts, PRECISIONS = LAC_PRECISION_TF32 + 1 };

/* Each precision that was named, once. */
static size_t read_precisions(const cli_values *named, lac_precision precisions[PRECISIONS])
{
    size_t count = 0;
    for (size_t i = 0; i < named->count; i++) {
        lac_precision one = (lac_precision)((const int *)named->items)[i];
        size_t at = 0;
        while (at < count && precisions[at] != one) at++;
        precisions[at] = one;
        count += at == count;
    }
    return count;
}

int cli_bench_run(bench_work *work)
{
    const bench_settings *s = work->settings;
    static const lac_dtype usual = LAC_DTYPE_F32;
    lac_pattern families[FAMILIES];
    lac_precision precisions[PRECISIONS];
    size_t precision_count = read_precisions(&s->precision, precisions);
    bench_shapes shapes = {0};
    for (size_t i = 0; i < FAMILIES; i++) {
        lac_status parsed = lac_pattern_parse(family_texts[i], &families[i]);
        if (parsed != LAC_STATUS_OK) return cli_fail(NULL, NULL, parsed);
    }
    int status = read_shapes(s, &shapes);
    bench_options asked = {.shapes = &shapes,
                           .device = s->device,
                           .patterns = s->pattern.count ? s->pattern.items : families,
                           .pattern_count = s->pattern.count ? s->pattern.count : FAMILIES,
                           .dtypes = s->dtype.count ? s->dtype.items : &usual,
                           .dtype_count = s->dtype.count ? s->dtype.count : 1,
                           .precisions = precisions,
                           .precision_count = precision_count,
                           .layout = (lac_layout)s->layout,
                           .threads = (int)s->threads,
                           .baseline = s->baseline,
                           .peers = s->peers.items,
                           .peer_count = s->peers.count,
                           .kernels = s->kernel.items,
                           .kernel_count = s->kernel.count,
                           .warm = s->warm,
                           .min_seconds = s->min_time,
                           .max_seconds = s->max_seconds,
                           .stages = s->stages,
                           .quick_check = s->quick_check,
                           .turns = s->turns,
                           .known = s->resume ? &work->rows : NULL,
                           .seed = (uint64_t)s->seed,
                           .user = work,
                           .on_row = on_row,
                           .on_progress = on_progress,
                           .on_message = on_message,
                           .on_notice = on_notice,
                           .should_stop = should_stop};
    if (!status) {
        cli_interrupt_catch();
        cli_progress_start(&work->progress, s->progress);
        status = (int)bench_run(&asked);
        cli_progress_finish(&work->progress);
    }
    bench_shapes_free(&shapes);
    return status;
}
