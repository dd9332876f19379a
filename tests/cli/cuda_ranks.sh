#!/bin/sh
# cuda_ranks.sh - ranks that share a GPU come to the losses of one, however their parameters are kept.
. "$(dirname "$0")/../cli/helpers.inc"
. "$top/tests/cli/cuda.inc"

train "one rank" "$TRIREME_CUDA" 1 short device=cuda train.steps=$some
train "one rank in bf16" "$TRIREME_CUDA" 1 bf16 device=cuda train.steps=$some precision=bf16
for n in 2 4; do
    train "$n ranks on one GPU" "$TRIREME_CUDA" $n shared$n device=cuda comm.share_gpu=true \
        train.micro_batch=1 train.steps=$some
    near "$n ranks come to the losses of one" short shared$n 1e-5 $some
done
train "2 ranks, NO_SHARD" "$TRIREME_CUDA" 2 ddp device=cuda comm.share_gpu=true \
    parallel.strategy=NO_SHARD train.steps=$some
near "2 ranks, NO_SHARD, come to the losses of one" short ddp 1e-5 $some

# What is gathered in 16 bits is cast from the masters, or a shard that was kept: the same bits.
two="comm.share_gpu=true train.micro_batch=1 train.steps=$some precision=bf16"
train "2 ranks in bf16" "$TRIREME_CUDA" 2 cast device=cuda $two
near "2 ranks in bf16 are near one" bf16 cast 1e-2 $some
train "2 ranks in bf16 that keep a shard" "$TRIREME_CUDA" 2 kept device=cuda $two offload.params=host
same "cast or kept: the same bits" cast kept
train "2 ranks in bf16, updates beside forward" "$TRIREME_CUDA" 2 late2 device=cuda $two $late
same "updates beside forward of 2 ranks give the same bits" cast late2
train "the same on the host" "$TRIREME_CUDA" 2 late3 device=cuda $two $late offload.optimizer=host
near "and come to the same losses on the host" cast late3 1e-2 $some

refused "two ranks on one GPU, unasked" 'gpu' mpirun --oversubscribe -n 2 "$TRIREME_CUDA" train $M \
    run.dir=none device=cuda train.steps=1
finish
