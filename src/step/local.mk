libtrireme_a_SOURCES += \
	src/step/breakdown.c src/step/breakdown.h src/step/compile.c src/step/compile.h \
	src/step/execute.c src/step/execute.h src/step/execute_actions.c \
	src/step/execute_copy.c src/step/execute_at_once.c src/step/execute_enqueued.c src/step/execute_private.h src/step/flat.c src/step/flat.h \
	src/step/gradients.c src/step/gradients.h \
	src/step/layout.c src/step/layout.h src/step/layout_advice.c src/step/memory.c src/step/memory.h src/step/offload.c src/step/offload.h src/step/passes.h src/step/optimizer.c src/step/optimizer.h \
	src/step/place.c src/step/place.h src/step/ranges.c src/step/ranges.h \
	src/step/program.c src/step/program.h src/step/release.c src/step/schedule.c \
	src/step/segment.c src/step/segment.h src/step/segment_run.c \
	src/step/shard.c src/step/shard.h src/step/state.c src/step/trace.c src/step/trace.h \
	src/step/units.c src/step/units.h src/step/update.c \
	src/step/values.c src/step/values.h src/step/verify.c src/step/verify.h src/step/verify_ranks.c \
	src/step/verify_values.c src/step/waits.c
