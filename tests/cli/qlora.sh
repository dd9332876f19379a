#!/bin/sh
# qlora.sh - adapters beside frozen matrices of 4 bits (lora.quantize_base): the same on any layout,
# saved, resumed and merged, the numbers of bitsandbytes; and what is refused.
. "$(dirname "$0")/../cli/helpers.inc"
. "$top/tests/cli/adapters.inc"

Q="lora.quantize_base=nf4"
start() { "$TRIREME" train $N "$@" >out 2>err || cat err; }

# two FAMILY KEYS...: a model of a family, base-FAMILY and hf-FAMILY, and the model whose weights are
# those of 4 bits, in hf4-FAMILY: a checkpoint that holds everything holds their numbers.
two() {
    family=$1
    shift
    start "$@" train.steps=30 train.lr=3e-3 run.dir=base-$family
    "$TRIREME" convert base-$family hf-$family >out 2>err || cat err
    start model.path=hf-$family $L lora.target_modules=$targets $Q train.steps=1 train.lr=0 \
        checkpoint.frozen=full run.dir=full-$family
    "$TRIREME" convert full-$family hf4-$family --merge >out 2>err || cat err
}
# shellcheck disable=SC2086
{
    targets=q_proj,v_proj,down_proj
    two llama model.layers=3 model.hidden=128 model.heads=4 model.kv_heads=2 model.head_dim=32 \
        model.ffn=256 model.vocab=257 model.max_seq_len=32
    targets=c_attn,c_proj
    # 4160 * 64 elements: more than the 2^18 that a checkpoint decodes at once
    two gpt2 model.family=gpt2 model.layers=2 model.hidden=64 model.heads=4 model.head_dim=16 model.ffn=4160 \
        model.vocab=257 model.max_seq_len=32 model.tie_embeddings=true
}
different() { if cmp -s "$1" "$2"; then echo same; else echo different; fi; }
is "4 bits are other weights" different "$(different hf-llama/model.safetensors hf4-llama/model.safetensors)"
if "${TRIREME_PYTHON-false}" -c 'import bitsandbytes, safetensors' 2>/dev/null; then
    for family in llama gpt2; do
        "$TRIREME_PYTHON" "$top/tests/cli/qlora_check.py" hf-$family hf4-$family >check 2>&1
        is "$family: the weights of bitsandbytes ($(tail -n 1 check))" 0 $?
    done
else
    skip "the weights of bitsandbytes" "no Python with bitsandbytes (TRIREME_PYTHON)"
fi

# Beside the matrices of 4 bits as beside a model that has their numbers in fp32, to the bit.
C="$L train.steps=4"
for family in llama gpt2; do
    [ $family = llama ] && targets=q_proj,v_proj,down_proj || targets=c_attn,c_proj
    # shellcheck disable=SC2086
    {
        start model.path=hf-$family $C lora.target_modules=$targets $Q run.dir=one-$family
        start model.path=hf4-$family $C lora.target_modules=$targets run.dir=wide-$family
    }
    is "$family: the losses of a model with these numbers" "$(loss wide-$family 4)" "$(loss one-$family 4)"
done
C="$C lora.target_modules=q_proj,v_proj,down_proj"
same_loss() { # same_loss NAME KEYS...: of 4 bits and of a model with these numbers
    name=$1
    shift
    # shellcheck disable=SC2086
    {
        start model.path=hf-llama $C $Q run.dir=in-4 "$@"
        start model.path=hf4-llama $C run.dir=in-32 "$@"
    }
    is "$name: the losses of a model with these numbers" "$(loss in-32 4)" "$(loss in-4 4)"
    rm -rf in-4 in-32
}
same_loss bf16 precision=bf16
same_loss fp16 precision=fp16 train.loss_scale=1024
same_loss bf16_pure precision=bf16_pure
same_loss fp8 precision=fp8 data.seq_len=128 model.max_seq_len=128 train.global_batch=1
same_loss "recompute, micro-batches" recompute=full train.micro_batch=2
same_loss "DoRA, whose lengths begin as those of the rows of 4 bits" lora.use_dora=true
same_loss "modules that are trained whole" lora.modules_to_save=lm_head,*layernorm
same_loss "4 bits are trained beside, and frozen adapters" train.freeze=*.lora_A

