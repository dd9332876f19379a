#!/bin/sh
# experts.sh - mixtures of experts (model.experts): the same losses on any layout, also of a run that
# goes on on another one; evaluated, continued by texts, in 4 bits; and what is refused.
. "$(dirname "$0")/../cli/helpers.inc"
. "$top/tests/cli/losses.inc"

make_tokens
steps=24
M="model.layers=3 model.hidden=32 model.heads=4 model.kv_heads=2 model.ffn=61 model.vocab=257 model.experts=5
   model.router_aux_loss_coef=0.02 device=cpu precision=fp32 data.train=train.h5 data.seq_len=30
   train.global_batch=6 train.micro_batch=1 train.lr=1e-3 train.eps=1e-6 train.warmup_steps=5
   checkpoint.every=9 checkpoint.keep=3 run.threads=1"

# shellcheck disable=SC2086
train_on 1 train.steps=$steps run.dir=whole >out 2>err
is "trained" 0 $?
is "how many experts is said" 1 "$(grep -c '5 experts a block, of which a token goes through 2: [0-9.]*[KM]* parameters' err)"
is "the load of experts is said of each step" $steps \
    "$(loads whole | awk '$1 >= 1 && $2 >= $1 && $2 <= 2.5 && $3 == 0' | wc -l)"
is "it learns" yes "$(losses whole | awk 'NR == 1 { first = $2 } END { print $2 < first - 0.3 ? "yes" : $2 }')"

# Layouts, each of which goes on with what one rank saved.
set -- "2 parallel.strategy=FULL_SHARD" "2 parallel.tensor=2 parallel.wrap=none" "3 parallel.tensor=3 recompute=full train.micro_batch=2" \
    "2 parallel.pipeline=2 recompute=selective" \
    "4 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=zb_h1" \
    "4 parallel.tensor=2 parallel.strategy=FULL_SHARD offload.params=host"
for layout; do
    rm -rf run moved
    # shellcheck disable=SC2086
    train_on $layout train.steps=$steps run.dir=run >out 2>err || cat err
    same_losses "$layout: the losses of one rank" whole run
    mkdir -p moved/checkpoints
    cp -r whole/checkpoints/step-00000009 moved/checkpoints/
    head -n 9 whole/metrics.jsonl >moved/metrics.jsonl
    # shellcheck disable=SC2086
    train_on $layout train.steps=$steps run.dir=moved >out 2>err || cat err
    same_losses "$layout: going on from step 9 of one rank" whole moved
    is "$layout: the load of experts" "$(loads whole)" "$(loads run)"
    "$TRIREME" checkpoint verify moved/checkpoints/step-00000024 >out 2>err
    is "$layout: its checkpoint is whole" 0 $?
done
is "tensors by their dimensions" 3 \
    "$("$TRIREME" checkpoint show moved/checkpoints/step-00000024 | grep -c '5 x 2 x 61 x 32 .*model/layers.[012].mlp.experts.gate_up')"

# Sequences divided among ranks have the load balancing of none, and the experts of all.
C="model.router_aux_loss_coef=0"
train_on 1 train.steps=8 $C run.dir=plain >out 2>err || cat err
train_on 3 train.steps=8 $C parallel.context=3 run.dir=context >out 2>err || cat err
is "parallel.context: the losses of one rank" "$(losses plain | cut -c1-8)" "$(losses context | cut -c1-8)"
is "parallel.context: the load of experts" "$(loads plain)" "$(loads context)"
is "load balancing changes what is learned" different \
    "$([ "$(losses plain | tail -n 1)" = "$(losses whole | sed -n 8p)" ] && echo same || echo different)"

said=$("$TRIREME" evaluate whole data.valid=valid.h5 2>err | cut -d' ' -f1-2)
is "evaluated" loss "${said%% *}"
is "evaluated on 2 tensor ranks" "$said" \
    "$(ranks 2 "$TRIREME" evaluate whole data.valid=valid.h5 parallel.tensor=2 2>err | cut -d' ' -f1-2)"
is "evaluated on sequences divided among ranks, without the load balancing that counts whole ones" "$said" \
    "$(ranks 3 "$TRIREME" evaluate whole data.valid=valid.h5 parallel.context=3 2>err | cut -d' ' -f1-2)"
