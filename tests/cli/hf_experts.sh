#!/bin/sh
# hf_experts.sh - mixtures of experts in Hugging Face's folders, as Mixtral and Qwen3-MoE have them:
# out and in, the same bits, on any layout; what transformers computes; and what is refused.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
N="device=cpu precision=fp32 data.train=train.h5 data.seq_len=24 train.global_batch=4 run.threads=1"
M="$N model.layers=2 model.hidden=36 model.heads=6 model.head_dim=6 model.ffn=31 model.vocab=257
   model.max_seq_len=32 train.steps=3"

first_loss() { sed -n 's/.*"step": *1,.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }

# near A B: two losses within 1e-6, relative
near() { echo "$1 $2" | awk '{ d = $1 / $2 - 1; print d * d < 1e-12 ? "near" : $0 }'; }

# keys_of TYPE: what makes a model of it.
keys_of() {
    case $1 in
    mixtral) echo model.kv_heads=3 model.experts=4 model.tie_embeddings=true ;;
    qwen3_moe) echo model.kv_heads=2 model.qk_norm=true model.experts=5 model.experts_per_token=3 \
        model.norm_topk_prob=false model.router_aux_loss_coef=0.01 ;;
    esac
}

# A model of each type is trained, written, and taken up again, also from several files.
for type in mixtral qwen3_moe; do
    # shellcheck disable=SC2046,SC2086
    "$TRIREME" train $M $(keys_of $type) run.dir=$type >out 2>err || cat err
    "$TRIREME" convert $type hf-$type >convert.out 2>err || cat err
    is "$type is that to transformers" "\"model_type\": \"$type\"" "$(grep -o '"model_type": "[a-z0-9_]*"' hf-$type/config.json)"
    "$TRIREME" convert $type files-$type --file-gb 0.00005 >out 2>err || cat err
    for from in hf files; do
        # shellcheck disable=SC2086
        "$TRIREME" train $N model.path=$from-$type train.steps=1 train.lr=0 run.dir=in-$from-$type >out 2>err || cat err
        "$TRIREME" convert in-$from-$type back-$from-$type >out 2>err || cat err
        for file in model.safetensors config.json; do
            if cmp -s hf-$type/$file back-$from-$type/$file; then
                ok "$type, from $from: $file, there and back"
            else
                not_ok "$type, from $from: $file, there and back" "the files differ"
            fi
        done
    done
done
# Of two layers, in each three matrices of each expert.
for type in mixtral qwen3_moe; do
    grep -a -o '"model[a-z0-9_.]*experts[a-z0-9_.]*"' hf-$type/model.safetensors | sort -u | wc -l
done >count
is "a matrix of each expert is a tensor" "24 30" "$(xargs <count)"

# Each rank reads what it holds, or one does for all.
while read -r ranks keys; do
    for type in mixtral qwen3_moe; do
        # shellcheck disable=SC2086
        ranks "$ranks" "$TRIREME" train $N model.path=hf-$type train.steps=1 $keys run.dir=on-ranks run.fresh=true \
            >out 2>err </dev/null || cat err
        is "$type on $ranks ranks, $keys" near "$(near "$(first_loss on-ranks)" "$(first_loss in-hf-$type)")"
    done
done <<'END'
2 parallel.strategy=FULL_SHARD
2 parallel.tensor=2 model.loading=node
3 parallel.tensor=3
3 parallel.strategy=FULL_SHARD model.loading=node train.freeze=layers.*.mlp.experts.*
4 parallel.tensor=2 parallel.strategy=FULL_SHARD precision=fp32
END
# shellcheck disable=SC2086
ranks 2 "$TRIREME" train $N model.path=mixtral train.steps=1 train.lr=0 parallel.tensor=2 run.dir=from-run >out 2>err </dev/null || cat err
is "tensor ranks take a run" near "$(near "$(first_loss from-run)" "$(first_loss in-hf-mixtral)")"

# Adapters beside experts, to which checkpoints only refer.
A="$N model.path=hf-qwen3_moe lora.r=2 lora.alpha=4 train.steps=2"
# shellcheck disable=SC2086
"$TRIREME" train $A train.steps=0 run.dir=adapted >out 2>err || cat err
"$TRIREME" convert adapted merged --merge >out 2>err || cat err
if cmp -s hf-qwen3_moe/model.safetensors merged/model.safetensors; then
    ok "adapters that add nothing yet are merged beside experts"
