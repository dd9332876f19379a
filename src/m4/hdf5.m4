# TRIREME_HDF5: HDF5_CFLAGS and HDF5_LIBS.  The serial library is enough: ranks
# never share a file.
AC_DEFUN([TRIREME_HDF5], [
  AC_ARG_WITH([hdf5], [AS_HELP_STRING([--with-hdf5=DIR], [HDF5 installed under DIR])])
  AS_IF([test -n "$with_hdf5" && test "$with_hdf5" != yes],
        [HDF5_CFLAGS="-I$with_hdf5/include"; HDF5_LIBS="-L$with_hdf5/lib -lhdf5"
         HDF5_summary="in $with_hdf5"],
        [HDF5_summary=
         for module in hdf5-serial hdf5 hdf5-openmpi; do
           PKG_CHECK_EXISTS([$module >= 1.10],
             [test -n "$HDF5_summary" ||
              { HDF5_CFLAGS=`$PKG_CONFIG --cflags $module`
                HDF5_LIBS=`$PKG_CONFIG --libs $module`
                HDF5_summary="`$PKG_CONFIG --modversion $module` ($module)"; }])
         done
         AS_IF([test -z "$HDF5_summary"],
               [HDF5_CFLAGS=; HDF5_LIBS=-lhdf5; HDF5_summary="found by the compiler"])])
  save_CFLAGS=$CFLAGS; save_LIBS=$LIBS
  CFLAGS="$CFLAGS $HDF5_CFLAGS $MPI_CFLAGS"; LIBS="$LIBS $HDF5_LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <hdf5.h>]],
                                  [[H5open(); (void)H5Pset_virtual;]])], [],
    [AC_MSG_ERROR([no HDF5 1.10 or newer: install libhdf5-dev or name one by --with-hdf5=DIR])])
  CFLAGS=$save_CFLAGS; LIBS=$save_LIBS
  AC_SUBST([HDF5_CFLAGS])
  AC_SUBST([HDF5_LIBS])
])
