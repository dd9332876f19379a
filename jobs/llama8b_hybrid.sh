#!/bin/bash
# llama8b_hybrid.sh - trains by llama8b_hybrid.yaml beside it: a copy of Llama-3-8B per node,
# sharded over the node's GPUs, so that parameters never cross the network, and gradients cross it once
# a step, as shards.
#
#   sbatch jobs/llama8b_hybrid.sh                           two nodes
#   sbatch -N 16 jobs/llama8b_hybrid.sh train.lr=1e-4       options of Slurm before the script, keys after it
#   sbatch jobs/llama8b_hybrid.sh parallel.shard=4          copies of four GPUs, two a node of eight
#   sbatch jobs/llama8b_hybrid.sh model.preset=llama-tiny device=cpu
#
# Everything else - ranks, time limits, resuming after them, use without Slurm - is as in
# llama8b_fsdp.sh, which this script runs and which has to be in the same folder.
#SBATCH --job-name=llama8b_hybrid
#SBATCH --nodes=2
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
