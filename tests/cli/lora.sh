#!/bin/sh
# lora.sh - adapters of low rank: trained, saved beside a reference to their model, resumed, merged,
# and to and from peft's files, on any layout; and what is refused.
. "$(dirname "$0")/../cli/helpers.inc"
. "$top/tests/cli/adapters.inc"

adapters llama
adapters gpt2

# What is refused, with its name.
T="$N model.path=hf-llama run.dir=never"
# shellcheck disable=SC2086
{
    refused "a module that is not there" 'no module "c_attn"; it has: q_proj' \
        "$TRIREME" train $T lora.r=4 lora.target_modules=c_attn
    refused "a module that others call all" 'no module "all"; it has: q_proj, .*; all-linear is every one$' \
        "$TRIREME" train $T lora.r=4 lora.target_modules=all
    for module in wte lm_head; do
        refused "the embedding or the head of a model in which they are one, $module" \
            'names the embedding or the head, which are one matrix' \
            "$TRIREME" train $T model.path=hf-gpt2 lora.r=4 lora.modules_to_save=$module
    done
    refused "a module that cannot be adapted" 'norm is no linear layer' \
        "$TRIREME" train $T lora.r=4 lora.target_modules=norm
    refused "a module of one block" \
        'lora.target_modules names one of model.layers.0.self_attn.q_proj and model.layers.1.self_attn.q_proj' \
        "$TRIREME" train $T lora.r=4 lora.target_modules=layers.1.self_attn.q_proj
    refused "a module that is adapted, and whole in one block" \
        'lora.modules_to_save names one of model.layers.0.mlp.down_proj and model.layers.1.mlp.down_proj' \
        "$TRIREME" train $T lora.r=4 lora.target_modules=all-linear lora.modules_to_save=layers.1.mlp.down_proj
    refused "a part of a matrix" \
        'lora.modules_to_save: model.layers.0.self_attn.q_proj and model.layers.0.self_attn.k_proj are stored' \
        "$TRIREME" train $T lora.r=4 lora.modules_to_save=q_proj
    refused "no adapters at all" \
        'lora.modules_to_save trains all modules of lora.target_modules .q_proj, v_proj. whole, so that there are no' \
        "$TRIREME" train $T lora.r=4 lora.modules_to_save=q_proj,k_proj,v_proj
    "$TRIREME" train $T train.steps=2 lora.r=4 run.dir=named >out 2>err \
        lora.target_modules=layers.0.self_attn.q_proj,layers.1.self_attn.q_proj,layers.2.self_attn.q_proj
    is "a module of all blocks, each by its number" 0 $?
    "$TRIREME" train $T train.steps=2 lora.r=4 run.dir=unnumbered lora.target_modules=q_proj >out 2>err
    is "a module by the number of each block is the module without a number" "$(loss unnumbered 2)" "$(loss named 2)"
    "$TRIREME" train $T train.steps=2 lora.r=4 run.dir=saved lora.modules_to_save=layers.1.mlp.down_proj >out 2>err
    is "a module of one block is trained whole" 0 $?
    refused "adapters of no rank" 'lora.alpha is of adapters' "$TRIREME" train $T lora.alpha=3
    refused "an adapter that is not there" 'no adapter_config.json' "$TRIREME" train $T lora.path=none
    refused "a run for an adapter" 'run-llama is a run or a checkpoint: trireme convert run-llama ADAPTER writes its adapter' \
        "$TRIREME" train $T lora.path=run-llama
    refused "a reference to nothing" 'model.path names no folder' "$TRIREME" train $N $M run.dir=never \
        lora.r=4 checkpoint.frozen=reference
    refused "a reference to a run" 'run-llama, is a run' "$TRIREME" train $N model.path=run-llama \
        run.dir=never lora.r=4 checkpoint.frozen=reference
    refused "a run with adapters as a model" 'trireme convert run-llama/.* FOLDER --merge, and name' \
        "$TRIREME" train $N model.path=run-llama run.dir=never
    refused "an adapter as a model" \
        "adapter-llama is an adapter's folder.*model.path=MODEL lora.path=adapter-llama" \
        "$TRIREME" train $N model.path=adapter-llama run.dir=never
    mkdir empty
    refused "another folder as a model" 'empty has no config.json, and is no run' \
        "$TRIREME" train $N model.path=empty run.dir=never
    refused "another rank than the file's" 'has another shape' \
        "$TRIREME" train $T lora.path=adapter-llama lora.r=5
}
refused "an adapter without its model" 'model.path is missing: the model to which .* adapter-llama belong' \
    "$TRIREME" evaluate lora.path=adapter-llama data.valid=train.h5
