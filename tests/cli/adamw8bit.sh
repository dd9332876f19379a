#!/bin/sh
# adamw8bit.sh - train.optimizer=adamw8bit: the losses of adamw within a bound, the same bits by every
# strategy, resume and offload, on other layouts the state of the checkpoint, memory as planned, and
# what it does not take.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
# The matrices of its blocks have 16384 elements and more.
D="data.train=train.h5 data.seq_len=32 train.global_batch=4 train.lr=2e-3 train.schedule=constant run.threads=1
   device=cpu run.machine=off run.log_every=1000 checkpoint.keep=9"
M="model.preset=llama-tiny model.hidden=128 model.heads=4 model.kv_heads=2 model.ffn=256 $D precision=fp32"
E="$M train.optimizer=adamw8bit"
train() {
    n=$1
    shift
    ranks "$n" "$TRIREME" train "$@" >out 2>err
    code=$?
}
same() { if same_state "$2" "$3"; then ok "$1"; else not_ok "$1" "$code; checkpoints differ: $(cat err)"; fi; }
# mean RUN KEY: over its steps
mean() { sed -n "s/.*\"$2\": *\([^,}]*\).*/\1/p" "$1/metrics.jsonl" | awk '{ s += $1 } END { print s / NR }'; }
# within NAME BOUND A B: |A / B - 1| <= BOUND
within() {
    if awk -v a="$3" -v b="$4" -v by="$2" 'BEGIN { exit !(b && (a / b - 1) ^ 2 <= by ^ 2) }'; then
        ok "$1"
    else
        not_ok "$1" "$3 and $4 differ by more than $2"
    fi
}

# Losses

train 1 $M train.steps=60 run.dir=wide
train 1 $E train.steps=60 run.dir=one
is "a run" "0 60" "$code $(grep -c '"step"' one/metrics.jsonl)"
within "losses of adamw, over 60 steps" 0.005 "$(mean one loss)" "$(mean wide loss)"
for precision in bf16 bf16_pure fp16; do
    train 1 $M train.steps=30 precision=$precision run.dir=wide-$precision
    train 1 $E train.steps=30 precision=$precision run.dir=one-$precision
    within "the same with precision $precision" 0.01 "$(mean one-$precision loss)" "$(mean wide-$precision loss)"
done

# What is kept

"$TRIREME" checkpoint show one >shown
is "codes of matrices" "u8 256x128" \
    "$(awk '$NF == "optimizer/exp_avg/layers.1.mlp.up" { print $1, $3 $4 $5 }' shown)"
is "the largest magnitudes of their blocks" "fp32 128" \
    "$(awk '$NF == "optimizer/exp_avg_sq_absmax/layers.1.mlp.up" { print $1, $3 }' shown)"
is "embeddings and norms as adamw has them" "fp32 fp32" \
    "$(awk '$NF ~ "optimizer/exp_avg/(embed|norm)$" { print $1 }' shown | xargs)"

# Bits

B="$E train.steps=8 checkpoint.every=4"
train 2 $B parallel.strategy=NO_SHARD run.dir=two
for strategy in SHARD_OPTIM SHARD_GRAD_OP FULL_SHARD; do
    cp -r two at4-$strategy
    train 2 $B parallel.strategy=$strategy run.dir=by-$strategy
    train 2 $B parallel.strategy=$strategy run.dir=at4-$strategy checkpoint.resume=4
    is "$strategy, and resumed with it" "0 1-8" "$code $(steps_of at4-$strategy)"
    same "resumed: the same bits" by-$strategy at4-$strategy
    # In one layout: a step more, on one rank.
    for run in two by-$strategy; do
        cp -r $run next-$run
        train 1 $E train.steps=9 run.dir=next-$run
    done
    same "$strategy: the same bits as without shards" next-two next-by-$strategy
    rm -rf next-two
done
for keys in offload.optimizer=host "offload.optimizer=disk offload.path=swap" train.overlap_update=true \
    "offload.params=host offload.optimizer=host" parallel.persist_below=1000000; do
    mkdir -p swap
    train 2 $B parallel.strategy=FULL_SHARD $keys run.dir=kept
    is "$keys" 0 $code
    same "the same bits" by-FULL_SHARD kept
    rm -rf kept
done

# Layouts: a checkpoint's state is the same wherever it is loaded.  Nothing moves with a rate of 0.
for layout in "3 parallel.strategy=FULL_SHARD" "4 parallel.strategy=HYBRID_SHARD parallel.shard=2" \
    "2 parallel.pipeline=2" "3 parallel.strategy=NO_SHARD" "4 parallel.pipeline=2 parallel.strategy=FULL_SHARD"; do
    cp -r two there
    set -- $layout
    n=$1
    shift
    train $n $E train.steps=9 "$@" run.dir=there
    is "from 2 ranks to $layout" "0 1-9" "$code $(steps_of there)"
    cp -r two here
    train 2 $E train.steps=9 run.dir=here
    within "the loss is the same" 1e-5 "$(mean there loss)" "$(mean here loss)"
    train 1 $E train.steps=10 run.dir=there
    train 1 $E train.steps=10 run.dir=here
    within "and from there to one rank" 1e-5 "$(mean there loss)" "$(mean here loss)"
    is "with a checkpoint that is whole" 0 "$("$TRIREME" checkpoint verify there >/dev/null 2>&1; echo $?)"
    rm -rf there here
done

# Tensor ranks divide rows of whole blocks, and refuse others.
W="model.preset=llama-tiny model.hidden=512 model.heads=4 model.kv_heads=2 model.ffn=1024 model.layers=1 $D
   precision=fp32 train.optimizer=adamw8bit"
