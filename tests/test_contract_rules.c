/* test_contract_rules.c - the rules of lacuna.h that hold for every call: nothing of the process changes, names are copied and live as
 * long as what they came from, every struct with a size can grow, and where log and memory go. What each call refuses is in
 * test_arguments.c, what it does without memory in test_faults.c. */
#include "support/support.h"

#include <dlfcn.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/status.h"

extern char **environ;

/* ---- a life: about every call, with what it is given right and wrong */

static lac_status write_file(test_world *the)
{
    lac_writer *writer = NULL;
    lac_tensor_info bias = {.size = sizeof bias, .name = "bias", .dtype = LAC_DTYPE_F32, .rank = 1, .shape = {8}};
    lac_status status = lac_writer_open(the->out, &writer);
    if (!status) status = lac_writer_set_metadata(writer, "key", "value");
    if (!status) status = lac_writer_declare_tensor(writer, &bias);
    if (!status) status = lac_writer_write_tensor(writer, "bias", the->values, 32);
    if (!status) status = lac_writer_commit(writer);
    lac_writer_free(writer);
    return status;
}

static lac_status prune_all_ways(test_world *the)
{
    lac_calibration *calibration = NULL;
    lac_gradients gradients = {.size = sizeof gradients, .data = the->values, .dtype = LAC_DTYPE_F32, .samples = 1};
    float corrected[64];
    lac_matrix out = the->dense;
    out.data = corrected;
    lac_status status = lac_calibration_create(8, &calibration);
    if (!status) status = lac_calibration_add(calibration, &the->dense, 2);
    for (int method = LAC_METHOD_MAGNITUDE; method <= LAC_METHOD_FISHER && !status; method++) {
        lac_prune_options options = {.size = sizeof options, .method = (lac_method)method, .threads = 2};
        options.calibration = calibration, options.gradients = &gradients, options.permute = LAC_PERMUTE_COLUMNS;
        lac_mask *mask = NULL;
        status = lac_prune_and_correct(&the->dense, &the->pattern, &options, &out, &mask);
        lac_mask_free(mask);
    }
    lac_calibration_free(calibration);
    return status;
}

static lac_status multiply(test_world *the, int32_t measure)
{
    lac_device *device = NULL;
    lac_plan *plan = NULL;
    lac_plan_info info = {.size = sizeof info};
    lac_plan_options options = {.size = sizeof options, .threads = 2, .measure = measure};
    lac_status status = lac_device_open("auto", &device);
    if (!status) status = lac_plan_create(the->device, the->weight, 2, &options, &plan);
    if (!status) status = lac_plan_get_info(plan, &info);
    void *workspace = aligned_alloc(64, info.workspace_bytes / 64 * 64 + 64);
    lac_execute_args args = {.size = sizeof args, .x = the->x, .y = the->y, .workspace = workspace};
    args.workspace_bytes = info.workspace_bytes;
    double reference[16];
    if (!status) status = lac_plan_execute(plan, &args);
    if (!status) status = lac_plan_reference(plan, &args, reference, NULL, 0);
    free(workspace);
    lac_plan_free(plan);
    lac_device_close(device);
    return status;
}

static void live(test_world *the)
{
    lac_checkpoint_options checkpoint = {.size = sizeof checkpoint, .pattern = &the->pattern};
    lac_allocate_options budget = {.size = sizeof budget, .patterns = &the->pattern, .pattern_count = 1, .device = the->device};
    lac_allocation *allocation = NULL;
    lac_device_info device = {.size = sizeof device};
    lac_component_info component = {.size = sizeof component};
    lac_file *file = NULL;
    lac_mask *mask = NULL;
    budget.budget = LAC_BUDGET_SPEEDUP, budget.amount = 0.01;
    assert_ok(prune_all_ways(the));
    assert_ok(multiply(the, 0));
    assert_ok(multiply(the, 1));
    assert_ok(lac_checkpoint_prune(the->checkpoint, the->out, &checkpoint));
    assert_ok(lac_checkpoint_allocate(the->checkpoint, &checkpoint, &budget, &allocation));
    lac_allocation_free(allocation);
    assert_ok(write_file(the));
    assert_ok(lac_matrix_save_npy(&the->dense, the->out));
    assert_ok(lac_file_open(the->out, &file));
    lac_file_close(file);
    for (size_t i = 0; lac_device_probe(i, &device) == LAC_STATUS_OK; i++) continue;
    for (size_t i = 0; lac_component_probe(i, &component) == LAC_STATUS_OK; i++) continue;
    /* and some that fail, in every layer */
    checkpoint.include_count = 1;
    assert_int_not_equal(lac_checkpoint_prune(the->checkpoint, the->out, &checkpoint), LAC_STATUS_OK);
    assert_int_not_equal(lac_file_open(test_path("absent"), &file), LAC_STATUS_OK);
    assert_int_not_equal(lac_matrix_save_npy(&the->dense, test_path("absent/file")), LAC_STATUS_OK);
    assert_int_not_equal(lac_mask_from_matrix(&the->dense, &the->pattern, &mask), LAC_STATUS_OK);
    assert_int_not_equal(lac_device_open("toaster", &the->device), LAC_STATUS_OK);
    assert_int_equal(remove(the->out), 0);
}

