#!/bin/bash
# disk_space.sh - a disk, its number of files, or a limit of their size, too small for a run's checkpoints is known before it trains.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
M="model.preset=llama-tiny device=cpu data.train=$work/train.h5 data.seq_len=32 train.global_batch=8
   run.threads=1"

# A file may have 1000 KiB, and a checkpoint of llama-tiny takes 1.9 MB.
(ulimit -f 1000 && timeout 60 "$TRIREME" train $M run.dir=limited train.steps=3 >out 2>err)
is "files that may not be so large: refused before a step" "1 0 1" "$? $(grep -c 'step 1/' err) $(grep -c \
    "error: limited/checkpoints: a rank's file of a checkpoint takes .*, and files may have 1.02 MB here: .* (ulimit -f unlimited)" err)"
(ulimit -S -f 1000 && timeout 60 "$TRIREME" train $M run.dir=raised train.steps=3 >out 2>err)
is "a limit that may be raised is" 0 $?

if ! unshare --mount true 2>/dev/null; then
    skip "small disks" "mounts are not allowed here"
    finish
fi
mkdir disk

# on_disk KIB RANKS key=value...: train on a disk of its own; in $code how it ended, in err what it
# said, in files what it left.
on_disk() {
    kib=$1 n=$2
    shift 2
    cat >on_disk.sh <<'END'
mount -t tmpfs -o size=${KIB}k${INODES:+,nr_inodes=$INODES} tmpfs disk || exit 99
[ ! -e before ] || cp -r before disk/run
timeout -k 5 120 mpirun --oversubscribe -n "$N" "$TRIREME" train $M run.dir=disk/run "$@" >out 2>err
code=$?
ls disk/run >files
cp -r disk/run/checkpoints left
cp -r disk/run run-left
ls disk >beside
exit $code
END
    rm -rf left run-left files
    KIB=$kib INODES=${inodes-} N=$n TRIREME=$TRIREME M=$M unshare --mount sh on_disk.sh "$@"
    code=$?
    beside=$(xargs <beside)
}
warnings() { grep -c 'warning: disk/run/checkpoints: .* may be there at once' err; }

# A checkpoint of llama-tiny takes 1.9 MB.
for n in 1 2; do
    on_disk 1024 $n train.steps=20
    is "$n ranks: a first checkpoint that cannot fit is refused, as a full disk is" 95 $code
    is "$n ranks: before a step is taken, with the sizes" "0 1" "$(grep -c 'step 1/' err) $(grep -cE \
        'error: .*disk/run/checkpoints: a checkpoint of this run takes [0-9.]+ MB and [0-9.]+ [kM]B are free, short by [0-9.]+ [kM]B.*; free some disk space, or' err)"
    is "$n ranks: and before the run's files are made" 0 "$(grep -cE 'metrics|config' files)"
done
on_disk 1024 1 train.steps=20 checkpoint.every=5
is "a first of several checkpoints that cannot fit is refused" 95 $code
inodes=12
on_disk 9000 1 train.steps=3
is "a disk on which too few files can be made is refused before a step" "95 0 1" "$code $(grep -c 'step 1/' err) $(grep -cE \
    'error: disk/run/checkpoints: a checkpoint and what else the run writes are 9 files and folders, and [0-7] more \(inodes\)' err)"
inodes=14
on_disk 9000 1 train.steps=3
is "and one on which enough can is not" "0 1" "$code $(ls left | wc -l)"
inodes=
on_disk 5000 1 train.steps=12 checkpoint.every=10
is "room for two of two: no warning" "0 0" "$code $(warnings)"
on_disk 5000 1 train.steps=3
is "room for one of one, at the end: no warning" "0 0" "$code $(warnings)"
cp -r left before-left
on_disk 3300 1 train.steps=4 checkpoint.every=1
is "room for one of four: a warning with the sizes" 1 "$(grep -cE \
    'warning: .*: 4 more checkpoints of [0-9.]+ MB .*checkpoint.keep=2.* and [0-9.]+ MB are free' err)"
is "room for one of four: the run begins" 1 "$(grep -c 'step 1/4' err)"

# What is done needs no room.
mkdir before
cp -r before-left before/checkpoints
on_disk 2600 1 train.steps=3
is "a finished run on a full disk is finished" "0 1" "$code $(grep -c 'nothing to do' err)"
on_disk 2600 1 train.steps=4
is "one step more is refused there" 95 $code

# A start that is refused has moved nothing: not what a branch or a new run sets aside.
rm -r before
on_disk 20000 1 train.steps=6 checkpoint.every=2 checkpoint.keep=3
cp -r run-left before
is "a run to go back in" "step-00000002 step-00000004 step-00000006" "$(ls before/checkpoints | xargs)"
for how in checkpoint.resume=4 run.fresh=true "run.fresh=true checkpoint.resume=2"; do
    # shellcheck disable=SC2086
    on_disk 6800 1 train.steps=8 $how
    is "$how on a full disk is refused" "95 1" "$code $(grep -c 'error: .* takes .* short by' err)"
    if diff -r -x log.txt before run-left >diff.out 2>&1; then
        ok "$how on a full disk leaves all as it was"
    else
        not_ok "$how on a full disk leaves all as it was" "$(head -n 3 diff.out)"
    fi
    is "$how on a full disk: nothing is beside" "run" "$beside"
done
on_disk 8500 1 train.steps=8 checkpoint.resume=4
is "where there is room for it the branch begins" "0 1" "$code $(grep -c 'branch 1 of the run' err)"
finish
