# TRIREME_CUDA: say whether a CUDA toolkit is at hand.  Nothing is built with it yet.
AC_DEFUN([TRIREME_CUDA], [
  AC_PATH_PROG([NVCC], [nvcc], [], [$PATH:/usr/local/cuda/bin])
  AS_IF([test -n "$NVCC"],
        [CUDA_summary="toolkit found ($NVCC), not used by this version"],
        [CUDA_summary="no toolkit"])
])
