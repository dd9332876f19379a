libtrireme_a_SOURCES += \
	src/verify/columns.c src/verify/columns.h src/verify/deadlock.c src/verify/deadlock.h \
	src/verify/division.c src/verify/division.h src/verify/division_gradients.c \
	src/verify/division_names.c \
	src/verify/division_ops.c src/verify/division_private.h \
	src/verify/division_ops.h src/verify/graphs.c src/verify/graphs.h \
	src/verify/memory_map.c src/verify/memory_map.h src/verify/overlaps.c \
	src/verify/overlaps.h src/verify/persistent.c src/verify/persistent.h src/verify/ranks.c src/verify/ranks.h \
	src/verify/rules.h src/verify/rules_run.c src/verify/rules_update.c src/verify/segments.c \
	src/verify/segments.h src/verify/streams.c src/verify/streams.h \
	src/verify/updaters.c src/verify/updaters.h src/verify/value_map.c src/verify/value_map.h src/verify/values.c \
	src/verify/values.h src/verify/verify.c src/verify/verify.h src/verify/verify_ranks.c \
	src/verify/verify_values.c src/verify/writers.c src/verify/writers.h
