#!/usr/bin/env python3
"""torch_qlora.py - the peer of qlora_vs_peft: adapters by peft beside a model of transformers, whose
linear layers are bitsandbytes' of 4 bits, or in bf16.

  torch_qlora.py FOLDER TOKENS.h5 SEQ BATCH STEPS {none,nf4} THREADS

Rows are the first BATCH * SEQ tokens behind one another, the same in each step.  Prints the losses
and the times of the steps in ms, and the largest resident memory in MiB.
"""
import resource
import sys
import time

import h5py
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

folder, data = sys.argv[1:3]
seq, batch, steps = map(int, sys.argv[3:6])
quantize, threads = sys.argv[6], int(sys.argv[7])
torch.set_num_threads(threads)
settings = {"dtype": torch.bfloat16}
if quantize == "nf4":
    settings["quantization_config"] = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    settings["device_map"] = "cpu"
model = AutoModelForCausalLM.from_pretrained(folder, **settings)
model.config.use_cache = False
torch.manual_seed(1)
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear",
                                         task_type="CAUSAL_LM"))
model.train()
trained = [p for p in model.parameters() if p.requires_grad]
adamw = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0)
with h5py.File(data) as f:
    tokens = torch.from_numpy(f["tokens"][:seq * batch + 1].astype("int64"))
rows = torch.stack([tokens[i * seq:i * seq + seq + 1] for i in range(batch)])
for _ in range(steps):
    start = time.perf_counter()
    logits = model(input_ids=rows[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    adamw.step()
    adamw.zero_grad(set_to_none=True)
    print(f"{loss.item():.6f} {1e3 * (time.perf_counter() - start):.2f}", flush=True)
print("resident", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
