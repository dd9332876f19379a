#!/bin/sh
# train.sh - what is promised about stopping and going on: a signal saves and ends with 75, the
# next start continues, and the end is the same to the bit as without the stop.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
steps=200
M="model.preset=llama-tiny device=cpu precision=fp32 data.train=train.h5 data.seq_len=32
   train.global_batch=12 train.steps=$steps train.lr=1e-3 checkpoint.resume=auto run.threads=1"

# launch N RUN: in the background; $job is the launcher.
launch() {
    mpirun --oversubscribe -n "$1" "$TRIREME" train $M run.dir="$2" >"$2.out" 2>"$2.err" &
    job=$!
}

# signalled N RUN WHOM SIGNAL: stop a run in its middle
signalled() {
    launch "$1" "$2"
    if ! wait_for 30 has_steps "$2" 5; then
        ended
        return 1
    fi
    case $3 in
    launcher) kill -"$4" $job ;;
    last) kill -"$4" "$(rank_pids $job | tail -n 1)" ;;
    esac
    ended
}

for n in 1 2 3 4; do
    ranks $n "$TRIREME" train $M run.dir=whole-$n >whole.out 2>whole.err
    is "$n ranks train to the end" 0 $?
    is "$n ranks: the last step is the last line" $steps "$(last_metric whole-$n step)"

    case $n in
    1 | 3) whom=launcher signal=USR1 ;;
    2) whom=last signal=TERM ;;
    4) whom=last signal=USR1 ;;
    esac
    signalled $n stopped-$n $whom $signal
    is "$n ranks, $signal to the $whom: code 75" 75 "$code"
    at=$(basename "$(newest_checkpoint stopped-$n)")
    at=$(echo "${at#step-}" | sed 's/^0*//')
    if [ "${at:-0}" -ge 5 ] && [ "${at:-0}" -lt $steps ]; then
        ok "$n ranks: saved in the middle"
    else
        not_ok "$n ranks: saved in the middle" "step ${at:-none} of $steps"
    fi
    ranks $n "$TRIREME" train $M run.dir=stopped-$n >>stopped-$n.out 2>>stopped-$n.err
    is "$n ranks: the next start goes on to the end" 0 $?
    is "$n ranks: every step once" "1-$steps" "$(steps_of stopped-$n)"
    is "$n ranks: the same loss to the bit" "$(last_metric whole-$n loss)" \
        "$(last_metric stopped-$n loss)"
    if same_state whole-$n stopped-$n; then
        ok "$n ranks: the same state to the bit"
    else
        not_ok "$n ranks: the same state to the bit" "checkpoints differ"
    fi
done

# close NAME A B TOLERANCE (relative)
close() {
    if awk -v a="$2" -v b="$3" -v t="$4" \
        'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d <= t * a) }'; then
        ok "$1"
    else
        not_ok "$1" "$2 and $3"
    fi
}

# fp32 sums in another order: 2^-24 a step, amplified by training; 1e-4 would not hide a sample
# seen twice or a wrong mean.
for n in 2 3 4; do
    close "the loss of $n ranks is that of one" "$(last_metric whole-1 loss)" \
        "$(last_metric whole-$n loss)" 1e-4
done

# A checkpoint of one layout continues on others.
for n in 1 3; do
    rm -rf moved
    mkdir -p moved/checkpoints
    signalled 4 from-$n launcher USR1
    cp -r "$(newest_checkpoint from-$n)" moved/checkpoints/
    ranks $n "$TRIREME" train $M run.dir=moved >moved.out 2>moved.err
    is "saved by 4 ranks, continued by $n" 0 $?
    close "saved by 4 ranks, continued by $n: the same loss" "$(last_metric whole-1 loss)" \
        "$(last_metric moved loss)" 1e-4
done

# The learning rate moves on once a step, whatever ranks and micro-batches share it; the optimizer
# of a run stays.
R="$M train.global_batch_tokens=192 train.global_batch=6 train.schedule=WarmupDecayLR
   train.warmup_steps=4 train.warmup_min_lr=0.125 train.lr=0.5 train.steps=8 train.optimizer=sgd"
for n in 1 2; do
    ranks $n "$TRIREME" train $R train.micro_batch=1 run.dir=rates-$n >rates.out 2>rates.err
    is "$n ranks: rates step by step" "0.21875 0.3125 0.40625 0.5 0.375 0.25 0.125 0.0" \
        "$(sed -n 's/.*"lr": *\([^,}]*\).*/\1/p' rates-$n/metrics.jsonl | xargs)"
done
"$TRIREME" train $M train.schedule=constant train.min_lr=1e-5 train.steps=1 run.dir=constant >out 2>err
is "the end of a rate that stays" "0 1" "$? $(grep -c 'warning: train.min_lr is 1e-05, and train.schedule is constant' err)"
"$TRIREME" train $M train.steps=1 run.dir=one >out 2>err
is "one step, at which the rate is 0" "0 1" "$? $(grep -c 'warning: the run has one step.* 0: nothing is trained' err)"
for keys in train.steps=2 "train.steps=1 train.warmup_steps=1" "train.steps=1 train.schedule=constant"; do
    "$TRIREME" train $M $keys run.fresh=true run.dir=one >out 2>err
    is "not with $keys" "0 0" "$? $(grep -c 'nothing is trained' err)"
done
"$TRIREME" train $M train.global_batch=1 train.global_batch_tokens=0 train.steps=2 run.dir=single >out 2>err
is "a single sequence a step" "0 1" "$? $(grep -c ' tokens (1 sequence), ' err)"
refused "the state of another optimizer" 'train\.optimizer sgd, and this run.s is adamw' \
    "$TRIREME" train $M train.steps=9 run.dir=rates-1

# A finished run is finished.
before=$(wc -l <whole-2/metrics.jsonl)
ranks 2 "$TRIREME" train $M run.dir=whole-2 >again.out 2>again.err
is "starting a finished run: nothing to do, code 0" "0 $before" "$? $(wc -l <whole-2/metrics.jsonl)"
finish
