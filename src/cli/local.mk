trireme_SOURCES = src/cli/main.c
trireme_LDADD = $(TRIREME_LIBS)
trireme_SOURCES += src/cli/config.c
