/* device.h - where segments run: an op set, memory, and a compute stream.
 *
 * The CPU defines what every op means; other devices are checked against it.
 */
#ifndef TRIREME_DEVICE_DEVICE_H
#define TRIREME_DEVICE_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/mem.h"

struct device_ops;

enum device_kind { DEVICE_CPU, DEVICE_CUDA, DEVICE_KINDS };

struct device {
    const struct device_ops *ops; /* the functions of ops.h for this machine */
    enum device_kind kind;
    int threads;       /* CPU threads a kernel may use */
    const char *level; /* instruction set chosen: "generic", "avx2", "avx512" */
    void *state;       /* of the device itself (primitive caches, handles) */
};

struct device_request {
    enum device_kind kind;
    int threads;       /* 0: as many as this process may use, divided by local_ranks */
    int local_ranks;   /* ranks that share this node (for the default above); 0 is 1 */
    const char *level; /* NULL: the best this machine runs; tests name another */
};

/* Open a device.  Not collective.  Returns 0 and a device for device_close(), or
 * -1 with err set (an instruction set this machine lacks; CUDA: not built in). */
int device_open(struct device **device, const struct device_request *request, struct error *err);

/* Release everything of the device; NULL is allowed. */
void device_close(struct device *device);

/* The instruction sets compiled in that this machine runs, best first, NULL at the end. */
const char *const *device_cpu_levels(void);

/* Name of the library that multiplies matrices, with version ("oneDNN 2.6.3"). */
const char *device_gemm_library(void);

#endif
