libtrireme_a_SOURCES += \
	src/base/alive.c src/base/alive.h \
	src/base/array.c src/base/array.h src/base/background.c src/base/background.h \
	src/base/box.c src/base/box.h src/base/build_id.c src/base/build_id.h \
	src/base/cgroup.c src/base/cgroup.h \
	src/base/clock.c src/base/clock.h \
	src/base/dtype.c src/base/dtype.h src/base/dynamic8.h \
	src/base/error.c src/base/error.h src/base/fp8.h \
	src/base/hash.c src/base/hash.h \
	src/base/json.c src/base/json.h \
	src/base/levels.h src/base/line_file.c src/base/line_file.h \
	src/base/link.c src/base/link.h src/base/log.c src/base/log.h \
	src/base/median.c src/base/median.h src/base/mem.c src/base/mem.h \
	src/base/nf4.c src/base/nf4.h src/base/philox.c src/base/philox.h \
	src/base/quiet_thread.c src/base/quiet_thread.h src/base/round.h \
	src/base/schedstat.c src/base/schedstat.h src/base/shared_memory.c src/base/shared_memory.h \
	src/base/special_file.c src/base/special_file.h src/base/stream_copy.c src/base/stream_copy.h \
	src/base/text.c src/base/text.h src/base/touch.c src/base/touch.h \
	src/base/whole_file.c src/base/whole_file.h
