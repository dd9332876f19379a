#!/usr/bin/env python3
"""torch_gpu.py - the PyTorch side of gpu_vs_torch: the same Llama on one GPU.

Compiled blocks and loss, scaled_dot_product_attention by the backend that is fastest at this
shape, clipping, and AdamW: fused, or with --compile-step compiled together with the clipping and
what goes with the masters.  Precision is one of
  autocast   fp32 parameters, products in bf16 by autocast
  masters    bf16 parameters, fp32 masters and moments beside them
With --reproducible only deterministic algorithms are used.  Prints one JSON object: the tokens per
second of every step after the warm-up.

  torch_gpu.py --hidden 768 ... --tokens FILE.npy --precision autocast [--device cpu]
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_llama import Attention, Llama, make_adamw


class Masters:
    """AdamW over fp32 copies of a model's bf16 parameters."""

    def __init__(self, model, fused):
        self.params = list(model.parameters())
        self.copies = nn.ParameterList(nn.Parameter(p.detach().float()) for p in self.params)
        self.adamw = make_adamw(self.copies, fused)

    def step(self):
        for copy, p in zip(self.copies, self.params):
            copy.grad = p.grad.float()
        nn.utils.clip_grad_norm_(self.copies.parameters(), 1.0)
        self.adamw.step()
        with torch.no_grad():
            torch._foreach_copy_(self.params, list(self.copies))

    def zero_grad(self):
        for copy, p in zip(self.copies, self.params):
            copy.grad = p.grad = None


class Plain:
    """AdamW over the parameters themselves."""

    def __init__(self, model, fused):
        self.model, self.adamw = model, make_adamw(model, fused)

    def step(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.adamw.step()

    def zero_grad(self):
        self.adamw.zero_grad(set_to_none=True)


def wait(c):
    if c.device == "cuda":
        torch.cuda.synchronize()


def now(c):
    """A point in the GPU's work, without waiting for it; on a CPU the time."""
    if c.device != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def between(c, one, other):
    return one.elapsed_time(other) * 1e-3 if c.device == "cuda" else other - one


def attention_seconds(c, backend):
    """Forward and backward of attention once, the median of several; inf where it cannot."""
    dim, kind = c.hidden // c.heads, torch.bfloat16
    shapes = [(c.batch, heads, c.seq, dim) for heads in (c.heads, c.kv_heads, c.kv_heads)]
    q, k, v = (torch.randn(s, device=c.device, dtype=kind, requires_grad=True) for s in shapes)
    took = []
    try:
        with sdpa_kernel(backend):
            for _ in range(8):
                wait(c)
                start = time.perf_counter()
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
                y.sum().backward()
                wait(c)
                took.append(time.perf_counter() - start)
    except RuntimeError:
        return float("inf")
    return statistics.median(took[2:])


def fastest_attention(c):
    if c.device != "cuda":
        return contextlib.nullcontext, "default"
    backends = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    took = {name: attention_seconds(c, backend) for name, backend in backends.items()}
    best = min(took, key=took.get)
    if took[best] == float("inf"):
        return contextlib.nullcontext, "default"
    return lambda: sdpa_kernel(backends[best]), best


def make_model(c):
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    Attention.gqa = c.heads != c.kv_heads
    with torch.device(c.device):
        model = Llama(c)
    if c.tie:
        model.head.weight = model.embed.weight
    if c.precision == "masters":
        model = model.to(torch.bfloat16)
    if c.compile:
        for block in model.blocks:
            block.compile()
    return model


def loss_of(model):
    """The part after the blocks, as one function to compile."""
    def loss(x, targets):
        logits = model.head(model.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
    return loss


def read_npy(path):
    """The int32 of a one-dimensional array, which numpy's own format has behind a short header."""
    data = bytearray(path.read_bytes())
    return torch.frombuffer(data, dtype=torch.int32, offset=10 + int.from_bytes(data[8:10], "little"))


def seconds_since_exec():
    """Of this process, by Linux, whose counts are ticks since the machine started."""
    begun = int(pathlib.Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    up = float(pathlib.Path("/proc/uptime").read_text().split()[0])
    return round(up - begun / os.sysconf("SC_CLK_TCK"), 2)


def measure(c):
    torch.use_deterministic_algorithms(c.reproducible)
    torch.utils.deterministic.fill_uninitialized_memory = False
    model = make_model(c)
    optimizer = (Masters if c.precision == "masters" else Plain)(model, not c.compile_step)
    step = torch.compile(optimizer.step) if c.compile_step else optimizer.step
    tail = torch.compile(loss_of(model)) if c.compile else loss_of(model)
    kernel, attention = fastest_attention(c)
    autocast = torch.autocast(c.device, torch.bfloat16, enabled=c.precision == "autocast")
    random = torch.Generator("cpu").manual_seed(1)
    ids = read_npy(c.tokens).to(c.device)
    window = torch.arange(c.seq + 1, device=c.device)
    points = [now(c)]
    for _ in range(c.warmup + c.steps):
        first = torch.randint(len(ids) - c.seq - 1, (c.batch, 1), generator=random).to(c.device)
        tokens = ids[first + window].long()
        with autocast, kernel():
            x = model.embed(tokens[:, :-1])
            for block in model.blocks:
                x = block(x, model.cos, model.sin)
            loss = tail(x, tokens[:, 1:])
        loss.backward()
        step()
        optimizer.zero_grad()
        points.append(now(c))
        if len(points) == 2:
            wait(c)
            c.first_step_s = seconds_since_exec()
    wait(c)
    seconds = [between(c, a, b) for a, b in zip(points, points[1:])]
    return seconds[c.warmup:], loss.item(), attention


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = dict(hidden=768, layers=12, heads=12, kv_heads=12, ffn=2048, vocab=50304, seq=2048,
                 batch=8, steps=10, warmup=5)
    for name, value in sizes.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--precision", choices=["autocast", "masters"], default="autocast")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tokens", type=pathlib.Path, required=True,
                        help="what to train on: an array of int32 ids in numpy's format")
    parser.add_argument("--compile-step", action="store_true")
    parser.add_argument("--reproducible", action="store_true")
    parser.add_argument("--tie", action="store_true", help="one matrix for embedding and head")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    c = parser.parse_args()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic products ask for it
    seconds, loss, attention = measure(c)
    print(json.dumps({
        "torch": torch.__version__, "precision": c.precision, "compiled": c.compile,
        "compiled_step": c.compile_step, "reproducible": c.reproducible,
        "attention": attention, "loss": loss, "first_step_s": c.first_step_s,
        "peak_bytes": torch.cuda.max_memory_allocated() if c.device == "cuda" else None,
        "steps": [round(c.batch * c.seq / s, 1) for s in seconds],
    }), flush=True)


if __name__ == "__main__":
    main()
