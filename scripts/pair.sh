# Sourced by scripts that need a running pair. `start_pair OUT ENGINE-FLAG... -- SCHEDULER-FLAG...`
# starts engine-svc and scheduler-svc on loopback, waits until both report SERVING and sets
# SCHEDULER, ADMIN, SCHEDULER_METRICS and ENGINE_METRICS (host:port). Both stop when the script ends,
# however it ends, or with `stop_services` to make room for another pair.

pair_pids=()

start_pair() {
    local out=$1 engine_flags=()
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        engine_flags+=("$1")
        shift
    done
    shift
    mkdir -p "$out"
    trap stop_pair EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM

    # The default ports where they are free, else any that are.
    local ports
    read -r -a ports <<<"$(python3 scripts/free_ports.py 7070 7071 7072 9070 9071)"
    SCHEDULER=127.0.0.1:${ports[0]} ADMIN=127.0.0.1:${ports[2]}
    SCHEDULER_METRICS=127.0.0.1:${ports[3]} ENGINE_METRICS=127.0.0.1:${ports[4]}
    local engine=127.0.0.1:${ports[1]}

    start_service "$out/engine.log" target/release/engine-svc \
        --listen "$engine" --metrics-listen "$ENGINE_METRICS" "${engine_flags[@]}"
    start_service "$out/scheduler.log" target/release/scheduler-svc --engine "$engine" \
        --listen "$SCHEDULER" --admin-listen "$ADMIN" --metrics-listen "$SCHEDULER_METRICS" "$@"
    await_healthy "$out/engine.log" target/release/engine-svc "$engine" "${pair_pids[0]}"
    await_healthy "$out/scheduler.log" target/release/scheduler-svc "$SCHEDULER" "${pair_pids[1]}"
}

# start_service LOG COMMAND... Its flags say all; FIRSTLIGHT_MODEL would count as --model.
start_service() {
    local log=$1
    shift
    env -u FIRSTLIGHT_MODEL "$@" >"$log" 2>&1 &
    pair_pids+=($!)
}

# await_healthy LOG PROGRAM ADDRESS PID
await_healthy() {
    local log=$1 program=$2 address=$3 pid=$4
    for _ in $(seq 600); do
        if "$program" healthcheck "$address" >/dev/null 2>&1; then
            echo "$(basename "$program") is serving on $address"
            return
        fi
        if ! kill -0 "$pid" 2>/dev/null; then
            echo "$(basename "$program") ended before it was ready; the end of $log:" >&2
            tail -n 20 "$log" >&2
            exit 1
        fi
        sleep 0.1
    done
    echo "$(basename "$program") was not ready within a minute, see $log" >&2
    exit 1
}

# Drain first, then insist.
stop_services() {
    local pid
    for pid in "${pair_pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
    for _ in $(seq 50); do
        kill -0 "${pair_pids[@]}" 2>/dev/null || break
        sleep 0.1
    done
    for pid in "${pair_pids[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    pair_pids=()
}

stop_pair() {
    local status=$?
    trap '' INT TERM
    stop_services
    exit "$status"
}
