/* race.h - the program that race.c sweeps L2 with, for whoever compiles ahead. */
#ifndef LAC_CUDA_RACE_H
#define LAC_CUDA_RACE_H

#include "cuda/program.h"

void lac_cuda_sweep_request(lac_cuda_request *request);

#endif
