#!/bin/sh
# faults.sh - what goes wrong on real machines: a rank is killed, a disk is full, a checkpoint is
# torn.  The job ends soon and says so, nothing saved is lost, and the next start goes on.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
steps=60
M="model.preset=llama-tiny device=cpu precision=fp32 data.train=$work/train.h5 data.seq_len=32
   train.global_batch=12 train.steps=$steps train.lr=1e-3 train.schedule=constant checkpoint.every=10 run.threads=1"

ranks 2 "$TRIREME" train $M run.dir=whole >whole.out 2>whole.err
is "undisturbed run" 0 $?

# A rank that disappears
mpirun --oversubscribe -n 2 "$TRIREME" train $M train.steps=100000 run.dir=killed \
    >killed.out 2>killed.err &
job=$!
if wait_for 30 has_steps killed 25; then
    refused "a second start in the same run directory" 'run\.dir killed is in use' \
        "$TRIREME" train $M run.dir=killed
    victim=$(rank_pids $job | tail -n 1)
    start=$(date +%s)
    kill -KILL "$victim"
    ended
    seconds=$(($(date +%s) - start))
    if [ $code != 0 ] && [ $code != 75 ] && [ $seconds -lt 20 ]; then
        ok "a killed rank ends the job"
    else
        not_ok "a killed rank ends the job" "code $code after $seconds s"
    fi
    is "a killed rank: where SIGTERM promises a save, it is said when there is none" \
        "; where another rank has ended, nothing is saved, and the last line of that rank or the launcher's says why" \
        "$(sed -n 's/^trireme: SIGTERM: the state will be saved after this step\(; where[^;]*\).*/\1/p' killed.err)"
else
    not_ok "a killed rank ends the job" "no checkpoint: $(tail -n 3 killed.err)"
    kill -KILL $job
fi
at=$(basename "$(newest_checkpoint killed)")
until=$(($(echo "${at#step-}" | sed 's/^0*//') + 7))
ranks 2 "$TRIREME" train $M train.steps=$until run.dir=killed >killed.out 2>killed.err
is "the next start goes on" 0 $?
ranks 2 "$TRIREME" train $M train.steps=$until run.dir=spared >spared.out 2>spared.err
is "as if nothing had happened" "$until $(last_metric spared loss)" \
    "$(last_metric killed step) $(last_metric killed loss)"

# A rank that does not answer any more, in a transfer or in the agreements of a save.
mpirun --oversubscribe -n 3 "$TRIREME" train $M train.steps=100000 run.dir=stuck run.hang_seconds=2 \
    checkpoint.every=1 >stuck.out 2>stuck.err &
job=$!
wait_for 30 has_steps stuck 10
kill -STOP "$(rank_pids $job | tail -n 1)"
ended
is "a stopped rank ends the job with 94" 94 $code
if grep -q '^trireme: error: rank [01] .*no progress for 2 s: .*rank 2' stuck.err; then
    ok "a stopped rank is named"
else
    not_ok "a stopped rank is named" "$(grep '^trireme' stuck.err | tail -n 2)"
fi
is "in log.txt, too" 1 "$(grep -c 'Z trireme: error: rank [01] .*no progress for 2 s: .*rank 2' stuck/log.txt)"

# A run directory that is moved, or replaced, while the run works: nothing is made in its place.
for how in gone replaced; do
    ranks 2 "$TRIREME" train $M train.steps=100000 run.dir=moved.$how checkpoint.every=5 >moved.out \
        2>moved.err &
    job=$!
    wait_for 30 has_steps moved.$how 10
    mv moved.$how aside.$how
    [ $how = gone ] || mkdir -p moved.$how/checkpoints
    ended
    is "a run directory that is $how ends the job with 95" 95 $code
    if [ "$(grep -c "error: training ends at step [0-9]*: run.dir moved.$how is no longer the folder" \
        moved.err)" = 1 ]; then
        ok "a run directory that is $how is named"
    else
        not_ok "a run directory that is $how is named" "$(grep '^trireme' moved.err | tail -n 2)"
    fi
    is "no run begins in the place of one that is $how" "now: $([ $how = gone ] || echo checkpoints)" \
        "now: $(ls moved.$how 2>/dev/null)"
    rm -rf moved.$how && mv aside.$how moved.$how
    last=$(newest_checkpoint moved.$how | sed 's/.*step-0*//')
    ranks 2 "$TRIREME" train $M train.steps=$((last + 3)) run.dir=moved.$how >moved.out 2>moved.err
    is "put back it goes on, $how" "0 $((last + 3))" "$? $(last_metric moved.$how step)"
done

# The same where no checkpoint is due: it is said at once, and again when the directory is back.
"$TRIREME" train $M train.steps=10000000 run.dir=away checkpoint.every=0 run.log_every=1 >away.out 2>away.err &
job=$!
wait_for 30 has_steps away 3
"$TRIREME" generate away --prompt a >out 2>err
is "generate of a run without a checkpoint says so" "1 1" "$? $(grep -c 'away: this run has saved no checkpoint yet' err)"
mv away further
wait_for 30 grep -q 'warning: run.dir away is no longer the folder .*; put it back before a checkpoint is due' away.err
moved=$?
mv further away
wait_for 30 grep -q 'run.dir away is back' away.err
is "a moved run directory is warned of, once, and so is its return" "0 0 1" "$moved $? $(grep -c 'no longer the folder' away.err)"
kill -USR1 $job
ended
is "put back in time nothing is lost" "75 1" "$code $(ls away/checkpoints | grep -c step-)"

