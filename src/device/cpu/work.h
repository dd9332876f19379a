/* work.h - how work is cut for threads. */
#ifndef TRIREME_DEVICE_CPU_WORK_H
#define TRIREME_DEVICE_CPU_WORK_H

#include <stdint.h>

#include "base/round.h"
#include "device/cpu/run_queue.h"
#include "device/device.h"

/* Threads for work that touches this many bytes: small work is not worth waking others, and on a
 * busy machine others would be waited for. */
static inline int cpu_threads(const struct device *d, int64_t bytes)
{
    const int64_t worth_bytes = 1 << 16;
    return bytes < worth_bytes ? 1 : run_queue_threads(d);
}

#endif
