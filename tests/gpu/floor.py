#!/usr/bin/env python3
"""floor.py HOST:PORT: mean time of decode forwards by bucket, by the GPU's own clock, from an engine's /metrics, beside
the least that its memory allows: the weights of GPT-2 124M in 16 bits, read once, at the bandwidth of a copy measured
here. JSON."""

import json
import re
import sys
import urllib.request

import torch

WEIGHT_BYTES = 2 * 124_439_808
COPY_BYTES = 1 << 30


def copy_bandwidth():
    """Bytes read and written per second."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return 2 * COPY_BYTES / min(times)


def decode_forwards(page):
    """Mean seconds, and how many, by bucket."""
    series = re.compile(r'firstlight_engine_device_seconds_(sum|count)\{([^}]*)\} (\S+)')
    found = {}
    for which, labels, value in series.findall(page):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if labels["kind"] == "decode":
            found.setdefault(int(labels["bucket"]), {})[which] = float(value)
    return {bucket: (of["sum"] / of["count"], int(of["count"])) for bucket, of in sorted(found.items()) if of["count"]}


def main():
    page = urllib.request.urlopen(f"http://{sys.argv[1]}/metrics").read().decode()
    bandwidth = copy_bandwidth()
    floor = WEIGHT_BYTES / bandwidth
    forwards = [
        {"bucket": bucket, "forwards": count, "mean_us": round(1e6 * mean, 1), "of_floor": round(mean / floor, 2)}
        for bucket, (mean, count) in decode_forwards(page).items()
    ]
    print(json.dumps({
        "gpu": torch.cuda.get_device_name(), "copy_gb_per_s": round(bandwidth / 1e9, 1),
        "floor_us": round(1e6 * floor, 1), "decode_forwards": forwards,
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
