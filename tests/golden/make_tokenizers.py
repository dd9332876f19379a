"""make_tokenizers.py - tests/golden/tokenizers: small tokenizers in the pipelines of published models,
trained by the package `tokenizers`, and texts with the ids that it gives them.

    python tests/golden/make_tokenizers.py          (tokenizers 0.23.3 made the files that are here)
"""

import json
import os

import mixed_text
import tokenizer_families
from tokenizers import Tokenizer

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers")
TEXTS = [
    "", " ", "  ", "\n", "a", "Hello, world! It's 2024.", "  two spaces  behind  ", "tab\tand\r\nline\n\n\nends \n x",
    "don't DON'T we'LL 'S x'\u017f 'd", "1234567890 12 3.14 \u0661\u0662\u0663 \u00bd \u216b", "\u4e2d\u6587\u6ca1\u6709\u7a7a\u683c \u65e5\u672c\u8a9e\u30ab\u30bf",
    "e\u0301te\u0301 \u00e9t\u00e9 a\u0323\u0302 \u212b \u1e9b\u0323 \ufb01n \uff21", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd \u2764\ufe0f\U0001f1e9\U0001f1ea",
    "<|endoftext|>a<|im_start|>user<mask> <mask>x <s>b</s> [CLS] fim fimx \u4e2d! [INST] <|eot_id|> <tool_call>", "\u2581a \u2581\u2581 b\u2581",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 \u0130stanbul \u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd \u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22", "int main(void) { return x[i] != -1 && y->z; } /* c */",
    "x" * 60 + " " * 30 + "ab" * 30, "\u00a0\u2003\u3000\u200b\ufeff\x0b\x0c\x85\u2028", "\x01\x7f\u00ad\u0378\ue000\U00100000\ufffd",
    mixed_text.mixed(700, seed=11, rare=mixed_text.old).decode(),
]


def main():
    os.makedirs(here, exist_ok=True)
    learn = [line for line in mixed_text.mixed(200000, seed=2, rare=mixed_text.old).decode().split("\n") if line]
    cases = {"texts": TEXTS, "plain": {}, "some": [0, 1, 5, 13], "all": {}, "decoded": {}}
    for family in tokenizer_families.FAMILIES:
        name = family.__name__
        path = os.path.join(here, name + ".json")
        family(learn, 384).save(path, pretty=False)
        tokenizer = Tokenizer.from_file(path)
        tokenizer.encode_special_tokens = True
        cases["plain"][name] = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
        tokenizer.encode_special_tokens = False
        cases["all"][name] = [tokenizer.encode(text).ids for text in (TEXTS[i] for i in cases["some"])]
        cases["decoded"][name] = [tokenizer.decode(cases["plain"][name][i]) for i in cases["some"]]
    with open(os.path.join(here, "cases.json"), "w", encoding="utf-8") as file:
        json.dump(cases, file, ensure_ascii=True, separators=(",", ":"))
        file.write("\n")


main()
