#!/bin/sh
# measure.sh - trireme doctor --measure: the file reads back and is whole, on processors and on the
# emulated GPU, on one rank and on several; what cannot be written is known before the measuring.
. "$(dirname "$0")/../cli/helpers.inc"

: "${TRIREME_CUDA:=$(dirname "$TRIREME")/trireme-emulated}"

# The rows of a table in a machine file, with spaces for what stands between columns.
rows() { sed -n "/^  $2:/,/^  [a-z]*:/ s/^ *- *\[\(.*\)\]/\1/p" "$1" | tr -d '",' ; }

# Every format and kind has every m with every n and every k; formats and kinds, and those not full.
grids() {
    rows "$1" products | awk '
        { g = $1 " " $2; n[g]++
          if (!m[g, $3]++) ms[g]++
          if (!nn[g, $4]++) ns[g]++
          if (!k[g, $5]++) ks[g]++ }
        END { for (g in n) { all++; bad += n[g] != ms[g] * ns[g] * ks[g] || ms[g] < 2 }
              print all + 0, bad + 0 }'
}

# Rows of all tables, and those whose last column, a rate or a time, is not above 0.
rates() {
    { rows "$1" products; rows "$1" ops; rows "$1" transfers; } |
        awk '{ n++; bad += !($NF > 0) || $NF ~ /inf|nan/ } END { print (n > 100), bad + 0 }'
}

# Are these ops there, in both formats?
has_ops() {
    file=$1
    shift
    for op; do
        [ "$(rows "$file" ops | awk -v op="$op" '$1 == op && !f[$2]++' | wc -l)" -ge 2 ] || echo "$op"
    done
}

# whole NAME FILE FORMATS: what every measured machine has, with products in so many formats
whole() {
    is "$1: products are full grids" "$(($3 * 3)) 0" "$(grids "$2")"
    is "$1: rates are above 0" "1 0" "$(rates "$2")"
    is "$1: files, in the page cache and on the disk" 7 "$(sed -n '/^  disk:/,/^  [a-z]/p; /^  host:/,/^  [a-z]/p
        /^  beside:/,/^  [a-z]/p' "$2" | grep -cE '^    (cached_read|cached_write|read|write): [1-9][0-9.e+]*( [kMGT]?B/s)?$|^    (memory|unwritten|file): [0-9.]*[1-9]')"
    is "$1: ops of both families, of the update and of the loss" none "$(has_ops "$2" attention \
        attention_backward rmsnorm rmsnorm_backward swiglu swiglu_backward rope qk_norm gelu layernorm \
        layernorm_backward bias dropout embedding embedding_backward UPDATE head_loss_train |
        xargs echo | sed 's/^$/none/')"
}

# measured NAME PROGRAM N FILE ARG...
measured() {
    name=$1 program=$2 n=$3 file=$4
    shift 4
    ranks "$n" "$program" doctor --measure "$file" --quick "$@" >out 2>err </dev/null
    code=$?
    is "$name" "0 1" "$code $(grep -c "^  written  *$file" out)"
    [ $code = 0 ] || grep -a '^trireme' err | tail -n 3
    is "$name: who waits is told for what" yes "$(grep -q '^trireme: measuring products' err && echo yes)"
}

measured "one rank" "$TRIREME" 1 one.yaml
whole "one rank" one.yaml 2
is "one rank: no transfers, and that is said" "0 1 1" "$(rows one.yaml transfers | wc -l) $(grep -c \
    '^# One rank: .* assumed' one.yaml) $(grep -c 'not measured  *transfers' out)"

F="model.hidden=256 model.layers=2 model.heads=4 model.ffn=512 model.vocab=264 data.seq_len=128 train.global_batch=8 device=cpu"
for precision in bf16 fp8; do
    "$TRIREME" plan $F precision=$precision --machine one.yaml --json $precision.json >out 2>err
    eval "$precision=\$(sed -n 's/.*\"step_ms\": *\([0-9.]*\).*/\1/p' $precision.json | head -n 1)"
    rm -f $precision.json
