# TRIREME_CUDA: find nvcc, the CUDA runtime and cuBLASLt; then cuDNN (attention) and NCCL (transfers
# between GPUs), which may be absent.  A library that an option names is used, or it is an error that it
# does not work; one that no option names is used if it works.  Sets the conditionals HAVE_CUDA,
# HAVE_CUDNN, HAVE_NCCL.
AC_DEFUN([TRIREME_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=DIR], [CUDA toolkit in DIR; no: do not use it])])
  AC_ARG_WITH([cudnn], [AS_HELP_STRING([--with-cudnn=DIR], [cuDNN in DIR; no: own attention only])])
  AC_ARG_WITH([nccl], [AS_HELP_STRING([--with-nccl=DIR], [NCCL in DIR; no: one GPU only])])
  AC_ARG_VAR([NVCC], [CUDA compiler])
  AC_ARG_VAR([NVCCFLAGS], [flags for it, -O3 if unset])
  AC_ARG_VAR([CUDA_ARCHS], [compute capabilities to compile for, "80 90" if unset; any newer GPU
                            compiles the last one when trireme starts])
  : ${NVCCFLAGS=-O3}
  : ${CUDA_ARCHS="80 90"}
  have_cuda=no; cuda_why=; CUDNN_found=no; NCCL_found=no
  CUDA_CFLAGS=; CUDA_LIBS=; CUDNN_CFLAGS=; CUDNN_LIBS=; NCCL_CFLAGS=; NCCL_LIBS=
  AS_IF([test "x$with_cuda" = xno], [cuda_why="not wanted"], [
    TRIREME_NVIDIA_PYTHON
    TRIREME_NVCC
    AS_IF([test -z "$cuda_why"], [TRIREME_CUDA_LIBRARIES])
    AS_IF([test -z "$cuda_why"], [have_cuda=yes],
          [test -n "$with_cuda"], [AC_MSG_ERROR([--with-cuda=$with_cuda: $cuda_why])])
  ])
  AS_CASE([$have_cuda:$with_cudnn:$with_nccl], [yes:*|no::|no::no|no:no:|no:no:no], [],
    [AC_MSG_ERROR([--with-cudnn and --with-nccl need CUDA: $cuda_why])])
  CUDA_summary="no ($cuda_why)"; CUDNN_summary=no; NCCL_summary=no
  AC_DEFINE_UNQUOTED([CUDA_ARCHS], ["$CUDA_ARCHS"], [Compute capabilities of the kernels.])
  AS_IF([test $have_cuda = yes], [
    TRIREME_CUDNN
    TRIREME_NCCL
    CUDA_summary="$cuda_version ($cuda_top), for $CUDA_ARCHS and newer"
    CUDA_CFLAGS="$CUDART_CFLAGS"
    dnl cuBLASLt is loaded when a GPU is opened (src/device/cuda/cublaslt.c): only where it lies is said.
    cublaslt_path=`AS_ECHO(["$CUBLASLT_LIBS"]) | $SED 's/^[[^ ]]* *//'`
    CUDA_LIBS="$cublaslt_path $CUDART_LIBS"
  ], [CUDA_CFLAGS=; CUDA_LIBS=; CUDA_GENCODE=])
  AM_CONDITIONAL([HAVE_CUDA], [test $have_cuda = yes])
  AM_CONDITIONAL([HAVE_CUDNN], [test $CUDNN_found = yes])
  AM_CONDITIONAL([HAVE_NCCL], [test $NCCL_found = yes])
  AC_SUBST([WHOLE_ARCHIVE], [-Wl,--whole-archive])
  AC_SUBST([NO_WHOLE_ARCHIVE], [-Wl,--no-whole-archive])
  m4_foreach_w([variable], [CUDA_CFLAGS CUDA_LIBS CUBLASLT_CFLAGS CUDNN_CFLAGS CUDNN_LIBS
                            NCCL_CFLAGS NCCL_LIBS CUDA_GENCODE NVCC_WARNINGS],
               [AC_SUBST(variable)])
])

