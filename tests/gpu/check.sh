#!/bin/sh
# The CUDA backend on a real GPU, in under five minutes. It has not been run on a GPU so far.
#
#   tests/gpu/check.sh pack FILE.tar.gz    with the toolchain: builds, compiles for three architectures, packs
#   tests/gpu/check.sh run [FOLDER]    on a machine with a GPU, where FILE was unpacked: results into FOLDER (results)
#
# `run` needs the NVIDIA driver and a python3 with torch 2.11.0+cu130, whose libraries it uses: no network, no cargo,
# no compiler. For a GPU that is not among the three it compiles with the NVRTC in $NVRTC (the folder of
# libnvrtc.so.13). First the kernels, against references in 64 bits on poisoned memory; then the engine in the whole
# pair (serve.sh). Exit status 0: all is right; 1: something is wrong; 2: there is no GPU.
set -eu
ARCHITECTURES="sm_80 sm_90 sm_100"
here=$(cd "$(dirname "$0")" && pwd)

pack() {
    cd "$here/../.."
    nvrtc="${XDG_CACHE_HOME:-$HOME/.cache}/firstlight/nvrtc-13.0.88/lib"
    make cuda
    cargo build --release --locked --workspace --example check_on_gpu
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    mkdir -p "$folder/target/release" "$folder/tests/gpu"
    for program in engine-svc scheduler-svc bench-client; do
        strip -o "$folder/target/release/$program" "target/cuda/release/$program"
    done
    strip -o "$folder/check_on_gpu" target/release/examples/check_on_gpu
    for architecture in $ARCHITECTURES; do
        "$folder/check_on_gpu" compile "$architecture" "$folder/cubins" "$nvrtc"
    done
    cp "$here/check.sh" "$here/serve.sh" "$here/floor.py" "$here/peer.py" "$folder/tests/gpu/"
    cp -r --parents scripts/pair.sh scripts/free_ports.py "$folder/"
    tar -czf "$1" -C "$folder" .
    echo "check.sh: $1, $(du -h "$1" | cut -f1)"
}

run() {
    root=$(cd "$here/../.." && pwd)
    mkdir -p "$1"
    results=$(cd "$1" && pwd)
    status=0
    "$root/check_on_gpu" run "$root/cubins" ${NVRTC:+"$NVRTC"} >"$results/kernels.json" || status=$?
    case $status in
    0) ;;
    2)
        rm -f "$results/kernels.json"
        exit 2
        ;;
    *) status=1 ;; # also where the program itself crashed
    esac
    cat "$results/kernels.json"
    if command -v compute-sanitizer >/dev/null 2>&1; then
        for tool in memcheck racecheck; do
            compute-sanitizer --tool "$tool" --error-exitcode 1 \
                "$root/check_on_gpu" run "$root/cubins" ${NVRTC:+"$NVRTC"} >"$results/$tool.txt" 2>&1 || status=1
        done
    else
        echo "check.sh: no compute-sanitizer on this machine, so no memcheck and no racecheck" >&2
    fi
    (cd "$root" && tests/gpu/serve.sh "$results" cubins) || status=1
    exit "$status"
}

case "${1-}" in
pack) pack "$(realpath "${2:?check.sh pack FILE.tar.gz}")" ;;
run) run "${2:-results}" ;;
*) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
