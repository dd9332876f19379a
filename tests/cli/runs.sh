#!/bin/sh
# runs.sh - a run directory is one run: what it keeps, where a start goes on from, and what is said
# when a start asks for something else.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
M="model.preset=llama-tiny device=cpu precision=fp32 data.train=train.h5 data.seq_len=32
   train.global_batch=4 train.lr=1e-3 train.schedule=constant run.threads=1 run.log_every=1000"

# train ARGUMENT...: output in out and err, the exit code in $code
train() {
    timeout -k 5 120 "$TRIREME" train $M "$@" >out 2>err </dev/null
    code=$?
}

# The steps of a run's checkpoints: "5 10".
kept() {
    ls "$1/checkpoints" 2>/dev/null | sed -n 's/^step-0*\([0-9][0-9]*\)$/\1/p' | xargs
}

# said NAME PATTERN [FILE]: exactly one line of the output matches
said() {
    lines=$(grep -acE -e "$2" "${3:-err}")
    if [ "$lines" = 1 ]; then ok "$1"; else
        not_ok "$1" "$lines lines of $(tail -n 3 "${3:-err}") match '$2'"; fi
}

# What is written

train run.dir=zero train.steps=0
is "no steps: the initial weights are a checkpoint" "0 0" "$code $(kept zero)"
train run.dir=zero train.steps=2
is "no steps: training goes on from the initial weights" "0 1-2" "$code $(steps_of zero)"

train run.dir=wild train.steps=12 checkpoint.every=4
is "two checkpoints are kept" "8 12" "$(kept wild)"
train run.dir=wild train.steps=100 train.lr=100 train.clip=0 checkpoint.every=1
is "a run whose gradients stay infinite ends with 1" 1 $code
is "a run whose gradients stay infinite leaves a good checkpoint" 12 "$(kept wild | cut -d' ' -f1)"
last=$(sed -n 's/.*error: step \([0-9]*\):.*/\1/p' err)
is "a run whose gradients stay infinite leaves a line of metrics for every step" "1-$last" "$(steps_of wild)"

# A run in a checkpoint would be deleted with it.

train run.dir=outer train.steps=4 checkpoint.every=2 checkpoint.keep_best=true data.valid=valid.h5 train.eval_every=2
before=$(find outer | sort)
for place in step-00000002 best step-00000002/inner step-00000002/new/../inner/; do
    refused "a run in checkpoints/$place" 'step-0000000[24] is a checkpoint.*checkpoint.resume=/.*/step-0000000[24] run.dir=NEW' \
        "$TRIREME" train $M run.dir="outer/checkpoints/$place" train.steps=1
done
refused "a run in a folder of checkpoints" 'holds checkpoints and is no run.*run.dir=outer/checkpoints/\.\.' \
    "$TRIREME" train $M run.dir=outer/checkpoints train.steps=1
mkdir outer/checkpoints/step-00000002/inner
cd outer/checkpoints/step-00000002/inner
refused "a run in a folder of a checkpoint, from there" 'step-00000002 is a checkpoint' \
    "$TRIREME" train $M data.train="$work/train.h5" run.dir=deep/er train.steps=1
cd "$work"
rm -r outer/checkpoints/step-00000002/inner
ranks 2 "$TRIREME" train $M run.dir="$work/outer/checkpoints/best" train.steps=1 >out 2>err
code=$?
said "two ranks refuse it as one" 'error: .*is a checkpoint'
is "nothing was written there" "1 $before" "$code $(find outer | sort)"
ln -s "$work/train.h5" outer/COMMIT
train run.dir=outer/inside train.steps=1
is "a file COMMIT alone makes no checkpoint" 0 $code
cp -r outer/inside outer/checkpoints/step-00000004/
train run.dir=outer/checkpoints/step-00000004/inside train.steps=2
is "a run that lies in one already does not go on" "1 1" "$code $(grep -c 'move the run out of there' err)"

