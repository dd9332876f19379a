#!/bin/sh
# cuda_transfers.sh - keys of transfers between GPUs reach NCCL and cuBLASLt, change no number that
# they must not, and are refused where they could do nothing.
#
# On two emulated GPUs, whose libraries write down what they were asked for.
. "$(dirname "$0")/../cli/helpers.inc"

need_cuda_program
make_tokens
M="model.preset=llama-tiny data.train=train.h5 data.seq_len=32 train.global_batch=4 train.lr=1e-3
   train.micro_batch=1 train.schedule=constant run.threads=1 checkpoint.resume=auto device=cuda
   train.steps=3 precision=bf16"
export TRIREME_EMULATE_GPUS=2
export XDG_CACHE_HOME="$work/cache" # its first start checks both GPUs at once, and keeps what it found

# train RUN KEY...: on two GPUs; what was asked for is in RUN.asked
train() {
    run=$1
    shift
    TRIREME_EMULATE_RECORD=$work/$run.asked timeout -k 5 300 mpirun --oversubscribe -n 2 \
        "$TRIREME_CUDA" train $M run.dir="$run" "$@" >"$run.out" 2>"$run.err" </dev/null
    code=$?
    if [ $code = 0 ]; then ok "train $run"; else
        not_ok "train $run" "exit code $code: $(grep -a '^trireme' "$run.err" | tail -n 2)"; fi
}

losses() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl" 2>/dev/null; }
same() {
    if [ -n "$(losses "$2")" ] && [ "$(losses "$2")" = "$(losses "$3")" ] && same_state "$2" "$3"; then
        ok "$1"
    else
        not_ok "$1" "losses or checkpoints differ"
    fi
}

# asked NAME RUN COUNT PATTERN: so many different lines of what was asked for match
asked() { is "$1" "$3" "$(sort -u "$2.asked" 2>/dev/null | grep -cE -e "$4")"; }

train plain
is "the first start keeps what the self-checks of two ranks found" 1 "$(ls cache/trireme | grep -c '^self-check')"
asked "by default all is as NCCL chooses" plain 3 '^NCCL: group .*: CTAs - to -, policy 0, NVLS 0$'
asked "and products are for all of the GPU" plain 1 '^cuBLASLt: products for 0 multiprocessors$'
asked "no other products" plain 1 '^cuBLASLt'
asked "no gather by copy engines" plain 0 'copy engines|window'

asked "kernels start in the order of the calls" plain 1 'start in the order of the calls'
TRIREME_EMULATE_NCCL=22602 train older
asked "but not with a NCCL that may have an old CUDA" older 0 'start in the order of the calls'

asked "and nothing is sent from rank to rank" plain 0 'sends to|receives from'

train ctas comm.min_ctas=2 comm.max_ctas=8 comm.spare_sms=8
asked "every communicator has the thread blocks asked for" ctas 3 '^NCCL: .*: CTAs 2 to 8, policy 0'
asked "products leave multiprocessors" ctas 1 '^cuBLASLt: products for 124 multiprocessors$'
asked "all products do" ctas 1 '^cuBLASLt'

train copies comm.copy_engines=true
asked "gathers have the policy of no thread blocks" copies 1 'shard \(gather\): .*policy 2'
asked "reductions and the start do not" copies 2 'policy 0'
asked "the shards' gathers go by copy engines" copies 1 'shard \(gather\): all-gather by copy engines'
asked "and nothing else" copies 1 'by copy engines'
same "gathered by copy engines: the same bits" plain copies
train copies_short comm.copy_engines=true comm.reduce_dtype=bf16
asked "also beside sums of 16 bits" copies_short 1 'by copy engines'
train copies_once comm.copy_engines=true parallel.strategy=SHARD_GRAD_OP
asked "parameters kept whole are gathered so too" copies_once 1 'by copy engines'

# Messages take NCCL's memory for each rank at the other end: there are none but where 16 bits are
# summed, and between stages, to neighbours and around the ring.
train short comm.reduce_dtype=bf16
asked "sums of 16 bits are messages" short 4 'reduce.*: rank [01] of 2 (sends to|receives from) rank'
asked "of 16 thread blocks" short 1 'CTAs - to 16, policy 0'
TRIREME_EMULATE_GPUS=4 TRIREME_EMULATE_RECORD=$work/stages.asked timeout -k 5 300 mpirun --oversubscribe \
    -n 4 "$TRIREME_CUDA" train $M parallel.pipeline=4 model.layers=4 model.tie_embeddings=true run.dir=stages >stages.out \
    2>stages.err </dev/null
