/* sdpa.h - of attention by a library, what is asked besides state.h. */
#ifndef TRIREME_DEVICE_CUDA_SDPA_H
#define TRIREME_DEVICE_CUDA_SDPA_H

#include "device/ops.h"

/* Make the plans of a shape, forward and backward, which takes about a second; without it that
 * happens at first use.  What the library cannot do is left to the own kernels: no failure. */
void cuda_sdpa_prepare(struct device *d, const struct attention *a);

/* Why the library was not used, the first reason since the device was opened; "" if none. */
const char *cuda_sdpa_why(struct device *d);

#endif
