#!/bin/sh
# saving.sh - checkpoints in the background (checkpoint.async): the same bits as at once, beside the
# steps; and what is there after kills, signals, failures and checkpoints that come too fast.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
M="model.preset=llama-tiny device=cpu precision=fp32 data.train=train.h5 data.seq_len=32 train.schedule=constant
   train.global_batch=4 train.lr=1e-3 run.threads=1 run.log_every=1000 run.machine=off"
beside="checkpoint.async=true checkpoint.every=10"
export SLOW_FILE=$work/slow-ms
compile_preload() { ${CC:-cc} -std=gnu11 -O1 -D_GNU_SOURCE -shared -fPIC -o "$1" "$2" 2>cc.log; }
if ! compile_preload slow.so "$top/tests/unit/slow_file.c" || ! compile_preload preload.so "$top/tests/chaos/preload.c"; then
    echo "no compiler: $(head -n 1 cc.log)"
    exit 77
fi
preload slow_trireme "$work/slow.so"
preload full_trireme "$work/preload.so"
preload slow_full_trireme "$work/slow.so" "$work/preload.so"
slow=$work/slow_trireme

# slowly NAME KEY...: a run in the background of this shell, whose threads write a piece in so many ms
slowly() {
    "$slow" train $M $beside run.dir="$@" >out 2>err </dev/null &
    job=$!
}
kept() { ls "$1/checkpoints" | sed -n 's/^step-0*\([0-9][0-9]*\)$/\1/p' | xargs; }
# A line "step loss grad_norm" for each step of a run.
metrics_of() {
    sed -n 's/.*"step": *\([0-9]*\).*"loss": *\([^,]*\),.*"grad_norm": *\([^,]*\),.*/\1 \2 \3/p' "$1/metrics.jsonl"
}
# has_partial RUN STEP: it is being written
has_partial() { [ -e "$1/checkpoints/step-$(printf %08d "$2").partial/shard-00000.h5" ]; }
# The numbers of a checkpoint of one rank: its shard file without HDF5's times is the same bytes.
same_checkpoint() { cmp -s "$1/shard-00000.h5" "$2/shard-00000.h5"; }

# The same as at once

for n in 1 2; do
    train_on $n run.dir=once$n train.steps=20 checkpoint.every=5 checkpoint.keep=9 >out 2>err
    train_on $n $beside run.dir=beside$n train.steps=20 checkpoint.every=5 checkpoint.keep=9 >out 2>err
    is "$n ranks: a run ends" 0 $?
    is "$n ranks: with the losses of one that saves at once" "20 $(metrics_of once$n | cksum)" \
        "$(metrics_of beside$n | wc -l) $(metrics_of beside$n | cksum)"
    is "$n ranks: and its checkpoints" "5 10 15 20" "$(kept beside$n)"
    is "$n ranks: each is told, with the time that steps waited" 3 "$(grep -c \
        'saved beside.*/step-000000[0-9]* in [0-9.]* s, of which steps waited [0-9.]* s$' err)"
    for step in 05 10 15 20; do
        same_checkpoint once$n/checkpoints/step-000000$step beside$n/checkpoints/step-000000$step
        is "$n ranks: step $step has the same bytes" 0 $?
    done
    is "$n ranks: all are whole" 0 "$("$TRIREME" checkpoint verify beside$n >/dev/null 2>&1; echo $?)"
done
train_on 2 run.dir=resumed train.steps=20 checkpoint.resume=beside1/checkpoints/step-00000010 $beside >out 2>err
is "a checkpoint of the background is resumed on 2 ranks" "$(last_metric once1 loss | cut -c1-6)" "$(last_metric resumed loss | cut -c1-6)"

# Beside the steps

echo 40 >slow-ms # a checkpoint of llama-tiny has some 60 pieces: 2 to 3 s
slowly steps train.steps=100000 checkpoint.every=10
wait_for 60 has_partial steps 10
wait_for 60 has_steps steps 15
is "steps go on while a checkpoint is written" "0 there" "$(kept steps | wc -w) $(has_partial steps 10 && echo there)"
wait_for 60 has_partial steps 20
is "the next one waits for it, and how long is told" "10 1" "$(kept steps) $(grep -c \
    'saved .*/step-00000010 in [0-9.]* s, of which steps waited [1-9]' err)"
kill -TERM $job
wait $job
is "a signal: what is being written is finished, and the state saved" "75 2 1" \
    "$? $(kept steps | wc -w) $(grep -c 'asked to stop: state saved' err)"
last=$(last_metric steps step)
echo 0 >slow-ms
train_on 1 $beside run.dir=steps train.steps=$((last + 2)) >out 2>err
is "and goes on from there" "0 1-$((last + 2))" "$? $(steps_of steps)"

