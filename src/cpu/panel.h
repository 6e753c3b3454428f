/* panel.h - what the CPU kernels share: activations packed for the inner loop, and the epilogue that stores results.
 *
 * Tokens are taken in panels of up to 256, a panel in tiles of as many tokens as the kernel likes. Of each panel X is
 * packed as fp32,
 *
 *     packed[tile of tokens][stored column][token in the tile]
 *
 * so that a product with one weight is one short run over adjacent tokens, whatever X's dtype, layout and padding, and
 * whatever the weight's column permutation. The sum for one output takes its products in the order of the stored
 * columns, on whichever thread it runs: results do not depend on the number of threads. */
#ifndef LAC_CPU_PANEL_H
#define LAC_CPU_PANEL_H

#include "cpu/unit.h"

/* Tokens in a panel, in the largest tile; stored rows in a work item. */
enum { LAC_CPU_PANEL_TOKENS = 256, LAC_CPU_TILE_TOKENS = 16, LAC_CPU_ITEM_ROWS = 8 };

typedef struct lac_cpu_panel {
    int64_t first;        /* its first token                                         */
    int64_t tokens;       /* how many it has                                         */
    int64_t tiles;        /* together they hold all tokens                           */
    int tile;             /* tokens in a tile; those past the panel's end are zeros  */
    int narrow;           /* tokens in each of the last `narrow_tiles` tiles         */
    int64_t narrow_tiles; /* none where all tiles are alike                          */
    float *packed;        /* [tiles][k][tile]                                        */
    bool asked;           /* its part of Y has been asked for                        */
    float *aside;         /* [tokens][n and some], sums that wait; or NULL (finish.h)       */
} lac_cpu_panel;

/* Tokens in a tile of the plain kernels, for m tokens in all: 1, 4 or 16. */
int lac_cpu_tile_tokens(int64_t m);
/* Tokens in a panel, the last one apart: as many panels as 256 tokens need, as equal as 16 tokens allow. */
int64_t lac_cpu_panel_tokens(int64_t m);
/* Bytes of the panel packed in tiles of up to `tile` tokens, a multiple of 64. */
uint64_t lac_cpu_packed_bytes(const lac_problem *problem, int tile);
/* The panel that begins at token `first` in tiles of `tile` tokens, its storage at the beginning of the call's workspace. */
lac_cpu_panel lac_cpu_panel_at(const lac_problem *problem, const lac_call *call, int tile, int64_t first);

/* Where tokens are many and W is not too large, threads share out the tokens instead of the outputs: each packs a tile,
 * multiplies it by all of W, which stays in its second-level cache or the one behind it, and finishes it. Nobody waits for anybody, and no two threads write
 * into one line of Y, not even where outputs are shuffled. For a weight of so many bytes and tokens in so many tiles; the
 * weight may fill `caches` second-level caches: more where a tile has so much to do with each weight that it may come from further
 * away. */
bool lac_cpu_shares_tokens(const lac_problem *problem, uint64_t weight_bytes, int64_t tiles, int caches);
/* Bytes of one packed tile, a multiple of 64. */
uint64_t lac_cpu_tile_bytes(const lac_problem *problem, int tile);
/* One tile of a panel as a panel of its own, packed elsewhere. */
lac_cpu_panel lac_cpu_tile_panel(const lac_cpu_panel *panel, int64_t tile, float *packed);
/* Packs all columns of a panel. */
void lac_cpu_pack(const lac_cpu_unit *unit, const lac_problem *problem, const lac_call *call, const lac_cpu_panel *panel);
/* Asks memory for part `part` of `parts` of what tile `tile` of the panel, if there is one, will read of X and, where
 * the results of a tile are few enough to stay until then, write of Y; whether they are. */
void lac_cpu_ask_ahead(const lac_problem *problem, const lac_call *call, const lac_cpu_panel *panel, int64_t tile, int64_t part,
                       int64_t parts);
bool lac_cpu_asks_for_results(const lac_problem *problem, const lac_cpu_panel *panel);

/* The first token of a tile, within the panel; how many a tile that begins there has room for. */
int64_t lac_cpu_tile_first(const lac_cpu_panel *panel, int64_t tile);
int lac_cpu_tile_at(const lac_cpu_panel *panel, int64_t first_token);

/* Stored columns [begin, end) of one token, widened to fp32. */
void lac_cpu_load_token(const lac_problem *problem, const lac_call *call, int64_t token, int64_t begin, int64_t end,
                        float *out);

/* Packing is done in strips of columns, so that threads can share it: lac_cpu_strips of them, each by one call. */
int64_t lac_cpu_strips(const lac_problem *problem, const lac_cpu_panel *panel);
void lac_cpu_pack_strip(const lac_cpu_unit *unit, const lac_problem *problem, const lac_call *call, const lac_cpu_panel *panel,
                        int64_t strip);

/* The sums of a run of entries times one tile: sums[t] = sum over i of values[i] * tile[columns[i]][t]. */
void lac_cpu_tile_sums(int tile, const float *packed, const float *values, const uint32_t *columns, int64_t count, float *sums);

/* Epilogue and store of one stored row and one tile of the panel. */
void lac_cpu_store(const lac_problem *problem, const lac_call *call, const lac_cpu_panel *panel, int64_t tile, int64_t stored,
                   const float *sums);

/* What a kernel does with a packed panel: work item `item`, on thread `thread`. */
typedef void (*lac_cpu_item_fn)(const lac_problem *problem, const void *state, const lac_call *call, const lac_cpu_panel *panel,
                                int64_t item, int thread);

/* Work items of a panel: the stored rows, 8 at a time. */
int64_t lac_cpu_items(const lac_problem *problem);
/* Threads that a problem runs on: the plan's, but no more than there are items. */
int lac_cpu_threads(const lac_problem *problem);
/* Packs panel after panel and does all the items of each, in parallel. */
void lac_cpu_run(const lac_problem *problem, const void *state, const lac_call *call, lac_cpu_item_fn fn);

#endif
