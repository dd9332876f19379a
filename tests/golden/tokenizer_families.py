"""tokenizer_families.py - tokenizers trained in the pipelines of published models: train(family, texts, size)."""

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LINES = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
LLAMA3 = LETTERS + r"\p{N}{1,3}" + LINES
QWEN2 = LETTERS + r"\p{N}" + LINES
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(split, texts, size, specials, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def pattern(text):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(text), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2(texts, size):
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), texts, size, ["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def roberta(texts, size):
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), texts, size, ["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def llama3(texts, size):
    specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    tokenizer = byte_level(pattern(LLAMA3), texts, size, [], ignore_merges=True)
    tokenizer.add_special_tokens(specials)
    begin = tokenizer.token_to_id(specials[0])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{specials[0]} $A", pair=f"{specials[0]} $A {specials[0]} $B",
                                      special_tokens=[(specials[0], begin)])])
    return tokenizer


def qwen2(texts, size):
    tokenizer = byte_level(pattern(QWEN2), texts, size, [])
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("fim", single_word=True),
                          AddedToken("\u4e2d!", rstrip=True)])
    return tokenizer


def o200k(texts, size):
    tokenizer = byte_level(pattern(O200K), texts, size, ["<|endoftext|>"])
    return tokenizer


def falcon(texts, size):
    split = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
                                     ])
    tokenizer = byte_level(split, texts, size, ["<|endoftext|>"])
    return tokenizer


def starcoder(texts, size):
    split = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer = byte_level(split, texts, size, ["<|endoftext|>", "<fim_prefix>"])
    return tokenizer


def sentencepiece(texts, size, normalizer, pre_tokenizer, has_bytes=True):
    """BPE of characters, its alphabet that of the first texts alone, so that much of the rest is unknown."""
    specials = ["<unk>", "<s>", "</s>"] + ([f"<0x{i:02X}>" for i in range(256)] if has_bytes else [])
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=size + len(specials), special_tokens=specials, show_progress=False,
                                  limit_alphabet=size // 3)
    tokenizer.train_from_iterator(texts, trainer)
    file = json.loads(tokenizer.to_str())
    file["model"]["byte_fallback"] = has_bytes
    file["added_tokens"] = [token for token in file["added_tokens"] if token["id"] < 3]
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    else:
        file = json.loads(tokenizer.to_str())
        file["pre_tokenizer"] = None
        tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                             special_tokens=[("<s>", 1)])
    return tokenizer


def llama2(texts, size):
    return sentencepiece(texts, size, normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]), None)


def mistral(texts, size):
    tokenizer = sentencepiece(texts, size, None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False))
    tokenizer.add_special_tokens(["[INST]", "[/INST]"])
    return tokenizer


def metaspace(texts, size):
    tokenizer = sentencepiece(texts, size, normalizers.NFKC(), pre_tokenizers.Metaspace(), has_bytes=False)
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def gemma(texts, size):
    return sentencepiece(texts, size, normalizers.Replace(" ", "\u2581"), pre_tokenizers.Split(" ", "merged_with_previous"))


def bert(texts, size, lowercase=True):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=specials, show_progress=False, limit_alphabet=size // 3)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", tokenizer.token_to_id("[CLS]")), ("[SEP]", tokenizer.token_to_id("[SEP]"))])
    return tokenizer


def bert_cased(texts, size):
    return bert(texts, size, lowercase=False)


def words(texts, size):
    """What other files have: accents off, Whitespace, a regular Replace."""
    tokenizer = bert(texts, size)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                                 normalizers.Replace(Regex(r"\d{5,}"), "#"), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(),
                                                       pre_tokenizers.Punctuation("merged_with_previous")])
    return tokenizer


FAMILIES = [gpt2, roberta, llama3, qwen2, o200k, falcon, starcoder, llama2, mistral, metaspace, gemma, bert, bert_cased, words]


def train(family, texts, size):
    return family(texts, size)
