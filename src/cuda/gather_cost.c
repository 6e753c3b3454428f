/* gather_cost.c - what a shape of kernels/gather.cu, gather_block.cu or stream.cu asks of the GPU, for the performance model. gather_shape.c
 * asks for every candidate. The constants were fitted to runs on an H200 (docs/model.md). */
#include <math.h>

#include "core/dtype.h"
#include "cuda/gather_shape.h"
#include "cuda/turn.h"
#include "format/weight.h"

/* Behind a block's last tile nothing comes that would hide its end; two blocks on a multiprocessor end one after the other. A block with one
 * stage reads, multiplies and writes in turn, and others somewhat out of step with it. A round trip is from the moment when a stage of a
 * gathering block is free to the end of its next products, if no other block asks for any. Joined in fours: tiles of 64 outputs that are
 * larger than 128 x 128, and all tiles up to that size. */
const lac_gather_constants lac_gather_fitted = {.fill = 0.1e-6,
                                                .change = 0.21e-6,
                                                .epilogue = 0.17e-6,
                                                .last = 0.74e-6,
                                                .last_share = 0.53,
                                                .direct = 0.42e-6,
                                                .one_stage = 0.49,
                                                .overlap_a_stage = 0.0064,
                                                .trip = 1.07e-6,
                                                .trip_rate = 2.0,
                                                .joined = 0.8,
                                                .fours = 0.94,
                                                .few_fours = 0.86};

/* What the first stages wait for where their number must be loaded first; blocks of a cluster wait for each other. */
static const double RANGE_SECONDS = 2.4e-6, CLUSTER_SECONDS = 1.0e-6;
/* A tile of 128 x 256 whose rows of Y are in another order and no multiple of 8 elements long: they are stored one by one. */
static const double SCATTER_SECONDS = 4e-6;
/* Token-major Y that is not staged for the copy engine leaves in pieces of a few bytes, at so many bytes a second. */
static const double UNSTAGED_RATE = 0.67e12;
/* A stage of boxes, at least. */
static const double BOX_SECONDS = 0.55e-6;
/* The streaming kernel: the epilogue of a tile of 128 x 256, which no copy hides, the first stages of a block with such tiles, and a step
 * of packed weights, whatever else there is to do. */
static const double TILE_SECONDS = 1.2e-6, STREAM_FILL_SECONDS = 1.5e-6, UNPACK_SECONDS = 0.21e-6;
/* With few tokens: what 16 token-major tokens of a share cost, which are sent, and 16 of any that are sent into a stage; 128 tokens that are
 * read out of other blocks' memory, token-major ones more; each part after two; of the shorter of memory's time and a block's, what the
 * longer does not hide; bytes of W a second that come once more for each further tile of tokens beside the first. */
static const double SENT_SECONDS = 0.35e-6, STAGED_SECONDS = 0.43e-6, READ_SECONDS = 2.3e-6, STRAIGHT_READ_SECONDS = 1.8e-6,
                    PART_SECONDS = 0.2e-6, UNHIDDEN_SHARE = 0.16, BESIDE_RATE = 13e12;
/* The gathering kernel's parts that meet. */
static const double MEET_SECONDS = 0.5e-6;
/* What boxes of X that reach past the last token cost it, a step of a block: token-major ones of several, and where parts meet, each token
 * that is not there; each 64 tokens of feature-major rows, few tokens' or such as do not end with a sector of L2. */
static const double PADDING_SECONDS = 0.07e-6, MISSING_SECONDS = 2.6e-9, OUTSIDE_SECONDS = 0.034e-6, CUT_SECONDS = 0.11e-6;
enum { SECTOR_TOKENS = 16 };

/* Tiles for few tokens: a block's first stages and its last stores; and of its rate, what is left where blocks have more than one
 * tile. */
static const double FEW_SECONDS = 0.9e-6, AGAIN_SHARE = 0.82;

/* Of the bound's rate, what the streaming kernels, their tiles for few tokens, parts that meet, and whole blocks reached on an
 * H200. The rate of L2 is that of cp.async, which the copy engine exceeds; boxes wait for each other, and rows that come one by one
 * were the faster in (256 and 1024,5120,20480) and (256,20480,5120). */
static const double STREAM_EFFICIENCY = 1.4, FEW_EFFICIENCY = 1.4, MEET_EFFICIENCY = 2.0, BOX_EFFICIENCY = 1.0;

