/* fuzz_pattern.c - any text as a pattern: refused with a message, or it prints as a text that reads back the same. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

static int same(const lac_pattern *a, const lac_pattern *b)
{
    return a->family == b->family && a->unit_n == b->unit_n && a->unit_k == b->unit_k && a->n == b->n && a->m == b->m &&
           a->density == b->density;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    fuzz_require(text);
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    lac_pattern pattern, again;
    if (lac_pattern_parse(text, &pattern) == LAC_STATUS_OK) {
        char printed[LAC_PATTERN_TEXT_SIZE], reprinted[LAC_PATTERN_TEXT_SIZE];
        double density = lac_pattern_density(&pattern);
        fuzz_require(density > 0 && density <= 1);
        fuzz_require(lac_pattern_format(&pattern, printed, sizeof printed) == LAC_STATUS_OK);
        fuzz_require(lac_pattern_parse(printed, &again) == LAC_STATUS_OK);
        fuzz_require(same(&pattern, &again));
        fuzz_require(lac_pattern_format(&again, reprinted, sizeof reprinted) == LAC_STATUS_OK);
        fuzz_require(strcmp(printed, reprinted) == 0);
    } else {
        fuzz_require(lac_last_error()[0]);
    }
    free(text);
    return 0;
}