# TRIREME_NVCC: find nvcc.  Sets NVCC, cuda_top, cuda_version and CUDA_GENCODE; where no nvcc works,
# cuda_why, the reason.
AC_DEFUN([TRIREME_NVCC], [
  nvcc_path=$PATH:${CUDA_HOME:+$CUDA_HOME/bin:}${CUDA_PATH:+$CUDA_PATH/bin:}/usr/local/cuda/bin
  for place in $nvidia_python; do nvcc_path=$nvcc_path:$place/bin; done
  AS_CASE([$with_cuda], [''|yes], [], [nvcc_path=$with_cuda/bin
                                       AS_UNSET([NVCC]); AS_UNSET([ac_cv_path_NVCC])])
  AC_PATH_PROG([NVCC], [nvcc], [], [$nvcc_path])
  CUDA_GENCODE=
  for cuda_arch in $CUDA_ARCHS; do
    CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$cuda_arch,code=sm_$cuda_arch"
  done
  dnl PTX of 90a runs on no newer GPU, that of 90 does, and no kernel needs more than that.
  AS_CASE([$cuda_arch], [*[[a-z]]], [cuda_arch=`AS_ECHO(["$cuda_arch"]) | $SED 's/[[a-z]]*$//'`])
  CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$cuda_arch,code=compute_$cuda_arch"
  NVCC_WARNINGS="-Xcompiler -Wall,-Wextra,-Wno-unused-parameter"
  AS_IF([test "x$enable_werror" = xyes], [NVCC_WARNINGS="$NVCC_WARNINGS -Werror all-warnings"])
  AS_IF([test -z "$NVCC"], [cuda_why="no nvcc"], [
    AC_MSG_CHECKING([whether nvcc compiles for $CUDA_ARCHS])
    echo '__global__ void zero(float *x) { x[[threadIdx.x]] = 0; }' >conftest.cu
    AS_IF([$NVCC -std=c++17 $NVCCFLAGS $CUDA_GENCODE -c -o conftest.o conftest.cu \
             >&AS_MESSAGE_LOG_FD 2>&1],
          [AC_MSG_RESULT([yes])],
          [AC_MSG_RESULT([no])
           cuda_why="$NVCC does not compile for $CUDA_ARCHS, see config.log"])
    cuda_top=`$NVCC --dryrun -c conftest.cu 2>&1 | $SED -n 's/^#\$ TOP=//p'`
    cuda_top=`cd "$cuda_top" 2>/dev/null && pwd -P`
    cuda_version=`$NVCC --version | $SED -n 's/^.*release \([[0-9.]]*\),.*/\1/p'`
    AS_IF([test -z "$cuda_why" && test "${cuda_version%%.*}" -lt 12],
          [cuda_why="$NVCC is of CUDA $cuda_version, and CUDA 12 or newer is needed"])
    rm -f conftest.cu conftest.o])
])

# The places in which libraries are looked for, in this order: the one that an option names; the toolkit
# that nvcc belongs to, and those that the environment names; the system; Python's packages.
AC_DEFUN([TRIREME_CUDA_LIBRARIES], [
  AS_CASE([$with_cuda], [''|yes],
    [cuda_places="$cuda_top $CUDA_HOME $CUDA_PATH /usr/local/cuda system $nvidia_python"],
    [cuda_places="$with_cuda $cuda_top"])
  cuda_major=${cuda_version%%.*}
  TRIREME_NVIDIA([CUDART], [cuda_runtime_api.h], [cudart], [cudaFree(0);], [$cuda_places],
    [#if CUDART_VERSION / 1000 != $cuda_major
#error another CUDA than that of nvcc
#endif])
  CUDA_CFLAGS=$CUDART_CFLAGS; CUDA_LIBS=$CUDART_LIBS
  TRIREME_NVIDIA([CUBLASLT], [cublasLt.h], [cublasLt], [cublasLtGetVersion();], [$cuda_places],
    [#if CUBLAS_VER_MAJOR != $cuda_major
#error another CUDA than that of nvcc
#endif])
  AS_IF([test $CUDART_found = no], [cuda_why="$NVCC, but no libcudart $cuda_major with its headers"],
        [test $CUBLASLT_found = no],
        [cuda_why="$NVCC, but no libcublasLt $cuda_major with its headers"])
])

AC_DEFUN([TRIREME_CUDNN], [
  AS_CASE([$with_cudnn], [''|yes], [cudnn_places="$cuda_places $nvidia_python"],
          [cudnn_places=$with_cudnn])
  AS_IF([test "x$with_cudnn" != xno], [
    TRIREME_NVIDIA([CUDNN], [cudnn.h], [cudnn], [cudnnGetVersion();], [$cudnn_places],
      [#if CUDNN_VERSION < 91002
#error cuDNN 9.10.2 is needed
#endif])
    AS_IF([test $CUDNN_found = yes],
          [TRIREME_NVIDIA_VERSION([cudnn_version], [$CUDNN_CFLAGS $CUDA_CFLAGS], [cudnn.h],
                                  [CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL])
           CUDNN_summary="$cudnn_version ($CUDNN_place)"],
          [test -n "$with_cudnn"],
          [AC_MSG_ERROR([--with-cudnn=$with_cudnn: no cuDNN 9.10.2 or newer that links])])
  ])
])

AC_DEFUN([TRIREME_NCCL], [
  AS_CASE([$with_nccl], [''|yes], [nccl_places="$cuda_places $nvidia_python"],
          [nccl_places=$with_nccl])
  AS_IF([test "x$with_nccl" != xno], [
    TRIREME_NVIDIA([NCCL], [nccl.h], [nccl], [ncclGetVersion(0);], [$nccl_places],
      [#if NCCL_VERSION_CODE < NCCL_VERSION(2, 19, 1)
#error NCCL 2.19 is needed
#endif])
    AS_IF([test $NCCL_found = yes],
          [TRIREME_NVIDIA_VERSION([nccl_version], [$NCCL_CFLAGS $CUDA_CFLAGS], [nccl.h],
                                  [NCCL_MAJOR NCCL_MINOR NCCL_PATCH])
           NCCL_summary="$nccl_version ($NCCL_place)"],
          [test -n "$with_nccl"],
          [AC_MSG_ERROR([--with-nccl=$with_nccl: no NCCL 2.19 or newer that links])])
  ])
])
