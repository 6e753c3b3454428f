/* test_faults.c - every allocation of every public call failed in turn, for every family: the call says OUT_OF_MEMORY,
 * touches no output, leaks nothing, leaves no file, and the same call with the same objects works right afterwards. The
 * JSON reader's memory goes through the same counter. The tables of faults/ are complete: they are compared with the header.
 *
 * "test_faults files" runs the scenarios of one subject (ctest runs each beside the others), without a subject all of them. */
#include "faults/faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    const fault_scenario *scenarios;
} subjects[] = {{"pruning", fault_pruning_scenarios},
                {"weights", fault_weights_scenarios},
                {"files", fault_files_scenarios},
                {"plans", fault_plans_scenarios}};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

static const char *wanted; /* a subject; NULL: all */

static bool is_wanted(const char *subject) { return !wanted || !strcmp(wanted, subject); }

/* The scenario with this number, counted over all subjects; NULL behind the last. */
static const fault_scenario *scenario_at(int64_t index, const char **subject)
{
    for (int i = 0; i < SUBJECTS; i++)
        for (const fault_scenario *c = subjects[i].scenarios; c->function; c++)
            if (!index--) {
                *subject = subjects[i].name;
                return c;
            }
    *subject = "";
    return NULL;
}

/* ---- what the scenarios share */

lac_status fault_ok_when(bool condition) { return condition ? LAC_STATUS_OK : LAC_STATUS_INTERNAL; }

void fault_check_new_weight(test_scene *s)
{
    assert_non_null(s->new_weight);
    lac_weight_info info = {.size = sizeof info};
    assert_ok(lac_weight_get_info(s->new_weight, &info));
    test_matrix dense = test_matrix_make(info.n_out, info.k_in, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 0, 0);
    assert_ok(lac_weight_decompress(s->new_weight, &dense.view));
    if (info.n == TEST_ROWS && info.k == TEST_COLS && info.dtype == LAC_DTYPE_F32) assert_same_matrix(&dense, &s->pruned);
    test_matrix_free(&dense);
}

void fault_check_new_mask(test_scene *s)
{
    for (int64_t row = 0; row < TEST_ROWS; row++) {
        for (int64_t col = 0; col < TEST_COLS; col++) {
            if (test_matrix_get(&s->pruned, row, col) != 0) assert_true(lac_mask_get(s->new_mask, row, col));
        }
    }
}

/* Something whole lies at the target. */
void fault_check_target(test_scene *s)
{
    lac_file *file = NULL;
    assert_ok(lac_file_open(s->target, &file));
    lac_file_close(file);
}

static void mark_functions(const char *names)
{
    for (const char *at = names; at; at = strchr(at, ' ')) test_mark_called(at += *at == ' ');
}

/* ---- running one */

static void expect_untouched(const test_scene *s, const unsigned char *out)
{
    assert_true(!s->new_mask && !s->new_weight && !s->new_file && !s->new_writer && !s->new_device && !s->new_plan);
    assert_true(test_matrix_unchanged(&s->out, out));
    for (int i = 0; i < TEST_TOKENS * TEST_ROWS; i++) assert_true(s->reference[i] == -1 && s->bound[i] == -1);
}

static void reset_results(test_scene *s)
{
    for (int i = 0; i < TEST_TOKENS * TEST_ROWS; i++) s->reference[i] = s->bound[i] = -1;
}

static int64_t failures; /* how many allocations have been failed */

/* One attempt whose `number`-th allocation fails; false when it has fewer. */
static bool run_once(const fault_scenario *c, test_scene *s, int64_t number, bool from_there_on)
{
    int64_t live = test_allocator_live(), files = test_folder_files();
    unsigned char *out = test_matrix_snapshot(&s->out);
    reset_results(s);
    if (c->prepare) c->prepare(s);
    from_there_on ? test_allocator_fail_from(number) : test_allocator_fail_at(number);
    lac_status status = c->attempt(s);
    bool reached = test_allocator_failed();
    int64_t count = test_allocator_count();
    test_allocator_fail_at(0);
    failures += reached;
    if (reached) {
        assert_fails(status, LAC_STATUS_OUT_OF_MEMORY, "memory");
        expect_untouched(s, out);
        if (!c->prepare) {
            assert_int_equal(test_allocator_live(), live);
            assert_int_equal(test_folder_files(), files);
        }
        status = c->attempt(s); /* the same objects, with memory again */
    }
    assert_ok(status);
    if (!c->allocates) assert_int_equal(count, 0);
    if (c->check) c->check(s);
    test_scene_discard(s);
    assert_int_equal(test_allocator_live(), live);
    assert_int_equal(test_folder_files(), files);
    free(out);
    return reached;
}

