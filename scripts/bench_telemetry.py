#!/usr/bin/env python3
"""What telemetry, or a shadow, costs: CPU time per token of engine-svc + scheduler-svc with it and without.

Two pairs over the sim backend. On: metrics recorded and scraped every 5 s, every span of both services watched,
timelines in the final messages. Off: the services run with --no-telemetry (no recorder, no spans, no timelines) and the
client neither watches nor asks for timelines. With --of shadow telemetry is on in both, and one scheduler has a
--shadow-policy. Every run keeps the engine full: 256 requests in flight, 64 decode rows per forward. Both pairs run at
once, so that whatever the machine does meanwhile happens to both; they start in the order on, off, then off, on. Each
block has pairs of its own: where memory happens to lie makes more of a difference than one run to the next.

Prints each block and the mean difference with its 95 % confidence interval; fails when the interval reaches above 3 %
(telemetry) or 2 % (a shadow). Wants `make build` first. --blocks N: blocks of four runs (default 20, for a shadow 40:
what it costs is nearer to its limit).
"""

import argparse
import concurrent.futures
import contextlib
import json
import math
import subprocess
import sys
import threading
import time
import urllib.request
from services import PROGRAMS, await_true, free_ports, healthy, process

OUT = PROGRAMS.parent.parent / "out" / "bench-telemetry"
LIMIT_PERCENT = {"telemetry": 3.0, "shadow": 2.0}
BLOCKS = {"telemetry": 20, "shadow": 40}
START_APART_S = 0.2
# Batches of spans are sent, and a shadow works, up to a second after the last answer.
SETTLES_S = 1.2
# As deploy/prometheus asks.
SCRAPE_EVERY_S = 5.0
# Two-sided 95 % quantiles of Student's t by degrees of freedom.
T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262,
        10: 2.228, 14: 2.145, 19: 2.093, 39: 2.023}
LOAD = ["--num-requests", "1152", "--max-concurrency", "256", "--max-new-tokens", "64", "--no-stop-on-eos",
        "--unique-prompts", "--warmup-runs", "0", "--no-self-check"]


class Pair:
    """One engine and one scheduler, with or without telemetry, with or without a shadow."""

    def __init__(self, name, telemetry=True, shadow=False):
        self.name = name
        self.telemetry = telemetry
        self.stopped = threading.Event()
        self.started = contextlib.ExitStack()
        engine, self.target, self.admin, *self.pages = (f"127.0.0.1:{port}" for port in free_ports(*[0] * 5))
        off = [] if telemetry else ["--no-telemetry"]
        policy = OUT / "shadow.json"
        policy.write_text('{"prefill_max_batch_size": 64}')
        shadow = ["--shadow-policy", policy] if shadow else []
        services = (
            ("engine-svc", engine, ["--backend", "sim", "--metrics-listen", self.pages[1]]),
            ("scheduler-svc", self.target,
             ["--engine", engine, "--admin-listen", self.admin, "--metrics-listen", self.pages[0],
              *shadow]),
        )  # fmt: skip
        self.processes = []
        for program, address, flags in services:
            log = OUT / f"{name}-{program}.log"
            command = [PROGRAMS / program, "--listen", address, *flags, *off]
            self.processes.append(self.started.enter_context(process(command, log)))
            await_true(self.processes[-1], log, lambda program=program, address=address: healthy(program, address))
        if telemetry:
            threading.Thread(target=self.scrape, daemon=True).start()

    def cpu_ns(self):
        """CPU time of both services so far, from the kernel's per-process CPU clocks."""
        return sum(time.clock_gettime_ns((~process.pid << 3) | 2) for process in self.processes)

    def microseconds_per_token(self):
        """One run of the load."""
        file = OUT / f"{self.name}.json"
        flags = [] if self.telemetry else ["--no-telemetry"]
        before = self.cpu_ns()
        subprocess.run([PROGRAMS / "bench-client", "run", "--quiet", "--target", self.target, "--admin", self.admin,
                        *LOAD, *flags, "--json-out", file], check=True)
        time.sleep(SETTLES_S)
        used = self.cpu_ns() - before
        return used / 1e3 / json.loads(file.read_text())["requests"]["completion_tokens"]

    def scrape(self):
        while not self.stopped.wait(SCRAPE_EVERY_S):
            for page in self.pages:
                urllib.request.urlopen(f"http://{page}/metrics").read()

    def stop(self):
        self.stopped.set()
        self.started.close()


def at_once(*pairs):
    """What each pair takes, all of them under load, in the order in which they start."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        runs = []
        for pair in pairs:
            runs.append(pool.submit(pair.microseconds_per_token))
            time.sleep(START_APART_S)
        return [run.result() for run in runs]


def one_block(what):
    with contextlib.ExitStack() as stack:
        pairs = []
        for settings in ({"name": "on", "shadow": what == "shadow"}, {"name": "off", "telemetry": what != "telemetry"}):
            pairs.append(Pair(**settings))
            stack.callback(pairs[-1].stop)
        on, off = pairs
        for _ in range(2):
            at_once(on, off)  # warms up, and teaches a shadow its costs
        return [*at_once(on, off), *at_once(off, on)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", choices=LIMIT_PERCENT, default="telemetry")
    parser.add_argument("--blocks", type=int)
    arguments = parser.parse_args()
    what, blocks = arguments.of, arguments.blocks or BLOCKS[arguments.of]
    OUT.mkdir(parents=True, exist_ok=True)
    differences = []
    print("CPU µs per token, engine-svc + scheduler-svc; started in the order on, off, then off, on")
    for block in range(blocks):
        runs = one_block(what)
        with_it, without = (runs[0] + runs[3]) / 2, (runs[1] + runs[2]) / 2
        differences.append(100 * (with_it / without - 1))
        shown = "  ".join(f"{run:7.3f}" for run in runs)
        print(f"block {block + 1:2}   {shown}   difference {differences[-1]:+6.2f} %", flush=True)
    mean = sum(differences) / len(differences)
    if len(differences) < 2:
        return
    deviation = math.sqrt(sum((d - mean) ** 2 for d in differences) / (len(differences) - 1))
    freedom = max(f for f in T_95 if f <= len(differences) - 1)
    half = T_95[freedom] * deviation / math.sqrt(len(differences))
    cost = {"telemetry": "telemetry costs", "shadow": "a shadow costs"}[what]
    print(f"{cost} {mean:+.2f} % of CPU time per token, 95 % interval {mean - half:+.2f} to {mean + half:+.2f} %")
    if mean + half > LIMIT_PERCENT[what]:
        sys.exit(f"the upper bound is above {LIMIT_PERCENT[what]} %")


if __name__ == "__main__":
    main()
