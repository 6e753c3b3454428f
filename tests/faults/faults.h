/* faults.h - the calls of test_faults.c, a table for each subject: every public function is in one of them. A table ends with a
 * scenario without a function. */
#ifndef TEST_FAULTS_H
#define TEST_FAULTS_H

#include <stdbool.h>

#include "support/scene.h"
#include "support/support.h"

typedef struct fault_scenario {
    const char *function; /* the functions that it calls, with spaces between them */
    lac_status (*attempt)(test_scene *s);
    void (*prepare)(test_scene *s); /* before each attempt, with memory to spare; NULL: nothing */
    void (*check)(test_scene *s);   /* after a success; NULL: nothing */
    bool allocates;                 /* false: the test shows that it allocates nothing */
} fault_scenario;

extern const fault_scenario fault_pruning_scenarios[], fault_weights_scenarios[], fault_files_scenarios[],
    fault_plans_scenarios[];

extern char fault_kernel_cache[512]; /* outside the folder whose files are counted */

/* A plan of the kernel s->kernel. */
lac_status fault_try_forced_plan(test_scene *s);

/* test_faults.c. Attempts that return no status of their own are OK when they did what they should. */
lac_status fault_ok_when(bool condition);
/* Checks of what a success made: the weight and the mask of the scene, something whole at its target. */
void fault_check_new_weight(test_scene *s);
void fault_check_new_mask(test_scene *s);
void fault_check_target(test_scene *s);

#endif
