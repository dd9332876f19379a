#!/bin/bash
# metrics.sh - what a run reports: every line of metrics.jsonl whole, documented and dated, also
# where the disk is full for a while or a line is torn; and what a person sees on a terminal.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
M="model.preset=llama-tiny device=cpu data.train=$work/train.h5 data.seq_len=32 train.global_batch=8
   train.lr=1e-3 run.threads=1"

# values RUN FIELD: of each line that has it.
values() { sed -n "s/.*\"$2\": *\"\{0,1\}\([^,}\"]*\).*/\1/p" "$1/metrics.jsonl"; }
# The names of fields in some files.
fields() { cat "$@" | grep -oE '"[a-z_]+": ' | tr -d '": ' | sort -u; }

# Every field is documented, and what is documented is written.
"$TRIREME" train $M train.steps=6 data.valid=$work/valid.h5 run.dir=plain >plain.out 2>plain.err
is "a run with an evaluation" 0 $?
"$TRIREME" train $M train.steps=12 precision=fp16 train.initial_scale_power=26 train.hysteresis=1 run.dir=scaled \
    offload.optimizer=disk offload.path=$work/offloaded >scaled.out 2>scaled.err
is "a run with a loss scale and offload" 0 $?
"$TRIREME" train $M data.train=$work/valid.h5:3,$work/valid.h5:1 train.steps=30 run.dir=mixed >mixed.out 2>mixed.err
is "a run of mixed files for more than an epoch" 0 $?
"$TRIREME" train $M model.experts=4 train.steps=2 run.dir=routed >routed.out 2>routed.err
is "a run with experts" 0 $?
sed -n 's/^| `\([a-z_]*\)` .*/\1/p' "$top/doc/metrics.md" | sort >documented
sed -n 's/^| `\([a-z_]*\)` .*| always |.*/\1/p' "$top/doc/metrics.md" | sort >always
fields plain/metrics.jsonl scaled/metrics.jsonl mixed/metrics.jsonl routed/metrics.jsonl >written
sed -n 's/^| `\([a-z_]*\)` .*| compared |.*/\1/p' "$top/doc/metrics.md" >of_comparisons # forecast.sh
grep -vxE 'attention|replaced|replaced_shapes|mfu|mfu_full_attention|gpu_peak_bytes' documented | # the others are of GPUs
    grep -vxFf of_comparisons >of_cpu
is "what is written is documented, and what is documented is written" \
    "$(tr '\n' ' ' <of_cpu)" "$(tr '\n' ' ' <written)"
lines=0 missing=
while read -r line; do
    lines=$((lines + 1))
    missing=$missing$(printf '%s\n' "$line" | fields /dev/stdin | comm -13 - always | tr '\n' ' ')
done <plain/metrics.jsonl
is "what is documented as there always is" "6 lines, missing: " "$lines lines, missing: $missing"
if [ -e "$TRIREME_BUILD/doc/trireme.1" ]; then
    is "the man page has the same fields" "$(tr '\n' ' ' <documented)" \
        "$(sed -n '/^\.SH METRICS/,/^\.SH EXAMPLES/s/^\.B \([a-z_]*\)$/\1/p' \
            "$TRIREME_BUILD/doc/trireme.1" | sort | tr '\n' ' ')"
fi

# A loss that overflows is not taken for one of no targets.
"$TRIREME" train $M train.steps=2 precision=fp16 model.init_std=10 data.valid=$work/valid.h5 \
    run.log_every=1 run.dir=overflow >overflow.out 2>overflow.err
is "losses that overflow are said, and null in the metrics" "1 2 1 0 2" "$? \
$(grep -c 'step [12]/2  loss not finite' overflow.err) $(grep -c 'valid not finite' overflow.err) \
$(grep -c 'no targets\|nan' overflow.err) $(grep -c '"loss": null' overflow/metrics.jsonl)"
"$TRIREME" evaluate overflow >out 2>err
is "evaluate refuses weights whose losses overflow" "1 1 0" \
    "$? $(grep -c 'error: overflow/checkpoints/step-00000002: the loss on .*valid\.h5 is not finite: .*or its weights are damaged' err) $(wc -l <out | tr -d ' ')"

# Nor is there a best evaluation where none had a finite loss; the count of them outlasts a resume.
E="precision=fp16 model.init_std=10 data.valid=$work/valid.h5 train.eval_every=2 train.early_stop=3
    checkpoint.keep_best=true run.dir=none_finite"
