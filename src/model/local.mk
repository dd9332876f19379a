libtrireme_a_SOURCES += \
	src/model/adapters.c src/model/adapters.h src/model/adapters_add.c src/model/adapters_saved.c \
	src/model/experts.c src/model/experts.h \
	src/model/gpt2.c \
	src/model/llama.c \
	src/model/model.c src/model/model.h \
	src/model/modules.c src/model/modules.h \
	src/model/names.c src/model/names.h \
	src/model/transformer.c src/model/transformer.h
