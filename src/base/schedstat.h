/* schedstat.h - how long a thread waited for a core, by /proc/PID/task/TID/schedstat. */
#ifndef TRIREME_BASE_SCHEDSTAT_H
#define TRIREME_BASE_SCHEDSTAT_H

#include <stdint.h>

/* Returns the second number of line, the text of such a file; 0 where it has none.  The line holds
 * the nanoseconds in which the thread ran, those in which it was ready to run and waited for a
 * core, and the number of times that it was given a core. */
int64_t schedstat_waited_ns(const char *line);

#endif
