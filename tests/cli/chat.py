"""chat.py - what transformers makes of conversations, for tokenize_chat.sh.

  chat.py make           folders with a tokenizer and a chat template each, conversations, and
                         what apply_chat_template makes of them
  chat.py check          the token files that trireme made: ids, masks, documents

The templates are the published ones.
"""
import glob
import json
import os
import sys

import h5py
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
PHI4_BEGIN = (
    "{% for message in messages %}{% if (message['role'] == 'system') %}"
    "{{'<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>'}}"
    "{% elif (message['role'] == 'user') %}{{'<|im_start|>user<|im_sep|>' + message['content']"
)

# By the template's name, and behind -- which of its programs.
TEMPLATES = {
    "chatml": "{% for message in messages %}" + CHATML + "{% endfor %}" + PROMPT,
    "qwen2": (
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}" + CHATML + "{% endfor %}"
        + PROMPT
    ),
    "phi4": (
        PHI4_BEGIN + " + '<|im_end|>'}}{% elif (message['role'] == 'assistant') %}"
        "{{'<|im_start|>assistant<|im_sep|>' + message['content'] + '<|im_end|>'}}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"
    ),
    "phi4--first": (
        PHI4_BEGIN + " + '<|im_end|><|im_start|>assistant<|im_sep|>'}}{% elif (message['role'] == 'assistant') %}"
        "{{message['content'] + '<|im_end|>'}}{% endif %}{% endfor %}"
    ),
}
for path in sorted(glob.glob(os.path.join(os.path.dirname(__file__), "../golden/chat_templates/*/*.jinja"))):
    folder, file = path.split(os.sep)[-2:]
    TEMPLATES[folder + "--" + file[:-len(".jinja")]] = open(path, encoding="utf-8").read()
# It begins an answer behind the last message, which trireme leaves out where nobody asks for one.
del TEMPLATES["llama3--first"]

SYSTEM = {"role": "system", "content": "You answer\nin one word."}
CONVERSATIONS = [
    [("user", "Hello there"), ("assistant", "Hi!")],
    [("user", "  What is 2 + 2?\n"), ("assistant", "4.\n"), ("user", "\u00e9t\u00e9 \u4f60\u597d \U0001f600?"),
     ("assistant", "Summer, hello.\n\n- one\n- two")],
    [("user", "one\ttab"), ("assistant", "x" * 50), ("user", "Why?\u00a0"), ("assistant", "Because.  "),
     ("user", "3\n\n\n4"), ("assistant", "12345 67890 don't")],
]


def row(name):
    return name.split("--")[0]


def conversations(name):
    for turns in CONVERSATIONS:
        messages = [{"role": role, "content": text} for role, text in turns]
        yield messages
        if row(name) not in ("mistral-v1-2023", "mistral-v3"):
            yield [SYSTEM] + messages
    if row(name) == "qwen3":
        answer = {"role": "assistant", "content": "So it is."}
        yield [answer]
        yield [SYSTEM, {"role": "user", "content": "<tool_response>\nx\n</tool_response>"}, answer]
        yield [{"role": "user", "content": "<tool_response></tool_response> ?"}, answer]


def byte_level(specials):
    """Byte-level BPE, as Llama 3 and Qwen have it."""
    tokenizer = Tokenizer(models.BPE())
    words = Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                  r"|\s*[\r\n]+|\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(words, "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return trained(tokenizer, specials, pre_tokenizers.ByteLevel.alphabet())


def sentence_piece(specials):
    """BPE of characters with byte fallback, as Llama 2 and Mistral have it."""
    pieces = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)]
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    # SentencePiece learns no piece across words, though a text is one word when it is encoded
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return trained(tokenizer, pieces + [s for s in specials if s not in pieces], [], specials)


def trained(tokenizer, specials, alphabet, added=None):
    trainer = trainers.BpeTrainer(vocab_size=len(specials) + 400, special_tokens=specials, show_progress=False,
                                  initial_alphabet=alphabet)
    texts = [message["content"] for name in TEMPLATES for chat in conversations(name) for message in chat]
    tokenizer.train_from_iterator(texts + [open(__file__).read()], trainer)
    if added is None:
        return tokenizer
    # the trainer makes every piece of `specials` an added token; only these are
    data = json.loads(tokenizer.to_str())
    data["pre_tokenizer"] = None
    data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] in added + ["<unk>"]]
    return Tokenizer.from_str(json.dumps(data))


