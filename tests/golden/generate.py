#!/usr/bin/env python3
"""generate.py - make the golden files: what PyTorch and Hugging Face's Llama and GPT-2 compute.

The results are checked in (tests/golden/*.h5); this is run by hand, only when a case is
added.  It needs torch, transformers, numpy and h5py:  generate.py FOLDER [CASE...]

One file per case, contiguous datasets, float32 unless said:
  attributes           the model's and the optimizer's numbers
  /tokens              int32 [steps, batch, seq + 1]: inputs are [:-1], targets are [1:]
  /weights/NAME        initial weights, [out, in] as in PyTorch's Linear (GPT-2's are transposed)
  /logits              [batch, seq, vocab] of the initial weights on tokens[0]
  /loss                float64 scalar: mean over the targets of tokens[0]
  /grads/NAME          gradients of that loss
  /masked/targets      int32 [batch, seq]: tokens[0]'s targets, -100 where they do not count
  /masked/loss         float64 scalar: mean over the targets that count
  /masked/grad_norm    float64 scalar: global norm of its gradients
  /masked/grads/NAME   of a few tensors
  /losses, /grad_norms float64 [steps]: before each step of AdamW, norms before clipping
  /final/NAME          weights after the last step

For some cases NAME.hf/ holds the initial model as transformers saves it: generate.py FOLDER --hf
"""
import pathlib
import sys

import h5py
import numpy as np
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

STEPS = 10
ADAMW = dict(lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=1.0)
CASES = {
    "llama_untied": dict(
        layers=3, hidden=36, heads=6, kv_heads=2, head_dim=6, ffn=60, vocab=101,
        seq=37, batch=3, norm_eps=1e-5, rope_theta=10000.0, tied=0, init_std=0.15),
    "llama_tied_scaled": dict(
        layers=2, hidden=24, heads=3, kv_heads=1, head_dim=16, ffn=40, vocab=67,
        seq=29, batch=2, norm_eps=1e-6, rope_theta=500.0, tied=1, init_std=0.15,
        rope_factor=4.0, rope_low_freq_factor=1.0, rope_high_freq_factor=4.0,
        rope_original_len=16),
    "gpt2": dict(
        gpt2=1, layers=2, hidden=18, heads=3, kv_heads=3, head_dim=6, ffn=71, vocab=101,
        seq=19, batch=2, max_seq_len=23, norm_eps=1e-5, tied=1, init_std=0.15),
}
PARTS = {
    "input_layernorm": "norm1", "post_attention_layernorm": "norm2",
    "self_attn.q_proj": "attn.q", "self_attn.k_proj": "attn.k",
    "self_attn.v_proj": "attn.v", "self_attn.o_proj": "attn.o",
    "mlp.gate_proj": "mlp.gate", "mlp.up_proj": "mlp.up", "mlp.down_proj": "mlp.down",
}


GPT2_PARTS = {
    "ln_1": "norm1", "attn.c_attn": "attn.{}", "attn.c_proj": "attn.o",
    "ln_2": "norm2", "mlp.c_fc": "mlp.up", "mlp.c_proj": "mlp.down",
}


def gpt2_names(name):
    """trireme's names of what Hugging Face's GPT-2 calls name: one, or those of q, k and v."""
    name, kind = name.removeprefix("transformer.").rsplit(".", 1)
    bias = ".bias" if kind == "bias" else ""
    if name.startswith("h."):
        _, n, part = name.split(".", 2)
        logical = f"layers.{n}.{GPT2_PARTS[part]}{bias}"
        return [logical.format(c) for c in "qkv"] if "{}" in logical else [logical]
    return [{"wte": "embed", "wpe": "positions", "ln_f": "norm"}[name] + bias]


def gpt2_tensors(name, value):
    """The logical tensors in one of Hugging Face's, which keeps matrices of layers transposed."""
    names = gpt2_names(name)
    value = value.T.contiguous() if value.dim() > 1 and ".h." in name else value
    return zip(names, value.chunk(len(names)))


def logical_name(name):
    """trireme's name of a tensor that Hugging Face's Llama calls name."""
    name = name.removesuffix(".weight").removeprefix("model.")
    if name.startswith("layers."):
        _, n, part = name.split(".", 2)
        return f"layers.{n}.{PARTS[part]}"
    return {"embed_tokens": "embed", "norm": "norm", "lm_head": "head"}[name]


def make_gpt2(case):
    return GPT2LMHeadModel(GPT2Config(
        n_layer=case["layers"], n_embd=case["hidden"], n_head=case["heads"], n_inner=case["ffn"],
        vocab_size=case["vocab"], n_positions=case["max_seq_len"],
        layer_norm_epsilon=case["norm_eps"], activation_function="gelu_new",
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager",
        tie_word_embeddings=bool(case["tied"]), bos_token_id=None, eos_token_id=None))


