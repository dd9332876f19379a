# The kernels are compiled once per instruction set and chosen at run time.
libtrireme_a_SOURCES += src/device/device.h src/device/ops.h
