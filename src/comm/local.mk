libtrireme_a_SOURCES += \
	src/comm/control.c src/comm/exchange.c src/comm/exchange.h src/comm/exchange_read.c src/comm/pmix.h \
	src/comm/group.c src/comm/group.h \
	src/comm/launch.c src/comm/launch.h src/comm/launch_environment.c \
	src/comm/mesh.c src/comm/mesh.h src/comm/mesh_memory.c src/comm/mesh_shape.c \
	src/comm/mpi.c src/comm/network.c src/comm/network.h \
	src/comm/node_memory.c src/comm/node_memory.h src/comm/node_share.c \
	src/comm/operation.c src/comm/operation.h src/comm/self.c src/comm/sum.c src/comm/sum.h \
	src/comm/thread.c src/comm/thread.h \
	src/comm/topology.c src/comm/topology.h \
	src/comm/transport.h \
	src/comm/ucx.c src/comm/ucx.h src/comm/watch.c src/comm/watch.h \
	src/comm/world.c src/comm/world.h src/comm/world_end.c
if HAVE_PMIX
libtrireme_a_SOURCES += src/comm/pmix.c
else
libtrireme_a_SOURCES += src/comm/pmix_absent.c
endif