# Two starts in one directory, where locks do not reach other nodes: here the second is played by a
# change of run.json.  The first one saves nothing more.
"$TRIREME" train $M train.steps=10000000 run.dir=shared checkpoint.every=0 >shared.out 2>shared.err &
job=$!
wait_for 30 has_steps shared 3
sed -i 's/"writer": "[^"]*"/"writer": "node7, process 4711, start 0123456789abcdef"/' shared/run.json
kill -USR1 $job
ended
is "a start that finds another's name in run.json ends, and saves nothing" "95 1 0" "$code $(
    grep -c 'error: .*run.dir shared is written by another start too (node7, process 4711, start 0123456789abcdef)' shared.err
) $(ls shared/checkpoints | grep -c step-)"
"$TRIREME" train $M train.steps=5 run.dir=shared checkpoint.every=5 >shared.out 2>shared.err
is "the next start saves" "0 1" "$? $(ls shared/checkpoints | grep -c step-)"

# The newest checkpoint torn by hand: the one before is taken, and it is said.
ranks 2 "$TRIREME" train $M run.dir=torn train.steps=20 >torn.out 2>torn.err
is "run to be torn" 0 $?
rm -rf torn/checkpoints/step-00000020/COMMIT
ranks 2 "$TRIREME" train $M run.dir=torn train.steps=20 >torn.out 2>torn.err
is "an uncommitted checkpoint is passed over" 0 $?
if [ -e torn/checkpoints/step-00000020/COMMIT ]; then
    ok "an uncommitted checkpoint is made again"
else
    not_ok "an uncommitted checkpoint is made again" "$(ls torn/checkpoints)"
fi
shard=torn/checkpoints/step-00000020/shard-00001.h5
middle=$(($(wc -c <$shard) / 2))
byte=$(od -An -tu1 -j $middle -N 1 $shard | tr -d ' ')
printf "\\$(printf %o $((byte ^ 4)))" | dd of=$shard bs=1 seek=$middle conv=notrunc 2>/dev/null
ranks 2 "$TRIREME" train $M run.dir=torn train.steps=20 >torn.out 2>torn.err
is "a checkpoint with a flipped bit is passed over" 0 $?
if grep -q 'shard-00001' torn.err torn/log.txt; then
    ok "a checkpoint with a flipped bit is named"
else
    not_ok "a checkpoint with a flipped bit is named" "$(tail -n 3 torn.err)"
fi

# Damaged data: the run ends before a step needs them, with its state saved; mended, it goes on as if
# nothing had happened.  Of two ranks one reads the damaged block, and is named.
cp train.h5 damaged.h5
printf '\377\377' | dd of=damaged.h5 bs=1 seek=$(($(wc -c <damaged.h5) / 2)) conv=notrunc 2>/dev/null
said='training ends, and its state is saved, at step [0-9]*: data.train: damaged.h5 is damaged: .*make it again$'
"$TRIREME" train $M run.dir=damaged data.train=damaged.h5 checkpoint.every=0 >damaged.out 2>damaged.err
is "damaged data" "1 1" "$? $(grep -a -c "^trireme: error: $said" damaged.err)"
ranks 2 "$TRIREME" train $M run.dir=damaged-2 data.train=damaged.h5 checkpoint.every=0 >damaged.out \
    2>damaged.err
code=$? at=$(newest_checkpoint damaged-2)
is "damaged data of one rank of two" "1 1 1" "$code $(grep -a -c '^trireme: error' damaged.err) $(
    grep -a -c "^trireme: error: .*at step [0-9]*: data.train: rank [01] ([^)]*): damaged.h5 is" damaged.err)"
is "the last step is saved" "$(last_metric damaged-2 step)" "$(basename "$at" | sed 's/step-0*//')"
cp train.h5 damaged.h5
ranks 2 "$TRIREME" train $M run.dir=damaged-2 data.train=damaged.h5 >damaged.out 2>damaged.err
is "mended, the run goes on as if nothing had happened" "0 $steps $(last_metric whole loss)" \
    "$? $(last_metric damaged-2 step) $(last_metric damaged-2 loss)"

