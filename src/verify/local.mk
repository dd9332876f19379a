libtrireme_a_SOURCES += \
	src/verify/memory_map.c src/verify/memory_map.h src/verify/values.c src/verify/values.h \
	src/verify/verify.c src/verify/verify.h src/verify/verify_ranks.c src/verify/verify_values.c
