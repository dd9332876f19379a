#!/bin/bash
# search.sh - the fastest layout, and that of several numbers of nodes, as people ask for them.
. "$(dirname "$0")/../cli/helpers.inc"
M="model.preset=llama-124m precision=bf16 data.seq_len=512 train.global_batch=64 --machine h100"

"$TRIREME" plan $M --gpus 16 --nodes 2 --search --json found.json --yaml best.yaml >out 2>err
is "the fastest layouts: ten, the best first" "0 10 10" "$? $(grep -cE '^ *[0-9]+  [0-9.]+ m?s a step' out) \
$(grep -c '"settings"' found.json)"
"$TRIREME" plan best.yaml --ranks 16 --nodes 2 --machine h100 --json best.json >out2 2>err
is "the YAML of the fastest layout is a plan of its step" "$(sed -n 's/ *"step_ms": \([0-9.]*\).*/\1/p' found.json | head -n 1 | cut -c1-8)" \
    "$(sed -n 's/ *"step_ms": \([0-9.]*\).*/\1/p' best.json | head -n 1 | cut -c1-8)"
"$TRIREME" plan $M --ranks 16 --nodes 2 --search >out2 2>err
is "--gpus is --ranks" 0 "$(cmp out out2 >/dev/null; echo $?)"

"$TRIREME" plan $M --search --nodes 1-3 --json nodes.json >out 2>err
is "several numbers of nodes" "0 1 8 64, 2 16 64, 3 24 64" "$? $(
    awk '/^ *[0-9]+ +[0-9]+ +[0-9]+ / { printf "%s%d %d %d", n++ ? ", " : "", $1, $2, $3 }' out)"
is "several numbers of nodes as JSON" "3 3" "$(grep -c '"ranks"' nodes.json) $(grep -c '"candidates"' nodes.json)"
"$TRIREME" plan $M --search --nodes 1-2 --keep batch_per_rank >out 2>err
is "the batch of each rank stays" "0 64 128" "$? $(awk '/^ *[0-9]+ +[0-9]+ +[0-9]+ / { print $3 }' out | xargs)"
is "a row's settings say the batch where it is not the given one" "0 1" \
    "$(grep -c 'train\.global_batch=64' out) $(grep -c 'train\.global_batch=128' out)"
"$TRIREME" plan $M --search --nodes 1-4 --gpus 2 >out 2>err
is "fewer ranks than nodes" "0 1" "$? $(grep -c ' 4 *2 *64  a node has at least one rank' out)"
"$TRIREME" plan model.preset=llama3-70b precision=bf16 train.global_batch=8 --machine rtx4090 \
    --search --nodes 1-2 --gpus 2 --node-memory 64 >out 2>err
is "too large on any" "0 2" "$? $(tr '\n' ' ' <out | tr -s ' ' | grep -o 'none of [0-9]* layouts' | wc -l)"

"$TRIREME" plan $M --gpus 16 --nodes 2 parallel.layout=auto --json auto.json >out2 2>err
is "a plan of parallel.layout=auto is of the best" "0 $(sed -n 's/ *"step_ms": \([0-9.]*\).*/\1/p' best.json | head -n 1)" \
    "$? $(sed -n 's/ *"step_ms": \([0-9.]*\).*/\1/p' auto.json | head -n 1)"
"$TRIREME" plan $M --gpus 16 --nodes 2 parallel.layout=auto --search --yaml given.yaml >out2 2>err
is "the layout that is written is given" "0 1" "$? $(grep -c 'layout: given' given.yaml)"
sed 's|^  dir: .*|  dir: "~/runs/x"|' given.yaml >home.yaml
refused "a written layout that is edited is the user's: ~ is not expanded" 'home.yaml:[0-9]+: .*~' "$TRIREME" config home.yaml
"$TRIREME" plan $M --gpus 16 --nodes 2 --search parallel.pipeline=2 parallel.pipeline_reshard=true >out2 2>err
is "a key of stages hides no layout of one" "0 parallel.pipeline=1" \
    "$? $(grep -o 'parallel.pipeline=[0-9]*' out2 | head -n 1)"
# What a row says goes behind what was given, whatever that was.
printed() { sed -n '/^ 1 /,/^$/p' out | sed 1d; }
for given in parallel.stages=7,7 parallel.schedule=zb_h1 parallel.pipeline_reshard=true parallel.layout=auto; do
    "$TRIREME" plan $M parallel.pipeline=2 $given --gpus 16 --nodes 2 --search >out 2>err
    "$TRIREME" plan $M parallel.pipeline=2 $given $(printed) --gpus 16 --nodes 2 >out2 2>err
    is "the settings of a row behind $given" "0 $(sed -n 's/^ 1  *\([0-9.]* m*s\) a step.*/\1/p' out)" \
        "$? $(sed -n 's/^forecast on .*one: \([0-9.]* m*s\) a step.*/\1/p' out2)"
