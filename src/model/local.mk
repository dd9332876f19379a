libtrireme_a_SOURCES += \
	src/model/gpt2.c \
	src/model/llama.c \
	src/model/model.c src/model/model.h \
	src/model/names.c src/model/names.h \
	src/model/transformer.c src/model/transformer.h
