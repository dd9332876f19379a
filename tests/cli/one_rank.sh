#!/bin/sh
# one_rank.sh - something happens to one rank alone: its step fails, it is stopped, its files are
# slow.  The line that names it comes at once, or after run.hang_seconds; slow is not stuck.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
M="model.preset=llama-tiny device=cpu precision=fp32 data.train=$work/train.h5 data.seq_len=32
   train.global_batch=12 train.lr=1e-3 train.schedule=constant run.threads=1"
mpicc -shared -fPIC -o bad_node.so "$top/tests/cli/bad_node.c" -ldl 2>cc.log ||
    { skip "one_rank.sh" "no mpicc: $(head -n 1 cc.log)"; finish; }
preload bad_node "$work/bad_node.so"

# with_bad N RUN KEY=VALUE...: N ranks in the background, of which BAD_RANK is on a bad node;
# $job is the launcher, and $err_to takes what it says in place of RUN.err.
with_bad() {
    n=$1 run=$2
    shift 2
    mpirun --oversubscribe -n "$n" ./bad_node train $M run.dir="$run" "$@" \
        >"$run.out" 2>"${err_to:-$run.err}" &
    job=$!
}

none_left() { # PATTERN NAME: no process has such a word in its command
    if pgrep -f "$1 " >left; then
        not_ok "$2: no process is left" "$(cat left)"
        kill -KILL $(cat left)
    else
        ok "$2: no process is left"
    fi
}

first_line_names() { # NAME FILE PATTERN: the first line of an error in it
    if grep '^trireme: error' "$2" | head -n 1 | grep -q "$3"; then
        ok "$1"
    else
        not_ok "$1" "$(tail -n 20 "$2")"
    fi
}

# A step that fails on one rank: its line comes within a second, while run.hang_seconds are 600, files
# are slow from 300 on, and a job that MPI_Abort does not end is ended after 5.  Where all cores are in
# use a process may wait for one that long, so that one of five trials has to be as fast.
mkfifo lines
fails_alone() { # NAME RANK WORDS: in a run in which that rank fails once there is a file fail-now
    times= BAD_RANK=$2 err_to=lines
    for trial in 1 2 3 4 5; do
        rm -rf broken fail-now
        while read -r line; do echo "$(date +%s%N) $line"; done <lines >stamped &
        clock=$!
        with_bad 3 broken train.steps=100000 checkpoint.every=5
        wait_for 60 has_steps broken 7
        touch fail-now
        ended
        wait $clock
        failed_at=$(cat fail-now) said=$(sed -n "s/ trireme: error: rank $2 (.*): $3.*//p" stamped)
        [ -n "$said" ] && [ -n "$failed_at" ] || break
        ms=$(((said - failed_at) / 1000000))
        times="$times $ms"
        [ $ms -ge 1000 ] || break
    done
    echo "# $1: the line comes after$times ms"
    if [ -n "$times" ] && [ $ms -lt 1000 ]; then ok "$1: the rank says so at once"; else
        not_ok "$1: the rank says so at once" "after${times:- no time} ms: $(cat stamped)"
    fi
    is "$1: the job ends" 95 $code
    is "$1: by one line" 1 "$(grep -c ' trireme: error' stamped)"
    is "$1: which is in log.txt, too" 1 "$(grep -c "^[0-9TZ:.-]* trireme: error: rank $2 (.*): $3" broken/log.txt)"
    none_left run.dir=broken "$1"
    rm fail-now
    unset err_to
}
export BAD_RANK BAD_SEND=$work/fail-now
fails_alone "a step that fails" 1 ".*MPI_ERR_OTHER"
unset BAD_SEND
BAD_CODE=$(nm -S "$TRIREME" | sed -n 's/^\([0-9a-f]*\) \([0-9a-f]*\) T array_make$/\1 \2/p')
if ! can_replace_malloc; then
    skip "memory that runs out" "malloc() is that of a sanitizer which is linked into $TRIREME"
elif [ -n "$BAD_CODE" ]; then
    export BAD_CODE BAD_CALLOC=$work/fail-now
    fails_alone "memory that runs out" 1 "out of memory: [0-9]* bytes"
    unset BAD_CODE BAD_CALLOC
else
    skip "memory that runs out" "the program does not tell where array_make() is"
fi

