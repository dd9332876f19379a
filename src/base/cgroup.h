/* cgroup.h - what the control groups of this process allow it: Slurm (--mem), containers and
 * systemd limit memory so, and the kernel kills who takes more. */
#ifndef TRIREME_BASE_CGROUP_H
#define TRIREME_BASE_CGROUP_H

#include <stddef.h>

/* Returns the least limit on memory of the process's control group and of all above it, in bytes,
 * which all processes of that group share; 0: there is none.  Knows versions 1 and 2, where they
 * are mounted below /sys/fs/cgroup. */
size_t cgroup_memory_bytes(void);

#endif
