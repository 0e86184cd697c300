"""Texts on which tokenizers go wrong: digits, spaces, scripts, marks, look-alikes of control tokens, very long words."""
import random

PROSE = (
    "The quick brown fox jumps over the lazy dog. \"Don't panic,\" she'd said; they'll've gone by 10:30 o'clock!\n"
    "It's 3.14159, not 22/7 -- isn't it? We're sure you'd agree (or won't).\n\nTHE END; I'M, YOU'RE, HE'LL, it'S\n"
)
CODE = (
    "#include <stdio.h>\r\nint main(int argc, char **argv) {\r\n\tfor (int i = 0; i < 10; ++i)\r\n\t\tprintf(\"%d\\n\", i);\r\n"
    "\treturn 0;\r\n}\r\n\r\n    def f(x):\n        return x**2  # comment\n\n\n\tif a==b&&c!=d||e<=f: pass\n"
    "https://example.com/a/b?c=d&e=%20f#g snake_case camelCase SCREAMING_CASE kebab-case x[0]->y::z\n"
)
SCRIPTS = [
    "日本語の文章です。私は東京へ行きました。カタカナとひらがな、漢字ー々ゝ。",
    "中文文本，测试分词器。今天天气很好！",
    "한국어 문장입니다. 안녕하세요?",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "हिन्दी में लिखा हुआ वाक्य। क्षत्रिय",
    "نص عربي للاختبار، مرحبا بالعالم",
    "עברית עם נִקּוּד",
    "Русский текст и українська мова",
    "Ελληνικά ΑΒΓ ΣΑΣ",
    "Tiếng Việt có dấu, naïve café Ångström ßẞ İıſ ﬁﬂ",
    "Cafe\u0301 e\u0300\u0302 か\u3099 à\u0327 x\u0336y\u0336 \u0301alone",
]
EMOJI = "😀👩‍🚀👨‍👩‍👧‍👦🏳️‍🌈🇯🇵👍🏽 ☕️✈ ⁉️ 1️⃣ \U0001FAE8"
ODD = [
    "\ufffd", "a\ufffd\ufffdb", "\u3000全角\u3000空白", "\u00a0nbsp\u00a0x", "\u0085nel\u0085x", "zero\u200bwidth\u200d\u200c\ufeffx",
    "it'\u017f don'\u017ft 'S 'LL 'Ve", "\u2028line\u2029para", "\x00\x01\x1c\x1f\x7f control", "½ ⅷ ① ٣ १२३ 𝟜 ² ³", "１２３４５６７８９０",
    "\u2581lower\u2581one\u2581\u2581two", "Ġhello Ċ", "",  " ", "\n", "\t", "\r", "\r\n", "a", " a", "a ", "  a  ", "'", "''s", "'s", " 's",
    "𐐀𐐁 ꙮ \U00020000 \U000E0001", "ａｂｃ ＜｜ＡＢ", "Ⅷ Ⅻ ㍿ ㎏", "a\u00adb", "\ue000\U000F0000\U0010FFFD",
]
LOOKALIKES = [
    "<|im_start", "<|im_start|", "<|im_start|>user\nx<|im_end|>", "<0x41><0x0A>", "<|end|>", "<|endoftext|>", "<s>a</s>", "<bos>b<eos>",
    "[INST] x [/INST]", "<think>x</think>", "<tool_call>{}</tool_call>", "<|begin_of_text|>a<|eot_id|>", "<unk><pad><mask>", "[CLS] [SEP] [MASK]",
    "<|start|>system<|message|>x<|return|>", "<start_of_turn>user\n<end_of_turn>", "< s > <\u200bs>", "<｜User｜>x<｜Assistant｜>", "<h1>T</h1><b>x</b>",
    "a<|im_end|>b <|im_end|> c", "<unused0>[multimodal]", "<|reserved_special_token_0|>", "<|fim_prefix|>x<|fim_suffix|>",
]


def runs():
    for n in range(1, 41):
        yield " " * n
        yield f"a{' ' * n}b"
        yield f"{chr(10) * n}x"
        yield f"x {chr(10) * n} y"
    for n in range(1, 13):
        digits = "1234567890123"[:n]
        yield digits
        yield f"n={digits}."
        yield "".join(chr(0xFF10 + int(d)) for d in digits)
        yield "\t" * n + "x"
        yield "\r\n" * n + "x"
        yield "=" * n + "-" * n


def random_texts(count, seed=1):
    rng = random.Random(seed)
    alphabet = "abcXYZ019 \n\t\r'.,!<>|_/-" + "éßİſ\u0301\u3099日本ーア한ไท्का١½😀\u200d\u00a0\u3000\u0085\ufeff\ufffd▁ĠＡ１"
    for _ in range(count):
        yield "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 60)))


def corpus(random_count=400):
    """Some 900 short texts, in a fixed order."""
    texts = [PROSE, CODE, *SCRIPTS, EMOJI, *ODD, *LOOKALIKES, *runs(), *random_texts(random_count)]
    return texts + [PROSE + CODE + "".join(SCRIPTS) + EMOJI]


def long_words():
    """1 MB without a space, and 100 kB of spaces."""
    return {"1 MB of letters": "abcdefghij" * 100_000, "1 MB of one letter": "a" * 1_000_000,
            "1 MB of kanji": "漢字仮名交文" * 55_000, "100 kB of spaces": "x" + " " * 100_000 + "y"}
