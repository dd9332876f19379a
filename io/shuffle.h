/* shuffle.h - a random order of [0, count) whose members are found in O(1), without a table. */
#ifndef TRIREME_IO_SHUFFLE_H
#define TRIREME_IO_SHUFFLE_H

#include <stdint.h>

/* Returns the number at place `index` of the random order of [0, count) that key (base/philox.h)
 * selects.  index: 0 to count - 1; count: at most 2^62. */
int64_t shuffle_index(int64_t index, int64_t count, uint64_t key);

#endif
