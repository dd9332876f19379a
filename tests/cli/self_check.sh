#!/bin/sh
# self_check.sh - a GPU on which something is wrong: it is found at the first start, named, and
# replaced where something else can do it; then training gives the CPU's losses.
#
# trireme-faulty is trireme-emulated with a fault that the variable FAULT names (faulty_gpu.c).
. "$(dirname "$0")/../cli/helpers.inc"

build=$(dirname "$TRIREME")
good=$build/trireme-emulated bad=$build/trireme-faulty
if [ ! -x "$good" ] || [ ! -x "$bad" ]; then
    echo "no $bad: configured without CUDA, or not built yet (make check)"
    exit 77
fi
make_tokens
M="model.preset=llama-tiny precision=fp32 data.train=train.h5 data.seq_len=32 train.global_batch=4
   train.micro_batch=2 train.lr=1e-3 train.schedule=constant train.steps=4 run.threads=1
   device=cuda"
export XDG_CACHE_HOME="$PWD/cache"
kept() { ls cache/trireme 2>/dev/null | grep -c '^self-check'; }

# run NAME RUN PROGRAM KEY...: train, which must end well
run() {
    name=$1 dir=$2 program=$3
    shift 3
    if timeout -k 5 120 "$program" train $M run.dir="$dir" "$@" >"$dir.out" 2>"$dir.err"; then
        ok "$name"
    else
        not_ok "$name" "$(grep -a '^trireme' "$dir.err" | tail -n 2)"
    fi
}
losses() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }
# apart RUN RUN [SHARE]: 1 where losses differ by more than sums in another order do, or some are missing
apart() {
    losses "$1" >losses.1
    losses "$2" >losses.2
    paste losses.1 losses.2 | awk -v most="${3:-1e-5}" 'NF == 2 { d = ($1 - $2) / $1; n += (d < most && d > -most) }
                                   END { print n != 4 }'
}

run "a right GPU" right "$good"
is "what was found is kept" 1 "$(kept)"
is "a right GPU: nobody is warned" 0 "$(grep -c self-check right.err)"
age=$(stat -c %Y.%i cache/trireme/self-check*)
run "the next start" again "$good"
is "the next start reads what was kept" "$age" "$(stat -c %Y.%i cache/trireme/self-check*)"
run "run.self_check=always" always "$good" run.self_check=always
is "run.self_check=always checks again" no "$([ "$age" = "$(stat -c %Y.%i cache/trireme/self-check*)" ] && echo yes || echo no)"
echo '{"key": ' >cache/trireme/"$(cd cache/trireme && ls self-check*)"
run "a damaged file" damaged "$good"
is "a damaged file of verdicts is replaced" 1 "$(grep -c '"key": ".*trireme' cache/trireme/self-check*)"