done
is "fp8 takes longer on processors, and that is measured" "yes yes" \
    "$(rows one.yaml ops | grep -q '^round_fp8 ' && echo yes) $(awk -v a="$fp8" -v b="$bf16" 'BEGIN { if (a > 1.02 * b) print "yes" }')"

# The second time it replaces a file that it has to read before.
measured "two ranks, over a file that is there" "$TRIREME" 2 one.yaml
whole "two ranks" one.yaml 2
is "two ranks: all six transfers" "all_reduce all_to_all gather message message_busy reduce" \
    "$(rows one.yaml transfers | awk '$2 == 2 && $3 == 1 { print $1 }' | sort -u | xargs)"
is "two ranks: of each the same sizes" "6 1024 6 4096 6 16384 6 65536" "$(rows one.yaml transfers |
    awk '{ print $4 }' | sort -n | uniq -c | xargs)"
is "two ranks of a node" 1 "$(grep -c '^  per_node: 2$' one.yaml)"
measured "four ranks" "$TRIREME" 4 four.yaml
is "four ranks: groups of four and of two" "2 4" "$(rows four.yaml transfers |
    awk '$1 == "gather" { print $2 }' | sort -un | xargs)"
is "nothing else is left" "four.yaml one.yaml" "$(ls -A | grep -vE '^(out|err|stdout|stderr)$' | xargs)"

# What cannot be is refused at once: nothing was measured.
echo 'model: {preset: llama-tiny}' >config.yaml
cp config.yaml before.yaml
mkdir folder
refused "no such folder" 'absent' "$TRIREME" doctor --measure absent/m.yaml
refused "two ranks: no such folder" 'absent' mpirun --oversubscribe -n 2 "$TRIREME" doctor \
    --measure absent/m.yaml
refused "a folder" 'folder.*folder' "$TRIREME" doctor --measure folder
refused "a device" 'no regular file' "$TRIREME" doctor --measure /dev/full
refused "a file that is no machine" 'config.yaml.*no machine' "$TRIREME" doctor --measure config.yaml
is "a file that is no machine is as before" yes "$(cmp -s config.yaml before.yaml && echo yes)"
refused "--quick alone" 'quick.*measure' "$TRIREME" doctor --quick
refused "--disk alone" 'disk.*measure' "$TRIREME" doctor --disk .
refused "--measure without a file" 'measure' "$TRIREME" doctor --measure
if unshare --mount true 2>/dev/null; then
    mkdir disk
    full='mount -t tmpfs -o size=256k tmpfs disk && "$TRIREME" doctor --measure disk/m.yaml; code=$?
        ls -A disk >left; exit $code'
    export TRIREME
    refused "a full disk" 'disk/m.yaml.*space' unshare --mount sh -c "$full"
    is "a full disk: nothing is left on it" 0 "$(wc -l <left)"
    small='mount -t tmpfs -o size=1m tmpfs disk && "$TRIREME" doctor --measure m.yaml --quick --disk disk'
    unshare --mount sh -c "$small" >stdout 2>stderr
    is "a disk too small to be measured" "1 1 0" "$? $(grep -cE 'error: .*disk.*space' stderr) $(ls |
        grep -c '^m.yaml')"
else
    skip "a full disk" "mounts are not allowed here"
fi
ranks 2 "$TRIREME" doctor --measure m.yaml --quick --disk absent >stdout 2>stderr
is "no disk there: known before all else" "1 1" "$? $(grep -c '^trireme: measuring' stderr)"

if [ -x "$TRIREME_CUDA" ]; then
    export TRIREME_EMULATE_GPUS=2
    measured "two emulated GPUs" "$TRIREME_CUDA" 2 gpu.yaml
    whole "two emulated GPUs" gpu.yaml 4
    is "two emulated GPUs: all five transfers" "all_reduce all_to_all gather message reduce" \
        "$(rows gpu.yaml transfers | awk '$2 == 2 { print $1 }' | sort -u | xargs)"
    is "two emulated GPUs: their name is in the file" 1 "$(grep -c '^  gpu: "[^"]' gpu.yaml)"
else
    skip "the emulated GPU" "no $TRIREME_CUDA"
fi
finish
