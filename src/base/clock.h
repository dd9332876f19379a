/* clock.h - time. */
#ifndef TRIREME_BASE_CLOCK_H
#define TRIREME_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of the monotonic clock. */
int64_t clock_ns(void);

/* Nanoseconds since the process was started by exec (0 if the kernel does not say). */
int64_t clock_since_exec_ns(void);

#endif