bad() { # bad NAME PATTERN SED-SCRIPT: adapter_config.json changed
    rm -rf bad
    cp -r adapter-llama bad
    sed -i "$3" bad/adapter_config.json
    # shellcheck disable=SC2086
    refused "$1" "$2" "$TRIREME" train $T lora.path=bad
}
bad "QALoRA" 'use_qalora is set' 's/"bias"/"use_qalora": true, "bias"/'
bad "another kind of adapter" 'peft_type is "IA3"' 's/"LORA"/"IA3"/'
bad "biases" 'bias is "all"' 's/"bias": "none"/"bias": "all"/'
bad "ranks of their own" 'rank_pattern is set' 's/"bias"/"rank_pattern": {"q_proj": 2}, "bias"/'
bad "the first layer alone" 'layers_to_transform is set' 's/"bias"/"layers_to_transform": 0, "bias"/'
for begin in pissa pissa_niter_4 OLoRA corda loftq; do
    bad "$begin, which changes the model" "init_lora_weights is \"$begin\", .*path_initial_model_for_weight_conversion" \
        "s/\"bias\"/\"init_lora_weights\": \"$begin\", \"bias\"/"
done
sed 's/"bias"/"init_lora_weights": "eva", "bias"/' adapter-llama/adapter_config.json >bad/adapter_config.json
# shellcheck disable=SC2086
timeout 60 "$TRIREME" evaluate data.valid=train.h5 data.seq_len=24 device=cpu model.path=hf-llama lora.path=bad >eva 2>err
code=$?
timeout 60 "$TRIREME" evaluate data.valid=train.h5 data.seq_len=24 device=cpu model.path=hf-llama lora.path=adapter-llama >plain 2>>err
is "eva, which does not" "0 0" "$code $(cmp eva plain >/dev/null 2>&1; echo $?)"
sed 's/"bias"/"wobble": 0.5, "nothing": null, "peft_version": "9", "bias"/' adapter-llama/adapter_config.json \
    >bad/adapter_config.json
# shellcheck disable=SC2086
ranks 2 "$TRIREME" evaluate $N data.valid=train.h5 model.path=hf-llama lora.path=bad >out 2>err
is "a member that is not known: one warning, on 2 ranks" "0 1" \
    "$? $(grep -c 'warning: bad/adapter_config.json: trireme does not know wobble and computes without' err)"
bad "a rank as text" 'r is a text, "4"; a whole number is wanted' 's/"r": [0-9]*/"r": "4"/'
bad "alpha as text" 'lora_alpha is a text, "16"; a number is wanted' \
    's/"lora_alpha": [^,]*/"lora_alpha": "16"/'
bad "true as a number" 'use_rslora is a number, 1; true or false is wanted' \
    's/"use_rslora": false/"use_rslora": 1/'
bad "true as a list" 'use_dora is an array; true or false is wanted' \
    's/"use_dora": false/"use_dora": [1]/'
bad "modules as a number" 'modules_to_save is a number, 5; a list of names is wanted' \
    's/"bias"/"modules_to_save": 5, "bias"/'
bad "a pattern" 'is the pattern' 's/"task_type"/"modules_to_save": ".*norm", "task_type"/'
refused "generate with an adapter alone" "it is an adapter's folder, .* lora.path=adapter-llama\$" \
    "$TRIREME" generate adapter-llama --prompt a
refused "evaluate of an adapter alone" "it is an adapter's folder, .* lora.path=adapter-llama\$" \
    "$TRIREME" evaluate adapter-llama data.valid=train.h5

# To peft a name in modules_to_save is how a path ends, "norm" each norm; here it is a module.
norm_loss() { # norm_loss NAME SETTINGS...: an adapter is trained, written, and evaluated
    name=$1
    shift
    # shellcheck disable=SC2086
    "$TRIREME" train $N model.path=hf-llama lora.r=4 train.lr=2e-2 train.steps=3 run.dir="$name" "$@" >out 2>err || cat err
    "$TRIREME" convert "$name" "$name-peft" >out 2>err || cat err
    "$TRIREME" evaluate "$name" data.valid=train.h5 2>err | awk '{ print $2 }' >"$name.loss"
}
evaluate_peft() { "$TRIREME" evaluate $N data.valid=train.h5 model.path=hf-llama lora.path="$1"; }
norm_loss norm lora.modules_to_save=norm
is "norm is written as peft finds it alone" '"modules_to_save":["model.norm"]' \
    "$(tr -d ' \n' <norm-peft/adapter_config.json | grep -o '"modules_to_save":[^]]*]')"
