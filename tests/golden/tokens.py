"""Token ids of awkward text: GPT-2's by transformers, SmolLM2's by llama.cpp."""

import pathlib
import shutil
import tempfile

import transformers

import run_model

TEXTS = [
    "The capital of France is",
    "Hello, world!",
    " leading space",
    "trailing space ",
    "a  1",
    "a   b    c     d",
    " " * 33,
    "x" + " " * 100 + "y",
    "\n",
    "\n\n\n\n",
    "a\nb\r\nc\n\n d\n  e",
    "\ttab\t\ttabs",
    " \n \t \n",
    "0",
    "2026-11-29",
    "1234567890",
    "x1y22",
    "3.14159 2,718,281 0xFF 1e-9",
    "½ ²",
    "٣٤٥ १२३ Ⅷ",
    "I'm you're we've they'll he'd it's can't",
    "I'M YOU'RE don’t",
    "...!!!???",
    "a.b,c;d:e",
    "C++ && C# || $x = @y[0] ^ ~z;",
    "    def f(x):\n        return x ** 2  # square\n",
    "<html><body class=\"a\">&amp;</body></html>",
    "https://example.com/a?b=c&d=%20#e",
    "naïve café Ångström",
    "cafe\u0301 e\u0301 vs é",
    "\ufb01ne o\ufb03ce",
    "Å \u212b A\u030a",
    "ﬀ ｆｕｌｌ ＷＩＤＴＨ",
    "Straße ẞ ß",
    "Привет, мир!",
    "Γειά σου Κόσμε",
    "שלום עולם",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "你好，世界！",
    "こんにちは世界、カタカナ",
    "안녕하세요 세계",
    "𠜎𠜱𠝹 𓀀 𝔘𝔫𝔦",
    "😀",
    "😀😃 😄",
    "👩‍👩‍👧‍👦 family",
    "👍🏽 🇫🇷🇩🇪 ❤️",
    "a\u200bb\u200cc\u00a0d\u3000e\ufefff",
    "a\u0000b\u0001c\u007fd",
    "a\u0004b",
    "\u2028line\u2029para",
    "e" + "\u0301" * 12,
    "<|endoftext|>",
    "a<|endoftext|>b",
    "<|endoftext|><|endoftext|>",
    "< |endoftext|>",
    "<|im_start|>user\nHi<|im_end|>\n",
    "<|IM_START|> <im_start> |im_end|>",
    "<repo_name>x<file_sep>y",
    "<0x0A> <s></s> [INST] <unk>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "antidisestablishmentarianism Donaudampfschifffahrtsgesellschaft",
    "ALLCAPS lowercase CamelCase snake_case kebab-case",
    "The\u00adsoft\u00adhyphen",
    "1 + 1 = 2; 10 − 3 ≈ 7 × 1 ÷ 1 ≠ ∞",
    "“quoted” ‘text’ «guillemets» — – …",
    "mixed中文and英文123混合",
    "",
]


def write(folder, gpt2_files, model_file, llama):
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as renamed:
        vocab, merges = pathlib.Path(renamed, "vocab.json"), pathlib.Path(renamed, "merges.txt")
        shutil.copy(gpt2_files / "encoder.json", vocab)
        shutil.copy(gpt2_files / "vocab.bpe", merges)
        gpt2 = transformers.GPT2TokenizerFast.from_pretrained(renamed)
    run_model.write(
        folder / "gpt2.json",
        {
            "about": "`ids`: special tokens in the text are parsed; `plain`: they are text (given where that differs).",
            "made_with": f"transformers {transformers.__version__}, vocabulary tests/fixtures/gpt2",
            "texts": [entry(text, lambda t, special: gpt2_ids(gpt2, t, special)) for text in TEXTS],
        },
    )
    run_model.write(
        folder / "smollm2.json",
        {
            "about": "`ids`: special tokens in the text are parsed; `plain`: they are text (given where that differs).",
            "made_with": f"llama.cpp as of llama-cpp-cffi 0.4.42, vocabulary of {model_file.name}",
            "texts": [entry(text, llama.tokenize) for text in TEXTS],
        },
    )


def gpt2_ids(tokenizer, text, special):
    return tokenizer(text, split_special_tokens=not special)["input_ids"]


def entry(text, tokenize):
    ids, plain = tokenize(text, True), tokenize(text, False)
    return {"text": text, "ids": ids} | ({} if plain == ids else {"plain": plain})
