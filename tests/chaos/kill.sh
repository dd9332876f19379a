#!/bin/sh
# kill.sh [N] - N times SIGKILL at a random moment to a rank, to mpirun or to all at once, and then
# the same command again, until the run ends by itself.  Nothing may be lost: the last checkpoint and
# the numbers of every step are those of a run that nobody disturbed, bit for bit; no process stays.
. "$(dirname "$0")/chaos.inc"
every="checkpoint.every=3 checkpoint.keep=2"
steps=60 kills=0 restarts=0 runs=0
make_tokens

# The numbers of runs that nobody disturbs, on 1 to 3 ranks; span_ms, in which kills come, is how long
# the last of them takes.
for n in 1 2 3; do
    begin=$(date +%s%N)
    # shellcheck disable=SC2086
    train $n whole-$n $steps $every >whole.log 2>&1 || { not_ok "an undisturbed run" "$(tail -n 3 whole.log)"; finish; }
    span_ms=$((($(date +%s%N) - begin) / 1000000))
    numbers_of whole-$n >whole-$n.numbers
    [ "$(wc -l <whole-$n.numbers)" = $steps ] || { not_ok "an undisturbed run" "$(wc -l <whole-$n.numbers) steps"; finish; }
done

processes() { pgrep -f "run.dir=$work/run " | sort -n; }

# Kill something of the job after a while.  Returns 1 where it had ended.
kill_one() {
    random "$span_ms"
    sleep "$(printf '%d.%03d' $((drawn / 1000)) $((drawn % 1000)))"
    one_of rank rank rank rank mpirun all
    mpirun_pid=$(pgrep -f "^mpirun .*run.dir=$work/run " | head -n 1)
    rank_pids=$(pgrep -f "^$TRIREME train .*run.dir=$work/run ")
    case $drawn in
    all) victims="$mpirun_pid $rank_pids" ;;
    mpirun) victims=$mpirun_pid ;;
    *) victims=$(printf '%s\n' "$rank_pids" | shuf -n 1 --random-source=/dev/urandom) ;;
    esac
    # shellcheck disable=SC2086
    [ -n "$(echo $victims)" ] && kill -KILL $victims 2>/dev/null
}

one_run() {
    rm -rf run
    random 3
    n=$((drawn + 1)) code=1 starts=0
    one_of false true
    saving=checkpoint.async=$drawn
    runs=$((runs + 1))
    while [ $code != 0 ] && [ $starts -lt 6 ]; do
        starts=$((starts + 1))
        # shellcheck disable=SC2086
        train $n "$work/run" $steps $every $saving >run.log 2>&1 &
        job=$!
        if [ $starts -lt 5 ] && [ $kills -lt "$trials" ] && kill_one; then
            kills=$((kills + 1))
        fi
        wait $job
        code=$?
        [ $starts = 1 ] || restarts=$((restarts + 1))
        wait_for 30 no_processes || bad_trial "processes stay: $(processes | tr '\n' ' ')"
    done
    if [ $code != 0 ]; then
        bad_trial "$saving: exit code $code after $starts starts: $(grep -a trireme: run.log | tail -n 2)"
    elif ! same_state whole-$n run; then
        bad_trial "$n ranks, $saving: another state than without kills"
    elif ! numbers_of run | cmp -s - whole-$n.numbers; then
        bad_trial "$n ranks, $saving: other numbers than without kills: $(numbers_of run | diff - whole-$n.numbers | head -n 3)"
    fi
}

no_processes() { [ -z "$(processes)" ]; }

# About half of the runs end before their kill comes.
trial=$FROM
while [ $kills -lt "$trials" ] && [ $runs -lt $((10 * trials)) ]; do
    calls=0
    one_run
    trial=$((trial + 1))
done
[ $kills -ge "$trials" ] || bad_trial "only $kills kills came in time"
conclude $kills "$kills kills in $runs runs, $restarts restarts: the same bits after"
