#!/bin/bash
# llama8b_fsdp.sh - trains by llama8b_fsdp.yaml beside it, on every GPU of two nodes.
#
#   sbatch jobs/llama8b_fsdp.sh                        two nodes
#   sbatch -N 8 -t 48:00:00 jobs/llama8b_fsdp.sh       options of Slurm precede the script,
#   sbatch jobs/llama8b_fsdp.sh train.lr=1e-4          keys of the configuration follow it
#   sbatch jobs/llama8b_fsdp.sh model.preset=llama-tiny device=cpu
#   sbatch jobs/llama8b_fsdp.sh run.dir=runs/llama8b_fsdp-123 KEYS   go on with the run of job 123: repeat its keys
#   jobs/llama8b_fsdp.sh ...                           the same without Slurm, on this machine, by mpirun
#
# The job asks for whole nodes, and so gets their GPUs.  No line names GPUs, so that the same script runs on a
# cluster without GPUs.  Where jobs share nodes, remove --exclusive and --mem=0 and add --gpus-per-node=N
# --ntasks-per-node=N, --cpus-per-task=C and --mem=SIZE.  Never --gpus-per-task or --gpu-bind=single: they hide a
# rank's GPU from its neighbours, and transfers then go through the host (trireme doctor reports it).
# One rank is started for each GPU; without GPUs, one for each core, 8 per node at most.  To change that, give
# sbatch --ntasks-per-node, or set TRIREME_RANKS (ranks per node; without Slurm: all ranks).
#
# Ten minutes before the time limit, on preemption, and on `scancel --signal=USR1 JOB` trireme
# saves its state and ends with 75; the job then queues itself again and goes on from there, unless
# two starts in a row saved nothing.  A time limit of ten minutes or less needs another --signal, as
# in `sbatch -t 10 --signal=USR1@60`.
#SBATCH --job-name=llama8b_fsdp
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@600
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -u

# Slurm runs a copy of the script; its record of the job says where the script was.  A task of a job array is
# asked for by its number in the array, because the last task's SLURM_JOB_ID names the whole array.
job=${SLURM_ARRAY_TASK_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-${SLURM_JOB_ID:-}}
script=$0
if [ -n "$job" ]; then
    command=$(scontrol show job "$job" | sed -n 's/^ *Command=//p' | sed "s|^[^/]|${SLURM_SUBMIT_DIR:-.}/&|")
    until [ -z "$command" ] || [ -f "$command" ]; do # cut off the arguments behind the path
        case $command in *' '*) command=${command% *} ;; *) command= ;; esac
    done
    script=${command:-$script}
fi
name=$(basename "$script" .sh)
config=$(dirname "$script")/$name.yaml
[ -f "$config" ] || { echo "$name: no $config beside the script: a copy of it needs one of its name; and give" \
    "sbatch its name, not its text" >&2; exit 1; }
case ${TRIREME_RANKS:-1} in 0* | *[!0-9]*)
    echo "$name: TRIREME_RANKS=$TRIREME_RANKS is no number of ranks" >&2 && exit 1 ;;
esac

# The small presets, for trials, take no sequences as long as data.seq_len in the configuration: they get as many
# tokens as they take, 512 at most, unless the command line sets data.seq_len.
case " $*" in *' model.preset=llama-'* | *' model.preset=gpt2'*) set -- data.seq_len=0 "$@" ;; esac

trireme=${TRIREME:-trireme}
if ! command -v "$trireme" >/dev/null; then
    type module >/dev/null 2>&1 && module load trireme
    command -v "$trireme" >/dev/null || trireme=$(dirname "$script")/../build/trireme
    command -v "$trireme" >/dev/null ||
        { echo "$name: ${TRIREME:+TRIREME=$TRIREME is no program, }trireme is not on PATH, and no module brings" \
            "it; TRIREME=FILE names it" >&2; exit 1; }
fi

