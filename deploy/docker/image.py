"""Builds and enters an image's root filesystem without a container engine.

    image.py build SERVICE FOLDER        by the last stage of SERVICE.Dockerfile, from what is built here
    image.py run SERVICE FOLDER [ARG...] its ENTRYPOINT as its USER under its ENV, on a read-only root

The last stage is read from the Dockerfile itself, so an image and what the tests start from here
cannot drift apart. `--env NAME=VALUE` and `--mount HOST:INSIDE` (read-only) go before SERVICE.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "firstlight"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target")
# Where a build stage's outputs lie on this machine.
PLACES = {
    ("build", "/out/"): TARGET / "release",
    ("libtorch", "/opt/firstlight/"): CACHE,
}


class Unsupported(Exception):
    """A line of a last stage that this script does not know how to follow."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--mount", action="append", default=[], metavar="HOST:INSIDE")
    parser.add_argument("command", choices=("build", "run"))
    parser.add_argument("service")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("args", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    stage = last_stage((HERE / f"{asked.service}.Dockerfile").read_text())
    if asked.command == "build":
        build(stage, asked.folder)
    else:
        run(stage, asked.folder.resolve(), asked)


def last_stage(dockerfile):
    """Its instructions as (name, rest) pairs, FROM first."""
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", dockerfile))
    lines = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    start = max(i for i, line in enumerate(lines) if line[0] == "FROM")
    return [(name, rest.strip()) for name, rest in lines[start:]]


def values(stage, instruction):
    return [rest for name, rest in stage if name == instruction]


def build(stage, root):
    if values(stage, "FROM") != ["scratch"]:
        raise Unsupported("the last stage is not from scratch")
    root.mkdir(parents=True)
    for rest in values(stage, "COPY"):
        origin, source, target = re.fullmatch(r"--from=(\S+) (\S+) (\S+)", rest).groups()
        if (origin, source, target) == ("rootfs", "/rootfs/", "/"):
            subprocess.run([HERE / "rootfs.sh", root], check=True)
            continue
        here, inside = place(origin, source), root / target.lstrip("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith("/"):
            shutil.copytree(here, inside, symlinks=True, copy_function=link_or_copy)
        else:
            link_or_copy(here, inside)


def place(origin, source):
    for (stage, prefix), folder in PLACES.items():
        if stage == origin and source.startswith(prefix):
            return folder / source.removeprefix(prefix)
    raise Unsupported(f"COPY --from={origin} {source}: not known where this lies here")


def link_or_copy(source, target):
    """libtorch is half a gigabyte: a second name where the file system allows it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def run(stage, root, asked):
    (user,) = values(stage, "USER")
    uid, gid = user.split(":")
    (entrypoint,) = values(stage, "ENTRYPOINT")
    env = dict(pair.split("=", 1) for rest in values(stage, "ENV") for pair in shlex.split(rest))
    env |= dict(pair.split("=", 1) for pair in asked.env)
    mounts = [pair.split(":", 1) for pair in asked.mount]
    for _, inside in mounts:
        (root / inside.lstrip("/")).mkdir(parents=True, exist_ok=True)
    there = shlex.quote(str(root))
    inner = [
        "set -e",
        f"mount --bind {there} {there}",
        *(f"mount --rbind /{kernel} {there}/{kernel}" for kernel in ("proc", "sys", "dev")),
        *(f"mount --bind -o ro {shlex.quote(host)} {there}{shlex.quote(inside)}" for host, inside in mounts),
        f"mount -o remount,bind,ro {there}",
        f"exec {leave_root(there, uid, gid)} {shlex.join(json.loads(entrypoint) + asked.args)}",
    ]
    outer = ["unshare", "--mount", "--propagation", "private"]
    if os.getuid() != 0:
        outer += ["--user", "--map-root-user"]
    os.execvpe("unshare", [*outer, "sh", "-c", "\n".join(inner)], env | {"PATH": os.environ["PATH"]})


def leave_root(root, uid, gid):
    """The command that goes on inside `root` as a user who is not root."""
    if os.getuid() == 0:
        return f"chroot --userspec={uid}:{gid} {root}"
    return f"unshare --user --map-user={uid} --map-group={gid} --root={root} --wd=/"


if __name__ == "__main__":
    try:
        main()
    except Unsupported as reason:
        sys.exit(f"image.py: {reason}")
