#!/bin/sh
# SPDX-License-Identifier: MIT
# bad_input.sh CASE CAPSTONE: gives the program one kind of bad input and wants three things: a
# message that says what to do, the right exit code, and the directory of the run as it was.
set -u
case=$1
capstone=$2
work=$(mktemp -d)
mounted=
cleanup() {
  [ -z "$mounted" ] || umount "$mounted"
  rm -rf "$work"
}
trap cleanup EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# A run's directory that already holds an earlier run's files.
out=$work/out
mkdir "$out"
echo "earlier weights" > "$out/weights.safetensors"
echo "earlier metrics" > "$out/metrics.jsonl"
awk 'BEGIN {
  for (i = 0; i < 400; i++) printf "the quick brown fox number %d jumps over the lazy dog\n", i
}' \
  > "$work/text.txt"
state() { (cd "$out" && ls -a && cat -- * 2>/dev/null); }
small="--layers 1 --heads 2 --width 16 --context 16 --batch 2 --steps 3 --warmup 1"

# refuses CODE TEXT... -- ARGUMENTS: the program must say each TEXT, exit with CODE, change nothing.
refuses() {
  code=$1
  shift
  : > "$work/wanted"
  while [ "$1" != "--" ]; do
    printf '%s\n' "$1" >> "$work/wanted"
    shift
  done
  shift
  before=$(state)
  timeout -s KILL 60 "$capstone" "$@" > "$work/stdout" 2> "$work/stderr"  # 137 where it waits
  got=$?
  cat "$work/stderr"
  [ "$got" -eq "$code" ] || fail "exit code $got, wanted $code"
  while IFS= read -r text; do
    grep -qF -- "$text" "$work/stderr" || fail "the message lacks '$text'"
  done < "$work/wanted"
  [ "$before" = "$(state)" ] || fail "the directory has changed: $(ls -a "$out")"
  # And where there was no directory, there is none afterwards.
  [ ! -e "$work/new" ] || fail "a directory was left behind"
}
train() { echo train --data "$work/text.txt" --out "$1" $small; }

