# What PyTorch and Hugging Face's Llama and GPT-2 compute; generate.py made them, tests read
# them; muon.h5 is the rule of Muon in double precision, by muon.py.
EXTRA_DIST += tests/golden/generate.py tests/golden/muon.py tests/golden/muon.h5 \
	tests/golden/packed.py tests/golden/packed.h5 \
	tests/golden/llama_untied.h5 tests/golden/llama_tied_scaled.h5 tests/golden/gpt2.h5
EXTRA_DIST += tests/golden/llama_tied_scaled.hf/config.json tests/golden/llama_tied_scaled.hf/model.safetensors \
	tests/golden/gpt2.hf/config.json tests/golden/gpt2.hf/model.safetensors
# A model that bitsandbytes keeps in 4 bits, by nf4.py.
EXTRA_DIST += tests/golden/nf4.py tests/golden/llama_nf4.hf/config.json tests/golden/llama_nf4.hf/model.safetensors \
	tests/golden/llama_nf4.hf/numbers.safetensors
# Tokenizers by make_tokenizers.py, and what the package `tokenizers` makes of texts.
EXTRA_DIST += tests/golden/make_tokenizers.py tests/golden/mixed_text.py tests/golden/tokenizer_families.py \
	$(patsubst $(srcdir)/%,%,$(wildcard $(srcdir)/tests/golden/tokenizers/*.json))
# Small models of each family of decoders, by families.py.
families = $(patsubst $(srcdir)/%,%,$(wildcard $(srcdir)/tests/golden/families/*/*.* $(srcdir)/tests/golden/families/*/grads/*.*))
EXTRA_DIST += tests/golden/families.py $(families)
# Published steps of training, as settings of trireme, and the machines they ran on.
EXTRA_DIST += tests/golden/published_rows.csv tests/golden/published_machines.yaml
# Chat templates as models' makers publish them, by the template's name: chat_templates/NAME/MODEL.jinja.
EXTRA_DIST += tests/golden/chat_templates/README \
	$(patsubst $(srcdir)/%,%,$(wildcard $(srcdir)/tests/golden/chat_templates/*/*.jinja))