done
refused "a layout of no machine" 'parallel.layout auto: .* Name it with --machine' \
    "$TRIREME" plan model.preset=llama-tiny parallel.layout=auto
refused "batches that depend on the layout" 'layouts of the same global batch, and with train.split_batches=false' \
    "$TRIREME" plan $M --search --ranks 2 --machine h100 train.split_batches=false
# A batch in tokens is the same batch.
for batch in train.global_batch=512 train.global_batch_tokens=1048576; do
    "$TRIREME" plan model.preset=llama3-8b precision=bf16 data.seq_len=2048 --machine h100 --gpus 8 \
        $batch --search >"$batch.out" 2>err
done
is "a batch in tokens is searched as one in sequences" "0 1" "$(cmp -s train.global_batch=512.out \
    train.global_batch_tokens=1048576.out; echo $?) $(grep -c '^ 1 ' train.global_batch=512.out)"
# A node's memory is shared by the ranks that a row has on it.
W="model.preset=llama3-8b model.layers=80 precision=bf16 data.seq_len=512 train.global_batch=8
   --node-memory 128 --ranks 8 --machine rtx4090 --search"
# shellcheck disable=SC2086
{
    "$TRIREME" plan $W --nodes 1-8 --json rows.json >out 2>err
    "$TRIREME" plan $W --nodes 8 >one 2>err
}
is "with fewer ranks on a node each has more of its memory" "1 1" "$(grep -c '^ *8  *8  *8  *[0-9.]* s' out) $(
    grep -c "^ 1 *$(awk '$1 == 8 && $2 == 8 { print $4, $5 }' out) a step" one)"
# Gradients in 16 bits need all of a rank's share in one micro-batch, of whatever size.
for batch in 24 56; do
    "$TRIREME" plan model.preset=llama3-8b precision=bf16 train.grad_dtype=bf16 data.seq_len=2048 train.global_batch=$batch \
        --ranks 8 --machine h200 --search >out 2>err
    is "gradients in 16 bits, $batch sequences of 8 ranks" "0 10" "$? $(grep -cE '^ *[0-9]+  [0-9.]+ m?s a step' out)"
done
refused "several nodes of no search" '--nodes 2-4: .* go with --search' "$TRIREME" plan $M --nodes 2-4
cp best.yaml edited.yaml
refused "a search does not replace its input" '--yaml: edited.yaml is an input, and would be overwritten' \
    "$TRIREME" plan edited.yaml --machine h100 --gpus 16 --nodes 2 --search --yaml edited.yaml
cp "$top/jobs/llama8b_fsdp.yaml" job.yaml
refused "nor a configuration that the user wrote" '--yaml: job.yaml is there, and is no configuration of trireme' \
    "$TRIREME" plan $M --gpus 16 --nodes 2 --search --yaml job.yaml
is "both are as they were" "0 0" "$(cmp best.yaml edited.yaml; echo $?) $(cmp job.yaml "$top/jobs/llama8b_fsdp.yaml"; echo $?)"
"$TRIREME" plan $M --gpus 2 --search --yaml edited.yaml --json found.json >out 2>err
is "what a search wrote is replaced" "0 1" "$? $(cmp -s best.yaml edited.yaml; echo $?)"
refused "several nodes as YAML" '--yaml writes one layout' "$TRIREME" plan $M --search --nodes 2-4 --yaml x.yaml
refused "nodes backward" '--nodes 4-2: the smaller number comes first' "$TRIREME" plan $M --search --nodes 4-2
refused "nodes without an end" '--nodes 2-: from how many to how many, as in --nodes 2-64' "$TRIREME" plan $M --search --nodes 2-
refused "no nodes" '--nodes -3: a whole number' "$TRIREME" plan $M --search --nodes -3
refused "both names" '--gpus is another name of --ranks' "$TRIREME" plan $M --gpus 4 --ranks 4
refused "nothing to keep" '--keep .* with --search' "$TRIREME" plan $M --search --keep global_batch
refused "what cannot be kept" '--keep lr: global_batch or batch_per_rank' \
    "$TRIREME" plan $M --search --nodes 1-2 --keep lr
finish