train 1 $W train.steps=6 run.dir=whole
train 2 $W train.steps=6 parallel.tensor=2 run.dir=divided checkpoint.every=3
within "two tensor ranks" 1e-4 "$(mean divided loss)" "$(mean whole loss)"
cp -r divided again
train 2 $W train.steps=6 parallel.tensor=2 run.dir=again checkpoint.resume=3
same "resumed: the same bits" divided again
train 1 $W train.steps=7 run.dir=divided
is "from two tensor ranks to one" "0 1-7" "$code $(steps_of divided)"
refused "rows that tensor ranks would cut within a block" \
    "train.optimizer adamw8bit keeps 256 elements of a row of layers.0.attn.o together, and parallel.tensor would divide them; use adamw, or fewer tensor ranks" \
    mpirun -n 2 "$TRIREME" train $E parallel.tensor=2 run.dir=none

is "evaluated by two, as nothing is updated" 0 \
    "$(ranks 2 "$TRIREME" evaluate one data.valid=valid.h5 parallel.tensor=2 >/dev/null 2>&1; echo $?)"

# Layouts that have apart what others stack: keys of 3072 elements leave queries to adamw in each.

Q="model.preset=llama-tiny model.hidden=48 model.heads=8 model.head_dim=64 model.kv_heads=1 model.ffn=512
   model.layers=1 $D precision=fp32 train.optimizer=adamw8bit"
train 2 $Q train.steps=3 parallel.tensor=2 run.dir=apart
is "queries beside small keys" "0 fp32 u8" "$code $("$TRIREME" checkpoint show apart |
    awk '$NF ~ "exp_avg/layers.0.(attn.q|mlp.up)$" { print $1 }' | xargs)"
train 1 $Q train.steps=4 run.dir=apart
is "from two tensor ranks to one that stacks them" "0 1-4" "$code $(steps_of apart)"

# Learned positions are an embedding, with positions from data and without.

G="model.preset=gpt2 model.hidden=64 model.heads=2 model.layers=1 model.vocab=257 model.max_seq_len=128 $D
   train.optimizer=adamw8bit"
train 1 $G train.steps=2 run.dir=gpt2
train 1 $G train.steps=4 data.packing=bfd run.dir=gpt2
is "GPT-2, then with packed documents" "0 1-4 u8 fp32" "$code $(steps_of gpt2) $("$TRIREME" checkpoint show gpt2 |
    awk '$NF ~ "exp_avg/(positions|layers.0.mlp.up)$" { print $1 }' | xargs)"

# Adapters of 32 rows have 4096 elements and more.

"$TRIREME" convert one base >/dev/null 2>err || not_ok convert "$(cat err)"
L="$D precision=fp32 model.path=base lora.r=32 train.optimizer=adamw8bit"
train 1 $L train.steps=8 run.dir=adapters checkpoint.every=4
is "adapters" "0 u8" \
    "$code $("$TRIREME" checkpoint show adapters | awk '$NF ~ "exp_avg/layers.0.attn.q.lora_A$" { print $1 }')"
cp -r adapters again2
train 1 $L train.steps=8 run.dir=again2 checkpoint.resume=4
same "resumed: the same bits" adapters again2
K="$L lora.target_modules=q_proj,k_proj"
train 1 $K train.steps=2 run.dir=dropped
train 1 $K train.steps=4 lora.dropout=0.1 run.dir=dropped
is "adapters stacked, and apart with dropout" "0 1-4" "$code $(steps_of dropped)"

refused "bf16_pure with others" "needs train.optimizer adamw or adamw8bit, which round stochastically" \
    "$TRIREME" plan $E precision=bf16_pure train.optimizer=sgd

# Memory: matrices 2 1/64 bytes a parameter in place of 8, beside embeddings and norms of adamw

planned() { "$TRIREME" plan $M "$@" 2>err | awk '$1 == "optimizer" { print $(NF - 1); exit }'; }
coded=$(awk '$1 == "u8" && $NF ~ /exp_avg\// { n += $3 * $5 } END { print n }' shown)
is "planned state" $(($(planned train.optimizer=adamw) - coded * 8 + coded * 2 + coded / 32)) \
    "$(planned train.optimizer=adamw8bit)"

# Other optimizers' state

refused "a checkpoint of adamw" \
    "it holds the state of train.optimizer adamw, and this run's is adamw8bit; train on with adamw, or start another run" \
    "$TRIREME" train $E train.steps=70 run.dir=wide
of_none="at least 4096 elements in whole blocks of 256 that are no embeddings, and none of those is trained; use adamw"
refused "adapters that are all small" "$of_none" "$TRIREME" train $L lora.r=8 run.dir=none
refused "a model without whole blocks" "$of_none" "$TRIREME" plan model.preset=llama-tiny model.hidden=72 \
    model.ffn=201 model.vocab=257 $D train.optimizer=adamw8bit
U="$W model.layers=2 lora.r=32 lora.target_modules=q_proj,o_proj lora.use_dora=true train.freeze=layers.0.*
   parallel.tensor=2 --ranks 2"
refused "units with too many kinds of tensors" \
    "layers.0-1: a unit has tensors of 7 kinds at most .* use parallel.wrap block or train.optimizer adamw" \
    "$TRIREME" plan $U parallel.wrap=none
is "which a layer has not" 0 "$("$TRIREME" plan $U >/dev/null 2>&1; echo $?)"
train 1 $E train.steps=8 train.optimizer_dtype=bf16 run.dir=low
is "what it leaves to adamw has train.optimizer_dtype" "0 bf16 u8" "$code $("$TRIREME" checkpoint show low |
    awk '$NF ~ "optimizer/exp_avg/(embed|layers.0.mlp.up)$" { print $1 }' | xargs)"
finish
