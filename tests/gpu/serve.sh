#!/usr/bin/env bash
# serve.sh RESULTS CUBINS: the engine on GPU 0 in the whole pair, GPT-2's shape with random weights. Checks that graphs
# change no token, and with --batch-invariant neighbours neither; counts how far the CPU says the same; then runs the
# seed's workloads, says what --batch-invariant costs, sets forward times beside the least that memory allows, and runs
# the same work through transformers where this python has it. Wants to be run where check.sh put it.
set -euo pipefail
. scripts/pair.sh
results=$1 cubins=$2
libraries=$(python3 -c 'import os, torch; print(os.path.join(os.path.dirname(torch.__file__), "lib"))')
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} FIRSTLIGHT_KERNEL_CACHE=$cubins
gpt2=(--load-format dummy --model gpt2)
client=target/release/bench-client
wrong=0

# says FILE: what the pair answers to four prompts, greedy and sampled.
says() {
    local prompt
    for prompt in 15496,11,314 1 "$(seq -s, 100 163)" "$(seq -s, 1 700)"; do
        for how in "--temperature 0" "--temperature 1 --seed 7"; do
            # shellcheck disable=SC2086 # two words
            "$client" complete --target "$SCHEDULER" --admin "$ADMIN" --token-ids "$prompt" \
                --max-new-tokens 48 --no-stop-on-eos $how 2>/dev/null
        done
    done >"$1"
}

# same A B WHAT
same() {
    if cmp -s "$results/$1" "$results/$2"; then
        echo "serve.sh: $3: the same tokens"
    else
        echo "serve.sh: $3: NOT the same tokens, see $results/$1 and $2" >&2
        wrong=1
    fi
}

# load NAME ACTIVE DECODE-ROWS BENCH-FLAG...
load() {
    local name=$1 active=$2 rows=$3
    shift 3
    "$client" run --target "$SCHEDULER" --admin "$ADMIN" --run-label "$name" --token-ids 15496,11,314 \
        --num-requests 256 --unique-prompts --max-new-tokens 64 --no-stop-on-eos --no-prefix-cache \
        --max-batch-size "$rows" --prefill-max-batch-size 16 --max-active-requests "$active" \
        --json-out "$results/$name.json" "$@" | tee "$results/$name.txt"
}

start_pair "$results/eager" --backend cuda --no-graph "${gpt2[@]}" --
says "$results/eager.txt"
stop_services

start_pair "$results/cpu" --backend cpu --dtype bf16 "${gpt2[@]}" --
says "$results/cpu.txt"
stop_services

start_pair "$results/invariant" --backend cuda --batch-invariant "${gpt2[@]}" --
says "$results/alone.txt"
load neighbours 64 64 --quiet &
says "$results/among.txt"
wait $!
same alone.txt among.txt "--batch-invariant, alone and among 64"
load seed-64-invariant 64 64 --repeat-runs 3
stop_services

start_pair "$results/graphs" --backend cuda "${gpt2[@]}" --
says "$results/graphs.txt"
same eager.txt graphs.txt "with graphs and without"
echo "serve.sh: $(cmp "$results/cpu.txt" "$results/graphs.txt" 2>&1 || true) (CPU and GPU round differently)"
load seed-256 256 64 --repeat-runs 3
load seed-256-wide 256 256 --repeat-runs 3
load seed-64 64 64 --repeat-runs 3
python3 tests/gpu/floor.py "$ENGINE_METRICS" | tee "$results/forwards.json"
stop_services
python3 - "$results" <<'END'
import json, sys
of = lambda name: json.load(open(f"{sys.argv[1]}/{name}.json"))["throughput"]["output_tokens_per_s"]
plain, invariant = of("seed-64"), of("seed-64-invariant")
print(f"serve.sh: --batch-invariant: {invariant:.0f} of {plain:.0f} tokens/s, {100 * (1 - invariant / plain):.1f} % less")
END
python3 tests/gpu/peer.py | tee "$results/transformers.json"
exit "$wrong"
