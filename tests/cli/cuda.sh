#!/bin/sh
# cuda.sh - training on a GPU is the CPU's: the same losses, the same checkpoints; and a machine without
# a GPU is told so.  cuda_precision.sh does it in 8 and 16 bits, cuda_ranks.sh on several ranks.
. "$(dirname "$0")/../cli/helpers.inc"
. "$top/tests/cli/cuda.inc"
no_gpu="env CUDA_VISIBLE_DEVICES= TRIREME_EMULATE_GPUS=0"

# Different sums in another order, in fp32: 2^-24 a step, amplified by training; an op that is wrong
# at one odd place shows up as percents.
train "train on the CPU" "$TRIREME" 1 cpu device=cpu train.steps="$steps"
train "train on the GPU" "$TRIREME_CUDA" 1 gpu device=cuda train.steps="$steps"
near "the GPU's losses are the CPU's" cpu gpu 1e-3 "$steps"
train "train on the GPU again" "$TRIREME_CUDA" 1 again device=cuda train.steps="$steps"
same "twice on the GPU: the same bits" gpu again

train "a short run" "$TRIREME_CUDA" 1 short device=cuda train.steps=$some
for how in full selective; do
    train "recompute=$how" "$TRIREME_CUDA" 1 $how device=cuda train.steps=$some recompute=$how
    same "recompute=$how gives the same bits" short $how
done
train "updates beside forward" "$TRIREME_CUDA" 1 late device=cuda train.steps=$some $late run.trace=4
same "updates beside forward give the same bits" short late
lane=$(grep -o '"tid": *[0-9]*, "args": *{"name": "update"}' late/trace.json | grep -o '[0-9][0-9]*' | head -n 1)
is "updates beside forward run on a stream of their own" "UPDATE embed" \
    "$(grep -o '"name": "UPDATE embed", "ph": "X", "pid": 0, "tid": '"$lane", late/trace.json | cut -d'"' -f4)"

train "checkpoints in the background" "$TRIREME_CUDA" 1 beside device=cuda train.steps=$some $late checkpoint.every=2 checkpoint.async=true
same "checkpoints in the background give the same bits" short beside
is "each of them was written so" $(((some - 1) / 2)) "$(grep -c 'saved .* of which steps waited' beside/log.txt)"

# Checkpoints know no device.
for way in gpu:cpu cpu:gpu; do
    case $way in
    gpu:*) from="$TRIREME_CUDA" device=cuda to="$TRIREME" other=cpu ;;
    *) from="$TRIREME" device=cpu to="$TRIREME_CUDA" other=cuda ;;
    esac
    run=moved-${way%:*}
    train "saved on $device" "$from" 1 $run device=$device train.steps=$((some / 2))
    train "continued on $other" "$to" 1 $run device=$other train.steps=$some
    is "from $device to $other: every step once" "1-$some" "$(steps_of $run)"
    near "from $device to $other: the losses of a run that stayed" short $run 1e-3 $some
done

for device in cpu cuda; do
    [ $device = cpu ] && program=$TRIREME || program=$TRIREME_CUDA
    timeout 120 "$program" evaluate $M run.dir=gpu device=$device data.valid=valid.h5 >$device.eval 2>err
    is "evaluate on $device" 0 $?
done
numbers() { grep -oE '[0-9]+\.[0-9]+' "$1" | head -n 1; }
if awk -v a="$(numbers cpu.eval)" -v b="$(numbers cuda.eval)" \
    'BEGIN { d = (a - b) / a; exit !(a > 0 && d < 1e-3 && d > -1e-3) }'; then
    ok "evaluate says the same on both"
else
    not_ok "evaluate says the same on both" "$(cat cpu.eval cuda.eval)"
fi
timeout 120 "$TRIREME_CUDA" generate "$(newest_checkpoint gpu)" --prompt "int " --tokens 10 --seed 3 \
    >a 2>err
is "generate on the GPU" "0 yes" "$? $([ -s a ] && echo yes)"

refused "device=cuda without a GPU" 'cuda|gpu' $no_gpu "$TRIREME_CUDA" train $M run.dir=none \
    device=cuda train.steps=1
refused "heads too wide for a GPU" 'model\.head_dim is 258; GPUs take 256 at most' "$TRIREME_CUDA" \
    train $M model.head_dim=258 run.dir=none device=cuda train.steps=1
$no_gpu "$TRIREME_CUDA" train $M run.dir=auto device=auto train.steps=2 >out 2>err
is "device=auto without a GPU computes on the CPU" "0 2" "$? $(last_metric auto step)"
train "device=auto takes the GPU" "$TRIREME_CUDA" 1 auto_gpu device=auto train.steps=$some
same "device=auto takes the GPU: its bits" short auto_gpu
"$TRIREME_CUDA" doctor >out 2>err
is "doctor sees the GPU" "0 1" "$? $(grep -c '^  GPU 0 ' out)"
finish
