#!/bin/sh
# qlora.sh - adapters beside frozen matrices of 4 bits: the same on any layout, smaller by plan and
# in memory, saved, resumed, merged; and what is refused.
. "$(dirname "$0")/../cli/helpers.inc"
. "$top/tests/cli/adapters.inc"

M="model.layers=3 model.hidden=128 model.heads=4 model.kv_heads=2 model.head_dim=32 model.ffn=128
   model.vocab=257 model.max_seq_len=32"
Q="lora.quantize_base=nf4"
# shellcheck disable=SC2086
{
    "$TRIREME" train $N $M train.steps=30 train.lr=3e-3 run.dir=base >out 2>err &&
        "$TRIREME" convert base hf >out 2>err || cat err
}
B="$N model.path=hf $L lora.target_modules=all-linear train.steps=3"

# shellcheck disable=SC2086
"$TRIREME" train $B $Q run.dir=one >out 2>err
is "adapters beside 4 bits" 0 $? || cat err
# shellcheck disable=SC2086
"$TRIREME" train $B run.dir=wide >out 2>err
echo "one $(loss one 1) $(loss one 3) wide $(loss wide 1) $(loss wide 3)"
i=0
for layout in parallel.strategy=NO_SHARD parallel.strategy=SHARD_OPTIM parallel.strategy=SHARD_GRAD_OP \
    parallel.strategy=FULL_SHARD parallel.pipeline=2 parallel.tensor=2 offload.params=host offload.params=disk \
    "parallel.strategy=FULL_SHARD train.micro_batch=2" "recompute=full" "parallel.context=2" model.loading=node; do
    i=$((i + 1))
    # shellcheck disable=SC2086
    ranks 2 "$TRIREME" train $B $Q $layout run.dir=layout-$i >out 2>err
    is "$layout: the loss of one rank" "0 near" "$? $(near "$(loss layout-$i 3)" "$(loss one 3)")" || cat err
done
finish
