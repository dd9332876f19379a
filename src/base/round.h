/* round.h - rounding up to multiples, the smaller and the larger of two, bytes in GiB. */
#ifndef TRIREME_BASE_ROUND_H
#define TRIREME_BASE_ROUND_H

#include <stddef.h>
#include <stdint.h>

/* Returns n / by, rounded up.  For this and the two functions below: n >= 0, by > 0, and n + by
 * does not overflow. */
static inline int64_t ceil_div(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Returns the least multiple of `to` that is not below n. */
static inline int64_t round_up(int64_t n, int64_t to)
{
    return ceil_div(n, to) * to;
}

static inline size_t round_up_bytes(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static inline int min_int(int a, int b)
{
    return a < b ? a : b;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline size_t min_bytes(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t max_bytes(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Returns bytes in GiB, for messages. */
static inline double gib_of(size_t bytes)
{
    return (double)bytes * 0x1p-30;
}

#endif
