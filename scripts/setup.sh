#!/bin/sh
# What a fresh machine needs before the first build: checks the tools, fetches
# libtorch and the model into the user's cache folder, then the crates.
#   setup.sh          for `make demo`
#   setup.sh --tests  the same, and the test runner for `make test`
#   setup.sh --cuda   the same as for `make demo`, and CUDA's headers for `make cuda`
set -eu
cd "$(dirname "$0")/.."

NEXTEST_VERSION=0.9.143
missing=

# need TOOL HINT: is it there? All that is missing is named in one go.
need() {
    command -v "$1" >/dev/null 2>&1 || missing="$missing
  $1: $2"
}

need cargo "Rust 1.95 or later, https://rustup.rs"
need make "apt install make"
need c++ "a C++17 compiler, apt install g++"
need python3 "Python 3 with pip, apt install python3 python3-pip"
if command -v python3 >/dev/null 2>&1 && ! python3 -m pip --version >/dev/null 2>&1; then
    missing="$missing
  pip: the Python module, apt install python3-pip"
fi
if [ "${1-}" = --tests ]; then
    need curl "apt install curl"
    # For deploy/check/tools.sh. Without the package Debian's Python has venv, and not the ensurepip that it needs.
    if command -v python3 >/dev/null 2>&1 && ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
        missing="$missing
  venv: the Python modules venv and ensurepip, apt install python3-venv"
    fi
fi
if [ -n "$missing" ]; then
    echo "setup: missing on this machine:$missing" >&2
    exit 1
fi

case "${1-}" in
--tests) python3 scripts/fetch_assets.py libtorch-2.11.0 models nvrtc-13.0.88 cuda-headers-13.0.96 ;;
--cuda) python3 scripts/fetch_assets.py libtorch-2.11.0 cuda-headers-13.0.96 ;;
*) python3 scripts/fetch_assets.py ;;
esac

echo "setup: crates of Cargo.lock"
cargo fetch --locked --quiet || {
    echo "setup: missing: crates named in Cargo.lock (reason above; a crate registry must be reachable once)" >&2
    exit 1
}

if [ "${1-}" = --tests ] && ! cargo nextest --version >/dev/null 2>&1; then
    echo "setup: building the test runner, cargo-nextest $NEXTEST_VERSION (minutes, once)"
    # Built to be had soon rather than to run fast: it only starts processes.
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        cargo install --locked cargo-nextest --version "$NEXTEST_VERSION" || {
        echo "setup: missing: cargo-nextest $NEXTEST_VERSION (reason above)" >&2
        exit 1
    }
fi

# Fetched here, where nothing waits for them with a limit of its own.
if [ "${1-}" = --tests ]; then
    deploy/check/tools.sh >/dev/null
fi
