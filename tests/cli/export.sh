#!/bin/sh
# export.sh - what goes with an exported model and adapter: the tokenizer of the run's data, or none;
# a model that others can read; and a model that has moved.
. "$(dirname "$0")/helpers.inc"

make_text
# Two tokenizers of the same text: that of the model, and one with tokens more.
mkdir small large
"$TRIREME" tokenize text --train-bpe 300 -o small/tokenizer.json >out 2>err || cat err
"$TRIREME" tokenize text --train-bpe 310 -o large/tokenizer.json >out 2>err || cat err
for made in small large; do
    "$TRIREME" tokenize text --tokenizer $made -o $made.h5 >out 2>err || cat err
done
"$TRIREME" tokenize text -o bytes.h5 >out 2>err || cat err
N="device=cpu data.seq_len=24 train.global_batch=4 run.threads=1 train.steps=1"
train() { # train RUN KEYS...
    run=$1
    shift
    # shellcheck disable=SC2086
    "$TRIREME" train $N run.dir="$run" "$@" >out 2>err || cat err
}
train first model.preset=llama-tiny model.vocab=300 data.train=small.h5
"$TRIREME" convert first base >out 2>err || cat err
cp small/tokenizer.json base

# Tuned on tokens of its own tokenizer, of one that has more, and of none that it has.
train own model.path=base data.train=small.h5 checkpoint.export_hf=true
is "the model's own tokenizer goes with it" "0 0" "$(cmp base/tokenizer.json own/hf/tokenizer.json >out; echo $?) $(
    grep -c 'has no tokenizer\|without a tokenizer' err)"
mv large aside
train more model.path=base model.vocab=310 data.train=large.h5 checkpoint.export_hf=true
is "that its tokenizer is not there is said at the start, too" "1" "$(
    grep -c 'warning: checkpoint.export_hf will write the model without a tokenizer: .*lies neither in model.path (base) nor' err)"
is "another is not taken for that of the data, at the end of a run" "no 1" "$(
    [ ! -e more/hf/tokenizer.json ] && echo no) $(grep -c 'warning: more/hf has no tokenizer: .*made with' err)"
"$TRIREME" convert more more-hf >out 2>err
is "nor by convert" "0 no 1" "$? $([ ! -e more-hf/tokenizer.json ] && echo no) $(
    grep -c 'warning: more-hf has no tokenizer: .*made with' err)"
cp aside/tokenizer.json aside/any.name
for named in aside aside/any.name; do
    rm -rf more-named
    "$TRIREME" convert more more-named --tokenizer $named >out 2>err
    is "convert --tokenizer $named" "0 0 0 tokenizer.json tokenizer_config.json" "$? $(cmp aside/tokenizer.json more-named/tokenizer.json >out; echo $?) $(
        grep -c warning err) $(cd more-named && ls | grep -v -e safetensors -e ^config.json | xargs)"
done
is "transformers is told to take the file as it is, and which token ends a text" \
    '{ "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false, "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>" }' \
    "$(xargs -d '\n' <more-named/tokenizer_config.json | tr -s ' ')"
if [ -n "${TRIREME_PYTHON-}" ] && "$TRIREME_PYTHON" -c 'import transformers' 2>/dev/null; then
    printf "it's 12345 o'clock\n\n  in  Ünïcode" >words
    "$TRIREME_PYTHON" - >out 2>err <<'EOF'
from tokenizers import Tokenizer
from transformers import AutoTokenizer
tokenizer, text = AutoTokenizer.from_pretrained("more-named"), open("words").read()
print(tokenizer.encode(text) == Tokenizer.from_file("aside/tokenizer.json").encode(text).ids, tokenizer.eos_token)
EOF
    is "and transformers makes the same ids" "True <|endoftext|>" "$(cat out)"
else
    skip "transformers makes the same ids" "no Python with transformers (TRIREME_PYTHON)"
