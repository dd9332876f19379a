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

# keys_of FAMILY: what makes a model of it.
keys_of() {
    case $1 in
    gpt2) echo model.family=gpt2 ;;
    llama) echo model.kv_heads=3 ;;
    mistral) echo model.kv_heads=2 model.sliding_window=7 ;;
    qwen2) echo model.kv_heads=2 model.qkv_bias=true model.rope_theta=1e6 ;;
    qwen3) echo model.kv_heads=2 model.qk_norm=true model.rope_scaling=yarn model.rope_factor=4 \
        model.rope_original_len=16 ;;
    esac
}

# with_last FOLDER BYTES: `bad` is the folder with these for the last bytes of its numbers.
with_last() {
    rm -rf bad
    cp -r "$1" bad
    # shellcheck disable=SC2059
    printf "$2" | dd of=bad/model.safetensors bs=1 conv=notrunc 2>dd.err \
        seek=$(($(wc -c <bad/model.safetensors) - ${#2} / 4))
}

# A model of each family, with its head tied and not, is trained, written, and taken up again.
for family in llama gpt2 mistral qwen2 qwen3; do
    for tied in true false; do
        name=$family-$tied
        keys="$(keys_of $family) model.tie_embeddings=$tied"
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
        is "$name is that to transformers" 1 \
            "$(grep -c "\"model_type\": \"$family\"" "hf-$name/config.json")"
    done
done

# Heads that do not divide the hidden size: transformers has them in a mistral, not in a llama.
# shellcheck disable=SC2086
"$TRIREME" train $M model.heads=5 model.kv_heads=5 train.steps=1 train.lr=0 run.dir=five >out 2>err || cat err
"$TRIREME" convert five hf-five >out 2>err || cat err
is "five heads of a hidden size of 36" '"model_type":"mistral" "sliding_window":null' \
    "$(tr -d ' \n' <hf-five/config.json | grep -oE '"(model_type|sliding_window)":[^,}]*' | xargs -d '\n')"
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=hf-five train.steps=1 train.lr=0 run.dir=in-five >out 2>err || cat err
is "model.path takes them" "$(first_loss five) sliding_window: 0" \
    "$(first_loss in-five) $(grep -o 'sliding_window: .*' in-five/config.yaml)"

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
# An export that is missing, because the start that was to make it was killed, say, is made by the
# next start; and none that is there once more.
G="$N model.path=hf-llama-true train.steps=3 run.dir=at-end checkpoint.export_hf=true"
for start in missing there; do
    [ $start = there ] || rm -r at-end/hf
    # shellcheck disable=SC2086
    "$TRIREME" train $G >out 2>err.$start
    is "a run that is done, its export $start" "0 1" "$? $(grep -c 'nothing to do' err.$start)"
done
is "an export that is missing is made up for, once" "1 0" "$(grep -c 'the model of step 3 is in' err.missing) $(
    grep -c 'the model of step 3 is in' err.there)"
cmp -s at-end/hf/model.safetensors hf-more/model.safetensors && ok "an export made up for is the same" ||
    not_ok "an export made up for is the same" "$(ls at-end at-end/hf | xargs)"
rm hf-llama-true/generation_config.json
# An export that cannot be removed stays beside the next one; training has not failed.
if touch at-end/hf/kept && chattr +i at-end/hf/kept 2>/dev/null; then
    G="$N model.path=hf-llama-true train.steps=4 run.dir=at-end checkpoint.export_hf=true"
    for start in first second; do
        # shellcheck disable=SC2086
        "$TRIREME" train $G >out 2>err.$start
        is "beside an export that cannot be removed, $start start" 0 $?
    done
    is "an export beside one that cannot be removed is made once, with a warning" "1 0 1 kept" "$(grep -c 'the model of step 4 is in' err.first) $(
        grep -c 'the model of step 4 is in' err.second) $(
        grep -c 'warning: the export before, at-end/hf.old, could not be removed' err.first) $(cd at-end/hf.old && ls kept)"
    G="$N model.path=hf-llama-true train.steps=5 run.dir=at-end checkpoint.export_hf=true"
    # shellcheck disable=SC2086
    "$TRIREME" train $G >out 2>err
    is "another export after one that could not be removed" "0 1 0" "$? $(ls -d at-end/hf.old | wc -l) $(ls -d at-end/hf.1 2>/dev/null | wc -l)"
    chattr -i at-end/hf.old/kept
