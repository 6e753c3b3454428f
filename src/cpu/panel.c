/* panel.c - packs activations for the CPU kernels; sums tiles and stores results for the plain one, gather.c. */
#include "cpu/panel.h"

#include <math.h>
#include <string.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "core/parallel.h"
#include "format/weight.h"

enum { STRIP_COLUMNS = 256 };

int lac_cpu_tile_tokens(int64_t m) { return m <= 1 ? 1 : m <= 4 ? 4 : LAC_CPU_TILE_TOKENS; }

static int64_t clamp(int64_t value, int64_t least, int64_t most) { return value < least ? least : lac_smaller(value, most); }

int64_t lac_cpu_panel_tokens(int64_t m)
{
    int64_t panels = (m + LAC_CPU_PANEL_TOKENS - 1) / LAC_CPU_PANEL_TOKENS;
    if (panels < 2) return LAC_CPU_PANEL_TOKENS;
    return ((m + panels - 1) / panels + LAC_CPU_TILE_TOKENS - 1) / LAC_CPU_TILE_TOKENS * LAC_CPU_TILE_TOKENS;
}

uint64_t lac_cpu_packed_bytes(const lac_problem *problem, int tile)
{
    int64_t tokens = (lac_smaller(problem->m, lac_cpu_panel_tokens(problem->m)) + tile - 1) / tile * tile;
    uint64_t bytes = (uint64_t)tokens * (uint64_t)problem->weight->geometry.k * sizeof(float);
    return (bytes / 64 + 1) * 64;
}

lac_cpu_panel lac_cpu_panel_at(const lac_problem *problem, const lac_call *call, int tile, int64_t first)
{
    lac_cpu_panel panel = {.first = first, .tile = tile, .packed = call->workspace};
    panel.tokens = lac_smaller(problem->m - first, lac_cpu_panel_tokens(problem->m));
    panel.tiles = (panel.tokens + panel.tile - 1) / panel.tile;
    return panel;
}

int64_t lac_cpu_tile_first(const lac_cpu_panel *panel, int64_t tile)
{
    int64_t wide = lac_smaller(tile, panel->tiles - panel->narrow_tiles);
    return wide * panel->tile + (tile - wide) * panel->narrow;
}

int lac_cpu_tile_at(const lac_cpu_panel *panel, int64_t first_token)
{
    return first_token < (panel->tiles - panel->narrow_tiles) * panel->tile ? panel->tile : panel->narrow;
}

/* ---- packing */

static int64_t column_strips(const lac_problem *problem)
{
    return (problem->weight->geometry.k + STRIP_COLUMNS - 1) / STRIP_COLUMNS;
}

int64_t lac_cpu_strips(const lac_problem *problem, const lac_cpu_panel *panel) { return panel->tiles * column_strips(problem); }

void lac_cpu_load_token(const lac_problem *problem, const lac_call *call, int64_t token, int64_t begin, int64_t end, float *out)
{
    const lac_plan_options *options = &problem->options;
    const uint32_t *col_perm = problem->weight->part[LAC_PART_COL_PERM].data; /* [k] or NULL */
    bool token_major = options->x_layout == LAC_LAYOUT_TOKEN_MAJOR;
    int64_t step = token_major ? 1 : call->ldx; /* from one input of the token to the next */
    int64_t base = token_major ? token * call->ldx : token;
    if (!col_perm) {
        lac_load_run_f32(call->x, options->x_dtype, base + begin * step, step, end - begin, out);
        return;
    }
    for (int64_t j = begin; j < end; ++j)
        lac_load_run_f32(call->x, options->x_dtype, base + (int64_t)col_perm[j] * step, 1, 1, &out[j - begin]);
}

