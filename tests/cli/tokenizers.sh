#!/bin/sh
# tokenizers.sh - vocabularies: trained, used for token files, training and generation; and, with
# TRIREME_PYTHON, ids of mixed text against the package `tokenizers` in every pipeline:
# TOKENIZERS_BYTES of it (1000000; 10000000 is what is promised).
. "$(dirname "$0")/helpers.inc"
: "${TRIREME_BUILD:=$top/build}" "${TOKENIZERS_BYTES:=1000000}"

# A vocabulary of text, the same in the same bytes, whatever the number of files.
cat "$top"/src/base/*.[ch] >corpus.txt
"$TRIREME" tokenize corpus.txt --train-bpe 600 -o data/tokenizer.json >out 2>err
is "train a vocabulary" "0 data/tokenizer.json: byte-level BPE, 600 tokens" "$? $(cat out)"
"$TRIREME" tokenize "$top"/src/base/*.[ch] --train-bpe 600 -o other.json >out 2>err
is "of several files the same" 0 "$(cmp data/tokenizer.json other.json >cmp.out 2>&1; echo $?)"
printf 'ab ab ab' | "$TRIREME" tokenize - --train-bpe 9000 -o few.json >out 2>err
is "of a text of few pairs" "0 1" "$? $(grep -c 'no other pair occurs twice' err)"
refused "a vocabulary is no text to overwrite" 'corpus\.txt is an input' \
    "$TRIREME" tokenize corpus.txt --train-bpe 300 -o corpus.txt
"$TRIREME" tokenize corpus.txt --train-bpe 600 --special-tokens '<|im_start|>,<|im_end|>' -o chat/tokenizer.json >out 2>err
is "special tokens of one's own" "0 0 1 2 3" "$? $(sed -n 's/^ *"\(<|endoftext|>\|<|im_start|>\|<|im_end|>\|!\)": \([0-9]*\),.*/\2/p' chat/tokenizer.json | xargs)"
echo '{"messages": [{"role": "user", "content": "if"}, {"role": "assistant", "content": "else"}]}' >chat.jsonl
"$TRIREME" tokenize chat.jsonl --tokenizer chat --chat-template chatml -o chat.h5 >out 2>err
is "a chat template writes them" "0 1" "$? $(grep -c 'chat.h5: [0-9]* tokens in 1 document' out)"
is "as two tokens of each message" "1 2 1 2" "$(h5dump -y -d /tokens chat.h5 | sed -n '/DATA {/,/}/p' | tr -s ' ,' '\n\n' | grep -x '[12]' | xargs)"
for list in '<|endoftext|>' 'a b' '' 'x' '<a>,' '<a>,<a>' 'é'; do
    refused "special tokens '$list'" '.-special-tokens' "$TRIREME" tokenize corpus.txt --train-bpe 600 --special-tokens "$list" -o x.json
done
refused "fewer tokens than bytes and special ones" 'it has from 259, for' \
    "$TRIREME" tokenize corpus.txt --train-bpe 258 --special-tokens '<a>,<b>' -o x.json
refused "special tokens without --train-bpe" 'goes with --train-bpe' "$TRIREME" tokenize corpus.txt --special-tokens '<a>' -o x.h5
refused "fewer tokens than bytes" '257' "$TRIREME" tokenize corpus.txt --train-bpe 100 -o x.json
refused "a vocabulary and a token file at once" '\-\-valid is not for it' \
    "$TRIREME" tokenize corpus.txt --train-bpe 300 --valid v.h5 -o x.json
refused "a vocabulary without an output" 'no output' "$TRIREME" tokenize corpus.txt --train-bpe 300

# It replaces a tokenizer, and nothing else: no token file, no other JSON.
printf 'ab cd ab cd' >tiny.txt
"$TRIREME" tokenize tiny.txt -o data/tokens.h5 >out 2>err
echo '{"learning_rate": 1}' >data/other.json
mkdir data/unread
echo '{"model": {"type": "Unigram"}}' >data/unread/tokenizer.json
for file in tokens.h5=token_file other.json=no_tokenizer unread/tokenizer.json=Unigram; do
    path=data/${file%%=*} what=$(echo "${file#*=}" | tr _ ' ')
    before=$(cksum "$path")
    refused "a vocabulary over $path" "$path is there, and is .*$what.*; remove it, or name another output"         "$TRIREME" tokenize tiny.txt --train-bpe 258 -o "$path"
    is "$path is as it was" "$before" "$(cksum "$path")"
