# TRIREME_MPI: MPI_CFLAGS and MPI_LIBS as the mpicc of --with-mpi, $MPICC or PATH gives them
# (so that a loaded module decides), else as pkg-config does.  AC_PATH_PROG by itself takes an MPICC that
# is a path, and looks for mpicc in place of one that is a name.
AC_DEFUN([TRIREME_MPI], [
  AC_ARG_WITH([mpi], [AS_HELP_STRING([--with-mpi=DIR], [MPI installed under DIR])])
  AC_ARG_VAR([MPICC], [compiler wrapper that knows the MPI to use])
  AS_CASE([$with_mpi],
    [no], [AC_MSG_ERROR([trireme needs MPI])],
    [''|yes], [AS_IF([test -z "$MPICC"], [AC_PATH_PROG([MPICC], [mpicc])])],
    [AC_PATH_PROG([MPICC], [mpicc], [], [$with_mpi/bin])
     AS_IF([test -z "$MPICC"], [AC_MSG_ERROR([--with-mpi=$with_mpi: no bin/mpicc there])])])
  AS_IF([test -n "$MPICC" && ! $MPICC --version >/dev/null 2>&1],
        [AC_MSG_ERROR([MPICC=$MPICC does not run])])
  MPI_CFLAGS=; MPI_LIBS=; MPI_summary=
  AS_IF([test -n "$MPICC" && $MPICC --showme:compile >/dev/null 2>&1],
        [MPI_CFLAGS=`$MPICC --showme:compile`
         MPI_LIBS=`$MPICC --showme:link`
         MPI_summary=`$MPICC --showme:version 2>&1 | $SED 's/^.*: \(Open MPI [[0-9a-z.]]*\).*/\1/'`],
        [test -n "$MPICC" && $MPICC -show >/dev/null 2>&1],
        [for word in `$MPICC -show | $SED 's/^[[^ ]]*//'`; do
           AS_CASE([$word], [-I*|-D*], [MPI_CFLAGS="$MPI_CFLAGS $word"],
                   [-L*|-l*|-Wl*], [MPI_LIBS="$MPI_LIBS $word"])
         done
         MPI_summary="of $MPICC"],
        [for module in ompi-c ompi mpich; do
           test -n "$MPI_summary" || ! ${PKG_CONFIG:-false} --exists $module ||
             { MPI_CFLAGS=`$PKG_CONFIG --cflags $module`
               MPI_LIBS=`$PKG_CONFIG --libs $module`
               MPI_summary="`$PKG_CONFIG --modversion $module` ($module)"; }
         done])
  save_CFLAGS=$CFLAGS; save_LIBS=$LIBS
  CFLAGS="$CFLAGS $MPI_CFLAGS"; LIBS="$LIBS $MPI_LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>
                                    #if MPI_VERSION < 3
                                    #error MPI 3 is needed
                                    #endif]], [[MPI_Init(0, 0);]])], [],
    [AC_MSG_ERROR([no MPI 3 that links: install libopenmpi-dev or name one by --with-mpi=DIR])])
  CFLAGS=$save_CFLAGS; LIBS=$save_LIBS
  AC_SUBST([MPI_CFLAGS])
  AC_SUBST([MPI_LIBS])
])
