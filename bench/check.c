/* check.c - is a result right? Nothing is timed before this says so. cell.c calls it.
 *
 * Where the whole product is small, every element is compared with the oracle in double, within the oracle's own bound for
 * that element. Where it is large, the oracle computes all outputs of some tokens: the first, the last, and others drawn at
 * random; where even that would take long, some bands of outputs of those tokens: the first, the last, and two between. Every
 * token is then held to a sum over all its outputs: with random signs s, sum_j s_j Y[t][j] must be X[t] . (W^T s), up to
 * eight standard deviations of the rounding error that the sampled elements showed. That costs two products by a vector
 * and finds a wrong tile wherever it lies. Before the call Y is filled with NaN, so what was never written is found too. */
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "parallel.h"

/* The oracle does some 10^8 products a second: so many for one problem, and fewer of a W that is cut into bands. */
#define ORACLE_PRODUCTS 4e7
#define BAND_PRODUCTS   8e6
#define QUICK_SHARE     0.125
#define MOST_SAMPLES    64
#define FEW_TOKENS      8

/* The oracle has all of it. */
static int is_whole(const bench_problem *p) { return p->oracle.samples == p->m && p->oracle.width == p->n; }

static int compare_tokens(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* First, last, and distinct ones between. */
static void choose_tokens(bench_oracle *o, int64_t m, bench_random *random)
{
    for (int64_t i = 0; i < o->samples; i++) o->tokens[i] = i;
    if (o->samples == m) return;
    o->tokens[1] = m - 1;
    for (int64_t i = 2; i < o->samples; i++) {
        int64_t token, j;
        do {
            token = 1 + (int64_t)(bench_random_next(random) % (uint64_t)(m - 2));
            for (j = 2; j < i && o->tokens[j] != token; j++) {}
        } while (j < i);
        o->tokens[i] = token;
    }
    qsort(o->tokens, (size_t)o->samples, sizeof *o->tokens, compare_tokens);
}

/* A band of outputs that the oracle is asked for. */
typedef struct band {
    int64_t begin, end; /* outputs                     */
    int64_t at;         /* of the first among the width */
    lac_weight *weight; /* these rows alone             */
} band;

enum { MOST_BANDS = 4, BAND_ROWS = 32 };

/* The sampled tokens [begin, end): each thread asks plans of its own. */
typedef struct question {
    bench_problem *problem;
    band bands[MOST_BANDS];
    int band_count;
    atomic_int status; /* of one that failed */
} question;

/* X of the sampled tokens [begin, end), as the plan wants it; NULL: no memory. */
static void *gather_tokens(const bench_problem *p, int64_t begin, int64_t end)
{
    void *image = malloc((size_t)((end - begin) * p->k) * lac_dtype_size(p->dtype));
    for (int64_t i = begin; image && i < end; i++)
        for (int64_t j = 0; j < p->k; j++)
            bench_element_store(image, p->dtype, (i - begin) * p->k + j, p->x[p->oracle.tokens[i] * p->k + j]);
    return image;
}

static lac_status ask_band(bench_problem *p, const band *b, const void *x, int64_t begin, int64_t end, int precision)
{
    bench_oracle *o = &p->oracle;
    lac_plan_options options = {.size = sizeof options,
                                .x_dtype = p->dtype,
                                .y_dtype = p->dtype,
                                .precision = p->precisions[precision],
                                .kernel = "ref_f64",
                                .threads = 1};
    lac_plan *plan = NULL;
    lac_status status = lac_plan_create(p->session->host, b->weight, end - begin, &options, &plan);
    lac_execute_args args = {.size = sizeof args, .x = x};
    int64_t at = begin * o->width + b->at;
    if (!status) status = lac_plan_reference(plan, &args, o->y + at, o->bound[precision] + at, o->width);
    lac_plan_free(plan);
    return status;
}

static void ask_range(void *user, int64_t begin, int64_t end)
{
    question *q = user;
    if (begin >= end) return;
    void *x = gather_tokens(q->problem, begin, end);
    lac_status status = x ? LAC_STATUS_OK : LAC_STATUS_OUT_OF_MEMORY;
    for (int i = 0; !status && i < q->band_count; i++)
        for (int how = 0; !status && how < q->problem->precision_count; how++)
            status = ask_band(q->problem, &q->bands[i], x, begin, end, how);
    free(x);
    if (status) atomic_store(&q->status, (int)status);
}

/* Whole row groups. */
static int64_t band_rows(const bench_problem *p)
{
    const int64_t unit = p->pattern.unit_n;
    return (BAND_ROWS + unit - 1) / unit * unit;
}

/* Cuts the bands out of the weight: all of it in one, or several, each a few whole row groups. */
static lac_status cut_bands(question *q, bench_random *random, int is_cut)
{
    const bench_problem *p = q->problem;
    const int64_t rows = band_rows(p), places = p->n / rows;
    int64_t at = 0, next = 0;
    lac_status status = LAC_STATUS_OK;
    q->band_count = is_cut ? MOST_BANDS : 1;
    for (int i = 0; !status && i < q->band_count; i++) {
        /* One in each part of n, so that they ascend; the first at the beginning, the last at the end. */
        int64_t share = places / MOST_BANDS, drawn = (int64_t)(bench_random_next(random) % (uint64_t)(share ? share : 1));
        int64_t begin = !is_cut || i == 0 ? 0 : i == MOST_BANDS - 1 ? (p->n - 1) / rows * rows : (i * share + drawn) * rows;
        if (begin < next) begin = next;
        int64_t end = is_cut && begin + rows < p->n ? begin + rows : p->n;
        q->bands[i] = (band){.begin = begin, .end = end, .at = at};
        if (is_cut)
            status = lac_weight_shard(p->weight, LAC_AXIS_N, begin, end, &q->bands[i].weight);
        else
            q->bands[i].weight = lac_weight_retain(p->weight);
        at += end - begin;
        next = end;
    }
    return status;
}

static lac_status ask_oracle(question *q)
{
    bench_oracle *o = &q->problem->oracle;
    for (int i = 0; i < q->band_count; i++)
        for (int64_t j = q->bands[i].begin; j < q->bands[i].end; j++) o->outputs[q->bands[i].at + j - q->bands[i].begin] = j;
    bench_parallel(o->samples, 1, ask_range, q);
    return (lac_status)atomic_load(&q->status);
}

/* Inputs [begin, end) of W^T signs. */
static void project(void *user, int64_t begin, int64_t end)
{
    const bench_layer *l = user;
    for (int64_t i = begin; i < end; i++) l->projected[i] = 0;
    for (int64_t j = 0; j < l->n; j++) {
        const float *row = l->held + j * l->k;
        for (int64_t i = begin; i < end; i++) l->projected[i] += (double)(l->signs[j] * row[i]);
    }
}

lac_status bench_layer_project(bench_layer *layer, uint64_t seed)
{
    bench_random random = {seed};
    if (layer->is_projected) return LAC_STATUS_OK;
    for (int64_t j = 0; j < layer->n; j++) layer->signs[j] = bench_random_next(&random) & 1 ? 1 : -1;
    bench_parallel(layer->k, 256, project, layer);
    layer->is_projected = 1;
    return LAC_STATUS_OK;
}

static int allocate_oracle(bench_oracle *o, int precisions)
{
    size_t elements = (size_t)(o->samples * o->width);
    o->tokens = malloc((size_t)o->samples * sizeof *o->tokens);
    o->outputs = malloc((size_t)o->width * sizeof *o->outputs);
    o->y = malloc(elements * sizeof *o->y);
    int failed = !o->tokens || !o->outputs || !o->y;
    for (int i = 0; i < precisions; i++) {
        o->bound[i] = malloc(elements * sizeof *o->bound[i]);
        failed = failed || !o->bound[i];
    }
    return failed;
}

/* What all outputs of a token add up to with the layer's signs, for tokens [begin, end). */
static void want_tokens(void *user, int64_t begin, int64_t end)
{
    const bench_problem *p = user;
    for (int64_t token = begin; token < end; token++) {
        double sum = 0;
        for (int64_t i = 0; i < p->k; i++) sum += (double)p->x[token * p->k + i] * p->layer->projected[i];
        p->oracle.sums[token] = sum;
    }
}

lac_status bench_oracle_open(bench_problem *p, uint64_t seed)
{
    bench_oracle *o = &p->oracle;
    bench_random random = {seed};
    question q = {.problem = p};
    const lac_weight_info *w = &p->weight_info;
    /* Bands where whole tokens would be few, and rows lie in order. */
    int is_cut = ORACLE_PRODUCTS < FEW_TOKENS * (double)w->kept && p->m > FEW_TOKENS && !w->has_row_perm && !w->has_col_perm &&
                 p->n >= 4 * MOST_BANDS * band_rows(p);
    lac_status status = cut_bands(&q, &random, is_cut);
    for (int i = 0; i < q.band_count; i++) o->width += q.bands[i].end - q.bands[i].begin;
    double products = (is_cut ? BAND_PRODUCTS : ORACLE_PRODUCTS) * (p->session->options->quick_check ? QUICK_SHARE : 1);
    double affordable = products / ((double)w->kept * (double)o->width / (double)p->n + 1);
    int64_t samples = affordable < 2 ? 2 : affordable > MOST_SAMPLES ? MOST_SAMPLES : (int64_t)affordable;
    o->samples = samples < p->m ? samples : p->m;
    if (!status && allocate_oracle(o, p->precision_count)) status = LAC_STATUS_OUT_OF_MEMORY;
    if (!status) {
        choose_tokens(o, p->m, &random);
        status = ask_oracle(&q);
    }
    for (int i = 0; i < q.band_count; i++) lac_weight_free(q.bands[i].weight);
    if (!status && !is_whole(p)) status = bench_layer_project(p->layer, seed);
    if (!status && !is_whole(p)) {
        o->sums = malloc((size_t)p->m * sizeof *o->sums);
        if (o->sums)
            bench_parallel(p->m, 16, want_tokens, p);
        else
            status = LAC_STATUS_OUT_OF_MEMORY;
    }
    if (status) bench_oracle_close(o);
    return status;
}

void bench_oracle_close(bench_oracle *oracle)
{
    free(oracle->tokens);
    free(oracle->outputs);
    free(oracle->y);
    free(oracle->sums);
    for (int i = 0; i < BENCH_MOST_PRECISIONS; i++) free(oracle->bound[i]);
    *oracle = (bench_oracle){0};
}

/* ---- comparing */

static int is_token_major(const bench_contender *c) { return c->y_is_token || c->layout == LAC_LAYOUT_TOKEN_MAJOR; }

static double load(const bench_contender *c, const void *y, int64_t token, int64_t output)
{
    const bench_problem *p = c->problem;
    int64_t at = is_token_major(c) ? token * p->n + output : output * p->m + token;
    return (double)bench_element_load(y, c->dtype, at);
}

typedef struct tally {
    double error_squares, value_squares;
    int64_t elements;
} tally;

static int check_samples(bench_contender *c, const void *y, tally *sums, char *why, size_t why_size)
{
    const bench_problem *p = c->problem;
    const bench_oracle *o = &p->oracle;
    c->max_error = c->error_bound = 0;
    for (int64_t i = 0; i < o->samples; i++)
        for (int64_t j = 0; j < o->width; j++) {
            int64_t at = i * o->width + j, output = o->outputs[j];
            double want = o->y[at], bound = o->bound[c->precision][at], got = load(c, y, o->tokens[i], output);
            double error = fabs(got - want);
            if (!(error <= bound)) {
                snprintf(why, why_size, "Y[%" PRId64 "][%" PRId64 "] is %.9g; it must be %.9g within %.3g", o->tokens[i],
                         output, got, want, bound);
                return 0;
            }
            sums->error_squares += error * error;
            sums->value_squares += want * want;
            sums->elements++;
            if (error >= c->max_error) {
                c->max_error = error;
                c->error_bound = bound;
            }
        }
    return 1;
}

/* One unit in the last place of the dtype, as a share. */
static double resolution(lac_dtype dtype)
{
    return dtype == LAC_DTYPE_F32 ? 0x1p-24 : dtype == LAC_DTYPE_F16 ? 0x1p-11 : 0x1p-8;
}

typedef struct summing {
    const bench_contender *c;
    const void *y;
    double *got; /* [m] */
} summing;

/* Tokens [begin, end); Y is read in the order in which it lies, a piece of a line at a time. */
static void sum_tokens(void *user, int64_t begin, int64_t end)
{
    enum { PIECE = 512 };
    const summing *s = user;
    const bench_problem *p = s->c->problem;
    const float *signs = p->layer->signs;
    const int by_tokens = is_token_major(s->c);
    float piece[PIECE];
    for (int64_t token = begin; token < end; token++) s->got[token] = 0;
    const int64_t from = by_tokens ? begin : 0, to = by_tokens ? end : p->n, first = by_tokens ? 0 : begin;
    const int64_t last = by_tokens ? p->n : end, stride = by_tokens ? p->n : p->m;
    for (int64_t line = from; line < to; line++)
        for (int64_t at = first; at < last; at += PIECE) {
            const int64_t count = last - at < PIECE ? last - at : PIECE;
            bench_elements_load(s->y, s->c->dtype, line * stride + at, count, piece);
            double sum = 0;
            if (by_tokens)
                for (int64_t i = 0; i < count; i++) sum += (double)(signs[at + i] * piece[i]);
            else
                for (int64_t i = 0; i < count; i++) s->got[at + i] += (double)(signs[line] * piece[i]);
            if (by_tokens) s->got[line] += sum;
        }
}

static int check_sums(const bench_contender *c, const void *y, const tally *sums, char *why, size_t why_size)
{
    const bench_problem *p = c->problem;
    double error = sqrt(sums->error_squares / (double)sums->elements);
    double least = resolution(c->dtype) * sqrt(sums->value_squares / (double)sums->elements);
    double allowed = 8 * sqrt((double)p->n) * (error > least ? error : least);
    const double *want = p->oracle.sums;
    summing s = {c, y, malloc((size_t)p->m * sizeof *s.got)};
    int64_t wrong = -1;
    if (s.got) {
        bench_parallel(p->m, 16, sum_tokens, &s);
        for (int64_t token = p->m - 1; token >= 0; token--)
            if (!(fabs(s.got[token] - want[token]) <= allowed)) wrong = token;
    }
    int right = s.got && wrong < 0;
    if (wrong >= 0)
        snprintf(why, why_size,
                 "the outputs of token %" PRId64 " add up to %.9g with random signs; that must be %.9g within %.3g", wrong,
                 s.got[wrong], want[wrong], allowed);
    else if (!right)
        snprintf(why, why_size, "there is no memory to check it with");
    free(s.got);
    return right;
}

int bench_check(bench_contender *c, const void *y, char *why, size_t why_size)
{
    tally sums = {0};
    if (!check_samples(c, y, &sums, why, why_size)) return 0;
    return is_whole(c->problem) || check_sums(c, y, &sums, why, why_size);
}