else
    skip "an export that cannot be removed" "chattr +i does not work here"
fi
# A folder of that name that no run wrote is kept.
mkdir -p own/hf
echo note >own/hf/note
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=hf-llama-true train.steps=1 run.dir=own checkpoint.export_hf=true >out 2>err
is "what was in hf and is not the run's is kept" "0 note 1 1" "$? $(cat own/hf.1/note) $(
    grep -c 'warning: own/hf was there before, and this run does not know it as its own: it is own/hf.1 now' err) $(
    find own/hf -name model.safetensors | wc -l)"
cp -r hf-llama-true own/hf.2 && rm -r own/hf && mv own/hf.2 own/hf
# shellcheck disable=SC2086
refused "the model that a run begins with in the place of its export" \
    'checkpoint.export_hf writes to own/hf, from which this run.s weights come' \
    "$TRIREME" train $N model.path=own/hf run.dir=own run.fresh=true checkpoint.export_hf=true
mkdir lines
echo '{"text": "mine"}' >lines/samples.jsonl
# shellcheck disable=SC2086
refused "a user's samples.jsonl" 'where a run keeps a file samples.jsonl of its own' "$TRIREME" train $N \
    run.dir=lines model.path=hf-llama-true data.valid=valid.h5 generate.samples=1 train.eval_every=1 train.steps=1

# The ids of tokens are the tokenizer's, of a model from scratch, and then those of the folder.
ids_of() { tr -d ' \n' <"$1/config.json" | sed 's/.*\("bos_token_id.*\)"torch_dtype.*/\1/'; }
is "ids of tokens, from scratch" '"bos_token_id":null,"eos_token_id":256,"pad_token_id":null,' \
    "$(ids_of hf-llama-false)"
rm -rf named
cp -r hf-llama-false named
sed -i -e 's/"bos_token_id": null/"bos_token_id": 7/' -e 's/"eos_token_id": 256/"eos_token_id": [256, 9]/' \
    -e '/"pad_token_id"/d' named/config.json
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=named train.steps=0 run.dir=in-named >out 2>err || cat err
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=in-named train.steps=0 run.dir=again-named >out 2>err || cat err
"$TRIREME" convert again-named back-named >out 2>err
is "ids of tokens, of a folder" '"bos_token_id":7,"eos_token_id":[256,9],' "$(ids_of back-named)"
is "a converted folder has all of config.json" "$(tr -d ' \n' <named/config.json)" "$(tr -d ' \n' <back-named/config.json)"

# Several files and their index; formats of 16 bits.  (In fp16 small biases of GPT-2 are -0, of which a
# step at a rate of 0 makes 0.)
for name in llama-true gpt2-false; do
    "$TRIREME" convert $name "files-$name" --file-gb 0.00005 >out 2>err
    # shellcheck disable=SC2086
    "$TRIREME" train $N model.path="files-$name" train.steps=1 train.lr=0 run.dir="in-files-$name" \
        >out 2>err
    is "several files of $name" "0 $(first_loss in-$name)" "$? $(first_loss "in-files-$name")"
    is "--file-gb makes several files" 1 "$(($(find "files-$name" -name 'model-*' | wc -l) > 2))"
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
    for name in llama-false gpt2-true qwen2-true qwen3-false; do
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
bad "rotary positions that are not there" 'rope type "longrope" is not one' \
    's/"rope_theta"/"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0]}, "rope_theta"/'
bad "positions that make all queries 0" 'attention_factor is 0, with which all queries and keys are 0' \
    's/"rope_theta"/"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 0}, "rope_theta"/'
bad "members of positions that are not known" 'mrope_section of the rotary positions' \
    's/"rope_theta"/"rope_scaling": {"rope_type": "default", "mrope_section": [1, 2]}, "rope_theta"/'
bad "a part of a head that rotates" 'partial_rotary_factor is 0.5, which trireme does not have' \
    's/"rope_theta"/"partial_rotary_factor": 0.5, "rope_theta"/'
