# What PyTorch and Hugging Face's Llama and GPT-2 compute; generate.py made them, tests read them.
EXTRA_DIST += tests/golden/generate.py \
	tests/golden/llama_untied.h5 tests/golden/llama_tied_scaled.h5 tests/golden/gpt2.h5
