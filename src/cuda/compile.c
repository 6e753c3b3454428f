/* compile.c - lac_kernels_compile: every program that plans for the given architectures, patterns and numbers of tokens
 * would ask for, compiled ahead into a cache, on a machine without a GPU. */
#include <string.h>
#include <time.h>

#include "core/memory.h"
#include "core/status.h"
#include "cuda/backend.h"
#include "cuda/program.h"
#include "cuda/race.h"
#include "cuda/state.h"
#include "format/sample.h"

/* One program to compile, and the first problem that asks for it. */
typedef struct compile_item {
    const char *name;     /* of a kernel */
    size_t arch, pattern; /* numbers in the options */
    int64_t m;
    lac_cuda_request request;
} compile_item;

typedef struct compile_list {
    const lac_kernels_compile_options *options;
    lac_plan_options plan;
    lac_device **targets; /* [arch_count] */
    compile_item *items;
    uint64_t count, room;
    bool applied; /* some kernel does, be it without a program of its own */
} compile_list;

static bool same_request(const lac_cuda_request *a, const lac_cuda_request *b)
{
    if (strcmp(a->source, b->source) || strcmp(a->entry, b->entry) || a->define_count != b->define_count) return false;
    for (int i = 0; i < a->define_count; ++i)
        if (strcmp(a->defines[i].name, b->defines[i].name) || a->defines[i].value != b->defines[i].value) return false;
    return true;
}

static lac_status add_item(compile_list *list, const compile_item *item)
{
    for (uint64_t i = 0; i < list->count; ++i)
        if (list->items[i].arch == item->arch && same_request(&list->items[i].request, &item->request)) return LAC_STATUS_OK;
    if (list->count == list->room) {
        uint64_t room = list->room ? 2 * list->room : 32;
        compile_item *items = lac_grow(list->items, list->room * sizeof *items, room * sizeof *items);
        if (!items) return lac_fail_memory("programs to compile", room * sizeof *items);
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = *item;
    return LAC_STATUS_OK;
}

/* ---- what is asked for */

static lac_status check_options(const lac_kernels_compile_options *o)
{
    if (!o->archs || !o->arch_count)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options->archs is empty; it names what to compile for, such as sm_90a");
    if (!o->patterns || !o->pattern_count) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options->patterns is empty");
    for (size_t i = 0; i < o->arch_count; ++i)
        if (!o->archs[i]) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options->archs[%zu] is NULL", i);
    if (o->n < 0 || o->n > LAC_MAX_DIMENSION || o->k < 0 || o->k > LAC_MAX_DIMENSION)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options->n is %lld and k %lld; they lie in 0 to 2147483647",
                        (long long)o->n, (long long)o->k);
    if (!o->m && o->m_count) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options->m is NULL, but m_count %zu", o->m_count);
    for (size_t i = 0; i < o->m_count; ++i)
        if (o->m[i] < 1 || o->m[i] > LAC_MAX_DIMENSION)
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options->m[%zu] is %lld; it lies in 1 to 2147483647", i,
                            (long long)o->m[i]);
    return LAC_STATUS_OK;
}

/* The programs of every kernel that applies to one weight on one target, for all numbers of tokens. */
static lac_status collect(compile_list *list, size_t arch, size_t pattern, const lac_weight *weight)
{
    static const int64_t usual[] = {1, 8, 16, 64, 256, 4096};
    const lac_kernels_compile_options *o = list->options;
    const int64_t *tokens = o->m_count ? o->m : usual;
    size_t count = o->m_count ? o->m_count : sizeof usual / sizeof *usual;
    lac_problem problem = {list->targets[arch], weight, 0, list->plan, NULL};
    lac_status status = lac_plan_options_resolve(weight, problem.device, &problem.options);
    problem.options.kernel = NULL;
    for (size_t i = 0; i < lac_cuda_kernel_count && !status; ++i) {
        const lac_kernel *kernel = &lac_cuda_kernels[i];
        if (list->plan.kernel && strcmp(list->plan.kernel, kernel->info.name) != 0) continue;
        problem.kernel = kernel;
        for (size_t j = 0; j < count && !status; ++j) {
            problem.m = tokens[j];
            if (!kernel->applies(&problem)) continue;
            list->applied = true;
            lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS];
            int made = 0;
            const lac_cuda_flow *flow = kernel->config;
            if ((status = flow->requests(&problem, requests, &made))) break;
            for (int r = 0; r < made && !status; ++r)
                status = add_item(list, &(compile_item){kernel->info.name, arch, pattern, tokens[j], requests[r]});
        }
    }
    return status;
}

