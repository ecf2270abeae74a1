#!/bin/sh
# SPDX-License-Identifier: MIT
# sh bare_debian.sh CLONE [ROOT]: both commands work as root on a bare Debian. Makes a fresh root
# with debootstrap, copies the clone in, runs check.sh and capstone.sh there, prints what each
# installed. Needs root, debootstrap and the mirror of this machine's apt; leaves nothing behind.
# HALFSTEP_BARE="capstone" (or "check") runs one of the two.
set -u
clone=$(cd "$1" && pwd)
root=${2:-$(mktemp -d "${TMPDIR:-/var/tmp}/halfstep-bare-XXXXXX")}

skip() {
  if [ "${HALFSTEP_REQUIRE_ALL:-0}" = 1 ]; then
    echo "HALFSTEP_REQUIRE_ALL=1, and this test cannot run: $1"
    exit 1
  fi
  echo "halfstep skip: $1"
  rmdir "$root" 2>/dev/null
  exit 0
}

[ "$(id -u)" = 0 ] || skip "debootstrap needs root"
command -v debootstrap >/dev/null 2>&1 || skip "debootstrap is not installed"

# The first line of either format: "deb [options] URI suite …" or "URIs: URI".
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
  sed -n 's/^deb \(\[[^]]*\] \)\{0,1\}\([a-z]*:[^ ]*\) .*/\2/p' | grep -v security | head -n 1)
[ -n "$mirror" ] || mirror=$(cat /etc/apt/sources.list.d/*.sources 2>/dev/null |
  sed -n 's/^URIs: *\([^ ]*\).*/\1/p' | grep -v security | head -n 1)
[ -n "$mirror" ] || skip "apt's sources name no mirror"

mounted=0
cleanup() {
  code=$?
  trap - EXIT INT TERM HUP
  if [ $mounted = 1 ]; then
    umount "$root/proc" 2>/dev/null || umount -l "$root/proc" 2>/dev/null
  fi
  # With /proc still mounted, rm would walk into it.
  if mount | grep -q " $root/"; then
    echo "still mounted below $root; left as it is"
  else
    rm -rf "$root"
  fi
  exit $code
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

echo "debootstrap --variant=minbase bookworm from $mirror into $root"
debootstrap --variant=minbase bookworm "$root" "$mirror" >"$root.log" 2>&1 || {
  tail -n 20 "$root.log"
  rm -f "$root.log"
  exit 1
}
rm -f "$root.log"
# How this machine reaches its mirror (proxy, name server) holds inside too.
cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null
cp /etc/hosts "$root/etc/hosts" 2>/dev/null
for file in /etc/apt/apt.conf /etc/apt/apt.conf.d/*; do
  grep -qi 'proxy\|Verify\|CaInfo' "$file" 2>/dev/null && cp "$file" "$root$file"
done
mkdir -p "$root/proc" "$root/src"
mount -t proc proc "$root/proc" || mount --bind /proc "$root/proc" || exit 1
mounted=1
# The tree as it stands, without what a build or a run left in it.
(cd "$clone" && tar -cf - --exclude=./build --exclude=./out .) | tar -xf - -C "$root/src" || exit 1

inside() {
  chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
    sh -c "$1"
}
packages() { inside "dpkg-query -W -f '\${Package}\n'" | sort; }

code=0
for command in ${HALFSTEP_BARE:-capstone check}; do
  packages >"$root/before"
  echo "== sh cmake/$command.sh"
  inside "cd /src && sh cmake/$command.sh" || { code=1; echo "cmake/$command.sh FAILED"; }
  packages >"$root/after"
  echo "== $command.sh installed, with what they depend on:"
  comm -13 "$root/before" "$root/after" | tr '\n' ' '
  echo
done
exit $code
