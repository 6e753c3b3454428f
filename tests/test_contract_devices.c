/* test_contract_devices.c - what lacuna.h says of devices, on a machine without a GPU: what is found, what opens, who keeps it open, and its memory.
 * GPUs are in test_cuda_runtime.c and test_cuda_machine.c, with a driver made for the tests. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/support.h"

/* ---- what is found */

static void what_is_found_opens_by_its_name(void **state)
{
    (void)state;
    lac_device_info found = {.size = sizeof found}, opened = {.size = sizeof opened};
    size_t count = 0;
    for (; lac_device_probe(count, &found) == LAC_STATUS_OK; count++) {
        lac_device *device = NULL;
        if (!found.available) {
            assert_int_not_equal(lac_device_open(found.name, &device), LAC_STATUS_OK);
            assert_true(strlen(found.note) > 0 && !device);
            continue;
        }
        assert_ok(lac_device_open(found.name, &device));
        assert_ok(lac_device_get_info(device, &opened));
        assert_memory_equal(&opened, &found, sizeof found);
        lac_device_close(device);
    }
    assert_true(count >= 1);
    opened = found;
    assert_fails(lac_device_probe(count, &found), LAC_STATUS_NOT_FOUND, "index is");
    assert_memory_equal(&opened, &found, sizeof found); /* untouched */
}

