# Tokenizers: tokenizer_private.h says how their files belong together.
libtrireme_a_SOURCES += \
	io/tokenizer.c io/tokenizer.h io/tokenizer_private.h io/tokenizer_alphabet.h \
	io/tokenizer_added.c io/tokenizer_bpe.c io/tokenizer_bpe.h io/tokenizer_bpe_read.c \
	io/tokenizer_bytes.c io/tokenizer_cache.c io/tokenizer_decode.c io/tokenizer_encode.c \
	io/tokenizer_file.c io/tokenizer_file.h io/tokenizer_lookup.c io/tokenizer_memory.c \
	io/tokenizer_normalize.c io/tokenizer_normalize.h \
	io/tokenizer_read.c io/tokenizer_read.h io/tokenizer_read_rules.c \
	io/tokenizer_read_steps.c io/tokenizer_regex.c io/tokenizer_regex.h \
	io/tokenizer_roles.c io/tokenizer_scan.c io/tokenizer_scan.h io/tokenizer_split.c \
	io/tokenizer_undo.c io/tokenizer_unicode.c io/tokenizer_unicode.h \
	io/tokenizer_vocab.c io/tokenizer_vocab.h io/tokenizer_wordpiece.c io/tokenizer_wrap.c \
	io/tokenizer_train.c io/tokenizer_train.h io/tokenizer_train_private.h io/tokenizer_write.c
