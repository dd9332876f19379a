libtrireme_a_SOURCES += \
	src/graph/autodiff.c src/graph/autodiff.h \
	src/graph/build.c src/graph/build.h src/graph/build_experts.c src/graph/build_param.c \
	src/graph/build_private.h \
	src/graph/graph.c src/graph/graph.h \
	src/graph/op.c src/graph/op.h \
	src/graph/op_adapter.c src/graph/op_attention.c src/graph/op_attention_cached.c src/graph/op_elementwise.c \
	src/graph/op_bias.c src/graph/op_collective.c src/graph/op_dropout.c src/graph/op_embedding.c src/graph/op_experts.c \
	src/graph/op_heads.c \
	src/graph/op_layernorm.c \
	src/graph/op_linear.c src/graph/op_loss.c src/graph/op_magnitude.c src/graph/op_norm.c src/graph/op_qk_norm.c \
	src/graph/op_route.c src/graph/op_rows.c src/graph/op_sequence.c src/graph/op_swiglu_scaled.c