else
    not_ok "adapters that add nothing yet are merged beside experts" "the files differ"
fi
# shellcheck disable=SC2086
"$TRIREME" train $A run.dir=adapted >out 2>err || cat err
"$TRIREME" convert adapted adapter >out 2>err || cat err
is "adapters beside experts are written" "0 q_proj v_proj" \
    "$? $(tr -d ' \n' <adapter/adapter_config.json | sed 's/.*"target_modules":\[\([^]]*\)\].*/\1/' | tr -d '"' | tr ',' ' ')"
# Of 4 experts the matrices of 20 x 36 are whole blocks of 64 numbers, and one alone is not.
# shellcheck disable=SC2046,SC2086
"$TRIREME" train $M $(keys_of mixtral) model.ffn=20 train.steps=0 run.dir=blocks >out 2>err || cat err
"$TRIREME" convert blocks hf-blocks >out 2>err || cat err
Q="$N model.path=hf-blocks lora.r=2 lora.quantize_base=nf4 train.steps=1"
# shellcheck disable=SC2086
"$TRIREME" train $Q run.dir=in-blocks >out 2>err || cat err
is "experts in 4 bits, each of parts of blocks" 0 $?
# shellcheck disable=SC2086
refused "which one rank does not read for others" \
    'model.loading is node, and layers.0.mlp.experts.[a-z_]* is of matrices of (20 x 36|36 x 20)' \
    "$TRIREME" train $Q model.loading=node run.dir=never
for modules in all-linear gate q_proj,up_proj down_proj mlp.experts.3.gate_proj; do
    # shellcheck disable=SC2086
    refused "adapters of experts: $modules" 'lora.target_modules.* (all-linear, which to peft is also the experts|is of the experts of a mixture)' \
        "$TRIREME" train $A lora.target_modules=$modules run.dir=never
done
# shellcheck disable=SC2086
refused "a router trained beside adapters" 'lora.modules_to_save: gate is of the experts' \
    "$TRIREME" train $A lora.modules_to_save=gate run.dir=never
# shellcheck disable=SC2086
refused "a tensor of files for one to freeze" 'did you mean layers.0.mlp.experts.gate_up$' \
    "$TRIREME" train $N model.path=hf-qwen3_moe 'train.freeze=*up_proj*' run.dir=never

# What is refused, with its name.
bad() { # bad TYPE NAME PATTERN SED-SCRIPT: config.json changed
    rm -rf bad
    cp -r "hf-$1" bad
    sed -i "$4" bad/config.json
    # shellcheck disable=SC2086
    refused "$2" "$3" "$TRIREME" train $N model.path=bad run.dir=never
}
while read -r type lacks; do
    bad mixtral "experts of $type" "model_type \"$type\" is not one that trireme has: .*; it has $lacks" \
        "s/\"model_type\": \"mixtral\"/\"model_type\": \"$type\"/"
done <<'END'
qwen2_moe a shared expert
olmoe norms over whole queries and keys
deepseek_v3 latent attention, and shared experts
gpt_oss biases of experts
phimoe norms with biases
dbrx norms that subtract the mean
jamba Mamba layers
granitemoe multipliers of embeddings
llama4_text a shared expert
ernie4_5_moe shared experts
END
bad mixtral "experts of a model without them" 'num_local_experts is 4, and a model of this model_type has no experts' 's/"model_type": "mixtral"/"model_type": "llama"/'
bad mixtral "two numbers of experts" 'num_local_experts is 4 and num_experts 8' 's/"num_local_experts"/"num_experts": 8, "num_local_experts"/'
bad mixtral "no experts" 'num_local_experts is 0, and a model of model_type mixtral has at least one expert' 's/"num_local_experts": 4/"num_local_experts": 0/'
bad mixtral "another number of experts" 'block_sparse_moe.(experts.4.w1.weight" is missing|gate.weight" has another shape than the 5 x 36)' \
    's/"num_local_experts": 4/"num_local_experts": 5/'