bad "scores that are capped" 'attn_logit_softcapping is 50, which trireme does not have' \
    's/"rope_theta"/"attn_logit_softcapping": 50.0, "rope_theta"/'
bad "weights that are quantized" 'quantization_config is of weights .gptq. that are not read here' \
    's/"rope_theta"/"quantization_config": {"bits": 4, "quant_method": "gptq"}, "rope_theta"/'
bad "4 bits that are not nf4" 'quantization_config is of weights .bitsandbytes. that are not read here' \
    's/"rope_theta"/"quantization_config": {"load_in_4bit": true, "bnb_4bit_quant_type": "fp4"}, "rope_theta"/'
bad "layers that differ" 'of 3 layers 1 have a sliding window' \
    's/"rope_theta"/"layer_types": ["full_attention", "sliding_attention", "full_attention"], "rope_theta"/'
bad "layers of another kind" 'layer_types has "chunked_attention"' \
    's/"rope_theta"/"layer_types": ["chunked_attention"], "rope_theta"/'
bad "kinds of layers for another number of layers" 'layer_types has 1 entries, and num_hidden_layers is 3' \
    's/"rope_theta"/"layer_types": ["full_attention"], "rope_theta"/'
bad "biases that are not there" 'attention_bias is true' \
    's/"rope_theta"/"attention_bias": true, "rope_theta"/'
bad "a sliding window" 'sliding_window is set' 's/"rope_theta"/"sliding_window": 4096, "rope_theta"/'
bad "a size that is missing" 'hidden_size is missing' '/"hidden_size"/d'
linear='"rope_type": "linear", "factor": 4.0'
bad "two objects of positions that differ" 'rope_scaling and rope_parameters say different' \
    "s/\"rope_theta\"/\"rope_parameters\": {\"rope_type\": \"default\"}, \"rope_scaling\": {$linear}, &/"
bad "two bases of positions" 'rope_scaling and rope_parameters say different' \
    "s/\"rope_theta\": [^,]*/\"rope_parameters\": {\"rope_theta\": 5e5, $linear}, \"rope_scaling\": {$linear}/"
bad "a number as text" 'num_attention_heads is a text, "6"; a whole number is wanted' \
    's/"num_attention_heads": 6/"num_attention_heads": "6"/'
bad "a size with a fraction" 'hidden_size is a number, 36.5; a whole number is wanted' \
    's/"hidden_size": 36/"hidden_size": 36.5/'
bad "a real number as text" 'rms_norm_eps is a text, "1e-6"; a number is wanted' \
    's/"rms_norm_eps": [^,]*/"rms_norm_eps": "1e-6"/'
bad "false as text" 'tie_word_embeddings is a text, "true"; true or false is wanted' \
    's/"tie_word_embeddings": false/"tie_word_embeddings": "true"/'
bad "positions as text" 'rope_parameters is a text, "linear"; an object is wanted' \
    's/"rope_theta"/"rope_parameters": "linear", "rope_theta"/'
bad "a base of positions as text" 'rope_theta is a text, "1e6"; a number is wanted' \
    's/"rope_theta"/"rope_parameters": {"rope_theta": "1e6"}, "rope_theta"/'
bad "a type of positions as a number" 'rope_type is a number, 3; a text is wanted' \
    's/"rope_theta"/"rope_scaling": {"rope_type": 3}, "rope_theta"/'
bad "kinds of layers as text" 'layer_types is a text, "full_attention"; a list is wanted' \
    's/"rope_theta"/"layer_types": "full_attention", "rope_theta"/'
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
# not_finite NAME FILES BYTES SETTINGS...: the last number of the folder FILES is these bytes, NaN or inf.
not_finite() {
    name=$1
    with_last "$2" "$3"
    shift 3
    # shellcheck disable=SC2086
    refused "$name" 'bad/model.safetensors: tensor "[a-z.0-9_]*" has numbers that are not finite' \
        "$TRIREME" evaluate $N data.valid=train.h5 model.path=bad run.dir=never "$@"
}
not_finite "NaN in fp32" hf-llama-false '\000\000\300\177'
not_finite "inf in bf16, kept as it is" bf16-llama-true '\200\177' precision=bf16_pure
not_finite "NaN in fp16, read for the node" fp16-llama-true '\001\374' model.loading=node
not_finite "-inf in a transposed matrix" hf-gpt2-false '\000\000\200\377'

