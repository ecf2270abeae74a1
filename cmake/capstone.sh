#!/bin/sh
# SPDX-License-Identifier: MIT
# sh cmake/capstone.sh [OPTIONS]: installs what is missing, builds the capstone, trains its GPT on
# the King James Bible and says where samples and report are. OPTIONS go to `capstone train`.
# HALFSTEP_OFFLINE=1 installs nothing; without the text it trains on a language of its own making.
set -u
cd "$(dirname "$0")/.." || exit 1
. cmake/packages.sh

need_packages cmake ninja-build g++ libeigen3-dev nlohmann-json3-dev libcli11-dev || exit 1

echo "building the capstone in build/capstone"
launcher=
command -v ccache >/dev/null 2>&1 && launcher=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache
mkdir -p build
# shellcheck disable=SC2086
cmake -S . -B build/capstone -G Ninja $launcher -DCMAKE_CXX_COMPILER=g++ -DHALFSTEP_BUILD_TESTS=OFF \
  -DHALFSTEP_BUILD_BENCH=OFF >build/capstone.configure.log 2>&1 || {
  cat build/capstone.configure.log
  exit 1
}
cmake --build build/capstone --target capstone -- --quiet || exit 1
program=$(find build/capstone -type f -name capstone -perm -u+x | head -n 1)
[ -n "$program" ] || { echo "capstone.sh: the build left no program called capstone"; exit 1; }

text=build/kjv.txt
data=grammar
preset='--format bf16'
if need_packages bible-kjv bible-kjv-text; then
  # Without its labels ("Ge1:1 "), a tenth of the text and its easiest part. Every tenth chapter
  # goes to the end, of which the trainer holds out a tenth: as printed, the last tenth is letters.
  if bible -f 'gen1:1-rev22:21' | awk '
        { chapter = $1; sub(/:[0-9]*$/, "", chapter); sub(/^[A-Za-z0-9]*[0-9]:[0-9]* /, "") }
        chapter != last { count++; last = chapter }
        count % 10 == 5 { end = end $0 "\n"; next }
        { print }
        END { printf "%s", end }' >"$text.new" &&
      [ "$(wc -c <"$text.new")" -gt 4000000 ]; then
    mv "$text.new" "$text"
    data=$text
    preset='--preset bible'
  else
    echo "the bible program gave $(wc -c <"$text.new") bytes instead of 4.4 million"
    rm -f "$text.new"
  fi
fi
[ "$data" = grammar ] && echo "no real text: training on a language that the program generates"

out=out/capstone
mkdir -p out
echo "$program train --data $data $preset --out $out $*"
# shellcheck disable=SC2086
"$program" train --data "$data" $preset --out "$out" "$@" || exit $?
echo
echo "in $out:"
ls "$out"
