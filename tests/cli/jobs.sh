#!/bin/sh
# jobs.sh - the jobs for two small GPUs as their heads describe them, with tiny models on CPUs: data
# made with the model's tokenizer, the script under mpirun, and what it has written; plans of the
# models that they are for, on the machines that they are for; and which jobs queue themselves again.
. "$(dirname "$0")/../cli/helpers.inc"
export TRIREME TRIREME_RANKS=2
mkdir data

# 24 GB a GPU, and the host's memory that the job's head names.
"$TRIREME" plan "$top/jobs/gpt2xl_zero3_offload.yaml" --ranks 2 --machine rtx4090 --node-memory 60 >out 2>err
is "GPT2-XL fits two GPUs of 24 GB with 60 GB of host memory" "0 1" "$? $(grep -c '^fits on rtx4090' out)"
"$TRIREME" plan "$top/jobs/llama8b_2gpu_offload.yaml" model.preset=llama3-8b --ranks 2 --machine rtx4090 \
    --node-memory 160 >out 2>err
is "all of Llama-3-8B with 160 GB" "0 1" "$? $(grep -c '^fits on rtx4090' out)"
"$TRIREME" plan "$top/jobs/llama8b_1gpu.yaml" model.preset=llama3-8b --machine h100 >out 2>err
is "the same on one of 80 GB, nothing in the host's memory" "0 1 0" \
    "$? $(grep -c '^fits on h100' out) $(grep -c 'offloaded state of a step' out)"

# The language model: one epoch of a text, from random weights and a folder's configuration.
mkdir gpt2-xl
cp "$top/tests/golden/tokenizers/gpt2.json" gpt2-xl/tokenizer.json
sed -e 's/"vocab_size": .*/"vocab_size": 384/' -e 's/"n_positions": .*/"n_positions": 32,/' \
    "$top/tests/golden/gpt2.hf/config.json" >gpt2-xl/config.json
awk -v bytes=60000 -f "$top/tests/cli/text.awk" >wiki.train.raw
head -c 3000 wiki.train.raw >wiki.valid.raw
for set in train valid; do
    "$TRIREME" tokenize wiki.$set.raw --tokenizer gpt2-xl -o data/$set.h5 >out 2>err || cat err
done
"$top/jobs/gpt2xl_zero3_offload.sh" model.path=gpt2-xl model.init=scratch data.seq_len=32 device=cpu \
    train.micro_batch=4 run.threads=1 >out 2>err
is "gpt2xl_zero3_offload with a tiny GPT-2" 0 $?
run=runs/gpt2xl_zero3_offload
sequences=$(sed -n 's/.* tokens, \([0-9]*\) sequences of 32.*/\1/p' out err | head -n 1)
is "an epoch is as many steps as the text has" "$(((${sequences:-0} + 31) / 32))" "$(last_metric $run step)"
# lr is 5e-4 at step 2 and falls to 0 at the last one.
rate_of() { sed -n "s/^{\"step\": $1,.*\"lr\": *\([^,}]*\).*/\1/p" $run/metrics.jsonl; }
is "WarmupDecayLR: half, all, and 0 at the end" "0.00025 0.0005 0.0" "$(rate_of 1) $(rate_of 2) $(last_metric $run lr)"
is "fp16 begins with a scale of 2^16" 65536 "$(sed -n '1s/.*"loss_scale": *\([0-9]*\).*/\1/p' $run/metrics.jsonl)"
is "a job's run is evaluated after the last step" 1 "$(grep -c '"eval_loss"' $run/metrics.jsonl)"
is "a job's run learns" less "$(awk -v a="$(sed -n '1s/.*"loss": *\([^,}]*\).*/\1/p' $run/metrics.jsonl)" \
    -v b="$(last_metric $run loss)" 'BEGIN { print (b > 0 && b < a - 0.1 ? "less" : a " " b) }')"
"$TRIREME" generate $run --prompt "the" --tokens 3 >out 2>err
is "generate writes with its tokenizer" 0 $?

# All of a Llama, fine-tuned on conversations, from a folder with weights.
mkdir llama3
"$TRIREME" train model.layers=2 model.hidden=32 model.heads=4 model.kv_heads=2 model.ffn=128 model.vocab=389 \
    model.max_seq_len=128 data.train=data/train.h5 data.seq_len=32 train.steps=2 device=cpu run.threads=1 \
    run.dir=made >out 2>err && "$TRIREME" convert made llama3 >out 2>err || cat err
