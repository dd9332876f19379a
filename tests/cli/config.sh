#!/bin/sh
# config.sh - wrong configurations end at once, with code 1 and one line that says what to do.
. "$(dirname "$0")/../cli/helpers.inc"

T="$TRIREME train"
make_tokens

# Names
refused "misspelt key, nearest named" 'train\.stpes.*train\.steps' $T train.stpes=3
refused "key of another tool" 'here: train\.micro_batch' $T per_device_train_batch_size=3
refused "a key for weights of elsewhere" 'here: model\.path ' $T model_name_or_path=gpt2
refused "a key of the opposite sense" 'here: model\.tie_embeddings \(the opposite' \
    $T untie_embeddings_and_output_weights=true
for key in lora.rank lora_rank; do refused "$key" 'here: lora\.r$' $T $key=4; done
refused "what the launcher does" 'mpirun -n N' $T num_processes=4
refused "a model of Hugging Face's hub" \
    'begin with them: model\.path=meta-llama/Meta-Llama-3-8B;.*model\.preset=llama3-8b$' \
    $T model.preset=meta-llama/Meta-Llama-3-8B
printf 'compute_environment: LOCAL_MACHINE\nmixed_precision: bf16\n' >accelerate.yaml
refused "a file of another tool" \
    'accelerate\.yaml is a configuration of Accelerate, not of trireme; trireme config --translate accelerate\.yaml writes' \
    $T accelerate.yaml
cat >deepspeed.json <<'END'
{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "nvme"},
  "reduce_bucket_size": "auto"},
 "optimizer": {"type": "AdamW", "params": {"lr": 2e-4, "weight_decay": "auto"}},
 "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 1, "total_num_steps": 9}},
 "gradient_clipping": 0.5, "wall_clock_breakdown": false, "bf16": {"enabled": true}, "unheard_of": 1}
END
"$TRIREME" config --translate deepspeed.json >translated.yaml 2>err
is "its translation" "0 0" "$? $(wc -c <err | tr -d ' ')"
"$TRIREME" config translated.yaml model.preset=llama-tiny model.vocab=256 >effective 2>err
is "is a configuration, with the values that trireme takes" \
    "0 precision: bf16 steps: 9 lr: 0.0002 schedule: linear warmup_steps: 1 optimizer: adamw clip: 0.5 strategy: FULL_SHARD schedule: 1f1b optimizer: host params: disk" \
    "$? $(grep -E '^(precision|  (strategy|optimizer|params|steps|lr|schedule|warmup_steps|clip)):' effective | xargs)"
is "and names the other keys" "1 1 1" "$(grep -c '^# optimizer.params.weight_decay: auto is train.weight_decay here$' translated.yaml) $(
    grep -c '^# reduce_bucket_size: auto is parallel.reduce_bucket_bytes here' translated.yaml) $(
    grep -c '^# Without an answer: unheard_of$' translated.yaml)"
printf '#!/bin/sh\ntorchrun pretrain_gpt.py --num-layers 24 --train-iters 5 \\\n --bf16\n' >megatron.sh
refused "a script with options of Megatron-LM" 'megatron\.sh is a configuration of Megatron-LM' $T megatron.sh
is "its translation too" "model.layers: 24 train.steps: 5 precision: bf16" \
    "$("$TRIREME" config --translate megatron.sh | sed -n 's/^\([a-z.]*: [a-z0-9]*\)  *# [nbt].*/\1/p' | xargs)"
printf 'train:\n  steps: 3\n' >ours.yaml
refused "a translation of trireme's own" 'ours\.yaml is not recognised' "$TRIREME" config --translate ours.yaml
refused "a translation of nothing" 'translate wants a value: --translate FILE' "$TRIREME" config --translate
refused "a translation of two" 'takes one file' "$TRIREME" config --translate deepspeed.json megatron.sh
refused "a translation of what is not there" 'nowhere' "$TRIREME" config --translate nowhere
refused "all presets are named" 'gpt2-large, gpt2-xl$' $T model.preset=d12
refused "said once" '^trireme: error: train\.steps: "abc" is not a whole number$' $T train.steps=abc
refused "group for a key" 'model' $T model=llama
refused "unknown preset" 'llama-tiny' $T model.preset=llama-tiney data.train=train.h5
refused "override without a value" 'steps' $T model.preset=llama-tiny train.steps data.train=train.h5
for group in trian training trainer; do
    printf '%s:\n  lr: 1e-4\n' $group >group.yaml
    refused "misspelt group $group in a file" "group\.yaml:1: unknown group .$group.; did you mean train\?" \
        $T group.yaml
