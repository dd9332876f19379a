# Groups whose memory is a GPU's.
libtrireme_a_SOURCES += src/comm/gpu/channel.h src/comm/gpu/gpu.c src/comm/gpu/gpu.h \
	src/comm/gpu/gpu_choice.c src/comm/gpu/gpu_choice.h src/comm/gpu/gpu_self.c \
	src/comm/gpu/link.c src/comm/gpu/link.h src/comm/gpu/link_error.c \
	src/comm/gpu/mesh_channels.c src/comm/gpu/nccl.h src/comm/gpu/nccl_cuda.c \
	src/comm/gpu/nccl_cuda.h src/comm/gpu/nccl_faults.c \
	src/comm/gpu/nccl_faults.h src/comm/gpu/pieces.c src/comm/gpu/staged.c
if HAVE_NCCL
libtrireme_a_SOURCES += src/comm/gpu/nccl.c src/comm/gpu/nccl_call.h \
	src/comm/gpu/nccl_newer.c src/comm/gpu/nccl_register.c src/comm/gpu/nccl_settings.c \
	src/comm/gpu/nccl_start.c src/comm/gpu/nccl_state.c
else
libtrireme_a_SOURCES += src/comm/gpu/nccl_absent.c
endif
