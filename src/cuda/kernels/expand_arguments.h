/* expand_arguments.h - the third parameter of expand_ring.cu's kernel and the parameters of expand_clear.cu's, for host and
 * device. */
#ifndef LAC_CUDA_KERNELS_EXPAND_ARGUMENTS_H
#define LAC_CUDA_KERNELS_EXPAND_ARGUMENTS_H

/* A team's ring: slots of so many steps of 64 inputs, two tiles of 128 outputs a step, 16,384 bytes a tile. There are more slots
 * than stages in shared memory, each of which may belong to a slot of its own. */
#define LAC_RING_SLOTS   8
#define LAC_RING_STEPS   4
#define LAC_RING_TILE    16384
#define LAC_RING_COUNTER 32 /* words from one counter to the next: each has its own line of L2 */

typedef struct lac_ring_args {
    unsigned char *ring; /* [teams][LAC_RING_SLOTS][LAC_RING_STEPS][2][LAC_RING_TILE]                                      */
    unsigned *counters;  /* [teams][2][LAC_RING_SLOTS][LAC_RING_COUNTER]: units spread so far, blocks done so far; 0 at first */
    int team;            /* clusters of a team                                                                            */
    int steps;           /* of 64 inputs that a tile has                                                                  */
} lac_ring_args;

#endif