# On any layout.
i=0
while read -r n layout; do
    i=$((i + 1))
    # shellcheck disable=SC2086
    ranks "$n" "$TRIREME" train $N model.path=hf-llama $C $Q $layout run.dir=layout-$i >out 2>err </dev/null ||
        cat err
    is "$n ranks, $layout: the loss of one rank" near "$(near "$(loss layout-$i 4)" "$(loss one-llama 4)")"
done <<'END'
2 parallel.strategy=NO_SHARD
2 parallel.strategy=SHARD_OPTIM
3 parallel.strategy=SHARD_GRAD_OP
3 parallel.strategy=FULL_SHARD
2 parallel.strategy=FULL_SHARD offload.params=host offload.optimizer=disk
2 parallel.strategy=FULL_SHARD parallel.wrap=none
4 parallel.strategy=HYBRID_SHARD parallel.shard=2
2 parallel.tensor=2
2 parallel.context=2 parallel.strategy=FULL_SHARD
3 parallel.pipeline=3 model.loading=node
4 parallel.pipeline=2 parallel.schedule=zbv parallel.strategy=FULL_SHARD model.sync_module_states=true
END

# Saved, resumed, evaluated and merged.
"$TRIREME" checkpoint show one-llama >show 2>err
is "a checkpoint holds adapters alone" "1 0" \
    "$(($(grep -c lora_ show) > 10)) $(grep -c 'model/layers.0.attn.q$' show)"
go_on() { "$TRIREME" train "$@" >out 2>err || cat err; }
go_on one-llama train.steps=6 run.dir=one-llama
# shellcheck disable=SC2086
start model.path=hf-llama $C $Q train.steps=6 run.dir=through
is "resumed as if it had not stopped" "$(loss through 6)" "$(loss one-llama 6)"
ranks 3 "$TRIREME" train full-llama train.steps=3 train.lr=1e-3 parallel.strategy=FULL_SHARD run.dir=full-llama \
    >out 2>err || cat err
# shellcheck disable=SC2086
start model.path=hf-llama $L lora.target_modules=q_proj,v_proj,down_proj $Q train.steps=1 train.lr=0 run.dir=refers
go_on refers train.steps=3 train.lr=1e-3 run.dir=refers
is "resumed from what holds everything as from what refers to it" near \
    "$(near "$(loss full-llama 3)" "$(loss refers 3)")"
evaluated() { "$TRIREME" evaluate "$@" data.valid=train.h5 2>err | sed -n 's/.*loss \([0-9.]*\).*/\1/p'; }
# shellcheck disable=SC2086
start model.path=hf4-llama $C train.steps=6 run.dir=wide-llama-6
is "evaluated as a model with these numbers" "$(evaluated wide-llama-6)" "$(evaluated one-llama)"
is "evaluated beside the model as it is" different \
    "$([ "$(evaluated one-llama)" = "$(evaluated one-llama lora.quantize_base=none)" ] || echo different)"
"$TRIREME" generate one-llama --prompt "1 squared" --tokens 8 --temperature 0 >said 2>err
"$TRIREME" generate wide-llama-6 --prompt "1 squared" --tokens 8 --temperature 0 >wanted 2>err
is "generates as a model with these numbers" same "$(different wanted said)"
"$TRIREME" convert one-llama merged --merge >out 2>err
is "merged into the weights of model.path" 0 $?
"$TRIREME" convert one-llama adapter >out 2>err
# shellcheck disable=SC2086
start model.path=hf-llama lora.path=adapter $Q train.steps=1 train.lr=0 run.dir=on-adapter
is "an adapter goes on beside 4 bits" near "$(near "$(loss on-adapter 1)" "$(go_on one-llama train.steps=7 run.dir=one-llama; loss one-llama 7)")"

# A folder that bitsandbytes has written, with scales that are quantized, too.
G="model.path=$top/tests/golden/llama_nf4.hf"
W="device=cpu data.train=train.h5 model.vocab=257 data.seq_len=24 train.global_batch=8 run.threads=1 train.schedule=constant
   train.warmup_steps=0 train.lr=1e-2"
