# A run's forecast, and what is off.
libtrireme_a_SOURCES += \
	src/train/comparison.c src/train/comparison.h src/train/core_wait.c src/train/core_wait.h \
	src/train/deviation.c src/train/deviation.h src/train/deviation_text.c \
	src/train/run_forecast.c src/train/run_forecast.h \
	src/train/step_times.c src/train/step_times.h