/* Columns [begin, end) of `tokens` tokens from `first` on: a column's tokens are adjacent on both sides. */
static void pack_feature_major(const lac_problem *problem, const lac_call *call, int64_t first, int64_t tokens, int64_t begin,
                               int64_t end, int tile, float *out)
{
    const uint32_t *col_perm = problem->weight->part[LAC_PART_COL_PERM].data; /* [k] or NULL */
    for (int64_t j = begin; j < end; ++j) {
        int64_t input = col_perm ? (int64_t)col_perm[j] : j;
        lac_load_run_f32(call->x, problem->options.x_dtype, input * call->ldx + first, 1, tokens, out + (j - begin) * tile);
    }
}

/* The same from rows of tokens, which are turned. Those that are not fp32, or whose inputs are permuted, are first written
 * out beside. */
static void pack_token_major(const lac_cpu_unit *unit, const lac_problem *problem, const lac_call *call, int64_t first,
                             int64_t tokens, int64_t begin, int64_t end, int tile, float *out)
{
    enum { ROWS = LAC_CPU_TILE_TOKENS };
    bool direct = problem->options.x_dtype == LAC_DTYPE_F32 && !problem->weight->part[LAC_PART_COL_PERM].data;
    float run[ROWS * STRIP_COLUMNS]; /* [token][column] */
    for (int t = 0; t < tile; t += ROWS) {
        lac_cpu_turn_call turn = {.rows = (int)clamp(tokens - t, 0, ROWS),
                                  .width = (int)lac_smaller(tile - t, ROWS),
                                  .columns = end - begin,
                                  .from = run,
                                  .from_stride = STRIP_COLUMNS,
                                  .to = out + t,
                                  .to_stride = tile};
        if (direct) {
            turn.from = (const float *)call->x + (first + t) * call->ldx + begin;
            turn.from_stride = call->ldx;
        } else {
            for (int i = 0; i < turn.rows; ++i)
                lac_cpu_load_token(problem, call, first + t + i, begin, end, run + (int64_t)i * STRIP_COLUMNS);
        }
        unit->turn(&turn);
    }
}

void lac_cpu_pack_strip(const lac_cpu_unit *unit, const lac_problem *problem, const lac_call *call, const lac_cpu_panel *panel,
                        int64_t strip)
{
    int64_t k = problem->weight->geometry.k;
    int64_t tile_number = strip / column_strips(problem);
    int64_t begin = strip % column_strips(problem) * STRIP_COLUMNS;
    int64_t end = lac_smaller(begin + STRIP_COLUMNS, k);
    int64_t first = lac_cpu_tile_first(panel, tile_number); /* within the panel */
    int tile = lac_cpu_tile_at(panel, first);
    int64_t tokens = lac_smaller(panel->tokens - first, tile);
    float *out = panel->packed + first * k + begin * tile; /* [end - begin][tile] */
    if (problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR) {
        pack_token_major(unit, problem, call, panel->first + first, tokens, begin, end, tile, out);
        return;
    }
    if (tokens < tile) memset(out, 0, (size_t)((end - begin) * tile) * sizeof *out);
    pack_feature_major(problem, call, panel->first + first, tokens, begin, end, tile, out);
}

void lac_cpu_pack(const lac_cpu_unit *unit, const lac_problem *problem, const lac_call *call, const lac_cpu_panel *panel)
{
    const int64_t strips = lac_cpu_strips(problem, panel);
    for (int64_t strip = 0; strip < strips; ++strip) lac_cpu_pack_strip(unit, problem, call, panel, strip);
}

/* ---- tiles of tokens, each by one thread */

bool lac_cpu_shares_tokens(const lac_problem *problem, uint64_t weight_bytes, int64_t tiles, int caches)
{
    const int64_t threads = problem->options.threads;
    uint64_t l2 = problem->device->info.l2_bytes ? problem->device->info.l2_bytes : 1 << 20;
    if (tiles < 2 || (tiles % threads && tiles < 8 * threads)) return false;
    return weight_bytes <= l2 / 2 || (weight_bytes <= (uint64_t)caches * l2 && tiles >= 2 * threads);
}

uint64_t lac_cpu_tile_bytes(const lac_problem *problem, int tile)
{
    uint64_t bytes = (uint64_t)tile * (uint64_t)problem->weight->geometry.k * sizeof(float);
    return (bytes / 64 + 1) * 64;
}

