#!/bin/sh
# disagree.sh - ranks that were given different settings, data or run directories are refused before
# the first step, by one line that names the rank and what differs.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
M="model.preset=llama-tiny device=cpu data.seq_len=32 train.global_batch=4 train.steps=2
   train.micro_batch=1 run.threads=1"
here="data.train=$work/train.h5"

# two NAME PATTERN KEY: ranks 0 and 1, which alone has KEY, are refused
two() {
    refused "$1" "$2" mpirun --oversubscribe -n 2 sh -c "$by_rank" sh \
        "$TRIREME" train $M $here run.dir=none AND "$TRIREME" train $M $here run.dir=none "$3"
}

two "another learning rate" 'rank 1 \(.*\): train.lr=0.01, and on rank 0 0.0003: ' train.lr=1e-2
two "another seed" 'rank 1 .*: seed=7, and on rank 0 0: ' seed=7
two "another size of micro-batches" 'rank 1 .*: train.micro_batch=2, and on rank 0 1: ' train.micro_batch=2
two "a checkpoint more often" 'rank 1 .*: checkpoint.every=5, and on rank 0 0: ' checkpoint.every=5
two "another model" 'rank 1 .*: model.ffn=96, and on rank 0 [0-9]*: ' model.ffn=96
two "another precision" 'rank 1 .*: precision=bf16, and on rank 0 fp32: ' precision=bf16
two "another optimizer" 'rank 1 .*: train.optimizer=sgd, and on rank 0 adamw: ' train.optimizer=sgd
is "nothing was begun" no "$([ -e none ] && echo yes || echo no)"
mpirun --oversubscribe -n 2 sh -c "$by_rank" sh "$TRIREME" train $M $here run.dir=threads AND \
    "$TRIREME" train $M $here run.dir=threads run.threads=2 >out 2>err
is "another number of threads is a rank's own" 0 $?

# Another build: this one, but for the last byte of its build id.
set -- $(objdump -h "$TRIREME" 2>err | awk '$2 == ".note.gnu.build-id" { print $3, $6 }')
if [ $# = 2 ]; then
    cp "$TRIREME" rebuilt
    at=$((0x$2 + 0x$1 - 1))
    byte=$(od -An -tu1 -j$at -N1 rebuilt)
    printf "\\$(printf %o $((255 - byte)))" | dd of=rebuilt bs=1 seek=$at conv=notrunc status=none
    refused "another build of the same version" \
        'rank 1 .*: this is trireme [0-9.]*, build [0-9a-f]*, and rank 0 is [0-9.]*, build [0-9a-f]*: all ranks' \
        mpirun --oversubscribe -n 2 sh -c "$by_rank" sh "$TRIREME" train $M $here run.dir=none AND ./rebuilt train $M $here run.dir=none
else
    skip "another build of the same version" "objdump finds no build id: $(head -n 1 err)"
fi

mkdir other
cp "$work/valid.h5" other/train.h5
refused "other data under the same name" 'rank 1 .*: data.train: train.h5 is not what rank 0 has .* samples' \
    mpirun --oversubscribe -n 2 sh -c "$by_rank" sh "$TRIREME" train $M data.train=train.h5 run.dir="$work/data" AND \
    env -C other "$TRIREME" train $M data.train=train.h5 run.dir="$work/data"
refused "other data to evaluate on" 'rank 1 .*: data.valid: train.h5 is not what rank 0 has' \
    mpirun --oversubscribe -n 2 sh -c "$by_rank" sh "$TRIREME" evaluate $M data.valid=train.h5 run.dir="$work/threads" AND \
    env -C other "$TRIREME" evaluate $M data.valid=train.h5 run.dir="$work/threads"
refused "another run directory under the same name" \
    'rank 1 .*: dir/checkpoints is not the folder that rank 0 .* run.dir must be one that all nodes see' \
    mpirun --oversubscribe -n 2 sh -c "$by_rank" sh "$TRIREME" train $M $here run.dir=dir AND \
    env -C other "$TRIREME" train $M $here run.dir=dir
is "disagreement about a run directory leaves rank 0's clean" 0 "$(ls -A dir/checkpoints | wc -l)"
: >threads/checkpoints/.seen-1-2 # of a start that was killed while it looked
ranks 2 "$TRIREME" train $M $here run.dir=threads >out 2>err
is "what a killed start left there goes" "0 0" "$? $(ls -A threads/checkpoints | grep -c seen)"
finish
