/* row.h - one stored row of a compressed weight as the products it makes: what a backend re-tiles from. */
#ifndef LAC_FORMAT_ROW_H
#define LAC_FORMAT_ROW_H

#include "format/weight.h"

typedef struct lac_weight_row {
    float *values;     /* [count]                */
    uint32_t *columns; /* [count] stored columns */
    int64_t count;
} lac_weight_row;

/* The most products of a row. */
int64_t lac_weight_row_capacity(const lac_weight *weight);
/* Decodes stored row `stored` into `row`, whose arrays hold lac_weight_row_capacity elements. `units` is scratch for
 * geometry.selected units. `neighbour`, unless NULL, is another row of the same row group: where a row group shares its
 * columns, they are taken from it. */
void lac_weight_decode_row(const lac_weight *weight, int64_t stored, const lac_weight_row *neighbour, uint32_t *units,
                           lac_weight_row *row);

/* Room to decode rows into, for each of some threads; NULL without memory. lac_release gives all of it back. */
typedef struct lac_row_room {
    lac_weight_row row;
    uint32_t *units;
} lac_row_room;
lac_row_room *lac_row_rooms_make(const lac_weight *weight, int threads);

#endif