/* ---- the state of the process */

enum { SIGNALS = 64 };

typedef struct process_state {
    char folder[4096], locale[256];
    mode_t mask;
    int rounding, exceptions, priority, random, openmp_threads, descriptors;
    uint64_t environment; /* a sum over its text */
    void *handlers[SIGNALS + 1];
    sigset_t blocked;
    cpu_set_t cores;
    struct rlimit files, sizes, memory, stack;
} process_state;

static uint64_t sum_of_environment(void)
{
    uint64_t sum = 5381;
    for (char **line = environ; *line; line++)
        for (const char *at = *line; *at; at++) sum = sum * 33 + (unsigned char)*at;
    return sum;
}

static int count_descriptors(void)
{
    int count = 0;
    struct stat found;
    for (int i = 0; i < 256; i++) count += fstat(i, &found) == 0;
    return count;
}

static int openmp_threads(void)
{
    int (*most)(void) = NULL;
    void *symbol = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    memcpy(&most, &symbol, sizeof most);
    return most ? most() : 0;
}

/* rand's next number is part of it: it is seeded before. */
static void look(process_state *s)
{
    memset(s, 0, sizeof *s);
    assert_non_null(getcwd(s->folder, sizeof s->folder));
    snprintf(s->locale, sizeof s->locale, "%s", setlocale(LC_ALL, NULL));
    umask(s->mask = umask(0));
    s->rounding = fegetround();
    s->exceptions = fegetexcept();
    s->priority = getpriority(PRIO_PROCESS, 0);
    s->environment = sum_of_environment();
    s->openmp_threads = openmp_threads();
    s->descriptors = count_descriptors();
    for (int i = 1; i <= SIGNALS; i++) {
        struct sigaction action;
        if (sigaction(i, NULL, &action) == 0) memcpy(&s->handlers[i], &action.sa_handler, sizeof s->handlers[i]);
    }
    sigprocmask(SIG_SETMASK, NULL, &s->blocked);
    sched_getaffinity(0, sizeof s->cores, &s->cores);
    getrlimit(RLIMIT_NOFILE, &s->files);
    getrlimit(RLIMIT_FSIZE, &s->sizes);
    getrlimit(RLIMIT_AS, &s->memory);
    getrlimit(RLIMIT_STACK, &s->stack);
    s->random = rand();
}

static void nothing_is_printed_and_nothing_changes(void **state)
{
    static process_state before, after;
    test_world *the = *state;
    char printed[512];
    snprintf(printed, sizeof printed, "%s", test_path("printed"));
    live(the); /* what is found and measured once in a process is found now */
    fflush(NULL);
    FILE *file = fopen(printed, "w+");
    assert_non_null(file);
    int own[2] = {dup(1), dup(2)};
    assert_true(own[0] >= 0 && own[1] >= 0 && dup2(fileno(file), 1) == 1 && dup2(fileno(file), 2) == 2);
    /* A float that is too small is not zero: no call may leave the unit set to flush it. */
    volatile float tiny = 1e-40f;
    setlocale(LC_ALL, "C.UTF-8"); /* where there is one */
    srand(7);
    look(&before);
    srand(7);
    live(the);
    float still = tiny * 0.5f;
    look(&after);
    fflush(NULL);
    assert_true(dup2(own[0], 1) == 1 && dup2(own[1], 2) == 2);
    setlocale(LC_ALL, "C");
    close(own[0]), close(own[1]);
    struct stat found;
    assert_int_equal(fstat(fileno(file), &found), 0);
    fclose(file);
    assert_int_equal(found.st_size, 0);
    assert_int_equal(remove(printed), 0);
    assert_true(still > 0);
    assert_string_equal(after.folder, before.folder);
    assert_string_equal(after.locale, before.locale);
    assert_int_equal(after.environment, before.environment);
    assert_int_equal(after.descriptors, before.descriptors);
    assert_int_equal(after.random, before.random);
    assert_int_equal(after.openmp_threads, before.openmp_threads);
    assert_memory_equal(after.handlers, before.handlers, sizeof after.handlers);
    assert_memory_equal(&after, &before, sizeof after); /* and the rest */
}