done
printf 'train:\n  steps: 3\n  stpes: 4\n' >misspelt.yaml
refused "misspelt key in a file: where and what" 'misspelt\.yaml:3.*train\.steps' $T misspelt.yaml
printf 'model.path: nowhere\ntrain.stpes: 4\n' >gone.yaml
refused "misspelt keys come before a folder that is not there" \
    "gone\.yaml:2: unknown key .train\.stpes.; did you mean train\.steps\?; unknown key .train\.lrr.; did you mean train\.lr\?$" $T gone.yaml train.lrr=1
long=$(printf 'q%.0s' $(seq 85))
refused "an argument whose key is cut: the whole of it" "argument $long=value: unknown key" $T $long=value
refused "a value for a group of keys: some of its keys" 'model is a group of keys .*model[.]preset' $T model=llama-tiny

# Values
refused "text for a number" 'train\.lr.*fast' $T model.preset=llama-tiny train.lr=fast
refused "fraction for a whole number" 'train\.steps' $T model.preset=llama-tiny train.steps=1.5
refused "negative steps" 'train\.steps' $T model.preset=llama-tiny train.steps=-1
refused "number past 64 bits" 'train\.steps' $T model.preset=llama-tiny train.steps=99999999999999999999
refused "not a number" 'train\.lr' $T model.preset=llama-tiny train.lr=nan
refused "a tensor that is not there, as in training" 'train\.freeze: no tensor is called nope\.\*; the model has' \
    "$TRIREME" config model.preset=llama-tiny 'train.freeze=nope.*'
refused "a module that is not there, as in training" 'lora\.target_modules: the model has no module "nope"' \
    "$TRIREME" config model.preset=llama-tiny lora.r=2 lora.target_modules=nope
refused "unknown choice, choices named" 'FULL_SHARD' $T model.preset=llama-tiny parallel.strategy=FUL
refused "empty value" 'train\.steps' $T model.preset=llama-tiny train.steps=
refused "sequence longer than the model's" 'seq_len' $T model.preset=llama-tiny data.train=train.h5 \
    data.seq_len=100000
refused "heads that do not divide" 'heads' $T model.preset=llama-tiny data.train=train.h5 \
    model.kv_heads=3
for strategy in "" parallel.strategy=SHARD_OPTIM "parallel.strategy=HYBRID_SHARD parallel.shard=2"; do
    refused "buckets of gradients that are not summed whole ($strategy)" 'parallel\.reduce_bucket_bytes is of .*leave it out' \
        $T model.preset=llama-tiny data.train=train.h5 parallel.reduce_bucket_bytes=0 $strategy
done
"$TRIREME" config model.preset=llama-tiny parallel.reduce_bucket_bytes=0 parallel.strategy=HYBRID_SHARD parallel.shard=1 >out 2>err
is "buckets of copies that are whole" 0 $?
refused "gradients in bf16 to no shard" 'comm\.reduce_dtype' $T model.preset=llama-tiny \
    data.train=train.h5 parallel.strategy=NO_SHARD comm.reduce_dtype=bf16
refused "gradients in fp16 without a loss scale" 'comm\.reduce_dtype.*precision=fp16' $T \
    model.preset=llama-tiny data.train=train.h5 precision=bf16 comm.reduce_dtype=fp16
refused "bf16 moments that are none" 'optimizer_dtype' $T model.preset=llama-tiny \
    data.train=train.h5 train.optimizer=sgd train.optimizer_dtype=bf16
refused "no masters to round to" 'bf16_pure' $T model.preset=llama-tiny data.train=train.h5 \
    train.optimizer=sgd precision=bf16_pure

