#!/bin/sh
# SPDX-License-Identifier: MIT
# sh cmake/check.sh [--all] [--interop]: installs what is missing, builds with g++ and clang, runs
# the tests, and those of what owns memory or shares it under sanitizers. Ends with the skips by
# name and ctest's summaries; exits with non-zero if anything failed.
#   --all      also the label nightly: exhaustive tests, whole fault matrices, a fresh Debian
#   --interop  also the label interop: makes a Python virtual environment in build/venv
# HALFSTEP_OFFLINE=1 installs nothing. HALFSTEP_REQUIRE_ALL=1 turns skips into failures.
# HALFSTEP_JOBS is the number of parallel jobs (default: the processors this process may use).
set -u
cd "$(dirname "$0")/.." || exit 1
. cmake/packages.sh

all=0
interop=0
for argument in "$@"; do
  case $argument in
    --all) all=1 ;;
    --interop) interop=1 ;;
    -h | --help) sed -n '3,10s/^# //p' cmake/check.sh; exit 0 ;;
    *) echo "check.sh: unknown option '$argument'; there are --all and --interop" >&2; exit 2 ;;
  esac
done

packages=$build_packages
[ $interop = 1 ] && packages="$packages python3-venv"
need_packages $packages || exit 1
need_sanitizers || exit 1
# The n-gram is tested on the text that the capstone trains on; without it that test is a skip.
need_packages bible-kjv bible-kjv-text || true

jobs=${HALFSTEP_JOBS:-$(nproc)}
mkdir -p build
# Logs of an earlier check would be read as this one's.
rm -f build/check_*.log build/check_times.txt
# ctest writes here what each test printed; the skips' reasons are in it.
failed=

stage() {  # stage NAME COMMAND...
  name=$1
  shift
  echo "== $name"
  begin=$(date +%s)
  "$@"
  code=$?
  end=$(date +%s)
  printf '%5d s  %s%s\n' $((end - begin)) "$name" \
    "$([ $code = 0 ] || echo ' (FAILED)')" | tee -a build/check_times.txt
  [ $code = 0 ] || failed="$failed $name,"
  return $code
}

configure_and_build() {  # DIRECTORY CMAKE_ARGUMENTS...
  directory=$1
  shift
  launcher=
  command -v ccache >/dev/null 2>&1 && launcher=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache
  # shellcheck disable=SC2086
  cmake -S . -B "$directory" -G Ninja $launcher "$@" >"$directory.configure.log" 2>&1 || {
    cat "$directory.configure.log"
    return 1
  }
  cmake --build "$directory" -j "$jobs" -- --quiet
}

run_tests() {  # DIRECTORY CTEST_ARGUMENTS...
  directory=$1
  shift
  # The log keeps each test's line; the terminal shows failures and ctest's own summary.
  ctest --test-dir "$directory" -j "$jobs" --output-on-failure --no-tests=error "$@" \
    >"build/check_$(basename "$directory").log" 2>&1
  code=$?
  if [ $code = 0 ]; then
    sed -n '/tests passed/,$p' "build/check_$(basename "$directory").log"
  else
    grep -v ' Passed ' "build/check_$(basename "$directory").log"
  fi
  # What each test printed, kept apart: the next ctest in this directory would overwrite it.
  cp "$directory/Testing/Temporary/LastTest.log" "build/check_$(basename "$directory").output.log"
  return $code
}

make_venv() {
  [ -x build/venv/bin/python ] || python3 -m venv build/venv || return 1
  if [ -f tests/interop/requirements.txt ] && [ "${HALFSTEP_OFFLINE:-0}" != 1 ]; then
    echo "installing into build/venv: $(tr '\n' ' ' <tests/interop/requirements.txt)"
    build/venv/bin/pip install -q -r tests/interop/requirements.txt || return 1
  fi
}

exclude='^(nightly|interop)$'
[ $all = 1 ] && exclude='^interop$'
[ $interop = 1 ] && exclude='^nightly$'
[ $all = 1 ] && [ $interop = 1 ] && exclude='^$'

if [ $interop = 1 ]; then
  stage "Python environment" make_venv
  HALFSTEP_PYTHON=$(pwd)/build/venv/bin/python
  export HALFSTEP_PYTHON
fi
if stage "build, g++ release" configure_and_build build/gcc -DCMAKE_CXX_COMPILER=g++; then
  stage "tests, g++ release" run_tests build/gcc -LE "$exclude"
fi
# Contract tests use both compilers themselves; benches and the long interop need one build.
if stage "build, clang release" configure_and_build build/clang -DCMAKE_CXX_COMPILER=clang++ \
    -DHALFSTEP_CONTRACT_TESTS=OFF -DHALFSTEP_BUILD_BENCH=OFF; then
  stage "tests, clang release" run_tests build/clang -LE "$exclude|^timing$"
fi
if stage "build, address and undefined" configure_and_build build/asan -C cmake/asan.cmake; then
  stage "tests, address and undefined" run_tests build/asan -LE '^(nightly|interop|timing)$'
fi
if stage "build, thread" configure_and_build build/tsan -C cmake/tsan.cmake; then
  stage "tests, thread" run_tests build/tsan -LE '^(nightly|interop|timing)$'
fi

echo "== time of each stage"
cat build/check_times.txt
awk '{ sum += $1 } END { printf "%5d s  in all\n", sum }' build/check_times.txt

echo "== summary of each test run"
for log in build/check_gcc.log build/check_clang.log build/check_asan.log build/check_tsan.log; do
  [ -f "$log" ] && printf '%-6s %s\n' "$(basename "$log" .log | sed 's/check_//')" \
    "$(grep 'tests passed' "$log" || echo 'no summary: see above')"
done
[ -z "$failed" ] || echo "FAILED:${failed%,}"

# Last, the skips: which test, and why.
skips=$(for log in build/check_*.output.log; do
  [ -f "$log" ] || continue
  awk -v build="$(basename "$log" .output.log | sed 's/check_//')" '
    /^[0-9]+\/[0-9]+ (Testing|Test): / { name = $0; sub(/^[0-9]+\/[0-9]+ (Testing|Test): /, "", name) }
    /halfstep skip/ { reason = $0; sub(/.*halfstep skip/, "skip", reason)
                      sub(/^skip: /, "", reason); sub(/^skip /, "", reason)
                      print build ": " name ": " reason }' "$log"
done)
if [ -n "$skips" ]; then
  echo "== skipped: $(printf '%s\n' "$skips" | wc -l) tests"
  printf '%s\n' "$skips"
else
  echo "== skipped: none"
fi
[ -z "$failed" ]
