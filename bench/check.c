/* check.c - is a result right? Nothing is timed before this says so. cell.c calls it.
 *
 * Where the whole product is small, every element is compared with the oracle in double, within the oracle's own bound for
 * that element. Where it is large, the oracle computes all outputs of some tokens: the first, the last, and others drawn at
 * random. Every other token is then held to a sum: with random signs s, sum_j s_j Y[t][j] must be X[t] . (W^T s), up to
 * eight standard deviations of the rounding error that the sampled elements showed. That costs two products by a vector
 * and finds a wrong tile wherever it lies. Before the call Y is filled with NaN, so what was never written is found too. */
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "parallel.h"

/* The oracle does some 10^8 products a second: so many for one problem. */
#define ORACLE_PRODUCTS 4e7
#define MOST_SAMPLES    64

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

/* The sampled tokens [begin, end): each thread asks a plan of its own. */
typedef struct question {
    bench_problem *problem;
    atomic_int status; /* of one that failed */
} question;

static lac_status ask_some(bench_problem *p, int64_t begin, int64_t end)
{
    bench_oracle *o = &p->oracle;
    int64_t count = end - begin;
    float *rows = malloc((size_t)(count * p->k) * sizeof *rows);
    void *image = malloc((size_t)(count * p->k) * lac_dtype_size(p->dtype));
    lac_plan_options options = {.size = sizeof options,
                                .x_dtype = p->dtype,
                                .y_dtype = p->dtype,
                                .precision = p->session->precision,
                                .kernel = "ref_f64",
                                .threads = 1};
    lac_plan *plan = NULL;
    lac_status status =
        rows && image ? lac_plan_create(p->session->host, p->weight, count, &options, &plan) : LAC_STATUS_OUT_OF_MEMORY;
    if (!status) {
        for (int64_t i = 0; i < count; i++)
            memcpy(rows + i * p->k, p->x + o->tokens[begin + i] * p->k, (size_t)p->k * sizeof *rows);
        for (int64_t i = 0; i < count * p->k; i++) bench_element_store(image, p->dtype, i, rows[i]);
        lac_execute_args args = {.size = sizeof args, .x = image};
        status = lac_plan_reference(plan, &args, o->y + begin * p->n, o->bound + begin * p->n, p->n);
    }
    lac_plan_free(plan);
    free(rows);
    free(image);
    return status;
}

static void ask_range(void *user, int64_t begin, int64_t end)
{
    question *q = user;
    lac_status status = begin < end ? ask_some(q->problem, begin, end) : LAC_STATUS_OK;
    if (status) atomic_store(&q->status, (int)status);
}

static lac_status ask_oracle(bench_problem *p)
{
    question q = {.problem = p};
    bench_parallel(p->oracle.samples, 1, ask_range, &q);
    return (lac_status)atomic_load(&q.status);
}

/* Inputs [begin, end) of W^T signs. */
static void project(void *user, int64_t begin, int64_t end)
{
    bench_problem *p = user;
    const bench_oracle *o = &p->oracle;
    for (int64_t j = 0; j < p->n; j++) {
        const float *row = p->w + j * p->k;
        for (int64_t i = begin; i < end; i++) o->projected[i] += (double)(o->signs[j] * row[i]);
    }
}

lac_status bench_oracle_open(bench_problem *p, uint64_t seed)
{
    bench_oracle *o = &p->oracle;
    bench_random random = {seed};
    double affordable = ORACLE_PRODUCTS / (double)(p->weight_info.kept + 1);
    int64_t samples = affordable < 2 ? 2 : affordable > MOST_SAMPLES ? MOST_SAMPLES : (int64_t)affordable;
    o->samples = samples < p->m ? samples : p->m;
    o->tokens = malloc((size_t)o->samples * sizeof *o->tokens);
    o->y = malloc((size_t)(o->samples * p->n) * sizeof *o->y);
    o->bound = malloc((size_t)(o->samples * p->n) * sizeof *o->bound);
    o->signs = malloc((size_t)p->n * sizeof *o->signs);
    o->projected = calloc((size_t)p->k, sizeof *o->projected);
    lac_status status = LAC_STATUS_OUT_OF_MEMORY;
    if (o->tokens && o->y && o->bound && o->signs && o->projected) {
        choose_tokens(o, p->m, &random);
        for (int64_t j = 0; j < p->n; j++) o->signs[j] = bench_random_next(&random) & 1 ? 1 : -1;
        if (o->samples < p->m) bench_parallel(p->k, 256, project, p);
        status = ask_oracle(p);
    }
    if (status) bench_oracle_close(o);
    return status;
}

void bench_oracle_close(bench_oracle *oracle)
{
    free(oracle->tokens);
    free(oracle->y);
    free(oracle->bound);
    free(oracle->signs);
    free(oracle->projected);
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
        for (int64_t j = 0; j < p->n; j++) {
            double want = o->y[i * p->n + j], bound = o->bound[i * p->n + j], got = load(c, y, o->tokens[i], j);
            double error = fabs(got - want);
            if (!(error <= bound)) {
                snprintf(why, why_size, "Y[%" PRId64 "][%" PRId64 "] is %.9g; it must be %.9g within %.3g", o->tokens[i], j,
                         got, want, bound);
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
    double *got, *want; /* [m] */
} summing;

/* Tokens [begin, end); Y is read in the order in which it lies. */
static void sum_tokens(void *user, int64_t begin, int64_t end)
{
    const summing *s = user;
    const bench_problem *p = s->c->problem;
    const float *signs = p->oracle.signs;
    for (int64_t token = begin; token < end; token++) {
        double sum = 0;
        for (int64_t i = 0; i < p->k; i++) sum += (double)p->x[token * p->k + i] * p->oracle.projected[i];
        s->want[token] = sum;
        s->got[token] = 0;
        if (!is_token_major(s->c)) continue;
        for (int64_t j = 0; j < p->n; j++) s->got[token] += (double)signs[j] * load(s->c, s->y, token, j);
    }
    if (is_token_major(s->c)) return;
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t token = begin; token < end; token++) s->got[token] += (double)signs[j] * load(s->c, s->y, token, j);
}

static int check_sums(const bench_contender *c, const void *y, const tally *sums, char *why, size_t why_size)
{
    const bench_problem *p = c->problem;
    double error = sqrt(sums->error_squares / (double)sums->elements);
    double least = resolution(c->dtype) * sqrt(sums->value_squares / (double)sums->elements);
    double allowed = 8 * sqrt((double)p->n) * (error > least ? error : least);
    summing s = {c, y, malloc((size_t)p->m * sizeof *s.got), malloc((size_t)p->m * sizeof *s.want)};
    int64_t wrong = -1;
    if (s.got && s.want) {
        bench_parallel(p->m, 16, sum_tokens, &s);
        for (int64_t token = p->m - 1; token >= 0; token--)
            if (!(fabs(s.got[token] - s.want[token]) <= allowed)) wrong = token;
    }
    int right = s.got && s.want && wrong < 0;
    if (wrong >= 0)
        snprintf(why, why_size,
                 "the outputs of token %" PRId64 " add up to %.9g with random signs; that must be %.9g within %.3g", wrong,
                 s.got[wrong], s.want[wrong], allowed);
    else if (!right)
        snprintf(why, why_size, "there is no memory to check it with");
    free(s.got);
    free(s.want);
    return right;
}

int bench_check(bench_contender *c, const void *y, char *why, size_t why_size)
{
    tally sums = {0};
    if (!check_samples(c, y, &sums, why, why_size)) return 0;
    return c->problem->oracle.samples == c->problem->m || check_sums(c, y, &sums, why, why_size);
}
