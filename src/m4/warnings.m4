# TRIREME_WARNINGS: set WARN_CFLAGS to the warnings this compiler knows.
AC_DEFUN([TRIREME_WARNINGS], [
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [treat warnings as errors])])
  WARN_CFLAGS=
  for flag in -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef \
              -Wno-unused-parameter -Wno-missing-field-initializers -Wvla; do
    save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -Werror $flag"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM], [WARN_CFLAGS="$WARN_CFLAGS $flag"])
    CFLAGS=$save_CFLAGS
  done
  AS_IF([test "x$enable_werror" = xyes], [WARN_CFLAGS="$WARN_CFLAGS -Werror"])
  AC_SUBST([WARN_CFLAGS])
])
