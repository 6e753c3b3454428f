/* sources.h - the device code, embedded: every file of src/cuda/kernels as text. cmake/EmbedSources.cmake writes the C file
 * behind this when Lacuna is built. */
#ifndef LAC_CUDA_SOURCES_H
#define LAC_CUDA_SOURCES_H

#include <stddef.h>

typedef struct lac_cuda_source {
    const char *name; /* "plain.cu" */
    const char *text;
    size_t length;
} lac_cuda_source;

extern const lac_cuda_source lac_cuda_sources[];
extern const size_t lac_cuda_source_count;
extern const char lac_cuda_sources_digest[]; /* tells the texts of one build from those of another */

#endif