bad mixtral "fewer experts than there are" 'tensor "model.layers.[01].block_sparse_moe.*" (is none of this model|has another shape)' \
    's/"num_local_experts": 4/"num_local_experts": 3/'
bad mixtral "wider experts" 'experts.0.w1.weight" has another shape than the 32 x 36 of the model' \
    's/"intermediate_size": 31/"intermediate_size": 32/'
bad mixtral "more experts a token than there are" 'model.experts_per_token is 5, and model.experts 4' \
    's/"num_experts_per_tok": 2/"num_experts_per_tok": 5/'
bad qwen3_moe "blocks without experts" 'decoder_sparse_step is 2, and in trireme all blocks have experts' 's/"decoder_sparse_step": 1/"decoder_sparse_step": 2/'
bad qwen3_moe "layers without experts" 'mlp_only_layers is \[1\], and in trireme all blocks have experts' 's/"mlp_only_layers": \[\]/"mlp_only_layers": [1]/'
bad qwen3_moe "biases" 'attention_bias is true' 's/"num_experts":/"attention_bias": true, "num_experts":/'

# Members of mixtures of other types: each is refused by name, but for the value that changes nothing.
neutral=
while read -r type member value nothing why; do
    bad "$type" "$member in a $type" "$member is $(echo "$value" | sed 's/[][]/\\&/g'), and $why" \
        "s/\"num_\(local_\)*experts\"/\"$member\": $value, &/"
    [ "$type" = mixtral ] || neutral="$neutral\"$member\": $nothing, "
done <<'END'
qwen3_moe shared_expert_intermediate_size 64 0 trireme has no expert that all tokens go through
qwen3_moe shared_intermediate_size 64 0 trireme has no expert
qwen3_moe n_shared_experts 1 null trireme has no expert
qwen3_moe num_shared_experts 1 0 trireme has no expert
qwen3_moe moe_num_shared_experts 2 0 trireme has no expert
qwen3_moe first_k_dense_replace 1 0 in trireme all blocks have experts, or none
qwen3_moe num_dense_layers 2 0 in trireme all blocks
qwen3_moe moe_layer_freq 2 1 in trireme all blocks
mixtral decoder_sparse_step 2 1 in trireme all blocks
qwen3_moe interleave_moe_layer_step 2 1 in trireme all blocks
qwen3_moe moe_layers [1] [] in trireme all blocks
qwen3_moe moe_layer_start_index 1 0 in trireme all blocks
qwen3_moe moe_layer_end_index 1 -1 in trireme all blocks
qwen3_moe moe_layer_interval 2 1 in trireme all blocks
qwen3_moe expert_layer_period 2 1 in trireme all blocks
qwen3_moe expert_layer_offset 1 0 in trireme all blocks
qwen3_moe n_group 8 1 a router of trireme's chooses
qwen3_moe topk_group 4 1 a router of trireme's chooses
qwen3_moe topk_method "noaux_tc" "greedy" a router of trireme's chooses
qwen3_moe scoring_func "sigmoid" "softmax" a router of trireme's takes the softmax
qwen3_moe score_function "sigmoid" "softmax" a router of trireme's takes
qwen3_moe routed_scaling_factor 2.5 1.0 a router of trireme's takes
qwen3_moe use_routing_bias true false a router of trireme's takes
qwen3_moe use_expert_bias true false a router of trireme's takes
qwen3_moe moe_router_enable_expert_bias true false a router of trireme's takes
mixtral norm_topk_prob false true a mixtral divides the weights
mixtral router_jitter_noise 0.1 0.0 trireme adds no noise
qwen3_moe input_jitter_noise 0.1 0.0 trireme adds no noise
qwen3_moe moe_jitter_eps 0.1 null trireme adds no noise
qwen3_moe expert_capacity 64 0 in trireme an expert takes all tokens
qwen3_moe moe_capacity [64] null in trireme an expert takes all tokens
qwen3_moe aux_loss_alpha 0.001 0.0 the loss that trireme adds is router_aux_loss_coef
qwen3_moe router_z_loss_coef 0.001 0.0 the loss that trireme adds
qwen3_moe swiglu_limit 7 null trireme does not limit
qwen3_moe q_lora_rank 16 null trireme has no latent attention
qwen3_moe kv_lora_rank 16 null trireme has no latent attention
qwen3_moe qk_rope_head_dim 8 0 trireme has no latent attention
qwen3_moe n_routed_experts 8 5 model.experts, by the members that trireme reads, 5
qwen3_moe moe_num_experts 8 5 model.experts, by
qwen3_moe num_moe_experts 8 5 model.experts, by
qwen3_moe experts_per_token 2 3 model.experts_per_token, by the members that trireme reads, 3
qwen3_moe num_experts_per_token 2 3 model.experts_per_token, by
qwen3_moe num_selected_experts 2 3 model.experts_per_token, by
qwen3_moe moe_topk 2 3 model.experts_per_token, by
qwen3_moe moe_k 2 3 model.experts_per_token, by
mixtral moe_intermediate_size 8 31 model.ffn, by the members that trireme reads, 31
END
while read -r member value; do
    bad qwen3_moe "$member" "$member is $value, which trireme does not have" "s/\"num_experts\"/\"$member\": $value, &/"
