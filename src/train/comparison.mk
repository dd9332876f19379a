# What is off in a run.
libtrireme_a_SOURCES += \
	src/train/core_wait.c src/train/core_wait.h \
	src/train/deviation.c src/train/deviation.h src/train/deviation_text.c \
	src/train/step_times.c src/train/step_times.h