# A model that is tied, and whose file has a head of its own.
rm -rf bad
cp -r hf-llama-false bad
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' bad/config.json
# shellcheck disable=SC2086
refused "a tied head that differs" '"lm_head.weight" is not "model.embed_tokens.weight"' \
    "$TRIREME" train $N model.path=bad run.dir=never
mkdir -p begun/checkpoints
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=bad run.dir=begun >out 2>err
is "a tied head that differs, in a run that has begun and has no checkpoint" "1 1" \
    "$? $(grep -c '"lm_head.weight" is not "model.embed_tokens.weight"' err)"
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=bad model.tie_embeddings=false train.steps=1 train.lr=0 \
    run.dir=untied >out 2>err
is "a head that differs is taken where it is asked for" "0 $(first_loss in-llama-false)" "$? $(first_loss untied)"
rm -rf cut
cp -r hf-llama-false cut
truncate -s -100 cut/model.safetensors
# shellcheck disable=SC2086
refused "a file that is cut off" 'cut/model.safetensors: .*cut off' \
    "$TRIREME" train $N model.path=cut run.dir=never
rm -rf pickles
mkdir pickles
cp hf-llama-false/config.json pickles
for command in train evaluate; do
    # shellcheck disable=SC2086
    refused "$command of a folder without weights" 'pickles has no weights: .*model.init=scratch' \
        "$TRIREME" $command $N data.valid=valid.h5 model.path=pickles run.dir=never
done
ln -s gone pickles/model.safetensors
# shellcheck disable=SC2086
refused "weights that are a link to nothing" 'pickles has no weights: ' \
    "$TRIREME" train $N model.path=pickles run.dir=never
rm pickles/model.safetensors
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=pickles model.init=scratch train.steps=1 run.dir=scratch >out 2>err
is "model.init=scratch needs config.json alone" 0 $?
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
refused "evaluate of a model's folder" 'holds no checkpoint; .*: model.path=hf-llama-true$' \
    "$TRIREME" evaluate hf-llama-true data.valid=train.h5
refused "convert of a model's folder" "no checkpoint there; it is a model's folder, .* model.path=hf-llama-true\$" \
    "$TRIREME" convert hf-llama-true again
refused "convert to a folder in use" 'holds a model already' "$TRIREME" convert llama-true hf-llama-true
mkdir mine
echo '{"mine": 1}' >mine/config.json
refused "convert to a folder with another's config.json" 'mine holds a model already, config.json' \
    "$TRIREME" convert llama-true mine
is "convert leaves another's folder as it was" '{"mine": 1}' "$(cat mine/*)"
ls llama-true llama-true/checkpoints/* >before
refused "convert to the run itself" 'llama-true is the directory of a run: name another folder' \
    "$TRIREME" convert llama-true llama-true
refused "convert to a checkpoint" 'is a checkpoint: name another folder' \
    "$TRIREME" convert llama-true "$(newest_checkpoint llama-true)"
is "both stay as they were" "$(xargs <before)" "$(ls llama-true llama-true/checkpoints/* | xargs)"
refused "convert to a folder without a name" "convert llama-true '': name a folder" \
    "$TRIREME" convert llama-true ""
refused "convert to a format that is none" 'dtype is fp32' \
    "$TRIREME" convert llama-true other --dtype int8

# Numbers that the format does not hold: 1e6.
with_last hf-llama-false '\000\044\164\111'
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=bad train.steps=0 run.dir=large >out 2>err || cat err
refused "numbers beyond those of fp16" 'tensor "lm_head.weight" has 1e.06, and fp16 ends at 65504; .*--dtype bf16' \
    "$TRIREME" convert large large-fp16 --dtype fp16
is "numbers beyond those of fp16 leave no file" 0 "$(find large-fp16 -type f | wc -l)"
"$TRIREME" convert large large-bf16 --dtype bf16 >out 2>err
is "bf16 holds them" 0 $?

# What is not known is named, and no more.
rm -rf odd
cp -r hf-llama-false odd
sed -i 's/"rope_theta"/"wobble": 0.5, "nothing": 0, "norm_topk_prob": true, "rope_theta"/' odd/config.json
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=odd train.steps=1 run.dir=in-odd >out 2>err
is "what is not known is named, also where another type has it" "0 1" \
    "$? $(grep -c 'not know wobble, norm_topk_prob and computes' err)"

# Two objects that say the same, of which one is named as in old files, are one.
sed -i -e "s/\"rope_theta\": [^,]*/\"rope_parameters\": {\"rope_theta\": 5e5, $linear}, \"rope_scaling\": 0/" \
    -e 's/\("rope_scaling": \)0/\1{"rope_theta": 5e5, "type": "linear", "factor": 4}/' odd/config.json
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=odd train.steps=0 run.dir=in-both >out 2>err
is "two objects of positions that say the same" "0 1 1" \
    "$? $(grep -c 'rope_theta: 500000' in-both/config.yaml) $(grep -c 'rope_scaling: linear' in-both/config.yaml)"

