"""Tiny random models as Hugging Face folders, with their logits and greedy continuations.

Each folder: config.json, model.safetensors, tokenizer.json (byte-level BPE, 272 ids), golden.json,
logits.f32 (little endian, row-major [rows, vocab]; golden.json's `logits` says which row is what).
"""

import json
import random

import tokenizers
import torch
import transformers

import run_model

VOCAB = 272
STEPS = 16
# One token, both sides of a KV block of 16, and up to the longest that still fits the context.
PROMPT_LENGTHS = [1, 2, 3, 4, 5, 7, 8, 11, 15, 16, 17, 20, 24, 31, 32, 33, 40, 47, 48, 60]
# Full prefill of the first two, decode steps of all four.
LOGITS_OF = [6, 11, 0, 19]

SHAPE = dict(vocab_size=VOCAB, bos_token_id=0, eos_token_id=0, pad_token_id=0)
LLAMA = SHAPE | dict(
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=96,
    rms_norm_eps=1e-5,
    attn_implementation="eager",
)
MODELS = {
    # name: (config, stored as)
    "tiny-gpt2": (
        transformers.GPT2Config(
            **SHAPE, n_positions=96, n_embd=48, n_layer=2, n_head=3, attn_implementation="eager"
        ),
        torch.float32,
    ),
    # Grouped heads, an lm_head of its own, bf16 on disk as most are published.
    "tiny-llama": (
        transformers.LlamaConfig(**LLAMA, rope_theta=10000.0, tie_word_embeddings=False),
        torch.bfloat16,
    ),
    # Biases on q, k, v.
    "tiny-qwen2": (
        transformers.Qwen2Config(**LLAMA, rope_theta=1e6, tie_word_embeddings=True),
        torch.float16,
    ),
    # Norms on q and k, and a head dimension that is not hidden / heads.
    "tiny-qwen3": (
        transformers.Qwen3Config(**LLAMA | dict(hidden_size=48), head_dim=16, rope_theta=1e6, tie_word_embeddings=True),
        torch.bfloat16,
    ),
}


def write(folder):
    tokenizer = byte_level_bpe()
    for name, (config, stored) in MODELS.items():
        model = random_model(config, stored)
        model.save_pretrained(folder / name, max_shard_size="1GB")
        (folder / name / "generation_config.json").unlink(missing_ok=True)
        if name == "tiny-llama":
            spell_as_before_transformers_5(folder / name / "config.json")
        tokenizer.save(str(folder / name / "tokenizer.json"), pretty=False)
        # What a reader of the folder sees, in f32: the stored precision is part of the model.
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder / name, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        record(folder / name, name, model)


def random_model(config, stored):
    """Weights large enough that layers outweigh the embedding; no bias zero and no norm one, so that each is seen."""
    torch.manual_seed(20)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            center = 1.0 if "norm" in name or ".ln_" in name else 0.0
            center = 0.0 if name.endswith("bias") else center
            weight.data = center + 0.2 * torch.randn(weight.shape)
        else:
            weight.data = 0.15 * torch.randn(weight.shape)
    model.tie_weights()
    return model.to(stored)


def spell_as_before_transformers_5(path):
    """Most published folders say it this way; the other models here keep the new way."""
    config = json.loads(path.read_text())
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2) + "\n")


def record(folder, name, model):
    random.seed(name)
    prompts = [[random.randrange(4, VOCAB) for _ in range(length)] for length in PROMPT_LENGTHS]
    continuations, rows, raw = [], [], bytearray()
    for index, prompt in enumerate(prompts):
        logits, tokens = run_model.greedy(model, prompt, STEPS)
        continuations.append(run_model.continuation(prompt, logits, tokens))
        if index in LOGITS_OF:
            first = 0 if index in LOGITS_OF[:2] else len(prompt) - 1
            for position in range(first, len(prompt) + 8):
                rows.append({"continuation": index, "position": position})
                raw += logits[position].contiguous().numpy().astype("<f4").tobytes()
    (folder / "logits.f32").write_bytes(bytes(raw))
    run_model.write(
        folder / "golden.json",
        {
            "about": "f32, eager attention. logits[i] is row i of logits.f32: the output at `position` of prompt + tokens.",
            "made_with": f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}",
            "vocab": VOCAB,
            "continuations": continuations,
            "logits": rows,
        },
    )


def byte_level_bpe():
    """<|endoftext|>, <|user|>, <|end|>, <|pad|>, the 256 bytes and the 12 commonest merges of a sentence."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<|endoftext|>", "<|user|>", "<|end|>", "<|pad|>"],
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the capital of the land is the heart of the land"] * 4, trainer)
    assert tokenizer.get_vocab_size() == VOCAB
    return tokenizer
