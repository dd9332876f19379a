/* gpu.h - which GPU is this rank's. */
#ifndef TRIREME_COMM_GPU_GPU_H
#define TRIREME_COMM_GPU_GPU_H

#include "comm/world.h"
#include "device/device.h"

/* Choose among the GPUs this process sees: with one visible that one, else the one with the
 * rank's number within the node.  Then binds the process to cores near it, where the launcher did
 * not bind it and hwloc is built in.  Collective over world.
 *
 * Fails on all ranks together when a rank sees none, and with GPU_OWN when a node has fewer GPUs
 * than ranks or two ranks of a node would use the same GPU; with GPU_SHARED ranks go round the GPUs
 * that are there instead.  Must precede device_open() and, with GPU_SHARED, anything of NCCL: it
 * sets the environment NCCL needs for that.  Returns 0 and the index, or -1 with err set. */
enum gpu_sharing { GPU_OWN, GPU_SHARED };
int gpu_choose(struct world *world, enum gpu_sharing sharing, int *index, struct error *err);

/* Whether every rank of the job could have a GPU: what device=auto asks.  Collective. */
int gpu_everywhere(struct world *world);

/* What says that this process has GPUs, whether it can use them or not: "SLURM_JOB_GPUS=0,1,
 * /dev/nvidia0".  Returns text, or NULL where nothing does, or where CUDA_VISIBLE_DEVICES hides
 * them all. */
enum { GPU_SIGNS = 256 };
const char *gpu_signs(char text[GPU_SIGNS]);

#endif
