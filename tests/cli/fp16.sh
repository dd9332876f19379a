#!/bin/sh
# fp16.sh - runs in fp16: the loss scale finds its place, is reported, saved and resumed, and where
# nothing can help the run ends and says so.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
M="model.preset=llama-tiny device=cpu precision=fp16 data.train=$work/train.h5 data.seq_len=32
   train.global_batch=8 train.micro_batch=2 train.lr=1e-3 train.schedule=constant run.threads=1"
S="train.initial_scale_power=34 train.loss_scale_window=8"
values() { sed -n "s/.*\"$2\": *\([^,}]*\).*/\1/p" "$1/metrics.jsonl" 2>/dev/null; }

ranks 2 "$TRIREME" train $M $S train.steps=40 run.dir=whole >whole.out 2>whole.err
is "a run from a loss scale too large" 0 $?
is "begins at two to the power asked for, and uses up its hysteresis" "17179869184.0 17179869184.0 8589934592.0" \
    "$(values whole loss_scale | head -n 3 | xargs)"
skipped=$(values whole skipped_steps | tail -n 1)
is "counts what it skipped" "$skipped" "$(grep -c '"skipped": true' whole/metrics.jsonl)"
if [ "$skipped" -gt 5 ] && [ "$skipped" -lt 30 ]; then ok "a scale that is too large becomes smaller"; else not_ok "a scale that is too large becomes smaller" "$skipped skipped"; fi
is "says so each time" "$skipped" "$(grep -a -c 'gradients overflow fp16 at a loss scale of' whole.err)"
values whole loss | awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < first - 0.2) }'
is "a run that skipped steps learns" 0 $?
values whole lr | sort -u >rates
is "at a constant rate" 1 "$(wc -l <rates)"
for schedule in cosine wsd; do
    "$TRIREME" train $M $S train.schedule=$schedule train.steps=40 run.dir=waits-$schedule >out 2>err
    "$TRIREME" train $M precision=bf16 train.schedule=$schedule train.steps=40 run.dir=counts-$schedule >out 2>err
    late=$(values waits-$schedule skipped_steps | sed -n 39p)
    is "$schedule waits for the steps that are skipped" "$(values counts-$schedule lr | sed -n $((40 - late))p)" \
        "$(values waits-$schedule lr | tail -n 1)"
done

for steps in 7 29 40; do
    ranks 2 "$TRIREME" train $M $S train.steps=$steps run.dir=parts >parts.out 2>parts.err
    code=$?
    [ "$(head -n $steps whole/metrics.jsonl | grep -c '"skipped": true')" != $steps ] # else nothing is trained yet
    is "stopped or resumed at $steps" $? $code
done
if same_state whole parts; then ok "ends in the same bits"; else not_ok "ends in the same bits" differ; fi
is "a resumed run ends with the same loss scale" "$(last_metric whole loss_scale) $skipped" \
    "$(last_metric parts loss_scale) $(last_metric parts skipped_steps)"

ranks 3 "$TRIREME" train $M $S train.steps=45 run.dir=parts >parts.out 2>parts.err
is "goes on on three ranks" 0 $?
next=$(grep '"step": *41,' parts/metrics.jsonl | grep -c '"skipped": true') # at the edge it may be one
is "with the count it had" $((skipped + next)) "$(values parts skipped_steps | sed -n 41p)"
ranks 2 "$TRIREME" train $M precision=bf16 train.steps=48 run.dir=parts >parts.out 2>parts.err
is "a checkpoint of fp16 goes on in bf16" 0 $?
timeout 60 "$TRIREME" generate "$(newest_checkpoint whole)" --prompt "int " --tokens 5 >out 2>err
is "a checkpoint of fp16 generates in fp16" 0 $?

# Nothing to be done: a scale that may not become smaller.
ranks 2 "$TRIREME" train $M train.initial_scale_power=40 train.min_loss_scale=1e12 train.steps=100 \
    run.dir=hopeless >hopeless.out 2>hopeless.err
is "an overflow that no scale mends ends the run" 1 $?
is "in one line" 1 "$(grep -a -c '^trireme: error: .*not finite for 10 steps in a row at a loss scale of 1e+12' hopeless.err)"

# A model that overflows where it is evaluated.
"$TRIREME" train $M train.lr=1 train.steps=12 data.valid="$work/valid.h5" train.eval_every=4 run.dir=wild >out 2>err
is "an evaluation that is not finite is warned of" "0 1" \
    "$? $(grep -c 'warning: step 12: the loss on data.valid is not finite: .*, or use precision bf16$' err)"

# The best evaluation where the last steps have updated nothing: of the first weights, at step 6.
"$TRIREME" train $M train.initial_scale_power=40 train.min_loss_scale=1e12 train.steps=100 \
    data.valid="$work/valid.h5" train.eval_every=6 checkpoint.keep_best=true run.dir=best >best.out 2>best.err
is "the best evaluation is kept where nothing is updated" "1 step-00000006 1" \
    "$? $(readlink best/checkpoints/best) $(ls best/checkpoints/step-00000006/COMMIT | wc -l)"

refused "a loss scale without fp16" 'train.hysteresis is of precision fp16' \
    "$TRIREME" train $M precision=bf16 train.hysteresis=3
refused "a fixed scale with a dynamic one's window" 'loss_scale_window is of a dynamic' \
    "$TRIREME" train $M train.loss_scale=128 train.loss_scale_window=5
refused "a least scale above the first" 'train.min_loss_scale \(1024\) is above' \
    "$TRIREME" train $M train.min_loss_scale=1024 train.initial_scale_power=9
finish
