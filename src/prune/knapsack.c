/* knapsack.c - the multiple-choice knapsack. A price on cost (a Lagrange multiplier) makes the layers independent of each other; the price at which the budget is
 * just met gives a good choice and a bound on all. Then layer after layer the choices so far are listed that nothing beats in both cost and loss, less those that
 * the bound shows to lead nowhere. What is left is few, so the result is exact but where more than STATES_MOST are left: then the most promising go on. Called by allocate.c. */
#include "prune/knapsack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"

enum { STATES_MOST = 16384, HALVINGS = 200 };
/* Sums of costs in another order differ by their rounding. */
static const double SLACK = 1 + 1e-12;

/* Options for the layers so far. */
typedef struct state {
    double cost, loss;
    int32_t parent, option; /* the state of the layers before, and this layer's option */
} state;

typedef struct search {
    const lac_knapsack *problem;
    double price, bound; /* the best price on cost, and what it proves */
    double *least_cost;  /* [layers + 1] of the layers from this one on */
    double *least_sum;   /* [layers + 1] of loss + price * cost, likewise */
    double best;         /* loss of the best choice so far */
    state **lists;       /* [layers] */
    int64_t *sizes;      /* [layers] */
    bool exact;
} search;

double lac_knapsack_least_cost(const lac_knapsack *p)
{
    double sum = 0;
    for (int64_t l = 0; l < p->layers; l++) {
        double least = INFINITY;
        for (int32_t o = 0; o < p->counts[l]; o++) least = fmin(least, p->options[l][o].cost);
        sum += least;
    }
    return sum;
}

/* The option of each layer that is best at this price; the cheaper one among equals. */
static void choose_at(const lac_knapsack *p, double price, int32_t *chosen, double *cost, double *loss)
{
    *cost = *loss = 0;
    for (int64_t l = 0; l < p->layers; l++) {
        const lac_option *options = p->options[l];
        int32_t best = 0;
        for (int32_t o = 1; o < p->counts[l]; o++) {
            double a = options[o].loss + price * options[o].cost, b = options[best].loss + price * options[best].cost;
            if (a < b || (a == b && options[o].cost < options[best].cost)) best = o;
        }
        chosen[l] = best;
        *cost += options[best].cost;
        *loss += options[best].loss;
    }
}

/* The lowest price at which the budget is met; `chosen` is the choice at it. */
static void find_price(search *s, int32_t *chosen)
{
    const lac_knapsack *p = s->problem;
    double cost, loss, low = 0, high = 1e-300, limit = p->budget * SLACK;
    choose_at(p, 0, chosen, &cost, &loss);
    s->bound = loss;
    s->best = loss;
    if (cost <= limit) return;
    for (choose_at(p, high, chosen, &cost, &loss); cost > limit && high < 1e300; choose_at(p, high, chosen, &cost, &loss))
        low = high, high *= 1024;
    for (int i = 0; i < HALVINGS && low < high; i++) {
        double middle = low > 0 ? sqrt(low) * sqrt(high) : high / 2;
        if (middle <= low || middle >= high) break;
        choose_at(p, middle, chosen, &cost, &loss);
        s->bound = fmax(s->bound, loss + middle * (cost - p->budget));
        if (cost <= limit)
            high = middle;
        else
            low = middle;
    }
    choose_at(p, high, chosen, &cost, &loss);
    s->price = high;
    s->bound = fmax(s->bound, loss + high * (cost - p->budget));
    s->best = loss;
}

static int by_cost(const void *a, const void *b)
{
    const state *x = a, *y = b;
    if (x->cost != y->cost) return x->cost < y->cost ? -1 : 1;
    if (x->loss != y->loss) return x->loss < y->loss ? -1 : 1;
    if (x->parent != y->parent) return x->parent < y->parent ? -1 : 1;
    return (x->option > y->option) - (x->option < y->option);
}

static double promise(const search *s, const state *x) { return x->loss + s->price * x->cost; }

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The STATES_MOST most promising ones, in their order. */
static lac_status thin_out(search *s, state *list, int64_t *size)
{
    uint64_t bytes = (uint64_t)*size * sizeof(double);
    double *values = lac_allocate(bytes);
    if (!values) return lac_fail_memory("choices", bytes);
    for (int64_t i = 0; i < *size; i++) values[i] = promise(s, &list[i]);
    qsort(values, (size_t)*size, sizeof *values, by_double);
    double limit = values[STATES_MOST - 1];
    lac_release(values);
    int64_t kept = 0;
    for (int64_t i = 0; i < *size && kept < STATES_MOST; i++)
        if (promise(s, &list[i]) <= limit) list[kept++] = list[i];
    *size = kept;
    s->exact = false;
    return LAC_STATUS_OK;
}

