#!/bin/sh
# dropout.sh - dropout from the files of Hugging Face's programs and back: what config.json and
# adapter_config.json ask for is done in training, and nowhere else.
. "$(dirname "$0")/../cli/helpers.inc"

# 8 windows of 24, all of them one batch.
awk 'BEGIN { for (i = 0; i < 60; i++) printf "%d squared is %d. ", i, i * i }' | head -c 192 >text
"$TRIREME" tokenize text -o train.h5 >out 2>err || cat err
N="device=cpu data.train=train.h5 data.valid=train.h5 data.seq_len=24 train.global_batch=8
   run.threads=1 train.schedule=constant train.warmup_steps=0"
M="model.layers=3 model.hidden=36 model.heads=6 model.head_dim=6 model.ffn=61 model.vocab=257
   model.max_seq_len=32"
loss() { sed -n 's/.*"step": *'"$2"',.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl" | head -n 1; }
valid() { sed -n 's/.*"eval_loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1; }
lower() { echo "$1 $2 ${3-0}" | awk '{ print $1 < $2 - $3 }'; }
member() { sed -n 's/.*"'"$2"'": *\([^,}]*\).*/\1/p' "$1"; }

# A model without, and the same folder as published ones are.
# shellcheck disable=SC2086
"$TRIREME" train $N $M model.family=gpt2 model.tie_embeddings=true train.steps=5 train.lr=3e-3 \
    run.dir=base >out 2>err || cat err
"$TRIREME" convert base plain >out 2>err || cat err
is "without dropout config.json says so" "0.0 0.0 0.0" \
    "$(member plain/config.json embd_pdrop) $(member plain/config.json resid_pdrop) $(member plain/config.json attn_pdrop)"
cp -r plain published
sed -i 's/pdrop": 0.0/pdrop": 0.1/' published/config.json
T="train.steps=30 train.lr=3e-3 train.eval_every=30"
# shellcheck disable=SC2086
{
    "$TRIREME" train $N $T model.path=plain run.dir=kept >out 2>err || cat err
    "$TRIREME" train $N $T model.path=published run.dir=dropped >out 2>err
}
is "a folder with 0.1 is trained, without a warning" "0 0" "$? $(grep -c dropout err)"
is "losses with dropout differ from those without" 1 "$(echo "$(loss kept 1) $(loss dropped 1)" | awk '{ print $1 != $2 }')"
is "losses with dropout fall" 1 "$(lower "$(loss dropped 30)" "$(loss dropped 1)" 0.2)"
is "evaluation drops nothing" 1 "$(lower "$(valid dropped)" "$(loss dropped 30)")"
is "config.yaml says what was done" "0.1 0.1 0.1" \
    "$(sed -n 's/^  [a-z]*_dropout: *//p' dropped/config.yaml | tr '\n' ' ' | sed 's/ $//')"
"$TRIREME" convert dropped back >out 2>err
is "dropout of 0.1 is written back to the folder" "0.1 0.1 0.1" \
    "$(member back/config.json embd_pdrop) $(member back/config.json resid_pdrop) $(member back/config.json attn_pdrop)"
# shellcheck disable=SC2086
"$TRIREME" evaluate $N model.path=plain >one 2>err || cat err
# shellcheck disable=SC2086
"$TRIREME" evaluate $N model.path=published >other 2>err || cat err
if [ -s one ] && cmp -s one other; then
    ok "evaluate gives the same with and without"
else
    not_ok "evaluate gives the same with and without" "$(cat one other)"
fi
cp -r plain absent
sed -i '/pdrop/d' absent/config.json
# shellcheck disable=SC2086
"$TRIREME" train $N train.steps=1 train.lr=3e-3 model.path=absent run.dir=in-absent >out 2>err || cat err
is "a member that is not there means 0.1, as in transformers" "$(loss dropped 1)" "$(loss in-absent 1)"
# shellcheck disable=SC2086
"$TRIREME" train $N train.steps=1 train.lr=3e-3 model.path=published model.embed_dropout=0 \
    model.residual_dropout=0 model.attention_dropout=0 run.dir=set >out 2>err || cat err
is "keys have the last word" "$(loss kept 1)" "$(loss set 1)"
# shellcheck disable=SC2086
"$TRIREME" train $N train.steps=1 train.lr=3e-3 model.path=published seed=1 \
    run.dir=seeded >out 2>err || cat err
is "another seed drops others" 1 \
    "$(echo "$(loss dropped 1) $(loss seeded 1)" | awk '{ d = $1 / $2 - 1; print (d * d > 1e-10) }')"

# A Llama: of its weights of attention.
# shellcheck disable=SC2086
{
    "$TRIREME" train $N $M model.kv_heads=3 train.steps=1 model.attention_dropout=0.2 \
        run.dir=llama >out 2>err || cat err
    "$TRIREME" convert llama hf-llama >out 2>err || cat err
    is "attention_dropout is written" 0.2 "$(member hf-llama/config.json attention_dropout)"
    refused "dropout that llama has not" 'model.residual_dropout is of model.family gpt2' \
        "$TRIREME" train $N $M model.residual_dropout=0.1 run.dir=never
    refused "dropout of all" 'model.attention_dropout' \
        "$TRIREME" train $N $M model.attention_dropout=1 run.dir=never
    refused "transformers' name" 'model.embed_dropout' \
        "$TRIREME" train $N $M model.embd_pdrop=0.1 run.dir=never
    refused "another of its names" 'model.residual_dropout' \
        "$TRIREME" train $N $M model.resid_pdrop=0.1 run.dir=never
    refused "the third of its names, attn_pdrop" 'model.attention_dropout' \
        "$TRIREME" train $N $M model.attn_pdrop=0.1 run.dir=never
    refused "peft's name" 'lora.dropout' "$TRIREME" train $N $M lora.lora_dropout=0.1 run.dir=never
}

# An adapter, there and back.
L="lora.r=4 lora.alpha=6 train.lr=2e-3 train.steps=20 model.path=hf-llama model.attention_dropout=0"
# shellcheck disable=SC2086
"$TRIREME" train $N $L lora.dropout=0.25 train.eval_every=20 run.dir=lora >out 2>err || cat err
# shellcheck disable=SC2086
"$TRIREME" train $N $L run.dir=lora-plain >out 2>err || cat err
is "the first step of an adapter, which adds nothing, drops nothing that counts" \
    "$(loss lora-plain 1)" "$(loss lora 1)"
is "the next ones do" 1 "$(echo "$(loss lora-plain 20) $(loss lora 20)" | awk '{ print $1 != $2 }')"
is "what it is trained on is learnt" 1 "$(lower "$(loss lora 20)" "$(loss lora 1)" 0.001)"
"$TRIREME" convert lora adapter >out 2>err || cat err
is "peft's file says lora_dropout" 0.25 "$(member adapter/adapter_config.json lora_dropout)"
# shellcheck disable=SC2086
"$TRIREME" train $N model.path=hf-llama lora.path=adapter train.steps=1 train.lr=0 \
    run.dir=from-peft >out 2>err || cat err
is "peft's lora_dropout is read" 0.25 "$(sed -n 's/^  dropout: *//p' from-peft/config.yaml)"
"$TRIREME" convert from-peft again >out 2>err || cat err
if cmp -s adapter/adapter_config.json again/adapter_config.json &&
    cmp -s adapter/adapter_model.safetensors again/adapter_model.safetensors; then
    ok "there and back, the same bits"
else
    not_ok "there and back, the same bits" "the files differ"
fi
finish