case $case in
  empty_data)
    : > "$work/empty.txt"
    refuses 2 "is empty" "Give a file with text" -- train --data "$work/empty.txt" --out "$out"
    refuses 2 "give --data FILE" -- train --out "$out"
    refuses 2 "a name before and behind each comma" -- $(train "$out") --tokenizer llmc --data \
      "$work/empty.txt,"
    ;;
  missing_data)
    refuses 2 "no-such-file.txt" "Is the path right?" -- train --data "$work/no-such-file.txt" \
      --out "$out"
    refuses 2 "no-such-file.txt" -- train --data "$work/no-such-file.txt" --out "$work/new"
    ;;
  no_file)
    # A pipe that nobody writes to, a device without an end, a directory: said at once of every
    # input.
    pipe=$work/pipe
    mkfifo "$pipe"
    for ranks in 1 2; do
      refuses 2 "pipe' is a pipe, not a regular file" "to a file" -- $(train "$out") --data "$pipe" \
        --ranks $ranks --accumulate 2
    done
    refuses 2 "'/dev/zero' is a device, not a regular file" -- $(train "$out") --data /dev/zero
    refuses 2 "is a directory. Name a file in it." -- $(train "$out") --data "$work"
    refuses 2 "pipe' is a pipe" -- $(train "$out") --config "$pipe"
    for tokens in llmc uint16 uint32; do
      refuses 2 "Shards: '" "pipe' is a pipe" -- $(train "$out") --tokenizer $tokens --data "$pipe"
      refuses 2 "Shards: '/dev/zero' is a device" -- $(train "$out") --tokenizer $tokens --data \
        /dev/zero
      refuses 2 "is a directory. Name a file in it." -- $(train "$out") --tokenizer $tokens --data \
        "$work"
    done
    refuses 2 "no directory" -- $(train "$pipe")
    refuses 2 "pipe" -- train --resume "$pipe"
    "$capstone" $(train "$work/run") > /dev/null 2>&1 || fail "the run itself"
    refuses 2 "pipe' is a pipe" -- eval --out "$work/run" --data "$pipe"
    for name in weights.safetensors tokenizer.txt config.json; do
      rm "$work/run/$name"
      mkfifo "$work/run/$name"
      refuses 2 "$name' is a pipe" -- sample --out "$work/run"
    done
    ;;
  short_text)
    printf 'a short text, of one line only' > "$work/short.txt"
    refuses 2 "context of 64" "shorter context" -- train --data "$work/short.txt" --out "$out" \
      --context 64
    ;;
  width_not_divisible)
    refuses 2 "--width 50" "--heads 4" "48 or 52" -- train --data "$work/text.txt" --out "$out" \
      --width 50 --heads 4
    ;;
  token_out_of_range)
    "$capstone" $(train "$work/run") > /dev/null 2>&1 || fail "the run itself"
    printf 'a text with \303\251 in it' > "$work/foreign.txt"
    out=$work/run
    refuses 2 "U+e9" "byte 12" "not one of the" -- eval --out "$work/run" --data "$work/foreign.txt"
    refuses 2 "U+e9" -- sample --out "$work/run" --prompt "$(printf '\303\251')"
    [ ! -s "$work/stdout" ] || fail "the prompt that is refused was written"
    # A tokenizer with one symbol more than the weights know.
    sed -i 's/^\(halfstep-tokenizer 1 [a-z_]* \)\(.*\)$/\1\2/' "$work/run/tokenizer.txt"
    count=$(sed -n '1s/.* //p' "$work/run/tokenizer.txt")
    sed -i "1s/ $count\$/ $((count + 1))/" "$work/run/tokenizer.txt"
    echo 1f600 >> "$work/run/tokenizer.txt"
    refuses 2 "tokens.table" "config.json" -- sample --out "$work/run" --prompt a
    ;;
  non_finite_loss)
    refuses 1 "iteration" "Lower lr" -- $(train "$out") --lr 1e30 --steps 20 --clip 0
    refuses 1 "iteration" "Lower lr" -- $(train "$work/new") --lr 1e30 --steps 20 --clip 0
    ;;
  full_disk)
    mkdir "$work/disk"
    if ! mount -t tmpfs -o size=1m tmpfs "$work/disk" 2> /dev/null; then
      [ "${HALFSTEP_REQUIRE_ALL:-0}" = 1 ] && fail "HALFSTEP_REQUIRE_ALL=1, and mount needs root"
      echo "halfstep skip: mounting a tmpfs of 1 MiB needs root"
      exit 0
    fi
    mounted=$work/disk
    mkdir "$work/disk/out"
    out=$work/disk/out
    echo "earlier weights" > "$out/weights.safetensors"
    # Too large from the start: said before training.
    refuses 2 "room for" "Free some space" -- $(train "$out") --layers 4 --width 128
    # Fills while the run is under way: another writer takes the space once training has begun.
    before=$(state)
    "$capstone" $(train "$out") --steps 300 --width 32 --batch 16 > "$work/stdout" 2> \
      "$work/stderr" &
    run=$!
    while [ ! -s "$out/checkpoints/metrics.jsonl" ] && kill -0 $run 2> /dev/null; do :; done
    dd if=/dev/zero of="$work/disk/filler" bs=4k 2> /dev/null
    wait $run
    got=$?
    cat "$work/stderr"
    [ $got -eq 1 ] || fail "exit code $got, wanted 1"
    grep -qi "no space left" "$work/stderr" || fail "the message lacks the cause"
    [ "$before" = "$(state)" ] || fail "the directory has changed: $(ls -a "$out")"
    ;;
  unknown_option)
    refuses 2 "--layrs" "Did you mean --layers?" -- train --data "$work/text.txt" --out "$out" \
      --layrs 3
    refuses 2 "--tempratur" "Did you mean --temperature?" -- sample --out "$out" --tempratur 1
    refuses 2 "'stray'" "Options begin with --" -- train stray --data "$work/text.txt" --out "$out"
    ;;
  unknown_key)
    echo '{"width": 32, "weight-decai": 0.1}' > "$work/config.json"
    refuses 2 "weight-decai" "Did you mean weight-decay?" -- train --data "$work/text.txt" --out \
      "$out" \
      --config "$work/config.json"
    echo '{"width": "wide"}' > "$work/config.json"
    refuses 2 "'width'" "wanted a number" -- train --data "$work/text.txt" --out "$out" --config \
      "$work/config.json"
    echo '{"width": 16, "width": 32}' > "$work/config.json"
    refuses 2 "'width' is twice in" -- train --data "$work/text.txt" --out "$out" --config \
      "$work/config.json"
    echo '{"steps": 1.5}' > "$work/config.json"
    refuses 2 "'steps'" "whole number" -- train --data "$work/text.txt" --out "$out" --config \
      "$work/config.json"
    ;;
  wrong_type)
    for pair in '"preset": 5' '"data": true' '"format": 16' '"preset": null' '"bias": "false"' \
      '"bias": 1'; do
      echo "{$pair}" > "$work/config.json"
      refuses 2 "wanted" "'$(echo "$pair" | cut -d '"' -f 2)' in" -- train --data "$work/text.txt" \
        --out "$out" \
        --config "$work/config.json"
    done
    ;;
  unknown_command) refuses 2 "unknown command trian" "Did you mean train?" -- trian --out "$out" ;;
  unknown_preset)
    refuses 2 "nanogpt-gpu" "Did you mean nanogpt-cpu?" -- train --data "$work/text.txt" --out \
      "$out" \
      --preset nanogpt-gpu
    ;;
  fp8_format)
    for format in fp8_e4m3 fp8_e5m2; do
      refuses 2 "--format is $format" "fp8 is for storage and telemetry in this release" -- train \
        --data "$work/text.txt" --out "$out" --format $format
    done
    ;;
  bad_number)
    refuses 2 "--steps is 'ten'" "whole number" -- train --data "$work/text.txt" --out "$out" \
      --steps ten
    refuses 2 "--lr is '1,5'" "a number" -- train --data "$work/text.txt" --out "$out" --lr 1,5
    for limit in inf nan -1; do
      refuses 2 "--clip is" "finite limit" -- train --data "$work/text.txt" --out "$out" --clip \
        $limit
    done
    refuses 2 "--eps is 0" "1e-37" -- train --data "$work/text.txt" --out "$out" --eps 0
    refuses 2 "--batch 65536" "2^31" -- train --data "$work/text.txt" --out "$out" --batch 65536 \
      --context 1024 --accumulate 32
    for scale in inf dynamic:1e-40 0 dynamic:x megatron:0.5 jmp:4:8 jmp:4:0 apex:1e9 torch auto:2 \
      jmp:; do
      refuses 2 "--loss-scale is '$scale'" -- train --data "$work/text.txt" --out "$out" \
        --loss-scale $scale
    done
    refuses 2 "--dropout is 1" "[0, 1)" -- train --data "$work/text.txt" --out "$out" --dropout 1
    refuses 2 "--layers is '99999999999'" "out of range" -- train --data "$work/text.txt" --out \
      "$out" \
      --layers 99999999999
    # Nothing is computed of an option in numbers that cannot hold it.
    refuses 2 "--width 2147483647" "parameters" -- train --data "$work/text.txt" --out "$out" \
      --width 2147483647
    refuses 2 "--heads 2147483647" "2147483647 or 4294967294" -- train --data "$work/text.txt" \
      --out "$out" --heads 2147483647
    refuses 2 "room for" "Free some space" -- $(train "$out") --steps 9223372036854775807
    refuses 2 "--threads is 1025" "0 to 1024" -- $(train "$out") --threads 1025 --ranks 2 \
      --accumulate 2
    refuses 2 "nothing fits into 1 bytes" -- $(train "$out") --recompute budget:1
    refuses 2 "nothing fits into 1 bytes" -- $(train "$out") --recompute budget:1 --ranks 2 \
      --accumulate 2
    refuses 2 "--recompute" "from 1 to the 4 layers" -- train --data "$work/text.txt" --out "$out" \
      --recompute segments:5
    ;;
  bad_json)
    echo '{"width": ' > "$work/config.json"
    refuses 2 "is not JSON" -- train --data "$work/text.txt" --out "$out" --config \
      "$work/config.json"
    ;;
  out_is_a_file)
    echo file > "$work/file"
    refuses 2 "no directory" -- $(train "$work/file")
    [ "$(cat "$work/file")" = file ] || fail "the file has changed"
    ;;
  dangling_link)
    ln -s "$work/nowhere" "$work/link"
    refuses 2 "a link without a target" -- $(train "$work/link")
    refuses 2 "cannot be made" -- $(train "$work/link/below")
    [ -L "$work/link" ] || fail "the link is gone"
    [ ! -e "$work/nowhere" ] || fail "the target was made"
    ;;
  names_taken)
    for name in summary.json sample.txt config.json.part; do
      mkdir "$out/$name"
      refuses 2 "$name" "no regular file" -- $(train "$out")
      rmdir "$out/$name" || fail "$name is gone"
    done
    ;;
  two_runs)
    # One run at work in runs/a; a second one may not write there, and when the first fails, what
    # has come to runs/ since stays.
    "$capstone" $(train "$work/runs/a") --steps 3000 > /dev/null 2> "$work/first" &
    run=$!
    while [ ! -e "$work/runs/a/checkpoints/metrics.jsonl" ] && kill -0 $run 2> /dev/null; do :; done
    refuses 2 "another run writes there" -- $(train "$work/runs/a")
    mkdir "$work/runs/b" "$work/runs/a/weights.safetensors"
    echo results > "$work/runs/b/file"
    wait $run
    got=$?
    cat "$work/first"
    [ $got -eq 1 ] || fail "exit code $got of the first run, wanted 1"
    [ "$(cat "$work/runs/b/file")" = results ] || fail "the other run's results are gone"
    [ "$(ls -A "$work/runs/a")" = weights.safetensors ] ||
      fail "left behind: $(ls -A "$work/runs/a")"
    ;;
  foreign_weights)
    "$capstone" $(train "$work/run") --layers 2 > /dev/null 2>&1 || fail "the run itself"
    out=$work/run
    sed -i 's/"layers": 2/"layers": 1/' "$out/config.json"
    refuses 2 "tensors" "of the same run?" -- eval --out "$out"
    ;;
  non_finite_weights)
    "$capstone" $(train "$work/run") > /dev/null 2>&1 || fail "the run itself"
    out=$work/run
    size=$(wc -c < "$out/weights.safetensors")
    printf '\377\377\377\377' |
      dd of="$out/weights.safetensors" bs=1 seek=$((size - 4)) conv=notrunc 2> /dev/null
    refuses 1 "nan" "weights.safetensors" -- eval --out "$out"
    ;;
  changed_text)
    "$capstone" $(train "$work/run") > /dev/null 2>&1 || fail "the run itself"
    out=$work/run
    echo "the quick brown fox" >> "$work/text.txt"
    refuses 2 "not the text that the run was trained on" "--data FILE" -- eval --out "$out"
    "$capstone" eval --out "$out" --data "$work/text.txt" > /dev/null ||
      fail "eval of a text that is named"
    ;;
  full_stdout)
    [ -e /dev/full ] || { echo "halfstep skip: no /dev/full"; exit 0; }
    "$capstone" $(train "$work/run") > /dev/null 2>&1 || fail "the run itself"
    for arguments in "$(train "$work/other")" "eval --out $work/run" \
      "sample --out $work/run --tokens 5" --help; do
      "$capstone" $arguments > /dev/full 2> "$work/stderr"
      got=$?
      [ $got -eq 1 ] || fail "$arguments: exit code $got, wanted 1"
      grep -q "standard output could not be written" "$work/stderr" ||
        fail "$arguments: $(cat "$work/stderr")"
    done
    ;;
  *) fail "unknown case $case" ;;
esac
echo "ok: $case"
