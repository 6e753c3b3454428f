/* finish.c - hands a tile of sums to the unit's finishing loop in runs: along the outputs when Y is token-major, along the
 * tokens when it is feature-major. Sums that lie the other way round are turned first, a piece of the tile at a time.
 *
 * Outputs of shuffled rows are adjacent in the tile but not in Y, where a line of 16 belongs to as many row groups: written
 * at once, each would be fetched from memory, or from another core, again and again, unless it stays in the thread's own
 * cache meanwhile. Where it does not, the sums of a panel are set aside in the order in which they are made; when all are
 * there, one thread brings all of a token's to their places. */
#include "cpu/finish.h"

#include <string.h>

#include "core/dtype.h"
#include "format/weight.h"

/* Outputs in a run, and tokens: what is turned at a time. */
enum { RUN = 64, TOKENS = 16 };

typedef struct finisher {
    const lac_cpu_unit *unit;
    const lac_plan_options *options;
    const lac_call *call;
    const uint32_t *row_perm; /* [n] or NULL */
} finisher;

static const void *element(const void *data, lac_dtype dtype, int64_t at)
{
    return (const char *)data + (size_t)at * lac_dtype_size(dtype);
}

static int64_t output_of(const finisher *f, int64_t stored) { return f->row_perm ? (int64_t)f->row_perm[stored] : stored; }

/* What all calls of a tile have in common. */
static lac_cpu_finish_call call_of(const finisher *f)
{
    return (lac_cpu_finish_call){.stride = 1,
                                 .alpha = f->call->alpha,
                                 .beta = f->call->beta,
                                 .activation = f->options->activation,
                                 .c_dtype = f->options->c_dtype,
                                 .y_dtype = f->options->y_dtype,
                                 .c_stride = f->call->ldc,
                                 .y_stride = f->call->ldy};
}

/* Elements of 2 or 4 bytes from, and to, the places of a token's outputs. */
static void take_outputs(const void *row, lac_dtype dtype, const uint32_t *outputs, int count, void *run)
{
    if (lac_dtype_size(dtype) == 4)
        for (int i = 0; i < count; ++i) ((float *)run)[i] = ((const float *)row)[outputs[i]];
    else
        for (int i = 0; i < count; ++i) ((uint16_t *)run)[i] = ((const uint16_t *)row)[outputs[i]];
}

static void put_outputs(const void *run, lac_dtype dtype, const uint32_t *outputs, int count, void *row)
{
    if (lac_dtype_size(dtype) == 4)
        for (int i = 0; i < count; ++i) ((float *)row)[outputs[i]] = ((const float *)run)[i];
    else
        for (int i = 0; i < count; ++i) ((uint16_t *)row)[outputs[i]] = ((const uint16_t *)run)[i];
}

/* Nothing but a factor is asked for, in fp32. */
static bool is_plain(const finisher *f)
{
    return !f->call->bias && !f->call->c && f->options->activation == LAC_ACTIVATION_NONE &&
           f->options->y_dtype == LAC_DTYPE_F32;
}

/* Shuffled outputs of a few tokens: each token's are finished in a run, and then spread. */
static void finish_shuffled(const finisher *f, const lac_cpu_finish_call *all, int64_t stored, int64_t first_token)
{
    const lac_call *call = f->call;
    const uint32_t *outputs = f->row_perm + stored;
    union {
        float wide[RUN];
        uint16_t narrow[RUN];
    } c_run, y_run;
    lac_cpu_finish_call run = *all;
    if (is_plain(f)) {
        run.places = outputs; /* straight to their places */
        run.y = (float *)call->y + first_token * call->ldy;
        f->unit->finish(&run);
        return;
    }
    run.runs = 1;
    run.y = &y_run;
    for (int64_t t = 0; t < all->runs; ++t) {
        const void *c = call->c ? element(call->c, f->options->c_dtype, (first_token + t) * call->ldc) : NULL;
        void *y = (void *)element(call->y, f->options->y_dtype, (first_token + t) * call->ldy);
        if (c) {
            take_outputs(c, f->options->c_dtype, outputs, (int)run.count, &c_run);
            run.c = &c_run;
        }
        f->unit->finish(&run);
        put_outputs(&y_run, f->options->y_dtype, outputs, (int)run.count, y);
        run.sums += run.run_stride;
    }
}

