libtrireme_a_SOURCES += \
	src/model/llama.c src/model/llama.h \
	src/model/model.c src/model/model.h
