#!/bin/bash
# --lr 1
ARGS=(
    --tensor-model-parallel-size 4 \
    --sequence-parallel --num-layers=32 --lr "3.0e-4" --train-iters $ITERS
    --use-distributed-optimizer --bf16 -b 64
)
torchrun --nproc_per_node 8 pretrain_gpt.py ${ARGS[@]}