static void run_scenario(const fault_scenario *c, test_scene *s)
{
    for (int from_there_on = 0; from_there_on < 2; from_there_on++) {
        int64_t number = 0;
        do {
            number++;
            test_describe("%s, pattern %s, kernel %s, allocation %lld%s", c->function, s->text, s->kernel ? s->kernel : "any",
                          (long long)number, from_there_on ? " and all after it" : "");
            assert_true(number < 5000);
        } while (run_once(c, s, number, from_there_on));
    }
}

/* ---- the tests. A case is one scenario under one pattern. */

static const char *const patterns[] = {"2:4",       "4:4",       "5:13",  "25%",    "vw4:3:8", "vw4:40%",
                                       "bw2x3:1:3", "bw2x3:50%", "4:2:8", "2:1:20", "3:4:4",   "shfl4:50%"};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

static void one_case(test_random *random, int64_t index, void *user)
{
    (void)random, (void)user;
    /* Where time is short (a sanitizer's scale) each scenario has 2 of the 12 patterns, other ones than the next has. */
    int64_t stride = test_scale() >= 10 ? 6 : 1;
    if ((index / PATTERNS + index) % stride && !getenv("LAC_TEST_CASE")) return;
    const char *subject;
    const fault_scenario *c = scenario_at(index / PATTERNS, &subject);
    assert_non_null(c); /* a case that was asked for may be none */
    if (!is_wanted(subject)) return;
    test_scene s;
    test_describe("setting up for pattern %s", patterns[index % PATTERNS]);
    int64_t live = test_allocator_live();
    test_scene_make(&s, patterns[index % PATTERNS]);
    run_scenario(c, &s);
    test_scene_free(&s);
    assert_int_equal(test_allocator_live(), live);
}

static void every_call_runs_out_of_memory(void **state)
{
    (void)state;
    const char *subject;
    int64_t scenarios = 0;
    while (scenario_at(scenarios, &subject)) scenarios++;
    test_run_all("faults", scenarios * PATTERNS, one_case, NULL);
    print_message("%lld calls ran out of memory\n", (long long)failures);
    assert_true(failures > 0 || getenv("LAC_TEST_CASE"));
}

static void one_kernel(test_random *random, int64_t index, void *user)
{
    (void)random, (void)user;
    lac_kernel_info kernel = {.size = sizeof kernel};
    test_scene s;
    test_scene_make(&s, patterns[index]);
    for (size_t i = 0; lac_kernel_probe(i, &kernel) == LAC_STATUS_OK; i++) {
        s.kernel = kernel.name;
        lac_status status = fault_try_forced_plan(&s);
        test_scene_discard(&s);
        if (status == LAC_STATUS_UNSUPPORTED) continue;
        static const fault_scenario forced = {"lac_plan_create", fault_try_forced_plan, 0, 0, true};
        run_scenario(&forced, &s);
    }
    test_scene_free(&s);
}

static void every_kernel_runs_out_of_memory(void **state)
{
    (void)state;
    if (!is_wanted("plans")) skip();
    test_run_all("faults-kernel", PATTERNS, one_kernel, NULL);
}

static void every_function_is_in_the_table(void **state)
{
    (void)state;
    const fault_scenario *c;
    const char *subject;
    for (int64_t i = 0; (c = scenario_at(i, &subject)); i++) mark_functions(c->function);
    assert_true(test_all_functions_marked());
}

static int remove_kernel_cache(void **state)
{
    (void)state;
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", fault_kernel_cache);
    return system(command);
}

int main(int count, char **arguments)
{
    wanted = count > 1 ? arguments[1] : NULL;
    int known = !wanted;
    for (int i = 0; i < SUBJECTS; i++) known = known || is_wanted(subjects[i].name);
    if (!known) {
        fprintf(stderr, "test_faults: there is no subject '%s'\n", wanted);
        return 2;
    }
    setenv("LAC_NVRTC_LIBRARY", FAKE_NVRTC, 1);
    snprintf(fault_kernel_cache, sizeof fault_kernel_cache, "/tmp/lacuna-faults-%ld", (long)getpid());
    test_allocator_install();
    test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_is_in_the_table),
        test_of_cases(every_call_runs_out_of_memory),
        test_of_cases(every_kernel_runs_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, remove_kernel_cache);
}
