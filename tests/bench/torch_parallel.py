#!/usr/bin/env python3
"""torch_parallel.py - the PyTorch side of parallel_vs_torch: a Llama on two processes over gloo.

  --how tensor    DTensor: parallelize_module with the plan of torchtitan's Llama (linear layers by
                  columns and rows, norms and the residual stream by rows of the sequence, the
                  loss by parts of the vocabulary)
  --how tensor_whole_rows
                  the same with norms and the residual stream whole in each process
  --how 1f1b, gpipe, interleaved, zero_bubble, zbv
                  torch.distributed.pipelining: one stage a process with the first two, two stages a
                  process with the others, micro-batches of one sequence

Precision is fp32; or bf16 as autocast, or as masters: bf16 parameters with fp32 copies that AdamW
updates.  Weights come from a checkpoint of trireme, tokens from its token file, which has one batch:
every step trains on it, so that the losses of the two programs can be compared.

Prints one JSON object: the seconds and the loss of every step, and the torch version.

  torch_parallel.py --how 1f1b --weights CHECKPOINT/index.h5 --tokens FILE.h5 [--compile]
"""
import argparse
import contextlib
import json
import os
import pathlib
import time

import h5py
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed import pipelining
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (ColwiseParallel, ParallelStyle, PrepareModuleInput,
                                               RowwiseParallel, SequenceParallel, loss_parallel,
                                               parallelize_module)

from torch_llama import Attention as Fused
from torch_llama import free_port, make_adamw, rotary

RANKS = 2
TENSOR = ["tensor", "tensor_whole_rows"]
ONE_STAGE = {"1f1b": pipelining.Schedule1F1B, "gpipe": pipelining.ScheduleGPipe}
TWO_STAGES = {"interleaved": pipelining.ScheduleInterleaved1F1B,
              "zero_bubble": pipelining.ScheduleInterleavedZeroBubble,
              "zbv": pipelining.ScheduleZBVZeroBubble}