/* Plans that may pick among kernels may time them. */
static lac_status collect_timing(compile_list *list)
{
    const lac_kernels_compile_options *o = list->options;
    compile_item item = {.name = "timing", .m = o->m_count ? o->m[0] : 1};
    lac_cuda_sweep_request(&item.request);
    lac_status status = LAC_STATUS_OK;
    if (list->plan.kernel || list->plan.no_timing) return status;
    for (; item.arch < o->arch_count && !status; ++item.arch) status = add_item(list, &item);
    return status;
}

static lac_status collect_all(compile_list *list)
{
    const lac_kernels_compile_options *o = list->options;
    lac_status status = LAC_STATUS_OK;
    for (size_t pattern = 0; pattern < o->pattern_count && !status; ++pattern) {
        lac_weight *weight = NULL;
        status = lac_weight_sample(&o->patterns[pattern], o->n, o->k, o->dtype, &weight);
        for (size_t arch = 0; arch < o->arch_count && !status; ++arch) status = collect(list, arch, pattern, weight);
        lac_weight_free(weight);
    }
    if (!status) status = collect_timing(list);
    if (!status && !list->applied)
        status = lac_fail(LAC_STATUS_NOT_FOUND, "options->plan->kernel is '%.60s'; no kernel of that name applies",
                          list->plan.kernel ? list->plan.kernel : "");
    return status;
}

/* ---- compiling */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static lac_status compile_one(const compile_list *list, uint64_t index)
{
    const lac_kernels_compile_options *o = list->options;
    const compile_item *item = &list->items[index];
    char pattern[LAC_PATTERN_TEXT_SIZE] = "";
    lac_status status = lac_pattern_format(&o->patterns[item->pattern], pattern, sizeof pattern);
    bool found = false;
    lac_cuda_image image = {0};
    double begin = now();
    if (!status)
        status = lac_cuda_image_get(list->targets[item->arch], &item->request,
                                    &(lac_cuda_image_options){.folder = o->folder, .must_store = true}, &found, &image);
    if (status) return lac_fail_in(status, "%s, %s, %s", item->name, o->archs[item->arch], pattern);
    lac_compile_report report = {.size = sizeof report,
                                 .kernel = item->name,
                                 .arch = o->archs[item->arch],
                                 .pattern = pattern,
                                 .m = item->m,
                                 .n = o->n,
                                 .k = o->k,
                                 .entry = item->request.entry,
                                 .found = found,
                                 .registers = image.registers,
                                 .spill_bytes = image.spill_bytes,
                                 .shared_bytes = image.shared_bytes,
                                 .stack_bytes = image.stack_bytes,
                                 .serialized = image.serialized,
                                 .image_bytes = image.bytes,
                                 .seconds = now() - begin,
                                 .index = (int64_t)index,
                                 .total = (int64_t)list->count};
    lac_cuda_image_release(&image);
    if (o->on_program && o->on_program(o->user, &report))
        return lac_fail(LAC_STATUS_CANCELLED, "options->on_program stopped at program %lld of %lld", (long long)index,
                        (long long)list->count);
    return LAC_STATUS_OK;
}

lac_status lac_kernels_compile(const lac_kernels_compile_options *options)
{
    if (!options) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options is NULL");
    lac_kernels_compile_options o;
    lac_status status = lac_read_struct("options", options, &o, sizeof o);
    if (status || (status = check_options(&o))) return status;
    if (!o.n) o.n = 4096;
    if (!o.k) o.k = 4096;
    if (!o.dtype) o.dtype = LAC_DTYPE_F32;

    compile_list list = {.options = &o};
    if ((status = lac_read_struct("options->plan", o.plan, &list.plan, sizeof list.plan))) return status;
    list.targets = lac_allocate_zeroed(o.arch_count * sizeof *list.targets);
    if (!list.targets) return lac_fail_memory("targets", o.arch_count * sizeof *list.targets);
    for (size_t i = 0; i < o.arch_count && !status; ++i) status = lac_cuda_target_open(o.archs[i], &list.targets[i]);
    if (!status) status = collect_all(&list);
    for (uint64_t i = 0; i < list.count && !status; ++i) status = compile_one(&list, i);
    for (size_t i = 0; i < o.arch_count; ++i) lac_device_close(list.targets[i]);
    lac_release(list.targets);
    lac_release(list.items);
    return status;
}
