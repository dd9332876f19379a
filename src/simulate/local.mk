libtrireme_a_SOURCES += \
	src/simulate/cost.c src/simulate/cost.h \
	src/simulate/forecast.c src/simulate/forecast.h \
	src/simulate/play.c src/simulate/play.h \
	src/simulate/play_activity.c src/simulate/play_engine.c src/simulate/play_kind.c src/simulate/play_private.h \
	src/simulate/play_transfers.c src/simulate/play_waits.c \
	src/simulate/record.c src/simulate/record.h \
	src/simulate/timeline.c src/simulate/timeline.h
include $(top_srcdir)/src/simulate/machine.mk