# In /tmp, as other users cannot look into the folder of this test.
as_other="setpriv --reuid=54321 --regid=54321 --clear-groups"
if [ "$(id -u)" = 0 ] && $as_other "$TRIREME" --version >out 2>err && open=$(mktemp -d /tmp/trireme-test.XXXXXX); then
    cp train.h5 "$open/" && chmod -R a+rX "$open"
    train run.dir="$open/theirs" train.steps=2
    refused "a run of somebody else" \
        "run.dir $open/theirs is a run of root, .*checkpoint.resume=$open/theirs/.*step-00000002 run.dir=NEW" \
        $as_other "$TRIREME" train $M data.train="$open/train.h5" run.dir="$open/theirs" train.steps=4
    rm -r "$open"/theirs/checkpoints/*
    refused "one without a checkpoint" 'theirs is a run of root, .*; name another run.dir' \
        $as_other "$TRIREME" train $M data.train="$open/train.h5" run.dir="$open/theirs" train.steps=4
    rm -r "$open"
else
    skip "a run of somebody else" "no other user can be had, or none who can run the program"
fi

# All ranks may write no more than 300 kB into a file, from their first step on; before it they would be refused.
ranks 3 "$TRIREME" train $M run.dir="$work/small" train.steps=310 checkpoint.every=300 train.global_batch=6 >out 2>err &
pid=$!
until [ -s small/metrics.jsonl ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
for rank in $(pgrep -f "^$TRIREME train .*run.dir=$work/small "); do prlimit --fsize=300000 --pid "$rank"; done
wait $pid
said "a checkpoint that fails on ranks is one warning" 'checkpoint of step 300 failed'
said "which says why" 'checkpoint of step 300 failed.*[Ff]ile too large'

train run.dir=stuck train.steps=10 checkpoint.every=5
if chattr +i stuck/checkpoints/step-00000005 2>/dev/null; then
    train run.dir=stuck train.steps=15 checkpoint.every=5
    chattr -i stuck/checkpoints/step-00000005
    is "an old checkpoint that cannot be deleted does not fail the new one" "0 5 10 15" \
        "$code $(kept stuck)"
    said "but is told" 'warning: old checkpoints could not be deleted: .*step-00000005'
else
    skip "an old checkpoint that cannot be deleted" "files cannot be made immutable here"
fi

mkdir -p unread/metrics.jsonl # reading it fails
train run.dir=unread train.steps=1
is "metrics that cannot be read do not make a directory an unused one" "1 metrics.jsonl" \
    "$code $(ls -d unread/*.json* | xargs -n 1 basename | xargs)"
said "and are named" 'cannot read unread/metrics.jsonl'

train run.dir=flip train.steps=30 checkpoint.every=10 checkpoint.keep=3
shard=flip/checkpoints/step-00000030/shard-00000.h5
middle=$(($(wc -c <$shard) / 2)) other=x
[ "$(dd if=$shard bs=1 skip=$middle count=1 2>/dev/null | tr -d '\000')" != x ] || other=y
printf $other | dd of=$shard bs=1 seek=$middle conv=notrunc 2>/dev/null
train run.dir=flip train.steps=40 checkpoint.every=25
is "a damaged checkpoint pushes out none, and is set aside" "0 25 40 30" "$code $(kept flip) $(kept flip/branches/0)"

train run.dir=swap train.steps=10 checkpoint.every=5
mv swap/checkpoints/step-00000005 x && mv swap/checkpoints/step-00000010 \
    swap/checkpoints/step-00000005 && mv x swap/checkpoints/step-00000010
refused "checkpoints that swapped names" 'step-00000005 holds step 10' \
    "$TRIREME" checkpoint verify swap/checkpoints/step-00000005

mkdir -p own/checkpoints/best
train run.dir=own train.steps=2 data.valid=valid.h5 train.eval_every=2 checkpoint.keep_best=true
is "a folder named best stays" "0 best step-00000002" "$code $(ls own/checkpoints | xargs)"
said "and is said not to be the best checkpoint, once there is one" 'checkpoints/best is no link'
said "which is named" 'best is no link, and does not lead to the best checkpoint, step-00000002$'

# A directory is one run

id_of() { sed -n 's/.*"run": *"\([0-9a-f]*\)".*/\1/p' "$1" | head -n 1; }
losses() { sed -n 's/.*"step": *\([0-9]*\),.*"loss": *\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }

train run.dir=one train.steps=20 checkpoint.every=5
id=$(id_of one/run.json)
is "a run has a name of 128 bits" 32 "${#id}"
is "which its checkpoints tell" "$id" "$(id_of one/checkpoints/step-00000020/meta.json)"
losses one >one.losses
cp -r one kept-one

before=$(cat one/metrics.jsonl one/config.yaml one/run.json | cksum)
refused "none in a used directory" \
    'run.dir one holds a run, at step 20.*leave checkpoint.resume out.*another run.dir.*run.fresh=true' \
    "$TRIREME" train $M run.dir=one train.steps=5 seed=3 checkpoint.resume=none
is "which stays as it was" "15 20 $before" \
    "$(kept one) $(cat one/metrics.jsonl one/config.yaml one/run.json | cksum)"

"$TRIREME" train $M run.dir=one train.steps=20 seed=3 train.lr=0.5 >out 2>err
is "a start that has nothing to do leaves config.yaml, too" "0 1 $before" \
    "$? $(grep -c 'nothing to do' err) $(cat one/metrics.jsonl one/config.yaml one/run.json | cksum)"

train run.dir=two train.steps=8
refused "the checkpoint of another run in a used directory" 'two holds a run, at step 8.*of another' \
    "$TRIREME" train $M run.dir=two train.steps=30 checkpoint.resume=one/checkpoints/step-00000015
cp -r one/checkpoints/step-00000020 two/checkpoints/
refused "one that was put there" 'step-00000020 is of another run than two' \
    "$TRIREME" train $M run.dir=two train.steps=30
rm -r two/checkpoints/step-00000020

# checkpoint.resume=PATH is where a run starts, once.
train run.dir=from train.steps=18 checkpoint.every=2 checkpoint.resume=one/checkpoints/step-00000015
is "a run starts from a checkpoint of another" "0 16 18 16-18" "$code $(kept from) $(steps_of from)"
said "and says from where" 'resumed at step 15 from one/checkpoints/step-00000015'
train run.dir=from train.steps=22 checkpoint.resume=one/checkpoints/step-00000015
is "the same command goes on" "0 18 22 16-22" "$code $(kept from) $(steps_of from)"
said "and says so" 'resumed at step 18 from from/checkpoints/step-00000018'
is "under a name of its own" 1 "$([ "$(id_of from/run.json)" != "$id" ]; echo $((1 - $?)))"
mkdir elsewhere
refused "a checkpoint that rank 1 does not see" \
    'rank 1 .*step-00000015 is not a committed checkpoint' \
    mpirun --oversubscribe -n 2 sh -c "$by_rank" sh \
    "$TRIREME" train $M data.train="$work/train.h5" run.dir="$work/unseen" \
    checkpoint.resume=one/checkpoints/step-00000015 AND env -C elsewhere "$TRIREME" train $M \
    data.train="$work/train.h5" run.dir="$work/unseen" checkpoint.resume=one/checkpoints/step-00000015
rm -r one/checkpoints/step-00000015
train run.dir=from train.steps=23 checkpoint.resume=one/checkpoints/step-00000015
is "a run goes on when the checkpoint it started from is gone" "0 22 23" "$code $(kept from)"

# Back to a step: what came after is set aside.
rm -r one && cp -r kept-one one
cp -r kept-one shut
rm -f shut/samples.jsonl && mkdir shut/samples.jsonl &&
    train run.dir=shut checkpoint.resume=15 train.steps=17 checkpoint.every=1
is "not without a copy of all its lines" "1 20" "$code $(kept shut | xargs -n 1 | tail -n 1)"
said "and says what cannot be copied" 'cannot read shut/samples.jsonl'
train run.dir=one checkpoint.resume=15 train.steps=17 train.lr=5e-4 checkpoint.every=1
is "back to a step" "0 16 17 1-17" "$code $(kept one) $(steps_of one)"
is "later checkpoints are in branches/0" "20 1-20" "$(kept one/branches/0) $(steps_of one/branches/0)"
is "a checkpoint tells its branch" 1 \
    "$(grep -c '"branch": 1' one/checkpoints/step-00000017/meta.json)"
train run.dir=one checkpoint.resume=15 train.steps=19 train.lr=5e-4
is "the same command goes on in the branch" "0 17 19 1-19" "$code $(kept one) $(steps_of one)"
said "going on in a branch is said, and how to begin there once more" \
    'checkpoint.resume=15 is where branch 1 in one began; it goes on \(to begin there once more: .*run.dir=OTHER\)$'
train run.dir=more checkpoint.resume=kept-one/checkpoints/step-00000015 train.steps=17 train.lr=2e-4
is "a run begins there once more" "0 16-17" "$code $(steps_of more)"
train run.dir=one train.steps=20 train.lr=5e-4
is "checkpoint.resume=auto goes on in the branch" "0 19 20 1-20" "$code $(kept one) $(steps_of one)"
train run.dir=one checkpoint.resume=one/branches/0/checkpoints/step-00000020 train.steps=22
is "a branch that was set aside goes on" "0 22" "$code $(kept one)"
is "a branch that another replaces is set aside" "19 20" "$(kept one/branches/1)"
# checkpoint ls: the branch at work, and those that were left, the newest first.
"$TRIREME" checkpoint ls one >out 2>err
is "checkpoint ls lists branches" 0 $?
cat >want <<END
branch 2, at work; it began at step 20 of branch 0
step-00000022 $(echo $id | cut -c1-8)/2
branch 1, left, in one/branches/1; it began at step 15 of branch 0
step-00000019 $(echo $id | cut -c1-8)/1
step-00000020 $(echo $id | cut -c1-8)/1
branch 0, left, in one/branches/0; it began with the run
step-00000020 $(echo $id | cut -c1-8)/0
END
sed -n -e '/^branch /p' -e 's|^\(step-[0-9]*\) .* \([0-9a-f]*/[0-9]*\) .* committed$|\1 \2|p' out >got
is "checkpoint ls says where each branch began" "$(cat want)" "$(cat got)"
mv one/branches/1/branch.json . && mv one/checkpoints/step-00000022 .
"$TRIREME" checkpoint ls one >out 2>err
is "checkpoint ls of a run whose checkpoints are all in branches/" 0 $?
said "a branch of an older version" 'branch 1, left, .*; where it began is not recorded' out
mv branch.json one/branches/1/ && mv step-00000022 one/checkpoints/
"$TRIREME" checkpoint ls two >out 2>err
is "checkpoint ls of a run that has one branch tells none" 0 "$(grep -c branch, out)"
refused "back to a step that is not there" 'no checkpoint of step 7; there are 22' \
    "$TRIREME" train $M run.dir=one checkpoint.resume=7

# The metrics of an older branch come back with it, also when a death leaves that half done.
rm -r one && cp -r kept-one one
losses one >zero.losses
train run.dir=one checkpoint.resume=15 train.steps=20 train.lr=2e-3 checkpoint.every=1
train run.dir=one checkpoint.resume=one/branches/0/checkpoints/step-00000020 train.steps=22
is "a branch that goes on has its own metrics" "0 1-22" "$code $(steps_of one)"
is "a branch's metrics go up to where it was left" "$(cat zero.losses)" "$(losses one | head -n 20)"
cp -r one half-back && cp one/branches/1/metrics.jsonl half-back/
sed -i 's/"branch": 2,/"branch": 2, "moving": 1,/' half-back/run.json
train run.dir=half-back train.steps=23
is "a branch's metrics are whole after a death" "$(cat zero.losses)" "$(losses half-back | head -n 20)"

# A death between the writes of going back: the record is there, checkpoints are not moved yet.
rm -r one && cp -r kept-one one
train run.dir=one checkpoint.resume=15 train.steps=15
mv one/branches/0/checkpoints/step-00000020 one/checkpoints/
train run.dir=one train.steps=18
is "a death while a branch is set aside" "0 15 18 20" \
    "$code $(kept one) $(kept one/branches/0)"
cp -r one half && mv half/branches/0/checkpoints/step-00000020 half/checkpoints/
sed -i 's/"branch": 1,/"branch": 1, "moving": 1,/' half/run.json
train run.dir=half checkpoint.resume=18 train.steps=19
is "a branch that is not all aside is finished before another begins" "0 18 19 20 " \
    "$code $(kept half) $(kept half/branches/0) $(kept half/branches/1)"
said "finishing what was half set aside is said" 'branch 1 had begun when an earlier start ended; .* is finished now'
is "what was half set aside is finished once" 0 "$(grep -c moving half/run.json)"

# Checkpoints on another file system cannot be renamed into branches/: known before anything is written.
shm=$(mktemp -d /dev/shm/trireme-test.XXXXXX 2>/dev/null)
cleanup() { [ -z "$shm" ] || rm -rf "$shm"; }
if [ -n "$shm" ] && [ "$(stat -c %d "$shm")" != "$(stat -c %d .)" ]; then
    mkdir linked && ln -s "$shm" linked/checkpoints
    train run.dir=linked train.steps=4 checkpoint.every=2
    train run.dir=linked train.steps=6 checkpoint.resume=2
    said "going back with checkpoints on another file system is refused" \
        'error: later checkpoints of linked cannot be moved to branches/: .* is on another file system; .*run\.dir=OTHER'
    train run.dir=linked train.steps=6
    is "and the run goes on as before" "0 4 6 1-6" "$code $(kept linked) $(steps_of linked)"
    train run.dir=unlinked train.steps=6 checkpoint.resume=linked/checkpoints/step-00000004
    is "another run begins from such a checkpoint" "0 6" "$code $(kept unlinked)"
else
    skip "checkpoints on another file system" "/dev/shm is none here"
fi

# Starting over: the old run is beside, whole.
train run.dir=two run.fresh=true train.steps=3
is "a fresh start" "0 3 1-3" "$code $(kept two) $(steps_of two)"
is "moves the old run aside" "8 1-8" "$(kept two.1) $(steps_of two.1)"
said "a fresh start says where the old run is" 'what was in two is in .*/two.1 now'
timeout 60 "$TRIREME" train two/config.yaml train.steps=4 >out 2>err
code=$?
is "config.yaml of a fresh start goes on, and is not fresh again" "0 3 4 1-4" \
    "$code $(kept two) $(steps_of two)"
train run.dir=two run.fresh=true train.steps=17 checkpoint.resume=one/checkpoints/step-00000015
is "a fresh start from a checkpoint" "0 17 3 4" "$code $(kept two) $(kept two.2)"
mkdir inside
(cd inside && timeout 60 "$TRIREME" train $M data.train=../train.h5 run.dir=. train.steps=1 >out 2>&1)
(cd inside && timeout 60 "$TRIREME" train $M data.train=../train.h5 run.dir=. train.steps=1 \
    run.fresh=true >out 2>../err)
said "not from within" 'run.fresh cannot move \. aside from within it'

# What Slurm requeues goes on with what it began, whatever its command says.
for how in checkpoint.resume=none run.fresh=true \
    'run.fresh=true checkpoint.resume=zero/checkpoints/step-00000002'; do
    rm -rf job job.*
    [ "$how" = checkpoint.resume=none ] || train run.dir=job train.steps=3
    SLURM_JOB_ID=77 SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=1 train run.dir=job train.steps=6 $how
    SLURM_JOB_ID=77 SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=1 SLURM_RESTART_COUNT=1 \
        train run.dir=job train.steps=9 $how
    [ "${how#* }" = "$how" ] && first=1 || first=3
    is "a requeued job with $how goes on" "0 6 9 $first-9" "$code $(kept job) $(steps_of job)"
done
SLURM_JOB_ID=78 SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=1 SLURM_RESTART_COUNT=1 \
    train run.dir=job train.steps=2 run.fresh=true
is "another job does not" "0 2" "$code $(kept job)"

# What was there and is gone is missed.
cp -r kept-one lines && sed -i '13,$d' lines/metrics.jsonl
train run.dir=lines train.steps=22
is "a run goes on where lines of its metrics are gone" "0 1-12 21-22" "$code $(steps_of lines)"
said "finishing what was half set aside is said" 'warning: lines/metrics.jsonl comes to step 12, and the checkpoint is of step 20: the lines'
train run.dir=lines train.steps=23
is "what was half set aside is finished once" "0 0" "$code $(grep -c 'metrics.jsonl comes to' err)"
cp -r two gone && rm -r gone/checkpoints/*
refused "checkpoints that are gone" 'says that step 17 was saved, but gone/checkpoints has no checkpoint of the run.s branch [0-9]' \
    "$TRIREME" train $M run.dir=gone
refused "generate where they are gone" 'gone: no checkpoint there; name a run' "$TRIREME" generate gone --prompt a
cp -r two texts && sed -i 's/"branch": *\([0-9]*\)/"branch": "\1"/' texts/run.json
refused "a record whose numbers are texts" 'texts/run.json: branch is a text, "[0-9]*"; a whole number is wanted' \
    "$TRIREME" train $M run.dir=texts
cp -r two torn && rm torn/checkpoints/*/COMMIT
refused "checkpoints that lost their COMMIT" 'step-00000017 is not committed' \
    "$TRIREME" train $M run.dir=torn
# Of an older version's run, which has no record, metrics and configuration say whether a checkpoint
# must have been saved.
train run.dir=base train.steps=6
rm -r base/run.json base/checkpoints
older() { # STEPS EVERY: what a start with these keys leaves that ends after step 6
    rm -rf older older.1 && cp -r base older
    sed -i -e "s/^\( *steps:\) 6$/\1 $1/" -e "s/^\( *every:\) 0$/\1 $2/" older/config.yaml
    grep -q "^ *steps: $1$" older/config.yaml && grep -q "^ *every: $2$" older/config.yaml ||
        not_ok "a configuration of $1 steps" "$(cat older/config.yaml)"
}
for keys in "6 0" "100 5" "100 6"; do
    older $keys
    refused "no record and no checkpoints, steps and every $keys" \
        'older/metrics.jsonl says that step 6 was reached, but no checkpoint is there; put older/checkpoints back, or start over with run.fresh=true' \
        "$TRIREME" train $M run.dir=older train.steps=17
    refused "nor is it used otherwise, $keys" 'older holds a run, at step 6' \
        "$TRIREME" train $M run.dir=older train.steps=17 checkpoint.resume=none
    cmp -s base/metrics.jsonl older/metrics.jsonl && ok "no record and no checkpoints: metrics stay, $keys" ||
        not_ok "no record and no checkpoints: metrics stay, $keys" "$(wc -l older/metrics.jsonl)"
    train run.dir=older train.steps=2 run.fresh=true
    is "no record and no checkpoints: run.fresh=true begins anew, $keys" "0 1-2 1-6" "$code $(steps_of older) $(steps_of older.1)"
done
for keys in "100 0" "100 7"; do
    older $keys
    train run.dir=older train.steps=2
    said "no record, and no checkpoint was due, $keys" \
        'warning: older: an earlier start came to step 6 and left no checkpoint; its metrics are in older/metrics.jsonl.1 now'
    is "no record and no checkpoints: nothing is lost, $keys" "0 1-2 2" "$code $(steps_of older) $(kept older)"
    cmp -s base/metrics.jsonl older/metrics.jsonl.1 && ok "the metrics are aside, $keys" ||
        not_ok "the metrics are aside, $keys" "$(ls older)"
done
train run.dir=ended train.epochs=0.01
last=$(last_metric ended step)
rm -r ended/run.json ended/checkpoints
refused "no record and no checkpoints, the end of train.epochs" \
    "ended/metrics.jsonl says that step $last was reached, but no checkpoint is there" \
    "$TRIREME" train $M run.dir=ended train.epochs=0.02
sed -i 's/^\( *epochs:\) 0.01$/\1 1/' ended/config.yaml
train run.dir=ended train.steps=2
said "no record, and no checkpoint was due in the epoch" "an earlier start came to step $last and left no checkpoint"
# With a record it knows; the names of metrics that are aside are not taken again.
sed -i 's/"saved": 2/"saved": -1/' older/run.json && rm -r older/checkpoints
echo '{"step": 2, "sample": 0}' >older/samples.jsonl
train run.dir=older train.steps=3
said "a record, and nothing was saved" \
    'came to step 2 and left no checkpoint; .*metrics.jsonl.2 now, its samples in older/samples.jsonl.1'
is "the metrics of both are aside, and samples" "1-3 6 2 1 gone" "$(steps_of older) $(
    wc -l <older/metrics.jsonl.1) $(wc -l <older/metrics.jsonl.2) $(wc -l <older/samples.jsonl.1) $(
    [ -e older/samples.jsonl ] || echo gone)"