/* Token-major: `rows` outputs of `tokens` tokens, sums[token][row]. */
static void finish_tokens(const finisher *f, const float *sums, int64_t token_stride, int64_t stored, int rows,
                          int64_t first_token, int64_t tokens)
{
    const lac_call *call = f->call;
    float bias[RUN];
    for (int i = 0; i < rows && call->bias; ++i)
        bias[i] = (float)lac_load_f64(call->bias, f->options->bias_dtype, output_of(f, stored + i));
    lac_cpu_finish_call all = call_of(f);
    all.runs = tokens;
    all.count = rows;
    all.sums = sums;
    all.run_stride = token_stride;
    all.bias = call->bias ? bias : NULL;
    if (f->row_perm) {
        finish_shuffled(f, &all, stored, first_token);
        return;
    }
    all.y = (void *)element(call->y, f->options->y_dtype, first_token * call->ldy + stored);
    if (call->c) all.c = element(call->c, f->options->c_dtype, first_token * call->ldc + stored);
    f->unit->finish(&all);
}

/* The same from sums whose tokens are adjacent: they are turned a few tokens at a time. */
static void finish_turned(const finisher *f, const lac_cpu_tile *tile, int row, int rows, int64_t first_token, int64_t tokens)
{
    float turned[TOKENS * RUN]; /* [token][row] */
    for (int64_t t = 0; t < tokens; t += TOKENS) {
        int64_t count = tokens - t < TOKENS ? tokens - t : TOKENS;
        lac_cpu_turn_call turn = {.rows = rows,
                                  .width = rows,
                                  .columns = count,
                                  .from = tile->sums + row * tile->row_stride + t,
                                  .from_stride = tile->row_stride,
                                  .to = turned,
                                  .to_stride = RUN};
        f->unit->turn(&turn);
        finish_tokens(f, turned, RUN, tile->first_row + row, rows, first_token + t, count);
    }
}

/* Feature-major: the tokens of one output. */
static void finish_output(const finisher *f, const lac_cpu_tile *tile, int64_t first_token, int64_t tokens, int row)
{
    const lac_call *call = f->call;
    int64_t output = output_of(f, tile->first_row + row);
    lac_cpu_finish_call run = call_of(f);
    run.runs = 1;
    run.count = tokens;
    run.sums = tile->sums + row * tile->row_stride;
    run.stride = tile->token_stride;
    if (call->bias) run.one_bias = (float)lac_load_f64(call->bias, f->options->bias_dtype, output);
    if (call->c) run.c = element(call->c, f->options->c_dtype, output * call->ldc + first_token);
    run.y = (void *)element(call->y, f->options->y_dtype, output * call->ldy + first_token);
    f->unit->finish(&run);
}

/* From one token's sums to the next one's: a whole number of lines, and no multiple of a page. */
static int64_t aside_stride(const lac_problem *problem) { return (problem->weight->geometry.n + 15) / 16 * 16 + 16; }

/* The tile's sums as rows of tokens, from `aside` on. */
static void set_aside(const lac_cpu_unit *unit, const lac_cpu_tile *tile, int64_t tokens, float *aside, int64_t stride)
{
    float *to = aside + tile->first_row;
    if (tile->row_stride == 1) {
        for (int64_t t = 0; t < tokens; ++t)
            memcpy(to + t * stride, tile->sums + t * tile->token_stride, (size_t)tile->rows * sizeof *to);
        return;
    }
    lac_cpu_turn_call turn = {.rows = tile->rows,
                              .width = tile->rows,
                              .columns = tokens,
                              .from = tile->sums,
                              .from_stride = tile->row_stride,
                              .to = to,
                              .to_stride = stride};
    unit->turn(&turn);
}

