#!/bin/sh
# tokenize_join.sh - token files become one: their documents, tokens and masks in order.
. "$(dirname "$0")/helpers.inc"

dataset() { h5dump -y -w 0 -d "$2" "$1" | sed -n 's/^ *\([0-9, ]*\)$/\1/p' | tr -d ' \n'; }

printf '{"text": "ab"}\n{"text": "c"}\n' >texts.jsonl
printf '{"prompt": "q", "completion": "d"}\n' >prompts.jsonl
"$TRIREME" tokenize texts.jsonl -o texts.h5 >out 2>err
"$TRIREME" tokenize prompts.jsonl -o prompts.h5 >out 2>err
"$TRIREME" tokenize texts.h5 prompts.h5 texts.h5 -o all.h5 >out 2>err
is "joined" "0 1" "$? $(grep -c '^all\.h5: 13 tokens in 5 documents, 12 of them targets; tokenizer bytes, vocabulary 257$' out)"
is "their tokens" "97,98,256,99,256,113,100,256,97,98,256,99,256" "$(dataset all.h5 tokens)"
is "their documents" "0,3,5,8,11,13" "$(dataset all.h5 documents)"
is "their mask: all but the prompt" "1,1,1,1,1,0,1,1,1,1,1,1,1" "$(dataset all.h5 loss_mask)"
"$TRIREME" tokenize --verify all.h5 >out 2>err
is "the file is whole" 0 $?
"$TRIREME" tokenize texts.h5 texts.h5 -o plain.h5 >out 2>err
is "without a mask there is none" 0 "$(h5dump -n plain.h5 | grep -c loss_mask)"
"$TRIREME" tokenize texts.h5 texts.h5 -o four.h5 --valid valid.h5 --valid-fraction 0.25 >out 2>err
is "every fourth document for validation" "97,98,256,99,256,97,98,256 99,256" "$(dataset four.h5 tokens) $(dataset valid.h5 tokens)"

# As the training sees them: one file of the whole is the parts, one behind the other.
seq 30000 >a && seq 90000 120000 >b
"$TRIREME" tokenize a b -o both.h5 >out 2>err
"$TRIREME" tokenize a -o a.h5 >out 2>err
"$TRIREME" tokenize b -o b.h5 >out 2>err
"$TRIREME" tokenize a.h5 b.h5 -o parts.h5 >out 2>err
if h5diff both.h5 parts.h5 /tokens >changes 2>&1 && h5diff both.h5 parts.h5 /documents >changes 2>&1; then
    ok "documents of many blocks"; else not_ok "documents of many blocks" "$(head -n 3 changes)"; fi
i=0
while [ $i -lt 20000 ]; do
    echo '{"text": ""}'
    echo "{\"text\": \"$i\"}"
    i=$((i + 1))
done >many.jsonl
"$TRIREME" tokenize many.jsonl -o many.h5 >out 2>err
"$TRIREME" tokenize many.h5 texts.h5 -o more.h5 >out 2>err
is "many documents" "0 1" "$? $(grep -c 'in 20002 documents' out)"

# What is refused.
refused "another kind beside them" 'token files are joined with token files alone, which texts\.jsonl is not' \
    "$TRIREME" tokenize texts.h5 texts.jsonl -o x.h5
printf '\001\000' >ids.bin
"$TRIREME" tokenize ids.bin --format bin --vocab 10 -o ids.h5 >out 2>err
refused "two tokenizers" 'texts\.h5 was made with tokenizer "bytes" of 257 tokens, and ids\.h5 with "unnamed" of 10' \
    "$TRIREME" tokenize texts.h5 ids.h5 -o x.h5
refused "an option that changes nothing" 'tokenizer is for texts and token ids.*token files, which are joined' \
    "$TRIREME" tokenize texts.h5 --tokenizer bytes -o x.h5
refused "an output that is an input" 'texts\.h5 is an input, and would be overwritten' \
    "$TRIREME" tokenize texts.h5 prompts.h5 -o texts.h5
cp both.h5 damaged.h5
printf 'x' | dd of=damaged.h5 bs=1 seek=100000 conv=notrunc 2>/dev/null
refused "a damaged one" 'damaged\.h5' "$TRIREME" tokenize texts.h5 damaged.h5 -o x.h5
h5=$(mktemp -d shards.XXXXXX)
cp texts.h5 "$h5/a.h5"
refused "a folder of them" 'to join token files, name them' "$TRIREME" tokenize "$h5" -o x.h5
is "none of these left a file" 0 "$(find . -maxdepth 1 -name 'x.h5*' | wc -l)"
finish