/* Of the time in which a tile of 128 outputs, joined in fours, writes rows of Y in another order, what no products hide. */
static const double SCATTERED_SHARE = 0.8;

/* The clock falls under long work: by so much at most. */
static const double HOT_SHARE = 0.2;

/* A copy of 512 bytes by a warp's cp.async occupies shared memory for 12 clocks. */
static const double CP_ASYNC_PORT = 3.0;

/* What all blocks have to do, and how they go over the GPU. */
typedef struct load {
    bool stream;          /* stream.cu's                                                                  */
    bool engine, streams; /* X comes by the copy engine; in its order                                     */
    double tiles, stages; /* of all blocks                                                                */
    double own;           /* of a pair, each warpgroup multiplies its own row group's stages, and only their W comes */
    double clusters;      /* that run at once ...                                                         */
    int blocks;           /* ... of so many                                                               */
    double waves, chain;  /* chain: stages of a block                                                     */
    const lac_gather_constants *by; /* how long things take that gathered tiles do                        */
} load;

static load load_of(const lac_problem *problem, const lac_gather_shape *s, const lac_gather_constants *by)
{
    load l = {.by = by,
              .stream = s->kind == LAC_GATHER_STREAM,
              .engine = lac_gather_by_engine(problem, s),
              .tiles = (double)s->token_tiles * (double)s->output_tiles,
              .own = s->paired ? (double)lac_gather_rows(problem->weight, s->kind) / s->rows / s->usual_stages : 1.0,
              .blocks = s->cluster * (s->meets ? s->parts : 1)};
    l.streams = l.engine && !s->boxes;
    l.stages = l.tiles * s->usual_stages;
    l.clusters = lac_gather_clusters_at_once(problem, l.blocks);
    l.waves = ceil(l.tiles * s->parts / l.blocks / (l.clusters * s->resident));
    l.chain = fmax(1.0, l.waves * s->usual_stages / s->parts);
    return l;
}

/* ---- bytes */

static double bytes_of_y(const lac_problem *problem)
{
    return (double)problem->m * (double)problem->weight->n_out * (double)lac_dtype_size(problem->options.y_dtype);
}

static double bytes_of_w(const lac_gather_shape *s, const load *l)
{
    return (double)s->output_tiles * s->usual_stages * l->own * lac_gather_w_stage(s);
}

/* Out of memory and into it. Rows of X that no row group selects are not read. */
static double memory_bytes(const lac_problem *problem, const lac_gather_shape *s, const load *l)
{
    double k = (double)problem->weight->geometry.k,
           none = k > 0.0 ? fmax(0.0, 1.0 - (double)lac_gather_rows(problem->weight, s->kind) / k) : 0.0;
    double x = (double)problem->m * k * (s->joined ? 1.0 : 1.0 - pow(none, (double)s->groups)) * 2.0;
    return x + bytes_of_w(s, l) + bytes_of_y(problem) * (problem->options.has_residual ? 2 : 1);
}

/* Out of L2. Token-major boxes of a stream end with the last token. */
static double pulled_bytes(const lac_problem *problem, const lac_gather_shape *s, const load *l)
{
    bool cut = l->streams && problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR;
    double x = cut ? 2.0 * s->rows * fmin(s->tile_tokens, (double)problem->m) : lac_gather_x_stage(s);
    return l->stages * (s->filled * x / (l->streams ? (double)s->cluster : 1.0) +
                        l->own * lac_gather_w_stage(s) / (l->streams ? 1.0 : (double)s->cluster));
}

/* Through the port of shared memory, which copies and tensor cores share. Each warpgroup reads W's rows once for each product and X's rows
 * once for each 64 outputs; cp.async takes the port for three times its bytes, the copy engine for once. */
static double port_bytes(const lac_gather_shape *s, const load *l)
{
    double read = l->stages * l->own *
                  (s->tile_outputs / 64.0 * lac_gather_x_stage(s) + (double)s->tile_tokens / s->width * lac_gather_w_stage(s));
    double written = l->stages * ((l->engine ? 1.0 : CP_ASYNC_PORT) * lac_gather_x_stage(s) + l->own * lac_gather_w_stage(s));
    return read + written;
}

