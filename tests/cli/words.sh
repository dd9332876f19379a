#!/bin/sh
# words.sh - what people type who come from elsewhere, or in haste, is answered with what to type.
. "$(dirname "$0")/../cli/helpers.inc"
T=$TRIREME

# said NAME PATTERN COMMAND...: code 0, and a line of standard output matches.
said() {
    name=$1 pattern=$2
    shift 2
    "$@" >out 2>err </dev/null
    is "$name" "0 yes" "$? $(grep -q -E -e "$pattern" out && echo yes)"
}

refused "a misspelt command" 'did you mean train\?' "$T" trian
refused "no command at all like it" 'trireme --help' "$T" fold
for version in version -v -V --version; do said "trireme $version" '^trireme [0-9]' "$T" $version; done
said "--help after arguments" '^  trireme train' "$T" train model.preset=llama-tiny --help
said "help COMMAND" '--machine h100' "$T" help plan
said "train --help has an example" 'mpirun -n 2 trireme train' "$T" train --help
refused "an option for a key" 'train\.lr=1e-3' "$T" train --lr 1e-3
refused "an option of another trainer" 'train\.clip=1$' "$T" train --max-grad-norm=1
for blanks in "train.lr = 1e-3" "train.lr =1e-3" "train.lr= 1e-3"; do
    refused "blanks: $blanks" 'write it without blanks: train\.lr=1e-3$' "$T" train model.preset=llama-tiny $blanks
    refused "blanks at first: $blanks" 'write it without blanks: train\.lr=1e-3$' "$T" config $blanks model.preset=llama-tiny
done
echo words >one.txt
"$T" tokenize one.txt -o one.h5 >out 2>err
"$T" tokenize one.txt -o tokens.txt >out 2>err
is "the ending of a text for tokens" "0 1" "$? $(grep -c 'warning: .*tokens\.txt will be a token file (\.h5), and ends in \.txt as' err)"
printf 'ab ab ab' | "$T" tokenize - --train-bpe 258 -o tokenizer.h5 >out 2>err
is "the ending of tokens for a vocabulary" "0 1" "$? $(grep -c 'warning: tokenizer\.h5 will be a tokenizer (\.json), and ends in \.h5' err)"
for command in train plan config; do
    refused "$command of a token file" 'one\.h5 is an HDF5 file, as token files are, and no config.*: data\.train=one\.h5$' "$T" $command one.h5
done
refused "evaluate of a token file" 'is named by a key: data\.valid=one\.h5$' "$T" evaluate one.h5
refused "a token file for a tokenizer" 'one\.h5 is an HDF5 file, as token files are, and no tokenizer\.json$' \
    "$T" tokenize one.txt --tokenizer one.h5 -o two.h5
for key in run.dir model.path checkpoint.resume; do
    refused "generate with $key" 'generate takes the path alone: trireme generate runs/a$' "$T" generate $key=runs/a --prompt x
done
for arguments in "" data.valid=one.h5; do
    refused "evaluate of nothing: $arguments" 'name what to evaluate: trireme evaluate RUN data\.valid=FILE\.h5$' "$T" evaluate $arguments
done
refused "no model" 'model\.layers is not set: .*; a run is named by its directory, as the first argument$' "$T" config train.lr=1e-3
echo "seed: 1" >my.yaml
refused "a configuration for a command" 'no command .my\.yaml.; did you mean trireme train my\.yaml\?' "$T" my.yaml
refused "--model, with a preset" 'no option --model; it takes keys: model\.path=\.\.\. .*, or model\.preset=llama-tiny$' \
    "$T" train --model llama-tiny
refused "--model, with a name of the hub" 'or model\.preset=\.\.\.$' "$T" train --model=some-org/some-model
refused "a group in capitals" 'no group "Train"; did you mean train\?$' "$T" config --show Train
said "FSDP2 is a name of FULL_SHARD" '^  strategy: FULL_SHARD$' "$T" config model.preset=llama-tiny parallel.strategy=FSDP2
refused "--config" 'trireme train x\.yaml' "$T" train --config x.yaml
refused "-c" 'no option -c: the file stands alone, as in trireme train x\.yaml' "$T" train -c x.yaml
refused "--" 'trireme train x\.yaml' "$T" train -- x.yaml
refused "the value of another trainer's option, where it means another thing" \
    'train\.global_batch=\.\.\. \(train\.micro_batch times these steps times ranks\)$' \
    "$T" train --gradient_accumulation_steps 8
refused "a share for steps" 'train\.warmup_steps=\.\.\. \(in steps, not a share of them\)$' "$T" train --warmup_ratio 0.03
refused "a file for a strategy" 'parallel\.strategy=\.\.\. \(.*ZeRO-3 are FULL_SHARD' "$T" train --deepspeed ds.json
refused "several options of another trainer, at once" 'no option --tensor-model-parallel-size; it takes keys: parallel\.tensor=2; --num-layers is model\.layers=32; --bf16 is precision \(.*\); --lr is train\.lr=3e-4$' \
    "$T" train --tensor-model-parallel-size 2 --num-layers=32 --bf16 --unheard-of 3 --lr 3e-4
