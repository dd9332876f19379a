/* gpu.h - choose the GPU that each rank works on. */
#ifndef TRIREME_COMM_GPU_GPU_H
#define TRIREME_COMM_GPU_GPU_H

#include "comm/world.h"
#include "device/device.h"

/* Choose one of the GPUs that this process sees: the only one where it sees one, else the one whose
 * index is the rank's number within its node.  Then bind the process to the cores near that GPU,
 * unless the launcher has bound it already or trireme is built without hwloc.  Collective over
 * world.
 *
 * Fails on all ranks together where a rank sees no GPU, and with GPU_OWN also where a node has
 * fewer GPUs than ranks or two ranks of a node would use the same GPU.  With GPU_SHARED rank r of a
 * node takes GPU r modulo the number of GPUs instead, and where two ranks then share one, the
 * environment variables are set that NCCL needs for that.  To be called before device_open() and
 * before any call of NCCL.  Returns 0 and the index of the GPU, or -1 with err set. */
enum gpu_sharing { GPU_OWN, GPU_SHARED };
int gpu_choose(struct world *world, enum gpu_sharing sharing, int *index, struct error *err);

/* Return 1 where every rank of the job can have a GPU of its own, else 0; device=auto asks this.
 * Collective over world. */
int gpu_everywhere(struct world *world);

/* List the signs that this process was given GPUs, whether it can use them or not: environment
 * variables and device files, such as "SLURM_JOB_GPUS=0,1, /dev/nvidia0".  Returns text, or NULL
 * where there is no such sign or CUDA_VISIBLE_DEVICES hides all GPUs. */
enum { GPU_SIGNS = 256 };
const char *gpu_signs(char text[GPU_SIGNS]);

#endif