fi
mkdir full
cp base/* full
rm full/tokenizer.json
sed 's/"eos_token_id": null/"eos_token_id": 7, "pad_token_id": 9/; s/"pad_token_id": null,//' base/config.json >full/config.json
echo '{"eos_token_id": [7, 8]}' >full/generation_config.json
train full-run model.path=full data.train=small.h5
"$TRIREME" convert full-run full-hf --tokenizer small >out 2>err
is "a model whose tokenizer lies elsewhere keeps its ids and how it generates" "0 0 7 9" "$? $(
    cmp full/generation_config.json full-hf/generation_config.json >out; echo $?) $(
    sed -n 's/.*"\(eos\|pad\)_token_id": \([0-9]*\).*/\2/p' full-hf/config.json | xargs)"
echo '{"bos_token_id": 99999, "eos_token_id": 4, "pad_token_id": 310}' >aside/generation_config.json
"$TRIREME" convert more more-ids --tokenizer aside >out 2>err
is "ids of no token beside the tokenizer: a warning of each" "0 1 1 2" "$? $(
    grep -c 'warning: more-ids/generation_config.json has 99999 as bos_token_id, which is the id of no token' err) $(
    grep -c 'warning: .* has 310 as pad_token_id' err) $(grep -c warning err)"
rm aside/generation_config.json
refused "convert with the tokenizer of other data" 'data was made with "byte-bpe.*, and --tokenizer small is "byte-bpe' \
    "$TRIREME" convert more more-small --tokenizer small
refused "convert with a tokenizer that is not there" '^trireme: error: --tokenizer: .*gone.json' \
    "$TRIREME" convert more more-gone --tokenizer gone.json
refused "convert with a tokenizer of no files" '.-tokenizer bytes has no files' "$TRIREME" convert more more-bytes --tokenizer bytes
mkdir more-other
cp small/tokenizer.json more-other
refused "convert to a folder with another tokenizer" \
    'more-other/tokenizer.json is there, and is not the tokenizer of the model, byte-bpe-.*; remove it' \
    "$TRIREME" convert more more-other --tokenizer aside
is "it is as it was" "0 tokenizer.json" "$(cmp small/tokenizer.json more-other/tokenizer.json >&2; echo $?) $(ls more-other)"
cp aside/tokenizer.json more-other
"$TRIREME" convert more more-other --tokenizer aside >out 2>err
is "convert to a folder with the same tokenizer" "0 0" "$? $(grep -c warning err)"
is "none of these left a folder" 0 "$(ls -d more-small more-gone more-bytes 2>left | wc -l | tr -d " ")"
cp aside/tokenizer.json .
"$TRIREME" convert more more-too >out 2>err
is "that of the data is, where it lies beside it" "0 0" "$(cmp aside/tokenizer.json more-too/tokenizer.json >out; echo $?) $(
    grep -c 'has no tokenizer' err)"
rm tokenizer.json
train raw model.path=base data.train=bytes.h5
"$TRIREME" convert raw raw-hf >out 2>err
is "bytes have none" "0 no 0" "$? $([ ! -e raw-hf/tokenizer.json ] && echo no) $(grep -c 'has no tokenizer' err)"

# Adapters: beside new rows, of a run, and of a model that has moved.
cp -r base noted
sed 's/{/{"wobble": 0.5,/' base/config.json >noted/config.json
# shellcheck disable=SC2086
ranks 2 "$TRIREME" train $N run.dir=rows-too model.path=noted model.vocab=310 data.train=large.h5 lora.r=2 >out 2>err
is "new rows that adapters leave frozen are warned of, once" "0 1" \
    "$? $(grep -c 'warning: these rows are frozen (lora.r): .*modules_to_save=embed_tokens,lm_head' err)"
is "and so is a member of config.json that is not known" 1 \
    "$(grep -c 'warning: noted/config.json: trireme does not know wobble' err)"
train rows model.path=base model.vocab=310 data.train=large.h5 lora.r=2
refused "adapters with a tokenizer" '.-tokenizer goes with a whole model' "$TRIREME" convert rows rows-named --tokenizer aside
"$TRIREME" convert rows rows-adapter >out 2>err
is "their adapter fits a model that has been resized alone, with other rows" "0 1" \
    "$? $(grep -c 'warning: rows-adapter: model.vocab is 310, and that of base 300: .*embeddings(310), whose .*; --merge' err)"
