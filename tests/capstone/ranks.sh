#!/bin/sh
# SPDX-License-Identifier: MIT
# ranks.sh CASE CAPSTONE: runs of the program by several ranks, which are to be those of one.
set -u
case=$1
capstone=$2
work=$(mktemp -d)
started=
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  [ -z "$started" ] || kill -9 $started 2> /dev/null
  exit 1
}
# A text of 30 kB that is neither random nor one line again and again.
awk 'BEGIN {
  split("the a king river stone house of and in under came went saw built lost found", w, " ")
  x = 12345
  for (i = 0; i < 6000; i++) {
    x = (x * 1103515245 + 12345) % 2147483648
    printf "%s%s", w[int(x / 65536) % 16 + 1], (i % 11 == 10 ? ".\n" : " ")
  }
}' > "$work/text.txt"

steps=8
# run NAME ARGUMENTS...: trains in $work/NAME, four micro-batches an update, with dropout and
# clipping.
run() {
  name=$1
  shift
  "$capstone" train --out "$work/$name" --preset hash --data "$work/text.txt" --threads 1 \
    --dropout 0.1 \
    --accumulate 4 --steps $steps --clip 0.5 "$@" > "$work/$name.log" 2>&1 ||
      { cat "$work/$name.log"; fail "run $*"; }
}
value() { sed -n "s/^ *\"$2\": \"\\{0,1\\}\\([^\",]*\\).*/\\1/p" "$work/$1/summary.json" |
  head -n 1; }
