# What PyTorch and Hugging Face's Llama compute; generate.py made them, tests read them.
EXTRA_DIST += tests/golden/generate.py \
	tests/golden/llama_untied.h5 tests/golden/llama_tied_scaled.h5
