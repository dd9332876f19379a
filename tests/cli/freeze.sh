#!/bin/sh
# freeze.sh - runs in which half of the model is not trained: what is frozen keeps its bits and has
# no optimizer state, what is trained moves as it does without, and a run goes on on another layout.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
M="model.preset=llama-tiny device=cpu data.train=$work/train.h5 data.seq_len=32 train.global_batch=6
   train.micro_batch=1 train.lr=1e-3 train.schedule=constant train.warmup_steps=0 run.threads=1
   precision=fp32"
half="embed,layers.0.*"

# names RUN PATTERN: how many tensors of its last checkpoint have names that match.
names() {
    h5ls -r "$(newest_checkpoint "$1")/index.h5" | grep -cE "^/$2"
}

# differ RUN RUN NAME...: those of the tensors that differ between their last checkpoints, or none.
differ() {
    found=
    one=$(newest_checkpoint "$1")/index.h5 other=$(newest_checkpoint "$2")/index.h5
    shift 2
    for name; do
        h5diff "$one" "$other" "/$name" >/dev/null 2>&1 || found="$found$name "
    done
    echo "${found:-none}"
}

ranks 2 "$TRIREME" train $M train.steps=0 run.dir=start >start.out 2>start.err
is "initial weights" 0 $?
set -- $(h5ls -r "$(newest_checkpoint start)/index.h5" | sed -n 's|^/\(model/[^ ]*\) .*Dataset.*|\1|p')
frozen=$(printf '%s\n' "$@" | grep -E '^model/(embed$|layers\.0\.)')
trained=$(printf '%s\n' "$@" | grep -vE '^model/(embed$|layers\.0\.)')

ranks 2 "$TRIREME" train $M train.freeze="$half" train.steps=12 run.dir=half >half.out 2>half.err
is "half of the model trains" 0 $?
is "how much of it trains is said" 1 "$(grep -c 'llama-tiny, 158016 parameters ([0-9]* trained), fp32' half.err)"
is "and not where all does" 1 "$(grep -c 'llama-tiny, 158016 parameters, fp32' start.err)"
is "what is frozen keeps its bits" none "$(differ start half $frozen)"
is "all else moves" "$(printf '%s ' $trained)" "$(differ start half $trained)"
is "what is frozen has no optimizer state" 0 "$(names half 'optimizer/exp_avg/(embed|layers\.0\.)')"
is "all else has" "$(printf '%s\n' $trained | wc -l)" "$(names half 'optimizer/exp_avg_sq/.*Dataset')"

# One step without clipping, whose norm the frozen gradients would be in: the rest moves alike.
for how in "" "train.freeze=$half"; do
    ranks 2 "$TRIREME" train $M train.clip=0 train.steps=1 $how run.dir="one${how:+half}" \
        >one.out 2>one.err
    is "one step${how:+ of a half}" 0 $?
done
is "what is trained moves as when all is" none "$(differ one onehalf $trained)"

# Stopped, and gone on with on another layout
ranks 2 "$TRIREME" train $M train.freeze="$half" train.steps=5 run.dir=parts >parts.out 2>parts.err
ranks 3 "$TRIREME" train $M train.freeze="$half" train.steps=12 parallel.strategy=SHARD_GRAD_OP \
    run.dir=parts >parts.out 2>parts.err
is "goes on on three ranks" 0 $?
is "trains every step once" 1-12 "$(steps_of parts)"
is "with the same loss" alike "$(printf '%s %s\n' "$(last_metric half loss)" "$(last_metric parts loss)" |
    awk '{ d = $1 / $2 - 1; print d * d <= 1e-10 ? "alike" : "off by " d }')"
is "frozen parts keep their bits" none "$(differ start parts $frozen)"

# A stage that trains nothing
ranks 2 "$TRIREME" train $M train.freeze="$half" train.steps=2 run.dir=idle run.trace=2 offload.params=disk offload.optimizer=disk \
    parallel.pipeline=2 parallel.stages=2,2 >idle.out 2>idle.err
