libtrireme_a_SOURCES += \
	io/catalog.c io/catalog.h io/catalog_check.c io/catalog_view.c \
	io/checkpoint.c io/checkpoint.h io/checkpoint_private.h \
	io/checkpoint_find.c io/checkpoint_load.c io/checkpoint_prune.c \
	io/checkpoint_save.c io/checkpoint_share.c io/checkpoint_write.c \
	io/checkpoint_verify.c \
	io/dataset.c io/dataset.h io/disk.c io/disk.h \
	io/h5.c io/h5.h io/h5_private.h \
	io/h5_attribute.c io/h5_index.c \
	io/little_endian.h io/loader.c io/loader.h io/megatron.c io/megatron.h \
	io/packing.c io/packing.h io/partial.c io/partial.h \
	io/safetensors.c io/safetensors.h io/safetensors_nf4.c io/safetensors_nf4.h \
	io/safetensors_private.h io/safetensors_write.c \
	io/seal.c io/seal.h \
	io/shard.c io/shard.h io/shard_thread.c io/shard_thread.h \
	io/shuffle.c io/shuffle.h io/swap.c io/swap.h \
	io/tokens.c io/tokens.h io/tokens_format.h \
	io/tokens_read.c io/tokens_verify.c io/tokens_writer.c
include $(top_srcdir)/io/tokenizer.mk