refused "several keys" 'key "num_layers"; here: model\.layers; unknown key "lrr"; did you mean train\.lr\?$' \
    "$T" train num_layers=2 train.lr=1 lrr=3
refused "a switch for a number format" 'precision=\.\.\. \(bf16 or fp16' "$T" train --bf16 true
refused "--data" 'data\.train=\.\.\. \(a token file' "$T" train --data x.h5
refused "an option that nothing does here" 'no option --compile: nothing has to be compiled' "$T" train --compile
refused "nor anything, with a value" 'no option --report_to: metrics\.jsonl' "$T" train --report_to wandb
refused "what this version lacks" 'no option --expert-model-parallel-size: expert parallelism is not' \
    "$T" train --expert-model-parallel-size 2
refused "a letter of llm.c" 'no option -c; it takes keys: train\.weight_decay=0\.1' "$T" train -c 0.1
refused "a letter that means nothing" 'no option -v; it has none, and takes key=value' "$T" train -v
refused "nor to a command with options" 'no option -v; it has --tokenizer' "$T" tokenize -v
for option in -n -np --gpus --nproc_per_node --num-processes; do
    refused "ranks by $option" 'a launcher starts the ranks, as in mpirun -n 2 trireme train \.\.\.' "$T" train $option 2
done
refused "ranks by -n, of a plan" 'did you mean --ranks' "$T" plan -n 2
refused "an option for a key, once on two ranks" 'train\.lr=1e-3' mpirun --oversubscribe -n 2 "$T" train --lr 1e-3
refused "an option that generate lacks" 'no option --beams; it has .*--tokens' \
    "$T" generate x --beams 5
refused "a misspelt option" 'did you mean --ranks' "$T" plan --rank 5
refused "an option without its value" '--ranks wants a value' "$T" plan --ranks
# What is meant, not what is spelt alike: COMMAND, WORDS, and what is answered.
while IFS='|' read -r command words wanted; do
    # shellcheck disable=SC2086
    refused "$command $words" "$wanted" "$T" $command $words