/* Of X that is turned round or copied first, read and written. */
static double turned_bytes(const lac_problem *problem, const lac_gather_shape *s, const load *l)
{
    bool token_major = problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR;
    bool as_is = l->engine && (token_major ? problem->weight->k_in : problem->m) % 8 == 0;
    return as_is ? 0.0 : 2.0 * (double)lac_gather_turned_bytes(problem, s);
}

/* ---- seconds beside the stages */

/* A step of a stream whose last tile has tokens that do not exist. A copy of X has some of them. */
static double padding_seconds(const lac_problem *problem, const lac_gather_shape *s)
{
    if (problem->m % s->tile_tokens == 0) return 0.0;
    if (problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR) {
        double missing = (double)(s->token_tiles * s->tile_tokens - problem->m);
        return problem->m <= s->tile_tokens ? 0.0 : s->meets ? missing * MISSING_SECONDS : PADDING_SECONDS;
    }
    bool copied = problem->m % 8 && lac_gather_copies_x(s); /* whole boxes of it may still be outside */
    double tokens = copied ? (double)(s->token_tiles * s->tile_tokens - lac_turn_ld(problem)) : s->tile_tokens;
    return (copied || problem->m % SECTOR_TOKENS ? CUT_SECONDS : s->meets ? OUTSIDE_SECONDS : 0.0) * tokens / 64.0;
}

/* What a block takes in, at 64 bytes a clock: half of what it can read of its shared memory. */
static double intake_seconds(const lac_problem *problem, const lac_gather_shape *s, const load *l)
{
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    return pulled_bytes(problem, s, l) / (l->tiles * s->parts) / (0.5 * rates->shared / rates->multiprocessors);
}

/* What it takes that parts add up. */
static double sums_seconds(const lac_problem *problem, const lac_gather_shape *s)
{
    bool straight = problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR;
    double share = (double)s->width / s->parts / 16.0;
    if (s->sums == LAC_GATHER_SUMS_READ)
        return (READ_SECONDS + (straight ? STRAIGHT_READ_SECONDS : 0.0)) * s->tile_tokens / 128.0;
    return share * ((straight ? SENT_SECONDS : 0.0) + (s->sums == LAC_GATHER_SUMS_STAGED ? STAGED_SECONDS : 0.0));
}

/* Few tokens' blocks beside memory and what they take in. */
static double few_seconds(const lac_problem *problem, const lac_gather_shape *s, const load *l)
{
    double memory = memory_bytes(problem, s, l) / lac_cuda_rates_of(problem->device)->memory;
    return sums_seconds(problem, s) + (s->parts - 2) * PART_SECONDS +
           UNHIDDEN_SHARE * fmin(memory, intake_seconds(problem, s, l)) +
           (double)(s->token_tiles - 1) * bytes_of_w(s, l) / BESIDE_RATE;
}

/* The beginning of blocks and the ends of their tiles. */
static double ends_seconds(const lac_problem *problem, const lac_gather_shape *s, const load *l)
{
    double area = s->tile_outputs * s->tile_tokens / 32768.0, tile = l->by->change + l->by->epilogue * area;
    bool scatters = problem->weight->part[LAC_PART_ROW_PERM].data && problem->m % 8;
    if (l->stream)
        return (l->streams ? l->chain * padding_seconds(problem, s) : 0.0) +
               (s->meets ? few_seconds(problem, s, l) : area * (l->waves * TILE_SECONDS + STREAM_FILL_SECONDS));
    double last =
        lac_gather_leaves_directly(problem, s) ? l->by->direct : l->by->last * (s->resident > 1 ? l->by->last_share : 1.0);
    if (s->few) last = 0.0; /* it is in FEW_SECONDS */
    return l->waves * tile + last * area + l->by->fill + (s->paired ? RANGE_SECONDS : 0.0) +
           (s->cluster > 1 ? CLUSTER_SECONDS : 0.0) + (scatters ? SCATTER_SECONDS * area : 0.0);
}

/* The same, and what Y takes that does not leave by the copy engine, or in another order. */
static double fill_seconds(const lac_problem *problem, const lac_gather_shape *s, const load *l)
{
    double fill = ends_seconds(problem, s, l), scattered = lac_cuda_scatter_seconds(problem);
    bool direct = problem->options.y_layout == LAC_LAYOUT_TOKEN_MAJOR && s->staging == 0 && !s->by_last && !l->stream;
    if (s->few) fill += FEW_SECONDS + (s->meets ? MEET_SECONDS : 0.0);
    fill += scattered > 0.0 ? scattered : direct ? bytes_of_y(problem) / UNSTAGED_RATE : 0.0;
    if (lac_gather_in_fours(s) && s->tile_outputs > 64 && problem->weight->part[LAC_PART_ROW_PERM].data)
        fill += SCATTERED_SHARE * bytes_of_y(problem) / lac_cuda_rates_of(problem->device)->memory;
    return fill;
}

