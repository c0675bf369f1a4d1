"""SmolLM2-135M-Instruct from its GGUF, dequantized to f32: greedy continuations and chosen logits."""

import gguf
import torch
import transformers

import run_model

STEPS = 20
# Logits of the prefill's last row and of the next five steps, for these prompts.
LOGITS_OF = [0, 3, 7, 12, 19]
LOGIT_STEPS = 6
PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "1, 2, 3, 4, 5,",
    "def fibonacci(n):\n    ",
    "Water boils at",
    "<|im_start|>user\nWhat is the largest planet?<|im_end|>\n<|im_start|>assistant\n",
    "To be, or not to be,",
    "The three primary colours are",
    "Dear Sir or Madam,\n\n",
    "A",
    "In 1969, ",
    "Die Hauptstadt von Deutschland ist",
    "The quick brown fox jumps over the lazy dog. The quick brown fox",
    "Recipe: pancakes\nIngredients:\n-",
    "Q: Why is the sky blue?\nA:",
    "SELECT name, age FROM users WHERE",
    "My favourite season is autumn because",
    "The opposite of hot is",
    "Roses are red,\nviolets are blue,\n",
    "A computer is a machine that can be told to carry out long sequences of arithmetic or logical operations. "
    "Modern computers can run programs, which let them perform a wide range of tasks. A computer system is the "
    "hardware, the operating system and the software needed for full operation. This is why, in everyday life, "
    "computers",
]


def write(folder, model_file, tokenize):
    model = load(model_file)
    continuations, rows = [], []
    for index, text in enumerate(PROMPTS):
        prompt = tokenize(text)
        logits, tokens = run_model.greedy(model, prompt, STEPS)
        continuations.append(run_model.continuation(prompt, logits, tokens, text))
        if index in LOGITS_OF:
            rows += chosen_logits(index, len(prompt) - 1, logits)
    folder.mkdir(exist_ok=True)
    run_model.write(
        folder / "golden.json",
        {
            "about": "f32 of the dequantized file, eager attention; prompt ids by llama.cpp, special tokens parsed. "
            "logits: at `position` of prompt + tokens, the ids with the 16 largest and 48 spread over the vocabulary.",
            "made_with": f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}",
            "model": model_file.name,
            "vocab": model.config.vocab_size,
            "continuations": continuations,
            "logits": rows,
        },
    )


def load(model_file):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_file.parent, gguf_file=model_file.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    # The conversion is trusted only as far as it says what the file says.
    fields = {name: field.contents() for name, field in gguf.GGUFReader(model_file).fields.items()}
    config = model.config
    theta = getattr(config, "rope_theta", None) or config.rope_parameters["rope_theta"]
    assert theta == fields["llama.rope.freq_base"] == 100000.0, theta
    assert config.num_hidden_layers == fields["llama.block_count"]
    assert config.num_attention_heads == fields["llama.attention.head_count"]
    assert config.num_key_value_heads == fields["llama.attention.head_count_kv"]
    assert abs(config.rms_norm_eps - fields["llama.attention.layer_norm_rms_epsilon"]) < 1e-9
    assert config.vocab_size == len(fields["tokenizer.ggml.tokens"])
    return model


def chosen_logits(index, first, logits):
    rows = []
    spread = range(0, logits.shape[-1], logits.shape[-1] // 48)
    for position in range(first, first + LOGIT_STEPS):
        row = logits[position]
        ids = sorted(set(row.topk(16).indices.tolist()) | set(spread))
        rows.append(
            {
                "continuation": index,
                "position": position,
                "max_abs": round(float(row.abs().max()), 6),
                "ids": ids,
                "values": [round(float(row[i]), 5) for i in ids],
            }
        )
    return rows