# One rank is stopped, of four, in every strategy: the first line names it.  STOPPED_RANKS: which;
# the jobs of a strategy run at the same time, each with a TMPDIR of its own: of two mpirun of Open
# MPI 4 that make their folder there in the same moment, one ends with 1.
stop_one() { # STRATEGY RANK SHARD
    run=stopped-$1-$2
    mkdir $run.tmp
    TMPDIR=$work/$run.tmp mpirun --oversubscribe -n 4 "$TRIREME" train $M train.steps=100000 run.dir=$run \
        run.hang_seconds=6 parallel.strategy=$1 parallel.shard=$3 checkpoint.every=50 \
        >$run.out 2>$run.err &
    job=$!
    wait_for 60 has_steps $run 10
    kill -STOP "$(rank_pids $job | sed -n $(($2 + 1))p)"
    ended
    echo $code >$run.code
}
for strategy in NO_SHARD SHARD_GRAD_OP FULL_SHARD HYBRID_SHARD; do
    shard=0
    [ $strategy != HYBRID_SHARD ] || shard=2
    for stopped in ${STOPPED_RANKS:-1 2}; do stop_one $strategy $stopped $shard & done
    wait
    for stopped in ${STOPPED_RANKS:-1 2}; do
        name="rank $stopped stopped, $strategy" run=stopped-$strategy-$stopped
        is "$name: the job ends" 94 "$(cat $run.code)"
        first_line_names "$name: the first line names it" $run.err \
            "no progress for 6 s: rank $stopped (.*) does not answer"
        is "$name: log.txt has that line" "$(grep '^trireme: error' $run.err | head -n 1)" \
            "$(grep -o 'trireme: error: .*' $run/log.txt | head -n 1)"
    done
done

# A rank that does not answer for some seconds, because its machine is busy, is not named in place of
# the one that is stopped.  Of four stages, each of which waits for the one before, the first is
# stopped for good.  The second and the third are stopped for five seconds, in which the fourth finds
# that there was no progress for run.hang_seconds.
"$TRIREME" train $M model.layers=4 model.hidden=512 train.steps=1 run.dir=row >row.out 2>row.err
mpirun --oversubscribe -n 4 "$TRIREME" evaluate row data.valid="$work/train.h5" \
    run.hang_seconds=16 parallel.pipeline=4 >stages.out 2>stages.err &
job=$!
wait_for 60 grep -q 'trireme: evaluating' stages.err
sleep 0.5
pids=$(rank_pids $job)
kill -STOP $(echo "$pids" | sed -n 1p)
sleep 11.5
kill -STOP $(echo "$pids" | sed -n 2,3p)
sleep 5
kill -CONT $(echo "$pids" | sed -n 2,3p)
ended
is "four stages of which one is stopped: the job ends" 94 $code
first_line_names "a rank that is slow to answer is not named" stages.err "rank 0 (.*) does not answer"
none_left 'run.dir=stopped-[^ ]*' "a stopped rank"
none_left "data.valid=$work/train.h5" "a stopped stage"

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

# Removing an old checkpoint, which the first rank does alone: five files.
BAD_RANK= ranks 2 "$TRIREME" train $M run.dir=pruned train.steps=2 checkpoint.every=1 >pruned.out 2>&1
export BAD_FILE=step-00000001.partial/ BAD_MS=1300
with_bad 2 pruned train.steps=3 checkpoint.every=1 run.hang_seconds=4
ended
is "slow removing by one rank is no hang" "0 step-00000002 step-00000003" \
    "$code $(ls pruned/checkpoints | xargs)"

# Ranks that share cores, and a rank with more threads than cores, are told at the start.
threads=$(OMP_NUM_THREADS= nproc) cores=$(lscpu -p=core,socket | grep -v '^#' | sort -u | wc -l)
mpirun --oversubscribe --bind-to none -n $((threads + 1)) "$TRIREME" train $M train.steps=1 run.dir=crowd >out 2>err
is "more ranks than cores are one warning" 1 \
    "$(grep -c "^trireme: warning: $((threads + 1)) ranks on [0-9]* cores* of node $(uname -n): they wait" err)"
mpirun --oversubscribe --bind-to none -n 2 sh -c "$by_rank" sh "$TRIREME" train $M train.steps=1 run.dir=threads AND \
    "$TRIREME" train $M train.steps=1 run.dir=threads run.threads=$((threads + 5)) >out 2>err
is "threads of rank 1 on too few cores are one warning" 1 \
    "$(grep -c "^trireme: warning: $((threads + 5)) threads of rank 1 (run.threads) on .*they wait" err)"
if [ "$cores" -gt 1 ]; then
    for binding in core:1 none:0; do
        (unset OMP_NUM_THREADS && mpirun --oversubscribe --bind-to ${binding%:*} -n 1 "$TRIREME" train $M run.threads=0 \
            train.steps=1 run.dir=${binding%:*}) >out 2>err
        is "--bind-to ${binding%:*}: warnings" "${binding#*:}" \
            "$(grep -c "^trireme: warning: mpirun binds ranks to 1 of [0-9]* cores of node $(uname -n); with" err)"
    done
else
    skip "a launcher that binds ranks" "one core"
fi

# A call that never comes back is one.
export BAD_FILE=/shard- BAD_MS=1000000
with_bad 2 dead train.steps=2 run.hang_seconds=4
ended
is "a file that does not answer is" 94 $code
first_line_names "and the rank is named, and its file" dead.err \
    'rank 0 (.*) answers, but has done nothing meanwhile: it has been [a-z]* .*dead/.*/shard-00000.h5 for [0-9]* s; here '
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
is "a job that was suspended saves when asked to" 75 $code
finish