done <<'END'
num_nextn_predict_layers 1
attn_layer_period 8
mamba_d_state 16
attention_chunk_size 8192
attn_temperature_tuning true
intermediate_size_mlp 64
use_bias true
lm_head_bias true
END
bad qwen3_moe "DBRX's object of experts" 'ffn_config is {"moe_top_k": 4}, which' 's/"num_experts"/"ffn_config": {"moe_top_k": 4}, &/'
bad mixtral "experts by another name in a model without them" 'n_routed_experts is 64, and model.experts, by .*, 0' \
    's/"model_type": "mixtral"/"model_type": "llama", "n_routed_experts": 64/; /"num_local_experts"/d'
rm -rf neutral
cp -r hf-qwen3_moe neutral
sed -i "s/\"num_experts\"/$neutral &/" neutral/config.json
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=neutral train.steps=1 train.lr=0 run.dir=in-neutral >out 2>err || cat err
is "members of other types that change nothing" "$(first_loss in-hf-qwen3_moe) 0" \
    "$(first_loss in-neutral) $(grep -c 'does not know' err)"
is "none of them was lost on the way" "$(grep -o '"[a-z_]*":' neutral/config.json | wc -l)" \
    "$(grep -o '"[a-z_]*":' neutral/config.json | sort -u | wc -l)"

# Members by their other names, and left out.
sed -e 's/"num_experts":/"num_local_experts":/' -e '/"norm_topk_prob"/d' -i hf-qwen3_moe/config.json
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=hf-qwen3_moe train.steps=0 run.dir=other >out 2>err || cat err
is "members by other names" "experts: 5 norm_topk_prob: false router_aux_loss_coef: 0.01" \
    "$(grep -oE '\b(experts|norm_topk_prob|router_aux_loss_coef): .*' other/config.yaml | xargs)"
sed -e 's/"output_router_logits": true/"output_router_logits": false/' -i hf-qwen3_moe/config.json
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=hf-qwen3_moe train.steps=0 run.dir=balance >out 2>err || cat err
is "a coefficient without output_router_logits" 0 "$(sed -n 's/.*router_aux_loss_coef: //p' balance/config.yaml | grep . || echo 0)"

# Which no class of transformers computes.
# shellcheck disable=SC2046,SC2086
refused "weights of experts that Mixtral divides" 'has model.norm_topk_prob=false without model.qk_norm; leave one out' \
    "$TRIREME" train $M $(keys_of mixtral) model.norm_topk_prob=false checkpoint.export_hf=true run.dir=never
# shellcheck disable=SC2046,SC2086
"$TRIREME" train $M $(keys_of mixtral) model.norm_topk_prob=false train.steps=0 run.dir=sums >out 2>err || cat err
refused "the same after training" 'norm_topk_prob is false' "$TRIREME" convert sums hf-sums
# shellcheck disable=SC2046,SC2086
refused "biases beside experts" 'has model.qkv_bias=true and model.experts=4; leave one out' \
    "$TRIREME" train $M $(keys_of mixtral) model.qkv_bias=true checkpoint.export_hf=true run.dir=never