norm_loss norms lora.modules_to_save=norm,input_layernorm,post_attention_layernorm
evaluate_peft norms-peft >want 2>err
tr -d '\n' <norms-peft/adapter_config.json | sed 's/"modules_to_save": *\[[^]]*/"modules_to_save": ["norm"/' >config
mv config norms-peft/adapter_config.json
evaluate_peft norms-peft >got 2>err || cat err
is "norm in a file of peft's is each norm" "$(cat want)" "$(cat got)"
# A run that began with it means the same modules when lora.path is cleared, and gives peft its name.
"$TRIREME" train $N model.path=hf-llama lora.path=norms-peft checkpoint.frozen=full train.lr=2e-2 \
    train.steps=2 run.dir=each-norm >out 2>err || cat err
cp -r each-norm without-path
"$TRIREME" train each-norm train.steps=4 >out 2>err || cat err
"$TRIREME" train without-path train.steps=4 lora.path= >out 2>err || cat err
is "a run goes on without lora.path, with the same modules" "$(loss each-norm 4)" "$(loss without-path 4)"
"$TRIREME" convert without-path each-norm-peft >out 2>err || cat err
is "and is written as peft had it" '"modules_to_save":["norm"]' \
    "$(tr -d ' \n' <each-norm-peft/adapter_config.json | grep -o '"modules_to_save":[^]]*]')"
refused "a * in lora.target_modules" 'lora.target_modules: [*]proj has a [*], which is of lora.modules_to_save' \
    "$TRIREME" train $N model.path=hf-llama run.dir=never lora.r=4 'lora.target_modules=*proj'
if python; then
    "$TRIREME" convert norm norm-merged --merge >out 2>err
    "$TRIREME_PYTHON" "$top/tests/cli/lora_check.py" same hf-llama norm-peft norm-merged train.h5 "$(cat norm.loss)" >check 2>&1
    is "peft reads norm" "0 1" "$? $(grep -c '^logits within' check)"
else
    skip "peft reads norm" "no peft"
fi

"$TRIREME" train $N $M lora.r=4 train.steps=2 run.dir=random >out 2>err
is "beside random weights: a warning" "0 1" \
    "$? $(grep -c 'warning: adapters .lora\.r. are trained beside a frozen model of random weights' err)"
"$TRIREME" train random train.steps=3 >out 2>err
is "not again when it goes on" "0 0" "$? $(grep -c 'random weights' err)"
"$TRIREME" train $T lora.r=4 train.steps=2 run.dir=beside >out 2>err
is "nor beside a model's own" "0 0" "$? $(grep -c 'random weights' err)"

# Tensors of the adapters themselves may be frozen: the seed or lora.path makes them, model.path has
# none of them, and checkpoints hold them.
for half in "*lora_A" "layers.0.*"; do
    rm -rf half half-*
    # shellcheck disable=SC2086
    "$TRIREME" train $T data.valid=train.h5 lora.path=adapter-llama train.steps=3 \
        train.lr=1e-2 seed=3 train.freeze="$half" run.dir=half >out 2>err || cat err
    for tensors in 1 3; do
        ranks "$tensors" "$TRIREME" evaluate half parallel.tensor="$tensors" >half-out 2>err || cat err
        is "adapters with $half frozen: evaluated as trained, parallel.tensor=$tensors" near \
            "$(near "$(sed -n 's/^loss \([^ ]*\) .*/\1/p' half-out)" "$(last_metric half eval_loss)")"
    done
    "$TRIREME" convert half half-adapter >out 2>err || cat err
    "$TRIREME" convert half half-merged --merge >out 2>err || cat err
    "$TRIREME" evaluate model.path=half-merged data.valid=train.h5 data.seq_len=24 device=cpu >half-out 2>err || cat err
    is "and merged" near "$(near "$(sed -n 's/^loss \([^ ]*\) .*/\1/p' half-out)" "$(last_metric half eval_loss)")"
    # shellcheck disable=SC2086
    "$TRIREME" train $T data.valid=train.h5 lora.path=half-adapter train.steps=0 run.dir=half-again >out 2>err || cat err
    "$TRIREME" evaluate half-again >half-again-out 2>err
    is "and by its adapter" near "$(near "$(sed -n 's/^loss \([^ ]*\) .*/\1/p' half-again-out)" \
        "$(last_metric half eval_loss)")"
    rm -rf half-adapter
    "$TRIREME" train half seed=4 train.steps=4 train.lr=0 >out 2>err || cat err
    is "and goes on with what it had" near \
        "$(near "$(last_metric half eval_loss)" "$(sed -n 's/^loss \([^ ]*\) .*/\1/p' half-out)")"
