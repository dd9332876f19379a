#!/bin/sh
# finetune.sh - documents kept apart, several files, epochs, the best evaluation: what runs say, keep
# and go on with.
. "$(dirname "$0")/../cli/helpers.inc"

# Documents: each line of the text in a file of its own.
make_text
mkdir lines other held
head -n 400 text | awk '{ print > sprintf("lines/%04d", NR) }'
sed -n '401,560p' text | awk '{ print > sprintf("other/%04d", NR) }'
sed -n '561,600p' text | awk '{ print > sprintf("held/%04d", NR) }'
for set in lines other held; do
    "$TRIREME" tokenize $set -o $set.h5 >/dev/null 2>tokenize.log ||
        { not_ok tokenize "$(cat tokenize.log)"; finish; }
done
M="model.preset=llama-tiny device=cpu data.seq_len=96 train.global_batch=6 train.micro_batch=2
   run.threads=1 precision=fp32 run.log_every=1000 train.schedule=constant train.warmup_steps=0"

# field RUN STEP NAME: of metrics.jsonl, "" where it is not there.
field() {
    sed -n "s/^{\"step\": $2, .*\"$3\": \([^,}]*\)[,}].*/\1/p" "$1/metrics.jsonl"
}

last_step() {
    sed -n '$s/^{"step": \([0-9]*\),.*/\1/p' "$1/metrics.jsonl"
}

# What a run's metrics say of the steps after STEP, but for times.
after() {
    awk -F'[ ,]' -v step="$2" '$2 > step' "$1/metrics.jsonl" | grep -o '"\(step\|loss\|lr\)": [^,]*' | xargs
}

# near A B TOLERANCE
near() {
    awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { exit !(a > 0 && b > 0 && a / b - 1 < t && b / a - 1 < t) }'
}

# ---- epochs ----
"$TRIREME" train $M data.train=lines.h5 data.packing=documents train.epochs=2.5 train.warmup_steps=5 run.dir=epochs \
    checkpoint.every=20 checkpoint.keep=9 >out 2>err
is "train.epochs" 0 $?
sequences=$(sed -n 's/.* tokens, \([0-9]*\) sequences of 96 of packed documents.*/\1/p' err)
is "steps follow from sequences" "$((($sequences * 5 / 2 + $sequences * 5 % 2 + 5) / 6))" \
    "$(last_step epochs)"
all=$((($sequences * 5 + 1) / 2)) half=20
is "seconds of each epoch" 2 "$(grep -c '"epoch_s": [0-9.]*' epochs/metrics.jsonl)"
is "config.yaml keeps what was given" "steps: 100 epochs: 2.5" \
    "$(sed -n 's/^  \(steps: .*\|epochs: .*\)/\1/p' epochs/config.yaml | paste -sd' ')"
"$TRIREME" train epochs train.epochs=3 >out 2>err
is "a run goes on for more epochs" 0 $?
is "as many as it then has" "$((($sequences * 3 + 5) / 6))" "$(last_step epochs)"
is "which is no change of its numbers" 0 "$(grep -c 'warning: settings changed' err)"
"$TRIREME" train epochs train.epochs=3 >out 2>err
is "a run whose epochs are done has nothing to do, but for more of them" "0 1" \
    "$? $(grep -c 'nothing to do: .*; train.epochs=6 trains it longer' err)"
cp -r epochs fewer
"$TRIREME" train fewer run.dir=fewer train.epochs=0.25 >out 2>err
more=$(sed -n 's/.* at step [0-9]*, after 3[.0-9]* of 0\.25 epochs; \(train\.epochs=[0-9.]*\) trains it longer.*/\1/p' err)
"$TRIREME" train fewer run.dir=fewer "$more" >out 2>err
is "of fewer epochs than there were, too: those it names train longer" "0 train.epochs=3.25 1" \
    "$? $more $(($(last_step fewer) > $(last_step epochs)))"
count=$(last_metric epochs epoch | awk -v n="$sequences" '{ printf "%.0f", $1 * n }')
"$TRIREME" train $M data.train=other.h5 data.packing=documents checkpoint.resume=epochs train.epochs=1 run.dir=others >out 2>err
is "of other data: a warning of what counts" "0 1" \
    "$? $(grep -c "warning: train.epochs is 1, in which the $count sequences that were read count as [0-9.]* epochs" err)"