/* Every choice so far with every option of one more layer, less what leads nowhere. */
static lac_status extend(search *s, int64_t layer, const state *before, int64_t count)
{
    const lac_knapsack *p = s->problem;
    uint64_t bytes = (uint64_t)count * (uint64_t)p->counts[layer] * sizeof(state);
    state *list = lac_allocate(bytes);
    if (!list) return lac_fail_memory("choices", bytes);
    s->lists[layer] = list;
    int64_t size = 0, kept = 0;
    double room = p->budget * SLACK - s->least_cost[layer + 1];
    double worth = s->best * (1 + 1e-12) + s->price * p->budget - s->least_sum[layer + 1];
    for (int64_t i = 0; i < count; i++)
        for (int32_t o = 0; o < p->counts[layer]; o++) {
            const lac_option *option = &p->options[layer][o];
            state next = {before[i].cost + option->cost, before[i].loss + option->loss, (int32_t)i, o};
            if (next.cost <= room && promise(s, &next) <= worth) list[size++] = next;
        }
    qsort(list, (size_t)size, sizeof *list, by_cost);
    for (int64_t i = 0; i < size; i++)
        if (kept == 0 || list[i].loss < list[kept - 1].loss) list[kept++] = list[i];
    s->sizes[layer] = kept;
    return kept > STATES_MOST ? thin_out(s, list, &s->sizes[layer]) : LAC_STATUS_OK;
}

static lac_status walk(search *s, int32_t *chosen)
{
    const lac_knapsack *p = s->problem;
    const state start = {0}, *before = &start;
    int64_t count = 1;
    for (int64_t l = 0; l < p->layers; l++) {
        lac_status status = extend(s, l, before, count);
        if (status != LAC_STATUS_OK) return status;
        before = s->lists[l], count = s->sizes[l];
        if (count == 0) return LAC_STATUS_OK; /* nothing beats the choice at the price */
    }
    int32_t at = (int32_t)count - 1; /* the dearest loses least */
    if (before[at].loss > s->best) return LAC_STATUS_OK;
    s->best = before[at].loss;
    for (int64_t l = p->layers - 1; l >= 0; l--) {
        chosen[l] = s->lists[l][at].option;
        at = s->lists[l][at].parent;
    }
    return LAC_STATUS_OK;
}

static void sum_up(search *s)
{
    const lac_knapsack *p = s->problem;
    s->least_cost[p->layers] = s->least_sum[p->layers] = 0;
    for (int64_t l = p->layers - 1; l >= 0; l--) {
        double cost = INFINITY, sum = INFINITY;
        for (int32_t o = 0; o < p->counts[l]; o++) {
            const lac_option *option = &p->options[l][o];
            cost = fmin(cost, option->cost);
            sum = fmin(sum, option->loss + s->price * option->cost);
        }
        s->least_cost[l] = s->least_cost[l + 1] + cost;
        s->least_sum[l] = s->least_sum[l + 1] + sum;
    }
}

lac_status lac_knapsack_solve(const lac_knapsack *problem, int32_t *chosen, double *bound)
{
    uint64_t count = (uint64_t)problem->layers + 1;
    search s = {.problem = problem, .exact = true};
    s.least_cost = lac_allocate(count * sizeof *s.least_cost);
    s.least_sum = lac_allocate(count * sizeof *s.least_sum);
    s.lists = lac_allocate_zeroed(count * sizeof *s.lists);
    s.sizes = lac_allocate_zeroed(count * sizeof *s.sizes);
    lac_status status = LAC_STATUS_OK;
    if (!s.least_cost || !s.least_sum || !s.lists || !s.sizes) status = lac_fail_memory("a search", count * sizeof(double));
    if (status == LAC_STATUS_OK) {
        find_price(&s, chosen);
        sum_up(&s);
        if (s.price > 0) status = walk(&s, chosen);
    }
    for (int64_t l = 0; s.lists && l < problem->layers; l++) lac_release(s.lists[l]);
    lac_release(s.least_cost);
    lac_release(s.least_sum);
    lac_release(s.lists);
    lac_release(s.sizes);
    if (status == LAC_STATUS_OK) *bound = s.exact ? s.best : fmin(s.bound, s.best);
    return status;
}
