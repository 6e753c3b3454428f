/* dense_choice.c - which of the library's algorithms a dense plan takes, and how it lays W. The library's own heuristics rank
 * them, but do not know: the fastest is often a later answer, or one for W laid the other way. So a plan times them, once for a
 * problem on a kind of GPU, and the choice is remembered: in the process, and in the folder of the kernels' cache. dense.c calls it.
 *
 * What is remembered is the number of an answer and what that answer was. The library is asked again every time, and a
 * memory that is not among its answers counts as none: whatever a file says, the library gets only what it has said itself. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "cuda/dense_product.h"
#include "cuda/notes.h"

/* Raise KEY_VERSION when what was timed must not be used any more. */
enum { KEY_VERSION = 2, WAYS = 2 };

/* As it is in the file. */
typedef struct dense_record {
    uint32_t other_way; /* 1: W lies the other way than lac_dense_product_make lays it */
    uint32_t number;    /* of the answer */
    uint64_t workspace_bytes;
    lac_lt_algorithm algorithm;
    double seconds;
    uint64_t settled; /* 0: others disturbed the timing, and whoever reads this times once more; 1 otherwise */
} dense_record;

_Static_assert(sizeof(dense_record) <= LAC_NOTE_MOST_BYTES, "a note holds it");

/* The library's answers for W as lac_dense_product_make lays it, and for the other way. */
typedef struct dense_ways {
    lac_dense_product product[WAYS];
    lac_lt_answer answers[WAYS][LAC_DENSE_MOST_ANSWERS];
    int count[WAYS];
} dense_ways;

static lac_status ask_way(const lac_device *device, dense_ways *ways, int way)
{
    lac_dense_alignment usual = lac_dense_alignment_usual(&ways->product[way]);
    return lac_dense_ask(device, &ways->product[way], &usual, ways->answers[way], &ways->count[way]);
}

/* The other way may have no answers. */
static lac_status ask_ways(const lac_problem *problem, dense_ways *ways)
{
    if (!lac_dense_product_make(problem, &ways->product[0]))
        return lac_fail(LAC_STATUS_INTERNAL, "the problem is no dense product");
    ways->product[1] = ways->product[0];
    lac_dense_product_lay(&ways->product[1], !ways->product[0].w_by_inputs);
    ways->count[1] = 0;
    lac_status status = ask_way(problem->device, ways, 0);
    if (status || (problem->options.no_timing && !lac_dense_has_choice(&ways->product[0]))) return status;
    status = ask_way(problem->device, ways, 1);
    return status == LAC_STATUS_UNSUPPORTED ? LAC_STATUS_OK : status;
}

/* ---- without timing */

static void pick_untimed(const dense_ways *ways, int *way, int *number)
{
    *way = ways->count[1] && lac_dense_has_choice(&ways->product[0]) &&
           lac_dense_prefers(&ways->answers[0][0], &ways->answers[1][0]);
    *number = lac_dense_pick(&ways->product[*way], ways->answers[*way], ways->count[*way]);
}

/* ---- remembering */

/* Everything that the times depend on but the library's version. */
static void write_key(const lac_device *device, const lac_dense_product *p, char key[LAC_NOTE_KEY_SIZE])
{
    lac_dense_alignment usual = lac_dense_alignment_usual(p);
    snprintf(key, LAC_NOTE_KEY_SIZE,
             "lacuna dense %d\nGPU %.100s, %d multiprocessors\nsizes %" PRId64 " %" PRId64 " %" PRId64
             "\ndtypes %d %d, compute %d\nby tokens %d %d\nfinish %d, bias %d, residual %d\naligned %" PRIu32 " %" PRIu32
             " %" PRIu32 "\n",
             KEY_VERSION, device->info.model, device->info.cores, p->m, p->n, p->k, (int)p->operand, (int)p->result, p->compute,
             p->x_by_tokens, p->y_by_tokens, (int)p->finish, p->has_bias, p->has_residual, usual.x, usual.y, usual.c);
}

/* Whether the library's answers still have it. */
static bool is_among(const dense_record *r, const dense_ways *ways)
{
    if (r->other_way >= WAYS || r->number >= (uint32_t)ways->count[r->other_way] || r->settled > 1) return false;
    const lac_lt_answer *answer = &ways->answers[r->other_way][r->number];
    return answer->workspace_bytes == r->workspace_bytes && !memcmp(&answer->algorithm, &r->algorithm, sizeof r->algorithm);
}

static int library_version(void) { return (int)lac_cublaslt_get(NULL)->version; }

/* NOT_FOUND when the folder has none that is sound and among the answers. */
static lac_status load_record(const char *key, const dense_ways *ways, dense_record *out)
{
    lac_status status = lac_note_load(key, library_version(), out, sizeof *out);
    return !status && !is_among(out, ways) ? LAC_STATUS_NOT_FOUND : status;
}

/* ---- timing */