"$TRIREME" train fewer train.epochs=4 train.lr=1e-4 run.dir=fewer >out 2>err
is "of the same none" "0 0" "$? $(grep -c 'train.epochs is' err)"
"$TRIREME" train $M data.train=lines.h5 checkpoint.resume=epochs train.steps=3 run.dir=over >out 2>err
is "a run that begins behind its last step says so" "0 1 1" \
    "$? $(grep -c 'warning: nothing is trained: the checkpoint is at step [0-9]* of 3; train.steps=[0-9]* trains' err) $(grep -c 'training on .*; no steps$' err)"

# Each goes on with a warm-up of 10 steps, which have read 60 sequences and are over: the decay begins
# there.
lr=$(field epochs $half lr)
for how in "1 train.global_batch=9 9" "2 train.split_batches=false 12" "1 train.global_batch=4 4"; do
    set -- $how
    rm -rf rest
    train_on "$1" data.train=lines.h5 data.packing=documents train.epochs=2.5 run.dir=rest "$2" checkpoint.every=30 \
        checkpoint.resume=epochs/checkpoints/step-$(printf %08d "$half") train.schedule=linear train.warmup_steps=10 >out 2>err
    is "epochs go on with $2 on $1" 0 $?
    is "up to the same sequence, $2" "$((half + ($all - half * 6 + $3 - 1) / $3)) 0.0" \
        "$(last_step rest) $(field rest "$(last_step rest)" lr)"
    left=$(($(last_step rest) - half)) decay=$((($all - 60 + $3 - 1) / $3))
    if near "$(field rest $((half + 1)) lr)" "$(awk "BEGIN { print $lr * ($left - 1) / $decay }")" 1e-4; then
        ok "with the decay of the sequences after the warm-up, $2"
    else
        not_ok "with the decay of the sequences after the warm-up, $2" "$(field rest $((half + 1)) lr), $left steps of $decay left"
    fi
    is "no steps are among the changes, $2" 0 "$(grep -c 'train.steps' err)"
    is "the batch is among the changes, $2" 1 "$(grep -c "warning: settings changed.*train.global_batch 6 -> $3" err)"
done
# A checkpoint says how many sequences the warm-up had read, which its step and its batch do not.
from=$((($(last_step rest) - 1) / 30 * 30))
want=$(after rest "$from")
"$TRIREME" train rest checkpoint.resume="$from" >out 2>err
is "resumed with the batch of since then: the numbers of the run" "0 $want" "$? $(after rest "$from")"

# ---- packing ----
same=
for packing in documents padded; do
    said=$("$TRIREME" evaluate epochs data.valid=held.h5 data.packing=$packing train.eval_micro_batch=3 \
        2>err)
    is "evaluate, $packing" "${same:-$said}" "$said"
    same=$said
done
is "evaluate says loss, perplexity and tokens" "loss perplexity tokens" \
    "$(echo "$same" | tr -d '0-9.' | tr -s ' ' ' ' | sed 's/ $//')"
