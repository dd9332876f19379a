libtrireme_a_SOURCES += \
	src/simulate/cost.c src/simulate/cost.h \
	src/simulate/forecast.c src/simulate/forecast.h \
	src/simulate/machine.c src/simulate/machine.h \
	src/simulate/machine_file.c src/simulate/machine_file.h \
	src/simulate/machine_table.c src/simulate/machine_table.h \
	src/simulate/machine_transfer.c \
	src/simulate/play.c src/simulate/play.h \
	src/simulate/play_activity.c src/simulate/play_private.h \
	src/simulate/timeline.c src/simulate/timeline.h
