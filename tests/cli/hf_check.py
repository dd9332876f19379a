"""hf_check.py - transformers loads folders, with the numbers of checkpoints.

Reads lines "FOLDER INDEX.H5", and prints for each "FOLDER: tensors are equal", or what is wrong.
"""
import sys

import h5py
import numpy as np
from transformers import AutoModelForCausalLM

PARTS = {"input_layernorm": "norm1", "post_attention_layernorm": "norm2",
         "self_attn.q_proj": "attn.q", "self_attn.k_proj": "attn.k", "self_attn.v_proj": "attn.v",
         "self_attn.o_proj": "attn.o", "mlp.gate_proj": "mlp.gate", "mlp.up_proj": "mlp.up",
         "mlp.down_proj": "mlp.down", "ln_1": "norm1", "ln_2": "norm2", "attn.c_attn": "attn.{}",
         "attn.c_proj": "attn.o", "mlp.c_fc": "mlp.up", "mlp.c_proj": "mlp.down",
         "mlp.gate": "mlp.router", "self_attn.q_norm": "attn.q.norm", "self_attn.k_norm": "attn.k.norm", "embed_tokens": "embed", "wte": "embed", "wpe": "positions", "ln_f": "norm",
         "norm": "norm", "lm_head": "head"}


def logical(name):
    """trireme's names of a parameter, and whether it is transposed."""
    if ".mlp.experts." in name:  # those of a block are one tensor in memory
        return [name.removeprefix("model.").removesuffix("_proj")], False
    name, kind = name.removeprefix("model.").removeprefix("transformer.").rsplit(".", 1)
    prefix = ""
    if name.startswith(("layers.", "h.")):
        _, number, name = name.split(".", 2)
        prefix = f"layers.{number}."
    own = prefix + PARTS[name] + (".bias" if kind == "bias" else "")
    transposed = name.startswith(("attn.c_", "mlp.c_"))
    return [own.format(c) for c in "qkv"] if "{}" in own else [own], transposed


def compare(folder, index):
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    with h5py.File(index) as file:
        seen = 0
        for name, parameter in model.named_parameters():
            names, transposed = logical(name)
            value = parameter.detach().numpy()
            value = value.T if transposed and value.ndim > 1 else value
            wanted = np.concatenate([file["model"][n][...] for n in names])
            wanted = wanted.reshape(value.shape) if wanted.ndim > 2 else wanted
            assert np.array_equal(value, wanted), name
            seen += 1
        assert seen > 10, f"{seen} tensors"


for line in sys.stdin:
    folder, index = line.split()
    try:
        compare(folder, index)
        print(f"{folder}: tensors are equal")
    except Exception as why:
        print(f"{folder}: {type(why).__name__} {' '.join(str(why).split())}")
