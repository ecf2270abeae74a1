#!/bin/sh
# SPDX-License-Identifier: MIT
# resume.sh CASE CAPSTONE SHIM [TIMES]: runs of the program that are killed, stopped or run out of
# disk, and go on. What they must end with is the run that nothing disturbed: its losses, its weights.
set -u
case=$1
capstone=$2
shim=$3
times=${4:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
awk 'BEGIN {
  split("the a king river stone house of and in under came went saw built lost found", w, " ")
  x = 12345
  for (i = 0; i < 12000; i++) {
    x = (x * 1103515245 + 12345) % 2147483648
    printf "%s%s", w[int(x / 65536) % 16 + 1], (i % 11 == 10 ? ".\n" : " ")
  }
}' > "$work/text.txt"

# What a run can lose is in it: dropout, two micro-batches a window, skipped updates and a moving
# loss scale in fp16, a rate that falls on a plateau, the best evaluation, patience, an average of
# the weights.
steps=40
every=5
keep=2
more=
options() {  # options FORMAT
  echo "--preset hash $more --data $work/text.txt --threads 1 --steps $steps --format $1" \
    "--dropout 0.1 --eval-every 4 --plateau-patience 1 --patience 9 --ema 0.9" \
    "--checkpoint-every $every --keep $keep"
  if [ "$1" = fp16 ]; then echo "--loss-scale dynamic:16777216"; fi
}
value() { sed -n "s/^ *\"$2\": \"\\{0,1\\}\\([^\",]*\\).*/\\1/p" "$work/$1/summary.json" |
  head -n 1; }
# Everything of a log but times, and the notes of where it was resumed.
losses() { grep -v '"kind":"resume"' "$1" | sed 's/,"step_seconds".*//; s/,"seconds".*//'; }
resumes() { grep '"kind":"resume"' "$1" | sed 's/.*"iteration"://; s/}.*//'; }
# The number of the newest checkpoint that has a manifest; 0 for none.
newest() {
  number=$(ls -d "$work/$1"/checkpoints/iteration_*[0-9]/manifest.json 2> /dev/null | tail -n 1 |
    sed 's/.*iteration_0*//; s/\/.*//')
  echo "${number:-0}"
}
# Steps in the log of a run that is under way.
lines() {
  count=$(grep -c '"kind":"step"' "$work/$1/checkpoints/metrics.jsonl" 2> /dev/null)
  echo "${count:-0}"
}

undisturbed() {  # undisturbed FORMAT
  [ -d "$work/$1" ] && return
  "$capstone" train --out "$work/$1" $(options "$1") > "$work/$1.log" 2>&1 ||
    { cat "$work/$1.log"; fail "the run in $1"; }
  losses "$work/$1/metrics.jsonl" > "$work/$1.losses"
  [ "$(grep -c '"kind":"step"' "$work/$1.losses")" -eq $steps ] ||
    fail "$1: steps of the undisturbed run"
}

