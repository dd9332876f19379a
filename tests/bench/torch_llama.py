#!/usr/bin/env python3
"""torch_llama.py - the PyTorch side of cpu_vs_torch: a Llama trained the way PyTorch likes it.

fp32 masters with bf16 autocast in one process, or FSDP2 with a bf16 MixedPrecisionPolicy over
gloo in several; scaled_dot_product_attention; AdamW fused where there is such; clipping.  Weights
come from a checkpoint of trireme, tokens from its token file: one batch, on which every step
trains.  Prints one JSON object: the seconds and the loss of every step.

  torch_llama.py --weights CHECKPOINT/index.h5 --tokens FILE.h5 --threads 2 [--compile] [--steps 10]
  torch_llama.py --weights CHECKPOINT/index.h5 --tokens FILE.h5 --ranks 2 --threads 1 [--compile]
"""
import argparse
import json
import os
import pathlib
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn


def rotary(c):
    """Cosines and sines of every position."""
    dim = c.hidden // c.heads
    angle = torch.outer(torch.arange(c.seq).float(), 10000.0 ** (-torch.arange(0, dim, 2) / dim))
    return torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()


class Attention(nn.Module):
    gqa = False  # whether attention itself knows that query heads share keys and values

    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.dim = c.heads, c.kv_heads, c.hidden // c.heads
        self.qkv = nn.Linear(c.hidden, (c.heads + 2 * c.kv_heads) * self.dim, bias=False)
        self.out = nn.Linear(c.hidden, c.hidden, bias=False)

    @staticmethod
    def rotate(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    def forward(self, x, cos, sin):
        batch, seq, _ = x.shape
        split = (self.heads, self.kv_heads, self.kv_heads)
        heads = self.qkv(x).view(batch, seq, sum(split), self.dim).transpose(1, 2)
        q, k, v = heads.split(split, 1)
        cos, sin = cos.to(q.dtype), sin.to(q.dtype)
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        group = self.heads // self.kv_heads
        if group > 1 and not self.gqa:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.gqa)
        return self.out(y.transpose(1, 2).reshape(batch, seq, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_up = nn.Linear(c.hidden, 2 * c.ffn, bias=False)
        self.down = nn.Linear(c.ffn, c.hidden, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(c.hidden, eps=1e-5), nn.RMSNorm(c.hidden, eps=1e-5)
        self.attention, self.mlp = Attention(c), Mlp(c)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    # What is one matrix here, and trireme's names of its parts.
    parts = {"attention.qkv": ["attn.q", "attn.k", "attn.v"], "attention.out": ["attn.o"],
             "mlp.gate_up": ["mlp.gate", "mlp.up"]}

    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c.vocab, c.hidden)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.hidden, eps=1e-5)
        self.head = nn.Linear(c.hidden, c.vocab, bias=False)
        for name, value in zip(("cos", "sin"), rotary(c)):
            self.register_buffer(name, value, persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def shard(model, c):
    """FSDP2: a unit per block and the rest in the root."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    kind = torch.bfloat16 if c.precision == "bf16" else torch.float32
    policy = MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=torch.float32)
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    after_forward = {"reshard_after_forward": False} if c.keep_gathered else {}
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy, **after_forward)
    fully_shard(model, mesh=mesh, mp_policy=policy, **after_forward)


def make_adamw(model, fused=True, lr=3e-4):
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8, fused=fused)


def own_names(name, parts):
    """trireme's names of what is one parameter here, end to end."""
    module, _, kind = name.rpartition(".")
    front = ""
    if module.startswith("blocks."):
        _, layer, module = module.split(".", 2)
        front = f"layers.{layer}."
    end = ".bias" if kind == "bias" else ""
    return [f"model/{front}{part}{end}" for part in parts.get(module, [module])]


def load_weights(model, path):
    """Every parameter from a checkpoint; rows that a padded vocabulary has beyond its are zero."""
    import h5py  # only cpu_vs_torch needs it
    with h5py.File(path) as file, torch.no_grad():
        for name, p in model.named_parameters():
            values = torch.cat([torch.from_numpy(file[own][...])
                                for own in own_names(name, model.parts)])
            p.zero_()
            p[:len(values)].copy_(values)


def load_tokens(c, rank):
    """This rank's sequences of the batch, and their targets."""
    import h5py
    with h5py.File(c.tokens) as file:
        tokens = torch.from_numpy(file["tokens"][: c.batch * c.seq + 1].astype("int64"))
    sides = tokens[:-1].view(c.batch, c.seq), tokens[1:].view(c.batch, c.seq)
    return [side.chunk(c.ranks)[rank].contiguous() for side in sides]


def make_model(kind, c):
    model = kind(c)
    load_weights(model, c.weights)
    if c.ranks > 1:
        shard(model, c)
    if c.compile and c.ranks > 1:
        for block in model.blocks:
            block.compile()
    elif c.compile:
        model.compile()
    return model


def measure(kind, c, rank):
    """Seconds and loss of every step."""
    model = make_model(kind, c)
    adamw = make_adamw(model, lr=c.lr)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=c.ranks == 1 and c.precision == "bf16")
    tokens, targets = load_tokens(c, rank)
    seconds, losses = [], []
    for _ in range(c.steps):
        start = time.perf_counter()
        with autocast:
            loss = model(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        seconds.append(time.perf_counter() - start)
    losses = torch.stack(losses).float()
    if c.ranks > 1:
        dist.all_reduce(losses)
    return seconds, (losses / c.ranks).tolist()


def bind(rank, c):
    """Leave this process its share of the cores, as mpirun --bind-to core does."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[rank * c.threads:(rank + 1) * c.threads])


def run_rank(rank, kind, c, port):
    if c.bind:
        bind(rank, c)
    torch.set_num_threads(c.threads)
    if c.ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=c.ranks)
    seconds, losses = measure(kind, c, rank)
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "seconds": seconds, "losses": losses}),
              flush=True)
    if c.ranks > 1:
        dist.barrier()
        os._exit(0)  # all is printed, and gloo's threads sometimes abort while they are taken down


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main(kind):
    parser = argparse.ArgumentParser()
    for name in ("hidden", "layers", "heads", "kv_heads", "ffn", "vocab", "seq", "batch"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, required=True)
    for name, value in dict(ranks=1, threads=1, steps=14).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--keep-gathered", action="store_true",
                        help="parameters stay whole from forward to backward")
    parser.add_argument("--bind", action="store_true", help="each process to cores of its own")
    parser.add_argument("--weights", type=pathlib.Path, required=True)
    parser.add_argument("--tokens", type=pathlib.Path, required=True)
    c = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(c.threads)
    if c.ranks == 1:
        run_rank(0, kind, c, 0)
    else:
        mp.spawn(run_rank, (kind, c, free_port()), c.ranks)


if __name__ == "__main__":
    main(Llama)
