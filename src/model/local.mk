libtrireme_a_SOURCES += \
	src/model/gpt2.c src/model/gpt2.h \
	src/model/llama.c src/model/llama.h \
	src/model/model.c src/model/model.h \
	src/model/transformer.c src/model/transformer.h
