# TRIREME_LIBRARY(NAME, MODULE, HEADER, LIBS, CALL): NAME_CFLAGS and NAME_LIBS of pkg-config, or LIBS
# where the compiler finds them by itself (CPATH and LIBRARY_PATH of a module or bundle).  Sets
# NAME_found; variables of these names given to configure are used as they are.
AC_DEFUN([TRIREME_LIBRARY], [
  $1_found=no
  PKG_CHECK_MODULES([$1], [$2], [$1_found=yes], [
    save_CPPFLAGS=$CPPFLAGS; save_LIBS=$LIBS
    LIBS="$4 $LIBS"
    AC_MSG_CHECKING([for $3 and $4 without pkg-config])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <stdarg.h>
                                      #include <stddef.h>
                                      #include <stdint.h>
                                      #include <setjmp.h>
                                      #include <$3>]], [[$5]])],
                   [$1_found=yes; $1_CFLAGS=; $1_LIBS="$4"])
    AC_MSG_RESULT([$$1_found])
    CPPFLAGS=$save_CPPFLAGS; LIBS=$save_LIBS
  ])
])

# TRIREME_NEEDS(NAME, MODULE, HEADER, LIBS, CALL, PACKAGE): TRIREME_LIBRARY, or an error that names the
# Debian package where the library is missing.
AC_DEFUN([TRIREME_NEEDS], [
  TRIREME_LIBRARY([$1], [$2], [$3], [$4], [$5])
  AS_IF([test $$1_found = no],
        [AC_MSG_ERROR([no $2: install $6, or set $1_CFLAGS and $1_LIBS])])
])

# TRIREME_DLOPEN: DL_LIBS, what dlopen() needs; nothing where the C library has it.
AC_DEFUN([TRIREME_DLOPEN], [
  save_LIBS=$LIBS
  AC_SEARCH_LIBS([dlopen], [dl], [], [AC_MSG_ERROR([no dlopen() in the C library or libdl])])
  LIBS=$save_LIBS
  AS_CASE([$ac_cv_search_dlopen], [-l*], [DL_LIBS=$ac_cv_search_dlopen], [DL_LIBS=])
  AC_SUBST([DL_LIBS])
])
