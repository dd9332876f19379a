#!/bin/sh
# hf_phi3.sh - a Phi-3 of Hugging Face's, whose files have query, key and value as one matrix, and
# gate and up: read on any layout, written as the Llama or Mistral that computes the same; and what
# is refused.  That the numbers are those of transformers is in tests/unit/test_families and hf.sh.
. "$(dirname "$0")/../cli/helpers.inc"

golden=$top/tests/golden/families
# 4000 tokens of 16 bits, each below 29
# shellcheck disable=SC2059
printf "$(awk 'BEGIN { for (i = 0; i < 4000; i++) { x = (x * 7 + i % 11) % 29; printf "\\%03o\\000", x } }')" >ids
"$TRIREME" tokenize ids --format bin --vocab 29 -o train.h5 >out 2>err || cat err
N="device=cpu precision=fp32 data.train=train.h5 data.seq_len=24 train.global_batch=4 run.threads=1
   train.lr=1e-2 train.warmup_steps=0"

# loss RUN STEP
loss() { sed -n "s/.*\"step\": *$2,.*\"loss\": *\([^,}]*\).*/\1/p" "$1/metrics.jsonl"; }
near() { echo "$1 $2" | awk '{ d = $1 / $2 - 1; print d * d < 1e-12 ? "near" : $0 }'; }

for name in phi3 phi3_window; do
    # shellcheck disable=SC2086
    "$TRIREME" train $N model.path=$golden/$name train.steps=3 run.dir=$name >out 2>err || cat err
    # Each rank reads the rows that it holds of a stacked matrix, or one of a node reads for all.
    while read -r ranks keys; do
        # shellcheck disable=SC2086
        ranks "$ranks" "$TRIREME" train $N model.path=$golden/$name train.steps=3 $keys run.dir=on \
            run.fresh=true >out 2>err </dev/null || cat err
        is "$name on $ranks ranks, $keys" near "$(near "$(loss on 3)" "$(loss $name 3)")"
    done <<'END'
2 parallel.strategy=FULL_SHARD
2 parallel.tensor=2 model.loading=node
3 parallel.strategy=FULL_SHARD model.loading=node
4 parallel.tensor=2 parallel.pipeline=2
END
    "$TRIREME" convert $name hf-$name >out 2>err || cat err
    # shellcheck disable=SC2086
    "$TRIREME" evaluate $name $N data.valid=train.h5 >of-run 2>err || cat err
    # shellcheck disable=SC2086
    "$TRIREME" evaluate $N data.valid=train.h5 model.path=hf-$name run.dir=none >of-folder 2>err || cat err
    is "$name as it was trained, and the folder that convert wrote" "$(grep -o '^loss [0-9.]*' of-run)" \
        "$(grep -o '^loss [0-9.]*' of-folder)"
done
is "a Phi-3 is written as a Llama" '"model_type": "llama"' "$(grep -o '"model_type": "[a-z0-9]*"' hf-phi3/config.json)"
is "one with a window as a Mistral" '"model_type": "mistral"' "$(grep -o '"model_type": "[a-z0-9]*"' hf-phi3_window/config.json)"

# Adapters: trained beside the matrices one by one, also beside 4 bits; merged, not for peft.
L="lora.r=3 lora.target_modules=all-linear train.steps=4"
# shellcheck disable=SC2086
ranks 2 "$TRIREME" train $N model.path=$golden/phi3 $L run.dir=lora >out 2>err </dev/null || cat err
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=$golden/phi3 $L run.dir=lora-1 >out 2>err || cat err
is "adapters on 2 ranks" near "$(near "$(loss lora 4)" "$(loss lora-1 4)")"
"$TRIREME" convert lora merged --merge >out 2>err || cat err
# shellcheck disable=SC2086
"$TRIREME" evaluate lora $N data.valid=train.h5 >of-run 2>err || cat err
# shellcheck disable=SC2086
"$TRIREME" evaluate $N data.valid=train.h5 model.path=merged run.dir=none >of-folder 2>err || cat err
is "adapters, and what --merge wrote" near \
    "$(near "$(sed -n 's/^loss \([0-9.]*\).*/\1/p' of-run)" "$(sed -n 's/^loss \([0-9.]*\).*/\1/p' of-folder)")"
is "they have learned something" 1 "$(echo "$(loss lora 4) $(loss phi3 1)" | awk '{ print $1 < $2 }')"
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=$golden/phi3 $L lora.quantize_base=nf4 run.dir=nf4 >out 2>err
is "adapters beside 4 bits" 0 $?
refused "adapters for peft" 'phi3 is a phi3, .*; --merge writes the whole model' "$TRIREME" convert lora adapter
is "no folder is left of it" none "$(ls -d adapter* 2>/dev/null || echo none)"
# shellcheck disable=SC2086
refused "adapters that are to be exported at the end, before they are trained" \
    'checkpoint.export_hf is set, .*, a phi3; leave it out' "$TRIREME" train $N model.path=$golden/phi3 $L \
    run.dir=never checkpoint.export_hf=true

# bad NAME PATTERN SED-SCRIPT: config.json changed
bad() {
    rm -rf bad
    cp -r "$golden/phi3" bad
    chmod -R u+w bad
    sed -i "$3" bad/config.json
    # shellcheck disable=SC2086
    refused "$1" "$2" "$TRIREME" train $N model.path=bad train.steps=1 run.dir=never
}
bad "fewer key heads than the files have" 'tensor "model.layers.0.self_attn.qkv_proj.weight" has another shape' \
    's/"num_key_value_heads": 2/"num_key_value_heads": 1/'
bad "another width of the feed-forward layer" 'tensor "model.layers.0.mlp.gate_up_proj.weight" has another shape' \
    's/"intermediate_size": 22/"intermediate_size": 24/'
bad "positions of the long variants" 'rope type "longrope" is not one' \
    's/"rope_type": "default"/"rope_type": "longrope", "short_factor": [1.0]/'
bad "a part of a head that rotates, as in Phi-4-mini" 'partial_rotary_factor is 0.75' \
    's/"partial_rotary_factor": 1.0/"partial_rotary_factor": 0.75/'
bad "dropout of what layers put out" 'resid_pdrop is 0.1, which trireme does not have' \
    's/"resid_pdrop": 0.0/"resid_pdrop": 0.1/'
finish