# finish RUN FORMAT: resumes a run to its end, and compares. Sets from, the iteration it went on
# after.
finish() {
  from=$(newest "$1")
  "$capstone" train --resume "$work/$1" > "$work/$1.resumed" 2>&1 ||
    { cat "$work/$1.resumed"; fail "$1: the resumed run"; }
  grep -qx "resumed after iteration $from" "$work/$1.resumed" ||
    fail "$1: $(grep resumed "$work/$1.resumed"), but the newest checkpoint was $from"
  [ "$(resumes "$work/$1/metrics.jsonl" | tail -n 1)" = "$from" ] ||
    fail "$1: the log does not say $from"
  equal "$1" "$2"
}
equal() {
  losses "$work/$1/metrics.jsonl" > "$work/$1.losses"
  diff "$work/$2.losses" "$work/$1.losses" > "$work/diff" ||
    { head "$work/diff"; fail "$1: the losses differ"; }
  for key in weights_hash average_hash average_val_loss val_loss train_loss steps skipped_steps \
    micro_batches tokens loss_scale; do
    [ "$(value "$1" $key)" = "$(value "$2" $key)" ] ||
      fail "$1: $key $(value "$1" $key), undisturbed $(value "$2" $key)"
  done
  for file in "$work/$2"/checkpoints/iteration_*/*; do
    cmp "$file" "$work/$1/checkpoints/${file#"$work/$2"/checkpoints/}" ||
      fail "$1: a checkpoint differs"
  done
  [ -z "$(find "$work/$1" -name '*.part*' -o -name '*.tmp*')" ] ||
    fail "$1: left behind: $(find "$work/$1")"
}

# background RUN ARGUMENTS...: trains in $work/RUN, as $run. A shell lets what it starts in the
# background ignore SIGINT, and the program then does.
background() {
  name=$1
  shift
  env --default-signal=INT "$capstone" train --out "$work/$name" "$@" > "$work/$name.out" 2>&1 &
  run=$!
}
# start RUN FORMAT
start() { background "$1" $(options "$2"); }

# A short run stopped after its first checkpoint, to be copied: what is left of it saves once, and
# removes the first one.
stopped_once() {
  steps=8
  every=4
  keep=1
  more="--layers 1 --width 24"
  undisturbed "$1"
  HALFSTEP_FAULT=kill:mkdir:2 LD_PRELOAD=$shim "$capstone" train --out "$work/base" \
    $(options "$1") > "$work/base.out" 2>&1
  [ "$(newest base)" -eq 4 ] || fail "the base is at $(newest base)"
}

# faults MODE CALL FORMAT: lets the 1st, 2nd, … such call of a save fail, or kills the process in
# it, until a run meets none.
faults() {
  n=1
  while :; do
    rm -rf "$work/hit" "$work/log"
    cp -r "$work/base" "$work/hit"
    HALFSTEP_FAULT=$1:$2:$n HALFSTEP_FAULT_LOG=$work/log LD_PRELOAD=$shim \
      "$capstone" train --resume "$work/hit" > "$work/hit.out" 2>&1
    code=$?
    [ -s "$work/log" ] || break
    case $1 in
      kill) [ $code -eq 137 ] || fail "$1 $2 $n: exit code $code" ;;
      # A directory may close as it likes, and an old checkpoint may stay; everything else ends the
      # run.
      fail) [ $code -eq 1 ] || { [ $code -eq 0 ] && grep -qE 'close|rename' "$work/log"; } ||
        fail "$1 $2 $n: exit code $code" ;;
    esac
    if [ $code -ne 0 ]; then
      at=$(newest hit)
      [ "$at" -ge 4 ] || fail "$1 $2 $n: the newest checkpoint is $at"
      echo "$1 $2 $n, $(cat "$work/log"): went on after $at"
      finish hit "$3"
    fi
    equal hit "$3"
    n=$((n + stride))
  done
  [ $code -eq 0 ] ||
    { cat "$work/hit.out"; fail "$1 $2: exit code $code of the run that met none"; }
  equal hit "$3"
  echo "$1 $2: $(((n - 1) / stride)) of $((n - 1)) calls in a save hit one by one," \
    "then a save that met none"
}

case $case in
  killed)
    # SIGKILL at moments uniform over the run, in each format; each is then resumed to its end.
    # A run begins with its run.json; a kill that comes after its end is tried again, earlier.
    begun() {
      until [ -e "$work/$1/checkpoints/run.json" ]; do
        kill -0 $run 2> /dev/null || fail "$1: $(cat "$work/$1.out")"
        sleep 0.01
      done
    }
    landed=0
    for format in float bf16 fp16; do
      undisturbed $format
      rm -rf "$work/again"
      start again $format
      begun again
      begin=$(date +%s%N)
      wait $run
      duration=$((($(date +%s%N) - begin) / 1000000))
      i=0
      late=0
      while [ $i -lt "$times" ]; do
        rm -rf "$work/killed"
        start killed $format
        begun killed
        sleep "$(awk "BEGIN { print $duration * ($i + 0.5) / $times / 1000 }")"
        kill -9 $run 2> /dev/null
        wait $run 2> /dev/null
        if [ $? -ne 137 ]; then
          late=$((late + 1))
          [ $late -le 20 ] || fail "$format: $late kills came after the end of the run"
          duration=$((duration * 9 / 10))
          continue
        fi
        i=$((i + 1))
        landed=$((landed + 1))
        before=$(lines killed)
        at=$(newest killed)
        finish killed $format
        spent=$((before + steps - at))
        echo "$format $i of $times: killed after $before steps, went on after $at, $spent executed"
        [ $spent -lt $((2 * steps)) ] || fail "$spent steps executed for a run of $steps"
      done
    done
    echo "$landed kills"
    ;;
  chain)
    # One run, killed again and again.
    undisturbed bf16
    start chain bf16
    kills=0
    executed=0
    while [ $kills -lt 6 ]; do
      sleep 0.3
      kill -9 $run 2> /dev/null
      wait $run 2> /dev/null
      [ $? -eq 0 ] && break
      kills=$((kills + 1))
      [ -e "$work/chain/checkpoints/run.json" ] || { start chain bf16; continue; }
      executed=$((executed + $(lines chain) - $(newest chain)))  # what was in vain
      "$capstone" train --resume "$work/chain" > "$work/chain.out" 2>&1 &
      run=$!
    done
    wait $run 2> /dev/null
    equal chain bf16
    echo "$kills kills of one run, $((executed + steps)) steps executed," \
      "resumed after $(resumes "$work/chain/metrics.jsonl" | tr '\n' ' ')"
    [ $kills -gt 0 ] || fail "no kill"
    [ $executed -lt $steps ] || fail "$executed steps in vain"
    ;;
  save_fails)
    stopped_once fp16
    stride=1
    for call in open mkdir write fsync rename close; do faults fail $call fp16; done
    ;;
  save_killed)
    # In the check some of the calls, in one format; at night every one in each.
    stride=$times
    formats=fp16
    [ "$times" -gt 1 ] || formats="float bf16 fp16"
    for format in $formats; do
      rm -rf "$work/base"
      stopped_once $format
      faults kill any $format
    done
    ;;
  signals)
    undisturbed bf16
    for pair in INT:130 TERM:143; do
      for moment in 1 9 23; do
        rm -rf "$work/s"
        start s bf16
        while [ "$(lines s)" -lt $moment ] && kill -0 $run 2> /dev/null; do :; done
        kill -${pair%:*} $run
        wait $run
        code=$?
        [ $code -eq ${pair#*:} ] || { cat "$work/s.out"; fail "${pair%:*}: exit code $code"; }
        grep -q "stopped by SIG${pair%:*} after iteration" "$work/s.out" ||
          fail "it does not say so: $(cat "$work/s.out")"
        [ "$(newest s)" -ge $moment ] || fail "saved $(newest s) after $moment steps"
        [ "$(ls -A "$work/s")" = checkpoints ] || fail "left behind: $(ls -A "$work/s")"
        finish s bf16
      done
    done
    # Without --checkpoint-every the signal's checkpoint is the only one, and goes when the run
    # ends.
    every=0
    steps=400
    "$capstone" train --out "$work/plain" $(options float) > /dev/null 2>&1 || fail "the plain run"
    start t float
    while [ "$(lines t)" -lt 5 ] && kill -0 $run 2> /dev/null; do :; done
    kill -INT $run
    wait $run
    [ $? -eq 130 ] || fail "SIGINT without checkpoints: $(cat "$work/t.out")"
    "$capstone" train --resume "$work/t" > "$work/t.resumed" 2>&1 ||
      { cat "$work/t.resumed"; fail "resumed"; }
    [ "$(value t weights_hash)" = "$(value plain weights_hash)" ] || fail "another hash"
    [ "$(ls "$work/t" | wc -l)" -eq 7 ] || fail "left behind: $(ls "$work/t")"
    "$capstone" train --resume "$work/t" > "$work/t.resumed" 2>&1
    [ $? -eq 2 ] && grep -q "no run that can be resumed" "$work/t.resumed" ||
      fail "a run without checkpoints was resumed"
    ;;
  evaluation)
    # Signals within a long evaluation and within the sample at the end: seconds, if nobody asked.
    for i in 1 2 3 4 5; do cat "$work/text.txt"; done > "$work/long.txt"
    long="--preset hash --data $work/long.txt --threads 1 --steps 4 --eval-every 2"
    long="$long --held-out 0.9 --checkpoint-every 1"
    "$capstone" train --out "$work/whole" $long > "$work/whole.log" 2>&1 || fail "the whole run"
    background e $long
    while [ "$(lines e)" -lt 2 ] && kill -0 $run 2> /dev/null; do :; done
    sleep 0.05
    kill -TERM $run
    begin=$(date +%s%N)
    wait $run
    code=$?
    took=$((($(date +%s%N) - begin) / 1000000))
    [ $code -eq 143 ] || fail "exit code $code: $(cat "$work/e.out")"
    grep -q '"kind":"evaluation"' "$work/e/checkpoints/metrics.jsonl" &&
      fail "the evaluation was over before the signal"
    [ "$(newest e)" -eq 2 ] || fail "saved $(newest e)"
    echo "left an evaluation within $took ms"
    "$capstone" train --resume "$work/e" > "$work/e.resumed" 2>&1 ||
      { cat "$work/e.resumed"; fail "resumed"; }
    losses "$work/whole/metrics.jsonl" > "$work/whole.losses"
    equal e whole
    # The sample: after the last evaluation is in the log.
    big="--preset hash --data $work/text.txt --threads 1 --steps 2 --layers 6 --width 192"
    big="$big --context 128 --held-out 0.02"
    "$capstone" train --out "$work/w" $big > /dev/null 2>&1 || fail "the big run"
    background b $big
    until grep -q '"kind":"evaluation"' "$work/b/checkpoints/metrics.jsonl" 2> /dev/null; do kill \
      -0 $run || break; done
    kill -INT $run
    wait $run
    code=$?
    [ $code -eq 130 ] || fail "exit code $code in the sample: $(cat "$work/b.out")"
    "$capstone" train --resume "$work/b" > "$work/b.resumed" 2>&1 ||
      { cat "$work/b.resumed"; fail "resumed"; }
    cmp "$work/w/sample.txt" "$work/b/sample.txt" || fail "another sample"
    [ "$(value w weights_hash)" = "$(value b weights_hash)" ] || fail "another hash"
    ;;
  second_signal)
    # A second SIGINT does not wait for the save that the first one asked for.
    background s --preset hash --data "$work/text.txt" --threads 1 --batch 16 --context 256 \
      --width 192 --layers 8 \
      --accumulate 1
    while [ ! -e "$work/s/checkpoints/metrics.jsonl" ] && kill -0 $run 2> /dev/null; do :; done
    sleep 0.1
    kill -INT $run
    sleep 0.02
    begin=$(date +%s%N)
    kill -INT $run
    wait $run
    code=$?
    took=$((($(date +%s%N) - begin) / 1000000))
    [ $code -eq 130 ] || fail "exit code $code"
    grep -q "stopped by" "$work/s.out" && fail "it had saved before the second signal came"
    [ $took -lt 300 ] || fail "it took $took ms"
    ;;
  damaged)
    # Checkpoints that are not whole are named and passed over; the run ends the same.
    undisturbed float
    cp -r "$work/float" "$work/d"
    rm "$work/d"/*.* 
    last=$(ls -d "$work/d"/checkpoints/iteration_* | tail -n 1)
    printf 'x' | dd of="$last/state.safetensors" bs=1 seek=3000 conv=notrunc 2> /dev/null
    mkdir "$work/d/checkpoints/iteration_00000099" "$work/d/checkpoints/iteration_00000100.tmp"
    "$capstone" train --resume "$work/d" > "$work/d.out" 2>&1 ||
      { cat "$work/d.out"; fail "the resumed run"; }
    grep -q "skipped a checkpoint that is damaged: .*state.safetensors" "$work/d.out" ||
      fail "nothing is said: $(cat "$work/d.out")"
    grep -q "skipped a checkpoint that is not whole: .*iteration_00000099" "$work/d.out" ||
      fail "nothing is said of 99"
    grep -q "iteration_00000100.tmp' is what an interrupted save left; removed" "$work/d.out" ||
      fail "nothing of the .tmp"
    rmdir "$work/d/checkpoints/iteration_00000099" ||
      fail "a directory that is not this run's was removed"
    equal d float
    # All of them: from the beginning.
    for one in "$work/d"/checkpoints/iteration_*; do : > "$one/manifest.json"; done
    "$capstone" train --resume "$work/d" > "$work/d.out" 2>&1 ||
      { cat "$work/d.out"; fail "from the beginning"; }
    grep -qx "resumed after iteration 0" "$work/d.out" || fail "$(grep resumed "$work/d.out")"
    equal d float
    ;;
  refusals)
    undisturbed float
    refuses() {
      wanted=$1
      shift
      "$capstone" train "$@" > "$work/r.out" 2>&1
      code=$?
      [ $code -eq 2 ] || { cat "$work/r.out"; fail "$*: exit code $code"; }
      grep -qF -- "$wanted" "$work/r.out" ||
        fail "$*: the message lacks '$wanted': $(cat "$work/r.out")"
    }
    hash=$(cat "$work/float"/checkpoints/*/* "$work/float"/*.* | cksum)
    refuses "--lr is 0.5, but the run" --resume "$work/float" --lr 0.5
    refuses "--seed is 2, but the run" --resume "$work/float" --seed 2
    refuses "goes on in that directory" --resume "$work/float" --out "$work/other"
    refuses "--preset has no place beside it" --resume "$work/float" --preset hash
    refuses "is no run that can be resumed" --resume "$work/nothing"
    refuses "has checkpoints of a run" --out "$work/float" $(options float)
    sed 's/king/queen/g' "$work/text.txt" > "$work/other.txt"
    "$capstone" train --resume "$work/float" --data "$work/other.txt" > "$work/r.out" 2>&1 &&
      fail "another text was taken"
    grep -q "trained on other data" "$work/r.out" || fail "$(cat "$work/r.out")"
    [ "$hash" = "$(cat "$work/float"/checkpoints/*/* "$work/float"/*.* | cksum)" ] ||
      fail "a refusal changed something"
    # What may change: where the text lies, threads, how often it saves. A flag that says the same
    # is no change.
    mv "$work/text.txt" "$work/moved.txt"
    "$capstone" train --resume "$work/float" --data "$work/moved.txt" --threads 2 --keep 1 --lr \
      0.003 > "$work/r.out" 2>&1 ||
      { cat "$work/r.out"; fail "what may change"; }
    # Patience ends a run, and a run that it has ended stays so.
    patient="--preset hash --data $work/moved.txt --threads 1 --steps 400 --eval-every 2"
    patient="$patient --patience 2 --lr 0 --min-lr 0 --checkpoint-every 3"
    "$capstone" train --out "$work/p" $patient > "$work/p.out" 2>&1 || fail "patience"
    [ "$(value p iterations)" -eq 6 ] || fail "patience ended it after $(value p iterations)"
    [ -d "$work/p/checkpoints/iteration_00000002" ] || fail "the best went"
    "$capstone" train --resume "$work/p" > "$work/p.out" 2>&1 || fail "patience, resumed"
    [ "$(value p iterations)" -eq 6 ] || fail "patience, resumed: $(value p iterations)"
    ;;
  *) fail "unknown case $case" ;;
esac
echo "ok: $case"