if [ -z "${SLURM_JOB_ID:-}" ]; then
    ranks=${TRIREME_RANKS:-$(nvidia-smi -L 2>/dev/null | grep -c ^GPU)}
    [ "$ranks" -gt 0 ] || ranks=$(lscpu -p=CORE,SOCKET | grep -v '^#' | sort -u | wc -l)
    [ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    exec mpirun --oversubscribe --bind-to none -n "$ranks" "$trireme" train "$config" \
        run.dir="runs/$name" "$@"
fi

# A job of whole nodes has their GPUs, but a step of the job gets them only if it asks for them.
# In a shell of salloc these variables hold what was asked for: "h100:8" GPUs, "72(x2)" cores.
gpus=${SLURM_GPUS_ON_NODE:-${SLURM_GPUS_PER_NODE:-0}}
gpus=${gpus##*:}
cores=${SLURM_CPUS_ON_NODE:-${SLURM_JOB_CPUS_PER_NODE%%[!0-9]*}}
layout=()
if [ -z "${SLURM_NTASKS:-}" ]; then
    per_node=${TRIREME_RANKS:-$gpus}
    if [ "$per_node" = 0 ]; then
        per_node=$((cores / ${SLURM_CPUS_PER_TASK:-1}))
        per_node=$((per_node < 8 ? per_node : 8))
    fi
    layout=(--ntasks=$((SLURM_NNODES * per_node)) --ntasks-per-node="$per_node")
else
    per_node=$(((SLURM_NTASKS + SLURM_NNODES - 1) / SLURM_NNODES))
fi
[ "$gpus" = 0 ] || layout+=(--gpus-per-node="$gpus" --gpu-bind=none)
share=$((cores / per_node))
# Given as an option: srun does not read SLURM_CPUS_PER_TASK from Slurm 22.05 on, nor SRUN_CPUS_PER_TASK from
# 23.11 on.
layout+=(--cpus-per-task="${SLURM_CPUS_PER_TASK:-$((share > 0 ? share : 1))}")
export HDF5_USE_FILE_LOCKING=FALSE

# saved() lists when each checkpoint was saved; the file $still counts how many starts in a row saved none.
# The newest step alone does not tell whether this start saved one: if the newest checkpoint is damaged,
# trireme moves it to branches/, resumes from an older one, and saves steps before that one.
run=runs/$SLURM_JOB_NAME-$SLURM_JOB_ID
for word; do case $word in run.dir=*) run=${word#run.dir=} ;; esac; done
saved() { stat -c '%.9Y %n' "$run"/checkpoints/step-*/COMMIT 2>/dev/null; }
last_step() { sed -n 's|.*/step-0*\([0-9][0-9]*\)/COMMIT$|\1|p' | sort -n | tail -n 1; }
still=$run/starts-that-saved-nothing
[ "${SLURM_RESTART_COUNT:-0}" != 0 ] || rm -f "$still"
before=$(saved)

# A USR1 for the ranks that comes to this shell as well (scancel --full) must not end it before it has
# queued the job again.
trap : USR1

# In a job that was submitted with --export=NONE, the default of some clusters, srun starts tasks without the
# job's environment too, and so without what the module set; --export=ALL passes it on.
srun --export=ALL --mpi=pmix --kill-on-bad-exit=1 --wait=60 ${layout[@]+"${layout[@]}"} \
    "$trireme" train "$config" run.dir="runs/$SLURM_JOB_NAME-$SLURM_JOB_ID" "$@"
rc=$?

# If the time limit is not longer than the seconds of --signal, Slurm sends the signal as soon as the job
# starts, and trireme saves and ends at once.
lead=$(sed -n 's/^#SBATCH --signal=USR1@//p' "$script")
limit=$(scontrol show job "$job" | sed -n 's/.* TimeLimit=\([0-9:-]*\).*/\1/p')
seconds=$(echo "$limit" | awk -F'[-:]' 'NF == 3 { print ($1 * 60 + $2) * 60 + $3 }')
if [ $rc = 75 ] || [ $rc = 138 ]; then # 128 + SIGUSR1: the signal came before there was anything to save
    [ "${seconds:-$((lead + 1))}" -gt "$lead" ] ||
        echo "$name: the time limit is $limit, and #SBATCH --signal has the state saved $lead s before it: as soon" \
            "as the job starts, unless sbatch was told otherwise; ask for more time (sbatch -t), or have it saved" \
            "later (sbatch --signal=USR1@60)"
fi
if [ $rc = 75 ]; then
    new=$(saved | grep -vxFf <(echo "$before") | last_step)
    if [ -n "$new" ]; then
        state="state saved at step $new"
        rm -f "$still"
    else
        last=$(saved | last_step)
        state="nothing new was saved${last:+ (newest checkpoint: step $last)}"
        mkdir -p "$run" # a signal may come before trireme has made it
        echo $(($(cat "$still" 2>/dev/null || echo 0) + 1)) >"$still"
    fi
    if [ "$(cat "$still" 2>/dev/null)" = 2 ]; then
        echo "$name: $state, twice in a row: job $job is not queued again (to go on: run.dir=$run)"
        exit $rc
    fi
    echo "$name: $state; job $job goes back to the queue"
    scontrol requeue "$job" || echo "$name: requeue refused; to go on submit it again with run.dir=$run" >&2
fi
exit $rc
