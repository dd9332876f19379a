libtrireme_a_SOURCES += \
	src/execute/breakdown.c src/execute/breakdown.h src/execute/execute.c src/execute/execute.h \
	src/execute/execute_actions.c src/execute/execute_async.c src/execute/execute_async.h \
	src/execute/execute_async_create.c src/execute/execute_async_progress.c src/execute/execute_async_trace.c src/execute/execute_copy.c \
	src/execute/execute_private.h src/execute/execute_sync.c src/execute/executor.c
