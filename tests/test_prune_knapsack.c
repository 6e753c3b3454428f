/* test_prune_knapsack.c - the choice within a budget: against every choice on small cases, against its own bound on large ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "prune/knapsack.h"
#include "support/support.h"

enum { SMALL = 6, OPTIONS = 5, LARGE = 300, MANY = 12 };

/* The least loss of all choices within the budget. */
static double try_all(const lac_knapsack *p, int64_t layer, double cost, double loss)
{
    if (cost > p->budget * (1 + 1e-12)) return INFINITY;
    if (layer == p->layers) return loss;
    double best = INFINITY;
    for (int32_t o = 0; o < p->counts[layer]; o++)
        best = fmin(best, try_all(p, layer + 1, cost + p->options[layer][o].cost, loss + p->options[layer][o].loss));
    return best;
}

static void add_up(const lac_knapsack *p, const int32_t *chosen, double *cost, double *loss)
{
    *cost = *loss = 0;
    for (int64_t l = 0; l < p->layers; l++) {
        assert_true(chosen[l] >= 0 && chosen[l] < p->counts[l]);
        *cost += p->options[l][chosen[l]].cost;
        *loss += p->options[l][chosen[l]].loss;
    }
}

static void one_case(test_random *random, int64_t index, void *user)
{
    lac_option storage[SMALL][OPTIONS];
    const lac_option *options[SMALL];
    int32_t counts[SMALL], chosen[SMALL];
    (void)user;
    bool whole = index % 3 == 0, alike = index % 4 == 0; /* small whole numbers have ties, equal layers many equal sums */
    lac_knapsack p = {.layers = test_random_between(random, 1, SMALL), .counts = counts, .options = options};
    for (int l = 0; l < SMALL; l++) {
        counts[l] = (int32_t)test_random_between(random, 1, OPTIONS);
        options[l] = storage[l];
        for (int o = 0; o < OPTIONS; o++) {
            double cost = whole ? (double)test_random_between(random, 0, 9) : test_random_unit(random);
            double loss =
                whole ? (double)test_random_between(random, 0, 9) : exp(5 * test_random_gaussian(random)) / (cost + 0.1);
            storage[l][o] = (lac_option){cost, loss};
        }
        if (alike && l > 0) options[l] = storage[0], counts[l] = counts[0];
    }
    double least = lac_knapsack_least_cost(&p), bound = 0, cost, loss;
    p.budget = least + test_random_unit(random) * (whole ? 20 : 3);
    if (index % 7 == 0) p.budget = least;
    assert_ok(lac_knapsack_solve(&p, chosen, &bound));
    add_up(&p, chosen, &cost, &loss);
    double best = try_all(&p, 0, 0, 0);
    assert_true(cost <= p.budget * (1 + 1e-11));
    assert_true(loss <= best * (1 + 1e-11) + 1e-300);
    assert_true(bound <= loss * (1 + 1e-11) && bound >= best * (1 - 1e-9));
}

static void small_cases_are_exact(void **state)
{
    (void)state;
    test_run_cases("knapsack", 3000, one_case, NULL);
}

/* As many layers and patterns as a large model has; times as a model predicts them, losses that fall with them. */
static void large_cases_are_near_their_bound(void **state)
{
    (void)state;
    test_random random = test_random_make("knapsack-large", 0);
    static lac_option storage[LARGE][MANY];
    const lac_option *options[LARGE];
    int32_t counts[LARGE], chosen[LARGE];
    double dense = 0, worst = 0;
    for (int l = 0; l < LARGE; l++) {
        double size = (double)test_random_pick(&random, 1, 1, 1, 1, 3), hurt = exp(test_random_gaussian(&random));
        counts[l] = MANY, options[l] = storage[l];
        for (int o = 0; o < MANY; o++) {
            double time = size * (1 - 0.9 * o / (MANY - 1)) * (1 + 0.05 * test_random_unit(&random));
            storage[l][o] = (lac_option){time, o ? hurt * pow(o / (double)MANY, 3) * (1 + 0.1 * test_random_unit(&random)) : 0};
        }
        dense += storage[l][0].cost;
    }
    for (double speedup = 1.05; speedup < 8; speedup *= 1.3) {
        lac_knapsack p = {.layers = LARGE, .counts = counts, .options = options, .budget = dense / speedup};
        double bound = 0, cost, loss;
        clock_t start = clock();
        assert_ok(lac_knapsack_solve(&p, chosen, &bound));
        add_up(&p, chosen, &cost, &loss);
        print_message("speedup %.2f: loss %.6f, bound %.6f, cost %.4f of %.4f, %.2f s\n", speedup, loss, bound, cost, p.budget,
                      (double)(clock() - start) / CLOCKS_PER_SEC);
        assert_true(cost <= p.budget * (1 + 1e-11));
        worst = fmax(worst, loss / bound);
    }
    print_message("at most %.2g above the bound\n", worst - 1);
    assert_true(worst < 1 + 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {test_of_cases(small_cases_are_exact),
                                       cmocka_unit_test(large_cases_are_near_their_bound)};
    return cmocka_run_group_tests_name("knapsack", tests, NULL, NULL);
}
