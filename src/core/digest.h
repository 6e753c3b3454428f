/* digest.h - a checksum of 64 bits over any number of pieces: XXH64 with seed 0, which runs at memory speed. It finds damage, not
 * forgery. Used by io/output.c and prune/resume.c. */
#ifndef LAC_CORE_DIGEST_H
#define LAC_CORE_DIGEST_H

#include <stdint.h>

typedef struct lac_digest {
    uint64_t lane[4];
    uint64_t bytes;   /* so far                                          */
    uint8_t rest[32]; /* the last bytes % 32 of them, not yet in a lane */
} lac_digest;

lac_digest lac_digest_begin(void);
/* How the bytes are cut into calls makes no difference. */
void lac_digest_add(lac_digest *digest, const void *data, uint64_t bytes);
/* Of all bytes so far; more may follow. */
uint64_t lac_digest_value(const lac_digest *digest);

#endif
