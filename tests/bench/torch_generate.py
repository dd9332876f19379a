#!/usr/bin/env python3
"""torch_generate - the time that transformers' generate takes.

  torch_generate.py FOLDER PRECISION THREADS PROMPT.JSON TOKENS ROUNDS

PROMPT.JSON: a list of prompts, lists of as many ids each, that are continued together, greedily, by
TOKENS tokens each.  Prints a JSON object: seconds of each round, of the first token alone and of all,
and the ids.
"""
import json
import sys
import time

import torch
import transformers

folder, precision, threads, prompts, tokens, rounds = sys.argv[1:7]
torch.set_num_threads(int(threads))
model = transformers.AutoModelForCausalLM.from_pretrained(
    folder, dtype={"fp32": torch.float32, "bf16": torch.bfloat16}[precision])
model.eval()
ids = torch.tensor(json.load(open(prompts)))


def run(count):
    start = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                             min_new_tokens=count, max_new_tokens=count, pad_token_id=0)
    return time.perf_counter() - start, out[:, ids.shape[1]:].tolist()


run(4)
first, every, text = [], [], None
for _ in range(int(rounds)):
    first.append(run(1)[0])
    seconds, text = run(int(tokens))
    every.append(seconds)
print(json.dumps({"first": first, "all": every, "ids": text}))
