#!/bin/sh
# tensorboard.sh - metrics of runs as event files: read back, where TensorBoard is installed by its own
# reader; a run that is followed, and one that goes back.
. "$(dirname "$0")/helpers.inc"

# curves FOLDER TAG: the steps and numbers of a curve, "1:2.5 2:2.25", as TensorBoard sees them.
cat >curves.py <<'END'
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = EventAccumulator(sys.argv[1])
found.Reload()
print(*(f"{one.step}:{one.value:g}" for one in found.Scalars(sys.argv[2])))
END
curves() { "${TRIREME_PYTHON:-python3}" curves.py "$@" 2>/dev/null; }
if "${TRIREME_PYTHON:-python3}" -c 'import tensorboard' 2>/dev/null; then has_reader=yes; else has_reader=; fi
# shown NAME EXPECTED FOLDER TAG
shown()
{
    if [ $has_reader ]; then is "$1" "$2" "$(curves "$3" "$4")"; else skip "$1" "tensorboard is not installed"; fi
}
tags() { strings -n 2 "$1"/events.out.tfevents.* | tr '\n' ' '; }

mkdir -p runs/one runs/none
line() { echo "{\"step\": $1, \"time\": \"2026-11-28T10:39:0$1.500Z\", \"loss\": $2, \"grad_norm\": ${3:-null}}"; }
{ line 1 2.5 && line 2 2.25 1.5 && line 3 2 1; } >runs/one/metrics.jsonl
"$TRIREME" tensorboard runs/one -o curves >out 2>err
is "a run" "0 curves/one: 3 steps" "$? $(cat out)"
is "one file" 1 "$(find curves -type f | wc -l)"
is "numbers alone are curves" "1 0" "$(tags curves/one | grep -c 'loss') $(tags curves/one | grep -c 'time')"
shown "its losses" "1:2.5 2:2.25 3:2" curves/one loss
shown "a number that is missing is left out" "2:1.5 3:1" curves/one grad_norm
"$TRIREME" tensorboard runs/one/ -o curves >out 2>err
is "again: still one file" "0 1" "$? $(find curves -type f | wc -l)"
mkdir -p 'runs/on[e]' && cp runs/one/metrics.jsonl 'runs/on[e]'
"$TRIREME" tensorboard 'runs/on[e]' -o curves >out 2>err
is "a name with brackets leaves others alone" "0 2" "$? $(find curves -type f | wc -l)"
rm -r 'runs/on[e]'
"$TRIREME" tensorboard runs/* -o curves >out 2>err
is "a folder without steps beside it" "0 1" "$? $(grep -c 'warning: runs/none has no metrics\.jsonl with steps, and is left out' err)"
(cd runs/one && "$TRIREME" tensorboard . -o ../../here >/dev/null 2>&1)
is "the name of ." 1 "$(find here/one -type f | wc -l)"

# A run of trireme, while it trains; then one that goes back to an earlier step.
make_tokens
M="model.preset=llama-tiny device=cpu data.train=$work/train.h5 data.seq_len=32 train.global_batch=4 run.threads=1
   train.schedule=constant train.warmup_steps=0 checkpoint.every=5 checkpoint.keep=9 run.dir=runs/live"
mkdir runs/live
"$TRIREME" tensorboard runs/live -o curves --follow >follow.out 2>follow.err &
follower=$!
# shellcheck disable=SC2086
"$TRIREME" train $M train.steps=12 >out 2>err
is "the run that is followed" 0 $?
has_events() { [ "$(find curves/live -type f 2>/dev/null | wc -l)" -ge "$1" ]; }
wait_for 20 has_events 1
all_are_there() { [ "$(strings -n 4 curves/live/* | grep -c grad_norm)" -ge "$1" ]; }
if wait_for 20 all_are_there 12; then ok "its steps are followed"; else
    not_ok "its steps are followed" "$(strings -n 4 curves/live/* | grep -c grad_norm)"; fi
is "one line says where to look" "1 1" "$(wc -l <follow.err | tr -d ' ') $(grep -c 'tensorboard --logdir curves$' follow.err)"
# shellcheck disable=SC2086
"$TRIREME" train $M train.steps=7 checkpoint.resume=5 train.lr=1e-2 >out 2>err
is "back to step 5, and on to 7" 0 $?
if wait_for 20 has_events 2; then ok "a further file begins"; else not_ok "a further file begins" "$(ls curves/live)"; fi
all_again() { [ "$(strings -n 4 curves/live/*.0001 2>/dev/null | grep -c grad_norm)" -ge 7 ]; }
wait_for 20 all_again
# cut to 5 steps in place, and longer again before the follower has looked: lines of the same length, but for the time
cp runs/live/metrics.jsonl before.jsonl
{ head -n 5 before.jsonl && tail -n 2 before.jsonl | sed 's/"time": "[0-9]*/"time": "1999/' && tail -n 1 before.jsonl |
    sed 's/"step": 7/"step": 8/'; } >after.jsonl
cat after.jsonl >runs/live/metrics.jsonl
if wait_for 20 has_events 3; then ok "nor is a file followed that was cut and has grown"; else
    not_ok "nor is a file followed that was cut and has grown" "$(ls curves/live)"; fi
all_eight() { [ "$(strings -n 4 curves/live/*.0002 2>/dev/null | grep -c grad_norm)" -ge 8 ]; }
wait_for 20 all_eight
kill -TERM $follower # a shell starts jobs with SIGINT ignored
wait $follower 2>/dev/null
losses=$(sed -n 's/.*"step": \([0-9]*\),.*"loss": \([0-9.]*\),.*/\1:\2/p' runs/live/metrics.jsonl |
    awk -F: '{ printf "%s%d:%g", (NR > 1 ? " " : ""), $1, $2 }')
shown "the curve is that of the new branch" "$losses" curves/live loss
head -c 40 runs/one/metrics.jsonl >>runs/live/metrics.jsonl
"$TRIREME" tensorboard runs/live -o whole >out 2>err
is "a line that is not whole waits" "0 whole/live: 8 steps" "$? $(cat out)"

# What is refused.
refused "no folder" 'no folder to write to: trireme tensorboard RUN\.\.\. -o FOLDER' "$TRIREME" tensorboard runs/one
refused "no run" 'no run: trireme tensorboard' "$TRIREME" tensorboard -o curves
refused "a run that is not there" 'cannot read run absent: No such file' "$TRIREME" tensorboard absent -o curves
refused "no steps" 'runs/none has no metrics\.jsonl with steps: it is no run, or has just begun' \
    "$TRIREME" tensorboard runs/none -o curves
mkdir -p other && cp -r runs/one other/one
"$TRIREME" tensorboard runs/one -o kept >out 2>err
ls kept/one >before
refused "two runs of one name" 'runs/one and other/one have one name' "$TRIREME" tensorboard runs/one other/one -o kept
refused "a run, and none" 'cannot read run absent' "$TRIREME" tensorboard runs/one absent -o kept
is "what was written before is still there" "1 $(cat before)" "$(wc -l <before | tr -d ' ') $(ls kept/one)"
: >file
refused "a folder that cannot be" 'file' "$TRIREME" tensorboard runs/one -o file
finish
