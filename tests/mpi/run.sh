#!/bin/sh
# run.sh - run MPI programs at 1, 2, 3 and 4 ranks; one line of outcome for each.
#
#   run.sh PROGRAM...     names, relative to $BUILDDIR (default: where it is started)
#
# RANKS, TIMEOUT (seconds) and MPIRUN may be set.  Exit status 1 if anything failed.
# A program that ran nothing prints "# skipped: why".
BUILDDIR=${BUILDDIR:-.}
RANKS=${RANKS:-1 2 3 4}
TIMEOUT=${TIMEOUT:-120}
MPIRUN=${MPIRUN:-mpirun}

# A test may run as root in a container, with more ranks than cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# The ranks are mpirun's, also inside a Slurm job.
unset SLURM_JOBID SLURM_JOB_ID SLURM_NODELIST SLURM_NTASKS SLURM_STEP_NUM_TASKS

if ! command -v "$MPIRUN" >/dev/null 2>&1; then
    echo "skip MPI programs: no $MPIRUN found"
    exit 0
fi

out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
failed=0

run_one() { # program ranks
    name=$(basename "$1")
    timeout -k 5 "$TIMEOUT" "$MPIRUN" -n "$2" "$BUILDDIR/$1" >"$out" 2>&1 </dev/null
    rc=$?
    if [ $rc = 0 ]; then
        why=$(sed -n 's/^# skipped: //p' "$out" | head -n 1)
        if [ -n "$why" ]; then
            echo "skip $name ($2 ranks): $why"
        else
            echo "ok $name ($2 ranks)"
        fi
        return
    fi
    failed=1
    if [ $rc = 124 ] || [ $rc = 137 ]; then
        echo "not ok $name ($2 ranks): not finished after $TIMEOUT s"
    else
        echo "not ok $name ($2 ranks): exit status $rc"
    fi
    head -n 30 "$out" | sed 's/^/#   /'
}

for program in "$@"; do
    for ranks in $RANKS; do
        run_one "$program" "$ranks"
    done
done
exit $failed
