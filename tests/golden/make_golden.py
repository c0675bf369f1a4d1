"""make_golden.py [PART...]: writes the golden files beside this script again, all or the parts named.

Run once and committed; tests only read the files. Needs requirements.txt and `make setup`'s model.
"""

import os
import pathlib
import sys

import gguf_files
import perplexity
import smollm2
import tiny_models
import tokens
from llama_cpp import LlamaCpp

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
MODEL = pathlib.Path(os.environ.get("FIRSTLIGHT_MODEL") or CACHE / "firstlight/models/SmolLM2-135M-Instruct.Q4_1.gguf")


def gguf_fixtures():
    (FIXTURES / "gguf").mkdir(parents=True, exist_ok=True)
    gguf_files.write_types(FIXTURES / "gguf")
    gguf_files.write_tiny_llama(FIXTURES / "gguf", HERE / "tiny-llama")


PARTS = {
    "tiny": lambda: tiny_models.write(HERE),
    "gguf": gguf_fixtures,
    "tokens": lambda: tokens.write(HERE / "tokens", FIXTURES / "gpt2", MODEL, LlamaCpp(MODEL)),
    "perplexity": lambda: perplexity.write(HERE / "perplexity", LlamaCpp(MODEL).tokenize),
    "smollm2": lambda: smollm2.write(HERE / "smollm2", MODEL, LlamaCpp(MODEL).tokenize),
}

for part in sys.argv[1:] or PARTS:
    print(part, flush=True)
    PARTS[part]()