done
before=$(cksum data/tokenizer.json)
refused "a token file over a tokenizer" 'data/tokenizer\.json is there, and is no token file' \
    "$TRIREME" tokenize tiny.txt -o data/tokenizer.json
is "the tokenizer is as it was" "$before" "$(cksum data/tokenizer.json)"
"$TRIREME" tokenize tiny.txt --train-bpe 258 -o tiny.json >out 2>err
"$TRIREME" tokenize tiny.txt --train-bpe 258 -o tiny.json >out 2>err
is "a vocabulary over the same one" "0 tiny.json: byte-level BPE, 258 tokens" "$? $(cat out)"
before=$(cksum tiny.json)
refused "a vocabulary over another" 'tiny.json is there and has tokenizer byte-bpe-[0-9a-f]*, which runs and token files may need; remove it' \
    "$TRIREME" tokenize tiny.txt --train-bpe 259 -o tiny.json
is "it is as it was, and nothing is beside it" "$before tiny.json" "$(cksum tiny.json) $(ls -d tiny.json*)"

# Vocabularies of other kinds.
mkdir -p other
echo x >other/tokenizer.model
for path in other other/tokenizer.model; do
    refused "SentencePiece's vocabulary, named $path" \
        "^trireme: error: other/tokenizer\\.model is SentencePiece's or tiktoken's, which is not read; take the tokenizer\\.json" \
        "$TRIREME" tokenize corpus.txt --tokenizer $path -o x.h5
done

# It makes a token file, whose name of it is a hash, and generate finds it beside the data.
"$TRIREME" tokenize corpus.txt --tokenizer data/tokenizer.json -o data/train.h5 >out 2>err
is "a token file by it" "0 1" "$? $(grep -c 'tokenizer byte-bpe-[0-9a-f]*, vocabulary 600' out)"
is "fewer tokens than bytes of text" 1 \
    "$(($(sed -n 's/.*h5: \([0-9]*\) tokens.*/\1/p' out) * 2 < $(wc -c <corpus.txt)))"
"$TRIREME" tokenize corpus.txt --tokenizer data -o same.h5 >out 2>err
is "the folder of a tokenizer names it too" "0 0" "$? $(cmp data/train.h5 same.h5 >cmp.out 2>&1; echo $?)"
printf 'caf\351 cr\350me \303\251\n' >latin.txt
awk 'BEGIN { for (i = 0; i < 60000; i++) printf "word%d ", i }' >words.txt
(cat words.txt; printf '\342\202 \377 '; cat words.txt; printf 'end\360') >broken.txt
"$TRIREME" tokenize words.txt latin.txt broken.txt --tokenizer data --threads 3 -o broken.h5 >out 2>err
is "bytes that are no UTF-8 are counted" "0 1" \
    "$? $(grep -c 'warning: 6 bytes are no UTF-8 and became U+FFFD, first in latin\.txt$' err)"
"$TRIREME" tokenize latin.txt -o broken.h5 >out 2>err
is "of bytes themselves all are taken" "0 0" "$? $(grep -c UTF-8 err)"
small="device=cpu model.layers=1 model.hidden=16 model.heads=2 model.ffn=32 model.vocab=600 data.seq_len=16
    train.global_batch=2 train.steps=2 run.threads=1"
# shellcheck disable=SC2086
"$TRIREME" train $small data.train=data/train.h5 run.dir=run >out 2>err || cat err
"$TRIREME" generate run --prompt 'static int' --tokens 3 device=cpu >out 2>err
is "generate finds it beside the data" "0 1" "$? $(grep -c '^static int' out)"
# And so does convert, of a model from scratch, and at the end of a chain of runs.
"$TRIREME" convert run made >out 2>err
is "convert finds it beside the data" "0 0" "$? $(cmp data/tokenizer.json made/tokenizer.json >cmp.out 2>&1; echo $?)"
eos=$(sed -n 's/^ *"<|endoftext|>": *\([0-9]*\).*/\1/p' data/tokenizer.json | head -n 1)
is "ids of the tokenizer are in config.json" 1 "$(grep -c "\"eos_token_id\": $eos,\$" made/config.json)"
echo '{"eos_token": null}' >made/tokenizer_config.json
echo '{{ messages }}' >made/chat_template.jinja
mkdir elsewhere
cp data/train.h5 elsewhere
from=made
for link in first second third; do
    "$TRIREME" train model.path=$from data.train=elsewhere/train.h5 device=cpu data.seq_len=16 train.global_batch=2 \
        train.steps=1 run.threads=1 run.dir=$link >out 2>err || cat err
    from=$link