cp -r one old && rm old/run.json
train run.dir=old train.steps=19
is "a directory without a record is taken over" "0 18 19" "$code $(kept old)"
said "and that is said" 'old has no run.json'

# A failure of the machine before the first save may leave an empty one.
: >old/run.json
refused "an empty record beside checkpoints" 'old/run.json is empty, although checkpoints are there' \
    "$TRIREME" train $M run.dir=old train.steps=20
mkdir failed && : >failed/run.json
train run.dir=failed train.steps=2
is "an empty record where nothing was saved: a new run" "0 2 32" \
    "$code $(kept failed) $(id_of failed/run.json | tr -d '\n' | wc -c)"

# Other settings are named, once.
train run.dir=set train.steps=5
train run.dir=set train.steps=8 train.lr=5e-4 seed=9 data.train=valid.h5
said "settings that changed" \
    'changed since step 5: data.train train.h5 -> valid.h5, seed 0 -> 9, train.steps 5 -> 8, train.lr 0.001 -> 0.0005$'
said "where other data are read from" '^trireme: warning: the 20 sequences that were read count as .* epochs of what data.train is now,'
cp train.h5 moved.h5
train run.dir=set train.steps=9 train.lr=5e-4 seed=9 data.train=moved.h5
said "data under another name, and other contents" 'data.train valid.h5 -> moved.h5'
train run.dir=set train.steps=10 train.lr=5e-4 seed=9
is "the same data under another name is no change" 0 "$(grep -c data.train err)"
cp valid.h5 moved.h5
train run.dir=set train.steps=11 train.lr=5e-4 seed=9 data.train=moved.h5
said "other data under the same name" 'data.train train.h5 -> moved.h5'
train run.dir=set train.steps=11 train.lr=5e-4 seed=9 data.train=moved.h5
is "a change is reported once, and then no more" 0 "$(grep -c 'settings changed' err)"
said "nothing to do: where, and what else" \
    'nothing to do: the run in set is at step 11 of 11; train.steps=.*run.dir=OTHER.*run.fresh'
