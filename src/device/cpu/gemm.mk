# Matrix products: of oneDNN, of a CBLAS, or plain loops.
if HAVE_ONEDNN
libtrireme_a_SOURCES += src/device/cpu/gemm_onednn.c src/device/cpu/onednn.h
else
if HAVE_CBLAS
libtrireme_a_SOURCES += src/device/cpu/gemm_cblas.c
else
libtrireme_a_SOURCES += src/device/cpu/gemm_plain.c
endif
endif
