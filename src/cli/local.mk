trireme_SOURCES = src/cli/main.c src/cli/command.h
trireme_LDADD = $(TRIREME_LIBS)
trireme_SOURCES += src/cli/config.c
trireme_SOURCES += src/cli/doctor.c src/cli/doctor_say.c src/cli/doctor_say.h
trireme_SOURCES += src/cli/doctor_gpu.c src/cli/doctor_gpu.h src/cli/doctor_gpu_speed.c
trireme_SOURCES += src/cli/arguments.c src/cli/arguments.h src/cli/train.c src/cli/plan.c
trireme_SOURCES += src/cli/evaluate.c src/cli/generate.c
trireme_SOURCES += src/cli/tokenize.c src/cli/checkpoint.c
