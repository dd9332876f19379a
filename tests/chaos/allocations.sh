#!/bin/sh
# allocations.sh [N] - in N runs one allocation of trireme's own code fails.  The run goes on or ends
# with a message, never with a crash or a hang; started again it comes to the same bits.
. "$(dirname "$0")/chaos.inc"
if ! can_replace_malloc; then
    skip "allocations that fail" "malloc() is that of a sanitizer which is linked into $TRIREME"
    finish
fi
make_tokens
compile preload.so
preload failing_trireme "$work/preload.so"
went_on=0 ended=0

# alone PROGRAM: without mpirun, whose own allocations do not count.
alone() {
    # shellcheck disable=SC2086
    timeout -k 5 60 "$1" train $settings run.dir="$work/run" train.steps=4 \
        checkpoint.every=2 data.valid="$work/valid.h5" </dev/null
}
CHAOS_COUNT=1 alone "$work/failing_trireme" >whole.log 2>&1 ||
    { not_ok "an undisturbed run" "$(tail -n 3 whole.log)"; finish; }
of_all=$(sed -n 's/^allocations //p' whole.log)
mv run whole

one_run() {
    rm -rf run
    random "$of_all"
    CHAOS_ALLOCATION=$((drawn + 1)) alone "$work/failing_trireme" >run.log 2>&1
    code=$?
    case $code in
    0) went_on=$((went_on + 1)) ;;
    1 | 95)
        ended=$((ended + 1))
        grep -a -q '^trireme: ' run.log || bad_trial "ends with $code and no message: $(tail -n 2 run.log)"
        ;;
    *) bad_trial "exit code $code: $(tail -n 3 run.log)" ;;
    esac
    if ! alone "$TRIREME" >again.log 2>&1; then
        bad_trial "does not go on: $(grep -a trireme: again.log | tail -n 1)"
    elif ! same_state whole run; then
        bad_trial "another state than without the failure"
    fi
}

each_trial one_run
conclude $ended "$trials of $of_all allocations failed: $went_on went on, $ended ended with a message"