cp "$top/tests/golden/tokenizers/llama3.json" llama3/tokenizer.json
awk 'BEGIN { for (i = 1; i <= 60; i++)
    printf "{\"messages\": [{\"role\": \"user\", \"content\": \"what is behind %d?\"}, " \
           "{\"role\": \"assistant\", \"content\": \"%d is behind %d.\"}]}\n", i, i + 1, i }' >chats.jsonl
"$TRIREME" tokenize chats.jsonl --tokenizer llama3 --chat-template llama3 -o data/chats.h5 >out 2>err || cat err
tune() { # tune NAME SETTINGS...
    name=$1
    shift
    "$top/jobs/llama8b_2gpu_offload.sh" data.seq_len=128 train.global_batch=4 train.micro_batch=1 device=cpu \
        train.lr=1e-3 train.warmup_steps=1 run.threads=1 run.dir="$name" "$@" >out 2>err
}
tune each
is "llama8b_2gpu_offload with a tiny Llama" 0 $?
is "a job with model.path begins with the folder's weights" 1 "$(cat out err | grep -c 'weights begin with those of llama3')"
is "three epochs" 3 "$(grep -c '"epoch_s"' each/metrics.jsonl)"
is "a job's run learns" less "$(awk -v a="$(sed -n '1s/.*"loss": *\([^,}]*\).*/\1/p' each/metrics.jsonl)" \
    -v b="$(last_metric each loss)" 'BEGIN { print (b > 0 && b < a - 0.1 ? "less" : a " " b) }')"
"$TRIREME" convert each tuned >out 2>err
is "convert writes it for Hugging Face's programs" "0 yes" "$? $([ -f tuned/model.safetensors ] && echo yes)"
TRIREME_RANKS=1 "$top/jobs/llama8b_1gpu.sh" data.seq_len=128 train.global_batch=4 device=cpu train.lr=1e-3 \
    train.warmup_steps=1 run.threads=1 run.dir=alone >out 2>err
is "llama8b_1gpu with a tiny Llama" 0 $?
is "learns, with moments of 8 bits" "less 1" "$(awk -v a="$(sed -n '1s/.*"loss": *\([^,}]*\).*/\1/p' alone/metrics.jsonl)" \
    -v b="$(last_metric alone loss)" 'BEGIN { print (b > 0 && b < a - 0.1 ? "less" : a " " b) }') $(
        "$TRIREME" checkpoint show alone | grep -c 'exp_avg_absmax/layers.0.mlp.up')"

# Adapters beside 4 bits, and the plan of the model that they are for.
refused "adapters begin from a model, not from random weights" 'llama-3-70b is no folder .*; before it is there, .*model.preset=NAME' \
    "$TRIREME" plan "$top/jobs/llama70b_qlora.yaml" --machine h100
"$TRIREME" plan "$top/jobs/llama70b_lora.yaml" model.preset=llama2-70b --ranks 8 --nodes 1 --machine h100 >out 2>err
is "Llama-2-70B with adapters fits one node of eight GPUs of 80 GB" "0 1" "$? $(grep -c '^fits on h100' out)"
"$TRIREME" plan "$top/jobs/llama70b_qlora.yaml" model.preset=llama3-70b --machine h100 >out 2>err
is "Llama-3-70B of 4 bits fits one GPU of 80 GB" "0 1" "$? $(grep -c '^fits on h100' out)"
TRIREME_RANKS=2 "$top/jobs/llama70b_qlora.sh" model.path=llama3 data.train=data/chats.h5 data.seq_len=128 \
    train.global_batch=4 device=cpu train.lr=1e-2 train.steps=12 train.warmup_steps=1 run.threads=1 run.dir=four >out 2>err
is "llama70b_qlora with a tiny Llama" "0 1" "$? $(cat out err | grep -c 'quantize_base=nf4: .* are kept in 4 bits')"
is "learns" less "$(awk -v a="$(sed -n '1s/.*"loss": *\([^,}]*\).*/\1/p' four/metrics.jsonl)" \
    -v b="$(last_metric four loss)" 'BEGIN { print (b > 0 && b < a - 0.05 ? "less" : a " " b) }')"

# A mixture of experts, and the plan of the one that the job is for.
"$TRIREME" plan "$top/jobs/qwen3_30b_a3b.yaml" --ranks 8 --machine h100 >out 2>err
is "Qwen3-30B-A3B fits one node of eight GPUs of 80 GB" "0 1" "$? $(grep -c '^fits on h100' out)"
TRIREME_RANKS=2 "$top/jobs/qwen3_30b_a3b.sh" model.preset=llama-tiny-moe data.train=data/chats.h5 data.seq_len=128 \
    train.global_batch=8 device=cpu train.lr=1e-2 train.steps=12 train.warmup_steps=1 run.threads=1 run.dir=mixture >out 2>err