"$TRIREME" evaluate whole data.valid=valid.h5 model.router_aux_loss_coef=0.5 >out 2>err
is "evaluate says that load balancing changes nothing" "$said 1" \
    "$(cut -d' ' -f1-2 out) $(grep -c 'keys are of training, and change nothing here: model.router_aux_loss_coef' err)"
text=$("$TRIREME" generate whole --prompt "int main" --temperature 0 --tokens 16 device=cpu 2>err)
is "continued by a text" "int main" "$(echo "$text" | cut -c1-8)"
is "continued by the same text on two ranks" "$text" \
    "$(ranks 2 "$TRIREME" generate whole --prompt "int main" --temperature 0 --tokens 16 device=cpu 2>err)"

# A router of one expert, whose weight is one probability over itself.
while read -r said keys; do
    # shellcheck disable=SC2086
    train_on 1 train.steps=1 $keys run.dir=one-expert run.fresh=true >out 2>err || cat err
    is "a router that learns ($keys)" "$said" "$(sed -n 's/.*experts_per_token is 1, and .* a router learns \([a-z]*\).*/\1/p' err | grep . || echo all)"
done <<'END'
nothing model.experts_per_token=1 model.router_aux_loss_coef=0
from model.experts_per_token=1
all model.experts_per_token=1 model.norm_topk_prob=false
all model.experts_per_token=2
all model.experts_per_token=1 train.freeze=layers.*.mlp.router
all model.experts_per_token=1 model.experts=1
END

# 16 bits, and what is said of fp8.
train_on 1 train.steps=4 precision=bf16 run.dir=bf16 >out 2>err
is "trained in bf16" 0 $?
train_on 1 train.steps=2 precision=fp8 model.hidden=64 data.seq_len=128 run.dir=fp8 >out 2>err
is "fp8: experts are computed in bf16, and that is said" "0 1" \
    "$? $(grep -c 'fp8 in 6 of 12 matrices (not mlp.experts.gate_up, 5 x 2 x 61 x 64)' err)"

# Frozen beside adapters, in 4 bits: of the matrices all but routers, on one rank and divided.
N="model.hidden=128 model.ffn=128 lora.r=2 lora.quantize_base=nf4 lora.target_modules=q_proj,o_proj"
steps=4
# shellcheck disable=SC2086
{
    train_on 1 train.steps=$steps $N run.dir=four >out 2>err || cat err
    is "frozen experts are kept in 4 bits" 1 "$(grep -c 'nf4: 884736 of [0-9]* frozen parameters are kept in 4 bits' err)"
    train_on 2 train.steps=$steps $N parallel.tensor=2 run.dir=four-2 >out 2>err || cat err
}
same_losses "experts of 4 bits on 2 tensor ranks: the losses of one" four four-2

# Some of it frozen: the rest is trained.
train_on 1 train.steps=2 'train.freeze=layers.*.mlp.experts.*' run.dir=frozen >out 2>err
is "experts are frozen by name" 0 $?
train_on 1 train.steps=2 'train.freeze=embed,layers.*' run.dir=head >out 2>err || cat err
is "no load of routers of which nothing is trained" "2 0" \
    "$(grep -c '"loss"' head/metrics.jsonl) $(grep -c expert head/metrics.jsonl)"

is "the plan says what a token goes through" 1 \
    "$("$TRIREME" plan $M | grep -c 'a token goes through [0-9]* of them: 2 of 5 experts in each block')"

refused "more experts a token than there are" "model.experts_per_token is 6, and model.experts 5" "$TRIREME" plan $M model.experts_per_token=6
refused "a key of experts without them" "model.experts_per_token is 3, and model.experts, how many there are, 0; set it" \
    "$TRIREME" plan model.preset=llama-tiny model.experts_per_token=3
refused "experts of gpt2" "model.experts is 5, and model.family gpt2, which has none" "$TRIREME" plan $M model.family=gpt2 model.kv_heads=4
refused "muon for experts" "train.optimizer is muon, and model.experts 5: one tensor" \
    "$TRIREME" plan $M train.optimizer=muon
refused "the load of parts of sequences" "model.router_aux_loss_coef is 0.02, and parallel.context 2: the load" \
    "$TRIREME" plan $M parallel.context=2 --ranks 2
refused "another number of experts for a run" "model.experts" "$TRIREME" train $M model.experts=6 run.dir=whole train.steps=30
finish
