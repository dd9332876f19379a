/* nccl_faults.h - faults of versions of NCCL for which NCCL itself has no message: hangs. */
#ifndef TRIREME_COMM_GPU_NCCL_FAULTS_H
#define TRIREME_COMM_GPU_NCCL_FAULTS_H

/* What a run does that some version of NCCL does wrong; bits. */
enum nccl_use {
    NCCL_USE_ARM_NODES = 1,   /* nodes whose processors are 64-bit ARM exchange over the network */
    NCCL_USE_PAIR_COPIES = 2, /* copy engines gather between two GPUs, and NVLink SHARP is enabled
                               */
};

/* Return 1 in a program for 64-bit ARM processors, else 0. */
int nccl_is_arm(void);

/* Return what is wrong with a version (22809 is 2.28.9) in these uses, as text that goes on after
 * "NCCL 2.28.9 ", or NULL where nothing is known. */
const char *nccl_fault(int version, unsigned uses);

#endif
