/* clock.h - time. */
#ifndef TRIREME_BASE_CLOCK_H
#define TRIREME_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of the monotonic clock. */
int64_t clock_ns(void);

/* Nanoseconds in which the calling thread had a core. */
int64_t clock_thread_ns(void);

/* Time that passes while this process runs: time in which the process was stopped, or had no core,
 * does not count towards a limit on waiting. */
struct clock_awake {
    int64_t seen_ns, ns;
};

/* Nanoseconds that the process ran since *clock was {0}.  At most a second is counted between two
 * calls. */
int64_t clock_awake_ns(struct clock_awake *clock);

/* Nanoseconds since the process was started by exec (0 if the kernel does not say). */
int64_t clock_since_exec_ns(void);

/* The time of day as ISO 8601 in UTC with milliseconds, "2026-11-22T06:37:08.123Z"; returns text.
 */
enum { CLOCK_TIME_OF_DAY = 32 };
const char *clock_time_of_day(char text[CLOCK_TIME_OF_DAY]);

/* The same of a time given as seconds since 1970 and nanoseconds. */
const char *clock_iso8601(int64_t seconds, long ns, char text[CLOCK_TIME_OF_DAY]);

#endif
