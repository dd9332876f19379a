# The level with tiles, where the compiler and the assembler know them.
if CPU_AMX
noinst_LIBRARIES += libcpu_amx.a
libtrireme_a_LIBADD += $(libcpu_amx_a_OBJECTS)
libcpu_amx_a_SOURCES = $(cpu_kernels)
libcpu_amx_a_CPPFLAGS = $(AM_CPPFLAGS) -DCPU_LEVEL=amx -DCPU_LANES=16 -DCPU_DOT_BF16 -DCPU_TILES
libcpu_amx_a_CFLAGS = $(libcpu_avx512_bf16_a_CFLAGS) -mamx-tile -mamx-bf16
endif
