#!/bin/sh
# Prints the path of a headless Chromium: one that is installed, else Debian's, unpacked into the user's
# cache folder, once. Installing would need root, and would change the machine.
set -eu

cache=${XDG_CACHE_HOME:-$HOME/.cache}/firstlight
folder=$cache/chromium

missing() {
    echo "browser: missing: $1" >&2
    exit 1
}

for name in chromium-headless-shell chromium chromium-browser google-chrome; do
    if command -v "$name"; then exit; fi
done

# What of chromium-headless-shell and a font is not installed on this machine.
packages() {
    apt-get install --print-uris -qq -y --no-install-recommends chromium-headless-shell fonts-dejavu-core \
        fontconfig-config | sed -n "s/^'[^']*' \([^_]*\)_.*/\1/p"
}

fetch() {
    echo "browser: Debian's chromium-headless-shell (download 100 MB) into $folder" >&2
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
        missing "a Chromium; install one (here is no apt-get to fetch Debian's)"
    rm -rf "$folder" "$folder.new"
    mkdir -p "$folder.new"
    (
        cd "$folder.new"
        # The package lists may be old, or may never have been fetched.
        apt-get download -qq $(packages) >&2 2>/dev/null || {
            apt-get update -qq >&2 && apt-get download -qq $(packages) >&2
        } || missing "Debian's package chromium-headless-shell (reason above); or install Chromium"
        for package in *.deb; do dpkg-deb -x "$package" .; done
        rm -- *.deb
        cat >headless-shell <<'EOF'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
lib=$here/usr/lib/x86_64-linux-gnu
LD_LIBRARY_PATH=$lib:$lib/pulseaudio${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "$here/usr/lib/chromium/chromium-headless-shell" "$@"
EOF
        chmod +x headless-shell
    )
    "$folder.new/headless-shell" --version >/dev/null || missing "a Chromium that runs here (reason above)"
    mv "$folder.new" "$folder"
}

mkdir -p "$cache"
exec 9>"$cache/.browser.lock"
flock 9
[ -x "$folder/headless-shell" ] || fetch
echo "$folder/headless-shell"
