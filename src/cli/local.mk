trireme_SOURCES = src/cli/main.c src/cli/command.h src/cli/commands.c src/cli/completion.c src/cli/tensorboard.c
trireme_LDADD = $(TRIREME_LIBS)
trireme_SOURCES += src/cli/config.c src/cli/app.c src/cli/doctor.c src/cli/arguments.c src/cli/arguments.h src/cli/train.c
trireme_SOURCES += src/cli/plan.c src/cli/plan_options.c src/cli/plan_options.h src/cli/plan_search.c src/cli/plan_search.h src/cli/evaluate.c src/cli/convert.c src/cli/unused.c src/cli/unused.h
trireme_SOURCES += src/cli/generate.c src/cli/generate.h src/cli/generate_chat.c src/cli/generate_model.c \
	src/cli/generate_output.c src/cli/generate_prompts.c
trireme_SOURCES += src/cli/tokenize.c src/cli/tokenize.h src/cli/tokenize_make.c src/cli/tokenize_join.c src/cli/tokenize_numbers.c \
	src/cli/tokenize_options.c src/cli/tokenize_output.c src/cli/tokenize_record.c src/cli/tokenize_work.c
trireme_SOURCES += src/cli/tokenize_train.c src/cli/tokenize_train.h src/cli/checkpoint.c src/cli/checkpoint_list.c src/cli/checkpoint_list.h
trireme_SOURCES += src/cli/inputs.c src/cli/inputs.h src/cli/last_start.c src/cli/last_start.h \
	src/cli/output_path.c src/cli/output_path.h
# bash's completion is printed by the program itself, from its tables.
if !CROSS_COMPILING
completionsdir = $(datadir)/bash-completion/completions
completions_DATA = src/cli/completions/trireme
CLEANFILES += $(completions_DATA)
src/cli/completions/trireme: trireme$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) $(@D) && ./trireme$(EXEEXT) completion bash >$@.new && mv $@.new $@
endif
