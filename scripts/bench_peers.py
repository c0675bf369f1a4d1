"""Other servers and ours on this machine, same model, same load, same client, in turns.

    bench_peers.py [--rounds 3] [--only NAME,...] [--out out/bench-peers]

Each round runs every workload against every server, one server at a time; the table shows medians over the
rounds with the least and the greatest, and our figure over the best peer's of the same round.
"""

import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
import install  # noqa: E402
from servers import LlamaCpp, Ours, Vllm  # noqa: E402
from services import Failed  # noqa: E402

BENCH = "target/release/bench-client"
ONE_BY_ONE = ["--max-concurrency", 1]

# Requests sent before those that count.
WARM_UP = 4

# name: requests active at most, requests in all, precisions, load, figures
WORKLOADS = {
    "64 active, 256 × (5 → 64)": (
        64, 256, ("bf16", "int8"), ["--input-len", 5, "--max-new-tokens", 64], ("tokens/s", "TTFT mean"),
    ),
    "one stream, 128 → 64": (
        1, 8, ("bf16", "q4_1"), [*ONE_BY_ONE, "--input-len", 128, "--max-new-tokens", 64], ("TPOT", "TTFT"),
    ),
    "prefill of 512": (
        1, 8, ("bf16", "int8"), [*ONE_BY_ONE, "--input-len", 512, "--max-new-tokens", 1], ("prompt tokens/s",),
    ),
    "64 × (512 → 64) at once": (
        64, 64, ("bf16",), ["--input-len", 512, "--max-new-tokens", 64], ("tokens/s", "TPOT p99"),
    ),
}  # fmt: skip

# name: value of a run, whether more is better
FIGURES = {
    "tokens/s": (lambda run: run["throughput"]["output_tokens_per_s"], True),
    "prompt tokens/s": (lambda run: 1e3 * 512 / run["ttft"]["p50_ms"], True),
    "TTFT": (lambda run: run["ttft"]["p50_ms"], False),
    "TTFT mean": (lambda run: run["ttft"]["mean_ms"], False),
    "TPOT": (lambda run: run["tpot"]["p50_ms"], False),
    "TPOT p99": (lambda run: run["tpot"]["p99_ms"], False),
}
UNITS = {"TTFT": "ms", "TTFT mean": "ms", "TPOT": "ms", "TPOT p99": "ms"}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--only", default="", help="part of the names of the workloads to run, by commas")
    arguments.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench-peers"))
    options = arguments.parse_args()
    # Ended by a signal, it stops its servers all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    workloads = {
        name: workload
        for name, workload in WORKLOADS.items()
        if any(part in name for part in options.only.split(","))
    }
    peers = install.installed()
    if not peers:
        sys.exit("bench-peers: no peer could be installed")
    options.out.mkdir(parents=True, exist_ok=True)
    runs = {}
    for turn in range(options.rounds):
        for name, (active, requests, precisions, load, _) in workloads.items():
            for server in competitors(peers, precisions):
                print(f"{turn + 1}/{options.rounds} {name}: {server_key(server)}", flush=True)
                result = measure(server, active, requests, load, options.out)
                runs.setdefault(name, {}).setdefault(server_key(server), []).append(result)
        (options.out / "runs.json").write_text(json.dumps(runs))
    print()
    for server in competitors(peers, ("bf16",)):
        print(f"{server.name} {server.version()}", end="   ")
    print("\n")
    for name, results in runs.items():
        show(name, results, WORKLOADS[name][-1])


def competitors(peers, precisions):
    """Every server in every precision it has; ours first."""
    for precision in precisions:
        yield Ours(install.MODEL_FILE, precision)
        if "llama.cpp" in peers and precision in ("bf16", "q4_1"):
            model = install.MODEL_FILE if precision == "q4_1" else install.PEERS / "bf16.gguf"
            yield LlamaCpp(peers["llama.cpp"], model, precision)
        if "vLLM" in peers and precision == "bf16":
            yield Vllm(peers["vLLM"], install.PEERS / "bf16", precision)


def server_key(server):
    return f"{server.name} {server.precision}"


def measure(server, active, requests, load, out):
    """One run as bench-client's JSON, or None where it failed, with the reason printed."""
    log, result = out / f"{server.name}-{server.precision}.log", out / "run.json"
    result.unlink(missing_ok=True)
    try:
        with server.serving(active, log) as target:
            bench(target, load, WARM_UP)
            done = bench(target, load, requests, "--json-out", result)
    except Failed as reason:
        print(f"  {server.name} {reason}", file=sys.stderr)
        return None
    if done.returncode != 0 or not result.exists():
        print(f"  bench-client ended with {done.returncode}: {done.stderr.strip()}", file=sys.stderr)
        return None
    return json.loads(result.read_text())


def bench(target, load, requests, *more):
    fixed = ["--dataset", "random", "--no-stop-on-eos", "--no-prefix-cache", "--quiet", "--warmup-runs", 0]
    command = [BENCH, "run", *target, *fixed, "--num-requests", requests, *load, *more]
    return subprocess.run([str(part) for part in command], stderr=subprocess.PIPE, text=True)


def show(name, results, figures):
    print(name)
    for figure in figures:
        value, more_is_better = FIGURES[figure]
        values = {key: [value(run) if run else None for run in runs] for key, runs in results.items()}
        for key, rounds in values.items():
            measured = [value for value in rounds if value is not None]
            if not measured:
                print(f"  {figure:16} {key:18} not measured")
                continue
            ratio = over_best_peer(values, key, more_is_better)
            print(f"  {figure:16} {key:18} {spread(measured):>28} {UNITS.get(figure, ''):3} {ratio}")
    for key, runs in results.items():
        shares = [share for share in map(unexplained, filter(None, runs)) if share is not None]
        if shares:
            print(f"  {'unexplained':16} {key:18} {statistics.median(shares):28.2f} % of TTFT")
    print()


def over_best_peer(values, key, more_is_better):
    """Ours over the best peer of each round in the same precision, or in bf16 where no peer has ours: above 1 is
    better, also where less is."""
    name, precision = key.split()
    if name != Ours.name:
        return ""
    peers = {peer: rounds for peer, rounds in values.items() if not peer.startswith(Ours.name) and any(rounds)}
    alike = [rounds for peer, rounds in peers.items() if peer.split()[1] == precision]
    alike = alike or [rounds for peer, rounds in peers.items() if peer.split()[1] == "bf16"]
    best = max if more_is_better else min
    ratios = []
    for mine, *theirs in zip(values[key], *alike, strict=True):
        # Without one of them it would be another best peer.
        if mine is not None and None not in theirs:
            ratios.append(mine / best(theirs) if more_is_better else best(theirs) / mine)
    return f"× {spread(ratios, 2)} the best peer" if ratios else ""


def spread(values, digits=1):
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def unexplained(run):
    """Percent of mean TTFT that the server's own metrics, or our chain, leave unexplained."""
    server, mean = run.get("server") or {}, run["ttft"]["mean_ms"]
    if server.get("queue_ms") is not None and server.get("prefill_ms") is not None:
        return 100 * (mean - server["queue_ms"] - server["prefill_ms"]) / mean
    return run["unexplained"]["percent_of_ttft"] if run["backend"] == Ours.name else None


if __name__ == "__main__":
    main()
