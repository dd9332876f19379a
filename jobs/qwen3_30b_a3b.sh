#!/bin/bash
# qwen3_30b_a3b.sh - trains by qwen3_30b_a3b.yaml beside it: all of Qwen3-30B-A3B, a mixture of 128 experts, on
# one node of eight GPUs of 80 GB.
#
#   hf download Qwen/Qwen3-30B-A3B --local-dir qwen3-30b-a3b
#   sbatch jobs/qwen3_30b_a3b.sh model.path=qwen3-30b-a3b data.train=my.h5
#   sbatch -N 2 jobs/qwen3_30b_a3b.sh model.path=qwen3-30b-a3b data.train=my.h5    a sixteenth of it on each GPU
#   trireme convert runs/qwen3_30b_a3b-123 qwen3-30b-a3b-tuned    a folder as it was, for Hugging Face's programs
#
# `trireme plan jobs/qwen3_30b_a3b.yaml --ranks 8 --machine h100` says what it needs.
#
# Everything else - ranks, time limits, resuming after them, use without Slurm - is as in
# llama8b_fsdp.sh, which this script runs and which has to be in the same folder.
#SBATCH --job-name=qwen3_30b_a3b
#SBATCH --nodes=1
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