FAMILIES = {
    "llama2": (sentence_piece, ["<s>", "</s>"], "<s>", "</s>"),
    "mistral-v1": (sentence_piece, ["<s>", "</s>"], "<s>", "</s>"),
    "mistral-v1-2023": (sentence_piece, ["<s>", "</s>"], "<s>", "</s>"),
    "mistral-v3": (sentence_piece, ["<s>", "</s>", "[INST]", "[/INST]"], "<s>", "</s>"),
    "llama3": (byte_level, ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
               "<|begin_of_text|>", "<|eot_id|>"),
    "chatml": (byte_level, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, "<|im_end|>"),
    "phi4": (byte_level, ["<|endoftext|>", "<|im_start|>", "<|im_sep|>", "<|im_end|>"], None, "<|im_end|>"),
}
FAMILY_OF = {"llama3.1": "llama3", "qwen2": "chatml", "qwen2.5": "chatml", "qwen3": "chatml"}


def wrapped(name):
    make, specials, bos, eos = FAMILIES[FAMILY_OF.get(row(name), row(name))]
    tokenizer = make(specials)
    tokenizer.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in specials])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos)
    fast.chat_template = TEMPLATES[name]
    return fast


def ids_of(fast, messages):
    text = fast.apply_chat_template(messages, tokenize=False)
    return fast(text, add_special_tokens=False)["input_ids"], text


def make():
    for name in TEMPLATES:
        fast = wrapped(name)
        fast.backend_tokenizer.save(os.path.join(os.makedirs(name, exist_ok=True) or name, "tokenizer.json"))
        config = {"chat_template": TEMPLATES[name], "bos_token": fast.bos_token, "eos_token": fast.eos_token}
        with open(os.path.join(name, "tokenizer_config.json"), "w") as file:
            json.dump(config, file)
        with open(name + ".jsonl", "w") as file, open(name + ".wanted", "w") as wanted:
            for messages in conversations(name):
                ids, text = ids_of(fast, messages)
                answers = [m["content"] for m in messages if m["role"] == "assistant"]
                file.write(json.dumps({"messages": messages}, ensure_ascii=len(ids) % 2 == 0) + "\n")
                wanted.write(json.dumps({"ids": ids, "text": text, "answers": answers, "end": fast.eos_token}) + "\n")


def trained_texts(tokenizer, ids, mask):
    """The text of each stretch of targets."""
    stretches, last = [], 0
    for token, target in zip(ids, mask):
        if target and not last:
            stretches.append([])
        if target:
            stretches[-1].append(token)
        last = target
    return [tokenizer.decode(stretch, skip_special_tokens=False) for stretch in stretches]


def are_answers(texts, answers, end):
    """Each is an answer, with no more than spaces around it, and the token that ends it."""
    return len(texts) == len(answers) and all(
        text.endswith(end) and text[:-len(end)].strip() == answer.strip() for text, answer in zip(texts, answers))


def check():
    bad = 0
    for name in TEMPLATES:
        wanted = [json.loads(line) for line in open(name + ".wanted")]
        with h5py.File(name + ".h5") as file:
            tokens, mask, starts = file["tokens"][:], file["loss_mask"][:], file["documents"][:]
        if len(starts) != len(wanted) + 1:
            print(name, "documents:", len(starts) - 1, "wanted", len(wanted))
            bad += 1
            continue
        tokenizer = Tokenizer.from_file(os.path.join(name, "tokenizer.json"))
        for i, want in enumerate(wanted):
            span = slice(int(starts[i]), int(starts[i + 1]))
            ids, own = tokens[span].tolist(), mask[span].tolist()
            texts = trained_texts(tokenizer, ids, own)
            if ids != want["ids"] or not are_answers(texts, want["answers"], want["end"]):
                print(name, i, "wanted", repr(want["text"]), "trained", texts)
                bad += 1
    sys.exit(bad != 0)


make() if sys.argv[1] == "make" else check()
