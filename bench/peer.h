/* peer.h - what another implementation must offer to be timed by `lacuna bench --peer LIB.so`: in the same run, on the same
 * data, checked in the same way. Build a shared library with these C functions; bench/peers/csr.c is an example.
 *
 * The work: Y[m,n] = X[m,k] * W[n,k]^T. All pointers to X and Y are in the memory of the device that is benchmarked and
 * aligned to 64 bytes; nothing is padded. */
#ifndef LACUNA_BENCH_PEER_H
#define LACUNA_BENCH_PEER_H

#include <lacuna.h> /* for its types; a peer need not link the library */

#ifdef __cplusplus
extern "C" {
#endif

#define LAC_PEER_VERSION 1

typedef struct lac_peer_problem {
    size_t size; /* of this struct: it may grow at its end */
    int64_t m, n, k;
    lac_dtype dtype;         /* of W, X and Y                                     */
    lac_layout layout;       /* of X and Y, as the user asked for it              */
    lac_precision precision; /* for F32                                           */
    lac_pattern pattern;     /* that W obeys                                      */
    lac_device_kind device;
    int32_t threads; /* to use on a CPU: no more, or the comparison is not fair */
} lac_peer_problem;

/* LAC_PEER_VERSION of the header that the peer was built with. */
LAC_API int lac_peer_version(void);

/* The name for the CSV's kernel column, which becomes "peer:NAME". */
LAC_API const char *lac_peer_name(void);

/* The layout of X and Y that the peer wants for this problem: LAC_LAYOUT_TOKEN_MAJOR, LAC_LAYOUT_FEATURE_MAJOR, or X
 * feature-major and Y token-major; the benchmark hands them over so, and its layout column tells that of X. -1: it cannot
 * do this problem, which is then left out. */
#define LAC_PEER_LAYOUT_FEATURE_TO_TOKEN 2
LAC_API int lac_peer_layout(const lac_peer_problem *problem);

/* Makes of W[n][k] (row-major, of the problem's dtype, with its zeros, in host memory, gone after the call) whatever the
 * peer multiplies by. Not timed. Called several times for one problem: each handle is a copy of its own, so that a cold
 * cache is cold. NULL: it failed. */
LAC_API void *lac_peer_prepare(const lac_peer_problem *problem, const void *w);

/* The work, timed. `stream` is a CUstream on a GPU, on which the work is put; NULL on a CPU, where the work is done on
 * return. 0: well. */
LAC_API int lac_peer_run(void *handle, const void *x, void *y, void *stream);

/* Takes NULL. */
LAC_API void lac_peer_release(void *handle);

#ifdef __cplusplus
}
#endif
#endif