is "four stages train" 0 $?
asked "messages between stages have four thread blocks" stages 4 'point.*CTAs - to 4, policy 0'
TRIREME_EMULATE_GPUS=4 TRIREME_EMULATE_RECORD=$work/many.asked timeout -k 5 300 mpirun --oversubscribe \
    -n 4 "$TRIREME_CUDA" train $M parallel.pipeline=4 model.layers=4 run.dir=many train.steps=0 comm.min_ctas=16 \
    comm.max_ctas=32 >many.out 2>many.err </dev/null
asked "however many others have" many 4 'point.*CTAs 4 to 4, policy 0'
asked "a stage sends to the next one" stages 1 'rank 1 of 4 sends to rank 2'
asked "and to none behind that" stages 0 'rank (0 of 4.* rank 2|1 of 4.* rank 3|2 of 4.* rank 0|3 of 4.* rank 1)'
TRIREME_EMULATE_GPUS=4 TRIREME_EMULATE_RECORD=$work/start.asked timeout -k 5 300 mpirun --oversubscribe \
    -n 4 "$TRIREME_CUDA" train $M parallel.pipeline=4 model.layers=4 model.tie_embeddings=true run.dir=start train.steps=0 >start.out \
    2>start.err </dev/null
is "what stages send one another is connected before the first step" \
    "0 $(grep 'sends to\|receives from' stages.asked | sort -u | tr '\n' ' ')" \
    "$? $(grep 'sends to\|receives from' start.asked | sort -u | tr '\n' ' ')"
asked "also from end to end, where embeddings are tied" start 2 'rank (0 of 4 sends to rank 3|3 of 4 sends to rank 0)'

# NCCL takes 12 MiB for a thread block, as is planned: a GPU with room for that and no more is enough.
# Where it takes 13 the run is refused before it allocates.  CUDA's context takes nothing here, of
# the 3/4 GiB that it has by then, but for 36 MiB, of scratch.
"$TRIREME_CUDA" plan $M comm.reduce_dtype=bf16 device=cuda --ranks 2 --json short.json >/dev/null 2>err
room=$(sed -n 's/.*"device_bytes": *\([0-9]*\).*/\1/p' short.json | head -n 1)
export TRIREME_EMULATE_CONNECTION=12582912 TRIREME_EMULATE_BYTES=$((room - 767557632))
train enough comm.reduce_dtype=bf16
TRIREME_EMULATE_CONNECTION=13631488
refused "NCCL takes more than was planned" 'NCCL has taken more .* 0.66 GiB that were planned.*comm.max_ctas' \
    mpirun --oversubscribe -n 2 "$TRIREME_CUDA" train $M run.dir=more comm.reduce_dtype=bf16
is "NCCL takes more than was planned: nothing was trained" none "$(ls more/metrics.jsonl 2>/dev/null || echo none)"
unset TRIREME_EMULATE_CONNECTION TRIREME_EMULATE_BYTES

train switches comm.nvls=true train.reproducible=false
asked "switches may add up" switches 3 'NVLS 2$'

export CUDA_DEVICE_MAX_CONNECTIONS=1 CUDA_LAUNCH_BLOCKING=1
TRIREME_EMULATE_NCCL=23102 train pair comm.copy_engines=true comm.nvls=true train.reproducible=false
unset CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING
asked "a newer NCCL gathers by copy engines beside switches" pair 1 'by copy engines'
is "variables that hold up transfers are named, once each" 2 \
    "$(grep -cE 'CUDA_(DEVICE_MAX_CONNECTIONS|LAUNCH_BLOCKING)=1 is set' pair.err)"
is "and what trireme sets itself is not" 0 "$(grep -c 'is set in the environment' plain.err)"

one="$TRIREME_CUDA train $M run.dir=none"
two="mpirun --oversubscribe -n 2 $one"
refused "one rank has no transfers" 'comm.max_ctas.*one rank' $one comm.max_ctas=4
refused "nor have CPUs" 'comm.spare_sms.*device is cpu' $one comm.spare_sms=4 device=cpu
refused "nor CPUs that device=auto takes" 'comm.spare_sms.*runs on CPUs' env TRIREME_EMULATE_GPUS=0 \
    $one comm.spare_sms=4 device=auto
