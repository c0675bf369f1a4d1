#!/usr/bin/env python3
"""peer.py [DEVICE]: the seed's work through transformers' own generate, for a comparison on the same machine: GPT-2's
shape with random weights in bf16, 256 prompts of 5 tokens, 64 more each, greedy, 64 and 256 sequences at a time. It
batches statically: all of a batch starts and ends together, and nothing is streamed. JSON; nothing where this python
has no transformers."""

import json
import sys
import time

import torch

REQUESTS, PROMPT_TOKENS, NEW_TOKENS = 256, 5, 64
REPEATS = 3


def generate(model, prompts, at_a_time):
    """Seconds for all prompts."""
    began = time.perf_counter()
    for batch in prompts.split(at_a_time):
        out = model.generate(batch, attention_mask=torch.ones_like(batch), do_sample=False, pad_token_id=0,
                             min_new_tokens=NEW_TOKENS, max_new_tokens=NEW_TOKENS)
        assert out.shape == (len(batch), PROMPT_TOKENS + NEW_TOKENS), out.shape
        out.cpu()  # waits for the device
    return time.perf_counter() - began


def main():
    try:
        import transformers
    except ImportError:
        print("peer.py: this python has no transformers", file=sys.stderr)
        return
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    torch.manual_seed(0)
    config = transformers.GPT2Config()
    model = transformers.GPT2LMHeadModel(config).to(device, torch.bfloat16).eval()
    prompts = torch.randint(config.vocab_size, (REQUESTS, PROMPT_TOKENS), device=device)
    results = []
    for at_a_time in (64, 256):
        with torch.inference_mode():
            generate(model, prompts[:at_a_time], at_a_time)  # warms up
            runs = sorted(generate(model, prompts, at_a_time) for _ in range(REPEATS))
        tokens_per_s = [round(REQUESTS * NEW_TOKENS / seconds) for seconds in runs]
        results.append({"at_a_time": at_a_time, "tokens_per_s": tokens_per_s})
    print(json.dumps({"transformers": transformers.__version__, "torch": torch.__version__, "runs": results}, indent=1))


if __name__ == "__main__":
    main()
