#!/bin/sh
# cuda.sh - training on a GPU is the CPU's: the same losses, the same checkpoints, on any number of
# ranks; and a machine without a GPU is told so.
#
# TRIREME_CUDA names the program: trireme-emulated beside the program by default, which has a GPU
# of its own; tests/gpu.sh gives the real one.  CUDA_STEPS is the length of the comparison.
. "$(dirname "$0")/../cli/helpers.inc"

: "${CUDA_STEPS:=100}"
need_cuda_program
make_tokens
export XDG_CACHE_HOME="$PWD/cache" # where the first start keeps what the self-check found
steps=$CUDA_STEPS
some=$((steps / 8))
M="model.preset=llama-tiny precision=fp32 data.train=train.h5 data.seq_len=32 train.global_batch=4
   train.micro_batch=2 train.lr=1e-3 train.schedule=constant run.threads=1 checkpoint.resume=auto"
no_gpu="env CUDA_VISIBLE_DEVICES= TRIREME_EMULATE_GPUS=0"

# train NAME PROGRAM N RUN KEY...: on N ranks
train() {
    name=$1 program=$2 n=$3 run=$4
    shift 4
    # one rank without mpirun: as a user would
    if [ "$n" = 1 ]; then
        timeout -k 5 300 "$program" train $M run.dir="$run" "$@" >"$run.out" 2>"$run.err" </dev/null
    else
        timeout -k 5 300 mpirun --oversubscribe -n "$n" "$program" train $M run.dir="$run" "$@" \
            >"$run.out" 2>"$run.err" </dev/null
    fi
    code=$?
    if [ $code = 0 ]; then ok "$name"; else
        not_ok "$name" "exit code $code: $(grep -a '^trireme' "$run.err" | tail -n 2)"; fi
}

losses() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl" 2>/dev/null; }

# worst RUN RUN: the largest relative difference of their losses, and how many were compared
worst() {
    losses "$1" >losses.1
    losses "$2" >losses.2
    paste losses.1 losses.2 | awk 'NF == 2 { d = ($1 - $2) / $1; if (d < 0) d = -d
                                             if (!(d <= w)) w = d; n++ }
                                   END { printf "%.1e %d\n", w, n }'
}

# near NAME RUN RUN TOLERANCE STEPS: every loss of STEPS
near() {
    found=$(worst "$2" "$3")
    if echo "$found" | awk -v t="$4" -v n="$5" '{ exit !($1 <= t && $2 == n) }'; then
        ok "$1 (worst ${found% *})"
    else
        not_ok "$1" "worst relative difference ${found% *} of ${found#* } losses, not $4 of $5"
    fi
}

# same NAME RUN RUN: losses and state, to the bit
same() {
    if [ -n "$(losses "$2")" ] && [ "$(losses "$2")" = "$(losses "$3")" ] && same_state "$2" "$3"; then
        ok "$1"
    else
        not_ok "$1" "losses differ by $(worst "$2" "$3"), or the checkpoints do"
    fi
}

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
late="train.overlap_update=true checkpoint.every=5"
train "updates beside forward" "$TRIREME_CUDA" 1 late device=cuda train.steps=$some $late run.trace=4
same "updates beside forward give the same bits" short late
lane=$(grep -o '"tid": *[0-9]*, "args": *{"name": "update"}' late/trace.json | grep -o '[0-9][0-9]*' | head -n 1)
is "and run on a stream of their own" "UPDATE embed" \
    "$(grep -o '"name": "UPDATE embed", "ph": "X", "pid": 0, "tid": '"$lane", late/trace.json | cut -d'"' -f4)"
train "bf16" "$TRIREME_CUDA" 1 bf16 device=cuda train.steps=$some precision=bf16
train "bf16 on the CPU" "$TRIREME" 1 bf16_cpu device=cpu train.steps=$some precision=bf16
# 2^-9 for every rounding, of either sign
near "bf16: the GPU's losses are near the CPU's" bf16_cpu bf16 1e-2 $some
narrow="precision=bf16 train.logits_dtype=bf16 train.logits_chunk=24"
train "bf16 logits" "$TRIREME_CUDA" 1 narrow device=cuda train.steps=$some $narrow
train "bf16 logits on the CPU" "$TRIREME" 1 narrow_cpu device=cpu train.steps=$some $narrow
near "bf16 logits: the GPU's losses are near the CPU's" narrow_cpu narrow 1e-2 $some
near "bf16 logits: and near those of fp32 logits" bf16 narrow 1e-2 $some
eight="precision=fp8 data.seq_len=128 train.micro_batch=1 train.steps=$((some / 2))"
if "$TRIREME_CUDA" plan $M device=cuda $eight >out 2>err; then
    train "fp8" "$TRIREME_CUDA" 1 fp8 device=cuda $eight
    train "fp8 on the CPU" "$TRIREME" 1 fp8_cpu device=cpu $eight
    near "fp8: the GPU's losses are near the CPU's" fp8_cpu fp8 5e-3 $((some / 2))
    train "fp8 on two ranks" "$TRIREME_CUDA" 2 fp8_two device=cuda comm.share_gpu=true $eight
    near "fp8: two ranks' losses are near one rank's" fp8 fp8_two 5e-3 $((some / 2))
