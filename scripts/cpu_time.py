#!/usr/bin/env python3
"""cpu_time.py TOKENS PID...: where CPU time went: by process and thread name since they started, and per token."""

import collections
import pathlib
import sys


def by_thread(pid):
    """Seconds by thread name, and the process's name."""
    process = pathlib.Path("/proc") / pid
    seconds = collections.Counter()
    for task in (process / "task").iterdir():
        seconds[(task / "comm").read_text().strip()] += int((task / "schedstat").read_text().split()[0]) / 1e9
    return (process / "comm").read_text().strip(), seconds


def main():
    tokens, pids = int(sys.argv[1]), sys.argv[2:]
    total = 0
    for pid in pids:
        name, seconds = by_thread(pid)
        total += sum(seconds.values())
        for thread, spent in seconds.most_common():
            print(f"{name:<14} {thread:<16} {spent:7.2f} s   {1e6 * spent / tokens:7.2f} µs per token")
    print(f"together {total:.2f} s of CPU, {1e6 * total / tokens:.2f} µs per token")


if __name__ == "__main__":
    main()
