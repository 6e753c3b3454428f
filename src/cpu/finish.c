/* finish.c - hands a tile of sums to the unit's finishing loop in runs that are adjacent in Y: along the outputs when Y
 * is token-major, along the tokens when it is feature-major. */
#include "cpu/finish.h"

#include "core/dtype.h"
#include "format/weight.h"

static const void *element(const void *data, lac_dtype dtype, int64_t at)
{
    return data ? (const char *)data + (size_t)at * lac_dtype_size(dtype) : NULL;
}

typedef struct finisher {
    const lac_cpu_unit *unit;
    const lac_plan_options *options;
    const lac_call *call;
} finisher;

/* `at` and `at_c` are the element numbers of the run's first result in Y and C. */
static void finish_run(const finisher *f, const float *sums, int64_t stride, int64_t count, const float *bias, float one_bias,
                       int64_t at, int64_t at_c)
{
    lac_cpu_finish_call run = {.count = count,
                               .sums = sums,
                               .stride = stride,
                               .alpha = f->call->alpha,
                               .beta = f->call->beta,
                               .bias = bias,
                               .one_bias = one_bias,
                               .activation = f->options->activation,
                               .c = element(f->call->c, f->options->c_dtype, at_c),
                               .c_dtype = f->options->c_dtype,
                               .y_dtype = f->options->y_dtype,
                               .y = (void *)element(f->call->y, f->options->y_dtype, at)};
    f->unit->finish(&run);
}

static float bias_of(const finisher *f, int64_t output)
{
    return f->call->bias ? (float)lac_load_f64(f->call->bias, f->options->bias_dtype, output) : 0.0f;
}

void lac_cpu_finish_tile(const lac_cpu_unit *unit, const lac_problem *problem, const lac_call *call, const lac_cpu_panel *panel,
                         const lac_cpu_tile *tile)
{
    enum { MOST_ROWS = 64 };
    const finisher f = {unit, &problem->options, call};
    const uint32_t *row_perm = problem->weight->part[LAC_PART_ROW_PERM].data; /* [n] or NULL */
    int64_t left = panel->tokens - tile->first_token;
    int64_t tokens = left < panel->tile ? left : panel->tile;
    int64_t first_token = panel->first + tile->first_token;
    bool along_outputs = problem->options.y_layout == LAC_LAYOUT_TOKEN_MAJOR && !row_perm;
    for (int row = 0; row < tile->rows && along_outputs; row += MOST_ROWS) {
        int rows = tile->rows - row < MOST_ROWS ? tile->rows - row : MOST_ROWS;
        int64_t output = tile->first_row + row;
        float bias[MOST_ROWS];
        if (call->bias) lac_load_run_f32(call->bias, problem->options.bias_dtype, output, 1, rows, bias);
        for (int64_t t = 0; t < tokens; ++t) {
            const float *sums = tile->sums + row * tile->row_stride + t * tile->token_stride;
            finish_run(&f, sums, tile->row_stride, rows, call->bias ? bias : NULL, 0.0f, (first_token + t) * call->ldy + output,
                       (first_token + t) * call->ldc + output);
        }
    }
    for (int row = 0; row < tile->rows && !along_outputs; ++row) {
        int64_t output = row_perm ? (int64_t)row_perm[tile->first_row + row] : tile->first_row + row;
        const float *sums = tile->sums + row * tile->row_stride;
        if (problem->options.y_layout == LAC_LAYOUT_FEATURE_MAJOR) {
            finish_run(&f, sums, tile->token_stride, tokens, NULL, bias_of(&f, output), output * call->ldy + first_token,
                       output * call->ldc + first_token);
            continue;
        }
        for (int64_t t = 0; t < tokens; ++t) /* shuffled rows of a token-major Y: no two are adjacent */
            finish_run(&f, sums + t * tile->token_stride, 1, 1, NULL, bias_of(&f, output),
                       (first_token + t) * call->ldy + output, (first_token + t) * call->ldc + output);
    }
}