else
    skip "fp8" "$(tail -n 1 err)"
fi
case $TRIREME_CUDA in
*emulated)
    refused "fp8 on another GPU" 'precision fp8 needs a GPU of compute capability 9\.0 .* \(8\.0\); use precision bf16' \
        env TRIREME_EMULATE_LEVEL=80 "$TRIREME_CUDA" train $M run.dir=none device=cuda $eight
    refused "a plan of fp8 for the GPU here" 'precision fp8 needs cuBLASLt 12\.9 or newer, and this is cuBLASLt 12\.4\.5' \
        env TRIREME_EMULATE_CUBLASLT=120405 "$TRIREME_CUDA" plan $M device=cuda $eight
    ;;
esac

# 2^-12 for every rounding; a fixed scale, because at the edge of overflow the two may differ
fixed="precision=fp16 train.loss_scale=1024"
train "fp16" "$TRIREME_CUDA" 1 fp16 device=cuda train.steps=$some $fixed
train "fp16 on the CPU" "$TRIREME" 1 fp16_cpu device=cpu train.steps=$some $fixed
near "fp16: the GPU's losses are near the CPU's" fp16_cpu fp16 2e-3 $some
found="precision=fp16 train.initial_scale_power=28 train.loss_scale_window=3 train.steps=$some"
train "fp16 that overflows" "$TRIREME_CUDA" 1 over device=cuda $found
train "the same, stopped" "$TRIREME_CUDA" 1 over2 device=cuda $found train.steps=5
train "and resumed" "$TRIREME_CUDA" 1 over2 device=cuda $found
same "fp16 skips the same steps and ends in the same bits" over over2
train "fp16, updates beside forward" "$TRIREME_CUDA" 1 over3 device=cuda $found $late
same "fp16 that updates beside forward skips the same steps, too" over over3
if [ "$(last_metric over skipped_steps)" -gt 2 ]; then ok "fp16 did skip"; else
    not_ok "fp16 did skip" "$(last_metric over skipped_steps) steps"; fi

for n in 2 4; do
    train "$n ranks on one GPU" "$TRIREME_CUDA" $n shared$n device=cuda comm.share_gpu=true \
        train.micro_batch=1 train.steps=$some
    near "$n ranks come to the losses of one" short shared$n 1e-5 $some
done
train "2 ranks, NO_SHARD" "$TRIREME_CUDA" 2 ddp device=cuda comm.share_gpu=true \
    parallel.strategy=NO_SHARD train.steps=$some
near "2 ranks, NO_SHARD, come to the losses of one" short ddp 1e-5 $some

# What is gathered in 16 bits is cast from the masters, or a shard that was kept: the same bits.
two="comm.share_gpu=true train.micro_batch=1 train.steps=$some precision=bf16"
train "2 ranks in bf16" "$TRIREME_CUDA" 2 cast device=cuda $two
near "2 ranks in bf16 are near one" bf16 cast 1e-2 $some
train "2 ranks in bf16 that keep a shard" "$TRIREME_CUDA" 2 kept device=cuda $two offload.params=host
same "cast or kept: the same bits" cast kept
train "2 ranks in bf16, updates beside forward" "$TRIREME_CUDA" 2 late2 device=cuda $two $late
same "updates beside forward of 2 ranks give the same bits" cast late2
train "the same on the host" "$TRIREME_CUDA" 2 late3 device=cuda $two $late offload.optimizer=host
near "and come to the same losses on the host" cast late3 1e-2 $some

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
refused "two ranks on one GPU, unasked" 'gpu' mpirun --oversubscribe -n 2 "$TRIREME_CUDA" train $M \
    run.dir=none device=cuda train.steps=1
$no_gpu "$TRIREME_CUDA" train $M run.dir=auto device=auto train.steps=2 >out 2>err
is "device=auto without a GPU computes on the CPU" "0 2" "$? $(last_metric auto step)"
train "device=auto takes the GPU" "$TRIREME_CUDA" 1 auto_gpu device=auto train.steps=$some
same "device=auto takes the GPU: its bits" short auto_gpu
"$TRIREME_CUDA" doctor >out 2>err
is "doctor sees the GPU" "0 1" "$? $(grep -c '^  GPU 0 ' out)"
finish
