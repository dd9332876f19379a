"""mixed_text.py - text that tokenizers find hard, the same for the same seed: words of many scripts,
code, emoji in sequences, marks, long runs of spaces, lines and digits, rare and unassigned characters,
and, if asked for, bytes that are no UTF-8.

    python mixed_text.py BYTES [--broken] >FILE
"""

import random
import sys
import unicodedata

WORDS = [
    "the of and to in is that for it was on are as with his they at be this have from or one had by word",
    "It's we'll I'd they've you're I'M SHE'LL don't can't 's 're x'd o'clock rock'n'roll l'été d'un 'tis",
    "été naïve Straße ŒUVRE İstanbul ıspanak ßharfes coöperate Ünïcödé fjörd ŁÓDŹ São Zürich œuvre ǅ ﬁn",
    "Привет мир это тест ёлка ЙОД и ещё слова Жизнь ъ ЩУКА їжак Київ",
    "Ελληνικά λόγος ΣΊΣΥΦΟΣ άνθρωπος ϊ ΐ Ωμέγα",
    "中文 文本 没有空格的句子 漢字 㐀 𠀀𠀁 日本語 カタカナ ひらがな が か\u3099 ﾊﾟ 한국어 텍스트 각 각 ㄱ",
    "हिन्दी पाठ क्षत्रिय नमस्ते বাংলা தமிழ் తెలుగు ಕನ್ನಡ ไทยไม่เว้นวรรค ភាសាខ្មែរ မြန်မာ བོད་",
    "עברית שָׁלוֹם العربية نَصٌّ لا ﷺ فارسی اردو ٣٤٥ ۱۲۳ १२३ 一二三 Ⅷ ½ ²³ ① ㊿",
    "😀 👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️ 🏳️‍🌈 🤷🏻‍♀️ ☃ ✈ 1️⃣ 🫠 ‍ ️",
    "e\u0301 a\u0323\u0302 o\u0302\u0323 Z\u0351\u036b\u0343 \u0301 q\u0307\u0323 \u1e9b\u0323 \u212b \u2126 \ufb01 \uff21 \u00a0x \u3000",
    "int main(void) { return x[i] != -1 && y->z; } /* c */ #include <a.h> f(a,b); ++i; a<<=2; $x = \"\\n\";",
    "def f(self, *args): return {'k': [1, 2.5e-3]} # ok lambda x: x**2 if x else None ``code`` ~~no~~ <|x|>",
    "0 1 12 123 1234 12345678901234567890 3.14159 1,000,000 0xFF 1e-10 2024-01-02T03:04:05Z v1.2.3-rc4",
    "<|endoftext|> <|im_start|>user <s> </s> <mask> <mask><mask> [CLS] [MASK] [INST]x[/INST] <unk> fim fimx 中! "
    "<|eot_id|><|start_header_id|> <tool_call> <0x41> \u2581 \u2581\u2581a a\u2581b <|endoftext <|im_end|>|>",
    "... !!! ?! -- --- === ____ *** «q» “q” ‘q’ „q“ — – … © ® ™ § ¶ € £ ₿ ∑ ∞ ≠ → ⇒ ∀x∈ℝ",
]
GAPS = [" "] * 40 + ["  ", "   ", "    ", "\t", "\n", "\n\n", "\r\n", " \n", "\n ", " \n \n", "", "", "\u00a0",
        "\u2003", "\u3000", "\u200b", "\u2028", "\x0b", "\x0c", "\x85", "\ufeff"]
BROKEN = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\x80\x80", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80",
          b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xfe\xfe"]


def run(draw):
    """A long run of one thing."""
    thing = draw.choice([" ", "\n", "\r\n", "\t", "=", "-", "0", "7", "a", "ab", "é", "的", "😀", ".", " \n", "١", "\u0301"])
    return thing * draw.randint(2, draw.choice([8, 60, 400]))


def any_character(code):
    return True


def old(code):
    """Of Unicode 3.2, and of the same kind in it: `tokenizers` keeps an old version for BERT's classes."""
    kind = unicodedata.ucd_3_2_0.category(chr(code))
    return kind != "Cn" and kind == unicodedata.category(chr(code))


def draw_rare(draw, is_wanted):
    """Any character: assigned, private or not."""
    code = draw.choice([draw.randrange(0x250), draw.randrange(0x3000), draw.randrange(0x10000), draw.randrange(0x110000)])
    return "" if 0xD800 <= code < 0xE000 or code == 0 or not is_wanted(code) else chr(code)


def mixed(size, seed=1, broken=False, rare=any_character):
    """About size bytes."""
    draw = random.Random(seed)
    rows = [row.split(" ") for row in WORDS]
    out, length = [], 0
    while length < size:
        row = draw.choice(rows)
        sentence = []
        for _ in range(draw.randint(1, 30)):
            word = draw.choice(row)
            kind = draw.random()
            if kind < 0.05:
                word = word.upper()
            elif kind < 0.1:
                word = word.capitalize()
            elif kind < 0.12:
                word += draw.choice(draw.choice(rows))
            elif kind < 0.125:
                word = run(draw)
            elif kind < 0.13:
                word += draw_rare(draw, rare)
            sentence.append(word + draw.choice(GAPS))
        text = "".join(sentence).encode()
        if broken and draw.random() < 0.2:
            at = draw.randrange(len(text) + 1)
            text = text[:at] + draw.choice(BROKEN) + text[at:]
        out.append(text)
        length += len(text)
    return b"".join(out)


if __name__ == "__main__":
    sys.stdout.buffer.write(mixed(int(sys.argv[1]), broken="--broken" in sys.argv))