refused "another model is named" 'llama-tiny \(2 layers, .*llama-10m \(' \
    "$TRIREME" train $M run.dir=set model.preset=llama-10m

# A run, its configuration, or a checkpoint: commands take any of them, wherever it lies.
refused "evaluate without data" 'data\.valid names no token file.*; give one: data\.valid=FILE\.h5' \
    "$TRIREME" evaluate set
train run.dir=looked data.valid=valid.h5 train.steps=6 checkpoint.every=3
cp -r looked copied
want=$("$TRIREME" evaluate looked 2>/dev/null)
for what in looked looked/config.yaml run.dir=looked looked/checkpoints/step-00000006 copied; do
    is "evaluate $what" "$want" "$("$TRIREME" evaluate $what 2>err)"
done
# The file that a run was trained by elsewhere, with keys of transfers between GPUs.
sed -e 1d -e 's/^device:.*/device: auto/' -e 's/^  min_ctas: 0/  min_ctas: 2/' -e 's/^  max_ctas: 0/  max_ctas: 8/' \
    -e 's/^  nvls: false/  nvls: true/' -e 's/^  reproducible: true/  reproducible: false/' looked/config.yaml >gpus.yaml
is "such a file" 3 "$(grep -c '_ctas: [1-9]\|nvls: true' gpus.yaml)"
refused "train with it, without a GPU" 'comm\.min_ctas is of transfers between GPUs, and device is cpu; leave it out' \
    "$TRIREME" train gpus.yaml device=cpu train.steps=7