class Attention(nn.Module):
    """With a matrix each for queries, keys and values: columns of one would mix them."""

    def __init__(self, c):
        super().__init__()
        self.dim, self.group = c.hidden // c.heads, c.heads // c.kv_heads
        for name, heads in (("q", c.heads), ("k", c.kv_heads), ("v", c.kv_heads)):
            setattr(self, name, nn.Linear(c.hidden, heads * self.dim, bias=False))
        self.o = nn.Linear(c.heads * self.dim, c.hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, seq, _ = x.shape
        q, k, v = (f(x).view(batch, seq, -1, self.dim).transpose(1, 2)
                   for f in (self.q, self.k, self.v))
        cos, sin = cos.to(q.dtype), sin.to(q.dtype)
        q, k = Fused.rotate(q, cos, sin), Fused.rotate(k, cos, sin)
        if self.group > 1:
            k, v = k.repeat_interleave(self.group, 1), v.repeat_interleave(self.group, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(batch, seq, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate = nn.Linear(c.hidden, c.ffn, bias=False)
        self.up = nn.Linear(c.hidden, c.ffn, bias=False)
        self.down = nn.Linear(c.ffn, c.hidden, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(c.hidden, eps=1e-5), nn.RMSNorm(c.hidden, eps=1e-5)
        self.attn, self.mlp = Attention(c), Mlp(c)

    def forward(self, x, cos, sin):
        x = x + self.attn(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    """Some of its blocks; the embedding before the first, norm and head behind the last."""

    def __init__(self, c, first, last):
        super().__init__()
        self.autocast = c.precision == "autocast"
        self.embed = nn.Embedding(c.vocab, c.hidden) if first == 0 else None
        self.layers = nn.ModuleDict({str(i): Block(c) for i in range(first, last)})
        self.norm = nn.RMSNorm(c.hidden, eps=1e-5) if last == c.layers else None
        self.head = nn.Linear(c.hidden, c.vocab, bias=False) if last == c.layers else None
        for name, value in zip(("cos", "sin"), rotary(c)):
            self.register_buffer(name, value, persistent=False)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16) if self.autocast else contextlib.nullcontext():
            # A copy: a compiled block cannot take the embedding's sum over processes as it is.
            x = self.embed(x).clone() if self.embed else x
            for block in self.layers.values():
                x = block(x, self.cos, self.sin)
            return self.head(self.norm(x)) if self.head else x


def make_model(c, first, last):
    """Blocks [first, last) with the checkpoint's weights, whose names are the modules'."""
    model = Llama(c, first, last)
    with h5py.File(c.weights) as file, torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(file["model/" + name.removesuffix(".weight")][...]))
    if c.precision == "masters":
        model = model.to(torch.bfloat16)
    return model


def compile_blocks(c, model):
    if c.compile:
        for block in model.layers.values():
            block.compile(fullgraph=True)


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Replicated(ParallelStyle):
    """A module that every process computes whole; its parameters are DTensors like the others."""

    def _apply(self, module, mesh):
        return distribute_module(
            module, mesh, None,
            lambda _, inputs, mesh: DTensor.from_local(inputs[0], mesh, [Replicate()]),
            lambda _, output, mesh: output.to_local())


def shard_layers(model, rows):
    """As torchtitan's Llama does it; rows says what a process has of the residual stream."""
    mesh = dist.init_device_mesh("cpu", (RANKS,))
    norm = SequenceParallel if rows.is_shard() else Replicated
    parallelize_module(model, mesh, {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=rows),
        "norm": norm(),
        "head": ColwiseParallel(input_layouts=rows, output_layouts=Shard(-1),
                                use_local_output=False),
    })
    for block in model.layers.values():
        parallelize_module(block, mesh, {
            "norm1": norm(),
            "attn": PrepareModuleInput(input_layouts=(rows, None, None),
                                       desired_input_layouts=(Replicate(), None, None)),
            "attn.q": ColwiseParallel(),
            "attn.k": ColwiseParallel(),
            "attn.v": ColwiseParallel(),
            "attn.o": RowwiseParallel(output_layouts=rows),
            "norm2": norm(),
            "mlp": PrepareModuleInput(input_layouts=(rows,), desired_input_layouts=(Replicate(),)),
            "mlp.gate": ColwiseParallel(),
            "mlp.up": ColwiseParallel(),
            "mlp.down": RowwiseParallel(output_layouts=rows),
        })


class Tensor:
    """The model's layers divided among the processes."""
    ranks_add = False  # whether a process has the norm of its own parameters' gradients alone

    def __init__(self, c):
        model = make_model(c, 0, c.layers)
        shard_layers(model, Shard(1) if c.how == "tensor" else Replicate())
        compile_blocks(c, model)
        self.models = [model]

    def forward_backward(self, tokens, targets):
        with loss_parallel():
            loss = loss_of(self.models[0](tokens), targets)
            loss.backward()
        return loss.full_tensor().detach() if isinstance(loss, DTensor) else loss.detach()


class Pipeline:
    """The model's blocks divided among the processes, one stage or two on each."""
    ranks_add = True

    def __init__(self, c):
        rank, twice = dist.get_rank(), c.how in TWO_STAGES
        here = [rank] if not twice else [rank, 2 * RANKS - 1 - rank if c.how == "zbv" else rank + RANKS]
        ends = [0]
        for blocks in c.blocks.split(","):
            ends.append(ends[-1] + int(blocks))
        self.models = [make_model(c, ends[s], ends[s + 1]) for s in here]
        for model in self.models:
            compile_blocks(c, model)
        stages = [pipelining.PipelineStage(m, s, len(ends) - 1, torch.device("cpu"))
                  for m, s in zip(self.models, here)]
        make = TWO_STAGES[c.how] if twice else ONE_STAGE[c.how]
        self.schedule = make(stages if twice else stages[0], c.batch, loss_fn=loss_of)
        self.first, self.last = 0 in here, len(ends) - 2 in here
        self.from_rank = 0 if c.how == "zbv" else RANKS - 1

    def forward_backward(self, tokens, targets):
        losses = []
        self.schedule.step(*([tokens] if self.first else []),
                           **({"target": targets, "losses": losses} if self.last else {}))
        return torch.stack(losses).mean().detach() if self.last else torch.zeros(())


def local(tensors):
    """What this process has of each."""
    return [t.to_local() if isinstance(t, DTensor) else t for t in tensors]


class Optimizer:
    """Clipping and fused AdamW, over fp32 copies where parameters are bf16."""

    def __init__(self, c, models, ranks_add):
        self.params = [p for m in models for p in m.parameters()]
        self.ranks_add, self.copies = ranks_add, None
        if c.precision == "masters":
            self.copies = [nn.Parameter(p.detach().float()) for p in self.params]
        self.adamw = make_adamw(nn.ParameterList(self.copies or self.params))

    def step(self):
        params = self.copies or self.params
        if self.copies:
            for copy, p in zip(self.copies, self.params):
                copy.grad = p.grad.float()
        norm = nn.utils.get_total_norm([p.grad for p in params])
        if isinstance(norm, DTensor):
            norm = norm.full_tensor()
        if self.ranks_add:
            square = norm * norm
            dist.all_reduce(square)
            norm = square.sqrt()
        nn.utils.clip_grads_with_norm_(params, 1.0, norm)
        self.adamw.step()
        if self.copies:
            with torch.no_grad():
                torch._foreach_copy_(local(self.params), local(self.copies))
        for p in self.params + (self.copies or []):
            p.grad = None


def measure(c):
    """Seconds and loss of every step; the time of a step ends where the next begins."""
    with h5py.File(c.tokens) as file:
        tokens = torch.from_numpy(file["tokens"][: c.batch * c.seq + 1].astype("int64"))
    inputs, targets = tokens[:-1].view(c.batch, c.seq), tokens[1:].view(c.batch, c.seq)
    side = (Tensor if c.how in TENSOR else Pipeline)(c)
    optimizer = Optimizer(c, side.models, side.ranks_add)
    losses, points = [], [time.perf_counter()]
    for _ in range(c.steps):
        losses.append(side.forward_backward(inputs, targets))
        optimizer.step()
        points.append(time.perf_counter())
    losses = torch.stack(losses).float()
    if side.ranks_add:
        dist.broadcast(losses, side.from_rank)
    return [b - a for a, b in zip(points, points[1:])], losses.tolist()


def run_rank(rank, c, port):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    seconds, losses = measure(c)
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "seconds": seconds, "losses": losses}),
              flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = dict(hidden=512, layers=8, heads=8, kv_heads=4, ffn=1536, vocab=8192, seq=512, batch=8,
                 steps=8)
    for name, value in sizes.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--how", choices=[*TENSOR, *ONE_STAGE, *TWO_STAGES], required=True)
    parser.add_argument("--precision", choices=["fp32", "autocast", "masters"], default="fp32")
    parser.add_argument("--blocks", help="of the pipeline, in each stage: 5,3")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--weights", type=pathlib.Path, required=True)
    parser.add_argument("--tokens", type=pathlib.Path, required=True)
    c = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    mp.spawn(run_rank, (c, free_port()), RANKS)


if __name__ == "__main__":
    main()
