#!/bin/sh
# io_errors.sh [N] - N runs in which system calls on the run directory fail by chance (ENOSPC, EIO,
# EDQUOT, short writes).  A run ends well or with a message, never with a crash or a hang, and every
# committed checkpoint is good; started again without errors it comes to the same bits.
. "$(dirname "$0")/chaos.inc"
make_tokens
compile preload.so
preload failing_trireme "$work/preload.so"
ended=0 went_on=0 injected=0
train 2 whole 24 checkpoint.every=4 >whole.log 2>&1 ||
    { not_ok "an undisturbed run" "$(tail -n 3 whole.log)"; finish; }
numbers_of whole >whole.numbers
[ "$(wc -l <whole.numbers)" = 24 ] || { not_ok "an undisturbed run" "$(wc -l <whole.numbers) steps"; finish; }

check_checkpoints() {
    for checkpoint in run/checkpoints/step-????????; do
        [ -e "$checkpoint/COMMIT" ] || continue
        timeout 60 "$TRIREME" checkpoint verify "$checkpoint" >verify.log 2>&1 ||
            bad_trial "$how: committed and bad: $(tail -n 1 verify.log)"
    done
}

# Each step there is has the numbers of the undisturbed run, once.
numbers_agree() {
    [ -z "$(numbers_of run | cut -d' ' -f1 | sort | uniq -d)" ] &&
        [ -z "$(numbers_of run | grep -v -x -F -f whole.numbers)" ]
}

one_run() {
    rm -rf run calls.log
    one_of any any write pwrite read pread fsync close open rename mkdir remove ftruncate
    call=$drawn
    one_of 28 5 122
    error=$drawn
    one_of 0 0 0 1
    short=$drawn
    one_of 0.01 0.05 0.2
    share=$drawn
    [ "$trial" != 1 ] || { call=any && share=0.2; } # some calls are so rare that by chance none fails
    one_of false true
    saving=checkpoint.async=$drawn
    how="$call, errno $error, share $share, $saving"
    CHAOS_CALL=$call CHAOS_ERRNO=$error CHAOS_SHORT=$short CHAOS_P=$share CHAOS_SEED=$trial \
        CHAOS_PATH=$work/run CHAOS_LOG=$work/calls.log TRIREME=$work/failing_trireme \
        train 2 "$work/run" 24 checkpoint.every=4 $saving >run.log 2>&1
    code=$?
    [ ! -e calls.log ] || injected=$((injected + $(wc -l <calls.log)))
    case $code in
    0) went_on=$((went_on + 1)) ;;
    1 | 75 | 95)
        ended=$((ended + 1))
        grep -a -q '^trireme: ' run.log || bad_trial "$how: ends with $code and no message"
        ;;
    *) bad_trial "$how: exit code $code: $(tail -n 3 run.log)" ;;
    esac
    check_checkpoints
    if ! train 2 "$work/run" 24 checkpoint.every=4 $saving >again.log 2>&1; then
        bad_trial "$how: does not go on: $(grep -a trireme: again.log | tail -n 1)"
    elif ! same_state whole run; then
        bad_trial "$how: another state than without errors"
    elif ! numbers_agree; then
        bad_trial "$how: other numbers than without errors"
    fi
}

each_trial one_run
conclude $injected "$trials runs with $injected errors: $went_on went on, $ended ended with a message"
