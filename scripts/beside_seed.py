"""beside_seed.py RUN.json...: the seed's lines of each run beside the seed's own figures (GPT-2 on a CUDA GPU)."""

import json
import pathlib
import sys

# p50, p95, p99 in ms of 256 requests at once, 64 new tokens, max batch 64, prefill max batch 16.
SEED = {
    "add_request latency": (0.03, 0.06, 0.09),
    "Queue wait": (404.77, 512.30, 513.31),
    "Prefill->first token": (10.11, 11.21, 11.24),
    "TTFT": (414.69, 522.77, 523.75),
    "TPOT": (19.64, 22.51, 22.63),
    "ITL": (18.24, 29.59, 46.48),
    "Latency": (1656.38, 1685.28, 1685.90),
}
SEED_TOKENS_PER_S = 9594.75
FIELDS = {
    "add_request latency": ("add_request",),
    "Queue wait": ("queue_wait_total",),
    "Prefill->first token": ("segments", "prefill"),
    "TTFT": ("ttft",),
    "TPOT": ("tpot",),
    "ITL": ("itl",),
    "Latency": ("latency",),
}


def main(files):
    runs = {pathlib.Path(file).stem: json.loads(pathlib.Path(file).read_text()) for file in files}
    print(f"{'p50 / p95 / p99, ms':22}" + "".join(f"{name:>34}" for name in ["the seed, on a GPU", *runs]))
    for line, seed in SEED.items():
        cells = [seed, *(points(run, FIELDS[line]) for run in runs.values())]
        print(f"{line:22}" + "".join(f"{' / '.join(map(shown, cell)):>34}" for cell in cells))
    rates = [SEED_TOKENS_PER_S, *(run["throughput"]["output_tokens_per_s"] for run in runs.values())]
    print(f"{'Throughput, tokens/s':22}" + "".join(f"{shown(rate):>34}" for rate in rates))
    shares = [(404.77 / 414.69), *(share(run) for run in runs.values())]
    print(f"{'Queue wait / TTFT, p50':22}" + "".join(f"{shown(100 * s) + ' %':>34}" for s in shares))


def points(run, path):
    for key in path:
        run = run[key]
    return [run[point] for point in ("p50_ms", "p95_ms", "p99_ms")]


def share(run):
    return run["queue_wait_total"]["p50_ms"] / run["ttft"]["p50_ms"]


def shown(value):
    return "not measured" if value is None else f"{value:.2f}"


main(sys.argv[1:])
