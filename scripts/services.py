"""Processes that a script starts on loopback and stops again, and ports for them."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

from free_ports import free_ports  # noqa: F401

PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "target" / "release"
START_SECONDS = 300


# So that what was started is stopped on the way out of a script that is told to end.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


class Failed(Exception):
    """A server that did not start."""


@contextlib.contextmanager
def process(command, log, settings=None):
    """Runs a command in a process group of its own, which is stopped on the way out."""
    environment = {**os.environ, **(settings or {})}
    # It would count as --model.
    environment.pop("FIRSTLIGHT_MODEL", None)
    with open(log, "a") as out:
        started = subprocess.Popen(
            [str(part) for part in command], stdout=out, stderr=out, env=environment, start_new_session=True
        )
    try:
        yield started
    finally:
        for stop in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, stop)
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(15)
                break


def await_true(server, log, ready, pause=0.2):
    end = time.monotonic() + START_SECONDS
    while not ready():
        if server.poll() is not None:
            raise Failed(f"ended with {server.returncode} before it was ready, see {log}")
        if time.monotonic() > end:
            raise Failed(f"not ready within {START_SECONDS} s, see {log}")
        time.sleep(pause)


def healthy(program, address):
    return subprocess.run([PROGRAMS / program, "healthcheck", address], capture_output=True).returncode == 0
