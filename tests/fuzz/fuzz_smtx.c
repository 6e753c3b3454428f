/* fuzz_smtx.c - any bytes as a .smtx file: refused, or a mask that is written out to a file with the same mask. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"

enum { ELEMENT_LIMIT = 1 << 16 };

static const char *out_path(void)
{
    static char path[64];
    if (!path[0])
        snprintf(path, sizeof path, "%s/lacuna-fuzz-%d.smtx", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
                 (int)getpid());
    return path;
}

static void forget(void) { unlink(out_path()); }

static void round_trip(const lac_mask *mask, const lac_mask_info *info)
{
    static int registered;
    if (!registered) registered = atexit(forget) == 0;
    lac_file *file = NULL;
    lac_mask *again = NULL;
    fuzz_require(lac_mask_save_smtx(mask, out_path()) == LAC_STATUS_OK);
    fuzz_require(lac_file_open(out_path(), &file) == LAC_STATUS_OK);
    fuzz_require(lac_file_load_mask(file, &again) == LAC_STATUS_OK);
    for (int64_t row = 0; row < info->n; row++)
        for (int64_t col = 0; col < info->k; col++) fuzz_require(lac_mask_get(mask, row, col) == lac_mask_get(again, row, col));
    lac_mask_free(again);
    lac_file_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lac_file *file = NULL;
    if (size == 0 || data[0] < '0' || data[0] > '9') return 0; /* another format */
    if (lac_file_open(fuzz_file(data, size), &file) != LAC_STATUS_OK) return 0;
    lac_mask *mask = NULL;
    /* The sizes stand at the front; a mask of a claimed 2^40 elements is legal but nothing for a fuzzer. */
    long long n = 0, k = 0;
    char *head = malloc(size + 1);
    fuzz_require(head);
    memcpy(head, data, size);
    head[size] = '\0';
    if (sscanf(head, "%lld , %lld", &n, &k) == 2 && n <= ELEMENT_LIMIT && k <= ELEMENT_LIMIT && n * k <= ELEMENT_LIMIT) {
        lac_mask_info info = {.size = sizeof info};
        fuzz_require(lac_file_load_mask(file, &mask) == LAC_STATUS_OK);
        fuzz_require(lac_mask_get_info(mask, &info) == LAC_STATUS_OK && info.n == n && info.k == k);
        round_trip(mask, &info);
        lac_mask_free(mask);
    }
    free(head);
    lac_file_close(file);
    return 0;
}