# A disk that fails on one node only, while data are read for training or for evaluation: all ranks
# save.  Files are read until they have the name that preload.c looks for.
if ${CC:-cc} -std=gnu11 -O1 -D_GNU_SOURCE -shared -fPIC -o preload.so "$top/tests/chaos/preload.c" \
    2>cc.log; then
    preload bad_disk "$work/preload.so"
    for data in train valid; do
        cp train.h5 valid_of_$data.h5 # of several blocks: one is read once
        cp train.h5 train_of_$data.h5
        Y="$M data.train=train_of_$data.h5 data.valid=valid_of_$data.h5 train.eval_every=10 run.dir=disk_$data"
        endless="checkpoint.every=0 train.steps=100000"
        CHAOS_CALL=pread CHAOS_PATH=$work/unreadable CHAOS_P=1 CHAOS_ERRNO=5 mpirun --oversubscribe -n 2 \
            sh -c "$by_rank" sh "$TRIREME" train $Y $endless AND ./bad_disk train $Y $endless >disk.out 2>disk.err &
        job=$!
        wait_for 60 has_steps disk_$data 12
        mv ${data}_of_$data.h5 unreadable
        ended
        is "a disk of one rank fails under data.$data" "95 1 1" "$code $(grep -a -c '^trireme: error' disk.err) $(
            grep -a -c "^trireme: error: .*saved, at step [0-9]*: data.$data: rank 1 ([^)]*): cannot read ${data}_of_$data.h5 at byte [0-9]*: Input/output error" disk.err)"
        at=$(last_metric disk_$data step)
        is "a disk of one rank fails: the last step is saved, data.$data" "$at" "$(basename "$(newest_checkpoint disk_$data)" | sed 's/step-0*//')"
        mv unreadable ${data}_of_$data.h5
        ranks 2 "$TRIREME" train $Y train.steps=$((at + 3)) >disk.out 2>disk.err
        is "mended, it goes on, data.$data" "0 $((at + 3))" "$? $(last_metric disk_$data step)"
        [ $data = train ] || is "with the evaluation that failed" 1 \
            "$(grep -c "\"step\": $at,.*\"eval_loss\"" disk_valid/metrics.jsonl)"
    done
else
    skip "a disk of one rank fails" "no compiler: $(head -n 1 cc.log)"
fi

# A full disk: a small file system of our own, in a mount namespace of our own.
if ! unshare --mount true 2>/dev/null; then
    skip "full disk" "mounts are not allowed here"
    finish
fi
one=$(du -sk whole/checkpoints/step-00000060 | cut -f1)
mkdir -p disk
cat >full.sh <<'END'
# Room for two and a half checkpoints; once a run goes on, a filler takes what is left.
mount -t tmpfs -o size=$((ONE * 5 / 2 + 512))k tmpfs disk || exit 99
train() {
    timeout -k 5 200 mpirun --oversubscribe -n 2 "$TRIREME" train $M run.dir=disk/run "$@"
}
train train.steps=10 >disk.out 2>disk.err
echo "first $?"
train train.steps=400 checkpoint.every=200 >full.out 2>full.err &
job=$!
tries=600
until [ "$(wc -l <disk/run/metrics.jsonl)" -gt 10 ] || [ $((tries -= 1)) = 0 ]; do sleep 0.1; done
head -c 1G /dev/zero >disk/filler 2>/dev/null
truncate -s -524288 disk/filler
wait $job
echo "full $?"
"$TRIREME" checkpoint verify disk/run/checkpoints/step-00000010 >verify.out 2>&1
echo "verify $?"
echo "left $(ls disk/run/checkpoints | tr '\n' ' ')"
rm disk/filler
mpirun --oversubscribe -n 2 "$TRIREME" train $M run.dir=disk/run train.steps=100000 \
    checkpoint.every=0 >signal.out 2>signal.err &
job=$!
tries=600
until grep -q '^trireme: step 11/' signal.err || [ $((tries -= 1)) = 0 ]; do sleep 0.1; done
head -c 1G /dev/zero >disk/filler 2>/dev/null
truncate -s -524288 disk/filler
kill -USR1 $job
wait $job
echo "signal $?"
echo "kept $(ls disk/run/checkpoints | tr '\n' ' ')"
rm disk/filler
train train.steps=20 checkpoint.every=10 >after.out 2>after.err
echo "after $?"
echo "loss $(tail -n 1 disk/run/metrics.jsonl | sed -n 's/.*"loss": *\([^,}]*\).*/\1/p')"
END
export ONE="$one" TRIREME M
unshare --mount sh full.sh >full.log 2>full.log2
said() { sed -n "s/^$1 //p" full.log; }
is "before the disk is full" 0 "$(said first)"
is "a full disk at the end is the node's fault" 95 "$(said full)"
is "a full disk at the end is said once" 1 "$(grep -a -c '^trireme: .*error: ' full.err)"
is "a full disk before the end is warned of once" 1 \
    "$(grep -a -c '^trireme: .*warning: checkpoint of step 200 failed' full.err)"
is "the checkpoint before is whole" 0 "$(said verify)"
is "nothing half-written is left" "step-00000010 " "$(said left)"
is "a full disk at a signal is the node's fault" 95 "$(said signal)"
is "a full disk at a signal: says once that the state was not saved" 1 "$(grep -a -c '^trireme: .*error: ' signal.err)"
is "of which step, why, and which one is there" 1 "$(grep -a -c -E \
    'error: .*the state at step [0-9]+ could not be saved: .*(No space left|are free).*; the newest checkpoint is still that of step 10$' signal.err)"
is "with the checkpoint before" "step-00000010 " "$(said kept)"
is "with room again it goes on" 0 "$(said after)"
finish