/* What stages that wait for each other take at least. A block asks for a stage when one that it had is done with: its stages are so many
 * round trips, one behind the other, each behind what all blocks have asked for. */
static double chain_seconds(const lac_problem *problem, const lac_gather_shape *s, const load *l)
{
    double deep = fmin(l->chain, s->stages);
    double asked = fmin(l->tiles * s->parts, l->clusters * l->blocks * s->resident) * deep * lac_gather_stage(s);
    if (lac_gather_streams_few(s)) return fmax(intake_seconds(problem, s, l), s->packed ? l->chain * UNPACK_SECONDS : 0.0);
    if (s->packed) return l->chain * UNPACK_SECONDS;
    if (l->stream || s->few) return 0.0;
    if (s->boxes) return l->chain * BOX_SECONDS;
    return l->chain / deep * (l->by->trip + asked / lac_cuda_rates_of(problem->device)->l2 / l->by->trip_rate);
}

/* ---- rates */

/* Of the bound's rate, what is reached. */
static double efficiency_of(const lac_problem *problem, const lac_gather_shape *s, const load *l)
{
    double area = s->tile_outputs * s->tile_tokens;
    double reached = l->stream && s->meets                           ? MEET_EFFICIENCY
                     : l->stream && (s->few || s->tile_tokens < 256) ? FEW_EFFICIENCY
                     : l->engine                                     ? s->boxes ? BOX_EFFICIENCY : STREAM_EFFICIENCY
                                                                     : s->efficiency;
    if (s->joined && !l->engine && !lac_gather_is_sparse(s)) reached *= l->by->joined;
    if (lac_gather_in_fours(s)) reached *= area <= 128 * 128 ? l->by->few_fours : s->tile_outputs > 64 ? 1.0 : l->by->fours;
    if (s->few && l->tiles * s->parts > l->clusters * l->blocks) reached *= AGAIN_SHARE;
    if (!s->few && !s->meets) {
        double shared = lac_cuda_rates_of(problem->device)->shared;
        reached /= 1.0 + HOT_SHARE * lac_model_gpu_heat(port_bytes(s, l) / shared / reached);
    }
    return reached;
}

lac_cost lac_gather_cost_by(const lac_problem *problem, const lac_gather_shape *s, const lac_gather_constants *by)
{
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    load l = load_of(problem, s, by);
    bool apart = s->parts > 1 && !s->meets; /* parts are added up by another kernel */
    double turned = turned_bytes(problem, s, &l), area = s->tile_outputs * s->tile_tokens;
    double partial = apart ? l.tiles * s->parts * area * 4.0 : 0.0;
    double overlap = by->overlap_a_stage * fmax(0.0, s->usual_stages / s->parts * l.waves - 1.0);
    lac_gpu_work work = {.memory_bytes = memory_bytes(problem, s, &l),
                         .l2_bytes = pulled_bytes(problem, s, &l),
                         .shared_bytes = port_bytes(s, &l),
                         .instructions = l.stages * (s->rows * 8 + 200),
                         .mma_flops = l.stages * l.own * 2.0 * area * s->rows * (lac_gather_is_sparse(s) ? 0.56 : 1.0),
                         .blocks = l.tiles * s->parts,
                         .blocks_at_once = l.clusters * l.blocks,
                         .fill_seconds = turned / rates->memory + lac_model_gpu_parts(rates, partial, l.tiles) +
                                         fill_seconds(problem, s, &l),
                         .chain_seconds = chain_seconds(problem, s, &l),
                         .exposed = l.stream || s->few ? 0.0 : by->one_stage / (1.0 + overlap),
                         .efficiency = efficiency_of(problem, s, &l),
                         .launches = 1 + (turned > 0.0) + apart,
                         .early = !l.stream};
    return lac_model_gpu_cost(rates, &work);
}

lac_cost lac_gather_cost(const lac_problem *problem, const lac_gather_shape *s)
{
    return lac_gather_cost_by(problem, s, &lac_gather_fitted);
}