# Paths in the home folder, which no shell has expanded
for pair in run.dir=~/a/b data.train=~/x.h5 model.path=~/m lora.path=~/m checkpoint.resume=~/a offload.path=~; do
    key=${pair%%=*} rest=${pair#*\~}
    refused "$pair" "^trireme: error: $key: .~$rest.: ~ is not expanded here; .*HOME$rest on a command line" \
        $T model.preset= "$pair"
done
refused "the second file of several" 'data\.train: .~/b\.h5:0\.5.: ~ is not expanded' $T "data.train=a.h5,~/b.h5:0.5"
printf 'run:\n  dir: ~/a\n' >home.yaml
refused "a path in a file" 'home\.yaml:2: run\.dir: .~/a.: ~ is not' $T home.yaml
printf 'data:\n  train: [a.h5, ~/b.h5]\n' >home.yaml
refused "a list of paths in a file" 'home\.yaml:2: data\.train: .~/b\.h5.: ~ is not' $T home.yaml
# A list in brackets on the command line, as files have it.
bracketed() { # NAME VALUE WANTED
    "$TRIREME" config model.preset=llama-tiny "data.train=$2" >out 2>err
    is "$1" "0 $3" "$? $(sed -n 's/^  train: //p' out)"
}
bracketed "a list in brackets" '[a.h5, b.h5]' '"a.h5,b.h5"'
bracketed "a list as JSON has it" '["a.h5","b c.h5:samples=3"]' '"a.h5,b c.h5:samples=3"'
bracketed "a list as Python has it" "['a.h5', 'b.h5']" '"a.h5,b.h5"'
bracketed "a list of one" '[a.h5]' '"a.h5"'
bracketed "quotes without brackets are of the name" "'a.h5',b.h5" "\"'a.h5',b.h5\""
bracketed "brackets within" '[a],b.h5' '"[a],b.h5"'
refused "a list of nothing" 'data\.train: the list "\[ \]" names nothing; leave' $T model.preset=llama-tiny 'data.train=[ ]'
refused "~ in a list in brackets" 'data\.train: "~/b\.h5.*": ~ is not expanded here' $T model.preset=llama-tiny "data.train=['a.h5', '~/b.h5']"
printf 'model: {preset: llama-tiny}\ndata:\n  train: [a.h5, "[b].h5"]\n' >brackets.yaml
"$TRIREME" config brackets.yaml >out 2>err
is "a list of a file has them, and a name may" "0 1" "$? $(grep -c 'train: "a.h5,\[b\].h5"' out)"
"$TRIREME" config model.preset=llama-tiny run.dir=./~/a >kept.yaml 2>err
sed -i -e 's|"./~/a"|"~/a"|' -e '1i # The configuration this run was given, complete.' kept.yaml
"$TRIREME" config kept.yaml >out 2>err
is "what a run has kept stands" "0 1" "$? $(grep -c 'dir: .*~/a' out)"
"$TRIREME" config model.preset=llama-tiny data.train=a.h5,~b.h5 run.dir=./~/a >out 2>err
is "~ elsewhere is a letter" "0 1" "$? $(grep -c 'dir: .*\./~/a' out)"
# ... and variables, which no shell sees in a file
printf 'run:\n  dir: $SCRATCH/runs/${SLURM_JOB_ID}\n' >variables.yaml
refused "a variable in a file" 'variables\.yaml:2: run\.dir: .*: \$SCRATCH is not expanded here' $T variables.yaml
refused "a variable in braces" 'offload\.path: .*: \$\{TMPDIR\} is not expanded.*offload\.path="/x/\$\{TMPDIR\}"' \
    $T 'offload.path=/x/${TMPDIR}'
refused "one in the second file of several" 'data\.train: .\$DATA/b\.h5.: \$DATA is not' $T 'data.train=a.h5,$DATA/b.h5'
"$TRIREME" config model.preset=llama-tiny 'data.train=a$.h5,$5.h5,${b.h5,b$' run.dir='$' >out 2>err
is "\$ elsewhere is a letter" "0 1" "$? $(grep -c 'dir: "\$"' out)"

# Files
refused "missing file" 'nowhere\.yaml' $T nowhere.yaml
refused "directory for a file" "$work" $T "$work"
printf 'train:\n  steps: 3\n  lr: 1\n  steps: 4\n' >twice.yaml
refused "duplicate key: both places" 'twice\.yaml:4.*steps' $T twice.yaml
printf 'train:\n  steps: [3\nmodel: x\n' >syntax.yaml
refused "YAML syntax: line" 'syntax\.yaml:[23]' $T syntax.yaml
printf 'train:\n\tsteps: 3\n' >tab.yaml
refused "tab for indentation: line" 'tab\.yaml:2:1: a tab; YAML is indented by spaces' $T tab.yaml
printf 'a: &a [x]\nb: *a\n' >alias.yaml
refused "anchors and lists" 'alias\.yaml' $T alias.yaml
printf 'train:\n  steps: \000\377\001\200\n' >binary.yaml
refused "bytes that are no text" 'binary\.yaml' $T binary.yaml
refused "a program for a config" 'trireme' $T "$TRIREME"
truncate -s 1G sparse.yaml
refused "a gigabyte of zeros" 'sparse\.yaml: 1073741824 bytes are too many' $T sparse.yaml
{
    printf '{"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "x": "'
    head -c 1100000 /dev/zero | tr '\0' x
    printf '"}\n'
} >large.json
refused "a file of another program that is too large, too" \
    'large\.json is a configuration of a Hugging Face model, not of trireme; ' $T large.json
: >empty.yaml
refused "empty file: what is missing" 'model|data\.train' $T empty.yaml
refused "two files" 'misspelt|twice' $T misspelt.yaml twice.yaml

# Threads
for threads in 0 -1 abc 2x 4097 100000; do
    OMP_NUM_THREADS=$threads $T model.preset=llama-tiny device=cpu data.train=train.h5 run.dir=threads >out 2>err
    is "OMP_NUM_THREADS=$threads is refused" "1 1" \
        "$? $(grep -c "^trireme: error: OMP_NUM_THREADS is .$threads.: a whole number from 1 to 4096" err)"
done
refused "a bad OMP_NUM_THREADS is refused once on two ranks" 'OMP_NUM_THREADS is .0.' mpirun --oversubscribe -n 2 env OMP_NUM_THREADS=0 \
    $T model.preset=llama-tiny device=cpu data.train=train.h5 run.dir=threads
for threads in "2,1" " 2 " ""; do
    OMP_NUM_THREADS=$threads "$TRIREME" plan model.preset=llama-tiny device=cpu >out 2>err
    is "OMP_NUM_THREADS='$threads' is right" 0 $?
done
refused "fewer threads of OpenMP than a rank has" 'OMP_THREAD_LIMIT is 1, and a rank has 2 threads' env OMP_THREAD_LIMIT=1 \
    $T model.preset=llama-tiny device=cpu data.train=train.h5 run.threads=2 train.steps=0 run.dir=threads
OMP_THREAD_LIMIT=2 $T model.preset=llama-tiny device=cpu data.train=train.h5 run.threads=2 train.steps=0 run.dir=threads >out 2>err
is "as many threads of OpenMP as a rank has" 0 $?

# Data
M="model.preset=llama-tiny device=cpu run.dir=$work/run"
refused "no training data" 'data\.train' $T $M
refused "missing token file" 'nothing\.h5' $T $M data.train=nothing.h5
refused "text for a token file" 'text.*tokenize|tokenize.*text|not.*HDF5' $T $M data.train=text
refused "vocabulary too small for the data" 'where that was given tokens since, model\.vocab=257' $T $M data.train=train.h5 model.vocab=100
head -c 4000 train.h5 >cut.h5
refused "token file cut short" 'cut\.h5' $T $M data.train=cut.h5
: >occupied
refused "run directory that cannot be made" 'occupied' $T model.preset=llama-tiny data.train=train.h5 \
    run.dir="$work/occupied/run"
refused "checkpoint that is not there" 'no-such' $T $M data.train=train.h5 \
    checkpoint.resume="$work/no-such"

# Once, not per rank
for n in 2 4; do
    refused "a misspelt key is refused once under mpirun -n $n" 'train\.stpes.*train\.steps' \
        mpirun --oversubscribe -n $n $T train.stpes=3
done
refused "missing data once under mpirun -n 4" 'nothing\.h5' \
    mpirun --oversubscribe -n 4 $T $M data.train=nothing.h5 train.global_batch=4

# Nothing of all this left a run behind
if [ -e "$work/run/metrics.jsonl" ] || [ -e "$work/run/config.yaml" ]; then
    not_ok "no run from a wrong configuration" "$(ls "$work/run")"
else
    ok "no run from a wrong configuration"
fi

# A config that is right comes back as it went in
cat >right.yaml <<'END'
model: {preset: llama-tiny}
data: {train: train.h5}
train: {steps: 7}
END
if "$TRIREME" config right.yaml train.lr=0.25 >out 2>err; then
    ok "a right config is accepted"
else
    not_ok "a right config is accepted" "$(cat err)"
fi
# A file with every key, made for one model, beside an argument that names another: the argument's.
model='"model_type": "llama", "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 128'
mkdir -p hf one two
echo "{$model, \"rms_norm_eps\": 0.001, \"rope_theta\": 500000, \"rope_scaling\": {\"rope_type\": \"llama3\",
  \"factor\": 8.0, \"low_freq_factor\": 1, \"high_freq_factor\": 4, \"original_max_position_embeddings\": 64}}" >hf/config.json
for adapter in one:16 two:4; do
    echo "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": ${adapter#*:}, \"target_modules\": [\"q_proj\"]}" \
        >${adapter%:*}/adapter_config.json
done
D="data.train=a.h5 model.preset=llama-tiny"
"$TRIREME" config $D >whole.yaml
"$TRIREME" config data.train=a.h5 model.path=hf >want
is "a whole file and another model: the model that is named" "$(cat want)" \
    "$("$TRIREME" config whole.yaml model.path=hf 2>&1)"
"$TRIREME" config data.train=a.h5 model.path=hf >whole_hf.yaml
"$TRIREME" config $D >want
is "a whole file and a preset: the preset's model" "$(cat want)" "$("$TRIREME" config whole_hf.yaml model.preset=llama-tiny 2>&1)"
"$TRIREME" config $D model.rope_theta=77 >own.yaml
refused "a file's own change of its model beside another model" 'own.yaml:[0-9]+: model.rope_theta is 77 here, and 500000 in' \
    "$TRIREME" config own.yaml model.path=hf
"$TRIREME" config $D lora.path=one >whole.yaml
"$TRIREME" config $D lora.path=two >want
is "a whole file and another adapter: that adapter" "$(cat want)" "$("$TRIREME" config whole.yaml lora.path=two 2>&1)"
"$TRIREME" config $D lora.r=4 lora.alpha=64 >own.yaml
refused "a file's own alpha beside another adapter" 'own.yaml:[0-9]+: lora.alpha is 64 here, and 4 in what the argument lora.path=two' \
    "$TRIREME" config own.yaml lora.path=two
is "the help of train.grad_dtype names experts" 1 "$("$TRIREME" config --show train.grad_dtype | grep -c experts)"
"$TRIREME" config --show >shown 2>err
for key in train.steps parallel.strategy checkpoint.resume recompute comm.inter_node; do
    if grep -q "$key" shown; then ok "--show has $key"; else not_ok "--show has $key" "absent"; fi
done
# The jobs as README starts them.  A folder of weights is not here, so its model is named.
sed -n '/^    sbatch /{:a;/\\$/{N;s/\\\n *//;ba};p}' "$top/README.md" | sed 's/ #.*//; s/model.path=llama3/model.preset=llama3-8b/' >started
is "README starts jobs" yes "$([ "$(wc -l <started)" -ge 2 ] && echo yes)"
while read -r _ job keys; do
    case $keys in *preset=llama-*) keys="data.seq_len=0 $keys" ;; esac # as the script
    "$TRIREME" config "$top/jobs/${job%.sh}.yaml" $keys >out 2>err
    is "README: sbatch $job $keys" 0 "$?"
    cat err
done <started

finish
