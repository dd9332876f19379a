#!/bin/sh
# one_rank.sh - something happens to one rank alone: its step fails, it is stopped, its files are
# slow.  The line that names it comes at once, or after run.hang_seconds; slow is not stuck.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
M="model.preset=llama-tiny device=cpu precision=fp32 data.train=$work/train.h5 data.seq_len=32
   train.global_batch=12 train.lr=1e-3 train.schedule=constant run.threads=1"
mpicc -shared -fPIC -o bad_node.so "$top/tests/cli/bad_node.c" -ldl 2>cc.log ||
    { skip "one_rank.sh" "no mpicc: $(head -n 1 cc.log)"; finish; }

# with_bad N RUN KEY=VALUE...: N ranks in the background, of which BAD_RANK is on a bad node;
# $job is the launcher.
with_bad() {
    n=$1 run=$2
    shift 2
    LD_PRELOAD=$work/bad_node.so mpirun --oversubscribe -n "$n" "$TRIREME" train $M run.dir="$run" "$@" \
        >"$run.out" 2>"$run.err" &
    job=$!
}

none_left() {
    if pgrep -f "run.dir=$1 " >left; then
        not_ok "$2: no process is left" "$(cat left)"
        kill -KILL $(cat left)
    else
        ok "$2: no process is left"
    fi
}

# A step that fails on one rank; hang_seconds are those of a user, who is not to wait for them.
export BAD_RANK=1 BAD_SEND=$work/fail-now
with_bad 3 broken train.steps=100000 checkpoint.every=5
wait_for 60 has_steps broken 7
touch fail-now
wait_for 10 grep -q "^trireme: error: rank 1 (.*)" broken.err
is "a step that fails: the rank says so at once" 0 $?
ended
is "a step that fails: the job ends" 95 $code
is "a step that fails: by one line" 1 "$(grep -c '^trireme: error' broken.err)"
none_left broken "a step that fails"
rm fail-now
unset BAD_SEND

# One rank is stopped, of four, in every strategy: the first line names it.  STOPPED_RANKS: which.
for strategy in NO_SHARD SHARD_GRAD_OP FULL_SHARD HYBRID_SHARD; do
    for stopped in ${STOPPED_RANKS:-1 2}; do
        shard=0 name="rank $stopped stopped, $strategy"
        [ $strategy != HYBRID_SHARD ] || shard=2
        mpirun --oversubscribe -n 4 "$TRIREME" train $M train.steps=100000 run.dir=stopped \
            run.hang_seconds=4 parallel.strategy=$strategy parallel.shard=$shard checkpoint.every=50 \
            checkpoint.resume=none >stopped.out 2>stopped.err &
        job=$!
        rm -f stopped/metrics.jsonl
        wait_for 60 has_steps stopped 10
        kill -STOP "$(rank_pids $job | sed -n $((stopped + 1))p)"
        ended
        is "$name: the job ends" 94 $code
        if grep '^trireme: error' stopped.err | head -n 1 |
            grep -q "no progress for 4 s: rank $stopped (.*) does not answer"; then
            ok "$name: the first line names it"
        else
            not_ok "$name: the first line names it" "$(grep '^trireme: error' stopped.err)"
        fi
    done
done
none_left stopped "a stopped rank"

# Slow files of one rank: each call is shorter than run.hang_seconds, all of them are longer.  In a
# save, and in a resume from one file on two ranks, which verify half of it each.
export BAD_RANK=1 BAD_FILE=/shard- BAD_MS=110
with_bad 2 slow train.steps=2 run.hang_seconds=4
ended
is "slow writes of one rank are no hang" 0 $code
unset BAD_RANK
"$TRIREME" train $M run.dir=whole train.steps=2 >whole.out 2>whole.err
export BAD_RANK=0
with_bad 2 whole train.steps=3 run.hang_seconds=4
ended
is "slow reads of one rank are no hang" "0 3" "$code $(last_metric whole step)"

# A call that never comes back is one.
export BAD_MS=1000000
with_bad 2 dead train.steps=2 run.hang_seconds=4
ended
is "a file that does not answer is" 94 $code
if grep '^trireme: error' dead.err | head -n 1 | grep -q 'rank 0 (.*) answers, but has done nothing'; then
    ok "and the rank is named"
else
    not_ok "and the rank is named" "$(grep '^trireme' dead.err)"
fi
unset BAD_RANK BAD_MS

# All ranks are stopped for longer than run.hang_seconds: nothing is lost.
mpirun --oversubscribe -n 3 "$TRIREME" train $M train.steps=100000 run.dir=suspended \
    run.hang_seconds=3 >suspended.out 2>suspended.err &
job=$!
wait_for 60 has_steps suspended 10
pids=$(rank_pids $job)
for pid in $pids; do kill -STOP $pid; sleep 0.3; done
sleep 7
for pid in $pids; do kill -CONT $pid; sleep 0.3; done
at=$(last_metric suspended step)
if wait_for 30 has_steps suspended $((at + 20)); then
    ok "a job that was suspended goes on"
else
    not_ok "a job that was suspended goes on" "$(tail -n 2 suspended.err)"
fi
kill -TERM $pids
ended
is "and saves when asked to" 75 $code
finish
