/* cgroup.h - what the control groups of this process allow it: Slurm (--mem), containers and
 * systemd limit so.  The kernel kills who takes more memory, and stops who takes more time until
 * the next period.  Known are versions 1 and 2, where they are mounted below /sys/fs/cgroup. */
#ifndef TRIREME_BASE_CGROUP_H
#define TRIREME_BASE_CGROUP_H

#include <stddef.h>

/* Returns the least limit on memory of the process's control group and of all above it, in bytes,
 * which all processes of that group share; 0: there is none. */
size_t cgroup_memory_bytes(void);

/* Returns the least limit on computing time, likewise: the time of so many cores, 0.5 of half a
 * core; 0: there is none. */
double cgroup_cores(void);

#endif
