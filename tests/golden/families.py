#!/usr/bin/env python3
"""families.py - golden folders of the families of decoders: what Hugging Face's own code computes.

The results are checked in (tests/golden/families/); this is run by hand, only when a case is added.
It needs torch, transformers, numpy, h5py and safetensors:  families.py FOLDER [CASE...]

Of each case
  NAME/config.json, model.safetensors        a small model of random weights, as transformers saves it
  NAME/grads/config.json, model.safetensors  the gradients of the loss, float32, as if they were one;
                                             those of a block's experts as one tensor, as transformers
                                             has them in memory, and save_original_format=False in files
  NAME/expected.h5                           /tokens int32 [batch, seq + 1]: inputs are [:-1], targets
                                             [1:]; /logits [batch, seq, vocab]; /loss float64: mean
"""
import pathlib
import shutil
import sys

import h5py
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import (AutoModelForCausalLM, LlamaConfig, MistralConfig, MixtralConfig,
                          Phi3Config, Qwen2Config, Qwen3Config, Qwen3MoeConfig)

BATCH, SEQ, VOCAB = 2, 21, 29
SHAPE = dict(num_hidden_layers=2, hidden_size=16, intermediate_size=22, vocab_size=VOCAB,
             max_position_embeddings=64, pad_token_id=None, bos_token_id=None, eos_token_id=None)
YARN = {"rope_type": "yarn", "rope_theta": 50.0, "factor": 4.0,
        "original_max_position_embeddings": 16}


def shape(heads, kv_heads, **others):
    return dict(SHAPE, num_attention_heads=heads, num_key_value_heads=kv_heads, **others)


CASES = {
    "llama_linear": LlamaConfig(**shape(
        4, 2, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0})),
    "llama_yarn": LlamaConfig(**shape(
        2, 1, head_dim=12, tie_word_embeddings=True, rope_parameters=YARN)),
    "llama_yarn_mscale": LlamaConfig(**shape(
        2, 2, head_dim=14, rope_parameters=dict(
            YARN, beta_fast=3.0, beta_slow=0.5, mscale=0.7, mscale_all_dim=1.3, truncate=False))),
    "llama_yarn_factor": LlamaConfig(**shape(
        4, 4, rope_parameters=dict(YARN, attention_factor=1.25, beta_fast=2.0))),
    "mistral_window": MistralConfig(**shape(4, 2, sliding_window=5)),
    "mistral_plain": MistralConfig(**shape(2, 1, sliding_window=None, head_dim=10)),
    "qwen2_tied": Qwen2Config(**shape(4, 2, tie_word_embeddings=True)),
    "qwen2_window": Qwen2Config(**shape(
        2, 2, use_sliding_window=True, sliding_window=7, max_window_layers=0,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0})),
    "qwen2_yarn": Qwen2Config(**shape(4, 1, rope_parameters=YARN)),
    "qwen3_untied": Qwen3Config(**shape(4, 2, head_dim=6, rms_norm_eps=1e-6)),
    "qwen3_tied": Qwen3Config(**shape(3, 1, head_dim=8, tie_word_embeddings=True,
                                      rope_parameters=dict(YARN, beta_fast=4.0))),
    "qwen3_window": Qwen3Config(**shape(2, 2, head_dim=4, use_sliding_window=True,
                                        sliding_window=3, max_window_layers=0)),
    "mixtral": MixtralConfig(**shape(4, 2, num_local_experts=4, num_experts_per_tok=2)),
    "mixtral_window": MixtralConfig(**shape(2, 1, num_local_experts=3, num_experts_per_tok=2,
                                            sliding_window=6, tie_word_embeddings=True)),
    "qwen3_moe": Qwen3MoeConfig(**shape(4, 2, head_dim=6, num_experts=5, num_experts_per_tok=3,
                                        moe_intermediate_size=10, norm_topk_prob=True)),
    "qwen3_moe_sums": Qwen3MoeConfig(**shape(  # of weights that are not divided by theirs
        2, 1, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=7, norm_topk_prob=False,
        rope_parameters=YARN)),
    "phi3": Phi3Config(**shape(4, 2, rms_norm_eps=1e-5)),
    "phi3_window": Phi3Config(**shape(2, 1, sliding_window=5, tie_word_embeddings=True)),
}


def make_model(config, seed):
    """Random weights that bf16 has, computed with in fp32."""
    config._attn_implementation = config._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float()
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            z = torch.randn(p.shape, generator=random)
            value = 0.3 * z if p.dim() > 1 or name.endswith("bias") else 1 + 0.2 * z
            p.copy_(value.bfloat16())
    return model


def make_case(name, config, seed, folder):
    folder = folder / name
    shutil.rmtree(folder, ignore_errors=True)
    model = make_model(config, seed)
    random = torch.Generator().manual_seed(seed + 1)
    tokens = torch.randint(VOCAB, (BATCH, SEQ + 1), generator=random, dtype=torch.int32)
    logits = model(input_ids=tokens[:, :-1].long(), use_cache=False).logits
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].long().flatten())
    loss.backward()
    grads = {n: p.grad.contiguous() for n, p in model.named_parameters()}
    (folder / "grads").mkdir(parents=True)
    save_file(grads, folder / "grads" / "model.safetensors", metadata={"format": "pt"})
    with h5py.File(folder / "expected.h5", "w", libver=("earliest", "v108")) as file:
        file["tokens"] = tokens.numpy()
        file["logits"] = logits.detach().numpy()
        file["loss"] = np.float64(loss.item())
    model.bfloat16().save_pretrained(folder, safe_serialization=True)
    (folder / "generation_config.json").unlink(missing_ok=True)
    shutil.copy(folder / "config.json", folder / "grads" / "config.json")
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    print(folder, size, "bytes, loss", loss.item())


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                          pathlib.Path(__file__).parent / "families")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for i, (name, config) in enumerate(CASES.items()):
        if name in sys.argv[2:] or len(sys.argv) < 3:
            make_case(name, config, 100 * (i + 1), folder)


if __name__ == "__main__":
    main()
