# TRIREME_CPU_LEVELS: which instruction sets the CPU kernels are compiled for.
# On x86-64 the same sources are built up to five times and chosen at run time.
AC_DEFUN([TRIREME_CPU_LEVELS], [
  cpu_x86=no cpu_amx=no
  cpu_levels=generic
  AS_CASE([$host_cpu], [x86_64], [
    save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -march=x86-64-v4 -mavx512bf16"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM], [cpu_x86=yes; cpu_levels="generic avx2 avx512 avx512_bf16"])
    CFLAGS="$CFLAGS -mamx-tile -mamx-bf16"
    AC_COMPILE_IFELSE(
      [AC_LANG_PROGRAM([@%:@include <immintrin.h>], [_tile_zero(0); _tile_dpbf16ps(0, 1, 2);])],
      [AS_IF([test $cpu_x86 = yes], [cpu_amx=yes; cpu_levels="$cpu_levels amx"])])
    CFLAGS=$save_CFLAGS
  ])
  CPU_CPPFLAGS=
  AS_IF([test $cpu_x86 = yes], [CPU_CPPFLAGS=-DCPU_X86_LEVELS])
  AS_IF([test $cpu_amx = yes], [CPU_CPPFLAGS="$CPU_CPPFLAGS -DCPU_AMX_LEVEL"])
  AC_SUBST([CPU_CPPFLAGS])
  AM_CONDITIONAL([CPU_X86], [test $cpu_x86 = yes])
  AM_CONDITIONAL([CPU_AMX], [test $cpu_amx = yes])
  KERNEL_CFLAGS="-O3 -fno-math-errno -fno-trapping-math -funroll-loops"
  AC_SUBST([KERNEL_CFLAGS])
])