refused "memory of ranks on CPUs" 'comm.shared_memory false is of ranks on CPUs' $two comm.shared_memory=false
refused "products need multiprocessors" 'comm.spare_sms is 132.*has 132' $two comm.spare_sms=132
refused "least above most" 'comm.min_ctas \(9\) is above' $two comm.min_ctas=9 comm.max_ctas=8
refused "switches and reproducible" 'comm.nvls.*train.reproducible=false' $two comm.nvls=true
both="comm.copy_engines=true comm.nvls=true train.reproducible=false"
refused "copy engines of two GPUs beside switches hang" 'comm.copy_engines: NCCL .* can hang.*2.31.2' $two $both
refused "switches that the environment asks for, too" 'comm.copy_engines: NCCL .* can hang.*2.31.2' \
    mpirun --oversubscribe -n 2 env NCCL_NVLS_ENABLE=1 $one comm.copy_engines=true
refused "nothing is gathered" 'NO_SHARD' $two comm.copy_engines=true parallel.strategy=NO_SHARD
refused "the environment says another number" 'comm.max_ctas is set, and so is NCCL_MAX_CTAS=4' \
    mpirun --oversubscribe -n 2 env NCCL_MAX_CTAS=4 $one comm.max_ctas=8
refused "all groups on one stream of NCCL's" 'NCCL_COMM_SPLIT_SHARE_RESOURCES=1 is set.*hangs; unset it' \
    mpirun --oversubscribe -n 2 env NCCL_COMM_SPLIT_SHARE_RESOURCES=1 $one
refused "calls of NCCL that block" 'NCCL_COMM_BLOCKING=1 is set.*unset it' \
    mpirun --oversubscribe -n 2 env NCCL_COMM_BLOCKING=1 $one
refused "GPUs that do not reach each other" 'NCCL_P2P_DISABLE=1' mpirun --oversubscribe -n 2 env \
    NCCL_P2P_DISABLE=1 $one \
    comm.copy_engines=true
apart='NCCL_HOSTID=$OMPI_COMM_WORLD_RANK exec "$@"'
refused "GPUs of machines apart, to NCCL" 'comm.copy_engines: NCCL has no windows' \
    mpirun --oversubscribe -n 2 sh -c "$apart" apart $one comm.copy_engines=true
"$TRIREME_CUDA" plan $M device=cuda --ranks 2 --json plain.json >/dev/null 2>err
"$TRIREME_CUDA" plan $M device=cuda --ranks 2 --json less.json comm.max_ctas=4 >/dev/null 2>>err
"$TRIREME_CUDA" plan $M device=cuda --ranks 2 --json more.json comm.copy_engines=true >/dev/null 2>>err
"$TRIREME_CUDA" plan $M device=cuda --ranks 2 --json most.json comm.nvls=true \
    train.reproducible=false >/dev/null 2>>err
reserve() { sed -n 's/.*"reserve_bytes": *\([0-9]*\).*/\1/p' "$1.json" | head -n 1; }
is "the plan's reserve follows: fewer thread blocks, windows, switches" "-503316480 16777216 536870912" \
    "$(($(reserve less) - $(reserve plain))) $(($(reserve more) - $(reserve plain))) $(($(reserve most) - $(reserve plain)))"
timeout 100 "$TRIREME_CUDA" evaluate ctas run.threads=1 data.valid=valid.h5 >out 2>err
is "one GPU evaluates what two with these keys trained" 0 $?
# Generation has its own layout, whatever the transfers of training were.
# generates RUN N KEY...: on N ranks
generates() {
    run=$1 n=$2
    shift 2
    timeout -k 5 100 mpirun --oversubscribe -n "$n" "$TRIREME_CUDA" generate "$run" --prompt int --tokens 3 \
        run.threads=1 "$@" >out 2>err </dev/null
    is "what two GPUs trained with these keys generates on $n: $run${1:+ $1}" "0 1" \
        "$? $(grep -c '^trireme: generating with' err)$(grep error: err)"
}
for run in ctas copies switches; do
    generates $run 1
    generates $run 2
    generates $run 1 device=cpu
done

# A product's first launch must not come beside a transfer, which an emulated GPU refuses: matrices of as many
# elements and another shape have products of their own.
# shellcheck disable=SC2086
TRIREME_EMULATE_GPUS=4 timeout -k 5 300 mpirun --oversubscribe -n 4 "$TRIREME_CUDA" train $M run.dir=muon \
    parallel.strategy=NO_SHARD train.optimizer=muon >muon.out 2>muon.err </dev/null
is "matrices of two shapes are made orthogonal beside transfers" "0 3" "$? $(losses muon | wc -l | tr -d ' ')"
finish