for how in "2 parallel.tensor=2" "2 parallel.context=2" "2 parallel.pipeline=2" "3 "; do
    n=${how%% *}
    said=$(ranks "$n" "$TRIREME" evaluate epochs data.valid=held.h5 data.packing=documents ${how#* } \
        2>err | cut -d' ' -f2)
    if near "$said" "$(echo "$same" | cut -d' ' -f2)" 1e-6; then ok "evaluate on $how"; else
        not_ok "evaluate on $how" "'$said', on one '$same': $(tail -n 2 err)"
    fi
done
is "evaluation counts each target once" "$(cat held/* | wc -c)" "$(echo "$same" | sed 's/.*tokens //')"
"$TRIREME" generate epochs --prompt "The" --tokens 5 >out 2>err
is "generate from a run of packed documents" 0 $?

"$TRIREME" train $M data.train=lines.h5 data.packing=padded data.seq_len=16 train.steps=0 run.dir=cut >out 2>err
is "what is cut off documents is said at the start" "0 1" "$? $(grep -c "a document each, $(cat lines/* |
    awk 'length > 15 { n += length - 15 } END { print n }') tokens after data.seq_len left away); no steps" err)"

long=$(cat lines/* | awk 'length > 15 { n++ } END { print n }')
"$TRIREME" train $M data.train=lines.h5 data.packing=documents data.seq_len=16 train.steps=0 run.dir=cut run.fresh=true >out 2>err
is "and how many are cut into several sequences" "0 1" \
    "$? $(grep -c "of packed documents, $long of which are longer than data.seq_len and cut); no steps" err)"
head -c 150 text >short
"$TRIREME" tokenize short -o short.h5 >out 2>err
"$TRIREME" evaluate epochs data.valid=short.h5 data.seq_len=80 data.packing=stream >out 2>err
is "targets that fill no sequence are warned of where they are many" "0 80 1" "$? $(sed 's/.*tokens //' out) $(
    grep -c 'warning: data.valid: the last 70 of its 151 tokens fill no sequence of data.seq_len=80, and' err)"
"$TRIREME" evaluate epochs data.valid=short.h5 data.seq_len=80 data.packing=documents >out 2>err
is "not where all are read" 0 "$(grep -c 'fill no sequence' err)"

is "data that a step reads several times are warned of" "0 1 0" "$("$TRIREME" train $M train.global_batch=7 \
    data.train=lines.h5:samples=3 data.packing=padded train.steps=1 run.dir=few >out 2>err
    echo $? $(grep -c 'warning: a step takes 7 sequences .*, and data.train has fewer for it: .* the same ones 2.33 times' err) \
    $(grep -c 'reads the same' cut/log.txt))"

# ---- several files ----
"$TRIREME" train $M data.train=lines.h5:0.75,other.h5:0.25 data.valid=held.h5,other.h5:samples=3 \
    data.packing=padded train.steps=20 run.dir=mixed >out 2>err
is "files with weights" 0 $?
is "how often a file is read is said at the start" 1 \
    "$(grep -c 'epochs in all, 0.225 of the file that is read most' err)"
epochs=$(sed -n 's/.*"file_epochs": \[\([0-9.]*\), \([0-9.]*\)\].*/\1 \2/p' mixed/metrics.jsonl | tail -n 1)
is "epochs of each file" "0.225 0.1875" "$epochs"
refused "more samples than documents" 'samples=1000: held\.h5 has [0-9]* documents' \
    "$TRIREME" train $M data.train=lines.h5 data.valid=held.h5:samples=1000 data.packing=padded run.dir=never
refused "more samples than sequences" 'samples=100000: lines\.h5 has [0-9]* sequences' \
    "$TRIREME" train $M data.train=lines.h5:samples=100000 run.dir=never
cat >mixed.yaml <<END
data:
  train:
    - {path: lines.h5, weight: 0.75}
    - {path: other.h5, weight: 0.25}
  valid: [held.h5, {path: other.h5, samples: 3}]
END
"$TRIREME" train mixed.yaml $M data.packing=padded train.steps=20 run.dir=listed >out 2>err
is "mixed files as a YAML list" 0 $?
is "mixed files as a YAML list: the same numbers" "$(field mixed 20 loss) $(field mixed 20 eval_loss)" \
    "$(field listed 20 loss) $(field listed 20 eval_loss)"
"$TRIREME" train mixed data.train=lines.h5:0.5,other.h5:0.5 train.steps=21 >out 2>err
is "other weights are a change" 1 "$(grep -c 'settings changed.*data\.train' err)"
ranks 2 "$TRIREME" train mixed.yaml $M data.packing=padded train.steps=12 run.dir=parts >out 2>err
ranks 3 "$TRIREME" train parts train.steps=20 >out 2>err
is "resumed on other ranks" 0 $?
if near "$(field parts 20 loss)" "$(field mixed 20 loss)" 1e-5; then
    ok "with the samples of one rank"
else
    not_ok "with the samples of one rank" "$(field parts 20 loss), not $(field mixed 20 loss)"
fi

# ---- the best evaluation ----
# A rate that first helps and then harms; in the run `best` it rises far enough to harm for certain.
B="$M data.train=other.h5 data.valid=held.h5 data.packing=documents train.eval_every=3 train.lr=0.05
   checkpoint.keep_best=true"
"$TRIREME" train $B train.steps=30 run.dir=best checkpoint.every=3 >out 2>err &&
    "$TRIREME" train $B train.steps=60 train.lr=1 run.dir=best checkpoint.every=3 >out 2>err
is "checkpoint.keep_best" 0 $?
least=$(awk -F'"eval_loss": ' 'NF > 1 { split($2, v, ","); if (!n++ || v[1] < m) { m = v[1]; split($1, s, "[ ,]"); step = s[2] } } END { printf "%08d", step }' best/metrics.jsonl)
is "the link leads to the lowest loss" "step-$least" "$(readlink best/checkpoints/best)"
if [ "$least" != 00000060 ]; then ok "which is not the last"; else not_ok "which is not the last" "$least"; fi
is "the best checkpoint is kept beside the newest" yes "$([ -f best/checkpoints/step-$least/COMMIT ] && echo yes)"
said=$("$TRIREME" evaluate best/checkpoints/best 2>err | cut -d' ' -f2)
if near "$said" "$(field best "$(expr $least + 0)" eval_loss)" 1e-5; then ok "evaluate takes checkpoints/best"; else
    not_ok "evaluate takes checkpoints/best" "'$said': $(tail -n 2 err)"
fi
"$TRIREME" generate best/checkpoints/best --prompt "The" --tokens 3 >out 2>err
is "generate takes checkpoints/best" 0 $?
"$TRIREME" convert best/checkpoints/best folder >out 2>err
is "convert takes checkpoints/best" 0 $?
folder=$("$TRIREME" evaluate model.path=folder data.valid=held.h5 data.seq_len=96 \
    data.packing=documents device=cpu run.dir=none 2>err | cut -d' ' -f2)
if near "$folder" "$said" 1e-5; then ok "evaluate of checkpoints/best says the folder"; else
    not_ok "evaluate of checkpoints/best says the folder" "'$folder', not '$said': $(tail -n 2 err)"
fi

# Also where the directory of runs that have no name is in use, by one that began from it.
F="data.train=other.h5 data.seq_len=96 data.packing=documents train.lr=0.01 device=cpu"
"$TRIREME" train model.path=folder $F train.steps=3 >out 2>err
is "a run begins from the folder" "0 3" "$? $(last_step runs/default)"
again=$("$TRIREME" evaluate model.path=folder data.valid=held.h5 data.seq_len=96 \
    data.packing=documents device=cpu 2>err | cut -d' ' -f2)
is "evaluate of the folder alone is of the folder" "$folder" "$again"
refused "evaluate of a run, beside the folder" 'model.path=folder has no effect here' \
    "$TRIREME" evaluate runs/default model.path=folder data.valid=held.h5
"$TRIREME" convert runs/default other >out 2>err
"$TRIREME" train model.path=other $F train.steps=4 >out 2>err
is "a run that goes on reads no other folder, and says so" "0 4 1" \
    "$? $(last_step runs/default) $(grep -c 'warning: model.path folder -> other: not read, as the run goes on' err)"
"$TRIREME" train model.path=other $F train.steps=4 >out 2>err
is "not where it is the same" "0 0" "$? $(grep -c 'not read' err)"

# Ended early, by a count that goes on when the run is resumed.
E="$B train.early_stop=4 train.steps=200"
"$TRIREME" train $E run.dir=early >out 2>err
is "train.early_stop" 0 $?
stopped=$(last_step early)
best=$(readlink early/checkpoints/best | sed 's/step-0*//')
is "ends after four evaluations that were not better" "$((best + 12))" "$stopped"
is "early stop is said" "1 0" "$(grep -c "train\.early_stop: training ends at step $stopped" err) $(grep -c 'trains it longer' err)"
"$TRIREME" train early >out 2>err
is "the same command again trains no further, and says what would" "0 $stopped 1" \
    "$? $(last_step early) $(grep -c 'training ends at .*; a larger train.early_stop, or 0, trains it longer' err)"
"$TRIREME" train $E train.steps=$((best + 3)) run.dir=again >out 2>err
"$TRIREME" train again train.steps=200 >out 2>err
is "resumed on the way it ends at the same step" "0 $stopped" "$? $(last_step again)"
is "with the same best one" "step-$(printf %08d "$best")" "$(readlink again/checkpoints/best)"
"$TRIREME" train early train.early_stop=6 >out 2>err
is "with more patience it goes on" "0 yes" "$? $([ "$(last_step early)" -gt "$stopped" ] && echo yes)"

# What an evaluation of another run, or of other data, found is no measure for those to come.
last=$(last_step early)
F="train.early_stop=2 train.steps=$((last + 15)) checkpoint.keep_best=true checkpoint.export_hf=true"
"$TRIREME" train $B $F run.dir=after checkpoint.resume=early/checkpoints/step-$(printf %08d "$last") train.lr=0.5 >out 2>err
is "a run that begins with another's checkpoint has evaluations of its own" "0 1" \
    "$? $(grep -c "evaluations up to step [0-9]* do not count .*they are of another run" err)"
is "a run that begins with another's checkpoint exports a best of its own" "1 1 1" "$(ls after/checkpoints/best | grep -c COMMIT) $(
    grep -c "the model of step $(readlink after/checkpoints/best | sed 's/step-0*//') is in after/hf" err) $(
    ls after/hf | grep -c model.safetensors)"
"$TRIREME" train early train.early_stop=2 data.valid=lines.h5 train.steps=$((last + 30)) >out 2>err
is "other data: no evaluation of what was before ends the run" "0 1 0" \
    "$? $(grep -c "evaluations up to step [0-9]* do not count .*of other data" err) $(
    grep -c "better than that of step $best " err)"

refused "what train.early_stop waits for" 'train\.early_stop.*train\.eval_every' "$TRIREME" train $M \
    data.train=lines.h5 train.early_stop=2
finish
