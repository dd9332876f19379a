#!/usr/bin/env python3
"""torch_memory.py - the PyTorch side of memory_vs_torch: one rank of a Llama under FSDP2.

Started by mpirun, which names the rank; the ranks talk over gloo.  The Llama of torch_llama.py is
made without storage, sharded a block per unit, and only then allocated and filled, so that no rank
ever holds the whole model.  Precision is one of
  fp32   nothing else
  bf16   gathered and computed in bf16, reduced in fp32, over fp32 shards
Recomputation is one checkpoint per block.  Rank 0 prints one JSON object, with what
it held at most before there was a model and at the end of training.

  OMPI_COMM_WORLD_RANK=0 ... torch_memory.py --port 29500 [--tie] [--recompute] ...
"""
import argparse
import json
import os
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import peaks
from torch_llama import Llama, make_adamw, rotary


def shard(model, precision):
    """A unit per block and the rest in the root, which alone may hold a tied matrix."""
    bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    policy = bf16 if precision == "bf16" else MixedPrecisionPolicy()
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def make_model(c):
    torch.manual_seed(1)
    with torch.device("meta"):
        model = Llama(c)
    if c.tie:
        model.head.weight = model.embed.weight
    if c.recompute:
        for i, block in enumerate(model.blocks):
            model.blocks[i] = checkpoint_wrapper(block)
    shard(model, c.precision)
    model.to_empty(device="cpu")
    if c.tie:
        model.head.weight = model.embed.weight
    model.cos, model.sin = rotary(c)
    with torch.no_grad():
        for p in model.parameters():
            nn.init.normal_(p, std=0.02) if p.dim() > 1 else nn.init.ones_(p)
    if c.compile:
        for block in model.blocks:
            block.compile()
    return model


def train(c):
    """The parameters there are, and the last loss."""
    model = make_model(c)
    adamw = make_adamw(model)
    random = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(c.steps):
        tokens = torch.randint(c.vocab, (c.micro_batch, c.seq + 1), generator=random)
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
    return sum(p.numel() for p in model.parameters()), loss.item()


def high_water():
    return peaks.fields(pathlib.Path("/proc/self/status"))["VmHWM"]


def main():
    parser = argparse.ArgumentParser()
    sizes = dict(hidden=768, layers=12, heads=12, kv_heads=12, ffn=2048, vocab=50304, seq=512,
                 micro_batch=1, steps=4, threads=1, port=29500)
    for name, value in sizes.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--tie", action="store_true", help="one matrix for embedding and head")
    parser.add_argument("--recompute", action="store_true", help="checkpoint every block")
    parser.add_argument("--compile", action="store_true", help="compile every block")
    c = parser.parse_args()
    torch.set_num_threads(c.threads)
    rank, ranks = (int(os.environ[f"OMPI_COMM_WORLD_{what}"]) for what in ("RANK", "SIZE"))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(c.port))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    imported = high_water()
    parameters, loss = train(c)
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "parameters": parameters, "loss": loss,
                          "imported": imported, "trained": high_water()}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
