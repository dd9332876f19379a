# Groups whose memory is a GPU's.
libtrireme_a_SOURCES += src/comm/gpu.c src/comm/gpu.h src/comm/link.h
if HAVE_CUDA
libtrireme_a_SOURCES += src/comm/channel.h src/comm/gpu_self.c src/comm/link.c src/comm/link_error.c src/comm/nccl.h \
	src/comm/staged.c
if HAVE_NCCL
libtrireme_a_SOURCES += src/comm/nccl.c src/comm/nccl_call.h src/comm/nccl_start.c \
	src/comm/nccl_state.c
else
libtrireme_a_SOURCES += src/comm/nccl_absent.c
endif
else
libtrireme_a_SOURCES += src/comm/link_absent.c
endif
