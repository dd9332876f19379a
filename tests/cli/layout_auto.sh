#!/bin/bash
# layout_auto.sh - parallel.layout=auto: a run chooses its layout by itself, again on other ranks,
# and its numbers stay those of one rank.
. "$(dirname "$0")/../cli/helpers.inc"

: "${TRIREME_CUDA:=$(dirname "$TRIREME")/trireme-emulated}"
make_tokens
M="model.preset=llama-tiny data.train=$work/train.h5 data.seq_len=64 train.global_batch=8
   train.warmup_steps=0 run.threads=1 train.steps=6 train.schedule=constant"
AUTO="parallel.layout=auto run.machine=mine.yaml"
cat >mine.yaml <<'END2'
mine:
  memory: 1 GiB
  per_node: 4
  peak: {fp32: 100 Gflop/s}
  attention: {forward: 0.5, backward: 0.5}
  bandwidth: 10 GB/s
  bandwidth_efficiency: 0.5
  node: {bandwidth: 1 GB/s, efficiency: 1, latency: 50 us}
  network: {bandwidth: 1 GB/s, ports: 1, efficiency: 1, latency: 50 us}
  beside: {compute: 1, transfer: 1}
  host: {link: 1 GB/s, bandwidth: 1 GB/s}
  disk: {read: 1 GB/s, write: 1 GB/s}
END2

# layout LOG: the settings that a run chose.  near A B: equal to 1e-5?
layout() { sed -n 's/.*trireme: layout: \(.*\): [0-9.]* [a-z]* a step, by the forecast for mine .*/\1/p' "$1"; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; print (a > 0 && d < 1e-5 * a && d > -1e-5 * a) ? "near" : a " " b }'; }

"$TRIREME" train $M device=cpu run.dir=one >one.out 2>one.err
is "one rank" 0 $?
ranks 2 "$TRIREME" train $M device=cpu $AUTO run.dir=auto checkpoint.every=3 train.steps=3 >two.out 2>two.err
is "two ranks choose a layout" "0 1" "$? $(layout two.err | grep -c 'parallel.pipeline=.* train.micro_batch=')"
"$TRIREME" plan $M device=cpu --search --machine mine.yaml --ranks 2 >plan.out 2>&1
is "the layout chosen is the one that a search finds" "$(layout two.err | tr ' ' '\n' | sort | xargs)" \
    "$(sed -n '/^ 1 /,/^$/p' plan.out | tail -n +2 | tr -s ' \n' '\n\n' | grep . | sort | xargs)"
missing=
for setting in $(layout two.err); do
    key=${setting%=*}
    grep -qE "^ *${key##*.}: \"?${setting#*=}\"?( |$)" auto/config.yaml || missing="$missing $setting"
done
is "config.yaml has it" "all" "all$missing"

ranks 3 "$TRIREME" train $M device=cpu $AUTO run.dir=auto >three.out 2>three.err
is "three ranks go on, in a layout of their own" "0 1 6" \
    "$? $(layout three.err | grep -c .) $(last_metric auto step)"
is "the loss is that of one rank" near "$(near "$(last_metric one loss)" "$(last_metric auto loss)")"

# The batch that was given is what a search keeps, and what it sets is not refused beside it.
"$TRIREME" train $M device=cpu $AUTO parallel.pipeline=7 parallel.stages=1,2 run.dir=given >given.out 2>given.err
is "what is chosen takes the place of what is given" "0 near" \
    "$? $(near "$(last_metric one loss)" "$(last_metric given loss)")"

refused "a machine that is not known" 'parallel.layout auto: how fast is this machine\?.*run.machine=FILE' \
    "$TRIREME" train $M device=cpu parallel.layout=auto run.dir=no
refused "two ranks on one that is not known" 'parallel.layout auto: how fast is this machine' \
    mpirun --oversubscribe -n 2 "$TRIREME" train $M device=cpu parallel.layout=auto run.dir=no
refused "no such layout" 'parallel.layout' "$TRIREME" train $M device=cpu parallel.layout=best run.dir=no

if [ -x "$TRIREME_CUDA" ]; then
    TRIREME_EMULATE_GPUS=2 ranks 2 "$TRIREME_CUDA" train $M device=cuda parallel.layout=auto run.machine=h100 \
        run.dir=gpu >gpu.out 2>gpu.err
    is "two emulated GPUs" "0 1 near" "$? $(grep -c 'layout: .* by the forecast for h100' gpu.err) $(
        near "$(last_metric one loss)" "$(last_metric gpu loss)")"
else
    skip "two emulated GPUs" "no $TRIREME_CUDA"
fi
finish
