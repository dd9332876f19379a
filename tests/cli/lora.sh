#!/bin/sh
# lora.sh - adapters: trained, saved beside a reference to their model, resumed, merged, and to and
# from peft's files, on any layout; and what is refused.
. "$(dirname "$0")/../cli/helpers.inc"

# 193 tokens: 8 windows of 24, all of them one batch.
awk 'BEGIN { for (i = 0; i < 60; i++) printf "%d squared is %d. ", i, i * i }' | head -c 192 >text
"$TRIREME" tokenize text -o train.h5 >out 2>err || cat err
N="device=cpu precision=fp32 data.train=train.h5 data.seq_len=24 train.global_batch=8 run.threads=1
   train.weight_decay=0 train.clip=0 train.schedule=constant train.warmup_steps=0"
M="model.layers=3 model.hidden=36 model.heads=6 model.head_dim=6 model.ffn=61 model.vocab=257
   model.max_seq_len=32"
L="lora.r=4 lora.alpha=6 train.lr=2e-3"

loss() { sed -n 's/.*"step": *'"$2"',.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }
near() { echo "$1 $2" | awk '{ d = $1 / $2 - 1; print d * d < 1e-12 ? "near" : $0 }'; }
python() {
    [ -n "${TRIREME_PYTHON-}" ] && "$TRIREME_PYTHON" -c 'import h5py, peft' 2>/dev/null
}

for family in llama gpt2; do
    case $family in
    llama) keys="model.kv_heads=3" adapters="$L lora.target_modules=q_proj,v_proj,o_proj,gate_proj,down_proj" ;;
    gpt2) keys="model.tie_embeddings=true" adapters="$L lora.target_modules=c_attn,c_proj" ;;
    esac
    # shellcheck disable=SC2086
    "$TRIREME" train $N $M model.family=$family $keys train.steps=30 train.lr=3e-3 \
        run.dir=base-$family >out 2>err || cat err
    "$TRIREME" convert base-$family hf-$family >out 2>err || cat err

    # An adapter is begun, trained and written; its checkpoints hold nothing else.
    B="$N model.path=hf-$family $adapters"
    # shellcheck disable=SC2086
    "$TRIREME" train $B train.lr=0 train.steps=1 run.dir=new-$family >out 2>err
    is "$family: an adapter begins" 0 "$?"
    "$TRIREME" convert new-$family new-adapter-$family >out 2>err
    # shellcheck disable=SC2086
    "$TRIREME" train $B train.steps=20 run.dir=run-$family >out 2>err
    is "$family: and is trained" 0 "$?"
    is "$family: a new one adds nothing" near \
        "$(near "$(loss run-$family 1)" "$(loss new-$family 1)")"
    is "$family: what it is trained on is learnt" 1 \
        "$(echo "$(loss run-$family 1) $(loss run-$family 20)" | awk '{ print $2 < $1 - 0.002 }')"
    "$TRIREME" checkpoint show run-$family >show 2>err
    is "$family: a checkpoint holds adapters alone" "1 0" \
        "$(($(grep -c lora_ show) > 10)) $(grep -c 'model/layers.0.attn.q  *' show)"
    "$TRIREME" convert run-$family adapter-$family >out 2>err
    is "$family: written for peft" "0 2" \
        "$? $(find adapter-$family -name 'adapter_*' | wc -l)"
    "$TRIREME" convert run-$family merged-$family --merge >out 2>err
    is "$family: and merged" 0 "$?"

    # Whole checkpoints say the same.
    # shellcheck disable=SC2086
    "$TRIREME" train $B train.steps=20 run.dir=full-$family checkpoint.frozen=full >out 2>err
    "$TRIREME" convert full-$family full-merged-$family --merge >out 2>err || cat err
    if cmp -s merged-$family/model.safetensors full-merged-$family/model.safetensors; then
        ok "$family: the same from a checkpoint that holds everything"
    else
        not_ok "$family: the same from a checkpoint that holds everything" "files differ: $(cat err)"
    fi

    # The merged model, and the adapter beside its model, go on where the run ended.
    # shellcheck disable=SC2086
    "$TRIREME" train run-$family train.steps=21 run.dir=run-$family >out 2>err || cat err
    next=$(loss run-$family 21)
    # shellcheck disable=SC2086
    "$TRIREME" train $N model.path=merged-$family train.lr=0 train.steps=1 run.dir=in-merged-$family \
        >out 2>err || cat err
    is "$family: the merged model's loss" near "$(near "$(loss in-merged-$family 1)" "$next")"
    # shellcheck disable=SC2086
    "$TRIREME" train $N model.path=hf-$family lora.path=adapter-$family train.lr=0 train.steps=1 \
        run.dir=in-adapter-$family >out 2>err || cat err
    is "$family: the adapter's loss" near "$(near "$(loss in-adapter-$family 1)" "$next")"
    "$TRIREME" convert in-adapter-$family back-$family >out 2>err
    if cmp -s adapter-$family/adapter_model.safetensors back-$family/adapter_model.safetensors &&
        cmp -s adapter-$family/adapter_config.json back-$family/adapter_config.json; then
        ok "$family: there and back, the same bits"
    else
        not_ok "$family: there and back, the same bits" "the files differ"
    fi

    # Other layouts take up the checkpoint.
    while read -r ranks layout; do
        rm -rf on
        cp -r run-$family on
        # shellcheck disable=SC2086
        ranks "$ranks" "$TRIREME" train on train.steps=22 run.dir=on $layout >out 2>err </dev/null ||
            cat err
        [ -n "${wanted-}" ] || wanted=$(loss on 22)
        is "$family: resumed on $ranks ranks, $layout" near "$(near "$(loss on 22)" "$wanted")"
    done <<'END'