hash_of() { value "$1" weights_hash; }
# list RUN KEY [COLLECTIVE]: the numbers of an array in summary.json, of "ranks" or of one of its
# collectives.
list() {
  flat=$(tr -d '\n' < "$work/$1/summary.json" | sed 's/": */":/g')
  [ $# -lt 3 ] || flat=$(echo "$flat" | sed "s/.*\"$3\":{//; s/}.*//")
  echo "$flat" | sed "s/.*\"$2\":\\[//; s/\\].*//; s/,/ /g"
}
sum() {
  total=0
  for number in "$@"; do total=$((total + number)); done
  echo $total
}
# same RUN RANKS ALONE: the bits of one process, and the work of each rank.
same() {
  for key in weights_hash train_loss val_loss val_standard_error val_accuracy skipped_steps steps \
    tokens loss_scale; do
    [ "$(value "$1" $key)" = "$(value "$3" $key)" ] ||
      fail "$1: $key $(value "$1" $key), of one process $(value "$3" $key)"
  done
  cmp "$work/$1/sample.txt" "$work/$3/sample.txt" || fail "$1: another sample"
  [ "$(grep -c '"kind":"step"' "$work/$1/metrics.jsonl")" -eq $steps ] ||
    fail "$1: steps in metrics.jsonl"
  [ "$2" -eq 1 ] && return
  [ "$(value "$1" micro_batches)" -eq $((4 * steps / $2)) ] ||
    fail "$1: micro_batches $(value "$1" micro_batches)"
  set -- "$1" "$2" $(list "$1" tokens)
  [ $# -eq $((2 + $2)) ] || fail "$1: tokens of $(($# - 2)) ranks"
  name=$1 ranks=$2
  shift 2
  for tokens in "$@"; do
    [ "$tokens" -eq $(($(value $name tokens) / ranks)) ] ||
      fail "$name: a rank trained on $tokens tokens"
  done
}
format_flags() {
  echo --format $1
  # The first updates overflow at this scale.
  [ $1 != fp16 ] || echo --loss-scale dynamic:16777216
}
alone() {
  run alone-$1 $(format_flags $1)
  [ $1 != fp16 ] || [ "$(value alone-fp16 skipped_steps)" -gt 0 ] || fail "fp16 skipped nothing"
}
# compare FORMAT RANKS ARGUMENTS...
compare() {
  format=$1 ranks=$2
  shift 2
  run ranks $(format_flags $format) --ranks $ranks "$@"
  same ranks $ranks alone-$format
  rm -r "$work/ranks"
}
# One that says no and why.
refused() {
  words=$1
  shift
  "$capstone" train --out "$work/refused" --data "$work/text.txt" --preset hash "$@" > \
    "$work/refused.log" 2>&1
  [ $? -eq 2 ] || fail "$*: not refused"
  grep -q -- "$words" "$work/refused.log" || fail "$*: $(cat "$work/refused.log")"
  [ ! -e "$work/refused" ] || fail "$*: left something"
}
files_of() { (cd "$work/$1/checkpoints/$2" && cksum weights.safetensors state.safetensors); }
# without_the_last RUN: as if it had been killed behind iteration 4.
without_the_last() {
  rm -r "$work/$1/checkpoints/iteration_00000008" "$work/$1/checkpoints/iteration_00000006" \
    "$work/$1/summary.json"
}
resume() {
  name=$1
  shift
  "$capstone" train --resume "$work/$name" "$@" > "$work/$name.log" 2>&1 ||
    { cat "$work/$name.log"; fail "resume $*"; }
  grep -q "resumed after iteration $from" "$work/$name.log" ||
    fail "$name: $(cat "$work/$name.log")"
}
children_of() { cat "/proc/$1/task/$1/children"; }
# Whether it runs; one that nobody has waited for does not.
runs() { [ -r "/proc/$1/stat" ] && ! grep -q ') [ZX] ' "/proc/$1/stat"; }
# start NAME ARGUMENTS...: a long run in the background, which has taken some steps when this
# returns.
start() {
  name=$1
  shift
  "$capstone" train --out "$work/$name" --preset hash --data "$work/text.txt" --threads 1 \
    --accumulate 4 \
    --steps 100000 "$@" > "$work/$name.log" 2>&1 &
  started=$!
  tries=0
  until [ "$(grep -c '"kind":"step"' "$work/$name/checkpoints/metrics.jsonl" 2> /dev/null)" -ge 3 \
    ] 2> /dev/null; do
    kill -0 $started 2> /dev/null || fail "$name: $(cat "$work/$name.log")"
    tries=$((tries + 1))
    [ $tries -lt 600 ] || fail "$name takes no step"
    sleep 0.05
  done
}
now() { date +%s%N; }

case $case in
  hashes)
    for format in float bf16 fp16; do alone $format; done
    run other --format float --ranks 2 --seed 2
    [ "$(hash_of other)" != "$(hash_of alone-float)" ] || fail "two seeds, one hash"
    compare float 1 --zero 2
    compare float 2
    compare float 4 --zero 2 --transport pipe --bucket 5000
    compare float 4 --zero 3 --recompute segments:2
    compare bf16 4 --zero 1
    compare bf16 4 --zero 1 --transport pipe --bucket 1000
    compare bf16 2 --zero 3 --transport threads
    compare bf16 2 --transport pipe --algorithm ring
    compare fp16 4 --transport threads --algorithm direct
    compare fp16 2 --zero 3 --transport pipe
    compare fp16 4 --zero 2 --bucket 4
    ;;
  matrix)
    steps=50
    for format in float bf16 fp16; do
      alone $format
      for transport in threads shm pipe; do
        for zero in 0 1 2 3; do
          for ranks in 2 4; do compare $format $ranks --zero $zero --transport $transport; done
          for bucket in 400 65536; do compare $format 2 --zero $zero --transport $transport \
            --bucket $bucket; done
        done
        for algorithm in direct ring; do compare $format 2 --transport $transport --algorithm \
          $algorithm; done
      done
      for transport in threads shm; do compare $format 4 --transport $transport --algorithm push; \
        done
    done
    ;;
  account)
    # n ranks, P parameters, S steps; sums over the ranks are exact whatever the cut.
    for n in 2 4; do
      run a --format bf16 --ranks $n --transport pipe
      p=$(value a parameters)
      [ "$(value a predicted_peak_bytes)" -eq "$(value a total)" ] ||
        fail "$n ranks: predicted $(value a predicted_peak_bytes) bytes, counted $(value a total)"
      [ "$(sum $(list a sent "all_reduce F32"))" -eq $((2 * (n - 1) * 4 * p * steps)) ] ||
        fail "all-reduce over pipes: $(list a sent "all_reduce F32")"
      [ "$(sum $(list a read "all_reduce F32"))" -eq 0 ] || fail "pipes share memory"
      # A bucket of all, so that none is small enough to travel beside the control words.
      run b --format bf16 --ranks $n --bucket 4000000
      for key in read written; do
        [ "$(sum $(list b $key "all_reduce F32"))" -eq $((n * 4 * p * steps)) ] ||
          fail "push: $key $(list b $key "all_reduce F32")"
      done
      [ "$(sum $(list b sent "all_reduce F32") $(list b staged "all_reduce F32"))" -eq 0 ] ||
        fail "a push that copies"
      for zero in 1 2 3; do
        run z$zero --format bf16 --ranks $n --transport pipe --zero $zero
        rounds=$([ $zero -eq 1 ] && echo 1 || echo $((4 / n)))
        [ "$(sum $(list z$zero sent "reduce_scatter F32"))" -eq \
          $((rounds * (n - 1) * 4 * p * steps)) ] ||
          fail "ZeRO $zero: reduce-scatter $(list z$zero sent "reduce_scatter F32")"
        weights=$([ $zero -eq 3 ] && value z3 gathered_elements || echo $((p * steps)))
        [ "$(sum $(list z$zero sent "all_gather BF16"))" -eq $(((n - 1) * 2 * weights)) ] ||
          fail "ZeRO $zero: all-gather $(list z$zero sent "all_gather BF16")"
      done
      rm -r "$work/a" "$work/b" "$work/z1" "$work/z2" "$work/z3"
    done
    ;;
  resume)
    saving="--format bf16 --checkpoint-every 2 --keep 9"
    from=4
    run one $saving
    run two $saving --ranks 2 --zero 2
    run four $saving --ranks 4 --zero 3 --transport pipe
    for name in two four; do
      [ "$(hash_of $name)" = "$(hash_of one)" ] || fail "$name: another hash"
      for iteration in iteration_00000004 iteration_00000008; do
        [ "$(files_of $name $iteration)" = "$(files_of one $iteration)" ] ||
          fail "$name: other files in $iteration"
      done
    done
    hash=$(hash_of one)
    for name in one two four; do without_the_last $name; done
    resume two --ranks 1 --zero 0
    resume one --ranks 2 --zero 3
    resume four --ranks 2 --zero 1 --transport threads
    for name in one two four; do [ "$(hash_of $name)" = "$hash" ] ||
      fail "$name resumed: $(hash_of $name), not $hash"; done
    # A run that is stopped by a signal to the launcher.
    start stopped --ranks 2 --zero 1
    kill -TERM $started
    wait $started
    code=$?
    [ $code -eq 143 ] || fail "SIGTERM: code $code, $(cat "$work/stopped.log")"
    grep -q "to go on: capstone train --resume" "$work/stopped.log" ||
      fail "SIGTERM: $(cat "$work/stopped.log")"
    ls -d "$work"/stopped/checkpoints/iteration_* > /dev/null || fail "SIGTERM: no checkpoint"
    ;;
  signals)
    # A signal that a rank had before, and one that reaches ranks twice, by their group and by their
    # launcher, are one wish to stop: a checkpoint is written.
    start rank --ranks 4 --zero 1
    set -- $(children_of $started)
    kill -TERM $3
    sleep 0.3
    runs $started || fail "a signal to rank 2 ended the run: $(cat "$work/rank.log")"
    kill -TERM $started
    wait $started
    code=$?
    [ $code -eq 143 ] && ls -d "$work"/rank/checkpoints/iteration_* > /dev/null ||
      fail "code $code: $(cat "$work/rank.log")"
    start group --ranks 4 --transport pipe
    set -- $(children_of $started)
    kill -TERM "$@" $started
    wait $started
    code=$?
    [ $code -eq 143 ] && ls -d "$work"/group/checkpoints/iteration_* > /dev/null ||
      fail "code $code: $(cat "$work/group.log")"
    ;;
  killed)
    ls /dev/shm > "$work/shm-before"
    for transport in shm pipe; do
      start $transport --ranks 4 --zero 2 --transport $transport
      set -- $(children_of $started)
      [ $# -eq 4 ] || fail "$# ranks"
      all="$*"
      before=$(now)
      kill -9 $3
      wait $started
      code=$?
      took=$((($(now) - before) / 1000000))
      [ $code -eq 137 ] || fail "$transport: code $code"
      [ $took -lt 2000 ] || fail "$transport: $took ms"
      grep -q "rank 2 of 4 (process $3) was killed by signal 9" "$work/$transport.log" ||
        fail "$(cat "$work/$transport.log")"
      for pid in $all; do ! runs $pid || fail "$transport: process $pid is still there"; done
      [ -z "$(find "$work/$transport" 2> /dev/null | grep -v -e checkpoints -e "$transport\$")" ] ||
        fail "left: $(find "$work/$transport")"
    done
    # And the launcher itself.
    start launcher --ranks 2
    set -- $(children_of $started)
    kill -9 $started
    wait $started 2> /dev/null
    sleep 1
    for pid in "$@"; do ! runs $pid || fail "rank $pid outlives its launcher"; done
    ls /dev/shm | cmp - "$work/shm-before" || fail "left in /dev/shm"
    ;;
  refusals)
    refused "power of two" --ranks 3 --accumulate 3
    refused "cannot be shared" --ranks 4 --accumulate 2
    refused "0, 1, 2 or 3" --zero 4
    refused "there are threads, shm and pipe" --transport tcp
    refused "there are best, push, direct and ring" --algorithm tree
    refused "push needs memory" --ranks 2 --transport pipe --algorithm push
    refused "bits of one process" --ranks 4 --accumulate 4 --algorithm ring
    refused "has no use for" --ranks 2 --zero 1 --algorithm ring
    refused "Leave one of them out" --ranks 2 --zero 1 --telemetry true
    refused "segments:K" --ranks 2 --zero 1 --recompute budget:100000000
    refused "at least the 4 bytes" --bucket 3
    # What rank 0 finds keeps its sentence and its code, and is said once.
    "$capstone" train --out "$work/text.txt" --data "$work/text.txt" --preset hash --ranks 2 > \
      "$work/file.log" 2>&1
    [ $? -eq 2 ] || fail "a file for --out: $(cat "$work/file.log")"
    [ "$(grep -c "is no directory" "$work/file.log")" -eq 1 ] ||
      fail "a file for --out: $(cat "$work/file.log")"
    "$capstone" train --out "$work/nan" --data "$work/text.txt" --preset hash --ranks 2 --lr 1e30 \
      --clip 0 > "$work/nan.log" 2>&1
    [ $? -eq 1 ] || fail "a loss that is not finite: $(cat "$work/nan.log")"
    [ "$(grep -c "capstone: fit" "$work/nan.log")" -eq 1 ] ||
      fail "a loss that is not finite: $(cat "$work/nan.log")"
    ! grep -q "halfstep: rank" "$work/nan.log" ||
      fail "a loss that is not finite: $(cat "$work/nan.log")"
    ;;
  *)
    fail "no case $case"
    ;;
esac
echo "ok: $case"
