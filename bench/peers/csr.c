/* csr.c - an example of a peer: W as compressed sparse rows, multiplied by the plainest loop, on one thread. Built as
 * libpeer_csr.so; `lacuna bench --peer libpeer_csr.so` times it beside Lacuna's kernels. */
#include "../peer.h"

#include <stdlib.h>

typedef struct csr {
    int64_t m, n, k;
    int64_t *begin; /* [n + 1] where a row begins in the two arrays below */
    int64_t *input; /* [begin[n]] */
    float *value;   /* [begin[n]] */
} csr;

LAC_API int lac_peer_version(void) { return LAC_PEER_VERSION; }

LAC_API const char *lac_peer_name(void) { return "csr"; }

LAC_API int lac_peer_layout(const lac_peer_problem *problem)
{
    if (problem->dtype != LAC_DTYPE_F32 || problem->device != LAC_DEVICE_KIND_CPU) return -1;
    return LAC_LAYOUT_TOKEN_MAJOR;
}

LAC_API void lac_peer_release(void *handle)
{
    csr *rows = handle;
    if (!rows) return;
    free(rows->begin);
    free(rows->input);
    free(rows->value);
    free(rows);
}

LAC_API void *lac_peer_prepare(const lac_peer_problem *problem, const void *w)
{
    const float *dense = w; /* [n][k] */
    int64_t n = problem->n, k = problem->k, kept = 0;
    for (int64_t i = 0; i < n * k; i++) kept += dense[i] != 0;
    csr *rows = calloc(1, sizeof *rows);
    if (!rows) return NULL;
    rows->m = problem->m, rows->n = n, rows->k = k;
    rows->begin = malloc((size_t)(n + 1) * sizeof *rows->begin);
    rows->input = malloc((size_t)(kept + 1) * sizeof *rows->input);
    rows->value = malloc((size_t)(kept + 1) * sizeof *rows->value);
    if (!rows->begin || !rows->input || !rows->value) {
        lac_peer_release(rows);
        return NULL;
    }
    int64_t at = 0;
    for (int64_t row = 0; row < n; row++) {
        rows->begin[row] = at;
        for (int64_t input = 0; input < k; input++) {
            if (dense[row * k + input] == 0) continue;
            rows->input[at] = input;
            rows->value[at++] = dense[row * k + input];
        }
    }
    rows->begin[n] = at;
    return rows;
}

LAC_API int lac_peer_run(void *handle, const void *x, void *y, void *stream)
{
    const csr *rows = handle;
    (void)stream;
    for (int64_t token = 0; token < rows->m; token++) {
        const float *from = (const float *)x + token * rows->k; /* [k] */
        float *to = (float *)y + token * rows->n;               /* [n] */
        for (int64_t row = 0; row < rows->n; row++) {
            float sum = 0;
            for (int64_t i = rows->begin[row]; i < rows->begin[row + 1]; i++) sum += from[rows->input[i]] * rows->value[i];
            to[row] = sum;
        }
    }
    return 0;
}