1 parallel.tensor=1
2 parallel.tensor=2
3 parallel.strategy=FULL_SHARD
4 parallel.tensor=2 parallel.pipeline=2
END
    unset wanted
    "$TRIREME" generate run-$family --prompt "1 squared" --tokens 8 >out 2>err
    is "$family: generate" 0 "$?"

    if python; then
        "$TRIREME_PYTHON" "$top/tests/cli/lora_check.py" train hf-$family new-adapter-$family \
            adapter-$family train.h5 20 >check 2>&1
        is "$family: peft trains the same ($(tail -n 1 check))" 0 "$?"
        "$TRIREME_PYTHON" "$top/tests/cli/lora_check.py" same hf-$family adapter-$family \
            merged-$family train.h5 "$next" >check 2>&1
        is "$family: peft has the same logits ($(tail -n 1 check))" 0 "$?"
        "$TRIREME_PYTHON" "$top/tests/cli/lora_check.py" make hf-$family peft-$family >check 2>&1
        # shellcheck disable=SC2086
        "$TRIREME" train $N model.path=hf-$family lora.path=peft-$family train.lr=0 train.steps=1 \
            run.dir=in-peft-$family >out 2>err || cat err
        "$TRIREME" convert in-peft-$family in-peft-merged-$family --merge >out 2>err
        "$TRIREME_PYTHON" "$top/tests/cli/lora_check.py" same hf-$family peft-$family \
            in-peft-merged-$family train.h5 "$(loss in-peft-$family 1)" >check 2>&1
        is "$family: an adapter of peft's ($(tail -n 1 check))" 0 "$?"
    else
        skip "$family: peft" "no Python with peft and h5py (TRIREME_PYTHON)"
    fi
done

# What is refused, with its name.
T="$N model.path=hf-llama run.dir=never"
# shellcheck disable=SC2086
{
    refused "a module that is not there" 'no module "c_attn"; it has: q_proj' \
        "$TRIREME" train $T lora.r=4 lora.target_modules=c_attn
    refused "a module that cannot be adapted" 'norm is no linear layer' \
        "$TRIREME" train $T lora.r=4 lora.target_modules=norm
    refused "adapters of no rank" 'lora.alpha is of adapters' "$TRIREME" train $T lora.alpha=3
    refused "an adapter that is not there" 'no adapter_config.json' "$TRIREME" train $T lora.path=none
    refused "a reference to nothing" 'model.path names no folder' "$TRIREME" train $N $M run.dir=never \
        lora.r=4 checkpoint.frozen=reference
    refused "another rank than the file's" 'has another shape' \
        "$TRIREME" train $T lora.path=adapter-llama lora.r=5
}
bad() { # bad NAME PATTERN SED-SCRIPT: adapter_config.json changed
    rm -rf bad
    cp -r adapter-llama bad
    sed -i "$3" bad/adapter_config.json
    # shellcheck disable=SC2086
    refused "$1" "$2" "$TRIREME" train $T lora.path=bad
}
bad "DoRA" 'use_dora is set' 's/"use_dora": false/"use_dora": true/'
bad "another kind of adapter" 'peft_type is "IA3"' 's/"LORA"/"IA3"/'
bad "biases" 'bias is "all"' 's/"bias": "none"/"bias": "all"/'
bad "ranks of their own" 'rank_pattern is set' 's/"bias"/"rank_pattern": {"q_proj": 2}, "bias"/'
bad "a pattern" 'is the pattern' 's/"task_type"/"modules_to_save": ".*norm", "task_type"/'
refused "a base that is gone" 'model.path' sh -c 'mv hf-llama gone; "$TRIREME" train run-llama train.steps=40; code=$?; mv gone hf-llama; exit $code'
refused "a base that has changed" 'are others than when it was saved' \
    "$TRIREME" train run-llama train.steps=40 model.path=merged-llama
finish