void lac_cpu_finish_tile(const lac_cpu_unit *unit, const lac_problem *problem, const lac_call *call, const lac_cpu_panel *panel,
                         const lac_cpu_tile *tile)
{
    const finisher f = {
        .unit = unit, .options = &problem->options, .call = call, .row_perm = problem->weight->part[LAC_PART_ROW_PERM].data};
    int64_t left = panel->tokens - tile->first_token, width = lac_cpu_tile_at(panel, tile->first_token);
    int64_t tokens = left < width ? left : width;
    int64_t first_token = panel->first + tile->first_token;
    if (panel->aside) {
        set_aside(unit, tile, tokens, panel->aside + tile->first_token * aside_stride(problem), aside_stride(problem));
        return;
    }
    if (problem->options.y_layout == LAC_LAYOUT_FEATURE_MAJOR) {
        for (int row = 0; row < tile->rows; ++row) finish_output(&f, tile, first_token, tokens, row);
        return;
    }
    for (int row = 0; row < tile->rows; row += RUN) {
        int rows = tile->rows - row < RUN ? tile->rows - row : RUN;
        if (tile->row_stride == 1)
            finish_tokens(&f, tile->sums + row, tile->token_stride, tile->first_row + row, rows, first_token, tokens);
        else
            finish_turned(&f, tile, row, rows, first_token, tokens);
    }
}

lac_cpu_region lac_cpu_finish_region(const lac_problem *problem, const lac_call *call, const lac_cpu_panel *panel,
                                     int64_t first_token, int64_t first_row, int64_t end_row)
{
    const lac_plan_options *o = &problem->options;
    const int64_t n = problem->weight->geometry.n, size = (int64_t)lac_dtype_size(o->y_dtype);
    int64_t left = panel->tokens - first_token, width = lac_cpu_tile_at(panel, first_token), token = panel->first + first_token;
    if (problem->weight->part[LAC_PART_ROW_PERM].data) return (lac_cpu_region){0};
    if (end_row > n) end_row = n;
    if (o->y_layout == LAC_LAYOUT_FEATURE_MAJOR)
        return (lac_cpu_region){.begin = element(call->y, o->y_dtype, first_row * call->ldy + token),
                                .rows = end_row - first_row,
                                .bytes = (left < width ? left : width) * size,
                                .stride = call->ldy * size};
    return (lac_cpu_region){.begin = element(call->y, o->y_dtype, token * call->ldy + first_row),
                            .rows = left < width ? left : width,
                            .bytes = (end_row - first_row) * size,
                            .stride = call->ldy * size};
}

/* ---- sums that wait */

uint64_t lac_cpu_aside_bytes(const lac_problem *problem, int64_t tokens)
{
    const lac_weight *w = problem->weight;
    bool waits = w->part[LAC_PART_ROW_PERM].data && problem->options.y_layout == LAC_LAYOUT_TOKEN_MAJOR && problem->m > 1;
    return waits ? (uint64_t)tokens * (uint64_t)aside_stride(problem) * sizeof(float) : 0;
}

void lac_cpu_finish_aside(const lac_cpu_unit *unit, const lac_problem *problem, const lac_call *call,
                          const lac_cpu_panel *panel, int64_t token)
{
    const finisher f = {
        .unit = unit, .options = &problem->options, .call = call, .row_perm = problem->weight->part[LAC_PART_ROW_PERM].data};
    const int64_t n = problem->weight->geometry.n;
    const float *sums = panel->aside + token * aside_stride(problem);
    const int64_t size = (int64_t)lac_dtype_size(problem->options.y_dtype), bytes = problem->weight->n_out * size;
    const char *next = (const char *)call->y + (panel->first + token + 1) * call->ldy * size;
    for (int64_t line = 0; line < bytes && token + 1 < panel->tokens; line += 64) __builtin_prefetch(next + line, 1, 3);
    if (is_plain(&f)) { /* all at once */
        lac_cpu_finish_call all = call_of(&f);
        all.runs = 1;
        all.count = n;
        all.sums = sums;
        all.places = f.row_perm;
        all.y = (float *)call->y + (panel->first + token) * call->ldy;
        unit->finish(&all);
        return;
    }
    for (int64_t row = 0; row < n; row += RUN)
        finish_tokens(&f, sums + row, n, row, (int)(n - row < RUN ? n - row : RUN), panel->first + token, 1);
}