is "qwen3_30b_a3b with a tiny mixture of experts" "0 1" "$? $(cat out err | grep -c 'experts a block, of which a token goes through')"
is "it learns" less "$(awk -v a="$(sed -n '1s/.*"loss": *\([^,}]*\).*/\1/p' mixture/metrics.jsonl)" \
    -v b="$(last_metric mixture loss)" 'BEGIN { print (b > 0 && b < a - 0.05 ? "less" : a " " b) }')"

# The same weights where one rank of the node reads for both.
tune node model.loading=node
is "one rank reads for all" "0 1" "$? $(cat out err | grep -c 'model.loading=node: rank 0 read .* for the ranks')"
is "the same losses" "$(last_metric each loss)" "$(last_metric node loss)"
if same_state each node; then ok "the same state to the bit"; else
    not_ok "the same state to the bit" "$(tail -n 3 err)"; fi
refused "a way of loading that there is not" 'model\.loading.*each.*node' \
    "$TRIREME" train model.path=llama3 data.train=data/chats.h5 model.loading=rank
refused "new magnitudes by one rank" 'lora\.use_dora begins with norms.*model\.loading at each' \
    "$TRIREME" train model.path=llama3 data.train=data/chats.h5 model.loading=node lora.r=2 lora.use_dora=true \
    device=cpu run.dir=never
refused "Accelerate's name for it" 'cpu_ram_efficient_loading.*model\.loading' \
    "$TRIREME" train model.path=llama3 data.train=data/chats.h5 fsdp.cpu_ram_efficient_loading=true

# Which jobs queue themselves again: srun and scontrol are stand-ins, and each start saves the steps
# in `saves` and ends with 75.  The run's newest checkpoint is damaged, as it is where a start resumes
# before it and saves earlier steps.
mkdir bin
cat >bin/scontrol <<'END'
#!/bin/sh
case $1 in
show) echo "   Command=$JOB" ;;
requeue) echo "$2" >>requeued ;;
esac
END
cat >bin/srun <<'END'
#!/bin/sh
for step in $(cat saves); do
    folder=$(printf 'queue/checkpoints/step-%08d' "$step")
    rm -rf "$folder" && mkdir -p "$folder" && : >"$folder/COMMIT"
done
exit 75
END
chmod +x bin/*
start() { # start N STEPS: start N of the job; what it does about the queue in $did, what it says in out
    echo "$2" >saves
    : >requeued
    PATH=$work/bin:$PATH SLURM_JOB_ID=7 SLURM_JOB_NAME=queue SLURM_JOB_NUM_NODES=1 SLURM_NNODES=1 \
        SLURM_NTASKS=1 SLURM_CPUS_ON_NODE=1 SLURM_RESTART_COUNT="$1" "$JOB" run.dir=queue >out 2>err
    did="$? $(cat requeued)"
}
export JOB
for name in llama8b_fsdp gpt2xl_zero3_offload; do
    JOB=$top/jobs/$name.sh
    rm -rf queue
    start 0 "50 100"
    is "$name that has saved is queued again" "75 7 1" "$did $(grep -c 'state saved at step 100; job 7' out)"
    start 1 80
    is "$name that saves before a damaged checkpoint" "75 7 1" "$did $(grep -c 'state saved at step 80; job 7' out)"
    start 2 90
    is "$name, once more" "75 7 1" "$did $(grep -c 'state saved at step 90; job 7' out)"
    start 3 100
    is "$name that replaces it" "75 7 1" "$did $(grep -c 'state saved at step 100; job 7' out)"
    start 4 ""
    is "$name that saves nothing is queued once more" "75 7 1" \
        "$did $(grep -c 'nothing new was saved (newest checkpoint: step 100); job 7' out)"
    start 5 ""
    is "$name, not twice" "75  1" "$did $(grep -c 'twice in a row: job 7 is not queued again' out)"
    rm -rf queue
    start 0 ""
    is "$name whose first start makes no run is queued again" "75 7 1 0" \
        "$did $(grep -c 'nothing new was saved; job 7' out) $(wc -l <err)"
    start 1 ""
    is "$name, not twice either" "75  1" "$did $(grep -c 'twice in a row: job 7 is not queued again' out)"
done
finish
