trireme_SOURCES = src/cli/main.c src/cli/command.h
trireme_LDADD = $(TRIREME_LIBS)
trireme_SOURCES += src/cli/config.c
