libtrireme_a_SOURCES += src/simulate/timeline.c src/simulate/timeline.h \
	src/simulate/play.c src/simulate/play.h
