#!/bin/sh
# corrupt.sh [N] - damage a random file of a committed checkpoint in N ways.  `checkpoint verify` sees
# it, and training goes on from the checkpoint before (every fifth trial), to the same bits.  Only
# white space at the end of COMMIT has no meaning.
. "$(dirname "$0")/chaos.inc"
make_tokens
compile mutate
seen=0 harmless=0 resumed=0
train 2 good 20 checkpoint.every=10 checkpoint.keep=2 >good.log 2>&1 &&
    train 2 longer 24 checkpoint.every=0 >>good.log 2>&1 ||
    { not_ok "an undisturbed run" "$(tail -n 3 good.log)"; finish; }
newest=checkpoints/step-00000020 older=checkpoints/step-00000010

damage_one() {
    random 40
    case $drawn in
    0 | 1)
        rm "run/$newest/$file"
        what="$file removed"
        ;;
    2 | 3)
        if cmp -s "run/$newest/$file" "run/$older/$file"; then return 1; fi
        cp "run/$older/$file" "run/$newest/$file"
        what="$file of another checkpoint"
        ;;
    *)
        random 1000000000
        what="$file: $("$work/mutate" "run/$newest/$file" "$drawn")" || what="$file: mutate failed"
        ;;
    esac
}

text_of() { tr '\t\r\n' '   ' <"$1" 2>/dev/null | sed 's/ *$//'; }

# COMMIT says the same with other white space at its end.
is_harmless() {
    [ "$file" = COMMIT ] && [ "$(text_of "run/$newest/COMMIT")" = "$(text_of "good/$newest/COMMIT")" ]
}

one_damage() {
    rm -rf run
    cp -r good run
    # shellcheck disable=SC2046
    one_of $(ls good/$newest)
    file=$drawn
    damage_one || { file=COMMIT; : >"run/$newest/COMMIT"; what="COMMIT emptied"; }
    timeout 60 "$TRIREME" checkpoint verify "run/$newest" >verify.log 2>&1
    code=$?
    if [ $code = 0 ] && is_harmless; then
        harmless=$((harmless + 1))
        return
    elif [ $code = 1 ]; then
        seen=$((seen + 1))
    else
        bad_trial "$what: verify ends with $code: $(tail -n 1 verify.log)"
        return
    fi
    [ $((trial % 5)) = 0 ] || return
    if ! train 2 run 24 checkpoint.every=0 >resume.log 2>&1; then
        bad_trial "$what: training does not go on: $(grep -a trireme: resume.log | tail -n 1)"
    elif ! same_state longer run; then
        bad_trial "$what: training comes to another state"
    else
        resumed=$((resumed + 1))
    fi
}

each_trial one_damage
conclude $seen "$trials corruptions: $seen seen, $harmless without meaning, $resumed of those resumed from right"