is "a stage that trains nothing" 0 $?
is "fetches its parameters for forward, not for an update" 6 \
    "$(grep -o '"name": "FETCH embed[^"]*", "ph": "X"' idle/trace.json | wc -l)"

# Another half, and all of it
ranks 2 "$TRIREME" train $M train.freeze="layers.1.*" train.steps=14 run.dir=parts >more.out 2>more.err
is "freezes another half" 0 $?
is "says what begins anew" 1 \
    "$(cat more.out more.err | grep -c 'train.freeze .*optimizer state that was not kept begins at zero')"
is "which then moves" 1 "$(differ half parts model/layers.0.attn.q | wc -w)"
ranks 3 "$TRIREME" train $M precision=bf16 train.freeze="$half" train.steps=3 run.dir=narrow \
    >narrow.out 2>narrow.err
is "in bf16" 0 $?
ranks 1 "$TRIREME" train $M precision=bf16 train.steps=6 run.dir=narrow >narrow.out 2>narrow.err
is "in bf16, then without" 0 $?
timeout 60 "$TRIREME" generate "$(newest_checkpoint half)" --prompt "int " --tokens 5 >out 2>err
is "generates from it" 0 $?

# A list in a file; the plan
cat >half.yaml <<END
model: {preset: llama-tiny}
train:
  global_batch: 6
  freeze:
    - embed
    - layers.0.*
END
"$TRIREME" plan half.yaml data.seq_len=32 device=cpu train.micro_batch=1 --ranks 2 >plan.out 2>plan.err
is "a list is read" 0 $?
is "plan counts what is frozen" 1 "$(grep -c '^[1-9][0-9]* of them are frozen' plan.out)"
is "as many as training says" 158016 \
    $(($(sed -n 's/ of them are frozen.*//p' plan.out) + $(sed -n 's/.* (\([0-9]*\) trained).*/\1/p' half.err)))
"$TRIREME" plan half.yaml data.seq_len=32 device=cpu train.micro_batch=1 train.freeze= --ranks 2 >all.out 2>all.err
pool() { awk -v name="$2" '$1 == name { print $(NF - 1); exit }' "$1"; }
"$TRIREME" plan half.yaml data.seq_len=32 device=cpu train.freeze=", embed ,,layers.0.* ," \
    --ranks 2 >spaces.out 2>spaces.err
is "commas and spaces more than needed" "$(grep 'are frozen' plan.out)" "$(grep 'are frozen' spaces.out)"
for pool in gradients optimizer; do
    if [ "$(pool plan.out $pool)" -lt "$(($(pool all.out $pool) * 3 / 4))" ]; then
        ok "which take no $pool"
    else
        not_ok "which take no $pool" "$(pool plan.out $pool) of $(pool all.out $pool)"
    fi
done

for name in model.embed_tokens.weight model.embed_tokens embd; do
    refused "another name, $name" "train.freeze: no tensor is called $name; did you mean embed\$" \
        "$TRIREME" train $M train.freeze=$name
done
refused "the files' name of many" 'called model\.layers\.\*\.self_attn\.q_proj\.weight; did you mean layers\.0\.attn\.q$' \
    "$TRIREME" train $M "train.freeze=model.layers.*.self_attn.q_proj.weight"
refused "a name like no other" 'no tensor is called something; the model has embed, .*layers\.0\.mlp\.down.*head' \
    "$TRIREME" train $M train.freeze=something
refused "a name that no tensor has" 'train.freeze: no tensor is called layers.9' \
    "$TRIREME" train $M train.freeze=layers.9.*
refused "a long name, not its beginning" 'no tensor is called embed\*\*' \
    "$TRIREME" train $M "train.freeze=embed$(printf '%90s' | tr ' ' '*')x"
refused "nothing left" 'leaves nothing to train' "$TRIREME" train $M "train.freeze=*"
refused "half a matrix" 'layers.0.attn.q and layers.0.attn.k are stored as one matrix' \
    "$TRIREME" train $M train.freeze=layers.0.attn.q
refused "half a matrix whose halves tensor ranks have apart" 'attn.q and layers.0.attn.k are stored as one matrix' \
    "$TRIREME" plan $M model.kv_heads=1 parallel.tensor=4 --ranks 4 'train.freeze=*attn.k,*attn.v'
printf 'train: {freeze: [embed, [head]]}\n' >bad.yaml
refused "a list in a list" 'bad.yaml:1: train.freeze: lists are not' "$TRIREME" train bad.yaml $M
printf 'train: {steps: [1, 2]}\n' >bad.yaml
refused "a list for a number" 'bad.yaml:1: train.steps: lists are not' "$TRIREME" train bad.yaml $M
finish
