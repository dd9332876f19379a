# TRIREME_HDF5: HDF5_CFLAGS and HDF5_LIBS.  The serial library is enough: ranks
# never share a file.
AC_DEFUN([TRIREME_HDF5], [
  AC_ARG_WITH([hdf5], [AS_HELP_STRING([--with-hdf5=DIR], [HDF5 installed under DIR])])
  HDF5_CFLAGS=; HDF5_LIBS=; HDF5_summary=
  AS_CASE([$with_hdf5],
    [no], [AC_MSG_ERROR([trireme needs HDF5])],
    [''|yes],
    [for module in hdf5-serial hdf5 hdf5-openmpi; do
       test -n "$HDF5_summary" || ! ${PKG_CONFIG:-false} --exists "$module >= 1.10" ||
         { HDF5_CFLAGS=`$PKG_CONFIG --cflags $module`
           HDF5_LIBS=`$PKG_CONFIG --libs $module`
           HDF5_summary="`$PKG_CONFIG --modversion $module` ($module)"; }
     done
     AS_IF([test -z "$HDF5_summary"], [HDF5_LIBS=-lhdf5; HDF5_summary="found by the compiler"])],
    [test -r "$with_hdf5/include/hdf5.h" ||
       AC_MSG_ERROR([--with-hdf5=$with_hdf5: no include/hdf5.h there])
     HDF5_CFLAGS="-I$with_hdf5/include"
     for lib in lib lib64; do
       test -d "$with_hdf5/$lib" &&
         HDF5_LIBS="$HDF5_LIBS -L$with_hdf5/$lib -Wl,-rpath,$with_hdf5/$lib"
     done
     HDF5_LIBS="$HDF5_LIBS -lhdf5"
     HDF5_summary="in $with_hdf5"])
  save_CFLAGS=$CFLAGS; save_LIBS=$LIBS
  CFLAGS="$CFLAGS $HDF5_CFLAGS $MPI_CFLAGS"; LIBS="$LIBS $HDF5_LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <hdf5.h>]],
                                  [[H5open(); (void)H5Pset_virtual;]])], [],
    [AC_MSG_ERROR([no HDF5 1.10 or newer: install libhdf5-dev or name one by --with-hdf5=DIR])])
  CFLAGS=$save_CFLAGS; LIBS=$save_LIBS
  AC_SUBST([HDF5_CFLAGS])
  AC_SUBST([HDF5_LIBS])
])
