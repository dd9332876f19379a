/* clock.h - time: monotonic, of a thread, of this process, and of the day. */
#ifndef TRIREME_BASE_CLOCK_H
#define TRIREME_BASE_CLOCK_H

#include <stdint.h>

/* Returns nanoseconds of the monotonic clock; only differences mean something. */
int64_t clock_ns(void);

/* Returns the nanoseconds in which the calling thread had a core. */
int64_t clock_thread_ns(void);

/* A stopwatch for a limit on waiting: it leaves out time in which the process was stopped (SIGSTOP,
 * a suspended job) or had no core for long.  Begins as {0}. */
struct clock_awake {
    int64_t seen_ns; /* clock_ns() of the last call; 0: none yet */
    int64_t ns;      /* counted so far */
};

/* Count the time since the last call with the same clock, at most a second of it, and return the
 * nanoseconds counted so far.  To be called several times a second: whatever is longer than a
 * second is taken as time in which the process did not run. */
int64_t clock_awake_ns(struct clock_awake *clock);

/* Returns the nanoseconds since the process was started by exec; 0 if the kernel does not say. */
int64_t clock_since_exec_ns(void);

/* Write the time of day as ISO 8601 in UTC with milliseconds, "2026-11-22T06:37:08.123Z", into
 * text.  Returns text. */
enum { CLOCK_TIME_OF_DAY = 32 };
const char *clock_time_of_day(char text[CLOCK_TIME_OF_DAY]);

/* Write a time, given as seconds since 1970 (UTC) and nanoseconds, in the same form.  Returns text.
 */
const char *clock_iso8601(int64_t seconds, long ns, char text[CLOCK_TIME_OF_DAY]);

#endif
