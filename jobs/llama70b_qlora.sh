#!/bin/bash
# llama70b_qlora.sh - fine-tunes by llama70b_qlora.yaml beside it: Llama-3-70B on one GPU of 80 GB, by
# adapters of low rank beside a frozen model of 4 bits.
#
#   hf download meta-llama/Meta-Llama-3-70B --local-dir llama-3-70b
#   sbatch jobs/llama70b_qlora.sh model.path=llama-3-70b data.train=my.h5
#   sbatch -N 2 jobs/llama70b_qlora.sh model.path=llama-3-70b data.train=my.h5   a copy on each of their GPUs
#   trireme convert runs/llama70b_qlora-123 adapter            two files, as peft reads them
#   trireme convert runs/llama70b_qlora-123 merged --merge     the model with the adapters added, in 16 bits
#
# `trireme plan jobs/llama70b_qlora.yaml --ranks 1 --machine h100` says what it needs; before the model is
# there, with model.preset=llama3-70b.
#
# Everything else - ranks, time limits, resuming after them, use without Slurm - is as in
# llama8b_fsdp.sh, which this script runs and which has to be in the same folder.
#SBATCH --job-name=llama70b_qlora
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
