#!/bin/sh
# offload.sh - runs whose state lives on disk: the losses of others, killed and resumed, and ended
# with one line where the disk will not do: cut, full, forbidden to grow, or without an answer.
[ -n "${OWN_MOUNTS-}" ] || ! unshare --mount true 2>/dev/null || exec env OWN_MOUNTS=1 unshare --mount sh "$0"
. "$(dirname "$0")/../cli/helpers.inc"
cleanup() { umount small readonly full 2>/dev/null; }

make_tokens
M="model.preset=llama-tiny device=cpu precision=bf16 data.train=$work/train.h5 data.seq_len=32
   train.global_batch=8 train.micro_batch=2 train.lr=1e-3 train.schedule=constant checkpoint.every=5
   run.threads=1"
disk="offload.optimizer=disk offload.params=disk"
losses() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl" 2>/dev/null; }

ranks 2 "$TRIREME" train $M train.steps=12 run.dir=here >here.out 2>here.err
is "a run that keeps its state" 0 $?
ranks 2 "$TRIREME" train $M $disk train.steps=12 run.dir=there >there.out 2>there.err
is "a run whose state is on disk" 0 $?
is "state on disk: the same losses" "$(losses here)" "$(losses there)"
if same_state here there; then ok "state on disk: the same bits"; else not_ok "state on disk: the same bits" differ; fi
is "state on disk: no file is left" 0 "$(ls there/offload | wc -l)"

# Gradients too, which several micro-batches add to there.
for place in host disk; do
    ranks 2 "$TRIREME" train $M offload.gradients=$place train.steps=12 run.dir=gradients-$place \
        >gradients.out 2>gradients.err
    is "a run whose gradients are on the $place" 0 $?
    is "gradients on the $place: the same losses" "$(losses here)" "$(losses gradients-$place)"
    if same_state here gradients-$place; then ok "gradients on the $place: the same bits"; else
        not_ok "gradients on the $place: the same bits" differ; fi
done
is "gradients on the host are moved each step" "12 12" "$(grep -c '"offload_exposed_ms"' gradients-host/metrics.jsonl) $(
    grep -c '"offload_exposed_ms"' gradients-disk/metrics.jsonl)"
for strategy in NO_SHARD SHARD_OPTIM; do
    refused "gradients of $strategy" 'offload\.gradients needs gradients that leave .*at none' \
        "$TRIREME" train $M run.dir=none parallel.strategy=$strategy offload.gradients=disk
done

# Killed: nothing of the file is left or needed; another layout and place goes on.
mpirun --oversubscribe -n 2 "$TRIREME" train $M $disk train.steps=100000 run.dir=killed \
    >killed.out 2>killed.err &
job=$!
wait_for 30 has_steps killed 15
kill -KILL "$(rank_pids $job | tail -n 1)"
ended
is "a killed run leaves no file" 0 "$(ls killed/offload | wc -l)"
at=$(basename "$(newest_checkpoint killed)")
until=$(($(echo "${at#step-}" | sed 's/^0*//') + 3))
ranks 2 "$TRIREME" train $M offload.optimizer=host offload.params=disk train.steps=$until \
    run.dir=killed >killed.out 2>killed.err
is "the next start goes on, with state elsewhere" 0 $?
ranks 2 "$TRIREME" train $M train.steps=$until run.dir=spared >spared.out 2>spared.err
is "as if nothing had happened" "$until $(last_metric spared loss)" \
    "$(last_metric killed step) $(last_metric killed loss)"
timeout 60 "$TRIREME" generate "$(newest_checkpoint there)" --prompt "int " --tokens 5 >out 2>err
is "a checkpoint of an offloaded run generates, without a file" 0 $?

# start NAME [key=value...]: a run without end of two ranks in the background; as soon as it has a
# checkpoint, $victim is its rank 1.  SLOW_FILE of rank N is slow-N.
cat >rank.sh <<'END'
export SLOW_FILE=$PWD/slow-${OMPI_COMM_WORLD_RANK:-0}
[ ! -e slow_trireme ] || TRIREME=./slow_trireme
exec "$TRIREME" "$@"
END
export TRIREME
start() {
    name=$1
    shift
    mpirun --oversubscribe -n 2 sh rank.sh train $M $disk train.steps=100000 run.dir="$name" "$@" \
        >"$name.out" 2>"$name.err" &
    job=$!
    wait_for 60 has_steps "$name" 7 &&
        victim=$(rank_pids $job | tail -n 1) && return
    not_ok "$name" "no checkpoint: $(tail -n 3 "$name.err")"
    kill -KILL $job
    return 1
}

