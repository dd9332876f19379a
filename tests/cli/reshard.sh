#!/bin/sh
# reshard.sh - a run saved on one number of ranks goes on on another, with the losses it would have
# had: every step within 1e-6 of the run that was never stopped (1e-8 is usual).
#
# At a rate of 3e-3 some texts made the gradient jump, and AdamW with its usual eps turned the
# roundings of sums in another order, 1e-9 until then, into 1e-4; the rate and eps here keep them at
# 1e-8 for each of ten texts.
. "$(dirname "$0")/../cli/helpers.inc"
. "$top/tests/cli/losses.inc"

make_tokens
steps=40
M="model.layers=3 model.hidden=36 model.heads=6 model.kv_heads=3 model.ffn=61 model.vocab=257
   device=cpu precision=fp32 data.train=train.h5 data.seq_len=30 train.global_batch=6
   train.micro_batch=1 train.lr=1e-3 train.eps=1e-6 train.warmup_steps=5 checkpoint.every=17 run.threads=1"

# keys LAYOUT: STRATEGY, or STRATEGY+tensor=2 and so on, as keys.
keys() { echo "parallel.strategy=$1" | sed 's/+/ parallel./g'; }

# moved FROM TO LAYOUT LAYOUT: stopped at step 17 on FROM ranks, continued on TO.
moved() {
    run=moved-$1-$2-$3-$4
    mkdir -p "$run/checkpoints"
    cp -r "whole-$1-$3/checkpoints/step-00000017" "$run/checkpoints/" || return
    head -n 17 "whole-$1-$3/metrics.jsonl" >"$run/metrics.jsonl"
    # shellcheck disable=SC2046
    ranks "$2" "$TRIREME" train $M train.steps=$steps $(keys "$4") run.dir="$run" \
        >"$run.out" 2>"$run.err"
    is "saved by $1 ranks ($3), continued by $2 ($4)" 0 $?
    is "saved by $1 ranks ($3), continued by $2 ($4): every step once" "1-$steps" \
        "$(steps_of "$run")"
    same_losses "saved by $1 ranks ($3), continued by $2 ($4): the same losses" whole-1-NO_SHARD \
        "$run"
}

for layout in "1 NO_SHARD" "2 FULL_SHARD" "3 FULL_SHARD" "3 NO_SHARD" \
    "3 FULL_SHARD+context=3" "4 FULL_SHARD+pipeline=2+tensor=2" \
    "2 FULL_SHARD+pipeline=2+schedule=interleaved_1f1b"; do
    set -- $layout
    # shellcheck disable=SC2046
    ranks "$1" "$TRIREME" train $M train.steps=$steps $(keys "$2") \
        run.dir="whole-$1-$2" checkpoint.keep=3 >whole.out 2>whole.err
    is "$1 ranks, $2: trained" 0 $?
    same_losses "$1 ranks, $2: the losses of one rank" whole-1-NO_SHARD "whole-$1-$2"
done

moved 3 2 FULL_SHARD FULL_SHARD
moved 2 3 FULL_SHARD FULL_SHARD
moved 3 1 FULL_SHARD NO_SHARD
moved 3 4 NO_SHARD FULL_SHARD
moved 1 3 NO_SHARD FULL_SHARD
moved 3 2 FULL_SHARD NO_SHARD
moved 4 3 FULL_SHARD+pipeline=2+tensor=2 FULL_SHARD
moved 3 4 FULL_SHARD NO_SHARD+pipeline=4
moved 3 2 FULL_SHARD+context=3 FULL_SHARD
moved 2 3 FULL_SHARD NO_SHARD+context=3
moved 2 4 FULL_SHARD SHARD_GRAD_OP+tensor=2
moved 2 4 FULL_SHARD+pipeline=2+schedule=interleaved_1f1b FULL_SHARD+pipeline=2+schedule=zb_v

# A run of 2 stages of 2 tensor ranks, evaluated on other layouts, and continued by a text on one rank.
cp -r whole-4-FULL_SHARD+pipeline=2+tensor=2 saved
said=$(ranks 1 "$TRIREME" evaluate saved data.valid=valid.h5 2>err)
is "evaluated on 1 rank" loss "$(echo "$said" | cut -d' ' -f1)"
is "evaluated on 3 ranks" "$said" "$(ranks 3 "$TRIREME" evaluate saved data.valid=valid.h5 2>err)"
for layout in "2 FULL_SHARD+pipeline=2" "2 FULL_SHARD+pipeline=2+schedule=zb_v" "3 NO_SHARD+pipeline=3" \
    "3 FULL_SHARD+context=3" "4 FULL_SHARD+pipeline=2+tensor=2"; do
    set -- $layout
    # shellcheck disable=SC2046
    is "evaluated on $1 ranks, $2" "$said" \
        "$(ranks "$1" "$TRIREME" evaluate saved data.valid=valid.h5 parallel.tensor=1 $(keys "$2") 2>err)"
done
text=$("$TRIREME" generate saved --prompt "int main" --temperature 0 --tokens 24 device=cpu 2>err)
is "continued by a text on one rank" "int main" "$(echo "$text" | cut -c1-8)"
is "continued by the same text on two ranks" "$text" \
    "$(ranks 2 "$TRIREME" generate saved --prompt "int main" --temperature 0 --tokens 24 device=cpu 2>err)"

# Nothing is updated then: no key of an optimizer refuses a layout or a precision.
# evaluated NAME SETTINGS...: on 2 tensor ranks as $said
evaluated() {
    name=$1
    shift
    is "$name" "$said" "$(ranks 2 "$TRIREME" evaluate "$@" data.valid=valid.h5 parallel.tensor=2 2>err)"
}
set -- "train.optimizer=sgd train.momentum=0.5 train.eps=1e-8" \
    "train.optimizer=muon train.muon_momentum=0.9 train.muon_nesterov=false
    train.muon_ns_steps=4 train.muon_dtype=bf16 train.muon_adjust_lr=match_rms_adamw"
for keys; do
    rule=${keys%% *}
    rm -rf updated
    "$TRIREME" train $M train.steps=3 $keys run.dir=updated >out 2>err || not_ok "trained with $rule" "$(cat err)"
    said=$("$TRIREME" evaluate updated data.valid=valid.h5 2>err)
    evaluated "$rule: evaluated on 2 tensor ranks" updated
    evaluated "$rule: so is a checkpoint" updated/checkpoints/step-00000003
    evaluated "$rule: with its keys beside it, too" updated $keys
    evaluated "$rule: a run that keys name" $M $keys run.dir=updated
    "$TRIREME" evaluate updated data.valid=valid.h5 precision=bf16_pure >out 2>err
    is "$rule: evaluated as bf16_pure" "0 1" "$? $(grep -c '^loss' out)"
    text=$("$TRIREME" generate updated --prompt "int main" --temperature 0 --tokens 24 device=cpu precision=bf16_pure 2>err)
    is "$rule: continued by a text as bf16_pure" "int main" "$(echo "$text" | cut -c1-8)"
done
finish