# layer_types of null is no list: max_window_layers says which layers slide.
rm -rf odd
cp -r hf-qwen2-false odd
sed -i -e 's/"use_sliding_window": false/"use_sliding_window": true, "sliding_window": 7, "layer_types": null/' \
    -e 's/"max_window_layers": [0-9]*/"max_window_layers": 0/' odd/config.json
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=odd train.steps=0 run.dir=in-null >out 2>err
is "layer_types of null" "0 1" "$? $(grep -c 'sliding_window: 7' in-null/config.yaml)"

# A run, and a checkpoint, give their weights and nothing else, whatever optimizer they had.
first_of() { # first_of NAME SETTINGS...: the loss of the first step, of which the rate is 0
    name=$1
    shift
    # shellcheck disable=SC2086
    "$TRIREME" train $N train.steps=1 train.lr=0 run.dir="$name" "$@" >out 2>err || cat err
    first_loss "$name"
}
is "model.path takes a run" "$(first_loss in-qwen3-false)" \
    "$(first_of from-run model.path=qwen3-false train.optimizer=sgd)"
is "model.path takes a run, and its weights are named" 1 "$(grep -c 'weights begin with those of qwen3-false/checkpoints/step-0*3, of step 3' err)"
checkpoint=$(echo qwen2-true/checkpoints/step-*3)
is "model.path takes a checkpoint" "$(first_loss in-qwen2-true)" \
    "$(first_of from-checkpoint "model.path=$checkpoint")"
is "several ranks take a run" near "$(near "$(
    # shellcheck disable=SC2086
    ranks 2 "$TRIREME" train $N model.path=qwen2-true train.steps=1 train.lr=0 run.dir=from-run-2 \
        parallel.tensor=2 model.sync_module_states=true >out 2>err </dev/null || cat err
    first_loss from-run-2
)" "$(first_loss in-qwen2-true)")"
is "ranks compare what they share" 1 "$(grep -c 'parts of tensors are alike on the ranks' err)"
# shellcheck disable=SC2086
refused "a run of another shape" 'tensor model/layers.3.norm1 is missing' \
    "$TRIREME" train $N model.path=qwen3-false model.layers=4 run.dir=never
is "model.init=scratch begins from the seed" "$(first_loss llama-false)" \
    "$(first_of new model.path=hf-llama-false model.init=scratch model.init_std=0.02 train.steps=3)"
refused "model.init=scratch of nothing" 'model.init is scratch' \
    "$TRIREME" train $M model.init=scratch run.dir=never

# A name of the hub is looked for in the cache.
hub=cache/hub/models--some-org--a.model
mkdir -p $hub/refs $hub/snapshots
cp -r hf-qwen2-true $hub/snapshots/0123abcd
printf 0123abcd >$hub/refs/main
HF_HOME=$PWD/cache
export HF_HOME
is "a name of the hub" "$(first_loss in-qwen2-true)" \
    "$(first_of from-hub model.path=some-org/a.model)"
