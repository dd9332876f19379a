#!/bin/sh
# cuda_hang.sh - transfers between two GPUs that do not end: the job does, and names the transfer.
#
# One rank is stopped in the middle of a step, traced or not, that is longer than what a stream
# holds, while calls of CUDA wait for a place there; or the network carries nothing from the start,
# also where NCCL hangs in ending that, and freeing memory of the GPU would wait for it.
. "$(dirname "$0")/../cli/helpers.inc"

need_cuda_program
make_tokens
export TRIREME_EMULATE_GPUS=2 TRIREME_EMULATE_QUEUE=512

# stop_one NAME KEY...: rank 1 of a run is stopped; what rank 0 says
stop_one() {
    name=$1
    shift
    mpirun --oversubscribe -n 2 "$TRIREME_CUDA" train model.preset=llama-tiny data.train=train.h5 \
        data.seq_len=32 train.global_batch=128 train.micro_batch=1 run.threads=1 device=cuda \
        run.dir="$name" run.hang_seconds=6 train.steps=1000 "$@" >"$name.out" 2>"$name.err" &
    job=$!
    wait_for 60 has_steps "$name" 1
    sleep 2
    kill -STOP "$(rank_pids $job | sed -n 2p)"
    ended
    is "$name: the job ends" 94 $code
    what='nothing has moved for 6 s: instruction [0-9]* ([A-Z]* .*) waits in group'
    line=$(grep -a -m 1 'trireme: error' "$name.err")
    case $(printf '%s\n' "$line" | grep -c "rank 0 (.*): $what") in
    1) ok "$name: the transfer is named" ;;
    *) not_ok "$name: the transfer is named" "$line" ;;
    esac
}

# no_network NAME SETTING...: how a run ends whose first transfer does not.  The message begins with a
# rank where only that rank had given up when the ranks agreed on it, and not where both had.
no_network() {
    name=$1
    shift
    timeout -k 5 60 env TRIREME_EMULATE_NETWORK=0 "$@" mpirun --oversubscribe -n 2 "$TRIREME_CUDA" \
        train model.preset=llama-tiny data.train=train.h5 data.seq_len=32 train.global_batch=4 \
        run.threads=1 device=cuda run.dir="$name" run.hang_seconds=3 >"$name.out" 2>"$name.err"
    is "$name: the job ends" 94 $?
    is "$name: the transfer is named" 1 "$(grep -ac \
        'error: \(rank [01] (.*): \)\{0,1\}first transfer in group shard .*: no answer from the other members for 3 s' "$name.err")"
}

stop_one shards precision=fp32
stop_one stages precision=fp32 parallel.pipeline=2
stop_one traced precision=fp32 train.global_batch=256 run.trace=3
no_network silent
no_network silent_abort TRIREME_EMULATE_ABORT=0
finish
