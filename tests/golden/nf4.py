#!/usr/bin/env python3
"""nf4.py - make llama_nf4.hf: a Llama whose linear layers bitsandbytes keeps in 4 bits.

Checked in; run by hand:  nf4.py FOLDER.  It needs torch, transformers, accelerate and bitsandbytes.

  config.json, model.safetensors   as transformers saves them: nf4, double quantization
  numbers.safetensors              what bitsandbytes makes of some of the matrices, in fp32
"""
import pathlib
import shutil
import sys
import tempfile

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

folder = pathlib.Path(sys.argv[1]) / "llama_nf4.hf"
config = LlamaConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, vocab_size=67, max_position_embeddings=64,
                     tie_word_embeddings=False)
torch.manual_seed(7)
shutil.rmtree(folder, ignore_errors=True)
with tempfile.TemporaryDirectory() as plain:
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(plain)
    how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                             bnb_4bit_compute_dtype=torch.bfloat16)
    model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16, quantization_config=how,
                                                 device_map="cpu")
model.save_pretrained(folder)
(folder / "generation_config.json").unlink(missing_ok=True)
numbers = {}
for name in ("model.layers.0.self_attn.k_proj", "model.layers.1.mlp.up_proj"):
    weight = model.get_submodule(name).weight
    state = weight.quant_state
    state.dtype = torch.float32
    numbers[name + ".weight"] = bnb.dequantize_4bit(weight.data, state).contiguous()
save_file(numbers, folder / "numbers.safetensors")
