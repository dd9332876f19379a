#!/bin/sh
# shared_memory.sh - ranks of a node read one another's memory, or exchange messages
# (comm.shared_memory), to the same bits.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
M="model.preset=llama-tiny device=cpu precision=bf16 data.train=$work/train.h5 data.seq_len=64
   train.global_batch=8 train.micro_batch=1 run.threads=1"

# blocks RUN COMMAND...: how many blocks of shared memory rank 0 of two has mapped while it trains.
blocks() {
    run=$1
    shift
    "$@" train $M train.steps=100000 run.dir="$run" >"$run.out" 2>&1 &
    job=$!
    wait_for 60 has_steps "$run" 3
    mapped=$(grep -c memfd:trireme "/proc/$(rank_pids $job | head -n 1)/maps")
    kill -USR1 $job
    ended
}

two="mpirun --oversubscribe -n 2 $TRIREME"
cat >apart <<END
#!/bin/sh
exec $two "\$@" comm.shared_memory=false
END
cat >limited <<END
#!/bin/sh
ulimit -v 40000000
exec $two "\$@"
END
chmod +x apart limited
# doctor COMMAND: what it prints of the ranks of a node.
doctor() { "$@" doctor 2>/dev/null | sed -n 's/^ *ranks of a node  *//p' | cut -d' ' -f1-3; }
case $(uname -r) in
[0-5].* | 6.0.*) skip "memory that is shared" "Linux before 6.1 has no huge pages of it" ;;
*)
    blocks shared $two
    is "its own blocks and those of the other rank are mapped" 1 "$((mapped >= 2 && mapped % 2 == 0))"
    is "and the run stops as others do" 75 $code
    is "doctor says that ranks read" "read one another's" "$(doctor $two)"
    ;;
esac
blocks messages ./apart
is "none where the key says so" 0 "$mapped"
if can_limit_space; then
    blocks space ./limited
    is "none with a limit on the address space, which may have no space left" 0 "$mapped"
    is "under which the run goes on" 75 $code
    is "doctor says that ranks exchange messages then" "exchange messages through" "$(doctor ./limited)"
else
    skip "a limit on the address space" "AddressSanitizer reserves terabytes of it"
fi

# same NAME RANKS KEY...: bits of messages, and of reads.
same() {
    name=$1 on=$2
    shift 2
    train_on "$on" train.steps=4 run.dir="read-$name" "$@" >out 2>&1 || not_ok "$name trains" "$(tail -n 3 out)"
    train_on "$on" train.steps=4 run.dir="sent-$name" "$@" comm.shared_memory=false >out 2>&1 ||
        not_ok "$name trains by messages" "$(tail -n 3 out)"
    if same_state "read-$name" "sent-$name"; then ok "$name: the same bits"; else not_ok "$name: the same bits" "no"; fi
}
same FULL_SHARD 2
same SHARD_GRAD_OP 4 parallel.strategy=SHARD_GRAD_OP
same HYBRID_SHARD 4 parallel.strategy=HYBRID_SHARD parallel.shard=2
same bf16_sums 3 comm.reduce_dtype=bf16
same offload 2 offload.params=host offload.optimizer=host
finish