"$TRIREME" train $M $E train.steps=3 >out 2>err
"$TRIREME" train $M $E train.steps=20 >out 2>err
is "evaluations none of which was finite end a run, and no best one is named" "1 1 0" "$? \
$(grep -c 'early_stop: training ends at step 4, as 3 evaluations in a row had no finite loss, and none had before$' err) \
$(grep -c 'checkpoints/best' err)"
"$TRIREME" train $M $E train.steps=20 >out 2>err
is "the same command again trains no further" "1 4" "$? $(wc -l <none_finite/metrics.jsonl | tr -d ' ')"

# A run of which no step could be made has not ended well.
"$TRIREME" train $M train.steps=2 precision=fp16 train.loss_scale=1e12 run.dir=nothing >out 2>err
is "steps that update nothing" "1 1" \
    "$? $(grep -c 'error: .*not finite in any step, 1 to 2: nothing was trained; look at train.loss_scale' err)"
is "nothing is saved of them" 0 "$(find nothing -name COMMIT | wc -l)"
# Where the loss scale has become smaller meanwhile, it is saved, and more steps go on from it.
"$TRIREME" train $M train.steps=3 precision=fp16 train.initial_scale_power=28 run.dir=seeking >out 2>err
is "a run of steps that find a loss scale has trained nothing" "1 1" \
    "$? $(grep -c 'error: gradients overflowed fp16 in every step, 1 to 3: nothing was trained; .*train.steps' err)"
"$TRIREME" train $M train.steps=3 precision=fp16 train.initial_scale_power=28 run.dir=seeking >out 2>err
is "and says so again" "1 1" "$? $(grep -c 'error: gradients overflowed' err)"
"$TRIREME" train $M train.steps=20 precision=fp16 train.initial_scale_power=28 run.dir=seeking >out 2>err
is "more steps go on" "0 1-20" "$? $(steps_of seeking)"

# Data of which no token is a target has no loss: that is said, and no number printed.
for candidate in ${TRIREME_PYTHON:-} python3 /usr/bin/python3; do
    "$candidate" -c 'import h5py, numpy' 2>/dev/null && python=$candidate && break
done
if [ -n "${python-}" ]; then
    "$python" -c "import h5py, numpy
with h5py.File('masked.h5', 'w') as file:
    file['tokens'] = numpy.arange(999).astype('<u2') % 257
    file['documents'] = numpy.array([0, 999], '<u8')
    file['loss_mask'] = numpy.zeros(999, 'u1')
    file.attrs.update(format=1, vocab=257, tokenizer='bytes')"
    "$TRIREME" tokenize --seal masked.h5 >seal.out 2>&1 || not_ok "masked.h5" "$(cat seal.out)"
    for n in 1 2; do
        ranks $n "$TRIREME" evaluate plain data.valid=masked.h5 >masked.out 2>masked.err
        is "evaluate without targets, $n ranks" "1 0 1" "$? $(wc -l <masked.out) $(
            grep -c '^trireme: error: masked\.h5: no targets: all .* is masked' masked.err)"
    done
else
    skip "evaluate without targets" "no Python with h5py and numpy (TRIREME_PYTHON names one)"
fi

# Time of day, tokens and epochs over a resume.
"$TRIREME" train $M train.steps=9 run.dir=plain >plain.out 2>plain.err
is "a resume" "0 1-9" "$? $(steps_of plain)"
is "times are ISO 8601 and in order" "$(values plain time)" \
    "$(values plain time | grep -xE '[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}Z' | sort)"
is "tokens are summed over the resume" "256 512 768 1024 1280 1536 1792 2048 2304" \
    "$(values plain tokens_total | xargs)"
windows=$(($(wc -c <text) / 32)) # of 32 tokens and a target; a byte is a token
is "epochs are samples over those of the file" "$(awk "BEGIN { printf \"%.5f\", 72 / $windows }")" \
    "$(values plain epoch | tail -n 1 | awk '{ printf "%.5f", $1 }')"
is "log.txt says when, on every line" "$(wc -l <plain/log.txt)" \
    "$(grep -cE '^[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z trireme: ' plain/log.txt)"

# The parts of a step: there, and no more than the step.
ranks 2 "$TRIREME" train $M train.steps=8 run.dir=parts >parts.out 2>parts.err
is "a run on two ranks" 0 $?
for part in step forward backward update comm_exposed; do
    values parts ${part}_ms >$part.ms
