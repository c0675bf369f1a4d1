#!/bin/sh
# Makes the system part of an image: the C and C++ run-time libraries and CA certificates from Debian's
# packages, an account that is not root, and no shell, package manager or anything else.
#   rootfs.sh FOLDER
set -eu

root=$1
mkdir -p "$root"
root=$(cd "$root" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# apt's own user may not be able to write here, and need not.
cd "$work"
apt-get download -qq -o APT::Sandbox::User=root libc6 libgcc-s1 libstdc++6 gcc-12-base ca-certificates
for package in *.deb; do
    dpkg-deb -x "$package" "$work/unpacked"
done

cd "$work/unpacked"
mkdir -p "$root/etc/ssl/certs" "$root/usr/share/doc" "$root/lib" "$root/lib64" "$root/usr/lib" \
    "$root/tmp" "$root/proc" "$root/sys" "$root/dev"
cp -a lib/x86_64-linux-gnu "$root/lib/"
cp -a lib64/. "$root/lib64/"
cp -a usr/lib/x86_64-linux-gnu "$root/usr/lib/"
# Licences stay with what they cover.
for package in libc6 libgcc-s1 libstdc++6 gcc-12-base ca-certificates; do
    cp -a "usr/share/doc/$package" "$root/usr/share/doc/"
done
find usr/share/ca-certificates/mozilla -name '*.crt' -exec cat {} + >"$root/etc/ssl/certs/ca-certificates.crt"

echo 'nonroot:x:65532:65532:nonroot:/:/sbin/nologin' >"$root/etc/passwd"
echo 'nonroot:x:65532:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
chmod 1777 "$root/tmp"
