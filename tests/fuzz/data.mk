# Fuzz targets of what `tokenize`, `plan` and `config --translate` read.
check_PROGRAMS += tests/fuzz/replay_jsonl tests/fuzz/replay_npy tests/fuzz/replay_machine \
	tests/fuzz/replay_megatron tests/fuzz/replay_translate
tests_fuzz_replay_jsonl_SOURCES = tests/fuzz/fuzz_jsonl.c $(fuzz)
tests_fuzz_replay_jsonl_LDADD = $(TRIREME_LIBS)
tests_fuzz_replay_npy_SOURCES = tests/fuzz/fuzz_npy.c $(fuzz)
tests_fuzz_replay_npy_LDADD = $(TRIREME_LIBS)
tests_fuzz_replay_machine_SOURCES = tests/fuzz/fuzz_machine.c $(fuzz)
tests_fuzz_replay_machine_LDADD = $(TRIREME_LIBS)
tests_fuzz_replay_megatron_SOURCES = tests/fuzz/fuzz_megatron.c $(fuzz)
tests_fuzz_replay_megatron_LDADD = $(TRIREME_LIBS)
tests_fuzz_replay_translate_SOURCES = tests/fuzz/fuzz_translate.c $(fuzz)
tests_fuzz_replay_translate_LDADD = $(TRIREME_LIBS)