/* ---- names */

/* A text in memory of its own; `forget` takes it away, and the sanitizer's build sees who still reads it. */
static char *spoken(const char *text)
{
    char *own = strdup(text);
    assert_non_null(own);
    return own;
}

static void forget(char *text)
{
    memset(text, '#', strlen(text));
    free(text);
}

static void names_that_are_passed_in_are_copied(void **state)
{
    test_world *the = *state;
    lac_writer *writer = NULL;
    char *path = spoken(the->out), *name = spoken("t"), *type = spoken("F32"), *key = spoken("k"), *value = spoken("v"),
         *weight_name = spoken("w");
    lac_tensor_info tensor = {.size = sizeof tensor, .name = name, .type = type, .rank = 1, .shape = {2}};
    assert_ok(lac_writer_open(path, &writer));
    forget(path);
    assert_ok(lac_writer_set_metadata(writer, key, value));
    forget(key), forget(value);
    assert_ok(lac_writer_declare_tensor(writer, &tensor));
    forget(name), forget(type);
    assert_ok(lac_writer_declare_weight(writer, weight_name, NULL, the->weight));
    forget(weight_name);
    assert_ok(lac_writer_write_tensor(writer, "t", the->values, 8));
    assert_ok(lac_writer_write_weight(writer, "w", the->weight));
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);

    lac_file *file = NULL;
    const char *found_key = NULL, *found_value = NULL;
    path = spoken(the->out);
    assert_ok(lac_file_open(path, &file));
    forget(path);
    assert_ok(lac_file_get_tensor(file, 0, &tensor));
    assert_string_equal(tensor.name, "t");
    assert_string_equal(tensor.type, "F32");
    assert_string_equal(tensor.path, the->out);
    assert_ok(lac_file_get_metadata(file, 0, &found_key, &found_value));
    assert_string_equal(found_key, "k");
    assert_string_equal(found_value, "v");
    lac_file_close(file);
    assert_int_equal(remove(the->out), 0);

    lac_device *device = NULL;
    lac_device_info device_info = {.size = sizeof device_info};
    lac_plan *plan = NULL;
    lac_plan_info info = {.size = sizeof info};
    name = spoken("h200");
    assert_ok(lac_device_open(name, &device));
    forget(name);
    assert_ok(lac_device_get_info(device, &device_info));
    assert_string_equal(device_info.name, "h200");
    lac_device_close(device);
    name = spoken("cpu_scalar_f32_gather");
    lac_plan_options options = {.size = sizeof options, .kernel = name};
    assert_ok(lac_plan_create(the->device, the->weight, 2, &options, &plan));
    forget(name);
    assert_ok(lac_plan_get_info(plan, &info));
    assert_string_equal(info.kernel, "cpu_scalar_f32_gather");
    lac_plan_free(plan);
}

static void names_that_come_out_live_with_their_object(void **state)
{
    test_world *the = *state;
    lac_file *file = NULL;
    lac_tensor_info tensor = {.size = sizeof tensor};
    lac_weight_info stored = {.size = sizeof stored};
    const char *name = NULL, *key = NULL, *value = NULL;
    assert_ok(lac_file_open(the->container, &file));
    assert_ok(lac_file_get_tensor(file, 0, &tensor));
    assert_ok(lac_file_get_weight(file, 0, &name, &stored));
    assert_ok(lac_file_get_metadata(file, 0, &key, &value));
    live(the);
    assert_string_equal(tensor.name, "bias");
    assert_string_equal(tensor.type, "F32");
    assert_string_equal(tensor.path, the->container);
    assert_string_equal(name, "w");
    assert_string_equal(key, "author");
    assert_string_equal(value, "test");
    lac_file_close(file);

    /* A plan's outlive the weight and the device that it was made of. */
    lac_device *device = NULL;
    lac_weight *weight = NULL;
    lac_plan *plan = NULL;
    lac_plan_info info = {.size = sizeof info};
    lac_level_info level = {.size = sizeof level};
    char kernel[64], bound[64], remedy[512];
    assert_ok(lac_device_open("cpu", &device));
    assert_ok(lac_weight_compress(&the->dense, the->mask, NULL, &weight));
    assert_ok(lac_plan_create(device, weight, 2, NULL, &plan));
    assert_ok(lac_plan_get_info(plan, &info));
    assert_ok(lac_plan_explain(plan, 0, &level));
    snprintf(kernel, sizeof kernel, "%s", info.kernel);
    snprintf(bound, sizeof bound, "%s", info.bound);
    snprintf(remedy, sizeof remedy, "%s", level.remedy);
    lac_weight_free(weight);
    lac_device_close(device);
    live(the);
    assert_string_equal(info.kernel, kernel);
    assert_string_equal(info.bound, bound);
    assert_string_equal(info.note, "");
    assert_string_equal(level.name, "memory");
    assert_string_equal(level.unit, "bytes");
    assert_string_equal(level.remedy, remedy);
    lac_plan_free(plan);

    /* An allocation's outlive its file, its patterns and its device. */
    lac_checkpoint_options checkpoint = {.size = sizeof checkpoint};
    lac_pattern pattern = the->pattern;
    lac_allocate_options options = {.size = sizeof options, .patterns = &pattern, .pattern_count = 1};
    lac_allocation *allocation = NULL;
    lac_choice_info choice = {.size = sizeof choice};
    options.budget = LAC_BUDGET_DENSITY, options.amount = 0.5;
    assert_ok(lac_device_open("cpu", &options.device));
    assert_ok(lac_checkpoint_allocate(the->checkpoint, &checkpoint, &options, &allocation));
    memset(&pattern, 0x5a, sizeof pattern);
    lac_device_close(options.device);
    assert_ok(lac_allocation_get_layer(allocation, 0, &choice));
    live(the);
    assert_string_equal(choice.name, "layer.weight");
    assert_true(choice.pruned && choice.pattern.n == 2 && choice.pattern.m == 4);
    lac_allocation_free(allocation);
}