for device in auto cpu; do
    is "evaluate with a file for GPUs, device=$device" "$want" "$("$TRIREME" evaluate gpus.yaml device=$device 2>err)"
done
"$TRIREME" evaluate copied >out 2>err
said "evaluate a copy: the copy" 'evaluating copied/checkpoints/step-00000006'
"$TRIREME" evaluate looked checkpoint.resume=3 >out 2>err
said "evaluate a step" 'evaluating looked/checkpoints/step-00000003$'
"$TRIREME" evaluate looked train.eval_batches=1 >out 2>err
said "evaluate a part: how much it is of" \
    'evaluating looked/.*06 on the first [0-9]* of the [0-9]* sequences of data.valid, by train.eval_batches=1; 0 takes all'
for what in looked looked/config.yaml looked/checkpoints/step-00000006; do
    "$TRIREME" generate $what --prompt int --tokens 5 device=cpu >out.$$ 2>err
    is "generate $what" 0 $?
    "$TRIREME" plan $what >out 2>err
    is "plan $what" 0 $?
done
for frozen in reference full; do
    "$TRIREME" plan model.path=looked lora.r=2 device=cpu data.seq_len=32 checkpoint.frozen=$frozen --json out.json >out 2>err
    sed -n 's/.*"checkpoint_bytes": \([0-9]*\).*/\1/p' out.json
