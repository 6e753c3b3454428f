/* plans.c - devices, compiled kernels and plans whose memory runs out; see faults.h. */
#include "faults/faults.h"

char fault_kernel_cache[512];

static lac_status try_device_open(test_scene *s)
{
    (void)s;
    return lac_device_open("cpu", &s->new_device);
}

static lac_status try_device_reads(test_scene *s)
{
    lac_device_info info = {.size = sizeof info};
    lac_kernel_info kernel = {.size = sizeof kernel};
    lac_status status = lac_device_get_info(s->device, &info);
    return status ? status : lac_kernel_probe(0, &kernel);
}

static lac_status try_device_probe(test_scene *s)
{
    (void)s;
    lac_device_info info = {.size = sizeof info};
    return lac_device_probe(0, &info);
}

static lac_status try_device_memory(test_scene *s)
{
    void *block = NULL;
    lac_status status = lac_device_allocate(s->device, sizeof s->x, &block);
    if (!status) status = lac_device_upload(s->device, block, s->x, sizeof s->x);
    if (!status) status = lac_device_download(s->device, s->x, block, sizeof s->x);
    if (!status) status = lac_device_synchronize(s->device);
    lac_device_release(s->device, block);
    return status;
}

static lac_status try_component_probe(test_scene *s)
{
    (void)s;
    lac_component_info info = {.size = sizeof info};
    return lac_component_probe(0, &info);
}

/* With a compiler made for the tests: what it compiles is written once, and read after that. */
static lac_status try_kernels_compile(test_scene *s)
{
    static const char *const archs[] = {"sm_75", "sm_90a"};
    static const int64_t tokens[] = {1, 64};
    lac_plan_options plan = {.size = sizeof plan, .kernel = "cuda_f32_plain"};
    lac_kernels_compile_options options = {.size = sizeof options,
                                           .archs = archs,
                                           .arch_count = 2,
                                           .patterns = &s->pattern,
                                           .pattern_count = 1,
                                           .n = TEST_ROWS,
                                           .k = TEST_COLS,
                                           .m = tokens,
                                           .m_count = 2,
                                           .plan = &plan,
                                           .folder = fault_kernel_cache};
    return lac_kernels_compile(&options);
}

static lac_status try_plan_create(test_scene *s)
{
    return lac_plan_create(s->device, s->weight, TEST_TOKENS, NULL, &s->new_plan);
}

static lac_status try_measured_plan(test_scene *s)
{
    lac_plan_options options = {.size = sizeof options, .measure = 1, .has_bias = 1, .has_residual = 1, .threads = 1};
    return lac_plan_create(s->device, s->weight, 1, &options, &s->new_plan);
}

lac_status fault_try_forced_plan(test_scene *s)
{
    lac_plan_options options = {.size = sizeof options, .kernel = s->kernel};
    return lac_plan_create(s->device, s->weight, TEST_TOKENS, &options, &s->new_plan);
}

static lac_execute_args arguments_of(test_scene *s)
{
    return (lac_execute_args){.size = sizeof(lac_execute_args),
                              .x = s->x,
                              .y = s->y,
                              .workspace = s->workspace,
                              .workspace_bytes = s->workspace_bytes};
}

static lac_status try_execute(test_scene *s)
{
    lac_execute_args args = arguments_of(s);
    lac_plan_info info = {.size = sizeof info};
    lac_level_info level = {.size = sizeof level};
    lac_status status = lac_plan_get_info(s->plan, &info);
    if (!status) status = lac_plan_explain(s->plan, 0, &level);
    return status ? status : lac_plan_execute(s->plan, &args);
}

static lac_status try_reference(test_scene *s)
{
    lac_execute_args args = arguments_of(s);
    return lac_plan_reference(s->plan, &args, s->reference, s->bound, TEST_ROWS);
}

/* ---- the table */

const fault_scenario fault_plans_scenarios[] = {
    {"lac_device_open lac_device_close", try_device_open, 0, 0, true},
    {"lac_device_get_info lac_kernel_probe", try_device_reads, 0, 0, false},
    {"lac_device_probe", try_device_probe, 0, 0, true},
    {"lac_device_allocate lac_device_upload lac_device_download lac_device_synchronize lac_device_release", try_device_memory,
     0, 0, true},
    {"lac_component_probe", try_component_probe, 0, 0, false},
    {"lac_kernels_compile", try_kernels_compile, 0, 0, true},
    {"lac_plan_create lac_plan_free", try_plan_create, 0, 0, true},
    {"lac_plan_create", try_measured_plan, 0, 0, true},
    {"lac_plan_execute lac_plan_get_info lac_plan_explain", try_execute, 0, 0, false},
    {"lac_plan_reference", try_reference, 0, 0, true},
    {0},
};
