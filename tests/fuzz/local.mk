# Fuzz targets.  Each is linked with a replay of its corpus here; make check-fuzz gives them to libFuzzer.
fuzz_replays = tests/fuzz/replay_config tests/fuzz/replay_overrides tests/fuzz/replay_json \
	tests/fuzz/replay_index tests/fuzz/replay_tokens tests/fuzz/replay_tokenizer \
	tests/fuzz/replay_safetensors tests/fuzz/replay_hf
check_PROGRAMS += $(fuzz_replays)
fuzz = tests/fuzz/replay.c tests/fuzz/fuzz.c tests/fuzz/fuzz.h
tests_fuzz_replay_config_SOURCES = tests/fuzz/fuzz_config.c $(fuzz)
tests_fuzz_replay_config_LDADD = $(TRIREME_LIBS)
tests_fuzz_replay_overrides_SOURCES = tests/fuzz/fuzz_overrides.c $(fuzz)
tests_fuzz_replay_overrides_LDADD = $(TRIREME_LIBS)
tests_fuzz_replay_json_SOURCES = tests/fuzz/fuzz_json.c $(fuzz)
tests_fuzz_replay_json_LDADD = $(TRIREME_LIBS)
tests_fuzz_replay_index_SOURCES = tests/fuzz/fuzz_index.c $(fuzz)
tests_fuzz_replay_index_LDADD = $(TRIREME_LIBS)
tests_fuzz_replay_tokens_SOURCES = tests/fuzz/fuzz_tokens.c $(fuzz)
tests_fuzz_replay_tokens_LDADD = $(TRIREME_LIBS)
tests_fuzz_replay_safetensors_SOURCES = tests/fuzz/fuzz_safetensors.c $(fuzz)
tests_fuzz_replay_safetensors_LDADD = $(TRIREME_LIBS)
tests_fuzz_replay_hf_SOURCES = tests/fuzz/fuzz_hf.c $(fuzz)
tests_fuzz_replay_hf_LDADD = $(TRIREME_LIBS)
tests_fuzz_replay_tokenizer_SOURCES = tests/fuzz/fuzz_tokenizer.c $(fuzz)
tests_fuzz_replay_tokenizer_LDADD = $(TRIREME_LIBS)
include $(top_srcdir)/tests/fuzz/data.mk
EXTRA_DIST += tests/fuzz/fuzz.sh $(patsubst $(srcdir)/%,%,$(wildcard $(srcdir)/tests/fuzz/corpus/*/*))

check-fuzz:
	$(srcdir)/tests/fuzz/fuzz.sh
.PHONY: check-fuzz
