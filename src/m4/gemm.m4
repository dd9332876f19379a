# TRIREME_GEMM: matrix products from oneDNN (2.x or 3.x), else from a CBLAS.
# Sets GEMM_CFLAGS, GEMM_LIBS and the conditional HAVE_ONEDNN.
AC_DEFUN([TRIREME_GEMM], [
  AC_ARG_WITH([onednn],
    [AS_HELP_STRING([--with-onednn=DIR], [oneDNN installed under DIR; no: do not use it])])
  AC_ARG_WITH([blas],
    [AS_HELP_STRING([--with-blas=LIBS], [link LIBS as CBLAS instead of oneDNN])])
  have_onednn=no
  save_CPPFLAGS=$CPPFLAGS; save_LIBS=$LIBS
  AS_IF([test "x$with_onednn" != xno && test -z "$with_blas"], [
    AS_IF([test -n "$with_onednn" && test "$with_onednn" != yes],
          [GEMM_CFLAGS="-I$with_onednn/include"; GEMM_LIBS="-L$with_onednn/lib"])
    CPPFLAGS="$CPPFLAGS $GEMM_CFLAGS"; LIBS="$GEMM_LIBS -ldnnl $LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <dnnl.h>]], [[dnnl_version();]])],
                   [have_onednn=yes; GEMM_LIBS="$GEMM_LIBS -ldnnl"; GEMM_summary=oneDNN])
    CPPFLAGS=$save_CPPFLAGS; LIBS=$save_LIBS
    AS_IF([test $have_onednn = no && test -n "$with_onednn"],
          [AC_MSG_ERROR([--with-onednn=$with_onednn: dnnl.h or libdnnl not usable there])])
  ])
  AS_IF([test $have_onednn = no], [
    found=no
    for libs in "$with_blas" "-lopenblas" "-lcblas -lblas" "-lblas"; do
      AS_IF([test $found = no && test -n "$libs"], [
        LIBS="$libs $save_LIBS"
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cblas.h>]], [[(void)cblas_sgemm;]])],
                       [found=yes; GEMM_CFLAGS=; GEMM_LIBS=$libs; GEMM_summary="CBLAS ($libs)"])
        LIBS=$save_LIBS])
    done
    AS_IF([test $found = no],
      [AC_MSG_ERROR([no matrix product library: install libdnnl-dev (oneDNN) or libopenblas-dev])])
  ])
  AM_CONDITIONAL([HAVE_ONEDNN], [test $have_onednn = yes])
  AC_SUBST([GEMM_CFLAGS])
  AC_SUBST([GEMM_LIBS])
])