lac_cpu_panel lac_cpu_tile_panel(const lac_cpu_panel *panel, int64_t tile, float *packed)
{
    int64_t first = lac_cpu_tile_first(panel, tile);
    int width = lac_cpu_tile_at(panel, first);
    return (lac_cpu_panel){.first = panel->first + first,
                           .tokens = lac_smaller(panel->tokens - first, width),
                           .tiles = 1,
                           .tile = width,
                           .packed = packed};
}

/* Lines of part `part` of `parts` of a row of `count` elements. */
static void ask_for_row(const void *data, lac_dtype dtype, int64_t at, int64_t count, int64_t part, int64_t parts,
                        bool to_write)
{
    enum { LINE = 64 };
    const char *row = (const char *)data + (size_t)at * lac_dtype_size(dtype);
    int64_t bytes = count * (int64_t)lac_dtype_size(dtype), begin = bytes * part / parts, end = bytes * (part + 1) / parts;
    for (int64_t i = begin / LINE * LINE; i < end; i += LINE) {
        if (to_write)
            __builtin_prefetch(row + i, 1, 3);
        else
            __builtin_prefetch(row + i, 0, 3);
    }
}

bool lac_cpu_asks_for_results(const lac_problem *problem, const lac_cpu_panel *panel)
{
    uint64_t l2 = problem->device->info.l2_bytes ? problem->device->info.l2_bytes : 1 << 20;
    uint64_t bytes = (uint64_t)panel->tile * (uint64_t)problem->weight->n_out * lac_dtype_size(problem->options.y_dtype);
    return problem->options.y_layout == LAC_LAYOUT_TOKEN_MAJOR && bytes <= l2 / 4;
}

void lac_cpu_ask_ahead(const lac_problem *problem, const lac_call *call, const lac_cpu_panel *panel, int64_t tile, int64_t part,
                       int64_t parts)
{
    const lac_plan_options *o = &problem->options;
    if (tile >= panel->tiles) return;
    const lac_cpu_panel next = lac_cpu_tile_panel(panel, tile, NULL);
    const bool results = lac_cpu_asks_for_results(problem, panel);
    for (int64_t t = next.first; t < next.first + next.tokens; ++t) {
        if (o->x_layout == LAC_LAYOUT_TOKEN_MAJOR)
            ask_for_row(call->x, o->x_dtype, t * call->ldx, problem->weight->k_in, part, parts, false);
        if (results) ask_for_row(call->y, o->y_dtype, t * call->ldy, problem->weight->n_out, part, parts, true);
    }
}

/* ---- sums */

/* Four tokens in the compiler's own vector arithmetic, on whatever unit the build targets. */
typedef float four_tokens __attribute__((vector_size(16), may_alias));
enum { FOUR = 4, MOST_FOURS = LAC_CPU_TILE_TOKENS / FOUR };

/* A tile of `fours` times 4 tokens; a constant where this is called, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void sum_tile(const int fours, const float *packed, const float *values,
                                                           const uint32_t *columns, int64_t count, float *sums)
{
    const four_tokens *tiles = (const four_tokens *)(const void *)packed; /* [k][fours] */
    four_tokens sum[MOST_FOURS] = {{0.0f}};
    for (int64_t i = 0; i < count; ++i) {
        const four_tokens *x = tiles + (int64_t)columns[i] * fours;
        for (int t = 0; t < fours; ++t) sum[t] += values[i] * x[t];
    }
    memcpy(sums, sum, (size_t)fours * sizeof *sum);
}

/* One token: there is no run of tokens to work on, so four sums hide the latency of the additions. */
static inline __attribute__((always_inline)) float sum_token(const float *x, const float *values, const uint32_t *columns,
                                                             int64_t count)
{
    float sum[4] = {0.0f};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        for (int j = 0; j < 4; ++j) sum[j] += values[i + j] * x[columns[i + j]];
    }
    for (; i < count; ++i) sum[0] += values[i] * x[columns[i]];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

