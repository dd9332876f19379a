#!/bin/sh
# products.sh - train.tune_products: algorithms of products are chosen by time once, are the same on
# all ranks, and are kept with the run, so that it goes on with the same bits; a file that does not
# suit is warned of, and never used.
#
# On the emulated GPU, where TRIREME_EMULATE_FASTEST says which algorithm is the fastest, and each
# adds up in an order of its own, so that another choice is seen in the bits.
. "$(dirname "$0")/../cli/helpers.inc"

need_cuda_program
make_tokens
M="model.preset=llama-tiny model.layers=1 model.hidden=32 model.heads=2 model.kv_heads=1 model.head_dim=16
   model.ffn=40 precision=fp32 data.train=train.h5 data.seq_len=16 train.global_batch=2 train.micro_batch=2
   train.lr=1e-3 train.schedule=constant run.threads=1 device=cuda train.steps=4 comm.share_gpu=true
   checkpoint.resume=auto"

# train NAME FASTEST RUN KEY...: one rank
train() {
    name=$1 fastest=$2 run=$3
    shift 3
    env TRIREME_EMULATE_FASTEST="$fastest" timeout -k 5 300 "$TRIREME_CUDA" train $M run.dir="$run" "$@" \
        >"$run.out" 2>"$run.err" </dev/null
    is "$name" 0 $?
}

# two NAME FASTEST FASTEST RUN KEY...: two ranks, each with an algorithm that is the fastest for it
two() {
    name=$1 first=$2 second=$3 run=$4
    shift 4
    timeout -k 5 300 mpirun --oversubscribe -n 2 sh -c "$by_rank" sh \
        env TRIREME_EMULATE_FASTEST="$first" "$TRIREME_CUDA" train $M run.dir="$run" "$@" AND \
        env TRIREME_EMULATE_FASTEST="$second" "$TRIREME_CUDA" train $M run.dir="$run" "$@" \
        >"$run.out" 2>"$run.err" </dev/null
    is "$name" 0 $?
}

losses() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl" 2>/dev/null; }
same() { is "$1" "$(losses "$2")" "$(losses "$3")"; }
differ() {
    if [ -n "$(losses "$2")" ] && [ "$(losses "$2")" != "$(losses "$3")" ]; then ok "$1"; else
        not_ok "$1" "the losses are the same: a test that cannot fail"; fi
}
# says NAME PATTERN RUN; silent NAME PATTERN RUN
says() { if grep -a -q -E -e "$2" "$3.out" "$3.err"; then ok "$1"; else
    not_ok "$1" "no '$2' in $(cat "$3.out" "$3.err" | head -c 600)"; fi; }
silent() { if grep -a -q -E -e "$2" "$3.out" "$3.err"; then
    not_ok "$1" "$(grep -a -E -e "$2" "$3.out" "$3.err")"; else ok "$1"; fi; }
timed='products: [0-9]+ timed in'
# ids FILE: the algorithms chosen there, each once
ids() { sed -n 's/.*"id": *\([0-9]*\).*/\1/p' "$1/products.json" | sort -u | tr '\n' ' '; }

train "without it" 4 plain
silent "without it nothing is timed" "$timed" plain
is "without tuning no products.json is written" "no" "$([ -e plain/products.json ] && echo yes || echo no)"

train "with it" 4 tuned train.tune_products=true
says "products are timed" "$timed" tuned
is "all are by the fastest algorithm" "4 " "$(ids tuned)"
differ "another algorithm gives other bits" plain tuned
train "where another is the fastest" 1 other train.tune_products=true
is "another algorithm is chosen where it is the fastest" "1 " "$(ids other)"
differ "and gives other bits" other tuned

# A run that goes on takes what it chose, whatever is the fastest by then.
train "stopped half way" 4 resumed train.tune_products=true train.steps=2
cp resumed/products.json before
train "resumed" 1 resumed train.tune_products=true
silent "a resumed run times nothing" "$timed" resumed
says "a run that goes on says where its choice is from" "products: [0-9]+ as chosen in .*products.json" resumed
same "a run that goes on has the bits of one that was not stopped" tuned resumed
if cmp -s before resumed/products.json; then ok "a run that goes on leaves products.json as it was"; else
    not_ok "a run that goes on leaves products.json as it was" "$(diff before resumed/products.json | head -n 4)"; fi

# Files that are not this GPU's, not this library's, and damaged.
for spoil in 's/"library": ".*,/"library": "NVIDIA H100,/' 's/cuBLASLt [0-9.]*/cuBLASLt 1.2.3/' \
    '0,/"tile":.*/s//"tile": x/' '0,/"id": 1/s//"id": 2/' '0,/"algorithm": "./s//"algorithm": "g/'; do
    rm -rf spoilt && cp -r other spoilt
    rm -rf spoilt/checkpoints spoilt/metrics.jsonl spoilt/run.json
    sed "$spoil" other/products.json >spoilt/products.json
    if cmp -s other/products.json spoilt/products.json; then not_ok "spoil" "$spoil changes nothing"; fi
    train "a start with a file spoilt by $spoil" 4 spoilt train.tune_products=true
    is "a spoilt products.json is warned of once" 1 "$(cat spoilt.out spoilt.err | grep -a -c 'products.json is not used')"
    says "a spoilt products.json: products are timed again" "$timed" spoilt
    same "a spoilt products.json: chosen as a new run does" tuned spoilt
    is "a spoilt products.json is mended" "4 " "$(ids spoilt)"
done

# All ranks take what rank 0 chose, though another algorithm is the fastest for the second one.
two "two ranks alike" 4 4 alike train.tune_products=true train.micro_batch=1
two "two ranks that are not" 4 1 unlike train.tune_products=true train.micro_batch=1
two "two ranks of the other kind" 1 1 kind train.tune_products=true train.micro_batch=1
same "all ranks take what rank 0 chose" alike unlike
differ "and would differ if they did not" unlike kind

# With pipeline stages each rank has products that others have not.
two "two stages" 4 4 stages train.tune_products=true parallel.pipeline=2 train.micro_batch=1
is "products of all stages are in the file" "4 " "$(ids stages)"
two "and resumed with more steps" 1 1 stages train.tune_products=true parallel.pipeline=2 train.micro_batch=1 \
    train.steps=6
silent "none of which is timed again" "$timed" stages

# In evaluation the file is read, and never written.
cp tuned/products.json before
env TRIREME_EMULATE_FASTEST=1 timeout -k 5 120 "$TRIREME_CUDA" evaluate $M run.dir=tuned data.valid=valid.h5 \
    train.tune_products=true >evaluate.out 2>evaluate.err
is "evaluate" 0 $?
silent "evaluate times nothing" "$timed" evaluate
if cmp -s before tuned/products.json; then ok "evaluate leaves products.json as it was"; else not_ok "evaluate leaves products.json as it was" ""; fi

train "on a CPU it changes nothing" 4 cpu device=cpu comm.share_gpu=false train.tune_products=true
is "a run on a CPU writes no products.json" "no" "$([ -e cpu/products.json ] && echo yes || echo no)"
finish