done >bytes
is "plan: checkpoints of adapters hold the model where model.path is a run" "2 1" \
    "$(wc -l <bytes | tr -d ' ') $(sort -u bytes | wc -l | tr -d ' ')"
cp -r looked on_two
ranks 2 "$TRIREME" train on_two train.steps=8 >out 2>err
for what in on_two on_two/config.yaml on_two/checkpoints/step-00000006 ./on_two/; do
    "$TRIREME" plan $what >out 2>err
    is "plan $what: the ranks of its last start" 2 "$(sed -n 's/^\([0-9]*\) ranks*: .*/\1/p' out)"
done
said "which it says" '^planned for the ranks with which ./on_two/ last started, 2;' out
"$TRIREME" plan on_two --ranks 4 >out 2>err
is "plan on_two --ranks 4" 4 "$(sed -n 's/^\([0-9]*\) ranks*: .*/\1/p' out)"
"$TRIREME" plan looked >out 2>err
is "plan looked: one rank" 1 "$(sed -n 's/^\([0-9]*\) ranks*: .*/\1/p' out)"
timeout 60 "$TRIREME" train copied train.steps=7 >out 2>err
is "training a copy goes on there" "0 3 6 6 7" "$? $(kept looked) $(kept copied)"
refused "training a checkpoint" 'checkpoint.resume=looked' "$TRIREME" train \
    looked/checkpoints/step-00000003
