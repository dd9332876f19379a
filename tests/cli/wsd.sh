#!/bin/sh
# wsd.sh - schedules wsd (warm-up, stable, decay): their learning rates, a resume in the stable phase
# and in the decay, more steps from a checkpoint of the stable phase, and a decay of its own from it;
# and what cosine and linear do where the run's end or batch changes.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
M="model.preset=llama-tiny device=cpu precision=fp32 data.train=$work/train.h5 data.seq_len=32
   train.global_batch=4 checkpoint.every=5 checkpoint.keep=9 run.threads=1 run.machine=off"
R="$M train.lr=0.5 train.warmup_steps=2 train.steps=8 train.optimizer=sgd"
W="$M train.lr=1e-3 train.warmup_steps=3 train.schedule=wsd_sqrt train.decay_steps=8"
values() { sed -n "s/.*\"$2\": *\([^,}]*\).*/\1/p" "$1/metrics.jsonl" | xargs; }
train() {
    ranks 2 "$TRIREME" train "$@" >out 2>err
    code=$?
}
same() { if same_state "$2" "$3"; then ok "$1"; else not_ok "$1" "checkpoints differ: $(cat err)"; fi; }

train $R train.schedule=wsd train.decay_steps=4 run.dir=rates
is "learning rates step by step" "0.25 0.5 0.5 0.5 0.375 0.25 0.125 0.0" "$(values rates lr)"
train $R train.schedule=wsd_sqrt train.decay_steps=4 train.min_lr=0.25 run.dir=roots
is "with the square root" "0.25 0.5 0.5 0.5 0.375 0.25" "$(values roots lr | cut -d' ' -f1-5,8)"
train $R train.schedule=wsd run.dir=tenth
is "a tenth of the steps, rounded up" "0.25 0.5 0.5 0.5 0.5 0.5 0.5 0.0" "$(values tenth lr)"

train $W train.steps=30 run.dir=whole
is "a run to the end" "0 30" "$code $(values whole step | sed 's/.* //')"
for step in 15 25; do
    cp -r whole resumed-$step
    train $W train.steps=30 run.dir=resumed-$step checkpoint.resume=$step
    is "resumed at step $step" "0 1-30 0" "$code $(steps_of resumed-$step) $(grep -c 'warning' err)"
    same "resumed at step $step: the same bits" whole resumed-$step
done

# The stable phase goes on: more steps, from before the decay and from within it.
train $W train.steps=20 run.dir=short
cp -r short late
train $W train.steps=30 run.dir=short checkpoint.resume=10
is "more steps from the stable phase" "0 1 0" \
    "$code $(grep -c '^trireme: settings changed since step 10: train.steps 20 -> 30$' err) $(grep -c jumps err)"
same "as if the run had begun with them" whole short
train $W train.steps=30 run.dir=late checkpoint.resume=15
is "more steps from the decay: the jump is named" "0 1" "$code $(grep -c \
    'warning: the learning rate jumps from 0.000387628 at step 15 to 0.001 at step 16: the checkpoint was saved in the decay, which began after step 12 .*; a checkpoint of step 12 or before goes on without a jump$' err)"

# What other runs go on from stays, though it is neither among the newest nor of the lowest loss.
train $W train.steps=30 run.dir=few checkpoint.keep=2
is "a checkpoint where the decay begins stays" "0 22" \
    "$code $(ls few/checkpoints | sed -n 's/^step-0*//p' | xargs | tr ' ' '\n' | head -n 1)"
is "beside the two newest and that of the lowest loss" yes "$([ "$(ls few/checkpoints | grep -c step-)" -le 4 ] && echo yes)"
train $W train.steps=60 run.dir=few checkpoint.keep=2
is "after more steps, where the decay began before stays beside where it begins now" "0 22 52" \
    "$code $(ls few/checkpoints | sed -n 's/^step-0*//p' | grep '2$' | xargs)"
