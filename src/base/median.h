/* median.h - values in the middle of several. */
#ifndef TRIREME_BASE_MEDIAN_H
#define TRIREME_BASE_MEDIAN_H

/* The values are sorted by each of these; of none the result is 0. */

/* The median of an odd number.  Of an even number the lower or the higher of the two in the
 * middle, or their mean. */
double median_lower(double *value, int count);
double median_higher(double *value, int count);
double median_mean(double *value, int count);

/* The lower quartile: a quarter of the values comes before it. */
double median_quartile(double *value, int count);

#endif