done
# Lines whose forward, backward, update and waiting are all there and within the step.
sound=$(paste step.ms forward.ms backward.ms update.ms comm_exposed.ms | awk '
    { sum = $2 + $3 + $4 + $5 }
    NF == 5 && $2 > 0 && $3 > 0 && $4 > 0 && $5 > 0 && sum <= 1.01 * $1 && sum > 0.5 * $1 { n++ }
    END { print n + 0 }')
if [ "$sound" -ge 6 ]; then
    ok "the parts of a step lie within it, and are most of it"
else
    not_ok "the parts of a step lie within it, and are most of it" \
        "in $sound of 8 lines: $(tail -n 1 parts/metrics.jsonl)"
fi

# What a start says of itself, in a few lines, and what it warns of.
is "a start names version, host, directory, model, device, data" "1 1 1" "$(
    grep -cE 'trireme [0-9.]+ at [0-9T:.-]+Z on .*; run directory /.*/parts$' parts.err) $(
    grep -cE 'llama-tiny, 158016 parameters, fp32, FULL_SHARD, 2 ranks on 1 node; CPU.*, 1 thread each' parts.err) $(
    grep -cE 'train.h5 \(.* tokens, [0-9]+ sequences of 32\); steps 1 to 8 of 256 tokens \(8 seq' parts.err)"
is "a start without trouble has no warning" 0 "$(grep -c warning parts.err)"
CUDA_VISIBLE_DEVICES=0,1 SLURM_JOB_ID=4711 ranks 3 "$TRIREME" train $M device=auto train.steps=2 \
    train.global_batch=2 train.micro_batch=3 train.warmup_steps=2 run.trace=7 run.threads=64 \
    run.dir=odd >odd.out 2>odd.err
is "a start with odd settings" 0 $?
is "the job is named" 1 "$(grep -c ', Slurm job 4711; run directory' odd.err)"
while read -r pattern; do
    is "warned of, once: $pattern" 1 "$(grep -c "^trireme: warning: .*$pattern" odd.err)"
done <<'END'
ranks without a sequence to compute: 2 of 3
the other places are masked
64 threads of rank 0 (run.threads) on
train.warmup_steps is 2, of 2 steps
run.trace is 7, and this start runs steps 1 to 2
END
if "$TRIREME" doctor 2>/dev/null | grep -qi 'no CUDA\|without CUDA'; then
    is "warned of, once: GPUs that are not used" 1 "$(grep -c \
        'warning: this runs on the CPU, although there are GPUs (CUDA_VISIBLE_DEVICES=0,1' odd.err)"
fi
CUDA_VISIBLE_DEVICES=0,1 "$TRIREME" train $M train.steps=1 train.schedule=constant run.dir=meant >meant.out 2>meant.err
is "device=cpu is meant so" "0 0" "$? $(grep -c warning meant.err)"

# The trace names its processes.
ranks 2 "$TRIREME" train $M train.steps=2 run.trace=2 run.dir=traced >traced.out 2>traced.err
is "a trace names ranks and hosts" "rank 0 ($(uname -n)) rank 1 ($(uname -n))" "$(
    grep -oE '"process_name"[^}]*"args": \{"name": "[^"]*"' traced/trace.json |
        sed 's/.*"name": "//; s/"$//' | xargs)"

mkdir -p untraced/trace.json
ranks 2 "$TRIREME" train $M train.steps=2 run.trace=2 run.dir=untraced >untraced.out 2>untraced.err
is "a trace that cannot be written is a warning" "0 1 2" "$? $(
    grep -c 'warning: there is no trace of this step, training goes on: .*trace.json' untraced.err) $(
    last_metric untraced step)"

# Exchanges in parts: a traced step says how much of them lay beside products; rows that cannot be
# cut, and that nothing is in parts, are said.
ranks 2 "$TRIREME" train $M parallel.tensor=2 parallel.tensor_overlap=2 train.steps=2 run.trace=2 \
    run.dir=parts2 >parts2.out 2>parts2.err
is "exchanges in parts: the traced step says what lay beside products" "0 1" "$? $(
    grep -cE 'of [0-9.]+ ms in which tensor ranks exchanged rows, (only )?[0-9]+ % lay beside' parts2.err)"
ranks 2 "$TRIREME" train $M parallel.tensor=2 parallel.tensor_overlap=6 data.seq_len=31 \
    train.steps=1 run.dir=parts6 >parts6.out 2>parts6.err
is "exchanges in parts: rows that cannot be cut are said" "0 1" "$? $(
    grep -c 'warning: parallel.tensor_overlap 6 is off: the .* rows of a micro-batch cannot be cut' \
        parts6.err)"