static void the_cpu_is_described(void **state)
{
    (void)state;
    static const char *const units[] = {"scalar", "avx2", "avx512", "neon"};
    lac_device_info info = {.size = sizeof info};
    assert_ok(lac_device_probe(0, &info));
    assert_true(info.kind == LAC_DEVICE_KIND_CPU && info.available == 1 && !strcmp(info.name, "cpu"));
    assert_true(strlen(info.model) > 0 && strlen(info.note) > 0);
    assert_int_equal(info.memory_bytes, (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
    int known = 0;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) known += !strcmp(units[i], info.vector_unit);
    assert_int_equal(known, 1);
    if (info.l1_bytes && info.l2_bytes) assert_true(info.l1_bytes < info.l2_bytes);
}

/* A driver that is not there: the CPU is the fastest that can be used. */
static void auto_is_the_fastest_that_can_be_used(void **state)
{
    (void)state;
    lac_device *device = NULL;
    lac_device_info info = {.size = sizeof info};
    assert_ok(lac_device_open("auto", &device));
    assert_ok(lac_device_get_info(device, &info));
    assert_string_equal(info.name, "cpu");
    lac_device_close(device);
}

static void components_are_told_there_or_not(void **state)
{
    (void)state;
    static const char *const names[] = {"libcuda", "libnvrtc", "kernel cache", "libcublas", "libcublasLt"};
    lac_component_info info = {.size = sizeof info};
    size_t count = 0;
    for (; lac_component_probe(count, &info) == LAC_STATUS_OK; count++) {
        assert_true(count < sizeof names / sizeof *names);
        assert_string_equal(info.name, names[count]);
        assert_true(info.available == 0 || info.available == 1);
        if (!info.available) assert_true(strlen(info.note) > 10);
        if (info.available) assert_true(strlen(info.path) > 0);
    }
    assert_int_equal(count, sizeof names / sizeof *names);
    assert_ok(lac_component_probe(0, &info));
    assert_true(!info.available && !*info.version && strstr(info.note, "/nowhere/libcuda.so"));
    lac_component_info before = info;
    assert_status(lac_component_probe(count, &info), LAC_STATUS_NOT_FOUND);
    assert_memory_equal(&info, &before, sizeof info);
}

/* ---- opening */

static int count_threads(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    if (!folder) return 0;
    for (const struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* Of a process that has not measured yet: whoever measured with it is gone when it has. */
static int measures_and_leaves_no_thread(void)
{
    lac_device *device = NULL;
    int before = count_threads();
    if (before != 1) return 77; /* it cannot be told */
    if (lac_device_open("cpu", &device)) return 1;
    int after = count_threads();
    lac_device_close(device);
    return after == before ? 0 : 2;
}

static void measuring_leaves_no_thread(void **state)
{
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        unsetenv("LAC_CPU_RATES");
        _exit(measures_and_leaves_no_thread());
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* One that is not here predicts, and does nothing else. */
static void a_gpu_that_is_not_here_only_predicts(void **state)
{
    (void)state;
    static const char *const names[] = {"h200",  "h100",  "a100",   "sm_75",   "sm_80",
                                        "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        lac_device *device = NULL;
        lac_device_info info = {.size = sizeof info};
        char byte = 0;
        void *block = &byte;
        assert_ok(lac_device_open(names[i], &device));
        assert_ok(lac_device_get_info(device, &info));
        assert_string_equal(info.name, names[i]);
        assert_true(info.kind == LAC_DEVICE_KIND_CUDA && info.cores > 0);
        assert_status(lac_device_allocate(device, 16, &block), LAC_STATUS_DEVICE);
        assert_ptr_equal(block, &byte);
        lac_device_close(device);
    }
}

/* ---- who keeps it open */

/* Handles are apart, and a plan keeps its own: closing one is nothing to the others. */
static void devices_close_one_by_one(void **state)
{
    test_world *the = *state;
    lac_device *first = NULL, *second = NULL;
    lac_plan *plan = NULL;
    void *block = NULL;
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_device_open("cpu", &first));
    assert_ok(lac_device_open("cpu", &second));
    assert_ok(lac_plan_create(first, the->weight, 2, NULL, &plan));
    lac_device_close(first);
    assert_ok(lac_plan_get_info(plan, &info));
    void *workspace = aligned_alloc(64, info.workspace_bytes / 64 * 64 + 64);
    lac_execute_args args = {.size = sizeof args, .x = the->x, .y = the->y, .workspace = workspace};
    args.workspace_bytes = info.workspace_bytes;
    assert_ok(lac_plan_execute(plan, &args));
    assert_ok(lac_device_allocate(second, 64, &block));
    lac_device_release(second, block);
    assert_ok(lac_device_synchronize(second));
    lac_device_close(second);
    assert_ok(lac_plan_execute(plan, &args));
    lac_plan_free(plan);
    free(workspace);
}

/* ---- memory */

/* Aligned, of its own, as large as was asked for, of nothing too. */
static void memory_is_aligned_and_ones_own(void **state)
{
    test_world *the = *state;
    enum { BLOCKS = 9 };
    static const uint64_t sizes[BLOCKS] = {0, 1, 3, 63, 64, 65, 4095, 100000, 3 << 20};
    unsigned char *blocks[BLOCKS], *back = malloc(3 << 20);
    assert_non_null(back);
    for (int i = 0; i < BLOCKS; i++) {
        void *block = NULL;
        assert_ok(lac_device_allocate(the->device, sizes[i], &block));
        assert_true(block && (uintptr_t)block % 64 == 0);
        blocks[i] = block;
        if (sizes[i]) memset(block, i + 1, sizes[i]); /* plain memory on a CPU */
    }
    for (int i = 0; i < BLOCKS; i++) {
        memset(back, 0, 3 << 20);
        assert_ok(lac_device_download(the->device, back, blocks[i], sizes[i]));
        for (uint64_t b = 0; b < sizes[i]; b++) assert_int_equal(back[b], i + 1);
        memset(back, 100 + i, sizes[i]);
        assert_ok(lac_device_upload(the->device, blocks[i], back, sizes[i]));
        memset(back, 0, sizes[i]); /* the copy is done: what it came from is free */
        for (uint64_t b = 0; b < sizes[i]; b++) assert_int_equal(blocks[i][b], 100 + i);
    }
    assert_ok(lac_device_synchronize(the->device));
    for (int i = 0; i < BLOCKS; i++) lac_device_release(the->device, blocks[i]);
    lac_device_release(the->device, NULL);
    free(back);
}

int main(void)
{
    setenv("LAC_CPU_RATES", "5,5,120,30,12,24", 1);
    setenv("LAC_CUDA_LIBRARY", "/nowhere/libcuda.so", 1);
    const struct CMUnitTest first[] = {cmocka_unit_test(measuring_leaves_no_thread)}; /* while this process has one thread */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_found_opens_by_its_name),      cmocka_unit_test(the_cpu_is_described),
        cmocka_unit_test(auto_is_the_fastest_that_can_be_used), cmocka_unit_test(components_are_told_there_or_not),
        cmocka_unit_test(a_gpu_that_is_not_here_only_predicts), cmocka_unit_test(devices_close_one_by_one),
        cmocka_unit_test(memory_is_aligned_and_ones_own),
    };
    int failed = cmocka_run_group_tests_name("measuring", first, NULL, NULL);
    return failed + cmocka_run_group_tests_name("devices", tests, test_world_open, test_world_close);
}
