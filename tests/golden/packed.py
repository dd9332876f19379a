#!/usr/bin/env python3
"""packed.py - make packed.h5: what Hugging Face's models make of packed documents.

The models, weights and tokens are those of generate.py's cases; its needs are this script's too:
packed.py [FILE].  A document sees itself alone, by a block-diagonal mask, and its positions begin
with 0, by position_ids; its last token has no target.  One group per case:
  /CASE/documents      int32 [batch, seq]: of each row the first row of its document
  /CASE/targets        int32 [batch, seq]: -100 where they do not count
  /CASE/loss           float64 scalar: mean over the targets that count
  /CASE/grad_norm      float64 scalar: global norm of its gradients
  /CASE/grads/NAME     of a few tensors
"""
import pathlib
import sys

import h5py
import numpy as np
import torch
import torch.nn.functional as F

from generate import CASES, make_model, snapshot, store

FEW = ("embed", "norm", "layers.0.norm1", "layers.1.attn.k", "layers.0.mlp.down")


def documents_of(case, random):
    starts = torch.zeros(case["batch"], case["seq"], dtype=torch.int32)
    for b in range(case["batch"]):
        for t in range(1, case["seq"]):
            new = torch.rand((), generator=random) < 0.15
            starts[b, t] = t if new else starts[b, t - 1]
    return starts


def packed(case, seed, folder, name):
    random = torch.Generator().manual_seed(seed + 7)
    model = make_model(case, seed)
    with h5py.File(folder / f"{name}.h5") as file:
        tokens = torch.from_numpy(file["tokens"][0].astype(np.int32))
    starts, seq = documents_of(case, random), case["seq"]
    targets = tokens[:, 1:].clone()
    last = torch.ones_like(starts, dtype=torch.bool)
    last[:, :-1] = starts[:, 1:] != starts[:, :-1]
    targets[last] = -100
    rows = torch.arange(seq)
    seen = (rows[None, None, :] <= rows[None, :, None]) & (rows[None, None, :] >= starts[:, :, None])
    mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[:, None]
    logits = model(input_ids=tokens[:, :-1].long(), attention_mask=mask,
                   position_ids=(rows[None] - starts).long(), use_cache=False).logits
    loss = F.cross_entropy(logits.flatten(0, 1), targets.long().flatten())
    loss.backward()
    grads = snapshot(model, lambda p: p.grad)
    norm = torch.sqrt(sum(g.double().square().sum() for g in grads.values()))
    print(name, "loss", loss.item(), "norm", norm.item(), "documents",
          sum(len(set(row.tolist())) for row in starts))
    return {"documents": starts, "targets": targets, "loss": np.float64(loss.item()),
            "grad_norm": np.float64(norm.item()), "grads": {n: grads[n] for n in FEW}}


def main():
    folder = pathlib.Path(__file__).parent
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else folder / "packed.h5"
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    with h5py.File(path, "w", libver=("earliest", "v108")) as file:
        for i, (name, case) in enumerate(CASES.items()):
            store(file.create_group(name), packed(case, 100 * (i + 1), folder, name))


if __name__ == "__main__":
    main()
