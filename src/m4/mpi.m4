# TRIREME_MPI: MPI_CFLAGS and MPI_LIBS of Open MPI by pkg-config, else what mpicc says.
AC_DEFUN([TRIREME_MPI], [
  AC_ARG_WITH([mpi], [AS_HELP_STRING([--with-mpi=DIR], [Open MPI installed under DIR])])
  AS_IF([test -n "$with_mpi" && test "$with_mpi" != yes],
        [PKG_CONFIG_PATH="$with_mpi/lib/pkgconfig:$with_mpi/lib64/pkgconfig:$PKG_CONFIG_PATH"
         export PKG_CONFIG_PATH
         PATH="$with_mpi/bin:$PATH"])
  PKG_CHECK_MODULES([MPI], [ompi-c],
    [MPI_summary="Open MPI `$PKG_CONFIG --modversion ompi-c`"],
    [AC_PATH_PROG([MPICC], [mpicc])
     AS_IF([test -z "$MPICC"],
           [AC_MSG_ERROR([no MPI: install libopenmpi-dev or name one by --with-mpi=DIR])])
     MPI_CFLAGS=`$MPICC --showme:compile`
     MPI_LIBS=`$MPICC --showme:link`
     MPI_summary="of $MPICC"])
  save_CFLAGS=$CFLAGS; save_LIBS=$LIBS
  CFLAGS="$CFLAGS $MPI_CFLAGS"; LIBS="$LIBS $MPI_LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[MPI_Init(0, 0);]])], [],
                 [AC_MSG_ERROR([MPI ($MPI_summary) does not link])])
  CFLAGS=$save_CFLAGS; LIBS=$save_LIBS
])