echo 40 >slow-ms
slowly killed train.steps=100000 checkpoint.every=10 checkpoint.keep=2
wait_for 60 has_partial killed 20
kill -KILL $job
wait $job 2>/dev/null
is "a kill while one is written leaves the one before" 10 "$(kept killed)"
echo 0 >slow-ms
train_on 1 $beside run.dir=killed train.steps=25 checkpoint.every=10 >out 2>err
is "from which the next start goes on" "0 20 25" "$? $(kept killed)"
is "and removes what was not finished" 0 "$(ls killed/checkpoints | grep -c partial)"
train_on 1 run.dir=spared train.steps=25 >out 2>err
is "to the same numbers" "25 $(metrics_of spared | cksum)" "$(metrics_of killed | wc -l) $(metrics_of killed | cksum)"

echo 20 >slow-ms
SLOW_BESIDE=1 TRIREME=$slow train_on 1 $beside run.dir=shared train.steps=24 checkpoint.every=7 train.global_batch=64 \
    offload.optimizer=disk >out 2>err
is "a disk that is slow beside a checkpoint is not taken for one that is slow" "0 0" "$? $(grep -c 'the disk is slower' err)"
echo 0 >slow-ms

# Ends of training

echo 20 >slow-ms
TRIREME=$slow train_on 1 $beside run.dir=soon train.steps=12 checkpoint.every=10 >out 2>err
is "a run that ends first waits" "0 10 12" "$? $(kept soon)"
TRIREME=$slow train_on 1 $beside run.dir=best train.steps=12 data.valid=valid.h5 train.eval_every=3 \
    checkpoint.keep_best=true checkpoint.every=0 >out 2>err
is "checkpoints/best leads to the best, once it is written" "0 step-00000012" "$? $(readlink best/checkpoints/best)"
is "no more are kept than at once" "9 12" "$(kept best)"
echo 5 >slow-ms
TRIREME=$slow train_on 1 $beside run.dir=hot train.steps=300 train.lr=100 train.clip=0 checkpoint.every=1 >out 2>err
is "a run that diverges ends with 1" 1 $?
is "and what was being written is whole" 0 "$("$TRIREME" checkpoint verify hot >/dev/null 2>&1; echo $?)"
echo 0 >slow-ms

# Failures

cat >rank.sh <<'END'
[ "$OMPI_COMM_WORLD_RANK" != 1 ] || export TRIREME=$PWD/full_trireme CHAOS_CALL=fsync CHAOS_P=1 CHAOS_ERRNO=28 CHAOS_PATH=step-00000010.partial/shard-00001.h5
exec "$TRIREME" "$@"
END
export TRIREME
# The last step has a rate of 0, so that its evaluation is no better than that of step 10.
best="data.valid=valid.h5 train.eval_every=5 checkpoint.keep_best=true"
ranks 2 sh rank.sh train $M $beside $best run.dir=full train.steps=11 train.schedule=linear checkpoint.every=5 >out 2>err
is "a disk that is full for one rank is one warning, and the run goes on" "0 5 11 1" "$? $(kept full) $(grep -c \
    'warning: checkpoint of step 10 failed, training goes on: rank 1 .*shard-00001.h5: No space left.*; the newest checkpoint is still that of step 5$' err)"
is "checkpoints/best leads to the best one that is there" step-00000005 "$(readlink full/checkpoints/best)"
train_on 2 $beside $best run.dir=full train.steps=13 train.lr=1 checkpoint.every=1 >out 2>err # which harms
is "also in a start that knows of a better evaluation, and that one is kept" "0 10 step-00000005 5" \
    "$? $(sed -n 's/.*"best_step": *\([0-9]*\).*/\1/p' full/checkpoints/step-00000013/meta.json) $(
    readlink full/checkpoints/best) $(kept full | cut -d' ' -f1)"
echo 20 >slow-ms
TRIREME=$work/slow_full_trireme CHAOS_CALL=fsync CHAOS_P=1 CHAOS_ERRNO=28 CHAOS_PATH=step-00000017.partial train_on 1 \
    $beside run.dir=last train.steps=17 checkpoint.every=5 >out 2>err
is "old checkpoints are deleted before the last one is written, as at once" "95 10 15" "$? $(kept last)"
echo 0 >slow-ms
"$slow" train $M $beside run.dir=lost train.steps=100000 checkpoint.every=10 >out 2>err </dev/null &
job=$!
echo 20 >slow-ms
wait_for 60 has_partial lost 20
mv lost elsewhere
wait $job
is "a run whose directory is moved ends" "95 1" "$? $(grep -c 'error: training ends at step .*is no longer the folder' err)"
echo 0 >slow-ms

# Memory

"$TRIREME" plan $M $beside train.steps=5 --json beside.json >out 2>&1
planned=$(sed -n 's/.*"total_bytes": *\([0-9]*\).*/\1/p' beside.json | head -n 1)
is "trireme plan counts the copy" "$planned" "$(last_metric beside1 mem_peak_bytes)"
"$TRIREME" plan $M $beside train.steps=5 --node-memory 0.0467 >out 2>&1
is "where the copy does not fit, checkpoint.async=false is the nearest" 1 "$(grep -c 'nearest that fits: checkpoint.async=false (' out)"
finish
