#!/bin/sh
# SPDX-License-Identifier: MIT
# sh bench/compile.sh [COMPILER...]: seconds of processor time and megabytes that each umbrella, each
# C++ block of README.md and each example costs to compile with -O2, as a table. Needs GNU time.
set -u
cd "$(dirname "$0")/.." || exit 1
[ -x /usr/bin/time ] || { echo "compile.sh: GNU time is missing: apt-get install time" >&2; exit 1; }
[ $# -gt 0 ] || set -- g++ clang++
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for umbrella in include/halfstep/*.hpp; do
  name=$(basename "$umbrella")
  printf '#include <halfstep/%s>\nint main() {}\n' "$name" >"$work/umbrella_$name.cpp"
done
awk -v work="$work" '/^```cpp/ { n++; inside = 1; next } /^```/ { inside = 0 }
  inside { print > (work "/readme_" n ".cpp") }' README.md
cp examples/*.cpp "$work/"
printf '| unit |'
for compiler in "$@"; do printf ' %s, s | %s, MB |' "$compiler" "$compiler"; done
printf '\n|---|'
for compiler in "$@"; do printf -- '---|---|'; done
printf '\n'
for source in "$work"/*.cpp; do
  printf '| %s |' "$(basename "$source" .cpp)"
  for compiler in "$@"; do
    if /usr/bin/time -f '%U %S %M' -o "$work/time" "$compiler" -std=c++20 -O2 -Iinclude -Iexamples \
        -I/usr/include/eigen3 -c "$source" -o "$work/out.o" 2>"$work/log"; then
      awk '{ printf " %.1f | %.0f |", $1 + $2, $3 / 1024 }' "$work/time"
    else
      printf ' failed | |'
    fi
  done
  printf '\n'
done
