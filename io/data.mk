# What `tokenize` reads: lines, conversations, numbers; and threads that work on them.  Event files.
libtrireme_a_SOURCES += \
	io/blocks.c io/blocks.h \
	io/chat.c io/chat.h io/chat_program.c io/chat_program.h \
	io/chat_rows.c io/chat_rows.h io/chat_space.c io/chat_space.h \
	io/chat_encode.c io/chat_encode.h \
	io/jsonl.c io/jsonl.h \
	io/npy.c io/npy.h \
	io/ordered.c io/ordered.h \
	io/token_list.c io/token_list.h \
	io/unpack.c io/unpack.h io/event_file.c io/event_file.h
