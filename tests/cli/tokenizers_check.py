"""tokenizers_check.py - ids of mixed text, in every pipeline, against the package `tokenizers`.

    tokenizers_check.py TRIREME GOLDEN TOKENIZER_RATE BYTES CORPUS TRAINED

TRAINED is the vocabulary of 600 tokens that TRIREME made of CORPUS.  One line for each check: "ok
NAME", or what is wrong.
"""

import json
import subprocess
import sys

trireme, golden, rate, size, corpus, trained = sys.argv[1:]
sys.path.insert(0, golden)
import mixed_text  # noqa: E402
import tokenizer_families  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # noqa: E402

WRAP, SPECIALS = 2, 1


def ours(file, text, flags):
    out = subprocess.run([rate, file, text, str(flags)], check=True, capture_output=True).stdout
    return list(memoryview(out).cast("I"))


def compare(name, file, tokenizer, path, text):
    for flags, special in ((0, False), (SPECIALS + WRAP, True)):
        tokenizer.encode_special_tokens = not special
        want = tokenizer.encode(text, add_special_tokens=special).ids
        got = ours(file, path, flags)
        if got == want:
            print(f"ok {name}, {'all tokens' if special else 'text alone'}: {len(want)} ids", flush=True)
            continue
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        print(f"{name}: id {at} of {len(want)} ({len(got)} here) is {got[at : at + 3]}, not {want[at : at + 3]}", flush=True)


def main():
    learn = [line for line in mixed_text.mixed(300000, seed=3, rare=mixed_text.old).decode().split("\n") if line]
    for rare, chosen in ((mixed_text.any_character, tokenizer_families.FAMILIES[:11]),
                         (mixed_text.old, tokenizer_families.FAMILIES[11:])):
        data = mixed_text.mixed(int(size), seed=7, broken=True, rare=rare)
        with open("mixed", "wb") as file:
            file.write(data)
        text = data.decode(errors="replace")
        for family in chosen:
            file = family.__name__ + ".json"
            family(learn, 3000).save(file)
            compare(family.__name__, file, Tokenizer.from_file(file), "mixed", text)
    compare("a vocabulary by trireme", trained, Tokenizer.from_file(trained), "mixed", text)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=600, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([open(corpus, newline="", encoding="utf-8").read()], trainer)
    same = tokenizer.get_vocab() == Tokenizer.from_file(trained).get_vocab()
    same &= [" ".join(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]] == json.load(open(trained))["model"]["merges"]
    print("ok its trainer makes the same vocabulary" if same else "its trainer makes another vocabulary")
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(
        [open(corpus, newline="", encoding="utf-8").read()],
        trainers.BpeTrainer(vocab_size=600, min_frequency=2, special_tokens=specials, show_progress=False,
                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    same = tokenizer.get_vocab() == Tokenizer.from_file("chat/tokenizer.json").get_vocab()
    print("ok the same with special tokens" if same else "with special tokens its trainer makes another vocabulary")


main()
