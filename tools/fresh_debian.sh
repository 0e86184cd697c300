#!/usr/bin/env bash
# Proof that ./start.sh works on a bare Debian 12: tools/fresh_debian.sh [--keep] [--dir DIR] [ARGUMENTS OF start.sh]
#
# Lays a minimal Debian 12 with debootstrap (package debootstrap; as root), shows that it has none of the tools, copies the
# committed tree (HEAD) into it, and runs start.sh there twice without a terminal: the first run installs, builds, fetches,
# converts and answers; the second must only answer. The archive and its certificates are those of this machine's own apt.
# Takes some 1 GB in DIR (default: a new folder in $TMPDIR), removed at the end unless --keep.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

keep= dir= arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --keep) keep=yes ;;
    --dir) dir=$2; shift ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
[ "$(id -u)" = 0 ] || { echo "error: debootstrap and chroot need root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "error: no debootstrap: apt-get install debootstrap" >&2; exit 1; }
dir=${dir:-$(mktemp -d "${TMPDIR:-/tmp}/fresh-debian.XXXXXX")}
root=$dir/root

step() { printf '== %5d s  %s\n' $SECONDS "$*"; }
inside() { chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"; }
finish() {
  umount -l "$root/proc" "$root/dev/shm" "$root/dev" "$root/sys" 2>/dev/null || true
  if [ -z "$keep" ] && ! grep -q " $root/" /proc/mounts; then rm -rf "$dir"; else echo "kept: $root"; fi
}
trap finish EXIT

# "REPOSITORY SUITE COMPONENT" of every Debian 12 archive that this machine's apt uses.
archives=$(apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
  awk '$1 == "Debian" && $2 ~ /^bookworm/ { print $3, $4, $5 }' | sort -u)
mirror=$(printf '%s\n' "$archives" | awk '$2 == "bookworm" && $3 == "main" { print $1; exit }')
[ -n "$mirror" ] || { echo "error: this machine's apt knows no archive of Debian 12 (try: apt-get update)" >&2; exit 1; }

step "debootstrap, minimal"
mkdir -p "$root"
debootstrap --variant=minbase bookworm "$root" "$mirror" >"$dir/debootstrap.log" || { tail -n 20 "$dir/debootstrap.log"; exit 1; }
printf '%s\n' "$archives" | sed 's/^/deb /' >"$root/etc/apt/sources.list"
cp /etc/resolv.conf "$root/etc/resolv.conf"
if ls /usr/local/share/ca-certificates/*.crt >/dev/null 2>&1; then
  mkdir -p "$root/usr/local/share/ca-certificates"
  cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/"
fi
mount --bind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"

step "bare: $(inside dpkg-query -W | wc -l) packages, $(du -sm --one-file-system "$root" | cut -f1) MB"
for tool in cc c++ gcc g++ clang clang-19 cmake ninja cargo rustc python3 pip git curl wget; do
  if inside sh -c "command -v $tool" >/dev/null; then echo "not bare: it has $tool" >&2; exit 1; fi
done
step "it has no compiler, cmake, cargo, python, git or curl"

mkdir -p "$root/opt/onw"
git archive HEAD | tar -x -C "$root/opt/onw"
step "first start"
first=$SECONDS
inside sh -c 'cd /opt/onw && ./start.sh "$@"' start "${arguments[@]}" </dev/null
step "the first start took $((SECONDS - first)) s"
second=$SECONDS
inside sh -c 'cd /opt/onw && ./start.sh "$@"' start "${arguments[@]}" </dev/null
step "the second start took $((SECONDS - second)) s; $(du -sm --one-file-system "$root" | cut -f1) MB in all"
