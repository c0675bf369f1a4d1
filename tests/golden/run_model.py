"""Runs a transformers model in f32 and records what tests compare with: greedy tokens and logits."""

import json

import torch

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)


@torch.no_grad()
def greedy(model, prompt, steps):
    """Logits [prompt + steps - 1, vocab] of every position, and the `steps` tokens chosen.

    One prefill, then decode steps over the KV cache: the way a server runs. EOS does not stop it.
    """
    out = model(torch.tensor([prompt]), use_cache=True)
    rows, tokens = [out.logits[0]], []
    while True:
        tokens.append(int(rows[-1][-1].argmax()))
        if len(tokens) == steps:
            return torch.cat(rows).float(), tokens
        out = model(torch.tensor([tokens[-1:]]), past_key_values=out.past_key_values, use_cache=True)
        rows.append(out.logits[0])


def continuation(prompt, logits, tokens, text=None):
    """One golden entry. `margins`: how far the chosen token was ahead of the second, per token."""
    last = logits[len(prompt) - 1 :]
    top = last.topk(2, dim=-1).values
    entry = {
        "prompt": prompt,
        "tokens": tokens,
        "margins": [round(float(m), 6) for m in top[:, 0] - top[:, 1]],
        "max_abs": [round(float(m), 6) for m in last.abs().amax(-1)],
    }
    return entry if text is None else {"text": text} | entry


def write(path, golden):
    """JSON with one entry of a list per line: small, and a diff shows which changed."""
    parts = []
    for key, value in golden.items():
        if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
            body = ",\n".join("  " + json.dumps(item, ensure_ascii=False) for item in value)
            parts.append(f" {json.dumps(key)}: [\n{body}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")
