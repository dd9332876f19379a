/* gpu_choice.h - the GPU that each rank would take, as the ranks send it to one another. */
#ifndef TRIREME_COMM_GPU_GPU_CHOICE_H
#define TRIREME_COMM_GPU_GPU_CHOICE_H

#include "device/device.h"

struct gpu_choice {
    int node, count, index; /* of GPUs that the rank sees, and which of them */
    struct device_gpu gpu;
};

/* The first rank that has the GPU of a lower rank in ranks[1], and the lowest that has that GPU in
 * ranks[0].  Returns 1, or 0 where every rank has a GPU of its own. */
int gpu_choice_find_shared(const struct gpu_choice *all, int size, int ranks[2]);

#endif
