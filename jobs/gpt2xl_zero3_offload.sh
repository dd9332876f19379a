#!/bin/bash
# gpt2xl_zero3_offload.sh - trains the model of the example in Accelerate's guide to DeepSpeed:
# GPT2-XL from random weights on wikitext-2, ZeRO stage 3 with optimizer, gradients and parameters in
# host memory, on two GPUs of 24 GB.  The configuration is gpt2xl_zero3_offload.yaml beside it.
#
# First, with the texts wiki.train.raw and wiki.valid.raw of wikitext-2-raw-v1, or others:
#   hf download openai-community/gpt2-xl config.json tokenizer.json --local-dir gpt2-xl
#   trireme tokenize wiki.train.raw --tokenizer gpt2-xl -o data/train.h5
#   trireme tokenize wiki.valid.raw --tokenizer gpt2-xl -o data/valid.h5
# and then
#   sbatch jobs/gpt2xl_zero3_offload.sh                 two GPUs of one node
#   sbatch jobs/gpt2xl_zero3_offload.sh train.lr=5e-5   keys of the configuration after the script
#   sbatch jobs/gpt2xl_zero3_offload.sh offload.params=none      parameters on GPUs that have the memory
#   sbatch jobs/gpt2xl_zero3_offload.sh model.path=gpt2-xl model.init=scratch    sizes from config.json
#   sbatch jobs/gpt2xl_zero3_offload.sh run.dir=runs/gpt2xl_zero3_offload-123 KEYS    go on with the run of job 123
#   jobs/gpt2xl_zero3_offload.sh ...                    the same without Slurm, on this machine, by mpirun
#
# TRIREME_RANKS sets another number of ranks, one per GPU, than two.  60 GB of host memory are enough; the job
# asks for a whole node, because its cores update the parameters in host memory.
#
# Ten minutes before the time limit, on preemption, and on `scancel --signal=USR1 JOB` trireme
# saves its state and ends with 75; the job then queues itself again and goes on from there, unless
# two starts in a row saved nothing.  A time limit of ten minutes or less needs another --signal, as
# in `sbatch -t 10 --signal=USR1@60`.
#SBATCH --job-name=gpt2xl_zero3_offload
#SBATCH --nodes=1
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

trireme=${TRIREME:-trireme}
if ! command -v "$trireme" >/dev/null; then
    type module >/dev/null 2>&1 && module load trireme
    command -v "$trireme" >/dev/null || trireme=$(dirname "$script")/../build/trireme
    command -v "$trireme" >/dev/null ||
        { echo "$name: ${TRIREME:+TRIREME=$TRIREME is no program, }trireme is not on PATH, and no module brings" \
            "it; TRIREME=FILE names it" >&2; exit 1; }
fi

ranks=${TRIREME_RANKS:-2}
if [ -z "${SLURM_JOB_ID:-}" ]; then
    [ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    exec mpirun --oversubscribe --bind-to none -n "$ranks" "$trireme" train "$config" \
        run.dir="runs/$name" "$@"
fi

# A job of a whole node has its GPUs, but a step of the job gets them only if it asks for them.
# In a shell of salloc these variables hold what was asked for: "h100:8" GPUs, "72(x2)" cores.
gpus=${SLURM_GPUS_ON_NODE:-${SLURM_GPUS_PER_NODE:-0}}
gpus=${gpus##*:}
cores=${SLURM_CPUS_ON_NODE:-${SLURM_JOB_CPUS_PER_NODE%%[!0-9]*}}
layout=(--nodes=1 --ntasks="$ranks")
[ "$gpus" = 0 ] || layout+=(--gpus-per-node="$gpus" --gpu-bind=none)
share=$((cores / ranks))
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
srun --export=ALL --mpi=pmix --kill-on-bad-exit=1 --wait=60 "${layout[@]}" \
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
