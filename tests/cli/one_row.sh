#!/bin/bash
# one_row.sh - products of one row: a token of a text that is written, a sequence of one token, with
# adapters, whose matrices are slices of wider ones.
. "$(dirname "$0")/helpers.inc"

make_tokens
M="model.layers=1 model.heads=2 model.vocab=512 data.train=train.h5 device=cpu run.threads=1 train.steps=1"
narrow="$M model.hidden=24 model.ffn=24 data.seq_len=32 lora.r=2 lora.target_modules=o_proj,gate_proj,up_proj"
grouped="$M model.hidden=64 model.heads=8 model.kv_heads=2 model.ffn=80 data.seq_len=32 lora.r=4"

"$TRIREME" train $narrow run.dir=narrow >out 2>err
is "a model with adapters" 0 $?
"$TRIREME" generate narrow --prompt a --tokens 3 --temperature 0 >out 2>err
is "writes, a token at a time" 0 $?
"$TRIREME" train $narrow data.seq_len=1 train.micro_batch=1 run.dir=single >out 2>err
is "sequences of one token are trained" 0 $?
"$TRIREME" train $grouped run.dir=grouped >out 2>err
is "grouped heads with adapters" 0 $?
"$TRIREME" generate grouped --prompt a --tokens 3 --temperature 0 >one 2>err
is "one rank writes" 0 $?
for ranks in 2 4; do
    timeout -k 5 100 mpirun --oversubscribe --bind-to none -n $ranks "$TRIREME" generate grouped --prompt a --tokens 3 \
        --temperature 0 >several 2>err </dev/null
    is "$ranks ranks write the same" "0 $(cat one)" "$? $(cat several)"
done
finish
