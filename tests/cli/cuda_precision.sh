#!/bin/sh
# cuda_precision.sh - a GPU trains in 8 and 16 bits as the CPU does.
. "$(dirname "$0")/../cli/helpers.inc"
. "$top/tests/cli/cuda.inc"

train "bf16" "$TRIREME_CUDA" 1 bf16 device=cuda train.steps=$some precision=bf16
train "bf16 on the CPU" "$TRIREME" 1 bf16_cpu device=cpu train.steps=$some precision=bf16
# 2^-9 for every rounding, of either sign
near "bf16: the GPU's losses are near the CPU's" bf16_cpu bf16 1e-2 $some
narrow="precision=bf16 train.logits_dtype=bf16 train.logits_chunk=24"
train "bf16 logits" "$TRIREME_CUDA" 1 narrow device=cuda train.steps=$some $narrow
train "bf16 logits on the CPU" "$TRIREME" 1 narrow_cpu device=cpu train.steps=$some $narrow
near "bf16 logits: the GPU's losses are near the CPU's" narrow_cpu narrow 1e-2 $some
near "bf16 logits: and near those of fp32 logits" bf16 narrow 1e-2 $some
coded=train.optimizer=adamw8bit
train "moments of 8 bits" "$TRIREME_CUDA" 1 coded device=cuda train.steps=$some $coded
train "moments of 8 bits on the CPU" "$TRIREME" 1 coded_cpu device=cpu train.steps=$some $coded
near "moments of 8 bits: the GPU's losses are near the CPU's" coded_cpu coded 1e-3 $some
train "moments of 8 bits in the host's memory" "$TRIREME_CUDA" 1 coded_host device=cuda train.steps=$some $coded \
    offload.optimizer=host
near "and near those of updates on the host" coded coded_host 1e-3 $some
train "resumed on the CPU" "$TRIREME" 1 coded device=cpu train.steps=$((some + 2)) $coded
is "moments of 8 bits from the GPU to the CPU" "1-$((some + 2))" "$(steps_of coded)"
# Adapters beside a model of 4 bits, whose weights are drawn from the seed.  Beside the same model in fp32
# losses are 3e-4 away.
four="lora.r=4 lora.target_modules=all-linear lora.quantize_base=nf4"
train "a base of 4 bits" "$TRIREME_CUDA" 1 four device=cuda train.steps=$some $four
train "a base of 4 bits on the CPU" "$TRIREME" 1 four_cpu device=cpu train.steps=$some $four
near "a base of 4 bits: the GPU's losses are near the CPU's" four_cpu four 1e-5 $some
train "a base of 4 bits in the host's memory" "$TRIREME_CUDA" 1 four_host device=cuda train.steps=$some $four \
    offload.params=host
same "is the same on its way from there" four four_host
train "a base of 4 bits in files, on two ranks" "$TRIREME_CUDA" 2 four_two device=cuda comm.share_gpu=true \
    train.steps=$some $four offload.params=disk checkpoint.frozen=full
near "and near that in shards and files" four four_two 1e-5 $some
train "a whole checkpoint resumed on the CPU" "$TRIREME" 1 four_two device=cpu train.steps=$((some + 2)) $four \
    offload.params=none
is "a base of 4 bits from the GPU to the CPU" "1-$((some + 2))" "$(steps_of four_two)"
eight="precision=fp8 data.seq_len=128 train.micro_batch=1 train.steps=$((some / 2))"
if "$TRIREME_CUDA" plan $M device=cuda $eight >out 2>err; then
    train "fp8" "$TRIREME_CUDA" 1 fp8 device=cuda $eight
    train "fp8 on the CPU" "$TRIREME" 1 fp8_cpu device=cpu $eight
    near "fp8: the GPU's losses are near the CPU's" fp8_cpu fp8 5e-3 $((some / 2))
    train "fp8 on two ranks" "$TRIREME_CUDA" 2 fp8_two device=cuda comm.share_gpu=true $eight
    near "fp8: two ranks' losses are near one rank's" fp8 fp8_two 5e-3 $((some / 2))
    train "fp8 of a base of 4 bits" "$TRIREME_CUDA" 1 four8 device=cuda $four $eight
    train "fp8 of a base of 4 bits on the CPU" "$TRIREME" 1 four8_cpu device=cpu $four $eight
    near "fp8 of 4 bits: the GPU's losses are near the CPU's" four8_cpu four8 5e-3 $((some / 2))
else
    skip "fp8" "$(tail -n 1 err)"
fi
case $TRIREME_CUDA in
*emulated)
    refused "fp8 on another GPU" 'precision fp8 needs an H100 or H200 \(compute capability 9\.0\), .* \(8\.0\); use precision bf16' \
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
found="precision=fp16 train.initial_scale_power=22 train.loss_scale_window=3 train.steps=$some"
train "fp16 that overflows" "$TRIREME_CUDA" 1 over device=cuda $found
train "the same, stopped" "$TRIREME_CUDA" 1 over2 device=cuda $found train.steps=5
train "and resumed" "$TRIREME_CUDA" 1 over2 device=cuda $found
same "fp16 skips the same steps and ends in the same bits" over over2
train "fp16, updates beside forward" "$TRIREME_CUDA" 1 over3 device=cuda $found $late
same "fp16 that updates beside forward skips the same steps, too" over over3
if [ "$(last_metric over skipped_steps)" -gt 2 ]; then ok "fp16 did skip"; else
    not_ok "fp16 did skip" "$(last_metric over skipped_steps) steps"; fi
finish
