/* random.c - see random.h. The generator is a counter passed through a mixing function: tiny, and good enough to draw
 * test cases with. */
#include "support/random.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIXED_SEED = 20260 };

static struct {
    const char *name; /* NULL: no case is running */
    int64_t index;
    char description[512];
} current;

static uint64_t read_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    if (!text || !*text) return otherwise;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || *end) {
        fprintf(stderr, "%s=%s is not a number\n", name, text);
        exit(2);
    }
    return value;
}

uint64_t test_seed(void)
{
    static bool known;
    static uint64_t seed;
    if (!known) {
        seed = read_environment("LAC_TEST_SEED", FIXED_SEED);
        known = true;
        printf("LAC_TEST_SEED=%llu LAC_TEST_SCALE=%lld\n", (unsigned long long)seed, (long long)test_scale());
    }
    return seed;
}

int64_t test_scale(void)
{
    int64_t scale = (int64_t)read_environment("LAC_TEST_SCALE", 1);
    return scale < 1 ? 1 : scale;
}

int64_t test_scaled(int64_t full)
{
    int64_t count = full / test_scale();
    return count < 1 ? 1 : count;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

test_random test_random_make(const char *name, int64_t index)
{
    uint64_t state = mix(test_seed());
    for (const char *c = name; *c; c++) state = mix(state + (unsigned char)*c);
    return (test_random){mix(state + (uint64_t)index)};
}

uint64_t test_random_bits(test_random *random)
{
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    return mix(random->state);
}

int64_t test_random_between(test_random *random, int64_t low, int64_t high)
{
    uint64_t span = (uint64_t)high - (uint64_t)low + 1;
    uint64_t bits = test_random_bits(random);
    return (int64_t)((uint64_t)low + (span ? bits % span : bits));
}

double test_random_unit(test_random *random) { return ldexp((double)(test_random_bits(random) >> 11), -53); }

bool test_random_chance(test_random *random, int percent) { return test_random_between(random, 0, 99) < percent; }

double test_random_gaussian(test_random *random)
{
    double u = 1 - test_random_unit(random);
    double v = test_random_unit(random);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

void test_describe(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(current.description, sizeof current.description, format, arguments);
    va_end(arguments);
}

static void print_current(void)
{
    if (!current.name) return;
    fprintf(stderr, "case: %s\nreproduce: LAC_TEST_SEED=%llu LAC_TEST_CASE=%s:%lld %s\n", current.description,
            (unsigned long long)test_seed(), current.name, (long long)current.index, program_invocation_name);
}

int test_report(void **state)
{
    (void)state;
    print_current();
    current.name = NULL;
    return 0;
}

/* A sanitizer's finding ends the process without returning to cmocka. */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* The number of the only case wanted of this loop; -1 for all, -2 for none. */
static int64_t wanted_case(const char *name)
{
    const char *text = getenv("LAC_TEST_CASE");
    if (!text || !*text) return -1;
    size_t length = strlen(name);
    if (strncmp(text, name, length) != 0 || text[length] != ':') return -2;
    return strtoll(text + length + 1, NULL, 10);
}

void test_run_all(const char *name, int64_t count, test_case_fn body, void *user)
{
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(print_current);
    int64_t begin = 0, end = count, only = wanted_case(name);
    if (only == -2) return;
    if (only >= 0) {
        begin = only;
        end = only + 1;
    }
    for (int64_t i = begin; i < end; i++) {
        test_random random = test_random_make(name, i);
        current.name = name;
        current.index = i;
        current.description[0] = '\0';
        body(&random, i, user);
    }
    current.name = NULL;
}

void test_run_cases(const char *name, int64_t full, test_case_fn body, void *user)
{
    test_run_all(name, test_scaled(full), body, user);
}
