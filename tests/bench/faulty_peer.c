/* faulty_peer.c - a peer that can be wrong on purpose, for the test of `lacuna bench`. FAULTY_PEER in the environment says
 * how: "none" (it is right, and wants feature-major), "element", "late" (a token in the middle of many), "between", "unwritten",
 * "fails", "unprepared", "unable". */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

typedef struct copy {
    int64_t m, n, k;
    float *w; /* [n][k] */
} copy;

static int is(const char *fault)
{
    const char *told = getenv("FAULTY_PEER");
    return told && !strcmp(told, fault);
}

LAC_API int lac_peer_version(void) { return is("old") ? LAC_PEER_VERSION + 1 : LAC_PEER_VERSION; }

LAC_API const char *lac_peer_name(void) { return "faulty"; }

LAC_API int lac_peer_layout(const lac_peer_problem *problem)
{
    return problem->dtype != LAC_DTYPE_F32 || is("unable") ? -1 : LAC_LAYOUT_FEATURE_MAJOR;
}

LAC_API void *lac_peer_prepare(const lac_peer_problem *problem, const void *w)
{
    copy *made = is("unprepared") ? NULL : malloc(sizeof *made);
    if (!made) return NULL;
    size_t bytes = (size_t)(problem->n * problem->k) * sizeof(float);
    *made = (copy){problem->m, problem->n, problem->k, malloc(bytes)};
    if (!made->w) {
        free(made);
        return NULL;
    }
    memcpy(made->w, w, bytes);
    return made;
}

LAC_API void lac_peer_release(void *handle)
{
    if (!handle) return;
    free(((copy *)handle)->w);
    free(handle);
}

LAC_API int lac_peer_run(void *handle, const void *x, void *y, void *stream)
{
    const copy *c = handle;
    const float *from = x; /* [k][m] */
    float *to = y;         /* [n][m] */
    (void)stream;
    if (is("fails")) return 1;
    int64_t outputs = is("unwritten") ? c->n - 1 : c->n;
    for (int64_t j = 0; j < outputs; j++)
        for (int64_t i = 0; i < c->m; i++) {
            float sum = 0;
            for (int64_t l = 0; l < c->k; l++) sum += from[l * c->m + i] * c->w[j * c->k + l];
            to[j * c->m + i] = sum;
        }
    if (is("element")) to[0] = nextafterf(to[0] * 1.01f, INFINITY);
    /* Every token but the first and the last, some of which the oracle samples and some it does not. */
    if (is("late") && c->m > 400) to[(c->n / 2) * c->m + 333] *= 1.5f;
    if (is("between")) to[c->n * 3 / 5 * c->m + c->m / 2] *= 1.5f; /* not among the outputs that the oracle has of a large W */
    return 0;
}
