libtrireme_a_SOURCES += \
	src/program/access.c src/program/access.h \
	src/program/compile.c src/program/compile.h \
	src/program/gradients.c src/program/gradients.h \
	src/program/layout.c src/program/layout.h src/program/layout_advice.c src/program/memory.c \
	src/program/matrices.c src/program/matrices.h src/program/memory.h src/program/offload.c src/program/offload.h \
	src/program/overlap_update.c src/program/overlap_update.h src/program/owners.c src/program/owners.h \
	src/program/passes.h src/program/program.c src/program/program.h src/program/ranges.c src/program/ranges.h \
	src/program/pieces.c src/program/pieces.h src/program/release.c src/program/run.h \
	src/program/runs.c src/program/runs.h src/program/runs_buffers.c src/program/runs_load.c \
	src/program/runs_messages.c src/program/runs_private.h \
	src/program/schedule.c src/program/schedule.h src/program/schedule_arrivals.c src/program/schedule_file.c \
	src/program/schedule_list.c src/program/schedule_play.c src/program/schedule_private.h src/program/schedule_rows.c \
	src/program/schedule_runs.c src/program/schedule_runs.h src/program/schedule_sets.c \
	src/program/shard.c src/program/shard.h \
	src/program/sent.c src/program/sent.h \
	src/program/saved.c src/program/saved.h src/program/state.c src/program/state.h src/program/trace.c src/program/trace.h \
	src/program/tied_flats.c src/program/tied_flats.h src/program/update.c src/program/update_flat.c src/program/update_flat.h src/program/waits.c