before=$(find looked | sort | cksum)
for folder in looked/checkpoints looked/checkpoints/; do
    refused "training $folder" 'looked/checkpoints holds checkpoints.*trireme train looked/checkpoints/\.\.$' \
        "$TRIREME" train $folder train.steps=9
done
is "training a folder of checkpoints leaves the run as it was" "$before" "$(find looked | sort | cksum)"
"$TRIREME" train looked/checkpoints/.. train.steps=7 >out 2>err
is "the advice on a folder of checkpoints works" "0 7" "$? $(kept looked | tail -c 2)"
"$TRIREME" checkpoint ls copied >out 2>err
said "checkpoint ls tells date, run, and loss" \
    '^step-00000007 .*20[0-9]+-[0-9]+-[0-9]+ [0-9:]+ +[0-9a-f]+/0 +[0-9.]+ +committed' out
truncate -s 100 copied/checkpoints/step-00000007/shard-00000.h5
"$TRIREME" checkpoint ls copied >out 2>err
said "and damage" '^step-00000007 .*damaged: .*100 bytes' out
"$TRIREME" checkpoint show looked >out 2>err
said "checkpoint show prints the configuration as lines" '^  preset: "llama-tiny"' out
# A project's own files are not a run's, whatever they are called.
mkdir -p project/checkpoints
cat >project/config.yaml <<END
# my notes
model: {preset: llama-tiny}
data: {train: $work/train.h5, seq_len: 32}
train: {steps: 2, global_batch: 4}
device: cpu
run: {dir: runs/first}
END
cp project/config.yaml mine.yaml
(cd project && "$TRIREME" train config.yaml >../out 2>../err)
is "a user's config.yaml beside checkpoints/ has its own run.dir" "0 1-2" "$? $(steps_of project/runs/first)"
refused "a user's config.yaml is not replaced" 'run.dir is project, where a run keeps a file config.yaml of its own' \
    "$TRIREME" train project/config.yaml run.dir=project
