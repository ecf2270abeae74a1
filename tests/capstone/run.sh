#!/bin/sh
# SPDX-License-Identifier: MIT
# run.sh CASE CAPSTONE: whole runs of the program, and what they leave behind.
set -u
case=$1
capstone=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
# A text of 60 kB that is neither random nor one line again and again.
awk 'BEGIN {
  split("the a king river stone house of and in under came went saw built lost found", w, " ")
  x = 12345
  for (i = 0; i < 12000; i++) {
    x = (x * 1103515245 + 12345) % 2147483648
    printf "%s%s", w[int(x / 65536) % 16 + 1], (i % 11 == 10 ? ".\n" : " ")
  }
}' > "$work/text.txt"

# run NAME ARGUMENTS...: trains in $work/NAME.
run() {
  name=$1
  shift
  "$capstone" train --out "$work/$name" "$@" > "$work/$name.log" 2>&1 ||
    { cat "$work/$name.log"; fail "run $name"; }
}
hash_run() {
  name=$1
  shift
  run "$name" --preset hash --data "$work/text.txt" --threads 1 "$@"
}
value() { sed -n "s/^ *\"$2\": \"\\{0,1\\}\\([^\",]*\\).*/\\1/p" "$work/$1/summary.json" |
  head -n 1; }
hash_of() { value "$1" weights_hash; }
same() { [ "$(hash_of "$1")" = "$(hash_of "$2")" ] ||
  fail "$1 $(hash_of "$1") and $2 $(hash_of "$2") differ"; }
other() { [ "$(hash_of "$1")" != "$(hash_of "$2")" ] ||
  fail "$1 and $2 have one hash, $(hash_of "$1")"; }
cpu_has() { grep -qw "$1" /proc/cpuinfo; }
paths() {
  echo portable
  cpu_has avx2 && cpu_has fma && echo avx2
  cpu_has avx512bw && cpu_has avx512vl && cpu_has avx512dq && echo avx512
  cpu_has avx512_bf16 && echo avx512_bf16
}
# ran RUN FORMAT PATH: the products came from that path; AVX-512-BF16 has its own for bf16 alone.
ran() {
  wanted=$3
  [ $3 = avx512_bf16 ] && [ $2 != bf16 ] && wanted=avx512
  [ "$(value $1 isa)" = $wanted ] || fail "$2: asked for $3, wanted $wanted, ran $(value $1 isa)"
}

