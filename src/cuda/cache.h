/* cache.h - compiled kernels on disk. An entry is one file, private to its user, checked to the last bit before it is used;
 * docs/cuda.md describes it. program.c keeps programs in it, notes.c what was timed. */
#ifndef LAC_CUDA_CACHE_H
#define LAC_CUDA_CACHE_H

#include "cuda/nvrtc.h"

/* 128 bits that tell texts apart; against accidents, not against enemies: those are kept out by the folder's permissions. */
typedef struct lac_hash {
    uint64_t high, low;
} lac_hash;

lac_hash lac_hash_begin(void);
void lac_hash_add(lac_hash *hash, const void *data, uint64_t bytes);

/* The entry for `key` (a text that says everything the image depends on but the compiler's version) in `folder`, NULL being
 * the user's own. `compiler` is a lac_nvrtc.version; 0 takes the image of any compiler. NOT_FOUND, without a message, when
 * there is none that is sound; a damaged one is as good as none. */
lac_status lac_cache_load(const char *folder, const char *key, int compiler, lac_cuda_image *out);
/* Writes an entry, by renaming a finished file: whoever reads at the same time sees the old one or the new one. IO when it
 * cannot be written; nothing is left behind then. */
lac_status lac_cache_store(const char *folder, const char *key, int compiler, const lac_cuda_image *image);
void lac_cache_describe(lac_component_info *info);

#endif
