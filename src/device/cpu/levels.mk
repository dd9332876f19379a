# One convenience library per level; their objects go into libtrireme.a.
noinst_LIBRARIES += libcpu_generic.a
libtrireme_a_LIBADD += $(libcpu_generic_a_OBJECTS)
libcpu_generic_a_SOURCES = $(cpu_kernels)
libcpu_generic_a_CPPFLAGS = $(AM_CPPFLAGS) -DCPU_LEVEL=generic -DCPU_LANES=4
libcpu_generic_a_CFLAGS = $(AM_CFLAGS) $(KERNEL_CFLAGS)
if CPU_X86
noinst_LIBRARIES += libcpu_avx2.a
libtrireme_a_LIBADD += $(libcpu_avx2_a_OBJECTS)
libcpu_avx2_a_SOURCES = $(cpu_kernels)
libcpu_avx2_a_CPPFLAGS = $(AM_CPPFLAGS) -DCPU_LEVEL=avx2 -DCPU_LANES=8
libcpu_avx2_a_CFLAGS = $(AM_CFLAGS) $(KERNEL_CFLAGS) -march=x86-64-v3
include $(top_srcdir)/src/device/cpu/avx512.mk
endif
include $(top_srcdir)/src/device/cpu/amx.mk