is "checkpoint ls names both" "step-00000022 step-00000052" "$("$TRIREME" checkpoint ls few |
    sed -n 's/^\(step-[0-9]*\) .* committed, the decay begins here$/\1/p' | xargs)"
train $W train.steps=60 run.dir=few checkpoint.keep=2 checkpoint.resume=22
is "from there the learning rate does not jump" "0 0" "$code $(grep -c jumps err)"
"$TRIREME" train $M train.lr=1e-3 train.schedule=constant train.steps=30 run.dir=none checkpoint.keep=2 >out 2>err
is "not with a schedule without a decay" 0 "$(ls none/checkpoints | grep -c 22)"

# A decay of its own, from a checkpoint of the stable phase.
train $W train.steps=24 train.decay_steps=4 run.dir=direct
train $W train.steps=24 train.decay_steps=4 run.dir=branch checkpoint.resume="$work/whole/checkpoints/step-00000020"
is "a decay from another run's stable phase" "0 1 0" \
    "$code $(grep -c 'train.steps 30 -> 24, train.decay_steps 8 -> 4$' err) $(grep -c 'warning\|jumps' err)"
same "as if the run had begun with it" direct branch

refused "more steps of decay than come after warm-up" \
    "train.decay_steps is 28, but of the run's 30 steps 27 come after train.warmup_steps \(3\)" \
    "$TRIREME" train $W train.steps=30 train.decay_steps=28 run.dir=none
refused "the same of epochs" "train.decay_steps is 8, but of the run's [0-9]* steps 0 come after" \
    "$TRIREME" train $W train.epochs=1 train.warmup_steps=100000 run.dir=none
refused "a schedule without such steps" \
    "train.decay_steps is 8, but it is of train.schedule wsd, .*; linear and cosine decay in all steps" \
    "$TRIREME" train $W train.schedule=cosine run.dir=none

# Epochs with a warm-up, linear: a sequence lowers the rate by as much before and after the batch
# doubles, and a start amid the rest goes on with the same bits.
E="$M train.lr=1 train.optimizer=sgd train.clip=1e-9 train.schedule=linear train.warmup_steps=10 train.epochs=0.02"
train $E run.dir=alike
train $E run.dir=doubled checkpoint.resume="$work/alike/checkpoints/step-00000030" train.global_batch=8
is "epochs: the rate falls by sequences" "0 evenly to 0.0" "$code $(head -n 30 alike/metrics.jsonl | cat - doubled/metrics.jsonl |
    sed -n 's/.*"step": *\([0-9]*\),.*"lr": *\([^,}]*\).*/\1 \2/p' | awk '
        { falls[$1] = last - $2; last = $2 } # those of steps from 31 on are of batches of 8
        END {
            steady = falls[33] / falls[12]
            print (steady > 1.9 && steady < 2.1 && falls[31] > 0 && falls[31] < 4 * falls[12] ? "evenly" : steady " " falls[31]), "to", last
        }')"
cp -r doubled again
train $E run.dir=again checkpoint.resume=40 train.global_batch=8
is "epochs: the same rates after another start" "0 $(values doubled lr)" "$code $(values again lr)"
set -- checkpoint.resume="$work/alike/checkpoints/step-00000030" train.warmup_steps=20 train.lr=1 train.optimizer=sgd
train $M "$@" train.clip=1e-9 train.schedule=linear train.epochs=0.02 run.dir=longer
train $M "$@" train.clip=1e-9 train.schedule=linear train.steps=63 run.dir=steps
is "epochs: the rates of another warm-up are those of as many steps" "0 $(values steps lr)" "$code $(values longer lr)"
train $M train.lr=1e-3 train.schedule=cosine train.steps=10 run.dir=cosine
train $M train.lr=1e-3 train.schedule=cosine train.steps=20 run.dir=cosine
is "more steps of cosine: the jump is named" "0 1" "$code $(grep -c \
    'warning: the learning rate jumps from 0 at step 10 to 0.000421783 at step 11: train.schedule=cosine goes from' err)"
finish
