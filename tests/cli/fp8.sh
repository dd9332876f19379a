#!/bin/sh
# fp8.sh - precision=fp8: losses near those of bf16, and the same on any layout, as blocks are of a
# tensor and not of what a rank has of it; the same bits resumed and recomputed; what it refuses.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
M="device=cpu data.train=$work/train.h5 data.valid=$work/valid.h5 model.preset=llama-tiny model.hidden=256
   model.layers=2 model.heads=4 model.kv_heads=4 model.head_dim=64 model.ffn=512 model.max_seq_len=512 data.seq_len=128
   train.global_batch=4 train.lr=1e-3 train.schedule=constant train.warmup_steps=2 run.threads=1"

# trained NAME RANKS KEY...: into run.dir=NAME
trained() {
    name=$1 n=$2
    shift 2
    train_on "$n" run.dir="$name" "$@" >out 2>err
    is "$name trains" 0 $?
}

# number STEP KEY RUN
number() { sed -n "s/^{\"step\": *$1,.*\"$2\": *\([-+.0-9e]*\).*/\1/p" "$3/metrics.jsonl"; }

# near NAME MOST A B: A and B differ by at most so much of B, and are numbers
near() {
    if awk -v most="$2" -v a="$3" -v b="$4" 'BEGIN { d = a - b; if (d < 0) d = -d;
            exit !(a > 0 && b > 0 && d <= most * b) }'; then ok "$1"; else
        not_ok "$1" "$3 and $4 differ by more than $2"; fi
}

# first_step NAME MOST A B: losses and norms of gradients of step 1
first_step() {
    near "$1: loss" "$2" "$(number 1 loss "$3")" "$(number 1 loss "$4")"
    near "$1: norm" "$2" "$(number 1 grad_norm "$3")" "$(number 1 grad_norm "$4")"
}

trained bf16 1 precision=bf16 train.steps=30
trained fp8 1 precision=fp8 train.steps=30
first_step "near bf16" 0.02 fp8 bf16
near "near bf16 after 30 steps" 0.02 "$(number 30 loss fp8)" "$(number 30 loss bf16)"
if [ "$(number 1 grad_norm fp8)" = "$(number 1 grad_norm bf16)" ]; then
    not_ok "the gradient norm in fp8 is not that of bf16" "the same norm of gradients"; else ok "the gradient norm in fp8 is not that of bf16"; fi

# Layouts: sums of other order, of the same rounded numbers; one at an edge may be rounded the other way.
trained micro 1 precision=fp8 train.micro_batch=1 train.steps=1
first_step "micro-batches" 1e-4 micro fp8
trained shards 2 precision=fp8 train.steps=1
first_step "FULL_SHARD" 1e-4 shards fp8
trained stages 2 precision=fp8 parallel.pipeline=2 train.micro_batch=1 train.steps=1
first_step "stages" 1e-4 stages fp8
trained tensor 2 precision=fp8 parallel.tensor=2 train.steps=1
first_step "tensor ranks" 1e-3 tensor fp8
trained long 1 precision=fp8 data.seq_len=512 train.global_batch=2 train.steps=1
trained chunks 2 precision=fp8 data.seq_len=512 train.global_batch=2 parallel.context=2 train.steps=1
first_step "ranks that divide sequences" 1e-3 chunks long

trained gpt2 1 precision=fp8 model.family=gpt2 model.tie_embeddings=true train.optimizer=muon train.steps=2
trained gpt2_parts 2 precision=fp8 model.family=gpt2 model.tie_embeddings=true train.optimizer=muon \
    parallel.strategy=SHARD_GRAD_OP train.steps=2
first_step "GPT-2" 1e-4 gpt2_parts gpt2

# Bits.
trained again 1 precision=fp8 recompute=full train.steps=17
trained again 1 precision=fp8 recompute=full train.steps=30
if same_state fp8 again; then ok "recomputed and resumed: the same bits"; else
    not_ok "recomputed and resumed: the same bits" differ; fi
trained several 1 precision=fp8 train.grad_dtype=bf16 train.logits_dtype=bf16 train.steps=5
trained adapters 2 precision=fp8 lora.r=4 lora.target_modules=all-linear train.steps=3

# What is made of it.
"$TRIREME" evaluate fp8 data.valid="$work/valid.h5" device=cpu >out 2>err
is "evaluated" 0 $?
"$TRIREME" generate fp8 --prompt 1 --tokens 4 device=cpu data.seq_len=100 >out 2>err
is "continues a text, in bf16 and so of any length" 0 $?
P="model.preset=llama3-8b data.seq_len=8192 train.global_batch=8 recompute=full device=cuda --ranks 8 --nodes 1"
"$TRIREME" plan $P precision=bf16 --machine h100 --json bf16.json >out 2>err
is "planned in bf16" 0 $?
"$TRIREME" plan $P precision=fp8 --machine h100 --json fp8.json >out 2>err
is "planned in fp8" 0 $?
step_ms() { sed -n 's/.*"step_ms": *\([0-9.e-]*\).*/\1/p' "$1" | head -1; }
if awk -v a="$(step_ms fp8.json)" -v b="$(step_ms bf16.json)" 'BEGIN { exit !(a > 0 && a < 0.9 * b) }'; then
    ok "a step in fp8 is forecast shorter"; else not_ok "a step in fp8 is forecast shorter" "$(step_ms fp8.json) and $(step_ms bf16.json) ms"; fi

# What is not in fp8 is said.
train_on 1 run.dir=few precision=fp8 model.ffn=100 train.steps=1 >out 2>err
is "some matrices in bf16" 1 "$(grep -c ' fp8 in 4 of 8 matrices (not mlp.gate, 200 x 256)' few/log.txt)"
is "the count of matrices is in the log of a run in fp8 alone" "0 1" "$(grep -c ' matrices ' fp8/log.txt) $(grep -c ', fp8, ' fp8/log.txt)"
train_on 2 run.dir=warned precision=fp8 train.steps=1 >out 2>err
is "one rank says that fp8 takes longer on CPUs" 1 "$(grep -c 'fp8 on CPUs' err)"
refused "no matrix in fp8" 'precision fp8 multiplies matrices whose sides .* this model has none' \
    "$TRIREME" train $M run.dir=none precision=fp8 model.ffn=100 model.hidden=72 model.heads=3 model.kv_heads=3 model.head_dim=24
refused "blocks of tokens" 'precision fp8 rounds blocks of 128 tokens, and 100 .* data\.seq_len=128' \
    "$TRIREME" train $M precision=fp8 data.seq_len=100 run.dir=none
refused "blocks of chunks of sequences" 'set data\.seq_len=512' \
    mpirun -n 2 "$TRIREME" train $M precision=fp8 data.seq_len=128 parallel.context=2 run.dir=none
refused "a GPU without it" 'b200 has no products in fp8' "$TRIREME" plan $P precision=fp8 --machine b200
refused "a key of others" 'precision.*E4M3' "$TRIREME" train $M fp8_format=hybrid
finish
