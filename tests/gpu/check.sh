#!/bin/sh
# The CUDA kernels on a real GPU: the checks of `make test`, with the same kernel sources, against references in 64
# bits on poisoned memory. It has not been run on a GPU so far.
#
#   check.sh pack FILE.tar.gz    on a machine with the toolchain: builds, compiles for three architectures, packs
#   check.sh run [FOLDER]        on a machine with a GPU, where FILE was unpacked: results into FOLDER (results)
#
# `run` needs the NVIDIA driver and nothing else: no network, no cargo, no compiler. For a GPU that is not among
# the three it compiles with the NVRTC in $NVRTC (the folder of libnvrtc.so.13). Exit status 0: every kernel is
# right; 1: one is wrong; 2: there is no GPU.
set -eu
ARCHITECTURES="sm_80 sm_90 sm_100"
here=$(cd "$(dirname "$0")" && pwd)

pack() {
    cd "$here/../.."
    nvrtc="${XDG_CACHE_HOME:-$HOME/.cache}/firstlight/nvrtc-13.0.88/lib"
    cargo build --release --locked --workspace --example check_on_gpu
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    strip -o "$folder/check_on_gpu" target/release/examples/check_on_gpu
    for architecture in $ARCHITECTURES; do
        "$folder/check_on_gpu" compile "$architecture" "$folder/cubins" "$nvrtc"
    done
    cp "$here/check.sh" "$folder/"
    tar -czf "$1" -C "$folder" check.sh check_on_gpu cubins
    echo "check.sh: $1, $(du -h "$1" | cut -f1)"
}

run() {
    mkdir -p "$1"
    status=0
    "$here/check_on_gpu" run "$here/cubins" ${NVRTC:+"$NVRTC"} >"$1/kernels.json" || status=$?
    if [ "$status" = 2 ]; then
        rm -f "$1/kernels.json"
        exit 2
    fi
    cat "$1/kernels.json"
    if command -v compute-sanitizer >/dev/null 2>&1; then
        for tool in memcheck racecheck; do
            compute-sanitizer --tool "$tool" --error-exitcode 1 \
                "$here/check_on_gpu" run "$here/cubins" ${NVRTC:+"$NVRTC"} >"$1/$tool.txt" 2>&1 || status=1
        done
    else
        echo "check.sh: no compute-sanitizer on this machine, so no memcheck and no racecheck" >&2
    fi
    exit "$status"
}

case "${1-}" in
pack) pack "$(realpath "${2:?check.sh pack FILE.tar.gz}")" ;;
run) run "${2:-results}" ;;
*) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
