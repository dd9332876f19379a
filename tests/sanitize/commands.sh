#!/bin/sh
# commands.sh - every command that computes, once, on a tiny model, each under $RUNNER.
#
# RUNNER: what the program is started by (nothing, or valgrind and its options).  RANKS: how many
# ranks train and evaluate ("1").  LIMIT: seconds for each command.
. "$(dirname "$0")/../cli/helpers.inc"

# run NAME RANKS COMMAND...
run() {
    name="$1, $2 ranks" n=$2 start=
    shift 2
    [ "$n" = 1 ] || start="mpirun --oversubscribe -n $n"
    if timeout -k 5 "${LIMIT:-120}" $start ${RUNNER-} "$TRIREME" "$@" >out 2>err </dev/null; then
        ok "$name"
    else
        not_ok "$name" "exit code $?"
        head -n 60 err | sed 's/^/#   /'
    fi
}

make_text
head -c 300 text >some
run "tokenize" 1 tokenize text some -o train.h5
run "tokenize little" 1 tokenize some -o valid.h5

for n in ${RANKS:-1}; do
    M="model.preset=llama-tiny device=cpu data.train=train.h5 data.valid=valid.h5 data.seq_len=31
       train.global_batch=3 train.micro_batch=1 train.steps=2 checkpoint.resume=auto run.threads=1
       run.dir=run-$n"
    B="precision=bf16 run.dir=bf16-$n run.threads=2 run.trace=2"
    run "train and save" "$n" train $M
    run "resume, evaluate on the way" "$n" train $M train.steps=3 train.eval_every=1
    run "train in bf16 by 2 threads, traced" "$n" train $M $B
    run "evaluate" "$n" evaluate $M
    run "plan" 1 plan $M --ranks "$n"
    checkpoint=$(newest_checkpoint "run-$n")
    is "saved at the last step, $n ranks" step-00000003 "${checkpoint##*/}"
    run "generate from a save of $n" 1 generate "$checkpoint" --prompt "Ro bi " --tokens 9 --seed 3
    run "checkpoint verify, a save of $n" 1 checkpoint verify "$checkpoint"
    run "checkpoint show, a save of $n" 1 checkpoint show "$checkpoint"
done
finish
