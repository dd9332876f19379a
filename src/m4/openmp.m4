# TRIREME_OPENMP: OPENMP_CFLAGS; OpenMP is required.
AC_DEFUN([TRIREME_OPENMP], [
  AC_OPENMP
  AS_IF([test -z "$OPENMP_CFLAGS"], [AC_MSG_ERROR([the compiler must support OpenMP])])
])
