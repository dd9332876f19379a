#!/bin/sh
# allocations.sh [N] - in N runs one allocation of trireme's own code fails.  The run goes on or ends
# with a message, never with a crash or a hang; started again it comes to the same bits.
. "$(dirname "$0")/chaos.inc"
make_tokens
compile preload.so
went_on=0 ended=0

# Alone, without mpirun, whose own allocations do not count.
alone() {
    # shellcheck disable=SC2086
    timeout -k 5 60 env "$@" "$TRIREME" train $settings run.dir="$work/run" train.steps=4 \
        checkpoint.every=2 data.valid="$work/valid.h5" </dev/null
}
alone CHAOS_COUNT=1 LD_PRELOAD="$work/preload.so" >whole.log 2>&1 ||
    { not_ok "an undisturbed run" "$(tail -n 3 whole.log)"; finish; }
of_all=$(sed -n 's/^allocations //p' whole.log)
mv run whole

one_run() {
    rm -rf run
    random "$of_all"
    alone CHAOS_ALLOCATION=$((drawn + 1)) LD_PRELOAD="$work/preload.so" >run.log 2>&1
    code=$?
    case $code in
    0) went_on=$((went_on + 1)) ;;
    1 | 95)
        ended=$((ended + 1))
        grep -a -q '^trireme: ' run.log || bad_trial "ends with $code and no message: $(tail -n 2 run.log)"
        ;;
    *) bad_trial "exit code $code: $(tail -n 3 run.log)" ;;
    esac
    if ! alone >again.log 2>&1; then
        bad_trial "does not go on: $(grep -a trireme: again.log | tail -n 1)"
    elif ! same_state whole run; then
        bad_trial "another state than without the failure"
    fi
}

each_trial one_run
conclude $ended "$trials of $of_all allocations failed: $went_on went on, $ended ended with a message"