# A torn line costs itself alone, wherever it is.
cp -r plain torn
awk 'NR == 3 { print substr($0, 1, 40); next } NR == 5 { printf "%s", substr($0, 1, 99); next }
     { print }' plain/metrics.jsonl >torn/metrics.jsonl
"$TRIREME" train $M train.steps=11 run.dir=torn >torn.out 2>torn.err
is "a torn line costs itself alone" "0 1-2 4-4 6-11" "$? $(steps_of torn)"
is "torn lines of metrics are said" 1 "$(grep -c 'warning: torn/metrics.jsonl: 2 lines could not be read' torn.err)"


# On a terminal: one line that fits into it, with the end in sight.
if command -v script >/dev/null && script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    cat >pty.sh <<'END'
stty cols 80
"$TRIREME" train $M train.steps=400 run.log_every=100 run.dir=pty &
tries=600
until [ "$(wc -l <pty/metrics.jsonl)" -gt 120 ] || [ $((tries -= 1)) = 0 ]; do sleep 0.1; done 2>/dev/null
stty cols 50
wait
END
    export TRIREME M
    unset COLUMNS
    TERM=xterm timeout 300 script -qec "sh pty.sh" /dev/null </dev/null >pty.out 2>&1
    is "a run on a terminal" "0 1-400" "$? $(steps_of pty)"
    # live lines, each begun by a carriage return
    tr '\r' '\n' <pty.out | sed -n 's/^\x1b\[K\(step .*\)/\1/p' >live
    widest=$(awk '{ if (length > most) most = length } END { print most + 0 }' live)
    if [ "$widest" -lt 80 ] && [ "$widest" -gt 60 ]; then
        ok "live lines fit into 80 columns"
    else
        not_ok "live lines fit into 80 columns" "$widest: $(head -n 1 live)"
    fi
    is "live lines show the end" "$(wc -l <live)" "$(grep -c 'loss .* ETA [0-9]' live)"
    if [ "$(tail -n 1 live | wc -c)" -le 50 ]; then
        ok "live lines follow the width as it changes"
    else
        not_ok "live lines follow the width as it changes" "$(tail -n 1 live)"
    fi
    is "lines of a terminal's log keep to log_every" "1 100 200 300 400" \
        "$(sed -n 's/.*trireme: step \([0-9]*\)\/.*/\1/p' pty/log.txt | xargs)"
    rows=$(tr -d '\r' <pty.out | grep -c .)
    if [ "$rows" -le 12 ]; then
        ok "steps do not scroll"
    else
        not_ok "steps do not scroll" "$rows lines for 400 steps"
    fi
else
    skip "a terminal" "no script that gives one"
fi

# The disk of the run directory is full for a while: the lines of that time come later.
if ! unshare --mount true 2>/dev/null; then
    skip "a full disk" "mounts are not allowed here"
    finish
fi
mkdir -p disk
cat >full.sh <<'END'
mount -t tmpfs -o size=8m tmpfs disk || exit 99
lines() { wc -l <disk/run/metrics.jsonl 2>/dev/null || echo 0; }
reach() { tries=1200; until [ "$(lines)" -ge $1 ] || [ $((tries -= 1)) = 0 ]; do sleep 0.05; done; }
"$TRIREME" train $M train.steps=100000 run.log_every=50 run.dir=disk/run >full.out 2>full.err &
job=$!
reach 20
head -c 100M /dev/zero >disk/filler 2>/dev/null
tries=1200
until grep -q 'metrics.jsonl cannot be written' full.err || [ $((tries -= 1)) = 0 ]; do sleep 0.05; done
looks=300 # every step tries again
until [ $((looks -= 1)) = 0 ]; do tail -c 1 disk/run/metrics.jsonl; done | od -An -v -t c -w1 | sort -u >last_byte
at=$(lines)
sleep 1
echo "during $at $(lines)"
rm disk/filler
reach $((at + 20))
kill -USR1 $job
wait $job
echo "end $?"
cp -r disk/run filled
END
export TRIREME M
unshare --mount sh full.sh >full.log 2>&1
is "a run whose disk is full for a while goes on" "75" "$(sed -n 's/^end //p' full.log)"
last=$(last_metric filled step)
is "no line is lost" "1-${last:-none}" "$(steps_of filled)"
is "lines in the file are whole while it is full" '\n' "$(tr -d ' ' <last_byte)"
is "metrics on a full disk: said once, and once when it is over" "1 1" \
    "$(grep -c 'warning: metrics.jsonl cannot be written (No space left' full.err) $(
        grep -c 'trireme: metrics.jsonl is written again' full.err)"
finish
