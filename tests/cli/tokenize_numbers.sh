#!/bin/sh
# tokenize_numbers.sh - token files of other programs' token ids: numpy, llm.c, nanoGPT.
. "$(dirname "$0")/helpers.inc"

dataset() { h5dump -y -w 0 -d "$2" "$1" | sed -n 's/^ *\([0-9, ]*\)$/\1/p' | tr -d ' \n'; }

# Ids 9 1 2 9 3 4 5 9: 16 bits each, with the end of text in front, as llm.c writes them.
ids() { printf '\011\000\001\000\002\000\011\000\003\000\004\000\005\000\011\000'; }
npy() { # TYPE SHAPE: a header of 128 bytes
    header="{'descr': '$1', 'fortran_order': False, 'shape': $2, }"
    printf '\223NUMPY\001\000\166\000%-117s\n' "$header"
}
{ npy '<u2' '(8,)'; ids; } >ids.npy
{ printf '\210\330\064\001\001\000\000\000\010\000\000\000'; head -c 1012 /dev/zero; ids; } >llmc.bin
ids >raw.bin
for input in ids.npy llmc.bin "raw.bin --format bin"; do
    "$TRIREME" tokenize $input --vocab 10 -o ids.h5 >out 2>err
    is "${input%% *}" "0 9,1,2,9,3,4,5,9 0,8" "$? $(dataset ids.h5 tokens) $(dataset ids.h5 documents)"
    "$TRIREME" tokenize $input --vocab 10 --eos 9 -o ids.h5 >out 2>err
    is "${input%% *}, cut at ends of text" "0 9,1,2,9,3,4,5,9 0,4,8" \
        "$? $(dataset ids.h5 tokens) $(dataset ids.h5 documents)"
done
"$TRIREME" tokenize ids.npy --tokenizer bytes -o ids.h5 >out 2>err
is "numbered by a tokenizer" "0 1" "$? $(grep -c 'tokenizer bytes, vocabulary 257$' out)"
"$TRIREME" tokenize --verify ids.h5 >out 2>err
is "a file of numbers is whole" 0 $?
"$TRIREME" tokenize ids.npy --vocab 10 --eos 9 -o ids.h5 --valid held.h5 --valid-fraction 0.5 >out 2>err
is "every other document is for validation" "0 9,1,2,9 3,4,5,9" \
    "$? $(dataset ids.h5 tokens) $(dataset held.h5 tokens)"
"$TRIREME" tokenize ids.npy --vocab 10 -o ids.h5 --valid held.h5 --valid-fraction 0.25 >out 2>err
is "of one document its tail" "0 9,1,2,9,3,4 5,9" "$? $(dataset ids.h5 tokens) $(dataset held.h5 tokens)"