done
"$TRIREME" convert third converted >out 2>err
is "convert finds it where a chain of runs began" "0 chat_template.jinja tokenizer.json tokenizer_config.json" \
    "$? $(cd converted && echo *_template* tokenizer*)"
"$TRIREME" generate third --prompt 'static int' --tokens 3 device=cpu >out 2>err
is "generate finds it where a chain of runs began" "0 1" "$? $(grep -c '^static int' out)"
"$TRIREME" convert run data >out 2>err
is "the data's folder is none to copy from to itself" "0 0" \
    "$? $(cmp data/tokenizer.json made/tokenizer.json >cmp.out 2>&1; echo $?)"
rm data/config.json data/model.safetensors
mv data/tokenizer.json elsewhere.json
refused "a tokenizer that is not there any more" 'trained on tokens of "byte-bpe-.*--tokenizer FILE' \
    "$TRIREME" generate run --prompt x --tokens 3 device=cpu
mkdir away
cd away
refused "a relative path from another directory" \
    'neither in model.path nor beside data.train \(data/train.h5\); relative paths begin at the working directory, /.*/away' \
    "$TRIREME" generate ../run --prompt x --tokens 3 device=cpu
cd ..
cp few.json data/tokenizer.json
refused "another tokenizer is in its place" 'trained on tokens of "byte-bpe-.*data/tokenizer.json is "byte-bpe-' \
    "$TRIREME" generate run --prompt x --tokens 3 device=cpu
echo '{"model": ' >data/tokenizer.json
refused "a broken tokenizer is in its place" 'trained on tokens of "byte-bpe-.*data/tokenizer.json:2:0: .*--tokenizer FILE' \
    "$TRIREME" generate run --prompt x --tokens 3 device=cpu
rm data/tokenizer.json
"$TRIREME" generate run --prompt x --tokens 3 --tokenizer elsewhere.json device=cpu >out 2>err
is "a tokenizer that is given" "0 0" "$? $(grep -c 'trained on tokens' err)"
"$TRIREME" generate run --prompt x --tokens 3 --tokenizer few.json device=cpu >out 2>err
is "another tokenizer is given" "0 1" "$? $(grep -c 'trained on tokens of "byte-bpe' err)"
# What transformers writes of a tokenizer without a longest text: int(1e30).
mkdir unlimited
cp elsewhere.json unlimited/tokenizer.json
echo '{"model_max_length": 1000000000000000019884624838656}' >unlimited/tokenizer_config.json
"$TRIREME" tokenize corpus.txt --tokenizer unlimited -o unlimited.h5 >out 2>err
is "a model_max_length beyond 64 bits" "0 0" "$? $(cmp same.h5 unlimited.h5 >cmp.out 2>&1; echo $?)"
echo '{"eos_token": {"content": "<|stop|>"}}' >unlimited/tokenizer_config.json
refused "an end of texts that the vocabulary lacks" '"<\|stop\|>" as eos_token, which the vocabulary lacks' \
    "$TRIREME" tokenize corpus.txt --tokenizer unlimited -o x.h5
echo '{"eos_token": "<|endoftext|>"}' >unlimited/special_tokens_map.json
"$TRIREME" tokenize corpus.txt --tokenizer unlimited -o unlimited.h5 >out 2>err
is "and that another file names" "0 0" "$? $(cmp same.h5 unlimited.h5 >cmp.out 2>&1; echo $?)"
echo '{"model": {"type": "Unigram"}}' >unigram.json
refused "a model that is not there" 'unigram\.json: model "Unigram" is none that trireme has' \
    "$TRIREME" tokenize corpus.txt --tokenizer unigram.json -o x.h5

if [ -n "${TRIREME_PYTHON-}" ] && "$TRIREME_PYTHON" -c 'import tokenizers' 2>/dev/null; then
    "$TRIREME_PYTHON" "$top/tests/cli/tokenizers_check.py" "$TRIREME" "$top/tests/golden" \
        "$TRIREME_BUILD/tests/bench/tokenizer_rate" "$TOKENIZERS_BYTES" corpus.txt elsewhere.json >check.out 2>&1
    rc=$?
    while read -r result name; do
        if [ "$result" = ok ]; then ok "$name"; else not_ok "the package tokenizers" "$result $name"; fi
    done <check.out
    is "all pipelines are compared" 0 $rc
else
    skip "ids of the package tokenizers" "no Python with tokenizers (TRIREME_PYTHON)"
fi
finish
