#!/bin/sh
# overlap_update.sh - with train.overlap_update a step's update is in the next step: losses, what
# evaluations see and all that is saved are the same bits as without, on any layout, however the run
# is stopped.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
M="model.preset=llama-tiny device=cpu data.train=$work/train.h5 data.valid=$work/valid.h5 data.seq_len=32
   train.global_batch=8 train.micro_batch=2 train.lr=1e-3 train.warmup_steps=9 train.schedule=constant train.eval_every=7 train.eval_batches=2
   checkpoint.every=5 run.threads=1"
numbers() { grep -oE '"(loss|eval_loss|grad_norm|lr|skipped_steps)": *[^,}]*' "$1/metrics.jsonl" 2>/dev/null; }

# both NAME RANKS KEY...: without and with the key
both() {
    name=$1 n=$2
    shift 2
    rm -rf without with
    train_on "$n" run.dir=without "$@" >out 2>err
    is "$name" 0 $?
    train_on "$n" run.dir=with train.overlap_update=true "$@" >out 2>err
    is "$name, beside forward" 0 $?
    is "$name: the same losses" "$(numbers without)" "$(numbers with)"
    if same_state without with; then ok "$name: the same state"; else not_ok "$name: the same state" differs; fi
}

both "one rank, bf16" 1 precision=bf16 train.steps=23
[ "$(numbers with | grep -c eval_loss)" = 4 ] || not_ok "evaluations" "$(numbers with | grep -c eval_loss) and not 4"
both "AdamW in bf16, rounded by chance" 1 precision=bf16_pure train.optimizer_dtype=bf16 train.steps=12
both "fp16 that skips steps" 2 precision=fp16 train.initial_scale_power=34 train.loss_scale_window=8 train.steps=33
if [ "$(last_metric with skipped_steps)" -gt 3 ]; then ok "a run of fp16 skips some steps"; else
    not_ok "a run of fp16 skips some steps" "$(last_metric with skipped_steps)"; fi
both "FULL_SHARD" 2 precision=bf16 train.steps=12
both "stages with tied embeddings" 2 parallel.pipeline=2 model.tie_embeddings=true parallel.schedule=zb_h1 train.steps=12
both "state on disk" 2 precision=bf16 offload.optimizer=disk offload.params=disk train.steps=12
both "texts at each evaluation" 1 generate.samples=2 generate.tokens=8 train.optimizer=sgd train.steps=12
is "texts at each evaluation: the same" "$(cat without/samples.jsonl)" "$(cat with/samples.jsonl)"

# Killed, asked to stop, and with the key taken away in between.
S="precision=bf16 train.steps=40 run.log_every=1"
"$TRIREME" train $M $S run.dir=parts train.overlap_update=true >out 2>err &
job=$!
if wait_for 60 has_steps parts 12; then kill -KILL $job; fi
wait $job 2>/dev/null
train_on 1 $S run.dir=parts train.overlap_update=true train.steps=33 >out 2>err
is "killed and resumed" 0 $?
"$TRIREME" train $M $S run.dir=parts train.overlap_update=true >out 2>err &
job=$!
if wait_for 60 has_steps parts 35; then kill -TERM $job; fi
ended
if [ "$code" = 75 ] || [ "$code" = 0 ]; then ok "asked to stop"; else not_ok "asked to stop" "exit code $code"; fi
train_on 1 $S run.dir=parts >out 2>err
is "resumed without train.overlap_update" 0 $?
"$TRIREME" train $M $S run.dir=one >out 2>err
if same_state one parts; then ok "ends in the same bits as a run without a stop"; else
    not_ok "ends in the same bits as a run without a stop" differ; fi

refused "muon" 'train\.overlap_update: train\.optimizer muon' "$TRIREME" train $M run.dir=none \
    train.optimizer=muon train.overlap_update=true
timeout 60 "$TRIREME" plan $M device=cuda precision=bf16 train.overlap_update=true --machine h100 >out 2>err
is "a plan for a GPU" 0 $?
finish
