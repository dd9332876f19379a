/* nccl_cuda.h - the CUDA that NCCL was compiled with, and what depends on it. */
#ifndef TRIREME_COMM_GPU_NCCL_CUDA_H
#define TRIREME_COMM_GPU_NCCL_CUDA_H

/* Return the version of CUDA that the NCCL library in a file was compiled with, as CUDA numbers
 * versions (12020 is 12.2); 0 where the file cannot be read or does not say. */
int nccl_cuda_in_file(const char *path);

/* Return the same of the NCCL library that this process has loaded; 0 also where NCCL is linked
 * statically.  Reads the file. */
int nccl_cuda(void);

/* Return 1 where NCCL makes kernels start in the order of the calls, and not each one wait for the
 * end of the one before, when it is asked for an order (NCCL_LAUNCH_ORDER_IMPLICIT); else 0.
 * version: of NCCL (22602 is 2.26.2); built: the CUDA it was compiled with, 0: not known; driver:
 * the CUDA that the driver is for. */
int nccl_orders_starts(int version, int built, int driver);

#endif
