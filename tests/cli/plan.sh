#!/bin/sh
# plan.sh - plans for machines that are not here, in any build, as people read them.
#
# TRIREME_CUDA, where it names a program that was built with CUDA, is compared byte for byte.
. "$(dirname "$0")/../cli/helpers.inc"
M="model.preset=llama-tiny train.global_batch=8"
job=$top/jobs/llama8b_fsdp.yaml

# narrow NAME: no line of out is wider than 100 columns.
narrow() {
    is "$1: at most 100 columns" 0 "$(awk 'length > 100' out | wc -l)"
}

# README, What will it take?
"$TRIREME" plan "$job" --ranks 16 --nodes 2 --machine h100 --json here.json >out 2>err
is "plan for 16 H100" "0 1" "$? $(grep -c '^fits on h100' out)"
narrow "plan for 16 H100"
sed -n '/^    a rank, with one change/,/^$/s/^    //p' "$top/README.md" | grep -vxF ... >shown
is "README shows five lines of it, as they are" "5 0" \
    "$(wc -l <shown | tr -d ' ') $(grep -vxFf out shown | wc -l | tr -d ' ')"
is "two settings that go together take two lines" 1 \
    "$(grep -A1 '^precision=bf16_pure$' out | grep -c '^ train.optimizer_dtype=bf16  *[0-9]')"
is "it says what its words mean" "11" "$(sed -n '/^what these are/,/^$/p' out | grep -c '^  [a-z]')"
is "parameters that take no bytes are named" "1 1" \
    "$(grep -c '^  parameters .* 0 bytes$' out) $(grep -c '^  parameters  *none: .*masters' out)"
is "the process beside the plan is named" 1 "$(grep -c 'each process.*28 to 43 MiB' out)"
if [ -x "${TRIREME_CUDA:-}" ] && ! "$TRIREME_CUDA" doctor 2>&1 | grep -q 'without CUDA'; then
    "$TRIREME_CUDA" plan "$job" --ranks 16 --nodes 2 --machine h100 --json there.json >out 2>err
    if cmp -s here.json there.json; then ok "the same bytes as a build with CUDA"; else
        not_ok "the same bytes as a build with CUDA" "$(diff here.json there.json | head -n 3)"; fi
else
    skip "the same bytes as a build with CUDA" "TRIREME_CUDA names no such program"
fi

"$TRIREME" plan "$job" --ranks 16 device=cuda >out 2>err
is "plan for GPUs nobody named" "0 1" "$? $(grep -c 'on one GPU a rank' out)"
CUDA_VISIBLE_DEVICES= TRIREME_EMULATE_GPUS=0 "$TRIREME" plan "$job" --ranks 16 >out 2>err
is "plan on a machine without GPUs says so first" "0 1 1" \
    "$? $(head -n 1 out | grep -c '^planned for CPUs') $(head -n 2 out | grep -c h100)"
narrow "plan for CPUs"
"$TRIREME" plan $M device=cpu --ranks 2 >out 2>err
is "what was asked for is not explained" 0 "$(grep -c '^planned for CPUs' out)"

for settings in "device=cuda precision=fp16 offload.optimizer=disk offload.params=host" \
    "device=cuda parallel.strategy=HYBRID_SHARD_ZERO2 precision=bf16" "parallel.strategy=HYBRID_SHARD parallel.shard=3 device=cpu"; do
    "$TRIREME" plan $M $settings --ranks 6 --nodes 2 >out 2>err
    is "plan with $settings" 0 $?
    narrow "plan with $settings"
done
"$TRIREME" plan model.preset=gpt2 train.global_batch=64 train.micro_batch=64 data.seq_len=1024 \
    --machine rtx4090 >out 2>&1
is "a plan that does not fit: one line says so, after the plan" "1 1 1" "$? $(grep -c '^does not fit on rtx4090' out) \
$(tail -n 1 out | grep -c '^trireme: error: does not fit on rtx4090: short by .*nearest that fits: recompute=full')"
"$TRIREME" plan $M >/dev/full 2>err
is "a plan that cannot be written" "1 1" "$? $(grep -c 'the plan cannot be written: No space' err)"
refused "fewer ranks than nodes" 'ranks 2 .*nodes 4' "$TRIREME" plan $M --ranks 2 --nodes 4
refused "half a rank" 'ranks 2\.5.*whole' "$TRIREME" plan $M --ranks 2.5
refused "train for a GPU without one" 'no GPU to use: .*device=cpu needs none' env CUDA_VISIBLE_DEVICES= TRIREME_EMULATE_GPUS=0 \
    "$TRIREME" train $M device=cuda data.train=none.h5
finish