case $case in
  files)
    hash_run a --eval-every 10
    for file in summary.json metrics.jsonl weights.safetensors tokenizer.txt config.json \
      sample.txt; do
      [ -s "$work/a/$file" ] || fail "$file is missing or empty"
    done
    [ "$(ls "$work/a" | wc -l)" -eq 6 ] || fail "there is more: $(ls "$work/a")"
    for key in format steps parameters seed threads isa train_loss val_loss val_perplexity \
      val_bits_per_byte val_accuracy \
      ngram_bits_per_byte tokens_per_second ms_per_step_median skipped_steps micro_batches \
        peak_bytes \
      total weights gradients master moments activations recompute workspace packed \
        resident_growth_bytes \
      weights_hash; do
      grep -q "\"$key\":" "$work/a/summary.json" || fail "summary.json lacks $key"
    done
    [ "$(value a micro_batches)" -eq 40 ] ||
      fail "micro_batches $(value a micro_batches), wanted 40"
    [ "$(value a steps)" -eq 20 ] || fail "steps"
    hash_of a | grep -qxE '[0-9a-f]{16}' || fail "weights_hash $(hash_of a) is not 16 hex digits"
    [ "$(grep -c '"kind":"step"' "$work/a/metrics.jsonl")" -eq 20 ] || fail "steps in metrics.jsonl"
    [ "$(grep -c '"kind":"evaluation"' "$work/a/metrics.jsonl")" -eq 2 ] ||
      fail "evaluations in metrics.jsonl"
    # The resolved configuration makes the same run.
    "$capstone" train --config "$work/a/config.json" --out "$work/b" > "$work/b.log" 2>&1 ||
      fail "from config.json"
    same a b
    ;;
  notes)
    hash_run three --accumulate 3 --steps 2
    grep -q "3 is no power of two" "$work/three.log" || fail "nothing is said about 3 micro-batches"
    hash_run four --accumulate 4 --steps 2
    grep -q "power of two" "$work/four.log" && fail "something is said about 4 micro-batches"
    hash_run scale --format fp16 --loss-scale 1000 --steps 2
    [ "$(grep -c "powers of two" "$work/scale.log")" -eq 1 ] ||
      fail "the scale's warning, once: $(cat "$work/scale.log")"
    hash_run eps --eps 1e-3 --steps 2 --accumulate 4
    other four eps
    # A path that was relative is good from elsewhere, and the text is known by its hash.
    (cd "$work" &&
      "$capstone" train --preset hash --steps 2 --data text.txt --out relative > /dev/null 2>&1) ||
      fail "a relative path"
    "$capstone" eval --out "$work/relative" > /dev/null || fail "eval from another directory"
    value relative data_hash | grep -qxE '[0-9a-f]{16}' ||
      fail "data_hash $(value relative data_hash)"
    ;;
  precedence)
    echo '{"lr": 0.002, "steps": 3, "width": 24}' > "$work/config.json"
    run a --data "$work/text.txt" --preset hash --config "$work/config.json" --steps 2
    grep -q '"steps": 2' "$work/a/config.json" || fail "a flag comes before the file"
    grep -q '"lr": 0.002' "$work/a/config.json" || fail "the file comes before the preset"
    grep -q '"heads": 3' "$work/a/config.json" || fail "the preset comes before the default"
    grep -q '"held-out": 0.1' "$work/a/config.json" || fail "the default comes last"
    [ "$(value a steps)" -eq 2 ] || fail "what is written is not what ran"
    ;;
  eval_and_sample)
    for format in float bf16 fp16; do
      hash_run $format --format $format
      "$capstone" eval --out "$work/$format" > "$work/one.txt" || fail "eval $format"
      "$capstone" eval --out "$work/$format" --batch 3 > "$work/other.txt" || fail "eval $format"
      cmp "$work/one.txt" "$work/other.txt" || fail "$format: the loss depends on the batch"
      grep -qx "val_loss $(value $format val_loss)" "$work/one.txt" ||
        fail "$format: eval says $(cat "$work/one.txt"), training said $(value $format val_loss)"
      "$capstone" sample --out "$work/$format" --tokens 40 --seed 5 > "$work/s1" ||
        fail "sample $format"
      "$capstone" sample --out "$work/$format" --tokens 40 --seed 5 > "$work/s2" ||
        fail "sample $format"
      "$capstone" sample --out "$work/$format" --tokens 40 --seed 6 > "$work/s3" ||
        fail "sample $format"
      cmp "$work/s1" "$work/s2" || fail "$format: one seed, two samples"
      cmp -s "$work/s1" "$work/s3" && fail "$format: two seeds, one sample"
      "$capstone" sample --out "$work/$format" --tokens 40 --seed 5 --top-k 1 > "$work/s4" ||
        fail "sample $format"
      "$capstone" sample --out "$work/$format" --tokens 40 --seed 6 --top-p 1e-9 > "$work/s5" ||
        fail "sample $format"
      "$capstone" sample --out "$work/$format" --tokens 40 --temperature 0 > "$work/s6" ||
        fail "sample $format"
      cmp "$work/s4" "$work/s5" && cmp "$work/s4" "$work/s6" ||
        fail "$format: the likeliest token is one"
      cmp -s "$work/s1" "$work/s4" && fail "$format: --top-k is ignored"
      grep -q "^val_perplexity [0-9]" "$work/one.txt" || fail "eval says no perplexity"
    done
    hash_run overlap --format fp16 --eval-stride 8
    same overlap fp16
    "$capstone" eval --out "$work/fp16" --eval-stride 8 > "$work/other.txt" || fail "eval, overlap"
    grep -qx "val_loss $(value overlap val_loss)" "$work/other.txt" ||
      fail "eval says $(cat "$work/other.txt"), training said $(value overlap val_loss)"
    cmp -s "$work/one.txt" "$work/other.txt" && fail "--eval-stride is ignored"
    "$capstone" eval --out "$work/overlap" | cmp - "$work/other.txt" || fail "eval forgot the stride"
    ;;
  shards)
    # The text's characters as numbers, in files of each kind: the run on the text itself.
    hash_run text --order epochs --tokenizer byte
    numbers() { od -An -v -tu1 -w1 "$1" |
      LC_ALL=C awk -v zeros="$2" \
      '{ printf "%c", $1; for (i = 0; i < zeros; i++) printf "%c", 0 }'; }
    head -c 30001 "$work/text.txt" > "$work/a"
    tail -c +30002 "$work/text.txt" > "$work/b"
    numbers "$work/text.txt" 1 > "$work/one.bin"
    numbers "$work/a" 3 > "$work/a.bin"
    numbers "$work/b" 3 > "$work/b.bin"
    count=$(wc -c < "$work/text.txt")
    # llm.c's header: 20240520, 1, count.
    { printf '\210\330\064\001\001\000\000\000'
      for shift in 0 8 16; do printf "\\$(printf %o $((count >> shift & 255)))"; done
      head -c 1013 /dev/zero
      cat "$work/one.bin"
    } > "$work/c.bin"
    shard_run() {
      name=$1
      shift
      run "$name" --preset hash --threads 1 --order epochs --vocabulary 256 "$@"
      same text "$name"
      grep -q bits_per_byte "$work/$name/summary.json" &&
        fail "$name: bits a byte of what has no bytes"
    }
    shard_run uint16 --tokenizer uint16 --data "$work/one.bin"
    shard_run uint32 --tokenizer uint32 --data "$work/a.bin,$work/b.bin"
    shard_run llmc --tokenizer llmc --data "$work/c.bin"
    run order --preset hash --threads 1 --vocabulary 256 --tokenizer llmc --data "$work/c.bin"
    other text order
    "$capstone" sample --out "$work/llmc" --prompt "97 32" --tokens 3 | grep -qxE '97 32[0-9 ]+' ||
      fail "a sample of numbers"
    "$capstone" eval --out "$work/uint32" > "$work/e" || fail "eval of shards"
    grep -qx "val_loss $(value text val_loss)" "$work/e" || fail "eval says $(cat "$work/e")"
    "$capstone" eval --out "$work/uint32" --data "$work/b.bin" > "$work/e" ||
      fail "eval of another shard"
    "$capstone" train --out "$work/bad" --preset hash --tokenizer llmc --data "$work/one.bin" > \
      "$work/bad.log" 2>&1
    [ $? -eq 2 ] && grep -q "one.bin' begins with magic" "$work/bad.log" ||
      fail "$(cat "$work/bad.log")"
    "$capstone" train --out "$work/bad" --preset hash --tokenizer llmc --vocabulary 100 --data \
      "$work/c.bin" > "$work/bad.log" 2>&1
    [ $? -eq 2 ] && grep -q "c.bin', token [0-9]* at byte [0-9]* is" "$work/bad.log" ||
      fail "$(cat "$work/bad.log")"
    [ ! -e "$work/bad" ] || fail "a run that was refused left something"
    ;;
  average)
    hash_run plain
    hash_run a --ema 0.9
    same plain a
    hash_run b --ema 0.5
    same plain b
    [ -n "$(value a average_hash)" ] &&
      [ "$(value a average_hash)" != "$(value b average_hash)" ] || fail "--ema is ignored"
    [ "$(value a average_val_loss)" != "$(value a val_loss)" ] || fail "the average is the weights"
    "$capstone" eval --out "$work/a" --average true > "$work/e" || fail "eval of the average"
    grep -qx "val_loss $(value a average_val_loss)" "$work/e" || fail "eval says $(cat "$work/e")"
    "$capstone" sample --out "$work/a" --average true --tokens 5 > /dev/null ||
      fail "a sample of the average"
    "$capstone" eval --out "$work/plain" --average true > "$work/e" 2>&1 &&
      fail "an average of nothing"
    grep -q "kept no average" "$work/e" || fail "$(cat "$work/e")"
    # The same by --config, and what is written says so.
    "$capstone" train --config "$work/a/config.json" --out "$work/c" > "$work/c.log" 2>&1 ||
      fail "from config.json"
    [ "$(value a average_hash)" = "$(value c average_hash)" ] || fail "config.json lacks --ema"
    [ -s "$work/a/average.safetensors" ] &&
      cmp "$work/a/average.safetensors" "$work/c/average.safetensors" || fail "the file"
    [ "$(value a predicted_peak_bytes)" -eq "$(value a total)" ] || fail "the peak with an average"
    ;;
  equal_hashes)
    for format in float bf16 fp16; do
      hash_run $format-1 --format $format --dropout 0.1
      for threads in 2 3; do
        hash_run $format-$threads --format $format --dropout 0.1 --threads $threads
        same $format-1 $format-$threads
      done
      for path in $(paths); do
        HALFSTEP_ISA=$path hash_run $format-$path --format $format --dropout 0.1
        same $format-1 $format-$path
        ran $format-$path $format $path
      done
      hash_run $format-segments --format $format --dropout 0.1 --recompute segments:2
      same $format-1 $format-segments
      [ "$(value $format-1 replayed_ops)" -eq 0 ] || fail "replayed without segments"
      [ "$(value $format-segments replayed_ops)" -gt 0 ] || fail "segments, and nothing replayed"
    done
    other float-1 bf16-1
    other bf16-1 fp16-1
    ;;
  other_hashes)
    hash_run a
    hash_run again
    same a again
    hash_run seed --seed 2
    hash_run clip --clip 0.1
    hash_run dropout --dropout 0.1
    hash_run decay --weight-decay 0.3
    hash_run biases --bias false
    sed 's/king/queen/g' "$work/text.txt" > "$work/other.txt"
    run text --preset hash --data "$work/other.txt" --threads 1
    for name in seed clip dropout decay biases text; do other a $name; done
    ;;
  grammar)
    run a --data grammar --preset hash --steps 30
    floor=$(value a floor_nats_per_character)
    [ -n "$floor" ] || fail "no floor in summary.json"
    awk "BEGIN { exit !($(value a val_loss) > $floor) }" || fail "the loss is below the floor"
    grep -q "^floor" "$work/a.log" || fail "the floor is not printed"
    ;;
  predicted_peak)
    # To the byte, in each format, with accumulation and segments.
    for format in float bf16 fp16; do
      for more in "--accumulate 1" "--accumulate 4" "--accumulate 5 --recompute segments:2" \
        "--batch 7 --context 20"; do
        hash_run p --format $format --steps 2 $more
        [ "$(value p predicted_peak_bytes)" -eq "$(value p total)" ] ||
          fail "$format $more: predicted $(value p predicted_peak_bytes), counted $(value p total)"
        rm -r "$work/p"
      done
    done
    ;;
  formats)
    # A scale that is far too large at first costs updates, and only those.
    hash_run high --format fp16 --loss-scale dynamic:1073741824
    [ "$(value high skipped_steps)" -gt 0 ] || fail "fp16 at 2^30 skipped nothing"
    [ $(($(value high steps) + $(value high skipped_steps))) -eq "$(value high iterations)" ] ||
      fail "counts"
    hash_run bf16 --format bf16
    [ "$(value bf16 skipped_steps)" -eq 0 ] || fail "bf16 skipped"
    # At the loss scale fewer gradients round to zero in fp16, and in bf16 none do.
    awk "BEGIN { exit !($(value high fp16_at_loss_scale) < $(value high fp16_at_scale_1)) }" ||
      fail "underflow: $(value high fp16_at_loss_scale) at the scale, \
$(value high fp16_at_scale_1) at 1"
    awk "BEGIN { exit !($(value bf16 bf16_at_scale_1) == 0) }" || fail "bf16 underflows"
    head -c 4000 "$work/bf16/weights.safetensors" | tr -d '\000' | grep -aq '"dtype":"BF16"' ||
      fail "dtype of the weights"
    ;;
  loss_scales)
    # Another library's policy by its name, from its first scale or another one.
    hash_run jmp --format fp16 --loss-scale jmp
    [ "$(value jmp loss_scale)" = 32768.0 ] || fail "jmp: $(value jmp loss_scale)"
    hash_run megatron --format fp16 --loss-scale megatron:1073741824
    hash_run pytorch --format fp16 --loss-scale pytorch:1073741824
    hash_run dynamic --format fp16 --loss-scale dynamic:1073741824
    same pytorch dynamic
    # Megatron's forgives the first overflow.
    [ "$(value megatron skipped_steps)" -eq $(($(value pytorch skipped_steps) + 1)) ] ||
      fail "skipped $(value megatron skipped_steps) and $(value pytorch skipped_steps)"
    # A run that ends at the floor of its policy says so, is no success, and keeps what it has: 2^30
    # and 2^29 overflow, after one that is forgiven, and at 2^28 it ends.
    "$capstone" train --out "$work/floor" --preset hash --data "$work/text.txt" --format fp16 \
      --loss-scale deepspeed:1073741824:268435456 > "$work/floor.log" 2>&1
    [ $? -eq 1 ] || fail "exit code at the floor: $(cat "$work/floor.log")"
    grep -q "stopped at iteration 3: .* the gradient overflows with the loss scale at its minimum, \
268435456\." "$work/floor.log" || fail "nothing is said of the floor: $(cat "$work/floor.log")"
    grep -q '"stopped": "iteration 3: ' "$work/floor/summary.json" ||
      fail "summary.json does not say why"
    [ "$(value floor skipped_steps)" -eq 4 ] && [ "$(value floor steps)" -eq 0 ] ||
      fail "steps before the floor"
    [ -s "$work/floor/weights.safetensors" ] || fail "the weights were not kept"
    # And where the weights are broken by then, there is nothing to keep.
    "$capstone" train --out "$work/broken" --preset hash --data "$work/text.txt" --format fp16 \
      --loss-scale deepspeed:1 --lr 1e30 --clip 0 --warmup 0 > "$work/broken.log" 2>&1
    [ $? -eq 1 ] || fail "exit code of broken weights: $(cat "$work/broken.log")"
    grep -q "the gradient overflows with the loss scale at its minimum, 1\." "$work/broken.log" ||
      fail "nothing is said of the floor: $(cat "$work/broken.log")"
    ;;
  telemetry)
    for format in float bf16 fp16; do
      hash_run plain --format $format --eval-every 10
      hash_run watched --format $format --eval-every 10 --telemetry true
      same plain watched
      for kind in telemetry shadow; do
        [ "$(grep -c "\"kind\":\"$kind\"" "$work/watched/metrics.jsonl")" -eq 2 ] ||
          fail "$format: $kind in metrics.jsonl: $(cat "$work/watched/metrics.jsonl")"
        grep -q "\"$kind\"" "$work/plain/metrics.jsonl" "$work/plain/summary.json" &&
          fail "$kind without being asked for"
        grep -q "\"$kind\": {" "$work/watched/summary.json" || fail "no $kind in summary.json"
      done
      grep -q "by magnitude" "$work/watched.log" || fail "no histogram"
      # The same count as the figure that every run has.
      [ "$(value watched fp16_lost)" = "$(value watched fp16_at_scale_1)" ] ||
        fail "$(value watched fp16_lost) and $(value watched fp16_at_scale_1)"
      eval ${format}_distance="$(value watched gradient_distance)"
      eval ${format}_below="$(value watched updates_below_half_ulp)"
      rm -r "$work/plain" "$work/watched"
    done
    awk "BEGIN { exit !(0 < $float_distance && $float_distance < $fp16_distance &&
                        $fp16_distance < $bf16_distance) }" ||
      fail "distances from double: float $float_distance, fp16 $fp16_distance, bf16 $bf16_distance"
    awk "BEGIN { exit !($float_below < $fp16_below && $fp16_below < $bf16_below) }" ||
      fail "below half an ulp: float $float_below, fp16 $fp16_below, bf16 $bf16_below"
    ;;
  segments)
    # 50 steps of nanogpt-cpu, four blocks: segments:2 replays two of them a step, segments:4 three.
    for format in float bf16 fp16; do
      for plan in none segments:2 segments:4; do
        run $plan --preset nanogpt-cpu --data "$work/text.txt" --steps 50 --format $format \
          --dropout 0.1 \
          --recompute $plan
        [ "$(value $plan predicted_peak_bytes)" -eq "$(value $plan total)" ] ||
          fail "$format $plan: the peak was not predicted"
      done
      same none segments:2
      same none segments:4
      [ "$(value none replayed_ops)" -eq 0 ] || fail "replayed without segments"
      # A block is 12 ops with dropout; a second run of a segment leaves out its last four: nothing
      # reads them but the GELU. Two segments run two blocks again, four run three.
      two=$(value segments:2 replayed_ops)
      four=$(value segments:4 replayed_ops)
      [ $two -eq $((50 * (2 * 12 - 4))) ] && [ $four -eq $((50 * 3 * (12 - 4))) ] ||
        fail "$format: segments:2 replayed $two ops, segments:4 $four"
      [ "$(value segments:4 total)" -lt "$(value segments:2 total)" ] &&
        [ "$(value segments:2 total)" -lt "$(value none total)" ] ||
          fail "$format: the peak did not fall"
      # A budget between the two is used and kept; the bytes that four segments take cost no more
      # than they.
      budget=$(($(value segments:4 total) / 2 + $(value none total) / 2))
      run budget --preset nanogpt-cpu --data "$work/text.txt" --steps 50 --format $format \
        --dropout 0.1 \
        --recompute budget:$budget
      same none budget
      [ "$(value budget total)" -le $budget ] ||
        fail "$format: $(value budget total) bytes of a budget of $budget"
      [ "$(value budget predicted_peak_bytes)" -eq "$(value budget total)" ] ||
        fail "$format: the budget's peak was not predicted"
      [ "$(value budget replayed_ops)" -gt 0 ] && [ "$(value budget replayed_ops)" -le $four ] ||
        fail "$format: the budget replayed $(value budget replayed_ops) ops, segments:4 $four"
      rm -r "$work"/none "$work"/segments:* "$work"/budget
    done
    for plan in segments:0 segments:5 segments: segments:x budget: budget:0 budget:x some; do
      "$capstone" train --preset nanogpt-cpu --data "$work/text.txt" --out "$work/bad" --recompute \
        $plan \
        > "$work/bad.log" 2>&1
      [ $? -eq 2 ] || fail "--recompute $plan was taken"
    done
    ;;
  nanogpt_hashes)
    for format in float bf16 fp16; do
      common="--preset nanogpt-cpu --data $work/text.txt --steps 200 --format $format --dropout 0.1"
      run $format-one $common --threads 1
      for threads in 2 3; do
        run $format-$threads $common --threads $threads
        same $format-one $format-$threads
      done
      run $format-seed $common --threads 2 --seed 2
      other $format-one $format-seed
      for path in $(paths); do
        HALFSTEP_ISA=$path run $format-$path $common --threads 2
        same $format-one $format-$path
        ran $format-$path $format $path
      done
    done
    ;;
  nanogpt_loss)
    # nanoGPT's README says 1.88 for this run; the mean of three seeds, each format.
    text=${HALFSTEP_SHARED:-$(dirname "$0")/../../../shared}/data/tinyshakespeare.txt
    if [ ! -e "$text" ]; then
      [ "${HALFSTEP_REQUIRE_ALL:-0}" = 1 ] && fail "HALFSTEP_REQUIRE_ALL=1, and there is no $text"
      echo "halfstep skip: no $text; set HALFSTEP_SHARED"
      exit 0
    fi
    for format in float bf16 fp16; do
      losses=
      for seed in 1 2 3; do
        run $format-$seed --preset nanogpt-cpu --data "$text" --format $format --seed $seed
        losses="$losses $(value $format-$seed val_loss)"
      done
      mean=$(echo "$losses" | awk '{ print ($1 + $2 + $3) / 3 }')
      echo "$format:$losses, mean $mean"
      awk "BEGIN { exit !($mean > 0 && $mean <= 1.92) }" ||
        fail "$format: the mean is $mean, wanted at most 1.92"
      [ $format = float ] && float=$mean
      awk "BEGIN { d = $mean - $float; exit !(d <= 0.02 && d >= -0.02) }" ||
        fail "$format: the mean is $mean, of float $float; wanted no more than 0.02 between them"
    done
    ;;
  *) fail "unknown case $case" ;;
esac
echo "ok: $case"
