libtrireme_a_SOURCES += src/simulate/timeline.c src/simulate/timeline.h
