#!/bin/sh
# runs.sh - a run directory is one run: what it keeps, where a start goes on from, and what is said
# when a start asks for something else.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
M="model.preset=llama-tiny device=cpu precision=fp32 data.train=train.h5 data.seq_len=32
   train.global_batch=4 train.lr=1e-3 train.schedule=constant run.threads=1 run.log_every=1000"

# train ARGUMENT...: output in out and err, the exit code in $code
train() {
    timeout -k 5 120 "$TRIREME" train $M "$@" >out 2>err </dev/null
    code=$?
}

# The steps of a run's checkpoints: "5 10".
kept() {
    ls "$1/checkpoints" 2>/dev/null | sed -n 's/^step-0*\([0-9][0-9]*\)$/\1/p' | xargs
}

# said NAME PATTERN [FILE]: exactly one line of the output matches
said() {
    is "$1" 1 "$(grep -acE -e "$2" "${3:-err}")"
}

# What is written

train run.dir=zero train.steps=0
is "no steps: the initial weights are a checkpoint" "0 0" "$code $(kept zero)"
train run.dir=zero train.steps=2
is "from which training goes on" "0 1-2" "$code $(steps_of zero)"

train run.dir=wild train.steps=12 checkpoint.every=4
is "two checkpoints are kept" "8 12" "$(kept wild)"
train run.dir=wild train.steps=100 train.lr=100 train.clip=0 checkpoint.every=1
is "a run whose gradients stay infinite ends with 1" 1 $code
is "and leaves its good checkpoints" "8 12" "$(kept wild | cut -d' ' -f1,2)"
last=$(sed -n 's/.*error: step \([0-9]*\):.*/\1/p' err)
is "and a line of metrics for every step" "1-$last" "$(steps_of wild)"

ranks 3 sh -c 'ulimit -f 200 && exec "$@"' limited "$TRIREME" train $M run.dir=small train.steps=3 \
    checkpoint.every=1 train.global_batch=6 >out 2>err
said "a checkpoint that fails on ranks is one warning" 'checkpoint of step 1 failed'
said "which says why" 'checkpoint of step 1 failed.*[Ff]ile too large'

train run.dir=stuck train.steps=10 checkpoint.every=5
if chattr +i stuck/checkpoints/step-00000005 2>/dev/null; then
    train run.dir=stuck train.steps=15 checkpoint.every=5
    chattr -i stuck/checkpoints/step-00000005
    is "an old checkpoint that cannot be deleted does not fail the new one" "0 5 10 15" \
        "$code $(kept stuck)"
    said "but is told" 'warning: old checkpoints could not be deleted: .*step-00000005'
else
    skip "an old checkpoint that cannot be deleted" "files cannot be made immutable here"
fi

train run.dir=flip train.steps=30 checkpoint.every=10 checkpoint.keep=3
shard=flip/checkpoints/step-00000030/shard-00000.h5
printf x | dd of=$shard bs=1 seek=$(($(wc -c <$shard) / 2)) conv=notrunc 2>/dev/null
train run.dir=flip train.steps=40 checkpoint.every=25
is "a damaged checkpoint pushes out none" "0 25 30 40" "$code $(kept flip)"

train run.dir=swap train.steps=10 checkpoint.every=5
mv swap/checkpoints/step-00000005 x && mv swap/checkpoints/step-00000010 \
    swap/checkpoints/step-00000005 && mv x swap/checkpoints/step-00000010
refused "checkpoints that swapped names" 'step-00000005 holds step 10' \
    "$TRIREME" checkpoint verify swap/checkpoints/step-00000005
finish
