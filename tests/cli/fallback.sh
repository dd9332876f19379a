#!/bin/sh
# fallback.sh - a start whose newest checkpoint cannot be used, and which checkpoints stay: nothing
# that was trained is lost, and no two histories are mixed.
. "$(dirname "$0")/helpers.inc"

make_tokens
A="model.preset=llama-tiny device=cpu data.train=train.h5 data.seq_len=32 train.global_batch=4 run.threads=1
   train.schedule=constant"

train() { # train RUN KEYS...
    run=$1
    shift
    # shellcheck disable=SC2086
    "$TRIREME" train $A run.dir="$run" "$@" >out 2>err
}
steps_of() { sed -n 's/.*"step": *\([0-9]*\),.*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
kept() { (cd "$1" && echo step-*) | sed 's/step-0*//g'; }

# The newest checkpoint cannot be used at one start, and can at the next: its data, then its meta.json.
for file in shard-00000.h5 meta.json; do
    rm -rf line
    train line checkpoint.every=5 checkpoint.keep=9 train.steps=15 || cat err
    found=$(cd line/checkpoints/step-00000015 && find . -name "$file")
    mv "line/checkpoints/step-00000015/$found" away
    train line train.steps=13 train.lr=1e-5 || cat err
    is "without $file: the one before, and a branch of its own" "1 1 13" "$(
        grep -c 'step-00000015 cannot be used' err) $(grep -c 'branch 1 of the run in line begins at step 10' err) $(
        steps_of line | tr ' ' '\n' | grep -c .)"
    is "without $file: the one after is kept" "15" "$(kept line/branches/0/checkpoints)"
    mv away "line/branches/0/checkpoints/step-00000015/$found"
    train line train.steps=16 train.lr=1e-5 || cat err
    is "with $file again: the run goes on with what it has trained since" "1 $(seq -s ' ' 16) " \
        "$(grep -c 'resumed at step 13' err) $(steps_of line)"
    is "with $file again: no branch begins" "13 16" "$(kept line/checkpoints)"
    "$TRIREME" checkpoint verify line/branches/0/checkpoints/step-00000015 >out 2>err
    is "the one that was set aside for $file is whole" 0 $?
done

# The newest checkpoint is whole, and the system cannot read a file of it: this is tried again, and no
# older one is taken for it.
if ${CC:-cc} -std=gnu11 -O1 -D_GNU_SOURCE -shared -fPIC -o preload.so "$top/tests/chaos/preload.c" 2>cc.log; then
    preload failing "$work/preload.so"
    files() { (cd "$1" && find checkpoints branches run.json metrics.jsonl 2>/dev/null | sort | tr '\n' ' '); }
    rm -rf line
    train line checkpoint.every=5 checkpoint.keep=9 train.steps=15 || cat err
    for file in COMMIT index.h5 meta.json shard-00000.h5; do
        rm -rf once
        cp -r line once
        # a start looks for COMMIT once more, before, to know whether it can be stopped with 75
        [ $file = COMMIT ] && call=access times=2 || call=open times=1
        # EIO, ESTALE, EACCES: a disk, a file server, a right
        for error in 5 116 13; do
            [ $error = 5 ] || [ $file = index.h5 ] || continue
            CHAOS_CALL=$call CHAOS_PATH=step-00000015/$file CHAOS_ERRNO=$error CHAOS_P=1 CHAOS_TIMES=$times \
                TRIREME=$work/failing train once train.steps=15
            is "$file cannot be read once (errno $error): it is read again" "0 1 1" \
                "$? $(grep -c "step-00000015/$file: .*; tried again in 1 s" err) $(grep -c 'resumed at step 15' err)"
            is "$file cannot be read once (errno $error): nothing is moved" "$(files line)" "$(files once)"
        done
    done
    for file in COMMIT shard-00000.h5; do
        rm -rf never
        cp -r line never
        [ $file = COMMIT ] && call=access || call=open
        CHAOS_CALL=$call CHAOS_PATH=step-00000015/$file CHAOS_P=1 TRIREME=$work/failing train never train.steps=20
        is "$file cannot be read: the start ends, and says why" "95 3 1" \
            "$? $(grep -c 'warning: .*; tried again in' err) $(grep -c "error: .*step-00000015/$file: Input/output error" err)"
        is "$file cannot be read: nothing is moved" "$(files line)" "$(files never)"
    done
    # a file that one rank reads; verifying divides the bytes by ranks
    # shellcheck disable=SC2086
    ranks 2 "$TRIREME" train $A run.dir=two checkpoint.every=5 checkpoint.keep=9 train.steps=10 >out 2>err || cat err
    cp -r two both
    # shellcheck disable=SC2086
    CHAOS_CALL=pread CHAOS_PATH=step-00000010/shard-00001.h5 CHAOS_P=1 TRIREME=$work/failing \
        ranks 2 "$work/failing" train $A run.dir=both train.steps=12 >out 2>err
    is "what one rank cannot read: all end, and its name is said" "95 1" \
        "$? $(grep -c 'error: .*rank 1 ([^)]*): cannot read .*step-00000010/shard-00001.h5: Input/output error' err)"
    is "what one rank cannot read: nothing is moved" "$(files two)" "$(files both)"
else
    skip "files that cannot be read" "no compiler: $(head -n 1 cc.log)"
fi

# Where checkpoints are on another file system they cannot be moved: the run goes on all the same.
if [ -w /dev/shm ] && [ "$(stat -c %d /dev/shm)" != "$(stat -c %d .)" ]; then
    far=$(mktemp -d /dev/shm/trireme-test.XXXXXX)
    mkdir far
    ln -s "$far" far/checkpoints
    train far checkpoint.every=5 checkpoint.keep=9 train.steps=10 || cat err
    rm "$far/step-00000010/meta.json"
    train far train.steps=12 || cat err
    is "checkpoints on another file system: the one before, and a warning" "1 1 12" "$(
        grep -c 'warning: .*/step-00000010 stays, as .* is on another file system' err) $(
        grep -c 'resumed at step 5' err) $(steps_of far | tr ' ' '\n' | grep . | sort -un | tail -n 1)"
    rm -r "$far"
else
    skip "checkpoints on another file system" "/dev/shm is none here"
fi

# A run that diverges keeps a good checkpoint, also over later starts; one that gets worse slowly, too.
train worse train.lr=3e-3 checkpoint.every=10 train.steps=30 || cat err
train worse train.lr=1 train.clip=0 checkpoint.every=10 train.steps=60 || cat err
is "a run that diverges keeps the checkpoint before" "30 50 60" "$(kept worse/checkpoints)"
train worse train.lr=1 train.clip=0 checkpoint.every=10 train.steps=80 || cat err
is "and keeps it after another start" "30 70 80" "$(kept worse/checkpoints)"

# What a save that was killed has left takes no space of the next one.
mkdir worse/checkpoints/step-00000090.partial
head -c 100000 /dev/zero >worse/checkpoints/step-00000090.partial/shard-000000.h5
train worse train.steps=80 || cat err
is "what a killed save has left is deleted by a start" none "$(ls -d worse/checkpoints/*.partial 2>/dev/null || echo none)"

# The end of the stable phase stays, for more than one run of other steps.
W="train.schedule=wsd checkpoint.every=20"
# shellcheck disable=SC2086
train stable $W train.steps=50 || cat err
# shellcheck disable=SC2086
train stable $W checkpoint.resume=45 train.steps=100 || cat err
is "where the decay began, and that of more steps" "45 90 100" "$(kept stable/checkpoints | sed 's/ 80//')"
finish
