# TRIREME_GEMM: matrix products from oneDNN (2.x or 3.x), else from a CBLAS, else plain loops.
# Sets GEMM_CFLAGS, GEMM_LIBS and the conditionals HAVE_ONEDNN, HAVE_CBLAS.  A library that an option
# names is used, or it is an error that it does not work.  A CBLAS with OpenMP threads shares them with
# the other kernels; one with threads of its own (Debian's libopenblas0-pthread) competes with them.
AC_DEFUN([TRIREME_GEMM], [
  AC_ARG_WITH([onednn],
    [AS_HELP_STRING([--with-onednn=DIR], [oneDNN installed under DIR; no: do not use it])])
  AC_ARG_WITH([blas],
    [AS_HELP_STRING([--with-blas=LIBS], [link LIBS as CBLAS instead of oneDNN; no: use none])])
  GEMM_CFLAGS=; GEMM_LIBS=; GEMM_summary=
  have_onednn=no
  save_CPPFLAGS=$CPPFLAGS; save_LIBS=$LIBS
  AS_CASE([$with_blas], [''|no], [blas_asked=no], [blas_asked=yes])
  AS_IF([test "x$with_onednn" != xno && test $blas_asked = no], [
    AS_CASE([$with_onednn], [''|yes], [],
      [test -r "$with_onednn/include/dnnl.h" ||
         AC_MSG_ERROR([--with-onednn=$with_onednn: no include/dnnl.h there])
       GEMM_CFLAGS="-I$with_onednn/include"
       for lib in lib lib64; do
         test -d "$with_onednn/$lib" &&
           GEMM_LIBS="$GEMM_LIBS -L$with_onednn/$lib -Wl,-rpath,$with_onednn/$lib"
       done])
    GEMM_LIBS="$GEMM_LIBS -ldnnl"
    CPPFLAGS="$CPPFLAGS $GEMM_CFLAGS"; LIBS="$GEMM_LIBS $LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <dnnl.h>
                                      #if DNNL_VERSION_MAJOR < 2
                                      #error oneDNN 2 is needed
                                      #endif]], [[dnnl_version();]])], [have_onednn=yes])
    AS_IF([test $have_onednn = yes], [
      AC_COMPUTE_INT([onednn_major], [DNNL_VERSION_MAJOR], [#include <dnnl.h>])
      AC_COMPUTE_INT([onednn_minor], [DNNL_VERSION_MINOR], [#include <dnnl.h>])
      GEMM_summary="oneDNN $onednn_major.$onednn_minor"])
    CPPFLAGS=$save_CPPFLAGS; LIBS=$save_LIBS
    AS_IF([test $have_onednn = no && test -n "$with_onednn"],
          [AC_MSG_ERROR([--with-onednn=$with_onednn: no oneDNN 2 or newer that links])])
  ])
  AS_IF([test $have_onednn = no], [
    GEMM_CFLAGS=; GEMM_LIBS=
    set dummy "-lopenblas" "-lcblas -lblas" "-lblas"
    AS_CASE([$with_blas], [''|yes], [], [no], [set dummy], [set dummy "$with_blas"])
    shift
    for libs; do
      AS_IF([test -z "$GEMM_LIBS"], [
        LIBS="$libs $save_LIBS"
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cblas.h>]],
                                        [[cblas_sgemm(101, 111, 111, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                                      0);]])],
                       [GEMM_LIBS=$libs; GEMM_summary="CBLAS ($libs)"])
        LIBS=$save_LIBS])
    done
    AS_IF([test -z "$GEMM_LIBS" && test $blas_asked = yes],
      [AC_MSG_ERROR([--with-blas=$with_blas: no CBLAS that links])])
    AS_IF([test -z "$GEMM_LIBS"],
      [GEMM_summary="plain loops, SLOW: install libdnnl-dev (oneDNN) or libopenblas-dev"])
  ])
  AM_CONDITIONAL([HAVE_ONEDNN], [test $have_onednn = yes])
  AM_CONDITIONAL([HAVE_CBLAS], [test $have_onednn = no && test -n "$GEMM_LIBS"])
  AC_SUBST([GEMM_CFLAGS])
  AC_SUBST([GEMM_LIBS])
])
