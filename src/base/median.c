/* median.c - see median.h. */
#include "base/median.h"

#include <stdlib.h>

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Sort the values, and return the one that has `place` others before it. */
static double value_at(double *value, int count, int place)
{
    if (count < 1)
        return 0;
    qsort(value, (size_t)count, sizeof *value, by_value);
    return value[place];
}

double median_lower(double *value, int count)
{
    return value_at(value, count, (count - 1) / 2);
}

double median_higher(double *value, int count)
{
    return value_at(value, count, count / 2);
}

double median_mean(double *value, int count)
{
    double lower = median_lower(value, count);
    return count ? (lower + value[count / 2]) / 2 : 0;
}

double median_quartile(double *value, int count)
{
    return value_at(value, count, count / 4);
}
