#!/usr/bin/env python3
"""torch_llama.py - the PyTorch side of cpu_vs_torch: a Llama trained the way PyTorch likes it.

fp32 masters with bf16 autocast in one process, or FSDP2 with a bf16 MixedPrecisionPolicy over
gloo in several; scaled_dot_product_attention; AdamW fused where there is such; clipping.  Prints
one JSON object: the tokens per second of every step after the warm-up, and their median.

  torch_llama.py --threads 2 [--compile] [--steps 10]
  torch_llama.py --ranks 2 --threads 1 [--compile]
"""
import argparse
import json
import os
import socket
import statistics
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


def shard(model):
    """FSDP2: a unit per block and the rest in the root."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def make_adamw(model, fused=True):
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=fused)


def measure(c, rank):
    """Seconds of every step after the warm-up, and the last loss."""
    torch.manual_seed(1)
    model = Llama(c)
    if c.ranks > 1:
        shard(model)
    adamw = make_adamw(model)
    if c.compile and c.ranks > 1:
        for block in model.blocks:
            block.compile()
    elif c.compile:
        model.compile()
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=c.ranks == 1)
    random = torch.Generator().manual_seed(rank)
    seconds = []
    for _ in range(c.warmup + c.steps):
        tokens = torch.randint(c.vocab, (c.batch // c.ranks, c.seq + 1), generator=random)
        start = time.perf_counter()
        with autocast:
            loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    return seconds[c.warmup:], loss.item()


def report(c, seconds, loss):
    rates = [c.batch * c.seq / s for s in seconds]
    print(json.dumps({
        "torch": torch.__version__, "ranks": c.ranks, "threads": c.threads,
        "compiled": c.compile, "loss": loss, "tokens_per_s": statistics.median(rates),
        "steps": [round(r, 1) for r in rates],
    }), flush=True)


def run_rank(rank, c, port):
    torch.set_num_threads(c.threads)
    if c.ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=c.ranks)
    seconds, loss = measure(c, rank)
    if rank == 0:
        report(c, seconds, loss)
    if c.ranks > 1:
        dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser()
    sizes = dict(hidden=512, layers=8, heads=8, kv_heads=4, ffn=1536, vocab=8192, seq=512, batch=4,
                 ranks=1, threads=1, steps=10, warmup=4)
    for name, value in sizes.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--compile", action="store_true")
    c = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(c.threads)
    if c.ranks == 1:
        run_rank(0, c, 0)
    else:
        mp.spawn(run_rank, (c, free_port()), c.ranks)


if __name__ == "__main__":
    main()
