"""lora_check.py WHAT ... - adapters of trireme and of peft, against each other.

  make BASE ADAPTER KEYS       write an adapter of random numbers with peft; of DoRA, if KEYS say so
  same BASE ADAPTER MERGED TOKENS LOSS
                               peft loads the adapter; its logits are those of the merged model, and its
                               loss is LOSS
  train BASE INITIAL TRAINED TOKENS STEPS
                               peft trains INITIAL and gets TRAINED
All windows of TOKENS make one batch, so that the order of samples does not matter.
"""
import sys

import h5py
import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

SEQ, TARGETS = 24, {"llama": ["q_proj", "v_proj", "down_proj"], "gpt2": ["c_attn", "c_proj"]}


def base_of(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def windows(path):
    with h5py.File(path) as file:
        tokens = file["tokens"][...].astype(np.int64)
    count = (len(tokens) - 1) // SEQ
    rows = [tokens[i * SEQ : i * SEQ + SEQ + 1] for i in range(count)]
    return torch.from_numpy(np.stack(rows))


def loss_of(model, rows):
    logits = model(rows[:, :-1]).logits
    return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def make(base, adapter, keys):
    torch.manual_seed(7)
    model = base_of(base)
    config = LoraConfig(r=3, lora_alpha=5, use_rslora=True, task_type="CAUSAL_LM",
                        target_modules=TARGETS[model.config.model_type],
                        use_dora="lora.use_dora=true" in keys)
    model = get_peft_model(model, config)
    for name, parameter in model.named_parameters():
        if "lora_magnitude" in name:
            parameter.data *= 1 + 0.2 * torch.randn_like(parameter)
        elif "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(adapter)


def same(base, adapter, merged, tokens, loss):
    rows = windows(tokens)
    with torch.no_grad():
        logits, own = loss_of(PeftModel.from_pretrained(base_of(base), adapter), rows)
        plain, _ = loss_of(base_of(base), rows)
        other, _ = loss_of(base_of(merged), rows)
    off = float((logits - other).abs().max() / logits.abs().max())
    moved = float((logits - plain).abs().max() / logits.abs().max())
    assert off < 1e-5, f"logits of the merged model are off by {off:.2g}"
    assert moved > 100 * off, f"the adapter adds {moved:.2g}"
    assert abs(float(own) / float(loss) - 1) < 1e-5, f"loss {float(own)}, and {loss} of trireme"
    print(f"logits within {off:.2g}, loss within {abs(float(own) / float(loss) - 1):.2g}")


def train(base, initial, trained, tokens, steps):
    rows = windows(tokens)
    model = PeftModel.from_pretrained(base_of(base), initial, is_trainable=True)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=2e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    for _ in range(int(steps)):
        _, loss = loss_of(model, rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    wanted = load_file(trained + "/adapter_model.safetensors")
    first = load_file(initial + "/adapter_model.safetensors")
    own = {k.replace(".default", ""): v for k, v in model.named_parameters() if v.requires_grad}
    own = {k.replace(".modules_to_save", ""): v.detach() for k, v in own.items()}
    own = {k.replace("vector.weight", "vector"): v for k, v in own.items()}
    assert sorted(own) == sorted(wanted), sorted(set(own) ^ set(wanted))
    off = max(float((own[k] - wanted[k]).abs().max() / own[k].abs().max()) for k in own)
    moved = min(float((own[k] - first[k]).abs().max() / own[k].abs().max()) for k in own)
    assert off < 1e-4 and moved > 0.01, f"off by {off:.2g}, moved by {moved:.2g}"
    print(f"{len(own)} tensors within {off:.2g}; trained by at least {moved:.2g}")


{"make": make, "same": same, "train": train}[sys.argv[1]](*sys.argv[2:])
