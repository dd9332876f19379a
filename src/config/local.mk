libtrireme_a_SOURCES += \
	src/config/adapter.c src/config/adapter.h \
	src/config/check.c src/config/check_model.c src/config/check_train.c \
	src/config/config.c src/config/config.h \
	src/config/foreign.c src/config/foreign_text.c src/config/foreign_model.c src/config/foreign_model.h src/config/foreign_translate.c src/config/foreign_words.c src/config/foreign_words.h src/config/foreign.h \
	src/config/hf.c src/config/hf.h src/config/hf_experts.c \
	src/config/hf_members.c src/config/hf_members.h \
	src/config/hf_rope.c src/config/hf_write.c \
	src/config/hub.c src/config/hub.h \
	src/config/key.c src/config/nearest.c \
	src/config/presets.c \
	src/config/named_model.c src/config/named_model.h src/config/rivals.c \
	src/config/saved.c src/config/saved.h \
	src/config/schema.c src/config/schema.h src/config/schema_rows.h src/config/schema_model.c \
	src/config/schema_parallel.c src/config/schema_run.c src/config/schema_train.c \
	src/config/show.c src/config/sources.c \
	src/config/value.c \
	src/config/write.c \
	src/config/yaml.c src/config/yaml.h
