#!/bin/bash
# llama70b_3d.sh - trains by llama70b_3d.yaml beside it: Llama-3-70B on eight nodes of eight GPUs,
# each layer divided among the GPUs of a node, the layers among four stages, and two copies of each.
#
#   sbatch jobs/llama70b_3d.sh                             eight nodes
#   sbatch -N 16 jobs/llama70b_3d.sh train.lr=1e-4         sixteen: four copies; keys follow the script
#   sbatch -N 16 jobs/llama70b_3d.sh parallel.tensor=4 recompute=full     nodes of four GPUs
#   sbatch -N 2 jobs/llama70b_3d.sh model.preset=llama-tiny device=cpu \
#       parallel.tensor=2 parallel.pipeline=2              a small model, on nodes of any kind
#
# The number of ranks has to be a multiple of parallel.tensor x parallel.pipeline; their quotient is the number
# of copies.  Ranks are numbered node by node, so those that divide a layer are on one node.
# `trireme plan llama70b_3d.yaml --ranks 8N --nodes N --machine h100` says whether N nodes fit.
#
# Everything else - ranks, time limits, resuming after them, use without Slurm - is as in
# llama8b_fsdp.sh, which this script runs and which has to be in the same folder.
#SBATCH --job-name=llama70b_3d
#SBATCH --nodes=8
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@600
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out

# Slurm runs a copy of the script; its record of the job, or of the task of a job array, says where the
# script was.
beside=$0
job=${SLURM_ARRAY_TASK_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-${SLURM_JOB_ID:-}}
if [ -n "$job" ]; then
    command=$(scontrol show job "$job" | sed -n 's/^ *Command=//p' | sed "s|^[^/]|${SLURM_SUBMIT_DIR:-.}/&|")
    until [ -z "$command" ] || [ -f "$command" ]; do
        case $command in *' '*) command=${command% *} ;; *) command= ;; esac
    done
    beside=${command:-$beside}
fi
# shellcheck source=jobs/llama8b_fsdp.sh
. "$(dirname "$beside")/llama8b_fsdp.sh"