void lac_cpu_tile_sums(int tile, const float *packed, const float *values, const uint32_t *columns, int64_t count, float *sums)
{
    if (tile == 1)
        sums[0] = sum_token(packed, values, columns, count);
    else if (tile == 4)
        sum_tile(1, packed, values, columns, count, sums);
    else
        sum_tile(MOST_FOURS, packed, values, columns, count, sums);
}

/* ---- the epilogue */

static float activate(lac_activation activation, float z)
{
    switch (activation) {
    case LAC_ACTIVATION_NONE:
        return z;
    case LAC_ACTIVATION_RELU:
        return z < 0.0f ? 0.0f : z;
    case LAC_ACTIVATION_GELU_ERF:
        return 0.5f * z * erfcf(-z * 0.70710678f);
    case LAC_ACTIVATION_GELU_TANH:
        return z / (1.0f + expf(-1.59576912f * (z + 0.044715f * z * z * z)));
    case LAC_ACTIVATION_SILU:
        return z / (1.0f + expf(-z));
    }
    return NAN;
}

void lac_cpu_store(const lac_problem *problem, const lac_call *call, const lac_cpu_panel *panel, int64_t tile, int64_t stored,
                   const float *sums)
{
    const lac_plan_options *options = &problem->options;
    const uint32_t *row_perm = problem->weight->part[LAC_PART_ROW_PERM].data; /* [n] or NULL */
    int64_t output = row_perm ? (int64_t)row_perm[stored] : stored;
    bool token_major = options->y_layout == LAC_LAYOUT_TOKEN_MAJOR;
    int64_t first = tile * panel->tile;
    int64_t tokens = lac_smaller(panel->tokens - first, panel->tile);
    float bias = call->bias ? (float)lac_load_f64(call->bias, options->bias_dtype, output) : 0.0f;
    for (int64_t t = 0; t < tokens; ++t) {
        int64_t token = panel->first + first + t;
        float z = call->alpha * sums[t];
        if (call->bias) z += bias;
        z = activate(options->activation, z);
        if (call->c) {
            int64_t at = token_major ? token * call->ldc + output : output * call->ldc + token;
            z += call->beta * (float)lac_load_f64(call->c, options->c_dtype, at);
        }
        lac_store_f64(call->y, options->y_dtype, token_major ? token * call->ldy + output : output * call->ldy + token, z);
    }
}

/* ---- the loop over panels */

int64_t lac_cpu_items(const lac_problem *problem)
{
    return (problem->weight->geometry.n + LAC_CPU_ITEM_ROWS - 1) / LAC_CPU_ITEM_ROWS;
}

int lac_cpu_threads(const lac_problem *problem)
{
    int64_t threads = lac_smaller(problem->options.threads, lac_cpu_items(problem));
    return threads > 1 ? (int)threads : 1;
}

void lac_cpu_run(const lac_problem *problem, const void *state, const lac_call *call, lac_cpu_item_fn fn)
{
    const int64_t items = lac_cpu_items(problem);
    const int threads = lac_cpu_threads(problem);
    (void)threads; /* unused without OpenMP */
    for (int64_t first = 0; first < problem->m; first += lac_cpu_panel_tokens(problem->m)) {
        const lac_cpu_panel panel = lac_cpu_panel_at(problem, call, lac_cpu_tile_tokens(problem->m), first);
        const int64_t strips = lac_cpu_strips(problem, &panel);
        LAC_OMP(omp parallel num_threads(threads) if (threads > 1))
        {
            const int thread = lac_parallel_number();
            LAC_OMP(omp for schedule(static))
            for (int64_t strip = 0; strip < strips; ++strip)
                lac_cpu_pack_strip(&lac_cpu_unit_scalar, problem, call, &panel, strip);
            LAC_OMP(omp for schedule(static))
            for (int64_t item = 0; item < items; ++item) fn(problem, state, call, &panel, item, thread);
        }
    }
}
