/* schedstat.h - what the kernel counts of a thread: /proc/PID/task/TID/schedstat. */
#ifndef TRIREME_BASE_SCHEDSTAT_H
#define TRIREME_BASE_SCHEDSTAT_H

#include <stdint.h>

/* The file's line holds nanoseconds on a core, nanoseconds in which the thread was ready and waited
 * for a core, and how often it was given one.  Returns the second number; 0 where the line has
 * none. */
int64_t schedstat_waited_ns(const char *line);

#endif