is "config.yaml says which snapshot it was" 1 \
    "$(grep -c 'path: ".*/snapshots/0123abcd"' from-hub/config.yaml)"
is "a revision of it" "$(first_loss in-qwen2-true)" \
    "$(first_of from-revision model.path=some-org/a.model@0123abcd)"
# shellcheck disable=SC2086
"$TRIREME" tokenize "$top/README.md" --train-bpe 300 -o $hub/snapshots/0123abcd/tokenizer.json >out 2>err || cat err
"$TRIREME" tokenize "$top/README.md" --tokenizer $hub/snapshots/0123abcd -o of-folder.h5 >out 2>err || cat err
"$TRIREME" tokenize "$top/README.md" --tokenizer some-org/a.model -o of-hub.h5 >out.hub 2>err
is "the tokenizer of a model of the hub, by its name" "0 $(sed 's/of-folder/of-hub/' out)" "$? $(cat out.hub)"
HUGGINGFACE_HUB_CACHE=$PWD/cache/hub HF_HOME=$PWD/none "$TRIREME" tokenize "$top/README.md" --tokenizer some-org/a.model \
    -o of-hub.h5 >out 2>err
is "the cache by the name that its variable had before" "0 $(cat out.hub)" "$? $(cat out)"
refused "a tokenizer that the cache has not" 'some-org/none is no file or folder.*hf download some-org/none' \
    "$TRIREME" tokenize "$top/README.md" --tokenizer some-org/none -o x.h5
refused "a tokenizer without an owner" \
    'gpt2 is not "bytes".* in the cache of.*; bring it here: hf download ORG/NAME --local-dir gpt2$' \
    "$TRIREME" tokenize "$top/README.md" --tokenizer gpt2 -o x.h5
# shellcheck disable=SC2086
for file in __0_0.distcp:PyTorch consolidated.00.pth:Meta zero_to_fp32.py:DeepSpeed iter_0000100:Megatron-LM \
    q4_0.gguf:GGUF ckpt.pt:nanoGPT model_00000100.bin:llm.c; do
    mkdir -p other
    : >"other/${file%%:*}"
    refused "a checkpoint of ${file#*:}" "other is .*${file#*:}.*which trireme does not read; model.path wants a folder with" \
        "$TRIREME" plan model.path=other
    rm -r other
done
: >q4_0.gguf
refused "a file in GGUF" 'q4_0.gguf is a model in GGUF' "$TRIREME" plan model.path=q4_0.gguf
refused "a model without an owner" 'bring it here: hf download ORG/NAME --local-dir llama3; before it is there, plans are made with model.preset=NAME$' \
    "$TRIREME" train $N model.path=llama3 run.dir=never
for command in evaluate plan; do
    refused "$command: a model where a file is wanted" "some-org/a.model is a model.*: model.path=some-org/a.model$" \
        "$TRIREME" $command some-org/a.model
    refused "$command: a model that the cache has not" "cannot open some-org/other: .*; .* model.path=some-org/other$" \
        "$TRIREME" $command some-org/other
done
refused "a name that the cache has not" 'cache/hub; bring it there: hf download some-org/other' \
    "$TRIREME" train $N model.path=some-org/other run.dir=never
# shellcheck disable=SC2086
refused "a revision that the cache has not" 'bring it there: hf download some-org/other --revision v2; before it is there, .*$' \
    "$TRIREME" train $N model.path=some-org/other@v2 run.dir=never
unset HF_HOME