cmp -s project/config.yaml mine.yaml && ok "by nothing" || not_ok "by nothing" "$(head -n 2 project/config.yaml)"
mkdir other
echo '{"loss": 3}' >other/metrics.jsonl
refused "nor are its metrics" 'a file metrics.jsonl of its own' "$TRIREME" train $M run.dir=other train.steps=1
is "nothing is made there" metrics.jsonl "$(ls other)"
"$TRIREME" train project/runs/first/config.yaml train.steps=3 >out 2>err
is "a run's config.yaml leads to the run" "0 1-3" "$? $(steps_of project/runs/first)"
# A run may have a '=' in its name, as those of a sweep do.
train run.dir=sweep/lr=1e-3 train.steps=2
is "a name with =" "0 1-2" "$code $(steps_of sweep/lr=1e-3)"
"$TRIREME" train sweep/lr=1e-3 train.steps=3 >out 2>err
is "a run under a name with = goes on" "0 1-3" "$? $(steps_of sweep/lr=1e-3)"
for named in sweep/lr=1e-3 sweep/lr=1e-3/config.yaml sweep/lr=1e-3/checkpoints/last; do
    [ -e "$named" ] || named=$(newest_checkpoint sweep/lr=1e-3)
    "$TRIREME" plan $named >out 2>err
    is "plan $named" "0 1" "$? $(grep -c '^planned for the ranks' out)"
    "$TRIREME" config $named train.clip=0.5 >out 2>err
    is "config $named" "0 1" "$? $(grep -c '^  clip: 0\.5$' out)"
    "$TRIREME" evaluate $named data.valid=valid.h5 >out 2>err
    is "evaluate $named" "0 1" "$? $(grep -c '^loss ' out)"
done
"$TRIREME" generate sweep/lr=1e-3 --prompt "int " --tokens 2 device=cpu >out 2>err
is "generate of it" 0 $?
"$TRIREME" convert sweep/lr=1e-3 sweep/hf=1 >out 2>err
is "convert of it" 0 $?
"$TRIREME" checkpoint ls sweep/lr=1e-3 >out 2>err
is "checkpoint ls of it" "0 1" "$? $(grep -c '^step-00000003' out)"
touch seed=7
refused "a key stays one beside a file of that name" 'model\.layers' "$TRIREME" config seed=7
refused "what is not there is no path" 'unknown key "sweep/lr"' "$TRIREME" train sweep/lr=1
# Opening a named pipe waits for a process at its other end: in the place of a file it is refused.
train run.dir=piped train.steps=4 checkpoint.every=2
for file in lock log.txt config.yaml run.json plan.json metrics.jsonl samples.jsonl trace.json products.json \
    forecast.json; do
    [ ! -e "piped/$file" ] || mv "piped/$file" kept-aside
    mkfifo "piped/$file"
    refused "a pipe named $file" "piped/$file is a named pipe" "$TRIREME" train $M run.dir=piped train.steps=5
    rm "piped/$file"
    [ ! -e kept-aside ] || mv kept-aside "piped/$file"
done
sed -i '1i{"step": 9}' piped/metrics.jsonl # which makes a start rewrite it, as other lines follow
mkfifo piped/metrics.jsonl.partial
train run.dir=piped train.steps=5
is "a pipe that has the name of a file while it is written" "1 1" \
    "$code $(grep -c 'error: .*metrics.jsonl.partial is a named pipe' err)"
rm piped/metrics.jsonl.partial
for file in COMMIT meta.json index.h5 shard-00000.h5; do
    path=piped/checkpoints/step-00000004/$file
    mv $path kept-aside && mkfifo $path
    refused "evaluate: a pipe named $file" "$path is a named pipe" \
        "$TRIREME" evaluate piped/checkpoints/step-00000004 data.valid=valid.h5
    timeout -k 5 30 "$TRIREME" checkpoint verify piped >out 2>err </dev/null
    is "checkpoint verify: a pipe named $file" "1 1" "$? $(grep -c "$file is a named pipe" err)"
    rm $path && mv kept-aside $path
done
rm $path && ln -s /dev/zero $path
train run.dir=piped train.steps=5
is "the checkpoint before one with a device is taken" "0 1-5" "$code $(steps_of piped)"
said "and the device is named" "cannot be used: .*shard-00000.h5 is a device.*; trying the one before"
rm piped/metrics.jsonl && mkfifo piped/metrics.jsonl
refused "tensorboard: metrics that are a pipe" 'metrics.jsonl is a named pipe' "$TRIREME" tensorboard piped -o events
# A run that goes on deletes checkpoints while they are verified: here the oldest, once reading has begun.
train run.dir=many train.steps=40 checkpoint.every=1 checkpoint.keep=99
"$TRIREME" checkpoint verify many >out 2>err &
pid=$!
until [ "$(sed -n 's/rchar: //p' /proc/$pid/io 2>/dev/null || echo 9000000)" -gt 4000000 ]; do :; done
kill -STOP $pid 2>/dev/null
rm -r many/checkpoints/step-00000001
kill -CONT $pid 2>/dev/null
wait $pid
is "a checkpoint that was deleted meanwhile is not a damaged one" "0 39 1" \
    "$? $(grep -c ': whole' out) $(grep -c 'warning: many/checkpoints/step-00000001 was deleted before' err)"
finish
