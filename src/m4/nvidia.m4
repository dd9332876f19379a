# TRIREME_NVIDIA(NAME, HEADER, LIB, CALL, PLACES, NEEDED): one library of NVIDIA's, from the first
# of PLACES that has HEADER and LIB, compiles NEEDED and links CALL.  A place is a directory with
# include and lib, or "system": what the compiler finds by itself (Debian, RPM, CPATH and
# LIBRARY_PATH of modules).  Python's wheels have lib$LIB.so.N without a link to it, so files are
# named whole.  Sets NAME_found, NAME_place, NAME_CFLAGS and NAME_LIBS.
AC_DEFUN([TRIREME_NVIDIA], [
  $1_found=no; $1_place=; $1_CFLAGS=; $1_LIBS=
  save_CPPFLAGS=$CPPFLAGS; save_LIBS=$LIBS
  AC_MSG_CHECKING([for lib$3])
  for place in $5; do
    test $$1_found = no || break
    nvidia_cflags=; nvidia_libs=
    AS_IF([test "$place" = system], [nvidia_libs=-l$3], [
      test -r "$place/include/$2" || continue
      AS_CASE([$place], [/usr|/usr/], [], [nvidia_cflags="-isystem $place/include"])
      for file in "$place"/lib64/lib$3.so "$place"/lib/lib$3.so "$place"/targets/*/lib/lib$3.so \
                  "$place"/lib/*-linux-gnu/lib$3.so "$place"/lib64/lib$3.so.[[0-9]]* \
                  "$place"/lib/lib$3.so.[[0-9]]*; do
        AS_IF([test -z "$nvidia_libs" && test -r "$file"],
              [nvidia_libs="$file -Wl,-rpath,`AS_DIRNAME(["$file"])`"])
      done
      test -n "$nvidia_libs" || continue
      test "$nvidia_cflags" != "$CUDA_CFLAGS" || nvidia_cflags=])
    CPPFLAGS="$save_CPPFLAGS $nvidia_cflags $CUDA_CFLAGS"; LIBS="$nvidia_libs $CUDA_LIBS $save_LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <$2>
$6]], [[$4]])],
      [$1_found=yes; $1_place=$place; $1_CFLAGS=$nvidia_cflags; $1_LIBS=$nvidia_libs])
  done
  CPPFLAGS=$save_CPPFLAGS; LIBS=$save_LIBS
  AS_IF([test $$1_found = yes], [AC_MSG_RESULT([$$1_place])], [AC_MSG_RESULT([no])])
])

# TRIREME_NVIDIA_VERSION(VARIABLE, CFLAGS, HEADER, MACROS): the values of MACROS, "9 19 0" as 9.19.0
AC_DEFUN([TRIREME_NVIDIA_VERSION], [
  AS_ECHO(["#include <$3>"]) >conftest.c
  AS_ECHO(["trireme_version $4"]) >>conftest.c
  $1=`$CC $CPPFLAGS $2 -E -P conftest.c 2>/dev/null | tr '\n' ' ' |
      $SED 's/^.*trireme_version *//; s/ *$//; s/  */./g'`
  rm -f conftest.c
])

# TRIREME_NVIDIA_PYTHON: nvidia_python, the directories with include and lib that NVIDIA's packages
# for Python have installed: nvidia/cu13 and the like, nvidia/cudnn, nvidia/nccl.
AC_DEFUN([TRIREME_NVIDIA_PYTHON], [
  AC_ARG_VAR([PYTHON], [a Python whose NVIDIA packages may provide libraries])
  nvidia_python=
  for nvidia_root in `${PYTHON-python3} -c 'import nvidia; print(*nvidia.__path__)' 2>/dev/null`; do
    for place in "$nvidia_root"/*; do
      test ! -d "$place/include" || nvidia_python="$nvidia_python $place"
    done
  done
])
