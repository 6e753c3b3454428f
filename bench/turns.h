/* turns.h - several benchmarks on one device: they prepare side by side, which takes most of the time, and time one by one. */
#ifndef LACUNA_BENCH_TURNS_H
#define LACUNA_BENCH_TURNS_H

/* Opens the file by which all who name it take turns, and makes it where there is none; prepares with others from then on. -1: it
 * cannot be had, and `why` says why. */
int bench_turns_open(const char *path, char *why, unsigned long why_size);
/* Waits until nobody else prepares or times; the others wait from then on. */
void bench_turns_alone(int turns);
/* Prepares with others again. Both do nothing when `turns` is -1. */
void bench_turns_together(int turns);
void bench_turns_close(int turns);

#endif
