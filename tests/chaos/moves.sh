#!/bin/sh
# moves.sh [N|all] - kill starts that set something aside (checkpoint.resume=STEP and PATH,
# run.fresh=true) just before each of their calls that change a file, and then start again: by the
# same command, by one that asks for nothing, or by one that goes back further.  After the kill and
# after the next start every checkpoint and every line of metrics is there; the next start ends
# well, with the bits of a run that nobody disturbed, and leaves the files that it leaves when it
# comes instead of the killed start, after all of it, or after that has trained to the end.
. "$(dirname "$0")/chaos.inc"
make_tokens
compile kill_at
every="checkpoint.every=5 checkpoint.keep=10"

# start STEPS [key=value ...]: one process, without mpirun, in the run's directory; its exit code
start() {
    steps_=$1
    shift
    # shellcheck disable=SC2086
    timeout -k 5 60 $tracer "$TRIREME" train $settings $every run.dir="$work/run" \
        train.steps="$steps_" "$@" </dev/null >start.out 2>start.log
}
tracer=

must_start() {
    start "$@" || { not_ok "an undisturbed start ($*)" "$(tail -n 3 start.log)"; finish; }
}

# The runs that a start may find: `first`, whose step 19 is torn, `second`, the same run in its second
# branch, and `other`.  `whole` is the run that nobody disturbs.
must_start 10
mv run other
must_start 20
cp -r run/checkpoints/step-00000020 run/checkpoints/step-00000019
rm run/checkpoints/step-00000019/COMMIT
cp -r run first
must_start 22 checkpoint.resume=15
mv run second
must_start 23
mv run whole
numbers_of whole >whole.numbers

# One line a kind of start: its name, the run it finds, the step it ends at, what it asks for.
kinds="back first 15 checkpoint.resume=15
to-aside second 20 checkpoint.resume=$work/run/branches/0/checkpoints/step-00000020
fresh first 0 run.fresh=true
fresh-from first 10 run.fresh=true checkpoint.resume=$work/other/checkpoints/step-00000010
fresh-back first 15 run.fresh=true checkpoint.resume=15"

# set_kind NAME: $found, $until and $asked
set_kind() {
    kind=$1
    # shellcheck disable=SC2046
    set -- $(printf '%s\n' "$kinds" | grep "^$kind ")
    found=$2 until=$3
    shift 3
    asked=$*
}

put() {
    rm -rf run run.*
    cp -r "$found" run
}

# next_start HOW: start again by the same command (again), by one that asks for nothing (auto), or by one
# that goes back further (further).
next_start() {
    case $1 in
    again) wants=$asked ;;
    auto) wants= ;;
    further) wants=checkpoint.resume=10 ;;
    esac
    # shellcheck disable=SC2086
    start 23 $wants
}

# contents FOLDER...: a line for each checkpoint, torn ones too, with a checksum of its files, and each
# line of metrics.
contents() {
    find "$@" -type d -name 'step-????????' | while read -r folder; do
        echo "checkpoint $(cd "$folder" && find . -type f | sort | xargs cat | cksum)"
    done
    find "$@" -name metrics.jsonl -exec cat {} + | sed 's/^/line /'
}

# The checkpoints and lines of metrics of $found that are neither in the run nor in what was set aside.
lost() {
    contents "$found" | sort -u >before.list
    contents run run.[0-9]* 2>/dev/null | sort -u >after.list
    comm -23 before.list after.list
}

