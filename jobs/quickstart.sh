#!/bin/sh
# quickstart.sh [TEXT-FILE...] - from a fresh Debian 12 or 13 to a small trained model.
#
# Installs missing packages (as root; else it prints what to ask for), builds in build/, makes a
# tokenizer and token files of the given texts or of the Debian Reference, trains a 10-million-parameter Llama on
# two ranks, each of which holds half of every parameter, and prints text that the model generates.  After the
# installation that takes one to five minutes on two cores.  A second start uses what is there already: the
# build, the token files, and the training, which it continues if it is not done.
#
# To start from the beginning: rm -r data runs/quickstart
set -eu
for file; do # absolute names, for the cd below
    shift
    [ -f "$file" ] && [ -r "$file" ] || { echo "quickstart.sh: cannot read $file" >&2; exit 1; }
    set -- "$@" "$(realpath "$file")"
done
cd "$(dirname "$0")/.."
steps=${QUICKSTART_STEPS:-600}
# Where Debian 12 and Debian 13 have the text; a system without documentation lacks the second.
references="/usr/share/debian-reference/debian-reference.en.txt.gz
    /usr/share/doc/debian-reference-common/docs/debian-reference.en.txt.gz"
data=data run=runs/quickstart text=text prompt='The Debian system'
if [ $# -gt 0 ]; then
    sum=$(cat -- "$@" | cksum | cut -d' ' -f1)
    data=data/$sum run=$run-$sum text='' prompt='The '
elif [ -e $data/train.h5 ] && [ -e $data/valid.h5 ] && [ -e $data/tokenizer.json ]; then
    text=
fi
trireme=$PWD/build/trireme

say() { printf '\n== %s\n' "$*"; }

# Run a command with its output in a log, the end of which is shown if the command fails.
quietly() {
    log=$1
    shift
    "$@" >"$log" 2>&1 || { tail -n 30 "$log" >&2; echo "the whole of it: $log" >&2; exit 1; }
}

# Print the prose of the Debian Reference, each paragraph on a line: those that end like a sentence and are
# not of a table.
reference_text() {
    gzip -dc "$reference" | awk '
        function flush() {
            gsub(/\302\240/, " ", line)
            gsub(/[ \t]+/, " ", line)
            sub(/^ ?([*+] )?/, "", line)
            if (length(line) > 60 && line ~ /[.:?)]$/ && line !~ /[|]/) print line
            line = ""
        }
        /^[[:space:]]*$/ { flush(); next }
        { line = line " " $0 }
        END { flush() }'
}

# Write the lines to train.txt, but of 20 blocks of 40 lines one to valid.txt.
split_text() {
    awk -v block=40 -v to="$data" \
        '{ print >(to (int(NR / block) % 20 == 10 ? "/valid.txt" : "/train.txt")) }'
}

say "packages (about a minute where they are missing; log: build/packages.log)"
mkdir -p build "$data"
# shellcheck disable=SC2086
quietly build/packages.log jobs/packages.sh build run $text
for reference in $references; do
    [ ! -f "$reference" ] || break
done
[ -z "$text" ] || [ -f "$reference" ] ||
    { echo "quickstart.sh: no $reference; give text files: jobs/quickstart.sh FILE..." >&2; exit 1; }

cuda=
if [ ! -f build/Makefile ] && command -v nvcc >/dev/null; then cuda=', and minutes more for GPU kernels: nvcc is here'; fi
say "build (about a minute$cuda; build/trireme)"
[ -x configure ] || quietly build/autogen.log ./autogen.sh
cd build
[ -f Makefile ] || quietly configure.log ../configure
quietly make.log make -j"$(nproc)" trireme
cd ..
"$trireme" --version

say "tokens ($data/tokenizer.json, $data/train.h5, $data/valid.h5)"
if [ -n "$text" ]; then
    reference_text | split_text
    "$trireme" tokenize "$data/train.txt" --train-bpe 1024 -o "$data/tokenizer.json"
    "$trireme" tokenize "$data/train.txt" --tokenizer "$data" -o "$data/train.h5"
    "$trireme" tokenize "$data/valid.txt" --tokenizer "$data" -o "$data/valid.h5"
elif [ $# -gt 0 ] && [ ! -e "$data/valid.h5" ]; then
    "$trireme" tokenize "$@" --train-bpe 1024 -o "$data/tokenizer.json"
    "$trireme" tokenize "$@" --tokenizer "$data" -o "$data/train.h5" --valid "$data/valid.h5" \
        --valid-fraction 0.05
fi

# bf16 is twice as fast where the processor has instructions for it.
precision=fp32
if grep -q -w -e avx512_bf16 -e amx_bf16 /proc/cpuinfo; then precision=bf16; fi

say "training: 2 ranks, FULL_SHARD, $precision (one to five minutes on two idle cores; $run)"
[ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun --oversubscribe --bind-to none -n 2 "$trireme" train model.preset=llama-10m \
    model.vocab=1024 precision=$precision parallel.strategy=FULL_SHARD \
    data.train="$data/train.h5" data.valid="$data/valid.h5" data.seq_len=256 \
    train.steps="$steps" train.global_batch=4 train.lr=6e-4 train.warmup_steps=20 \
    train.eval_every=$((steps / 8)) checkpoint.every=$((steps / 2)) run.log_every=25 run.dir="$run"

say "sample: trireme generate $run --prompt '$prompt'"
# One sequence of a small model is work for one thread.
OMP_NUM_THREADS=1 "$trireme" generate "$run" --prompt "$prompt" --tokens 150 --temperature 0.5
echo "
Checkpoints are in $run/checkpoints, what happened at each step in $run/metrics.jsonl.
Next: build/trireme config --show, and jobs/llama8b_fsdp.sh for a cluster."
