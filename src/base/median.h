/* median.h - median and lower quartile.  Each function sorts value[count] in place, and returns 0
 * when count is 0. */
#ifndef TRIREME_BASE_MEDIAN_H
#define TRIREME_BASE_MEDIAN_H

/* Return the median.  When count is even, there are two values in the middle: return the lower one,
 * the higher one, or their mean. */
double median_lower(double *value, int count);
double median_higher(double *value, int count);
double median_mean(double *value, int count);

/* Returns the lower quartile: the value that a quarter of the values (rounded down) come before. */
double median_quartile(double *value, int count);

#endif
