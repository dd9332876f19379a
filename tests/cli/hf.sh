#!/bin/sh
# hf.sh - models of Hugging Face's folders: out (convert) and in (model.path), the same bits there
# and back, on any layout; and what is refused.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
N="device=cpu precision=fp32 data.train=train.h5 data.seq_len=24 train.global_batch=4 run.threads=1"
M="$N model.layers=3 model.hidden=36 model.heads=6 model.head_dim=6 model.ffn=61 model.vocab=257
   model.max_seq_len=32"

first_loss() { sed -n 's/.*"step": *1,.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }

# near A B: two losses within 1e-6, relative
near() { echo "$1 $2" | awk '{ d = $1 / $2 - 1; print d * d < 1e-12 ? "near" : $0 }'; }

# A model of each family, with its head tied and not, is trained, written, and taken up again.
for family in llama gpt2; do
    for tied in true false; do
        name=$family-$tied
        keys="model.family=$family model.tie_embeddings=$tied"
        [ $family = gpt2 ] || keys="$keys model.kv_heads=3"
        # shellcheck disable=SC2086
        "$TRIREME" train $M $keys train.steps=3 run.dir="$name" >out 2>err || cat err
        "$TRIREME" convert "$name" "hf-$name" >convert.out 2>err
        is "convert $name" "0 1" "$? $(grep -c 'tensors in fp32, of step 3 of' convert.out)"
        # shellcheck disable=SC2086
        "$TRIREME" train $N model.path="hf-$name" train.steps=1 train.lr=0 run.dir="in-$name" \
            >out 2>err
        is "model.path takes $name" "0 1" "$? $(grep -c "weights begin with those of hf-$name" err)"
        "$TRIREME" convert "in-$name" "back-$name" >out 2>err
        if cmp -s "hf-$name/model.safetensors" "back-$name/model.safetensors" &&
            cmp -s "hf-$name/config.json" "back-$name/config.json"; then
            ok "$name: there and back, the same bits"
        else
            not_ok "$name: there and back, the same bits" "the files differ"
        fi
    done
done

# The same at the end of a run, and the tokenizer's files with it, which no training changes.
echo '{"eos_token_id": 256}' >hf-llama-true/generation_config.json
for run in at-end more; do
    steps=2
    [ $run = at-end ] || steps=3
    # shellcheck disable=SC2086
    ranks 2 "$TRIREME" train $N model.path=hf-llama-true train.steps=$steps run.dir=at-end \
        checkpoint.export_hf=true parallel.strategy=FULL_SHARD >out 2>err.train </dev/null || cat err.train
    "$TRIREME" convert at-end hf-$run >out 2>err
    is "checkpoint.export_hf after step $steps" "1 config.json generation_config.json model.safetensors" \
        "$(grep -c "the model of step $steps is in .*at-end/hf" err.train) $(cd at-end/hf && echo *)"
    if cmp -s at-end/hf/model.safetensors hf-$run/model.safetensors &&
        cmp -s hf-llama-true/generation_config.json hf-$run/generation_config.json; then
        ok "what convert writes after step $steps"
    else
        not_ok "what convert writes after step $steps" "the files differ"
    fi
done
rm hf-llama-true/generation_config.json

# Several files and their index; formats of 16 bits.  (In fp16 small biases of GPT-2 are -0, of which a
# step at a rate of 0 makes 0.)
for name in llama-true gpt2-false; do
    "$TRIREME" convert $name "files-$name" --file-gb 0.00005 >out 2>err
    # shellcheck disable=SC2086
    "$TRIREME" train $N model.path="files-$name" train.steps=1 train.lr=0 run.dir="in-files-$name" \
        >out 2>err
    is "several files of $name" "0 $(first_loss in-$name)" "$? $(first_loss "in-files-$name")"
    is "and they are several" 1 "$(($(find "files-$name" -name 'model-*' | wc -l) > 2))"
    for dtype in bf16 fp16; do
        [ $dtype-$name != fp16-gpt2-false ] || continue
        "$TRIREME" convert $name "$dtype-$name" --dtype $dtype >out 2>err
        # shellcheck disable=SC2086
        "$TRIREME" train $N model.path="$dtype-$name" train.steps=1 train.lr=0 \
            run.dir="in-$dtype-$name" >out 2>err
        "$TRIREME" convert "in-$dtype-$name" "back-$dtype-$name" --dtype $dtype >out 2>err
        if cmp -s "$dtype-$name/model.safetensors" "back-$dtype-$name/model.safetensors"; then
            ok "$name in $dtype, there and back"
        else
            not_ok "$name in $dtype, there and back" "the files differ"
        fi
    done
done

# Each rank reads what it holds.
while read -r ranks keys; do
    for name in llama-false gpt2-true; do
        # shellcheck disable=SC2086
        ranks "$ranks" "$TRIREME" train $N model.path="hf-$name" train.steps=1 $keys \
            run.dir="on-$ranks-$name" run.fresh=true >out 2>err </dev/null || cat err
        is "$name on $ranks ranks, $keys" near \
            "$(near "$(first_loss "on-$ranks-$name")" "$(first_loss "in-$name")")"
    done
done <<'END'
2 parallel.strategy=FULL_SHARD
2 parallel.tensor=2
3 parallel.tensor=3 parallel.tensor_overlap=2
4 parallel.tensor=2 parallel.pipeline=2
4 parallel.strategy=HYBRID_SHARD parallel.shard=2
END

# A run goes on without the folder that it began from.
cp -r hf-llama-true gone
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=gone train.steps=2 run.dir=goes-on >out 2>err
rm -r gone
# shellcheck disable=SC2086
"$TRIREME" train goes-on train.steps=3 >out 2>err
is "a run goes on without the folder" "0 1" "$? $(grep -c 'resumed at step 2' err)"

# shellcheck disable=SC2086
refused "a new run does not, with the settings of that one" 'gone has no config.json' \
    "$TRIREME" train goes-on/config.yaml run.dir=never

# What is refused, with its name.
bad() { # bad NAME PATTERN SED-SCRIPT: config.json changed
    rm -rf bad
    cp -r hf-llama-false bad
    sed -i "$3" bad/config.json
    # shellcheck disable=SC2086
    refused "$1" "$2" "$TRIREME" train $N model.path=bad run.dir=never
}
bad "an architecture that is not there" 'bad/config.json: model_type "falcon" is not one' \
    's/"model_type": "llama"/"model_type": "falcon"/'
bad "an activation that is not there" 'hidden_act is "gelu"; trireme has silu' 's/"silu"/"gelu"/'
bad "rotary positions that are not there" 'rope type "yarn" is not one' \
    's/"rope_theta"/"rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "rope_theta"/'
bad "biases that are not there" 'attention_bias is true' \
    's/"rope_theta"/"attention_bias": true, "rope_theta"/'
bad "a sliding window" 'sliding_window is set' 's/"rope_theta"/"sliding_window": 4096, "rope_theta"/'
bad "a size that is missing" 'hidden_size is missing' '/"hidden_size"/d'
bad "another size" 'tensor "model.layers.0.mlp.gate_proj.weight" has another shape' \
    's/"intermediate_size": 61/"intermediate_size": 62/'
bad "fewer layers than the files have" 'tensor "model.layers.2..*" is none of this model' \
    's/"num_hidden_layers": 3/"num_hidden_layers": 2/'
bad "more layers than the files have" 'tensor "model.layers.3.input_layernorm.weight" is missing' \
    's/"num_hidden_layers": 3/"num_hidden_layers": 4/'
rm -rf bad
cp -r hf-llama-true bad
sed -i 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' bad/config.json
# shellcheck disable=SC2086
refused "a head that the files have not" 'tensor "lm_head.weight" is missing' \
    "$TRIREME" train $N model.path=bad run.dir=never
rm -rf cut
cp -r hf-llama-false cut
truncate -s -100 cut/model.safetensors
# shellcheck disable=SC2086
refused "a file that is cut off" 'cut/model.safetensors: .*cut off' \
    "$TRIREME" train $N model.path=cut run.dir=never
rm -rf pickles
mkdir pickles
cp hf-llama-false/config.json pickles
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=pickles train.steps=1 run.dir=scratch >out 2>err
is "a folder with config.json alone begins from the seed" "0 1" \
    "$? $(grep -c 'pickles has no model.safetensors: weights begin from the seed' err)"
: >pickles/pytorch_model.bin
# shellcheck disable=SC2086
refused "weights that are a program" 'pytorch_model.bin' \
    "$TRIREME" train $N model.path=pickles run.dir=never
# shellcheck disable=SC2086
refused "a folder that is not there" 'hf download no/where' "$TRIREME" train $N model.path=no/where
# shellcheck disable=SC2086
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=hf-llama-true train.steps=1 run.dir=from-job >out 2>err
sed -e '/^  path:/d' -e 's/^  preset:.*/  preset: llama-tiny/' from-job/config.yaml >job.yaml
"$TRIREME" train job.yaml model.path=hf-llama-true run.dir=job-run >out 2>err
is "a folder takes the place of a job's preset" "0 1" "$? $(grep -c 'weights begin with those of hf-llama-true' err)"
refused "a preset and a folder" 'two models' \
    "$TRIREME" train $N model.path=hf-llama-true model.preset=llama-tiny
refused "convert to a folder in use" 'holds a model already' "$TRIREME" convert llama-true hf-llama-true
refused "convert to a format that is none" 'dtype is fp32' \
    "$TRIREME" convert llama-true other --dtype int8

# transformers loads what was written, and has the checkpoint's numbers.
if [ -n "${TRIREME_PYTHON-}" ] && "$TRIREME_PYTHON" -c 'import h5py, transformers' 2>/dev/null; then
    for name in llama-true llama-false gpt2-true gpt2-false; do
        if "$TRIREME_PYTHON" "$top/tests/cli/hf_check.py" hf-$name \
            "$(find "$name/checkpoints" -name index.h5)" >check.out 2>&1; then
            ok "transformers loads $name"
        else
            not_ok "transformers loads $name" "$(tail -n 3 check.out)"
        fi
    done
else
    skip "transformers loads what convert writes" "no Python with transformers and h5py (TRIREME_PYTHON)"
fi
finish
