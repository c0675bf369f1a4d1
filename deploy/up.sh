#!/bin/sh
# Both services and Prometheus on this machine, from what is built and installed here; ends with Ctrl-C.
# Says what is missing. Data lies in out/up.
#   FIRSTLIGHT_BACKEND=sim deploy/up.sh     no model: forwards take the time that a cost model says
# Both services take every other FIRSTLIGHT_… too, such as FIRSTLIGHT_MAX_ACTIVE_REQUESTS; addresses are given here.
set -eu
cd "$(dirname "$0")/.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/firstlight
out=$PWD/out/up
programs=${CARGO_TARGET_DIR:-target}/release
: "${FIRSTLIGHT_BACKEND:=cpu}"
: "${FIRSTLIGHT_MODEL:=$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf}"
export FIRSTLIGHT_BACKEND

missing=
need() {
    [ -e "$1" ] || missing="$missing
  $1: $2"
}
need "$programs/engine-svc" "make build"
need "$programs/scheduler-svc" "make build"
if [ "$FIRSTLIGHT_BACKEND" = sim ]; then
    unset FIRSTLIGHT_MODEL
    # Nothing there knows words.
    prompt='--token-ids 1,2,3'
else
    prompt="'The capital of France is'"
    export FIRSTLIGHT_MODEL
    need "$FIRSTLIGHT_MODEL" "make setup; or FIRSTLIGHT_BACKEND=sim"
fi
if [ -n "$missing" ]; then
    echo "up: missing:$missing" >&2
    exit 1
fi
tools=$(deploy/check/tools.sh)

mkdir -p "$out"
# PID:NAME of each process, and the ids alone.
running=
pids=
stop() {
    trap - INT TERM EXIT
    # shellcheck disable=SC2086  # a list of process ids
    [ -z "$pids" ] || kill $pids 2>/dev/null || true
    wait
    echo "up: stopped"
}
trap 'exit 130' INT TERM
trap stop EXIT

# start NAME COMMAND...: in the background, its output in out/up/NAME.log.
start() {
    name=$1
    shift
    "$@" >"$out/$name.log" 2>&1 &
    pids="$pids $!"
    running="$running $!:$name"
}

# Whether one of them has ended; says which, and how its log ends.
one_ended() {
    for process in $running; do
        if ! kill -0 "${process%%:*}" 2>/dev/null; then
            name=${process#*:}
            echo "up: $name ended; the end of $out/$name.log:" >&2
            tail -n 20 "$out/$name.log" >&2
            return 0
        fi
    done
    return 1
}

# One environment for both: addresses from it would collide.
start engine "$programs/engine-svc" --listen 127.0.0.1:7071 --metrics-listen 127.0.0.1:9071
start scheduler "$programs/scheduler-svc" --engine 127.0.0.1:7071 --listen 127.0.0.1:7070 \
    --admin-listen 127.0.0.1:7072 --metrics-listen 127.0.0.1:9070
start prometheus "$tools/prometheus" --config.file=deploy/prometheus/prometheus.yaml \
    --storage.tsdb.path="$out/prometheus" --web.listen-address=127.0.0.1:9090
if command -v grafana-server >/dev/null 2>&1; then
    home=${GRAFANA_HOME:-/usr/share/grafana}
    sed "s|/var/lib/grafana/dashboards|$PWD/deploy/grafana/dashboards|" \
        deploy/grafana/provisioning/dashboards/firstlight.yaml >"$out/dashboards.yaml"
    mkdir -p "$out/provisioning/dashboards" "$out/provisioning/datasources"
    mv "$out/dashboards.yaml" "$out/provisioning/dashboards/firstlight.yaml"
    cp deploy/grafana/provisioning/datasources/firstlight.yaml "$out/provisioning/datasources/"
    start grafana env FIRSTLIGHT_PROMETHEUS_URL=http://127.0.0.1:9090 GF_SERVER_HTTP_ADDR=127.0.0.1 \
        GF_AUTH_ANONYMOUS_ENABLED=true GF_PATHS_DATA="$out/grafana" GF_PATHS_PROVISIONING="$out/provisioning" \
        grafana-server --homepath "$home"
    grafana="http://127.0.0.1:3000"
else
    grafana="missing: install grafana to see deploy/grafana/dashboards; the same queries work in Prometheus"
fi

# A second at a time, so that one that has died is told of at once.
seconds=0
until "$programs/scheduler-svc" healthcheck 127.0.0.1:7070 --wait 1 >/dev/null 2>&1; do
    if one_ended; then exit 1; fi
    seconds=$((seconds + 1))
    if [ "$seconds" -ge 120 ]; then
        echo "up: not ready; the ends of the logs:" >&2
        tail -n 5 "$out/engine.log" "$out/scheduler.log" >&2
        exit 1
    fi
done
cat <<END
clients     127.0.0.1:7070    $programs/bench-client complete $prompt
admin       127.0.0.1:7072
Prometheus  http://127.0.0.1:9090
Grafana     $grafana
logs        $out
END
# Whichever ends first ends the rest; `wait -n` is not in every sh.
while ! one_ended; do
    sleep 1
done
exit 1
