/* gpu_choice.h - the GPU that each rank would take, as the ranks send it to one another. */
#ifndef TRIREME_COMM_GPU_GPU_CHOICE_H
#define TRIREME_COMM_GPU_GPU_CHOICE_H

#include "device/device.h"

struct gpu_choice {
    int node, count, index; /* the rank's node, the GPUs it sees, and which of them it takes */
    struct device_gpu gpu;  /* description of the GPU that it takes */
};

/* Find two ranks that would use the same GPU, in the list `all` of `size` ranks.  Of all ranks
 * whose GPU a lower rank has too, ranks[1] gets the lowest, and ranks[0] the lowest rank that has
 * the same GPU.  Returns 1, or 0 with ranks untouched where every rank has a GPU of its own. */
int gpu_choice_find_shared(const struct gpu_choice *all, int size, int ranks[2]);

#endif
