"""hf_model.py - models of transformers beside trireme's.  Reads commands, one a line:

  make KIND FOLDER             write a small model of random numbers: llama, mistral, qwen2, qwen3,
                               phi3, mixtral, qwen3_moe or gpt2
  fuse FOLDER FOLDER           write a model with experts again, those of a block as one tensor
  loss FOLDER TOKENS >FILE     the mean loss of a folder's model on all windows of 24 tokens
  text FOLDER TOKENS N >FILE   N tokens that it writes, always the likeliest, after the first 24, as
                               bytes
  same FOLDER FOLDER >FILE     "the same bits", or which tensors differ; of a phi3 those that are
                               stacked in its files are stacked in both

A command that fails writes why, and the others are carried out.
"""
import pathlib
import sys

import h5py
import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

SEQ = 24
SIZES = dict(vocab_size=257, hidden_size=36, intermediate_size=61, num_hidden_layers=3,
             num_attention_heads=6, num_key_value_heads=3, head_dim=6, max_position_embeddings=128,
             initializer_range=0.15)
KINDS = {
    "llama": dict(SIZES, tie_word_embeddings=True),
    "mistral": dict(SIZES, sliding_window=9),
    "qwen2": {k: v for k, v in SIZES.items() if k != "head_dim"},
    "qwen3": SIZES,
    "phi3": dict(SIZES, sliding_window=11, pad_token_id=None),
    "mixtral": dict(SIZES, num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=True),
    "qwen3_moe": dict(SIZES, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=31,
                      norm_topk_prob=True),
    "gpt2": dict(vocab_size=257, n_embd=36, n_layer=3, n_head=6, n_positions=128, resid_pdrop=0,
                 embd_pdrop=0, attn_pdrop=0, initializer_range=0.15),
}


def make(kind, folder):
    torch.manual_seed(11)
    config = AutoConfig.for_model(kind, **KINDS[kind])
    AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(folder)


def fuse(folder, to):
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.save_pretrained(to, save_original_format=False)


def open_model(folder, tokens):
    more = {}
    if "num_local_experts" in AutoConfig.from_pretrained(folder).to_dict():
        more = dict(experts_implementation="eager")  # others want rows of 16 bytes
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **more).eval()
    with h5py.File(tokens) as file:
        return model, file["tokens"][...].astype(np.int64)


def loss(folder, tokens):
    model, ids = open_model(folder, tokens)
    rows = [ids[i : i + SEQ + 1] for i in range(0, len(ids) - SEQ, SEQ)]
    rows = torch.from_numpy(np.stack(rows))
    with torch.no_grad():
        logits = model(rows[:, :-1]).logits
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()))


def text(folder, tokens, count):
    model, ids = open_model(folder, tokens)
    prompt = torch.from_numpy(ids[None, :SEQ])
    with torch.no_grad():
        out = model.generate(prompt, max_new_tokens=int(count), do_sample=False, eos_token_id=None)
    return bytes(i for i in out[0, SEQ:].tolist() if i < 256).decode("utf-8", "replace")


def stacked(tensors):
    """With query, key and value as one tensor, and gate and up."""
    out = dict(tensors)
    for first, rest, name in (("q_proj", ("k_proj", "v_proj"), "qkv_proj"), ("gate_proj", ("up_proj",), "gate_up_proj")):
        for key in [k for k in out if f".{first}." in k]:
            parts = [out.pop(key.replace(first, part)) for part in (first, *rest)]
            out[key.replace(first, name)] = torch.cat(parts)
    return out


def same(one, other):
    a, b = (load_file(f"{folder}/model.safetensors") for folder in (one, other))
    if any("qkv_proj" in k for k in a):
        a, b = stacked(a), stacked(b)
    differ = [k for k in sorted(a | b) if k not in a or k not in b or (a[k] != b[k]).any()]
    return ("differ: " + " ".join(differ)) if differ else "the same bits"


COMMANDS = {"make": make, "fuse": fuse, "loss": loss, "text": text, "same": same}
for line in sys.stdin:
    words, _, to = line.partition(">")
    name, *arguments = words.split()
    try:
        made = COMMANDS[name](*arguments)
    except Exception as why:
        made = f"{type(why).__name__} {' '.join(str(why).split())}"
        print(f"{words.strip()}: {made}")
    if to:
        pathlib.Path(to.strip()).write_text(f"{made}\n")