/* Both ways in turn, each from its best answer on by the library's own ranking: where time runs out, the last are left. */
static int list_candidates(const dense_ways *ways, lac_dense_candidate candidates[WAYS * LAC_DENSE_MOST_ANSWERS])
{
    int count = 0;
    for (int number = 0; number < LAC_DENSE_MOST_ANSWERS; ++number)
        for (int way = 0; way < WAYS; ++way)
            if (number < ways->count[way])
                candidates[count++] = (lac_dense_candidate){&ways->product[way], &ways->answers[way][number]};
    return count;
}

/* NOT_FOUND when nothing could be timed. */
static lac_status time_ways(const lac_problem *problem, const dense_ways *ways, dense_record *out, bool *steady)
{
    lac_dense_candidate candidates[WAYS * LAC_DENSE_MOST_ANSWERS];
    lac_dense_timing timing;
    int count = list_candidates(ways, candidates);
    double expected = lac_dense_product_cost(problem, &ways->product[0]).seconds;
    lac_status status = lac_dense_time(problem->device, candidates, count, expected, &timing);
    if (status) return status;
    if (timing.fastest < 0) return LAC_STATUS_NOT_FOUND;
    const lac_dense_candidate *fastest = &candidates[timing.fastest];
    memset(out, 0, sizeof *out);
    out->other_way = fastest->product == &ways->product[1];
    out->number = (uint32_t)(fastest->answer - ways->answers[out->other_way]);
    out->workspace_bytes = fastest->answer->workspace_bytes;
    out->algorithm = fastest->answer->algorithm;
    out->seconds = timing.seconds;
    *steady = timing.steady;
    return LAC_STATUS_OK;
}

/* Times, and writes what it finds unless another process has settled it meanwhile: one choice for all. NOT_FOUND when nothing could be
 * timed. `again`: it was disturbed before, and is taken as it comes now: a short product is never steady. */
static lac_status time_and_store(const lac_problem *problem, const dense_ways *ways, const char *key, bool again,
                                 dense_record *out)
{
    bool steady = false;
    dense_record others;
    lac_status status = time_ways(problem, ways, out, &steady);
    if (status) return status;
    out->settled = steady || again;
    status = load_record(key, ways, &others);
    if (status == LAC_STATUS_OK && others.settled) {
        *out = others;
        return LAC_STATUS_OK;
    }
    if (status && status != LAC_STATUS_NOT_FOUND) return status;
    lac_note_store(key, library_version(), out, sizeof *out);
    return LAC_STATUS_OK;
}

/* Under notes_lock. NOT_FOUND when nothing is known and nothing could be timed. */
static lac_status recall_or_time(const lac_problem *problem, const dense_ways *ways, bool may_time, dense_record *out)
{
    lac_cuda_programs *programs = lac_cuda_state_of(problem->device)->programs;
    char key[LAC_NOTE_KEY_SIZE];
    write_key(problem->device, &ways->product[0], key);
    const dense_record *known = lac_note_find(programs, key);
    if (known && is_among(known, ways)) {
        *out = *known;
        return LAC_STATUS_OK;
    }
    dense_record timed;
    lac_status status = load_record(key, ways, out);
    bool again = status == LAC_STATUS_OK && !out->settled;
    if ((again || status == LAC_STATUS_NOT_FOUND) && may_time) {
        lac_status taken = time_and_store(problem, ways, key, again, &timed);
        if (taken != LAC_STATUS_NOT_FOUND || !again) status = taken; /* else the disturbed one will do */
        if (!taken) *out = timed;
    }
    if (!status && !out->settled && !may_time) return LAC_STATUS_OK; /* who may time will do it once more */
    return status ? status : lac_note_add(programs, key, out, sizeof *out);
}

/* ---- choosing */

lac_status lac_dense_choose(const lac_problem *problem, bool may_time, lac_dense_way *out)
{
    lac_cuda_programs *programs = lac_cuda_state_of(problem->device)->programs;
    dense_ways ways;
    dense_record record;
    bool timed = !problem->options.no_timing;
    lac_status status = ask_ways(problem, &ways);
    if (status) return status;
    int way, number;
    pick_untimed(&ways, &way, &number);
    if (timed) {
        pthread_mutex_lock(&programs->notes_lock);
        status = recall_or_time(problem, &ways, may_time, &record);
        pthread_mutex_unlock(&programs->notes_lock);
        if (!status) {
            way = (int)record.other_way;
            number = (int)record.number;
        } else if (status != LAC_STATUS_NOT_FOUND) {
            return status;
        }
    }
    out->product = ways.product[way];
    out->anywhere = lac_dense_product_anywhere(&out->product);
    out->usual = ways.answers[way][number];
    lac_dense_alignment least = lac_dense_alignment_least(&out->anywhere);
    return lac_dense_ask(problem->device, &out->anywhere, &least, out->answers, &out->answer_count);
}