done <<'END'
train|save_every=500|"save_every"; here: checkpoint\.every$
train|--save-every 500|it takes keys: checkpoint\.every=500$
train|save_steps=500|here: checkpoint\.every$
train|save_interval=500|here: checkpoint\.every$
train|eval_steps=5|here: train\.eval_every$
train|logging_steps=5|here: run\.log_every$
train|max_steps=5|here: train\.steps$
train|epochs=5|here: train\.epochs$
train|num_train_epochs=5|here: train\.epochs$
train|batch=8|here: train\.global_batch \(of all ranks;
train|batch_size=8|here: train\.global_batch \(of all ranks;
train|data.path=x|here: data\.train \(
train|train.accumulate=4|here: train\.global_batch \(train\.micro_batch times .*is parallel\.accumulate\)$
train|accumulate=local|did you mean parallel\.accumulate\?$
train|-n 5000|mpirun -n 5000 .*; llm\.c's -n is a key here: checkpoint\.every=5000$
train|-np 2|or srun --mpi=pmix$
train|--use_lora|it takes keys: lora\.r=\.\.\. \(
train|use_lora=true|here: lora\.r \(
train|dropout=0.1|here: model\.residual_dropout \(model\.embed_dropout and model\.attention_dropout
train|model.dropout=0.1|here: model\.residual_dropout \(
train|--dropout 0.1|it takes keys: model\.residual_dropout=\.\.\. \(
train|lora.dropuot=0.1|did you mean lora\.dropout\?$
train|eval.batches=2|did you mean train\.eval_batches\?$
train|train.eval.every=2|did you mean train\.eval_every\?$
train|checkpoint.keep.best=true|did you mean checkpoint\.keep_best\?$
train|checkpoint.keep_last=2|here: checkpoint\.keep$
generate|x --max-tokens 5|no option --max-tokens; did you mean --tokens\?$
generate|x --max_new_tokens 5|no option --max_new_tokens; did you mean --tokens\?$
generate|x --max-new-tokens=5|no option --max-new-tokens; did you mean --tokens\?$
generate|x --min-new-tokens 5|did you mean --min-tokens\?$
generate|x --batch-size 5|did you mean --batch\?$
tokenize|x --output y|no option --output; did you mean -o\?$
tokenize|x --min-tokens 5|no option --min-tokens; it has
plan|--gpu-memory 80|no option --gpu-memory; did you mean --machine FILE\?$
plan|--world-size 4|no option --world-size; did you mean --ranks\?$
plan|--world_size 4|no option --world_size; did you mean --ranks\?$
plan|--num-nodes 2|no option --num-nodes; did you mean --nodes\?$
train|--world-size 4|as in mpirun -n 4 trireme train
train|comm.max_cta=4|did you mean comm\.max_ctas\?$
train|train.max_lrs=4|unknown key "train\.max_lrs"; trireme config --show lists the keys$
train|model.mla=true|unknown key "model\.mla"; trireme config --show lists the keys$
train|train.log_steps=4|unknown key "train\.log_steps"; here: run\.log_every$
END
# Neither "-" nor nothing is a file to write.
for option in 'tokenize words.txt -o' 'tokenize words.txt --train-bpe 300 -o' 'tokenize words.txt -o x.h5 --valid' \
    'plan --json' 'plan --yaml' 'plan --trace' 'plan --timeline-svg' 'plan --schedule-svg' 'plan --schedule-csv' \
    'doctor --measure'; do
    for name in - ''; do
        # shellcheck disable=SC2086
        refused "$option '$name'" "${option##* } '$name': name a file, which is written" "$T" $option "$name"
    done
    # shellcheck disable=SC2086
    refused "$option=" "${option##* } '': name a file, which is written" "$T" $option=
done
is "no file named - or nothing is made" none "$(ls -A | grep -e '^-' -e '^\.' || echo none)"
said "one key" '^train\.clip ' "$T" config --show train.clip
"$T" config --show train.clip >out
is "config --show KEY shows no other key" 1 "$(grep -c '^[a-z]' out)"
"$T" config --show parallel >out
is "a group" "0 yes" "$(grep '^[a-z]' out | grep -v -c '^parallel\.') $(grep -q '^parallel.shard' out && echo yes)"
said "models with their sizes" 'llama3-8b  *32  *4096  *8\.03 B' "$T" config --show model.preset
refused "a key to show that is none" 'train\.lr' "$T" config --show lr

# generate takes its prompt from standard input, too.
make_tokens
M="model.preset=llama-tiny device=cpu data.train=train.h5 data.seq_len=32 train.steps=1 run.dir=run"
timeout 60 "$T" train $M >out 2>err || not_ok "train one step" "$(tail -n 1 err)"
timeout 60 "$T" generate run --prompt "int " --tokens 8 >prompted 2>err
printf 'int ' | timeout 60 "$T" generate run --tokens 8 >piped 2>err
if [ -s prompted ] && cmp -s prompted piped; then ok "a prompt from standard input"; else
    not_ok "a prompt from standard input" "$(cat piped err)"; fi
if command -v script >/dev/null; then
    script -qec "$T generate run --tokens 8" /dev/null >out 2>&1
    is "no prompt at a terminal" 1 "$(grep -c 'wants a text to continue' out)"
else
    skip "no prompt at a terminal" "script is not installed"
fi

# Completion, in a real bash: complete WORD... prints what the last word may become.
if ! command -v bash >/dev/null; then
    skip completion "bash is not installed"
    finish
fi
"$T" completion bash >completion
cat >complete <<'END'
source ./completion || exit 1
complete -p trireme
COMP_WORDS=(trireme "$@") COMP_CWORD=$#
_trireme 2>&1
printf '%s\n' "${COMPREPLY[@]}"
END
completes() {
    name=$1 wanted=$2
    shift 2
    is "completion: $name" "$wanted" "$(bash complete "$@" | sed 1d | sort | tr '\n' ' ' | sed 's/ $//')"
}
is "completion is registered" "complete -F _trireme trireme" "$(bash complete tr | head -n 1)"
completes "a command" "tokenize" tok
completes "a command to be helped with" "plan" help pl
completes "what a search keeps" "batch_per_rank global_batch" plan --keep ""
completes "number formats of convert" "bf16 fp16 fp32" convert --dtype ""
completes "one of them behind =" "--dtype=bf16" convert --dtype=b
completes "keys" "train.eval_batches= train.eval_every= train.eval_micro_batch=" train train.eval
completes "values of a key" "FULL_SHARD" train parallel.strategy = FU
completes "all of its values" "auto cpu cuda" plan device =
completes "models" "llama3-70b llama3-8b" train model.preset = llama3-
completes "where '=' breaks no word" "device=cpu device=cuda" train device=c
completes "true and false" "true" train train.split_batches = t
completes "options" "--machine" plan --m
completes "machines" "h100 h100-nvl h100-pcie" plan --machine h1
completes "files for CONFIG" "completion" train completi
completes "files for a key" "train.h5" train data.train = tra
completes "what a command does" "verify" checkpoint v
completes "keys to show" "train.clip" config --show train.cl
for command in $("$T" --help | sed -n 's/^  trireme \([a-z]*\).*/\1/p'); do
    bash complete "$command" | grep -qx "$command" || unsaid="${unsaid-} $command"
done
is "completion knows every command" "none" "${unsaid-none}"
finish
