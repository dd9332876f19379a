#!/bin/sh
# offload.sh - runs whose state lives on disk: the losses of others, killed and resumed, and ended
# with one line where the disk will not do.
. "$(dirname "$0")/../cli/helpers.inc"

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
is "has the same losses" "$(losses here)" "$(losses there)"
if same_state here there; then ok "and ends in the same bits"; else not_ok "and ends in the same bits" differ; fi
is "and leaves no file" 0 "$(ls there/offload | wc -l)"

# Killed: nothing of the file is left or needed; another layout and place goes on.
mpirun --oversubscribe -n 2 "$TRIREME" train $M $disk train.steps=100000 run.dir=killed \
    >killed.out 2>killed.err &
job=$!
wait_for 30 test -e killed/checkpoints/step-00000010
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
is "its checkpoint generates, without a file" 0 $?

# A file that is cut under a rank's hands ends the job and names the rank.
mpirun --oversubscribe -n 2 "$TRIREME" train $M $disk train.steps=100000 run.dir=cut >cut.out 2>cut.err &
job=$!
if wait_for 30 has_steps cut 5; then
    victim=$(rank_pids $job | tail -n 1)
    for fd in /proc/"$victim"/fd/*; do
        case $(readlink "$fd") in */cut/offload/*) truncate -s 1000 "$fd" ;; esac
    done
    ended
    is "a file that is cut ends the job" 95 $code
    if grep -a '^trireme: error: rank [01] .*offload.path: .*truncated' cut.err >/dev/null; then
        ok "and is named"
    else
        not_ok "and is named" "$(grep -a '^trireme' cut.err | tail -n 2)"
    fi
else
    not_ok "a file that is cut ends the job" "no steps: $(tail -n 3 cut.err)"
    kill -KILL $job
fi

touch file
refused "a path through a file" 'offload\.path.*file/in' "$TRIREME" train $M $disk run.dir=none \
    offload.path=file/in
refused "a path that cannot be made" 'offload\.path.*/proc/none' "$TRIREME" train $M $disk \
    run.dir=none offload.path=/proc/none
refused "parameters that are whole" 'FULL_SHARD or HYBRID_SHARD' "$TRIREME" train $M run.dir=none \
    parallel.strategy=SHARD_GRAD_OP offload.params=host

# Small and read-only file systems, in a mount namespace of our own.
if ! unshare --mount true 2>/dev/null; then
    skip "full and read-only disks" "mounts are not allowed here"
    finish
fi
mkdir -p small readonly
cat >mounts.sh <<'END'
mount -t tmpfs -o size=64k tmpfs small && mount -t tmpfs -o ro tmpfs readonly || exit 99
for where in small readonly; do
    timeout -k 5 60 mpirun --oversubscribe -n 2 "$TRIREME" train $M $DISK run.dir=no \
        offload.path=$where >$where.out 2>$where.err
    echo "$where $? $(grep -a '^trireme: error' $where.err | head -n 1)"
done
END
export TRIREME M DISK="$disk"
unshare --mount sh mounts.sh >mounts.log 2>&1
for row in 'small:1 .*offload.path: no room for .* GiB .* are free' 'readonly:1 .*offload.path.*readonly.*[Rr]ead-only'; do
    if grep -q "^${row%%:*} ${row#*:}" mounts.log; then
        ok "a ${row%%:*} disk is refused"
    else
        not_ok "a ${row%%:*} disk is refused" "$(cat mounts.log)"
    fi
done
finish
