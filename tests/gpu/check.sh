#!/bin/sh
# The CUDA backend on a real GPU, in under five minutes. It has not been run on a GPU so far.
#
#   tests/gpu/check.sh pack FILE.tar.gz    with the toolchain: builds, compiles for three architectures, packs
#   tests/gpu/check.sh run [FOLDER]    on a machine with a GPU, where FILE was unpacked: results into FOLDER (results)
#
# `run` needs the NVIDIA driver and a python3 with torch 2.11.0+cu130, whose libraries it uses: no network, no cargo,
# no compiler. For a GPU that is not among the three it compiles with the NVRTC in $NVRTC (the folder of
# libnvrtc.so.13). First the kernels, against references in 64 bits on poisoned memory; then the engine in the whole
# pair (serve.sh); last the kernels under compute-sanitizer. All results are in all.tar.gz as well. Exit status 0: all is
# right; 1: something is wrong; 2: there is no GPU.
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
    (cd "$root" && tests/gpu/serve.sh "$results" cubins) || status=1
    for tool in memcheck racecheck; do sanitize "$tool" || status=1; done
    # In one piece, for whoever can take only one.
    all=$(mktemp)
    tar -czf "$all" -C "$results" --exclude=./all.tar.gz .
    mv "$all" "$results/all.tar.gz"
    exit "$status"
}

# sanitize TOOL: the kernels once more under compute-sanitizer, for as long as there is time. What this machine does not
# support, or does not get done, is said to have not run; it is nothing wrong.
sanitize() {
    command -v compute-sanitizer >/dev/null 2>&1 || { not_run "$1" "there is no compute-sanitizer"; return; }
    said="$results/$1.txt" code=0
    timeout "${SANITIZER_SECONDS:-60}" compute-sanitizer --tool "$1" --error-exitcode 1 \
        "$root/check_on_gpu" run "$root/cubins" ${NVRTC:+"$NVRTC"} >"$said" 2>&1 || code=$?
    if [ "$code" = 0 ]; then
        echo "check.sh: $1 found nothing"
    elif grep -qi 'not supported' "$said"; then
        not_run "$1" "compute-sanitizer does not support this machine"
    elif [ "$code" = 124 ] && ! grep -q '^========= \(Invalid\|Error: Race\)' "$said"; then
        not_run "$1" "it did not end in time"
    else
        echo "check.sh: $1 found something, see $said" >&2
        return 1
    fi
}

not_run() {
    echo "check.sh: $1 did not run: $2" >&2
}

case "${1-}" in
pack) pack "$(realpath "${2:?check.sh pack FILE.tar.gz}")" ;;
run) run "${2:-results}" ;;
*) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
