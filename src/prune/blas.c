/* blas.c - finds OpenBLAS and calls its sgemm. Nothing is linked: without it second-order pruning works, slower. The environment
 * variable LAC_OPENBLAS names the file to take, and then no other is tried; when it is set and empty, none is. Called by
 * linear.c. */
#include "prune/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/parallel.h"
#include "core/status.h"

enum { ROW_MAJOR = 101, AS_IT_IS = 111, TURNED = 112 }; /* of the CBLAS interface */
/* Below this many multiply-adds the own loops are as quick as the call. */
enum { LEAST_WORK = 32768 };

typedef void (*sgemm_fn)(int order, int turn_a, int turn_b, int rows, int cols, int depth, float alpha, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c, int ldc);

/* An OpenMP build shares the threads of Lacuna's own loops, where both use one runtime: OpenBLAS is built with gcc, so gcc's. Beside another one (clang
 * has its own) its threads were seen to wait forever; there the builds with threads of their own come first. */
#if defined(__clang__)
static const bool one_runtime = false;
#else
static const bool one_runtime = true;
#endif
#define DEBIAN(arch, build) "/usr/lib/" arch "-linux-gnu/openblas-" build "/libopenblas.so.0"
static const char *const openmp_names[] = {DEBIAN("x86_64", "openmp"), DEBIAN("aarch64", "openmp"), "libopenblaso.so.0"};
static const char *const pthread_names[] = {DEBIAN("x86_64", "pthread"), DEBIAN("aarch64", "pthread"), "libopenblasp.so.0"};
static const char *const other_names[] = {"libopenblas.so.0", "libopenblas.so", "libcblas.so.3"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static sgemm_fn sgemm;
static char found[512];

/* A build on OpenMP that is not our runtime starts none of its threads, and so cannot wait for them. */
static void keep_to_one_thread(void *library)
{
    enum { ON_OPENMP = 2 };
    int (*get_parallel)(void) = NULL;
    void (*set_threads)(int) = NULL;
    void *get = dlsym(library, "openblas_get_parallel"), *set = dlsym(library, "openblas_set_num_threads");
    if (!get || !set) return;
    memcpy(&get_parallel, &get, sizeof get_parallel);
    memcpy(&set_threads, &set, sizeof set_threads);
    if (get_parallel() != ON_OPENMP) return;
    set_threads(1);
    lac_log(LAC_LOG_LEVEL_INFO, "%s is built on another OpenMP runtime than Lacuna: it works on one thread", found);
}

static bool take(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    void *symbol = dlsym(library, "cblas_sgemm");
    if (!symbol) {
        dlclose(library);
        return false;
    }
    memcpy(&sgemm, &symbol, sizeof sgemm); /* ISO C has no cast from an object's pointer to a function's */
    strncpy(found, name, sizeof found - 1);
    if (!one_runtime) keep_to_one_thread(library);
    return true;
}

static bool take_any(const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (take(names[i])) return true;
    return false;
}

static void find(void)
{
    const char *override = secure_getenv("LAC_OPENBLAS");
    if (override) {
        if (*override && !take(override))
            lac_log(LAC_LOG_LEVEL_WARNING, "LAC_OPENBLAS: %s does not open or has no cblas_sgemm", override);
        return;
    }
    enum { COUNT = sizeof openmp_names / sizeof *openmp_names };
    if (take_any(one_runtime ? openmp_names : pthread_names, COUNT) || take_any(other_names, COUNT) ||
        take_any(one_runtime ? pthread_names : openmp_names, COUNT))
        return;
    lac_log(LAC_LOG_LEVEL_INFO, "OpenBLAS is not here: second-order pruning uses its own, slower products");
}

const char *lac_blas_path(void)
{
    pthread_once(&once, find);
    return found;
}

bool lac_blas_multiply(const lac_product *p)
{
    if (p->rows * p->cols * p->depth < LEAST_WORK) return false;
    pthread_once(&once, find);
    if (!sgemm) return false;
    /* A child of fork() would wait for a second thread for ever. Elsewhere it takes as many as it likes, whatever is asked for: with another
     * number it may round otherwise, and masks are to be the same with any. */
    const int before = lac_parallel_set_unsaid((int)lac_parallel_unsaid());
    sgemm(ROW_MAJOR, p->turn_a ? TURNED : AS_IT_IS, p->turn_b ? TURNED : AS_IT_IS, (int)p->rows, (int)p->cols, (int)p->depth,
          p->alpha, p->a, (int)p->lda, p->b, (int)p->ldb, 1.0f, p->c, (int)p->ldc);
    (void)lac_parallel_set_unsaid(before);
    return true;
}
