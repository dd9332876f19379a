# The levels of AVX-512: without its bf16, and with it.
noinst_LIBRARIES += libcpu_avx512.a libcpu_avx512_bf16.a
libtrireme_a_LIBADD += $(libcpu_avx512_a_OBJECTS) $(libcpu_avx512_bf16_a_OBJECTS)
libcpu_avx512_a_SOURCES = $(cpu_kernels)
libcpu_avx512_a_CPPFLAGS = $(AM_CPPFLAGS) -DCPU_LEVEL=avx512 -DCPU_LANES=16
libcpu_avx512_a_CFLAGS = $(AM_CFLAGS) $(KERNEL_CFLAGS) -march=x86-64-v4
libcpu_avx512_bf16_a_SOURCES = $(cpu_kernels)
libcpu_avx512_bf16_a_CPPFLAGS = $(AM_CPPFLAGS) -DCPU_LEVEL=avx512_bf16 -DCPU_LANES=16 -DCPU_DOT_BF16
libcpu_avx512_bf16_a_CFLAGS = $(libcpu_avx512_a_CFLAGS) -mavx512bf16
