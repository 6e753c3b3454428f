#include "bench.h"
bench_status bench_report_write(const bench_rows *rows, const char *path, char *why, size_t why_size)
{
(void)rows;(void)path;(void)why_size;why[0]=0; return BENCH_OK;
}
