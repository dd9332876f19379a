# What PyTorch and Hugging Face's Llama and GPT-2 compute; generate.py made them, tests read
# them; muon.h5 is the rule of Muon in double precision, by muon.py.
EXTRA_DIST += tests/golden/generate.py tests/golden/muon.py tests/golden/muon.h5 \
	tests/golden/packed.py tests/golden/packed.h5 \
	tests/golden/llama_untied.h5 tests/golden/llama_tied_scaled.h5 tests/golden/gpt2.h5
EXTRA_DIST += tests/golden/llama_tied_scaled.hf/config.json tests/golden/llama_tied_scaled.hf/model.safetensors \
	tests/golden/gpt2.hf/config.json tests/golden/gpt2.hf/model.safetensors
