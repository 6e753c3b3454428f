/* select_body.h - the selection for one key type; select.c includes it once for each.
 * Needs KEY (a signed integer type), KEY_BITS and NAME(x). */

/* How many keys reach the limit. */
static int64_t NAME(count_from)(const KEY *keys, int64_t count, KEY limit)
{
    int64_t total = 0;
    while (count > 0) {
        /* Short blocks keep the counter as wide as the key, which is what lets the loop run in vector lanes. */
        int64_t block = count < 4096 ? count : 4096;
        KEY reached = 0;
        for (int64_t i = 0; i < block; i++) reached = (KEY)(reached + (keys[i] >= limit));
        total += reached;
        keys += block;
        count -= block;
    }
    return total;
}

/* Finds the want-th largest key bit by bit from the top: each pass over the keys settles one bit. A pass that splits the
 * keys exactly ends the search, so random data needs about 8 + log2(count) passes. */
void NAME(lac_select_top)(const KEY *keys, int64_t count, int64_t want, uint8_t *keep)
{
    if (want <= 0 || want >= count) {
        memset(keep, want > 0, (size_t)count);
        return;
    }
    KEY any = 0, all = keys[0];
    for (int64_t i = 0; i < count; i++) {
        any |= keys[i];
        all &= keys[i];
    }
    KEY limit = all; /* grows to the want-th largest key; at least `want` keys reach it at all times */
    for (int bit = KEY_BITS - 2; bit >= 0; bit--) {
        KEY one = (KEY)((KEY)1 << bit);
        if (!((any ^ all) & one)) continue;
        int64_t reached = NAME(count_from)(keys, count, (KEY)(limit | one));
        if (reached >= want) limit |= one;
        if (reached == want) {
            for (int64_t i = 0; i < count; i++) keep[i] = keys[i] >= limit;
            return;
        }
    }
    int64_t equal = want - NAME(count_from)(keys, count, (KEY)(limit + 1));
    for (int64_t i = 0; i < count; i++) {
        uint8_t tie = keys[i] == limit && equal > 0;
        equal -= tie;
        keep[i] = (uint8_t)((keys[i] > limit) | tie);
    }
}

/* LANES groups of m keys at once, each in a lane of its own: a key stays when fewer than n others go before it. */
static void NAME(select_ranked)(const KEY *keys, int32_t m, int32_t n, int64_t groups, uint8_t *keep)
{
    KEY column[RANK_MAX][LANES];
    for (int64_t lane = 0; lane < LANES; lane++) {
        const KEY *group = keys + (lane < groups ? lane : 0) * m;
        for (int32_t j = 0; j < m; j++) column[j][lane] = group[j];
    }
    for (int32_t i = 0; i < m; i++) {
        KEY mine[LANES], before[LANES];
        for (int lane = 0; lane < LANES; lane++) {
            mine[lane] = column[i][lane];
            before[lane] = 0;
        }
        for (int32_t j = 0; j < i; j++)
            for (int lane = 0; lane < LANES; lane++) before[lane] = (KEY)(before[lane] + (column[j][lane] >= mine[lane]));
        for (int32_t j = i + 1; j < m; j++)
            for (int lane = 0; lane < LANES; lane++) before[lane] = (KEY)(before[lane] + (column[j][lane] > mine[lane]));
        for (int64_t lane = 0; lane < groups; lane++) keep[lane * m + i] = before[lane] < n;
    }
}

void NAME(lac_select_units)(const KEY *keys, const lac_geometry *geometry, uint8_t *keep)
{
    int64_t units = geometry->units;
    if (geometry->is_free) {
        NAME(lac_select_top)(keys, units, geometry->selected, keep);
        return;
    }
    int32_t n = geometry->group_n, m = geometry->group_m;
    if (n == m) {
        memset(keep, 1, (size_t)units);
        return;
    }
    int64_t full = units / m, group = 0;
    if (m == 4 && KEY_BITS == 16) group = select_fours((const int16_t *)(const void *)keys, n, full, keep);
    if (m <= RANK_MAX) {
        for (; group < full; group += LANES) {
            int64_t some = full - group < LANES ? full - group : LANES;
            NAME(select_ranked)(keys + group * m, m, n, some, keep + group * m);
        }
    } else {
        for (; group < full; group++) NAME(lac_select_top)(keys + group * m, m, n, keep + group * m);
    }
    int64_t rest = units - full * m;
    NAME(lac_select_top)(keys + full * m, rest, rest < n ? rest : n, keep + full * m);
}