# transformers loads what was written, and has the checkpoint's numbers.  A Python with torch takes
# seconds to start, so that one does all of a kind.
if [ -n "${TRIREME_PYTHON-}" ] && "$TRIREME_PYTHON" -c 'import h5py, transformers' 2>/dev/null; then
    written="llama-true llama-false gpt2-true gpt2-false mistral-true qwen2-true qwen2-false qwen3-true
        qwen3-false"
    for name in $written; do
        echo "hf-$name $(find "$name/checkpoints" -name index.h5)"
    done | "$TRIREME_PYTHON" "$top/tests/cli/hf_check.py" >check.out 2>err.check
    for name in $written; do
        is "transformers loads $name" "tensors are equal" \
            "$(sed -n "s/^hf-$name: //p" check.out | grep . || tail -n 3 err.check)"
    done
    # From transformers, trained here, back to transformers; and what is not trained, bit by bit.
    kinds="llama mistral qwen2 qwen3 phi3 gpt2"
    model="$TRIREME_PYTHON $top/tests/cli/hf_model.py"
    awk 'BEGIN { for (i = 0; i < 400; i++) printf "%d squared is %d. ", i, i * i }' >squares
    "$TRIREME" tokenize squares -o squares.h5 >out 2>err
    for kind in $kinds; do
        echo "make $kind made-$kind"
    done | $model >check.out 2>&1 || cat check.out
    for kind in $kinds; do
        # shellcheck disable=SC2086
        ranks 3 "$TRIREME" train $N model.path=made-$kind precision=bf16 train.steps=10 \
            train.global_batch=6 train.lr=3e-3 parallel.strategy=FULL_SHARD run.dir=tuned-$kind \
            >out 2>err </dev/null || cat err
        "$TRIREME" convert tuned-$kind tuned-hf-$kind --dtype fp32 >out 2>err
        # shellcheck disable=SC2086
        "$TRIREME" train $N model.path=made-$kind train.steps=0 run.dir=same-$kind >out 2>err || cat err
        "$TRIREME" convert same-$kind same-hf-$kind --dtype bf16 >out 2>err
        # shellcheck disable=SC2086
        "$TRIREME" train $N data.train=squares.h5 model.path=made-$kind train.steps=60 train.lr=3e-3 \
            train.warmup_steps=5 run.dir=writes-$kind >out 2>err || cat err
        "$TRIREME" convert writes-$kind writes-hf-$kind >out 2>err
        echo "loss tuned-hf-$kind train.h5 >loss-$kind"
        echo "same made-$kind same-hf-$kind >same-$kind.out"
        echo "text writes-hf-$kind squares.h5 64 >text-$kind"
    done >wanted
    $model <wanted >check.out 2>&1 || cat check.out
    for kind in $kinds; do
        "$TRIREME" evaluate tuned-$kind precision=fp32 data.valid=train.h5 >out 2>err || cat err
        here=$(sed -n 's/^loss \([0-9.]*\).*/\1/p' out)
        is "transformers has the loss of $kind trained here, $here" near \
            "$(echo "$here $(cat loss-$kind)" | awk '{ d = $1 / ($2 + 1e-9) - 1; print d * d < 1e-8 ? "near" : $0 }')"
        is "$kind of transformers, there and back" "the same bits" "$(cat same-$kind.out)"
        "$TRIREME" generate writes-$kind data.seq_len=100 --prompt "$(head -c 24 squares)" --tokens 64 \
            --temperature 0 >out 2>err || cat err
        is "64 tokens that $kind writes are those of transformers" "$(cat text-$kind)" "$(tail -c +25 out)"
        "$TRIREME" generate writes-hf-$kind data.seq_len=100 --prompt "$(head -c 24 squares)" --tokens 64 \
            --tokenizer bytes --temperature 0 device=cpu >out 2>err || cat err
        is "64 tokens that $kind writes from the folder are those of transformers" \
            "$(cat text-$kind)" "$(tail -c +25 out)"
    done
else
    skip "transformers loads what convert writes" "no Python with transformers and h5py (TRIREME_PYTHON)"
fi

# Of a GPT-2 config.json says no width of heads.
W="$N model.family=gpt2 model.layers=1 model.hidden=32 model.heads=4 model.head_dim=4 model.ffn=64 model.vocab=257
   data.train=train.h5 train.steps=1 run.dir=wide"
"$TRIREME" train $W >out 2>err
is "a GPT-2 with narrow heads trains" 0 $?
refused "a GPT-2 with narrow heads is not exported" 'a GPT-2 of Hugging Face.s has heads as wide as .* not 4' "$TRIREME" convert wide wide-hf
refused "which is said before it is trained for that" 'checkpoint.export_hf is set, .* has model.head_dim 8' \
    "$TRIREME" train $W checkpoint.export_hf=true run.dir=wide-too
finish