# transformers loads what was written, with the checkpoint's numbers, and computes the same.
if [ -n "${TRIREME_PYTHON-}" ] && "$TRIREME_PYTHON" -c 'import h5py, transformers' 2>/dev/null; then
    for type in mixtral qwen3_moe; do
        echo "back-hf-$type $(find in-hf-$type/checkpoints -name index.h5)"
    done | "$TRIREME_PYTHON" "$top/tests/cli/hf_check.py" >check.out 2>err.check
    model="$TRIREME_PYTHON $top/tests/cli/hf_model.py"
    awk 'BEGIN { for (i = 0; i < 400; i++) printf "%d squared is %d. ", i, i * i }' >squares
    "$TRIREME" tokenize squares -o squares.h5 >out 2>err
    for type in mixtral qwen3_moe; do
        is "transformers loads $type" "tensors are equal" \
            "$(sed -n "s/^back-hf-$type: //p" check.out | grep . || tail -n 3 err.check)"
    done
    for type in mixtral qwen3_moe; do
        printf 'make %s made-%s\nfuse made-%s fused-%s\n' $type $type $type $type
    done >wanted
    $model <wanted >check.out 2>&1 || cat check.out
    for type in mixtral qwen3_moe; do
        # shellcheck disable=SC2086
        ranks 2 "$TRIREME" train $N model.path=made-$type precision=bf16 train.steps=10 train.global_batch=6 \
            train.lr=3e-3 parallel.strategy=FULL_SHARD run.dir=tuned-$type >out 2>err </dev/null || cat err
        "$TRIREME" convert tuned-$type tuned-hf-$type --dtype fp32 >out 2>err || cat err
        for form in made fused; do
            # shellcheck disable=SC2086
            "$TRIREME" train $N model.path=$form-$type train.steps=0 run.dir=same-$form-$type >out 2>err || cat err
            "$TRIREME" convert same-$form-$type same-hf-$form-$type --dtype bf16 >out 2>err || cat err
            echo "same made-$type same-hf-$form-$type >same-$form-$type.out"
        done
        # shellcheck disable=SC2086
        ranks 2 "$TRIREME" train $N model.path=fused-$type train.steps=0 parallel.tensor=2 model.loading=node \
            run.dir=same-node-$type >out 2>err </dev/null || cat err
        "$TRIREME" convert same-node-$type same-hf-node-$type --dtype bf16 >out 2>err || cat err
        # shellcheck disable=SC2086
        "$TRIREME" train $N data.train=squares.h5 model.path=made-$type train.steps=60 train.lr=3e-3 \
            train.warmup_steps=5 run.dir=writes-$type >out 2>err || cat err
        "$TRIREME" convert writes-$type writes-hf-$type >out 2>err || cat err
        echo "loss tuned-hf-$type train.h5 >loss-$type"
        echo "same made-$type same-hf-node-$type >same-node-$type.out"
        echo "text writes-hf-$type squares.h5 64 >text-$type"
    done >wanted
    $model <wanted >check.out 2>&1 || cat check.out
    for type in mixtral qwen3_moe; do
        "$TRIREME" evaluate tuned-$type precision=fp32 data.valid=train.h5 >out 2>err || cat err
        here=$(sed -n 's/^loss \([0-9.]*\).*/\1/p' out)
        is "transformers has the loss of $type trained here, $here" near \
            "$(echo "$here $(cat loss-$type)" | awk '{ d = $1 / ($2 + 1e-9) - 1; print d * d < 1e-8 ? "near" : $0 }')"
        for form in made fused node; do
            is "$type of transformers, $form, there and back" "the same bits" "$(cat same-$form-$type.out)"
        done
        "$TRIREME" generate writes-$type data.seq_len=100 --prompt "$(head -c 24 squares)" --tokens 64 \
            --temperature 0 >out 2>err || cat err
        is "64 tokens that $type writes are those of transformers" "$(cat text-$type)" "$(tail -c +25 out)"
    done
else
    skip "transformers loads what convert writes" "no Python with transformers and h5py (TRIREME_PYTHON)"
fi
finish
