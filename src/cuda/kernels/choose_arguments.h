/* choose_arguments.h - the second parameter of choose.cu's kernel, for host and device. */
#ifndef LAC_CUDA_KERNELS_CHOOSE_ARGUMENTS_H
#define LAC_CUDA_KERNELS_CHOOSE_ARGUMENTS_H

typedef struct lac_choose_args {
    const unsigned char *images; /* [stages][2] of W, for each block of the cluster                        */
    const int *boxes;            /* [stages][LAC_BOXES] first inputs of a stage's boxes; -1: there is none */
    const int *range;            /* [quads + 1] the first stage of each quad                               */
    const int *output;           /* [quads * 4 * 128] places in Y; -1: nowhere                             */
    const int *piece; /* [quads * 4 * 2] of 64 outputs: the place of the first where the copy engine may store them, else -1 */
    int quads, token_tiles;
    int band;     /* quads that are walked together  */
    int stores_y; /* the copy engine can store Y     */
} lac_choose_args;

#endif
