#!/usr/bin/env python3
"""torch_experts.py - the peer of experts_vs_torch: a mixture of experts of transformers, trained with
fp32 weights, bf16 autocast and fused AdamW.

  torch_experts.py FOLDER TOKENS.h5 SEQ BATCH STEPS {eager,grouped_mm} THREADS

Rows are the first BATCH * SEQ tokens behind one another, the same in each step.  Prints the losses
and the times of the steps in ms, and the largest resident memory in MiB.
"""
import resource
import sys
import time

import h5py
import torch
from transformers import AutoModelForCausalLM

folder, data = sys.argv[1:3]
seq, batch, steps = map(int, sys.argv[3:6])
experts, threads = sys.argv[6], int(sys.argv[7])
torch.set_num_threads(threads)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                             experts_implementation=experts)
model.config.use_cache = False
model.train()
adamw = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0, fused=True)
with h5py.File(data) as f:
    tokens = torch.from_numpy(f["tokens"][:seq * batch + 1].astype("int64"))
rows = torch.stack([tokens[i * seq:i * seq + seq + 1] for i in range(batch)])
for _ in range(steps):
    start = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(input_ids=rows[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adamw.step()
    adamw.zero_grad(set_to_none=True)
    print(f"{loss.item():.6f} {1e3 * (time.perf_counter() - start):.2f}", flush=True)
print("resident", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
