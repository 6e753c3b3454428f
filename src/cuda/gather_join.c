/* gather_join.c - columns in fours, in their order: each goes into the open four in which it spoils least, the fullest of these. For two row
 * groups that is as few fours as there can be; for four of them it is 2% more at worst. */
#include "cuda/gather_join.h"

#include <math.h>
#include <string.h>

/* Fours that wait for more columns. One that gives way to a new one has waited longest. */
enum { MOST_OPEN = 16 };

typedef struct four {
    uint64_t once, twice; /* who reads one of its columns, or more; who reads two */
    int64_t at;           /* of its first place */
    int filled;
} four;

typedef struct joiner {
    uint64_t everybody;
    four open[MOST_OPEN];
    int open_count;
    int32_t *columns;
    int64_t count;
} joiner;

static int bits(uint64_t word) { return __builtin_popcountll(word); }

static void close_four(joiner *j, int which)
{
    --j->open_count;
    memmove(&j->open[which], &j->open[which + 1], (size_t)(j->open_count - which) * sizeof *j->open);
}

/* Places for a second or first column of a row group that can no longer be filled: it wants more columns than the four has left. */
static int spoiled(uint64_t everybody, uint64_t once, uint64_t twice, int filled)
{
    int left = 4 - filled, none = bits(everybody & ~once), one = bits(once & ~twice);
    return (left < 2 ? 2 - left : 0) * none + (left < 1 ? one : 0);
}

/* The open four that takes a column of these readers best; a new one where none can. */
static int find_four(joiner *j, uint64_t readers)
{
    int best = -1, least = 0, fullest = 0;
    for (int i = 0; i < j->open_count; ++i) {
        const four *f = &j->open[i];
        if (f->twice & readers) continue;
        int more = spoiled(j->everybody, f->once | readers, f->twice | (f->once & readers), f->filled + 1) -
                   spoiled(j->everybody, f->once, f->twice, f->filled);
        if (best >= 0 && (more > least || (more == least && f->filled <= fullest))) continue;
        best = i;
        least = more;
        fullest = f->filled;
    }
    if (best >= 0) return best;
    if (j->open_count == MOST_OPEN) close_four(j, 0);
    j->open[j->open_count] = (four){.at = j->count};
    for (int i = 0; i < 4; ++i) j->columns[j->count++] = -1;
    return j->open_count++;
}

static void place(joiner *j, int32_t column, uint64_t readers)
{
    int which = find_four(j, readers);
    four *f = &j->open[which];
    j->columns[f->at + f->filled++] = column;
    f->twice |= f->once & readers;
    f->once |= readers;
    if (f->filled == 4 || f->twice == j->everybody) close_four(j, which);
}

int64_t lac_gather_join(const uint64_t *readers, int64_t k, int32_t *columns)
{
    joiner j = {.columns = columns};
    for (int64_t c = 0; c < k; ++c) j.everybody |= readers[c];
    for (int64_t c = 0; c < k; ++c)
        if (readers[c]) place(&j, (int32_t)c, readers[c]);
    return j.count;
}

double lac_gather_joined_places(double groups, double reads, double k, bool in_blocks)
{
    if (k <= 0.0) return 0.0;
    /* Of three columns taken at random so many row groups read all: with many of them fours are left with two columns. Fitted on random
     * choices of 2 to 64 row groups that keep 3 to 50%: within 3%, but for 10% where this begins to count. Blocks of 4 inputs crowd sooner. */
    double density = fmin(1.0, reads / k), any = k * (1.0 - pow(1.0 - density, groups));
    double crowded = fmax(0.0, groups * density * density * density * (in_blocks ? 2.3 : 1.0) - 0.7);
    return fmax(2.0 * reads, any) * (2.0 - exp(-0.5 * crowded));
}
