#!/usr/bin/env python3
"""torch_gpt2.py - the PyTorch side of cpu_vs_torch for GPT-2, trained as torch_llama.py trains.

The model of Radford et al. 2019 as nanoGPT computes it: biases in every layer and norm, learned
positions, GELU (by tanh, as GPT-2 was trained), one matrix for embedding and head, no dropout,
scaled_dot_product_attention.  A --vocab larger than the checkpoint's is padding: rows of zeros.
"""
import torch
import torch.nn.functional as F
from torch import nn

from torch_llama import main


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c.heads
        self.qkv = nn.Linear(c.hidden, 3 * c.hidden)
        self.out = nn.Linear(c.hidden, c.hidden)

    def forward(self, x):
        batch, seq, hidden = x.shape
        q, k, v = (part.view(batch, seq, self.heads, hidden // self.heads).transpose(1, 2)
                   for part in self.qkv(x).split(hidden, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, seq, hidden))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.up, self.down = nn.Linear(c.hidden, c.ffn), nn.Linear(c.ffn, c.hidden)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(c.hidden), nn.LayerNorm(c.hidden)
        self.attention, self.mlp = Attention(c), Mlp(c)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt2(nn.Module):
    parts = {"attention.qkv": ["attn.q", "attn.k", "attn.v"], "attention.out": ["attn.o"]}

    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c.vocab, c.hidden)
        self.positions = nn.Embedding(c.seq, c.hidden)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.LayerNorm(c.hidden)
        self.head = nn.Linear(c.hidden, c.vocab, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens, targets):
        x = self.embed(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


if __name__ == "__main__":
    main(Gpt2)
