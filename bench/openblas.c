/* openblas.c - OpenBLAS by dlopen: nothing is linked, and a machine without it still has a benchmark. child.c opens it, in a
 * process of its own; contender.c calls it there.
 *
 * Which of its builds: the one on OpenMP first, whose threads wait for work in the same way as Lacuna's. */
#include "openblas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "library.h"

/* The numbers of the CBLAS interface. */
enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };
typedef void (*sgemm_fn)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c, int ldc);
typedef void (*sgemv_fn)(int order, int transpose, int m, int n, float alpha, const float *a, int lda, const float *x, int incx,
                         float beta, float *y, int incy);

struct bench_openblas {
    void *library;
    sgemm_fn sgemm;
    sgemv_fn sgemv;
    char info[160];
};

#define DEBIAN(arch, build) "/usr/lib/" arch "-linux-gnu/openblas-" build "/libopenblas.so.0"
static const char *const library_names[] = {
    DEBIAN("x86_64", "openmp"), DEBIAN("aarch64", "openmp"), "libopenblaso.so.0",         "libopenblas.so.0",
    "libopenblas.so",           "libopenblasp.so.0",         DEBIAN("x86_64", "pthread"), DEBIAN("aarch64", "pthread")};

static void *open_library(char *why, size_t why_size)
{
    const char *told = getenv("LAC_OPENBLAS");
    if (told && *told) {
        void *library = dlopen(told, RTLD_NOW | RTLD_LOCAL);
        if (!library) snprintf(why, why_size, "LAC_OPENBLAS is '%s', which cannot be opened: %s", told, dlerror());
        return library;
    }
    for (size_t i = 0; i < sizeof library_names / sizeof *library_names; i++) {
        void *library = dlopen(library_names[i], RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
    }
    snprintf(why, why_size,
             "OpenBLAS is not here (no libopenblas.so.0 or libopenblaso.so.0), so there is no dense baseline; on Debian: "
             "apt-get install libopenblas0-openmp; or name the file in LAC_OPENBLAS");
    return NULL;
}

static void describe(bench_openblas *blas, int threads)
{
    static const char *const layers[] = {"sequential", "pthread", "openmp"};
    char *(*get_config)(void), *(*get_core)(void), version[32] = "unknown";
    int (*get_parallel)(void);
    const bench_function functions[] = {{.pointer = &get_config, .name = "openblas_get_config", .is_optional = 1},
                                        {.pointer = &get_core, .name = "openblas_get_corename", .is_optional = 1},
                                        {.pointer = &get_parallel, .name = "openblas_get_parallel", .is_optional = 1},
                                        {.name = NULL}};
    bench_library_find(blas->library, functions);
    if (get_config) sscanf(get_config(), "OpenBLAS %31s", version);
    int layer = get_parallel ? get_parallel() : 1;
    snprintf(blas->info, sizeof blas->info, "openblas=%s; openblas_core=%s; openblas_layer=%s; openblas_threads=%d", version,
             get_core ? get_core() : "unknown", layers[layer == 1 || layer == 2 ? layer : 0], threads);
}

/* The build on plain threads: 2^22 ticks, about 2 ms, so that its threads stay awake between the calls of a turn, and others
 * need not wait long for their own until they sleep. */
#define BENCH_OPENBLAS_TIMEOUT "22"

bench_openblas *bench_openblas_open(int threads, char *why, size_t why_size)
{
    bench_openblas *blas = calloc(1, sizeof *blas);
    if (!blas) {
        snprintf(why, why_size, "out of memory");
        return NULL;
    }
    /* Read when the library is loaded; a caller's own setting stands. */
    setenv("OPENBLAS_THREAD_TIMEOUT", BENCH_OPENBLAS_TIMEOUT, 0);
    blas->library = open_library(why, why_size);
    if (!blas->library) {
        free(blas);
        return NULL;
    }
    void (*set_threads)(int);
    int (*get_threads)(void);
    const bench_function functions[] = {{.pointer = &blas->sgemm, .name = "cblas_sgemm"},
                                        {.pointer = &blas->sgemv, .name = "cblas_sgemv"},
                                        {.pointer = &set_threads, .name = "openblas_set_num_threads"},
                                        {.pointer = &get_threads, .name = "openblas_get_num_threads"},
                                        {.name = NULL}};
    const char *missing = bench_library_find(blas->library, functions);
    if (missing) {
        snprintf(why, why_size, "the library found has no %s: is it OpenBLAS?", missing);
        bench_openblas_close(blas);
        return NULL;
    }
    set_threads(threads);
    if (get_threads() != threads) {
        snprintf(why, why_size, "OpenBLAS was told to use %d threads and uses %d: the comparison would not be fair", threads,
                 get_threads());
        bench_openblas_close(blas);
        return NULL;
    }
    describe(blas, threads);
    return blas;
}

void bench_openblas_close(bench_openblas *blas)
{
    if (!blas) return;
    /* The library stays: its threads run in its code. */
    free(blas);
}

const char *bench_openblas_info(const bench_openblas *blas) { return blas->info; }

const char *bench_openblas_way_name(int way, int64_t m, lac_layout layout)
{
    if (m == 1) return way ? "openblas_sgemv_t" : "openblas_sgemv_n";
    if (layout == LAC_LAYOUT_TOKEN_MAJOR) return way ? "openblas_sgemm_nn" : "openblas_sgemm_nt";
    return way ? "openblas_sgemm_tn" : "openblas_sgemm_nn";
}

int bench_openblas_wants_transposed(int way) { return way == 1; }

void bench_openblas_multiply(const bench_openblas *blas, int way, lac_layout layout, int64_t m, int64_t n, int64_t k,
                             const float *x, const float *w, float *y)
{
    int tokens = (int)m, outputs = (int)n, inputs = (int)k;
    int ldw = way ? outputs : inputs;
    if (m == 1) { /* one token is the same in both layouts */
        blas->sgemv(ROW_MAJOR, way ? TRANSPOSE : NO_TRANSPOSE, way ? inputs : outputs, way ? outputs : inputs, 1, w, ldw, x, 1,
                    0, y, 1);
    } else if (layout == LAC_LAYOUT_TOKEN_MAJOR) {
        blas->sgemm(ROW_MAJOR, NO_TRANSPOSE, way ? NO_TRANSPOSE : TRANSPOSE, tokens, outputs, inputs, 1, x, inputs, w, ldw, 0,
                    y, outputs);
    } else {
        blas->sgemm(ROW_MAJOR, way ? TRANSPOSE : NO_TRANSPOSE, NO_TRANSPOSE, outputs, tokens, inputs, 1, w, ldw, x, tokens, 0,
                    y, tokens);
    }
}