done

# shellcheck disable=SC2086
ranks 3 "$TRIREME" train $T lora.r=4 train.steps=3 run.dir=one-block >out 2>err || cat err
# shellcheck disable=SC2086
ranks 3 "$TRIREME" train $T lora.r=4 train.steps=3 run.dir=one-block-frozen lora.modules_to_save=layers.2.input_layernorm \
    train.freeze=layers.2.norm1 >out 2>err || cat err
is "a module of one block, frozen: as where it is not named" near "$(near "$(loss one-block 3)" "$(loss one-block-frozen 3)")"

# Other files in the place of the model while adapters are trained beside it: what is saved then
# has the model that it was trained on.
cp -r hf-llama moving
"$TRIREME" train $N $M model.kv_heads=3 seed=9 train.steps=1 run.dir=random-llama >out 2>err || cat err
"$TRIREME" convert random-llama other-llama >out 2>err || cat err
"$TRIREME" train $N model.path=moving lora.r=4 train.steps=1000000 checkpoint.every=2 checkpoint.keep=1000 \
    checkpoint.async=true run.dir=moving-run >out 2>err &
wait_for 60 test -e moving-run/checkpoints/step-00000002/COMMIT
cp other-llama/model.safetensors moving/model.safetensors.new
mv moving/model.safetensors.new moving/model.safetensors
wait_for 60 grep -q 'in [0-9.]* s, with the frozen tensors, so not in the background' err
first=$(sed -n 's|.*/step-0*\([0-9]*\) in .* s, with the frozen tensors, so not in.*|\1|p' err | head -n 1)
is "the first with the frozen tensors is in the record" recorded \
    "$(sed -n 's/.*"saved": *\([0-9]*\).*/\1/p' moving-run/run.json | awk -v first="$first" '{ print($1 >= first ? "recorded" : $1) }')"
kill -USR1 $!
wait $!
is "a model's files that change below a run: one warning, and no failure" "75 1 0" \
    "$? $(grep -c 'moving, are no longer those that this run began with; checkpoints hold the frozen' err) $(grep -c failed err)"
last=$(find moving-run/checkpoints -name 'step-*' | sort | tail -n 1)
"$TRIREME" checkpoint show "$last" >show 2>err
is "the last checkpoint holds the frozen tensors" 1 "$(grep -c 'model/layers.0.attn.q$' show)"
"$TRIREME" checkpoint show moving-run/checkpoints/step-00000002 >show 2>err
is "the first checkpoint does not hold the frozen tensors" 0 "$(grep -c 'model/layers.0.attn.q$' show)"
end=$(last_metric moving-run step)
more=$((end + 1))
"$TRIREME" train moving-run train.steps=$more >out 2>err
is "a run whose checkpoints hold frozen tensors goes on to do so" "0 0 1" "$? $(grep -c warning err) \
$("$TRIREME" checkpoint show moving-run/checkpoints/step-"$(printf %08d $more)" | grep -c 'model/layers.0.attn.q$')"
is "with the model that it began with" 1 "$(echo "$(loss moving-run $end) $(loss moving-run $more)" |
    awk '{ print $2 < $1 + 0.01 }')"
refused "from the first, which refers to the files that were there" 'are others than when it was saved' \
    "$TRIREME" train moving-run checkpoint.resume=2 train.steps=$more
refused "a base that is gone" 'model.path' sh -c 'mv hf-llama gone; "$TRIREME" train run-llama train.steps=40; code=$?; mv gone hf-llama; exit $code'
refused "a base that has changed" 'are others than when it was saved .*; put those back, or name a folder that has them: model\.path=FOLDER' \
    "$TRIREME" train run-llama train.steps=40 model.path=merged-llama
finish
