#!/bin/bash
# llama8b_2gpu_offload.sh - fine-tunes by llama8b_2gpu_offload.yaml beside it: all of Llama-3-8B
# on two GPUs of 24 GB, which hold the layers at work; parameters, gradients and the optimizer's state
# are in the node's memory, of which 160 GB are enough, and its cores do the update.
#
#   hf download meta-llama/Meta-Llama-3-8B --local-dir llama3
#   trireme tokenize chats.jsonl --tokenizer llama3 --chat-template llama3 -o data/chats.h5
#   sbatch jobs/llama8b_2gpu_offload.sh                       two GPUs of one node
#   sbatch jobs/llama8b_2gpu_offload.sh train.lr=5e-6         keys of the configuration after it
#   sbatch jobs/llama8b_2gpu_offload.sh model.path=mine data.train=my.h5 data.valid=held.h5 train.eval_every=100
#   jobs/llama8b_2gpu_offload.sh ...                          the same without Slurm, on this machine, by mpirun
#   trireme convert runs/llama8b_2gpu_offload-123 tuned       for Hugging Face's programs
#
# Everything else - TRIREME_RANKS, time limits, resuming after them - is as in
# gpt2xl_zero3_offload.sh, which this script runs and which has to be in the same folder.
#SBATCH --job-name=llama8b_2gpu_offload
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
# shellcheck source=jobs/gpt2xl_zero3_offload.sh
. "$(dirname "$beside")/gpt2xl_zero3_offload.sh"
