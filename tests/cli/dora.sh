#!/bin/sh
# dora.sh - adapters with magnitudes (DoRA), as lora.sh has them without; and what is refused.
. "$(dirname "$0")/../cli/helpers.inc"
. "$top/tests/cli/adapters.inc"

adapters llama lora.use_dora=true
adapters gpt2 lora.use_dora=true

is "magnitudes are trained and saved, with both moments" 45 \
    "$("$TRIREME" checkpoint show run-llama | grep -c 'layers.*lora_magnitude_vector')"

# Rows that are longer than the 512 elements that are merged at once, and more elements than the 2^20
# whose rows are scaled at once.
# shellcheck disable=SC2086
"$TRIREME" train $N $M model.layers=1 model.hidden=576 model.heads=9 model.head_dim=64 model.ffn=2048 lora.r=2 \
    lora.use_dora=true lora.target_modules=up_proj train.lr=2e-2 train.steps=2 run.dir=wide >out 2>err || cat err
"$TRIREME" convert wide wide-merged --merge >out 2>err || cat err
"$TRIREME" evaluate wide data.valid=train.h5 >wide-out 2>err || cat err
"$TRIREME" evaluate model.path=wide-merged data.valid=train.h5 data.seq_len=24 device=cpu >merged-out 2>err || cat err
is "a wide matrix is merged into what was trained" near "$(near "$(awk '{ print $2 }' wide-out)" "$(awk '{ print $2 }' merged-out)")"

# What is refused, with its name.
refused "magnitudes of no adapters" 'lora.use_dora is of adapters' \
    "$TRIREME" train $N model.path=hf-llama run.dir=never lora.use_dora=true
sed 's/"use_dora": true/"use_dora": false/' adapter-llama/adapter_config.json >config
cp -r adapter-llama without
cp config without/adapter_config.json
refused "dropout beside them, in training" 'lora.use_dora with lora.dropout=0.05: DoRA is trained without dropout' \
    "$TRIREME" train $N model.path=hf-llama $L lora.use_dora=true lora.dropout=0.05 run.dir=never
refused "and in its plan" 'lora.use_dora with lora.dropout=0.05' \
    "$TRIREME" plan model.path=hf-llama lora.r=2 lora.use_dora=true lora.dropout=0.05 data.seq_len=24
cp -r adapter-llama dropped
sed 's/"lora_dropout": 0[.0]*/"lora_dropout": 0.05/' adapter-llama/adapter_config.json >dropped/adapter_config.json
"$TRIREME" evaluate model.path=hf-llama lora.path=adapter-llama data.valid=train.h5 data.seq_len=24 device=cpu >first 2>err
"$TRIREME" evaluate model.path=hf-llama lora.path=dropped data.valid=train.h5 data.seq_len=24 device=cpu >second 2>err
is "an adapter of peft's that was trained with it is evaluated" "0 $(cat first)" "$? $(cat second)"
refused "a file's magnitudes, not asked for" "lora_magnitude_vector\" is none of this model's" \
    "$TRIREME" train $N model.path=hf-llama lora.path=without run.dir=never
"$TRIREME" train $N model.path=hf-llama $L train.lr=0 train.steps=1 run.dir=plain >out 2>err || cat err
"$TRIREME" convert plain plain-adapter >out 2>err || cat err
refused "magnitudes that a file does not have" 'lora_magnitude_vector" is missing' \
    "$TRIREME" train $N model.path=hf-llama lora.path=plain-adapter lora.use_dora=true run.dir=never
refused "a run with others" 'lora.use_dora is true there and false here' \
    "$TRIREME" train run-llama train.steps=40 lora.use_dora=false
finish