train learnt model.path=base model.vocab=310 data.train=large.h5 lora.r=2 lora.modules_to_save=embed_tokens,lm_head
is "those that are trained are not" 0 "$(grep -c 'these rows are frozen' err)"
"$TRIREME" convert learnt learnt-adapter >out 2>err
is "and their adapter has them" "0 1" \
    "$? $(grep -c 'warning: learnt-adapter: model.vocab is 310, .*embeddings(310); --merge' err)"
train tied model.preset=llama-tiny model.vocab=300 model.tie_embeddings=true data.train=small.h5
"$TRIREME" convert tied tied-hf >out 2>err
train tied-rows model.path=tied-hf model.vocab=310 data.train=large.h5 lora.r=2
is "new rows of an embedding that is the head too: no key is named that is refused" "1 0" \
    "$(grep -c 'warning: these rows are frozen (lora.r): .*tie_embeddings.*train.freeze' err) $(
    grep -c 'these rows.*modules_to_save' err)"
train of-run model.path=first data.train=small.h5 lora.r=2
"$TRIREME" convert of-run of-run-adapter >out 2>err
is "an adapter of a run: others cannot read its model" "0 1" \
    "$? $(grep -c "warning: of-run-adapter: the adapter.s model, first, .*trireme convert first FOLDER" err)"
train lora model.path=base data.train=small.h5 lora.r=2
"$TRIREME" convert lora lora-adapter >out 2>err
is "one of a model's folder: they can" "0 0" "$? $(grep -c warning err)"
refused "a run of which all weights are its own takes no other model" 'own/checkpoints/step-00000001 has none: all its' \
    "$TRIREME" convert own own-too model.path=base
train alone model.preset=llama-tiny model.vocab=300 data.train=small.h5 lora.r=2
"$TRIREME" convert alone alone-adapter >out 2>err
is "an adapter of random weights: nobody else has them" "0 1" "$? $(
    grep -c "warning: alone-adapter: the adapter.s model began with random weights" err)"
mv base moved
refused "a model that has moved, merged" 'model.path=FOLDER names where it is now' "$TRIREME" convert lora merged --merge
rm -rf merged
"$TRIREME" convert lora merged --merge model.path=moved >out 2>err
is "merged from where it is now" "0 21" "$? $(sed -n 's/^merged: \([0-9]*\) tensors.*/\1/p' out)"
"$TRIREME" generate lora model.path=moved --prompt "the" --tokens 2 >out 2>err
is "generate finds its tokenizer there, too" 0 $?
"$TRIREME" convert rows rows-merged --merge model.path=moved >out 2>err
is "with rows for tokens that the run has added" "0 310" "$? $(sed -n 's/.*"vocab_size": \([0-9]*\).*/\1/p' rows-merged/config.json)"
refused "evaluate says of which checkpoint the model is missing" 'lora/checkpoints/step-00000001: its frozen tensors' \
    "$TRIREME" evaluate lora data.valid=small.h5
# A model of the hub's cache has its name there in the adapter, and its commit.
hub=$work/hub/models--me--tiny/snapshots/abc
mkdir -p "$hub" "$work/hub/models--me--tiny/refs"
cp moved/* "$hub"
printf abc >"$work/hub/models--me--tiny/refs/main"
export HF_HUB_CACHE="$work/hub"
train of-hub model.path=me/tiny data.train=small.h5 lora.r=2
"$TRIREME" convert of-hub of-hub-adapter >out 2>err
is "an adapter of a model of the hub" '"base_model_name_or_path": "me/tiny","revision": "abc",' \
    "$(grep -E 'base_model|revision' of-hub-adapter/adapter_config.json | tr -d '\n' | sed 's/  //g')"
refused "convert with another key" 'convert takes no "train.lr=1"' "$TRIREME" convert lora other train.lr=1
refused "convert of nothing" 'cannot open nowhere: No such file or directory; a relative path' "$TRIREME" convert nowhere there
finish