# The names of all files of the run and of what was set aside, with the steps of each file of metrics.
# Files in branches/N of the current branch N are left out: a start that was killed before it left the
# branch has made these copies.
layout() {
    find run run.[0-9]* \( -name 'step-????????' -prune -o -type f \) -print 2>/dev/null |
        grep -v -e '/log.txt$' -e '/lock$' -e '^run\..*\.partial$' | sort | while read -r name; do
        branch=$(sed -n 's/.*"branch": *\([0-9]*\).*/\1/p' "${name%%/*}/run.json" | head -n 1)
        case $name in
        */branches/"$branch"/metrics.jsonl | */branches/"$branch"/metrics.jsonl.partial) ;;
        */branches/"$branch"/branch.json*) ;;
        */metrics.jsonl) echo "$name $(steps_of "${name%/*}")" ;;
        *) echo "$name" ;;
        esac
    done
}

# nexts_of KIND: the next starts to try.  Only `back` can go back further: after the others the branch
# began outside of the run's folder, which has no earlier step.
nexts_of() {
    case $1 in back) echo again auto further ;; *) echo again auto ;; esac
}

# The calls of a start that is not killed, KIND.calls, and what it leaves, KIND.done/.
count_calls() {
    set_kind "$1"
    put
    tracer="$work/kill_at 0 $work/run"
    # shellcheck disable=SC2086
    start "$until" $asked
    code=$?
    tracer=
    [ $code != 77 ] || { skip "kills at single calls" "programs cannot be traced here"; finish; }
    [ $code = 0 ] || { not_ok "an undisturbed start ($asked)" "$(tail -n 3 start.log)"; finish; }
    mv start.out "$kind.calls"
    mkdir "$kind.done"
    mv run run.[0-9]* "$kind.done/" 2>/dev/null
}

# The layouts that a next start may leave: KIND.NEXT.0 where the killed start has done nothing, .1
# where it has done all, .2 where it has trained to the end, too, and .3 where the whole run is aside
# and nothing has begun in its place.
make_layouts() {
    [ ! -e "$1.$2.2" ] || return
    put
    next_start "$2"
    layout >"$1.$2.0"
    rm -rf run run.*
    cp -r "$1.done"/* .
    next_start "$2"
    layout >"$1.$2.1"
    put
    # shellcheck disable=SC2086
    start 23 $asked && next_start "$2"
    layout >"$1.$2.2"
    case $1 in fresh | fresh-from) ;; *) return ;; esac
    put
    mv run run.1
    next_start "$2"
    layout >"$1.$2.3"
}

# one_kill KIND CALL NEXT
one_kill() {
    set_kind "$1"
    make_layouts "$1" "$3"
    how="$1, killed before call $2 ($(sed -n "$2p" "$1.calls")), then $3"
    put
    tracer="$work/kill_at $2 $work/run"
    # shellcheck disable=SC2086
    start "$until" $asked
    code=$?
    tracer=
    [ $code = 137 ] || { bad_trial "$how: exit code $code, not killed"; return; }
    kills=$((kills + 1))
    missing=$(lost)
    [ -z "$missing" ] || bad_trial "$how: lost by the kill: $missing"
    half=$(grep -c '"moving"' run/run.json 2>/dev/null)
    if ! next_start "$3"; then
        bad_trial "$how: does not go on: $(grep -a trireme: start.log | tail -n 1)"
        return
    fi
    missing=$(lost)
    [ -z "$missing" ] || bad_trial "$how: lost by the next start: $missing"
    layout >now
    right=0
    for wanted in "$1.$3".[0-3]; do
        ! cmp -s now "$wanted" || right=1
    done
    [ $right = 1 ] || bad_trial "$how: other files: $(diff now "$1.$3.1" | head -n 4)"
    same_state whole run || bad_trial "$how: another state than without the kill"
    numbers_of run | grep -v -x -F -f whole.numbers | grep -q . &&
        bad_trial "$how: other numbers than without the kill"
    [ "${half:-0}" = 0 ] || grep -q 'had begun.*is finished now' start.log ||
        bad_trial "$how: the next start does not say what it finished"
}

# Every kill there is, or some by chance.
for kind in $(printf '%s\n' "$kinds" | cut -d' ' -f1); do
    count_calls "$kind"
    for call in $(seq "$(wc -l <"$kind.calls")"); do
        for next in $(nexts_of "$kind"); do
            echo "$kind $call $next"
        done
    done >>kills.list
done
of_all=$(wc -l <kills.list)
[ "$trials" != all ] || trials=$of_all
[ "$trials" = "$of_all" ] || { # in an order that follows from SEED
    awk -v seed="$SEED" 'BEGIN { srand(seed) } { print rand(), $0 }' kills.list | sort -n |
        cut -d' ' -f2- >shuffled
    mv shuffled kills.list
}
kills=0 trial=$FROM
while [ "$trial" -lt $((FROM + trials)) ] && [ "$trial" -le "$of_all" ]; do
    # shellcheck disable=SC2046
    one_kill $(sed -n "${trial}p" kills.list)
    trial=$((trial + 1))
done
conclude $kills "$kills of $of_all kills between the calls that set something aside: nothing lost"