# shellcheck disable=SC2086
{
    "$TRIREME" train $W $G lora.r=4 train.steps=3 run.dir=as-32 >out 2>err
    is "weights of 4 bits are read" "0 21" "$? $(sed -n 's/.*llama_nf4.hf: \([0-9]*\) tensors in 1 file.*/\1/p' err out | head -n 1)"
    "$TRIREME" train $W $G lora.r=4 $Q train.steps=3 run.dir=as-4 >out 2>err || cat err
    is "and kept as they are" "$(loss as-32 1) $(loss as-32 3)" "$(loss as-4 1) $(loss as-4 3)"
    ranks 3 "$TRIREME" train $W $G lora.r=4 $Q train.steps=3 parallel.strategy=FULL_SHARD \
        run.dir=as-4-3 >out 2>err || cat err
    is "by three ranks" near "$(near "$(loss as-4-3 3)" "$(loss as-32 3)")"
    "$TRIREME" convert as-4 whole --merge >out 2>err
    is "merged, in 16 bits or more" "0 0" "$? $(grep -c quantization_config whole/config.json)"
    "$TRIREME" train $W model.path=whole train.lr=0 train.steps=1 run.dir=from-whole >out 2>err || cat err
    "$TRIREME" train as-4 train.steps=4 run.dir=as-4 >out 2>err || cat err
    is "with the loss of the next step" near "$(near "$(loss from-whole 1)" "$(loss as-4 4)")"
    "$TRIREME" train $W $G train.steps=3 run.dir=all >out 2>err
    is "all of it is trained" "0 $(loss as-32 1)" "$? $(loss all 1)"
}
printf 'lora:\n  r: 4\n  alpha: 6\n  target_modules: [q_proj, v_proj, down_proj]\n  quantize_base: nf4\n' >four.yaml
# shellcheck disable=SC2086
"$TRIREME" train four.yaml $N model.path=hf-llama lora.path=adapter train.steps=1 train.lr=0 run.dir=of-file >out 2>err
is "which a file may ask for beside an adapter that is named" "0 $(loss on-adapter 1)" "$? $(loss of-file 1)"

# What it takes is what the plan says, and less.
memory() { "$TRIREME" plan "$@" 2>err | sed -n 's/^  parameters .* \([0-9]*\) bytes$/\1/p'; }
# matrices of 3 * (128 * (128 + 2 * 64 + 128) + 3 * 128 * 256) elements: 36 bytes for 64 of them, not 256
# shellcheck disable=SC2086
is "parameters by plan" $((3 * (128 * 384 + 3 * 128 * 256) / 64 * 220)) \
    $(($(memory model.path=hf-llama $C $N) - $(memory model.path=hf-llama $C $N $Q)))

# shellcheck disable=SC2086
{
    refused "4 bits without adapters" 'lora.quantize_base is of adapters, and lora.r, their rank, is 0' \
        "$TRIREME" train $N model.path=hf-llama $Q run.dir=never
    refused "a format that is not there" 'lora.quantize_base: int8 is not in this version' \
        "$TRIREME" train $N model.path=hf-llama $C lora.quantize_base=int8 run.dir=never
    refused "matrices of no whole blocks" 'nf4 is of frozen matrices of whole blocks of 64 elements, and there are none' \
        "$TRIREME" train $N lora.r=4 $Q run.dir=never model.layers=1 model.hidden=20 model.heads=2 model.head_dim=10 \
        model.ffn=30 model.vocab=257 model.max_seq_len=32
    refused "blocks that tensor ranks would divide" \
        'nf4 keeps 64 elements of a row of layers.0.attn.o together, and parallel.tensor would divide them' \
        "$TRIREME" plan $N model.path=hf-llama $C $Q parallel.tensor=4 --ranks 4
    refused "another tool's name for it" 'load_in_4bit.*lora.quantize_base' \
        "$TRIREME" train $N model.path=hf-llama $C load_in_4bit=true run.dir=never
}
finish
