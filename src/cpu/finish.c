/* finish.c - hands a tile of sums to the unit's finishing loop in runs: along the outputs when Y is token-major, along the
 * tokens when it is feature-major. Outputs of shuffled rows are adjacent in the tile but not in Y; a run of them is finished
 * beside Y and then put where it belongs. */
#include "cpu/finish.h"

#include "core/dtype.h"
#include "format/weight.h"

/* Outputs in a run. */
enum { RUN = 64 };

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

/* What every run of the call has in common. */
static lac_cpu_finish_call run_of(const finisher *f, int64_t count, const float *sums, int64_t stride)
{
    return (lac_cpu_finish_call){.count = count,
                                 .sums = sums,
                                 .stride = stride,
                                 .alpha = f->call->alpha,
                                 .beta = f->call->beta,
                                 .activation = f->options->activation,
                                 .c_dtype = f->options->c_dtype,
                                 .y_dtype = f->options->y_dtype};
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

/* Token-major: `rows` outputs of one token after another. */
static void finish_tokens(const finisher *f, const lac_cpu_tile *tile, int64_t first_token, int64_t tokens, int row, int rows)
{
    const lac_call *call = f->call;
    int64_t stored = tile->first_row + row;
    float bias[RUN];
    union {
        float wide[RUN];
        uint16_t narrow[RUN];
    } c_run, y_run;
    for (int i = 0; i < rows && call->bias; ++i)
        bias[i] = (float)lac_load_f64(call->bias, f->options->bias_dtype, output_of(f, stored + i));
    for (int64_t t = 0; t < tokens; ++t) {
        int64_t at = (first_token + t) * call->ldy, at_c = (first_token + t) * call->ldc;
        lac_cpu_finish_call run =
            run_of(f, rows, tile->sums + row * tile->row_stride + t * tile->token_stride, tile->row_stride);
        run.bias = call->bias ? bias : NULL;
        if (!f->row_perm) {
            run.y = (void *)element(call->y, f->options->y_dtype, at + stored);
            if (call->c) run.c = element(call->c, f->options->c_dtype, at_c + stored);
            f->unit->finish(&run);
            continue;
        }
        const uint32_t *outputs = f->row_perm + stored;
        run.y = &y_run;
        if (call->c) {
            take_outputs(element(call->c, f->options->c_dtype, at_c), f->options->c_dtype, outputs, rows, &c_run);
            run.c = &c_run;
        }
        f->unit->finish(&run);
        put_outputs(&y_run, f->options->y_dtype, outputs, rows, (void *)element(call->y, f->options->y_dtype, at));
    }
}

/* Feature-major: the tokens of one output. */
static void finish_output(const finisher *f, const lac_cpu_tile *tile, int64_t first_token, int64_t tokens, int row)
{
    const lac_call *call = f->call;
    int64_t output = output_of(f, tile->first_row + row);
    lac_cpu_finish_call run = run_of(f, tokens, tile->sums + row * tile->row_stride, tile->token_stride);
    if (call->bias) run.one_bias = (float)lac_load_f64(call->bias, f->options->bias_dtype, output);
    if (call->c) run.c = element(call->c, f->options->c_dtype, output * call->ldc + first_token);
    run.y = (void *)element(call->y, f->options->y_dtype, output * call->ldy + first_token);
    f->unit->finish(&run);
}

void lac_cpu_finish_tile(const lac_cpu_unit *unit, const lac_problem *problem, const lac_call *call, const lac_cpu_panel *panel,
                         const lac_cpu_tile *tile)
{
    const finisher f = {unit, &problem->options, call, problem->weight->part[LAC_PART_ROW_PERM].data};
    int64_t left = panel->tokens - tile->first_token;
    int64_t tokens = left < panel->tile ? left : panel->tile;
    int64_t first_token = panel->first + tile->first_token;
    if (problem->options.y_layout == LAC_LAYOUT_FEATURE_MAJOR) {
        for (int row = 0; row < tile->rows; ++row) finish_output(&f, tile, first_token, tokens, row);
        return;
    }
    for (int row = 0; row < tile->rows; row += RUN)
        finish_tokens(&f, tile, first_token, tokens, row, tile->rows - row < RUN ? tile->rows - row : RUN);
}
