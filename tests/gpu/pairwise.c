/* pairwise.c - see pairwise.h. */
#include "gpu/pairwise.h"

#include <stdlib.h>

enum { CANDIDATES = 40, PATIENCE = 60 };

typedef struct coverage {
    /* covered[first factor][its value][second factor][its value], first < second */
    bool covered[PAIRWISE_FACTORS][PAIRWISE_VALUES][PAIRWISE_FACTORS][PAIRWISE_VALUES];
} coverage;

static int count_new(const coverage *seen, const pairwise_row *row, int factors)
{
    int fresh = 0;
    for (int i = 0; i < factors; i++)
        for (int j = i + 1; j < factors; j++) fresh += !seen->covered[i][row->value[i]][j][row->value[j]];
    return fresh;
}

static void cover(coverage *seen, const pairwise_row *row, int factors)
{
    for (int i = 0; i < factors; i++)
        for (int j = i + 1; j < factors; j++) seen->covered[i][row->value[i]][j][row->value[j]] = true;
}

/* Begins with a pair that is still missing, if a few tries find one; the rest is drawn. */
static pairwise_row draw(test_random *random, const coverage *seen, const int *counts, int factors)
{
    pairwise_row row;
    for (int i = 0; i < factors; i++) row.value[i] = (int)test_random_between(random, 0, counts[i] - 1);
    for (int i = factors; i < PAIRWISE_FACTORS; i++) row.value[i] = 0;
    for (int tries = 0; factors > 1 && tries < 20; tries++) {
        int a = (int)test_random_between(random, 0, factors - 2), b = (int)test_random_between(random, a + 1, factors - 1);
        int va = (int)test_random_between(random, 0, counts[a] - 1), vb = (int)test_random_between(random, 0, counts[b] - 1);
        if (seen->covered[a][va][b][vb]) continue;
        row.value[a] = va;
        row.value[b] = vb;
        break;
    }
    return row;
}

int pairwise_make(test_random *random, const int *counts, int factors, pairwise_filter allowed, void *user, pairwise_row *rows,
                  int most)
{
    coverage *seen = calloc(1, sizeof *seen);
    int made = 0;
    for (int idle = 0; seen && made < most && idle < PATIENCE;) {
        pairwise_row best = {{0}};
        int gain = 0;
        for (int i = 0; i < CANDIDATES; i++) {
            pairwise_row row = draw(random, seen, counts, factors);
            int fresh = count_new(seen, &row, factors);
            if (fresh > gain && allowed(&row, user)) {
                gain = fresh;
                best = row;
            }
        }
        idle = gain ? 0 : idle + 1;
        if (!gain) continue;
        cover(seen, &best, factors);
        rows[made++] = best;
    }
    free(seen);
    return made;
}