# ends NAME CODE PATTERN: it does, soon, and its one line, of rank 1, matches; and it goes on.
ends() {
    ended
    is "$1: the job ends" "$2" $code
    said=$(grep -a '^trireme: error' "$name.err")
    if printf '%s\n' "$said" | grep -a -E -q "^trireme: error: rank 1 \\([^)]+\\): $3" &&
        [ "$(printf '%s\n' "$said" | wc -l)" = 1 ]; then
        ok "$1: and one line says why"
    else
        not_ok "$1: and one line says why" "$said"
    fi
    at=$(basename "$(newest_checkpoint "$name")")
    until=$(($(echo "${at#step-}" | sed 's/^0*//') + 1))
    ranks 2 "$TRIREME" train $M train.steps=$until run.dir="$name" >go-on.out 2>go-on.err
    is "$1: and its checkpoint goes on" "0 $until" "$? $(last_metric "$name" step)"
}

# The file of a process's offloaded state, as a path that opens it.
state_file() {
    for fd in /proc/"$1"/fd/*; do
        case $(readlink "$fd") in */rank-*-of-process-*) echo "$fd" ;; esac
    done
}

if start cut; then
    truncate -s 1000 "$(state_file "$victim")"
    ends "a file that is cut" 95 'offload.path: cut/offload/rank-00001.*truncated.* \[in step [0-9]+: (FETCH|SPILL) [^]]*\]$'
fi
if start limited; then
    prlimit --pid "$victim" --fsize=1000
    ends "a file that may not grow" 95 'offload.path: cannot write .*File too large.* \[in step [0-9]+: SPILL [^]]*\]$'
fi

# A disk that takes its time, or for ever: slow.so makes reads and writes of these files last.
if ${CC:-cc} -shared -fPIC -o slow.so "$top/tests/unit/slow_file.c" 2>cc.log; then
    preload slow_trireme "$work/slow.so"
    if start stuck run.hang_seconds=8; then
        echo 60000 >slow-1
        ends "a disk that does not answer" 94 'offload.path: stuck/offload/rank-00001.* nothing was (read|written) for 6 s.* \[in step [0-9]+: (FETCH|SPILL) [^]]*\]$'
    fi
    echo 0 >slow-0
    echo 40 >slow-1
    ranks 2 sh rank.sh train $M $disk train.steps=22 run.dir=slow >slow.out 2>slow.err
    is "a slow disk is waited for" 0 $?
    rm -f slow-0 slow-1 slow_trireme
    said=$(grep -a 'warning: .*disk' slow.err)
    number='[0-9.e+-]+'
    if printf '%s\n' "$said" | grep -a -E -q "of $number s a step, rank 1 .* waits for $number s \\(offload.path, slow/offload: $number MB read and $number MB written a step, at $number GB/s.*host in place of disk" &&
        [ "$(printf '%s\n' "$said" | wc -l)" = 1 ]; then
        ok "a slow disk: one line says what it costs"
    else
        not_ok "a slow disk: one line says what it costs" "$said"
    fi
    echo "# $said"
else
    skip "a disk that does not answer, a slow disk" "no C compiler: $(head -n 1 cc.log)"
fi

touch file
refused "a path through a file" 'offload\.path.*file/in' "$TRIREME" train $M $disk run.dir=none \
    offload.path=file/in
refused "a path that cannot be made" 'offload\.path.*/proc/none' "$TRIREME" train $M $disk \
    run.dir=none offload.path=/proc/none
refused "parameters that are whole" 'FULL_SHARD or HYBRID_SHARD' "$TRIREME" train $M run.dir=none \
    parallel.strategy=SHARD_GRAD_OP offload.params=host

# Small, full and read-only file systems, in a mount namespace of our own.
if [ -z "${OWN_MOUNTS-}" ]; then
    skip "small, full and read-only disks" "mounts are not allowed here"
    finish
fi
mkdir small readonly full
mount -t tmpfs -o size=64k tmpfs small && mount -t tmpfs -o ro tmpfs readonly &&
    mount -t tmpfs -o size=16m tmpfs full || not_ok "mounts" "failed"
nearest='nearest that fits: offload.optimizer=none offload.params=none offload.path= \(a rank takes .* of the node\)'
refused "a small disk" "offload.path: not enough disk space in small for the .*MB of a rank, .* for 2 of them: 65.54 kB are free.*$nearest" \
    mpirun --oversubscribe -n 2 "$TRIREME" train $M $disk run.dir=none offload.path=small
for strategy in FULL_SHARD HYBRID_SHARD; do
    refused "a disk for reading only, $strategy" \
        "offload.path: .*readonly/.*Read-only file system; it would have .*MB of each of 2 ranks.*$nearest" \
        mpirun --oversubscribe -n 2 "$TRIREME" train $M $disk run.dir=none \
        parallel.strategy=$strategy offload.path=readonly
done
is "no run was begun" 0 "$(ls none/metrics.jsonl none/checkpoints 2>/dev/null | wc -l)"

# A rank stands still while its state is dropped from its file and the room is filled.
if start filled offload.path=full; then
    kill -STOP "$victim"
    file=$(state_file "$victim")
    fallocate --punch-hole -o 0 -l "$(stat -L -c %s "$file")" "$file"
    cat /dev/zero >full/other 2>/dev/null
    kill -CONT "$victim"
    ends "a disk that is full" 95 'offload.path: cannot write .*full/rank-00001.*No space left.* \[in step [0-9]+: SPILL [^]]*\]$'
fi
finish
