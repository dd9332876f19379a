#!/bin/sh
# memory_limit.sh - a run that its control group does not bear, as Slurm's --mem makes one, is refused
# before it allocates: the kernel would kill it without a word.  A limit on computing time is seen, too.
. "$(dirname "$0")/../cli/helpers.inc"

if ! unshare --mount true 2>/dev/null; then
    skip "limits of control groups" "mounts are not allowed here"
    finish
fi
make_tokens
M="model.preset=llama-10m device=cpu data.train=$work/train.h5 data.seq_len=64 train.global_batch=4 train.steps=2
   run.threads=1"

# limited MIB FOLDER COMMAND...: run a command that finds this limit, in the files of both versions of
# control groups, at its own folder, at the root above it, or two folders above its own; nobody
# enforces it.  CORES: what cpu.max has there.
cat >limited <<'END'
#!/bin/sh
[ -n "${OWN_GROUPS-}" ] || OWN_GROUPS=1 exec unshare --mount "$0" "$@"
mount -t tmpfs tmpfs /sys/fs/cgroup || exit 99
own=$(sed -n 's/^0:://p; s/^[0-9]*:memory://p' /proc/self/cgroup | tail -n 1)
at=
if [ "$2" = above ]; then # as Slurm has it: the limit is the job's
    own=/job_1/step_0/task_0
    echo "0::$own" >groups && mount --bind groups /proc/$$/cgroup || exit 99
    at=/job_1
fi
[ "$2" = own ] && at=$own
mkdir -p "/sys/fs/cgroup/memory$own" "/sys/fs/cgroup$own"
echo max >"/sys/fs/cgroup$own/memory.max"
echo $(($1 << 20)) | tee "/sys/fs/cgroup$at/memory.max" >"/sys/fs/cgroup/memory$at/memory.limit_in_bytes"
[ -z "${CORES-}" ] || echo "$CORES" >"/sys/fs/cgroup$at/cpu.max"
shift 2
exec "$@"
END
chmod +x limited

# It is planned to need some 190 MiB, and a process takes up to 43 beside.
for folder in own root above; do
    # shellcheck disable=SC2086
    refused "a control group ($folder) with too little memory" \
        "error: the run needs 0\\.[0-9]* GiB of the node's memory a rank, and its control group .* allows 0\\.10 GiB for 1 of them, each of which takes 0\\.04 GiB beside that: short by .*; nearest that fits: " \
        ./limited 100 $folder "$TRIREME" train $M run.dir=none
done
# The lists of instructions of many micro-batches count: 12 of them for each.
refused "a control group with too little memory for 8000 micro-batches" \
    "error: the run needs 0\\.00 GiB of .*allows 0\\.10 GiB for 1 of them, each of which takes 0\\.18 GiB beside that: short by 0\\.0[89] GiB each; .*larger micro-batches, leave" \
    ./limited 100 own "$TRIREME" train $M model.preset=llama-tiny data.seq_len=8 train.micro_batch=1 \
    train.global_batch=8000 run.dir=none
is "no run was begun" 0 "$(ls none/checkpoints 2>/dev/null | wc -l)"
./limited 100 root "$TRIREME" doctor >out 2>&1
is "doctor names the limit" 1 "$(grep -c 'memory limit  *0.1 GiB (control group)' out)"
for folder in own root above; do
    CORES="50000 100000" ./limited 2000 $folder "$TRIREME" doctor >out 2>&1
    is "doctor names a limit of half a core ($folder)" 1 "$(grep -c 'core quota  *0\.5$' out)"
done
CORES="max 100000" ./limited 2000 above "$TRIREME" doctor >out 2>&1
is "no limit is none" 0 "$(grep -c 'core quota' out)"
./limited 2000 root "$TRIREME" doctor --measure limited.yaml --quick >out 2>&1
is "and gives the machine that it measures as much memory" "0 1" "$? $(grep -c '^  memory: 1\.953125 GiB' limited.yaml)"
# shellcheck disable=SC2086
./limited 2000 root mpirun -n 2 "$TRIREME" train $M run.dir=enough >out 2>&1
is "a control group with enough memory" 0 $?
# shellcheck disable=SC2086
./limited 400 root mpirun -n 3 "$TRIREME" train $M parallel.strategy=NO_SHARD run.dir=none >out 2>&1
is "ranks share it" "1 1" "$? $(grep -c "allows 0\\.39 GiB for 3 of them" out)"
finish
