#!/usr/bin/env bash
# The seed's workload on the shape of its model (GPT-2, random weights), then its lines beside its figures.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/pair.sh
. scripts/workloads.sh

out=out/bench-seed
start_pair "$out" --load-format dummy --model gpt2 --dtype bf16 --
# Three tokens, and two in front that make each unique: as many as `Hello` and an index.
run_workload seed-256 "$out/seed-256.json" --token-ids 15496,11,314
run_workload seed-64 "$out/seed-64.json" --token-ids 15496,11,314
echo
python3 scripts/beside_seed.py "$out/seed-256.json" "$out/seed-64.json"