# Megatron's: numbers alone, of the type that the .idx beside them says, as are documents.
numbers() { # BYTES NUMBER...: little-endian, below 256
    bytes=$1
    shift
    for n in "$@"; do
        printf "\\$(printf %03o "$n")"
        head -c $((bytes - 1)) /dev/zero
    done
}
index() { # TYPE IDS...: of sequences; each is a document
    {
        printf 'MMIDIDX\000\000'
        numbers 8 1
        numbers 1 $1
        width=$((2 + 2 * ($1 == 4))) documents=$(($# - 1))
        shift
        numbers 8 $documents $((documents + 1))
        numbers 4 "$@"
        at=0
        for ids in "$@"; do
            numbers 8 $at
            at=$((at + ids * width))
        done
        numbers 8 $(seq 0 $documents)
    } >wide.idx
}
printf '\011\000\000\000\001\000\000\000\007\000\001\000\011\000\000\000' >wide.bin
index 4 4
"$TRIREME" tokenize wide.bin --vocab 70000 --eos 9 -o wide.h5 >out 2>err
is "Megatron's 32-bit ids" "0 9,1,65543,9 0,4" "$? $(dataset wide.h5 tokens) $(dataset wide.h5 documents)"
refused "Megatron's .idx in place of the .bin" 'wide\.idx is an index of Megatron.s; name the \.bin' \
    "$TRIREME" tokenize wide.idx --vocab 70000 -o x.h5
index 7 4
refused "Megatron's numbers that are no ids" 'wide\.bin: by the \.idx beside it .* type 7; token ids are int16' \
    "$TRIREME" tokenize wide.bin --vocab 70000 -o x.h5
index 8 8
"$TRIREME" tokenize wide.bin --vocab 70000 -o wide.h5 >out 2>err
is "Megatron's 16-bit ids" "0 9,0,1,0,7,1,9,0" "$? $(dataset wide.h5 tokens)"
index 8 3 0 4 1
"$TRIREME" tokenize wide.bin --vocab 10 -o wide.h5 >out 2>err
is "Megatron's documents" "0 0,3,7,8 1" "$? $(dataset wide.h5 documents) $(grep -c 'left out: 1 empty' err)"
"$TRIREME" tokenize wide.bin --vocab 10 --eos 1 -o wide.h5 >out 2>err
is "Megatron's documents, cut behind ends of text, too" "0 0,3,6,7,8" "$? $(dataset wide.h5 documents)"
"$TRIREME" tokenize wide.bin --vocab 10 -o wide.h5 --valid held.h5 --valid-fraction 0.5 >out 2>err
is "Megatron's documents, each by itself for validation" "0 9,0,1,0 0,7,1,9" "$? $(dataset wide.h5 tokens) $(dataset held.h5 tokens)"
index 8 4 4 1
refused "too many ids in it" 'wide\.idx: sequence 2 has 1 ids from id 8 on; the \.bin has 8' \
    "$TRIREME" tokenize wide.bin --vocab 10 -o x.h5
index 0 8
refused "no type in it" 'wide\.bin: by the \.idx beside it .* type 0;' \
    "$TRIREME" tokenize wide.bin --vocab 10 -o x.h5
index 8 3 4
refused "too few ids in it" 'wide\.idx: its 2 documents have 7 ids; the \.bin has 8' \
    "$TRIREME" tokenize wide.bin --vocab 10 -o x.h5
rm wide.idx wide.h5

# More than a part that is read at once, against the same numbers made by bytes.
awk 'BEGIN { for (i = 0; i < 200001; i++) printf "%c", 97 + i * i % 26 }' >letters
"$TRIREME" tokenize letters -o letters.h5 >out 2>err
iconv -f ascii -t utf-16le letters >wide.bin
"$TRIREME" tokenize wide.bin --format bin --tokenizer bytes -o wide.h5 >out 2>err
is "200001 ids" "0 $(dataset letters.h5 tokens | sed 's/,256$//' | cksum)" \
    "$? $(dataset wide.h5 tokens | cksum)"

# Lies and mistakes.
refused "an id outside the vocabulary" 'ids\.npy: number 0 is 9, outside the vocabulary of 9' \
    "$TRIREME" tokenize ids.npy --vocab 9 -o x.h5
refused "no tokenizer" 'whose token ids are these' "$TRIREME" tokenize ids.npy -o x.h5
refused "both" 'or --tokenizer' "$TRIREME" tokenize ids.npy --vocab 9 --tokenizer bytes -o x.h5
refused "an end that is none" 'eos 10: no token of a vocabulary of 10' \
    "$TRIREME" tokenize ids.npy --vocab 10 --eos 10 -o x.h5
refused "numbers without a sign of it" 'raw\.bin has bytes of 0.*--format bin' \
    "$TRIREME" tokenize raw.bin -o x.h5
{ npy '<f4' '(4,)'; ids; } >float.npy
refused "other numbers" "float\.npy: its numbers are '<f4'" "$TRIREME" tokenize float.npy --vocab 9 -o x.h5
{ npy '<u2' '(9,)'; ids; } >short.npy
refused "a truncated file" 'short\.npy is truncated: 9 numbers in its header, 8 in the file' \
    "$TRIREME" tokenize short.npy --vocab 10 -o x.h5
head -c 1025 llmc.bin >short.bin
refused "a truncated file of llm.c" 'short\.bin is truncated: 8 numbers' \
    "$TRIREME" tokenize short.bin --vocab 10 -o x.h5
refused "standard input" 'not from standard input' "$TRIREME" tokenize - --format npy --vocab 10 -o x.h5
refused "a text as numbers" 'letters is neither' "$TRIREME" tokenize letters --format npy --vocab 10 -o x.h5
[ ! -e x.h5 ] && ok "none of these left a file" || not_ok "none of these left a file" "$(ls x.h5)"
finish