/* ---- the log and the memory */

typedef struct heard {
    pthread_t thread; /* whose message it was */
    int count;
} heard;

static void listen(void *user, lac_log_level level, const char *message)
{
    heard *h = user;
    (void)level;
    if (strcmp(message, "from elsewhere") != 0) return;
    h->thread = pthread_self();
    h->count++;
}

static void *speak(void *user)
{
    (void)user;
    lac_log(LAC_LOG_LEVEL_WARNING, "from %s", "elsewhere");
    return NULL;
}

static void log_comes_from_any_thread(void **state)
{
    (void)state;
    heard h = {.count = 0};
    pthread_t thread;
    lac_set_log(listen, &h, LAC_LOG_LEVEL_WARNING);
    assert_int_equal(pthread_create(&thread, NULL, speak, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(h.count, 1);
    assert_true(!pthread_equal(h.thread, pthread_self()));
    lac_set_log(NULL, NULL, LAC_LOG_LEVEL_WARNING);
    speak(NULL);
    assert_int_equal(h.count, 1);
}

typedef struct pool {
    int64_t given, back;
} pool;

/* Blocks of malloc's alignment and not a bit more. */
static void *pool_allocate(size_t bytes, void *user)
{
    enum { ALIGNMENT = sizeof(max_align_t) };
    ((pool *)user)->given++;
    char *block = aligned_alloc(64, (bytes + ALIGNMENT + 63) / 64 * 64);
    return block ? block + ALIGNMENT : NULL;
}

static void pool_release(void *block, void *user)
{
    ((pool *)user)->back++;
    free((char *)block - sizeof(max_align_t));
}

static void memory_comes_from_who_gives_it(void **state)
{
    test_world *the = *state;
    pool p = {0, 0};
    lac_weight *weight = NULL;
    lac_span span = {NULL, 0};
    assert_ok(lac_set_allocator(pool_allocate, pool_release, &p));
    lac_status status = lac_weight_compress(&the->dense, the->mask, NULL, &weight);
    if (!status) status = lac_weight_get_part(weight, LAC_PART_VALUES, &span);
    bool aligned = (uintptr_t)span.data % 64 == 0;
    lac_weight_free(weight);
    assert_ok(lac_set_allocator(NULL, NULL, NULL));
    assert_ok(status);
    assert_true(p.given > 0 && p.back == p.given && aligned);
    assert_ok(lac_weight_compress(&the->dense, the->mask, NULL, &weight));
    lac_weight_free(weight);
    assert_true(p.back == p.given); /* back to malloc: nobody has asked it since */
    int64_t given = p.given;
    assert_ok(lac_weight_compress(&the->dense, the->mask, NULL, &weight));
    lac_weight_free(weight);
    assert_int_equal(p.given, given);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_printed_and_nothing_changes),
        cmocka_unit_test(names_that_are_passed_in_are_copied),
        cmocka_unit_test(names_that_come_out_live_with_their_object),
        cmocka_unit_test(log_comes_from_any_thread),
        cmocka_unit_test(memory_comes_from_who_gives_it),
    };
    return cmocka_run_group_tests(tests, test_world_open, test_world_close);
}
