"""tokenizer_rounds.py - the rounds of tests/bench/tokenizers: GOLDEN RATE TEXT ROUNDS."""

import os
import statistics
import subprocess
import sys
import time

from tokenizers import Tokenizer

golden, rate, path, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
sys.path.insert(0, golden)
import tokenizer_families as families  # noqa: E402

DOCUMENT = 65536


def documents(data):
    """As tokenizer_rate divides them: behind a line."""
    at = 0
    while at < len(data):
        end = min(at + DOCUMENT, len(data))
        while end < len(data) and data[end - 1] != 10:
            end += 1
        yield data[at:end].decode(errors="replace")
        at = end


def theirs(tokenizer, texts, size):
    for _ in range(2):
        start = time.perf_counter()
        count = sum(len(encoding) for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False))
        seconds = time.perf_counter() - start
    return size / seconds / 1e6, count


def ours(name):
    out = subprocess.run([rate, name, path, str(DOCUMENT), "2"], check=True, capture_output=True, text=True).stdout
    speed, count = out.split("\n")[1].split()
    return float(speed), int(count)


data = open(path, "rb").read()
texts = list(documents(data))
learn = [line for text in texts[:: 5] for line in text.split("\n") if line]
print(f"MB/s of one thread, {len(data) / 1e6:.1f} MB, {rounds} rounds, load {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
print("pipeline    trireme  tokenizers  ratio (least ... most of the rounds)  tokens")
for family in (families.gpt2, families.llama3, families.qwen2, families.llama2, families.bert):
    name = family.__name__ + ".json"
    family(learn, 8000).save(name)
    tokenizer = Tokenizer.from_file(name)
    tokenizer.encode_special_tokens = True
    mine, other, counts = [], [], set()
    for i in range(rounds):
        for side in (0, 1) if i % 2 else (1, 0):
            speed, count = theirs(tokenizer, texts, len(data)) if side else ours(name)
            (other if side else mine).append(speed)
            counts.add(count)
    ratios = [a / b for a, b in zip(mine, other)]
    print(f"{family.__name__:<10}{statistics.median(mine):9.1f}{statistics.median(other):12.1f}"
          f"{statistics.median(ratios):7.2f} ({min(ratios):.2f} ... {max(ratios):.2f})"
          f"  {' or '.join(str(count) for count in sorted(counts))}", flush=True)
