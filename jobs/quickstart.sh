#!/bin/sh
# quickstart.sh [TEXT-FILE...] - from a fresh Debian 12 to a small trained model.
#
# Installs what is missing (as root; else says what to ask for), builds in build/, makes token
# files from the given texts or from the Debian Reference, trains a 10-million-parameter Llama on
# two ranks, each holding half of every parameter, and lets the result speak.  Run it again and
# it continues with what is there already: a build, token files, a half-done or done training.
#
# To start anew: rm -r data runs/quickstart
set -eu
for file; do # the names stay right in another directory
    shift
    [ -r "$file" ] || { echo "quickstart.sh: cannot read $file" >&2; exit 1; }
    set -- "$@" "$(realpath "$file")"
done
cd "$(dirname "$0")/.."
steps=${QUICKSTART_STEPS:-400}
prompt='The Debian system'
reference=/usr/share/debian-reference/debian-reference.en.txt.gz
run=runs/quickstart
[ $# = 0 ] || run=$run-$(cat -- "$@" | cksum | cut -d' ' -f1)
trireme=$PWD/build/trireme

say() { printf '\n== %s\n' "$*"; }

# Run quietly; the log is shown only if it fails.
quietly() {
    log=$1
    shift
    "$@" >"$log" 2>&1 || { tail -n 30 "$log" >&2; echo "the whole of it: $log" >&2; exit 1; }
}

# The prose of the Debian Reference, a paragraph a line: what ends like a sentence and is no table.
reference_text() {
    gzip -dc $reference | awk '
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

# One block of twenty is kept apart to measure on.
split_text() {
    awk -v block=40 '{ print >(int(NR / block) % 20 == 10 ? "data/valid.txt" : "data/train.txt") }'
}

say "packages"
mkdir -p build data
if [ $# = 0 ] && [ ! -e data/train.h5 ]; then set_of_text=text; else set_of_text=; fi
# shellcheck disable=SC2086
jobs/packages.sh build run $set_of_text
[ -z "$set_of_text" ] || [ -f $reference ] ||
    { echo "quickstart.sh: no $reference; give text files: jobs/quickstart.sh FILE..." >&2; exit 1; }

say "build (build/trireme)"
[ -x configure ] || quietly build/autogen.log ./autogen.sh
cd build
[ -f Makefile ] || quietly configure.log ../configure
quietly make.log make -j"$(nproc)" trireme
cd ..
"$trireme" --version

say "tokens (data/train.h5, data/valid.h5)"
if [ $# -gt 0 ] || [ ! -e data/train.h5 ] || [ ! -e data/valid.h5 ]; then
    rm -f data/train.txt data/valid.txt
    if [ $# -gt 0 ]; then cat -- "$@"; else reference_text; fi | split_text
    [ -s data/valid.txt ] || tail -n 40 data/train.txt >data/valid.txt
    "$trireme" tokenize data/train.txt -o data/train.h5
    "$trireme" tokenize data/valid.txt -o data/valid.h5
fi

say "training: 2 ranks, FULL_SHARD ($run)"
[ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun --oversubscribe --bind-to none -n 2 "$trireme" train model.preset=llama-10m \
    parallel.strategy=FULL_SHARD data.train=data/train.h5 data.valid=data/valid.h5 \
    data.seq_len=256 train.steps="$steps" train.global_batch=4 train.micro_batch=2 \
    train.lr=1e-3 train.warmup_steps=20 train.eval_every=$((steps / 8)) \
    checkpoint.every=$((steps / 2)) run.dir="$run"

say "sample"
checkpoint=$(ls -d "$run"/checkpoints/step-[0-9]* | grep -v partial | tail -n 1)
"$trireme" generate "$checkpoint" --prompt "$prompt" --tokens 300 --temperature 0.7
echo
echo "
The model is $checkpoint; what happened at each step is in $run/metrics.jsonl.
Next: trireme config --show, and jobs/llama8b_fsdp.sh for a cluster."
