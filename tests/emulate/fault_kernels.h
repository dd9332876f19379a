/* fault_kernels.h - kernels that are wrong, each in its own way. */
#ifndef TRIREME_EMULATE_FAULT_KERNELS_H
#define TRIREME_EMULATE_FAULT_KERNELS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum fault {
    FAULT_NONE,
    FAULT_NO_BARRIER,     /* reads what others wrote without waiting: wrong numbers */
    FAULT_NO_SECOND,      /* writes again what others may not have read: wrong numbers */
    FAULT_NO_SYNCWARP,    /* the same within a warp */
    FAULT_NO_ASYNC_WAIT,  /* reads what is being copied */
    FAULT_ASYNC_COUNT,    /* waits for one group too few */
    FAULT_ASYNC_OWN,      /* waits for its own copies, not for those of others */
    FAULT_UNINITIALIZED,  /* reads shared memory that nobody wrote */
    FAULT_LAST_WRONG,     /* up to here numbers are wrong; from here on the launch fails */
    FAULT_SOME_BARRIER,   /* some threads do not come to the barrier but to a shuffle */
    FAULT_TWO_BARRIERS,   /* half of the threads come to another barrier */
    FAULT_SHUFFLE_ABSENT, /* a lane of the mask never comes */
    FAULT_SHUFFLE_SELF,   /* a lane is not in its mask */
    FAULT_HALF_PRODUCT,   /* half a warp multiplies */
    FAULT_MISALIGNED_LOAD,
    FAULT_MISALIGNED_STORE,
    FAULT_MISALIGNED_PAIR, /* 8 bytes at a multiple of 4 */
    FAULT_MISALIGNED_ASYNC,
    FAULT_MISALIGNED_MATRICES,
    FAULT_MATRICES_GLOBAL, /* load_matrices of global memory */
    FAULT_PAST_END,
    FAULT_PAST_SHARED,
    FAULT_NULL,
    FAULT_STACK, /* one thread uses more than there is */
    FAULT_KINDS
};

/* out[count] = count - 1 - i, count at most 128 threads of one block */
void fault_run(cudaStream_t s, enum fault fault, int count, float *out);

/* Launches that are refused at once. */
enum refused {
    REFUSED_THREADS,
    REFUSED_NO_THREADS,
    REFUSED_NO_BLOCKS,
    REFUSED_GRID_Y,
    REFUSED_GRID_Z,
    REFUSED_SHARED,
    REFUSED_KINDS
};
void fault_refused(cudaStream_t s, enum refused refused);

/* x[i] = value */
void fault_set(cudaStream_t s, float *x, int count, float value);
/* y[i] = x[i] + 1 */
void fault_next(cudaStream_t s, float *y, const float *x, int count);

#ifdef __cplusplus
}
#endif

#endif
