/* pattern.h - what a pattern means on an n x k matrix: the numbers that format, prune and the kernels all count with. */
#ifndef LAC_CORE_PATTERN_H
#define LAC_CORE_PATTERN_H

#include <stdbool.h>

#include "lacuna.h"

/* The selected inputs of a V:N:M group, before each row keeps N of them. */
enum { LAC_VNM_SELECTED = 4 };

typedef struct lac_geometry {
    int64_t n, k;
    int64_t unit_n;     /* outputs in a unit, at most max(n, 1): a longer vector is one vector            */
    int64_t unit_k;     /* inputs in a unit, at most max(k, 1)                                            */
    int64_t row_groups; /* ceil(n / unit_n); the last may be partial                                      */
    int64_t units;      /* ceil(k / unit_k); the last may be partial                                      */
    bool is_free;       /* free distribution: no groups, each row group keeps its own units               */
    int32_t group_n;    /* units kept in a group (VNM: selected, 4); 0 when free                          */
    int32_t group_m;    /* units in a group; 0 when free                                                  */
    int64_t groups;     /* ceil(units / group_m); 0 when free                                             */
    int64_t selected;   /* units kept in a row group (VNM: inputs selected); when free the most it may    */
    int32_t slot_n;     /* values a row keeps in a group: group_n, VNM: pattern.n; 0 when free            */
    int64_t slots;      /* values a row keeps per input of a unit: selected, VNM: sum of min(N, r)        */
    int32_t index_bits; /* ceil(log2 group_m): the width of a packed index entry; 0 when free             */
} lac_geometry;

/* INVALID_ARGUMENT, naming the field, unless the pattern is one that lac_pattern_parse could have returned. */
lac_status lac_pattern_validate(const lac_pattern *pattern);
/* `pattern` must be valid, 0 <= n, k <= LAC_MAX_DIMENSION: both are checked. */
lac_status lac_geometry_make(const lac_pattern *pattern, int64_t n, int64_t k, lac_geometry *out);

/* Outputs in row group `group`; inputs in unit `unit`; units in group `group`. */
static inline int64_t lac_geometry_rows(const lac_geometry *g, int64_t group)
{
    int64_t left = g->n - group * g->unit_n;
    return left < g->unit_n ? left : g->unit_n;
}

static inline int64_t lac_geometry_inputs(const lac_geometry *g, int64_t unit)
{
    int64_t left = g->k - unit * g->unit_k;
    return left < g->unit_k ? left : g->unit_k;
}

static inline int64_t lac_geometry_group_units(const lac_geometry *g, int64_t group)
{
    int64_t left = g->units - group * g->group_m;
    return left < g->group_m ? left : g->group_m;
}

bool lac_pattern_equal(const lac_pattern *a, const lac_pattern *b);

#endif
