# Sourced: the two standard workloads, 256 requests at once, 64 new tokens, greedy, EOS ignored, no prefix
# cache. seed-256 lets all be active, seed-64 64 of them. `run_workload NAME FILE BENCH-FLAG...`

run_workload() {
    local name=$1 file=$2 active=${1#seed-}
    shift 2
    target/release/bench-client run --target "$SCHEDULER" --admin "$ADMIN" --run-label "$name" \
        --num-requests 256 --unique-prompts --max-new-tokens 64 --no-stop-on-eos --no-prefix-cache \
        --max-batch-size 64 --prefill-max-batch-size 16 --max-active-requests "$active" \
        --json-out "$file" "$@"
}