# A fault of one shape of the run, which no family's small inputs have: a term of 168 is left out.
shapes() { ls cache/trireme | grep -c '^shapes'; }
run "other shapes" shapes "$good" model.ffn=168
is "that shapes were right is kept, of either run" 2 "$(shapes)"
export TRIREME_EMULATE_WRONG_K=168
mv cache/trireme/shapes* .
run "a product that is wrong" term "$good" model.ffn=168
is "is named" 1 "$(grep -c 'product fp32 \[64,168\] x \[168,64\] to fp32: the library is wrong by' term.err)"
is "and replaced" 0 "$(apart shapes term)"
is "metrics name it" 1 "$(grep -c '"replaced_shapes": *\["product fp32 [^"]*168[^]]*\]' term/metrics.jsonl)"
is "nothing is kept of wrong shapes" 0 "$(shapes)"
mv shapes-* cache/trireme/
run "where shapes were found right before" found "$good" model.ffn=168
is "they are not checked again" "1 0" "$(apart shapes found) $(grep -c 'library is wrong' found.err)"
TRIREME_EMULATE_GPUS=2 timeout -k 5 120 mpirun --oversubscribe -n 2 "$good" train $M run.dir=two model.ffn=168 \
    parallel.tensor=2 >two.out 2>two.err </dev/null
is "on two tensor ranks another product is, named once and replaced" "0 1 0" \
    "$? $(grep -c 'product fp32 .*x \[168,.*library is wrong' two.err) $(apart shapes two)"
F="precision=fp8 model.ffn=256 data.seq_len=128 train.micro_batch=1"
export TRIREME_EMULATE_WRONG_K=256
run "a product in fp8 that is wrong" fp8 "$good" $F
is "is named, too" 1 "$(grep -c 'product fp8 \[128,256\] x \[256,64\] .*: the library is wrong by' fp8.err)"
export TRIREME_EMULATE_WRONG_K=168
run "fp8 with right products" fp8_right "$good" $F
is "nobody is warned of these" 0 "$(grep -c 'library is wrong' fp8_right.err)"
is "a replaced product in fp8 gives the losses of a right one" 0 "$(apart fp8_right fp8 1e-4)"
run "products of Muon that are wrong" muon "$good" train.optimizer=muon model.ffn=168
is "are named: two, beside that of AdamW's run" 3 "$(grep -c 'product fp32 \[64,168\] x \[168,64\] .*: the library is wrong by' muon.err)"

# What else chooses a product's kernel is checked for itself.
before=$(shapes)
run "tuned products" tuned "$good" train.tune_products=true model.ffn=184
is "the check of tuned products is not kept" "$before" "$(shapes)"
run "the same products by suggestion" suggested "$good" model.ffn=184
is "are kept" $((before + 1)) "$(shapes)"
for sms in 0 8; do
    TRIREME_EMULATE_GPUS=2 timeout -k 5 120 mpirun --oversubscribe -n 2 "$good" train $M run.dir=sms$sms \
        comm.spare_sms=$sms >sms.out 2>sms.err </dev/null || not_ok "comm.spare_sms=$sms" "$(tail -n 1 sms.err)"
done
is "products on all and on fewer multiprocessors are kept, each for itself" $((before + 3)) "$(shapes)"

# Evaluating and generating check their own shapes.
answers() { # NAME: evaluate and generate with run `shapes`, to NAME.loss and NAME.text
    timeout -k 5 120 "$good" evaluate $M run.dir=shapes model.ffn=168 data.valid=valid.h5 \
        >"$1.loss" 2>"$1.loss.err" &&
        timeout -k 5 120 "$good" generate shapes --prompt abcabc --tokens 20 --temperature 0 \
            device=cuda >"$1.text" 2>"$1.text.err"
}
rm cache/trireme/shapes-*
answers wrong
is "evaluating and generating end well" 0 $?
is "evaluating, a wrong product is named" 1 "$(grep -c 'x \[168,64\] to fp32: the library is wrong by' wrong.loss.err)"
is "generating, wrong products are named, of the prompt and of one token" 2 "$(grep -c 'x \[168,64\] to fp32: the library is wrong by' wrong.text.err)"
is "nothing is kept of wrong shapes by either" 0 "$(shapes)"
unset TRIREME_EMULATE_WRONG_K
answers right
is "with right products" 0 $?
is "evaluating, a wrong product is replaced" "$(cut -c 1-60 right.loss)" "$(cut -c 1-60 wrong.loss)"
is "generating, a wrong product is replaced" "$(cat right.text)" "$(cat wrong.text)"
is "both keep that shapes were right" 2 "$(shapes)"

export FAULT=products
run "wrong products" wrong "$bad"
is "another build checks for itself" 2 "$(kept)"
is "the library's products are named" 1 "$(grep -c 'self-check.*products fp32 A B' wrong.err)"
is "metrics name the products that were replaced" 1 "$(grep -c '"replaced": *"products fp32 A B;' wrong/metrics.jsonl)"
is "the losses are right" 0 "$(apart right wrong)"
run "the next start" wrong2 "$bad"
is "warns of what was kept" 1 "$(grep -c 'self-check.*products fp32 A B' wrong2.err)"
is "replaced products give the same losses at the next start" "$(losses wrong)" "$(losses wrong2)"
run "run.self_check=off" off "$bad" run.self_check=off
is "trains with wrong products" 1 "$(apart right off)"
"$bad" doctor --gpu >doctor.out 2>doctor.err
is "doctor --gpu: all 13 are replaced" "0 13" "$? $(grep -c ' ms  products .*own kernels do it' doctor.out)"
is "doctor --gpu: nothing but the products is wrong" 13 "$(grep -c WRONG doctor.out)"
"$bad" doctor >doctor.out 2>doctor.err
is "doctor lists it as a problem" 1 "$(grep -c '  - the self-check found.*products bf16' doctor.out)"

rm -r cache
export FAULT=swiglu
refused "a wrong kernel" 'wrong numbers.*in swiglu;' "$bad" train $M run.dir=none
refused "a wrong kernel, evaluating" 'wrong numbers.*in swiglu;' "$bad" evaluate $M run.dir=right \
    data.valid=valid.h5
is "verdicts of a wrong kernel are not kept" 0 "$(kept)"
refused "on two ranks" 'wrong numbers.*in swiglu;' mpirun --oversubscribe -n 2 "$bad" train $M \
    run.dir=none comm.share_gpu=true train.micro_batch=1
refused "doctor --gpu" 'wrong numbers.*in swiglu;' "$bad" doctor --gpu
is "doctor --gpu shows the wrong kernel" 1 "$(grep -c ' ms  swiglu .*WRONG: nothing' stdout)"
run "run.self_check=off" off2 "$bad" run.self_check=off
is "trains with a wrong kernel" 1 "$(apart right off2)"

export FAULT=refused TRIREME_EMULATE_GPUS=2
refused "doctor on two GPUs of which one fails" 'rank 1.*cuBLASLt: cublasLtMatmul: ' \
    mpirun --oversubscribe -n 2 "$bad" doctor
unset TRIREME_EMULATE_GPUS

export FAULT=none
XDG_CACHE_HOME=/proc/none
run "a cache that cannot be written" unwritten "$good"
is "changes nothing" 0 "$(apart right unwritten)"
refused "doctor --gpu without a GPU" 'no GPU' env TRIREME_EMULATE_GPUS=0 CUDA_VISIBLE_DEVICES= \
    "$good" doctor --gpu
refused "doctor --gpu without a driver" 'no GPU to check: no NVIDIA driver is found' \
    env TRIREME_EMULATE_DRIVER=0 "$good" doctor --gpu
refused "doctor --gpu with an old driver" \
    'driver is for CUDA 11\.8, and this trireme was built with CUDA [0-9.]*, which needs a newer one' \
    env TRIREME_EMULATE_DRIVER=11080 "$good" doctor --gpu
refused "device=auto with a GPU that is too old" \
    'compute capability 7\.5, and trireme needs 8\.0 or newer: .*device=cpu' \
    env TRIREME_EMULATE_LEVEL=75 "$good" train $M run.dir=old device=auto
refused "doctor --gpu without CUDA or a GPU" 'no GPU' env CUDA_VISIBLE_DEVICES= "$TRIREME" doctor --gpu
finish
