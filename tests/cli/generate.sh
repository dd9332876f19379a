#!/bin/sh
# generate.sh - how much of a text its next token follows from: the last data.seq_len tokens.
. "$(dirname "$0")/../cli/helpers.inc"

# text RUN TOKENS [KEY=VALUE...]: the prompt of 8 bytes and what greedily follows, in hexadecimal
text() {
    timeout 120 "$TRIREME" generate "$1" --prompt "int main" --temperature 0 --tokens "$2" device=cpu $3 2>err |
        od -An -v -tx1 | tr -d ' \n'
}

# length HEX: the tokens of a text, without the newline at its end
length() { echo $((${#1} / 2 - 1)); }

# alike A B: at how many tokens two texts begin to differ
alike() {
    printf '%s\n%s\n' "$1" "$2" | awk 'NR == 1 { a = $0 } NR == 2 {
        for (n = 0; n < length(a) / 2 && substr(a, 2 * n + 1, 2) == substr($0, 2 * n + 1, 2); n++);
        print n }'
}

# Initial weights, large ones: texts that follow from every token before.  They are of an optimizer that
# allows no division of layers in training.
make_tokens
for family in llama gpt2; do
    if ! timeout 120 "$TRIREME" train model.family=$family model.layers=2 model.hidden=32 model.heads=2 \
        model.ffn=64 model.vocab=257 model.max_seq_len=64 model.init_std=0.4 device=cpu data.train=train.h5 \
        data.seq_len=16 train.steps=0 train.optimizer=muon run.dir=$family >out 2>err; then
        not_ok "initial weights of $family" "$(head -c 300 err)"
        continue
    fi
    usual=$(text $family 48)
    middle=$(text $family 48 data.seq_len=32)
    whole=$(text $family 48 data.seq_len=64)
    is "$family: texts of 56 tokens, unless they end before" "yes" \
        "$([ "$(length "$whole")" -gt 36 ] && [ "$(length "$middle")" -gt 20 ] && echo yes)"
    is "$family: the length trained at, if no other is asked for" "$(text $family 48 data.seq_len=16)" "$usual"
    # The token at place 16 is the first that follows from all 16 before it, the next one forgets.
    at=$(alike "$usual" "$whole")
    is "$family: data.seq_len=64 tells the same up to place 16, and more beyond" "yes yes" \
        "$([ "$at" -ge 17 ] && echo yes) $([ "$at" -le 24 ] && echo yes)"
    at=$(alike "$middle" "$whole")
    is "$family: data.seq_len=32, up to place 32" "yes yes" \
        "$([ "$at" -ge 33 ] && echo yes) $([ "$at" -le 40 ] && echo yes)"
    long=$(text $family 90 data.seq_len=64)
    is "$family: a text longer than model.max_seq_len goes on" "yes" \
        "$([ "$(alike "$whole" "$long")" -ge 36 ] && [ "$(length "$long")" -gt 70 ] && echo yes)"
    refused "$family: no data.seq_len beyond max_seq_len" 'data\.seq_len \(65\) is above model\.max_seq_len' \
        "$TRIREME" generate $family --prompt x data.seq_len=65
    # Layers divided among ranks: the same text from rank 0 alone.
    said=$(ranks 2 "$TRIREME" generate $family --prompt "int main" --temperature 0 --tokens 48 device=cpu 2>err |
        od -An -v -tx1 | tr -d ' \n')
    is "$family: on two ranks the same text" "$usual" "$said"
    said=$(printf 'int main' | ranks 2 "$TRIREME" generate $family --temperature 0 --tokens 48 device=cpu 2>err |
        od -An -v -tx1 | tr -d ' \n')
    is "$family: and from standard input" "$usual" "$said"
    refused "$family: on more ranks than heads" '3 ranks, and model.heads is 2; start it on 2 at most' \
        mpirun --oversubscribe -n 3 "$TRIREME" generate $family --prompt x
done

# Which run, checkpoint or folder it is, however that is said.
printf 'model: {preset: llama-tiny}\nrun: {dir: one}\n' >my.yaml
for run in one:0.3 two:0.4; do
    timeout 60 "$TRIREME" train model.preset=llama-tiny device=cpu data.train=train.h5 data.seq_len=16 train.steps=2 \
        checkpoint.every=1 train.lr=0.01 model.init_std=${run#*:} run.dir=${run%:*} >out 2>err || cat err
done
two=$(text two 24)
is "two runs that write other texts" "2" "$(printf '%s\n%s\n' "$two" "$(text one 24)" | sort -u | wc -l)"
is "a configuration: its run" "$(text one 24)" "$(text my.yaml 24)"
is "a configuration: what was read is said" "trireme: generating with one/checkpoints/step-00000002" "$(grep generating err)"
is "with run.dir: that run" "$two" "$(text my.yaml 24 run.dir=two)"
is "with checkpoint.resume, a run's path" "$two" "$(text my.yaml 24 checkpoint.resume=two)"
is "a checkpoint's" "$two" "$(text my.yaml 24 checkpoint.resume=two/checkpoints/step-00000002)"
is "a configuration with checkpoint.resume=STEP: that step" "$(text one/checkpoints/step-00000001 24)" "$(text my.yaml 24 checkpoint.resume=1)"
for setting in run.dir=two checkpoint.resume=two model.preset=gpt2; do
    refused "beside a run no $setting" "$setting has no effect here: the weights are those of one;" \
        "$TRIREME" generate one --prompt x device=cpu $setting
done
refused "nor the seed of training" 'seed=3 has no effect: .* that of --seed$' "$TRIREME" generate one --prompt x device=cpu seed=3
"$TRIREME" generate one --prompt x --tokens 1 device=cpu train.lr=9 data.train=no.h5 \
    train.logits_dtype=fp32 train.logits_chunk=3 2>err >out
is "keys of training are named" "0 1" "$? $(grep -c 'warning: these keys are of training, and change nothing here: train\.lr, data\.train, train\.logits_dtype, train\.logits_chunk$' err)"
refused "nor another model's folder" 'model.path=.* has no effect here' "$TRIREME" generate one --prompt x device=cpu \
    model.path=two
finish
