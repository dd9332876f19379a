#!/usr/bin/env python3
"""torch_generate - the time that transformers' generate takes.

  torch_generate.py FOLDER --prompts FILE.JSON... [--tokens 128] [--rounds 1] [--precision fp32|bf16]
                    [--device cpu|cuda] [--threads 2] [--static]
  torch_generate.py FOLDER --write SHAPE.JSON [--precision fp32|bf16] [--device cpu|cuda]

The first continues the prompts of each file, lists of as many ids each, together, greedily, by --tokens
tokens each, and prints one JSON object for each file: the seconds of each round, of the first token
alone and of all, and the ids.  --static has a cache of fixed size and the model compiled, as
transformers does then.  The second writes a Llama of random weights, whose shape is in the names of
transformers' LlamaConfig.
"""
import argparse
import json
import time

import torch
import transformers

KINDS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def write(args):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**json.load(open(args.write)))
    torch.set_default_dtype(KINDS[args.precision])
    with torch.device(args.device):
        model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(args.folder)


def seconds(args, model, ids, count):
    """(seconds, ids) of count more tokens."""
    start = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                             min_new_tokens=count, max_new_tokens=count, pad_token_id=0,
                             cache_implementation="static" if args.static else None)
    out = out[:, ids.shape[1]:].tolist()  # waits for a GPU
    return time.perf_counter() - start, out


def generate(args):
    torch.set_num_threads(args.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.folder, dtype=KINDS[args.precision])
    model.to(args.device).eval()
    for prompts in args.prompts:
        ids = torch.tensor(json.load(open(prompts)), device=args.device)
        for _ in range(2):  # the second finds what the first compiled
            seconds(args, model, ids, args.tokens if args.static else 4)
        first, every, text = [], [], None
        for _ in range(args.rounds):
            first.append(seconds(args, model, ids, 1)[0])
            took, text = seconds(args, model, ids, args.tokens)
            every.append(took)
        print(json.dumps({"first": first, "all": every, "ids": text}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--prompts", nargs="+", metavar="FILE.JSON")
    parser.add_argument("--write", metavar="SHAPE.JSON")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--precision", default="fp32", choices=sorted(KINDS))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--static", action="store_true")
    args = parser.parse_args()
    if (args.write is None) == (args.prompts is None):
        parser.error("either --prompts or --write")
    write(args) if args.write else generate(args)


main()