def make_llama(case):
    rope = {"rope_type": "default", "rope_theta": case["rope_theta"]}
    if "rope_factor" in case:
        rope = {
            "rope_type": "llama3", "rope_theta": case["rope_theta"],
            "factor": case["rope_factor"], "low_freq_factor": case["rope_low_freq_factor"],
            "high_freq_factor": case["rope_high_freq_factor"],
            "original_max_position_embeddings": case["rope_original_len"],
        }
    return LlamaForCausalLM(LlamaConfig(
        num_hidden_layers=case["layers"], hidden_size=case["hidden"],
        num_attention_heads=case["heads"], num_key_value_heads=case["kv_heads"],
        head_dim=case["head_dim"], intermediate_size=case["ffn"], vocab_size=case["vocab"],
        max_position_embeddings=256, rms_norm_eps=case["norm_eps"], rope_parameters=rope,
        tie_word_embeddings=bool(case["tied"]), attn_implementation="eager",
        pad_token_id=None, bos_token_id=None, eos_token_id=None))


def make_model(case, seed):
    model = (make_gpt2(case) if "gpt2" in case else make_llama(case)).float()
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            z = torch.randn(p.shape, generator=random)
            base = 0 if name.endswith("bias") else 1
            p.copy_(case["init_std"] * z if p.dim() > 1 else base + 0.1 * z)
    return model


def snapshot(model, of=lambda p: p):
    tensors = {}
    for n, p in model.named_parameters():
        value = of(p).detach().clone()
        gpt2 = isinstance(model, GPT2LMHeadModel)
        tensors.update(gpt2_tensors(n, value) if gpt2 else {logical_name(n): value})
    return tensors


def loss_of(model, inputs, targets):
    """Mean cross-entropy over the targets that are not -100; also the logits."""
    logits = model(input_ids=inputs.long(), use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), targets.long().flatten()), logits


def first_batch(model, tokens, out):
    loss, logits = loss_of(model, tokens[0, :, :-1], tokens[0, :, 1:])
    loss.backward()
    out["logits"], out["loss"] = logits.detach(), np.float64(loss.item())
    out["grads"] = snapshot(model, lambda p: p.grad)
    model.zero_grad()


def masked_batch(model, tokens, out, random):
    targets = tokens[0, :, 1:].clone()
    targets[torch.rand(targets.shape, generator=random) < 0.4] = -100
    targets[0, :5] = -100
    loss, _ = loss_of(model, tokens[0, :, :-1], targets)
    loss.backward()
    grads = snapshot(model, lambda p: p.grad)
    norm = torch.sqrt(sum(g.double().square().sum() for g in grads.values()))
    few = ("embed", "norm", "layers.0.norm1", "layers.1.attn.k", "layers.0.mlp.down")
    out["masked"] = {
        "targets": targets, "loss": np.float64(loss.item()), "grad_norm": np.float64(norm.item()),
        "grads": {n: grads[n] for n in few},
    }
    model.zero_grad()


def train(model, tokens, out):
    params = list(model.parameters())
    groups = [
        {"params": [p for p in params if p.dim() > 1], "weight_decay": ADAMW["weight_decay"]},
        {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]),
                              eps=ADAMW["eps"])
    losses, norms = [], []
    for batch in tokens:
        loss, _ = loss_of(model, batch[:, :-1], batch[:, 1:])
        adamw.zero_grad(set_to_none=True)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(params, ADAMW["clip"]).item())
        losses.append(loss.item())
        adamw.step()
    out["losses"], out["grad_norms"] = np.array(losses), np.array(norms)
    out["final"] = snapshot(model)


def store(group, tree):
    for name, value in tree.items():
        if isinstance(value, dict):
            store(group.create_group(name), value)
        else:
            group.create_dataset(name, data=value.numpy() if torch.is_tensor(value) else value)


def make_case(name, case, seed, folder):
    random = torch.Generator().manual_seed(seed + 1)
    model = make_model(case, seed)
    tokens = torch.randint(case["vocab"], (STEPS, case["batch"], case["seq"] + 1),
                           generator=random, dtype=torch.int32)
    out = {"tokens": tokens, "weights": snapshot(model)}
    first_batch(model, tokens, out)
    masked_batch(model, tokens, out, random)
    train(model, tokens, out)
    path = folder / f"{name}.h5"
    with h5py.File(path, "w", libver=("earliest", "v108")) as file:
        for key, value in {**case, **ADAMW, "steps": STEPS}.items():
            file.attrs[key] = np.float64(value) if isinstance(value, float) else np.int64(value)
        store(file, out)
    print(path, path.stat().st_size, "bytes, losses", out["losses"].round(4),
          "norms", out["grad_norms"].round(3))


def save_folder(name, case, seed, folder):
    """The model of a case as transformers saves it, after a look at its golden file."""
    model = make_model(case, seed)
    with h5py.File(folder / f"{name}.h5") as file:
        for tensor, value in snapshot(model).items():
            assert np.array_equal(file["weights"][tensor][...], value.numpy()), tensor
    model.save_pretrained(folder / f"{name}.hf", safe_serialization=True)
    (folder / f"{name}.hf" / "generation_config.json").unlink(missing_ok=True)


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for i, (name, case) in enumerate(CASES.items()):
        if "--hf" in sys.argv:
            if name != "llama_untied":
                save_folder(name, case, 100 * (i + 1), folder)
        elif name in sys.argv[2:] or len(sys.argv) < 3:
            make_case(name, case, 100 * (i + 1), folder)


if __name__ == "__main__":
    main()
