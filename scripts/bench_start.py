"""bench_start.py MODEL ENGINE-FLAG...: from exec to ready, and what the engine holds in memory, at least of five starts.

Resident size counts the mapped file's pages while they are there; `peak / final` says what loading took beside
the weights that stay.
"""

import pathlib
import statistics
import sys
import time

from services import PROGRAMS, await_true, free_ports, healthy, process

STARTS = 5
LOG = pathlib.Path("out/bench-start.log")


def main(model, flags):
    LOG.parent.mkdir(exist_ok=True)
    starts = [start(model, flags) for _ in range(STARTS)]
    seconds = sorted(start[0] for start in starts)
    peak, final = (statistics.median(start[i] for start in starts) for i in (1, 2))
    print(f"{pathlib.Path(model).name} {' '.join(flags)}: exec to ready {seconds[0]:.2f} s (median {seconds[2]:.2f})")
    print(f"  resident {final / 1024:.0f} MiB, peak while loading {peak / 1024:.0f} MiB, peak / final {peak / final:.2f}")


def start(model, flags):
    """Seconds to ready, peak and final resident size in KiB."""
    engine, metrics = (f"127.0.0.1:{port}" for port in free_ports(0, 0))
    command = [PROGRAMS / "engine-svc", "--model", model, *flags, "--listen", engine, "--metrics-listen", metrics]
    begun = time.monotonic()
    with process(command, LOG) as server:
        await_true(server, LOG, lambda: healthy("engine-svc", engine), pause=0.01)
        ready = time.monotonic() - begun
        status = dict(
            line.split(":", 1) for line in pathlib.Path(f"/proc/{server.pid}/status").read_text().splitlines()
        )
        return ready, *(int(status[field].split()[0]) for field in ("VmHWM", "VmRSS"))


main(sys.argv[1], sys.argv[2:])
