#!/bin/sh
# tokenize_packed.sh - inputs that gzip, zstd, xz and bzip2 made: the tokens of what they hold, and what
# becomes of those that are damaged, cut, archives or numbers.
. "$(dirname "$0")/helpers.inc"

i=0
while [ $i -lt 20000 ]; do
    echo "{\"text\": \"line $i of a file that does not fit a block\"}"
    i=$((i + 1))
done >lines.jsonl
"$TRIREME" tokenize lines.jsonl -o plain.h5 >plain 2>err
is "plain lines" "0 20000" "$? $(sed -n 's/.* in \([0-9]*\) documents.*/\1/p' plain)"
seq 60000 >one.txt
"$TRIREME" tokenize one.txt -o one.h5 >out 2>err

# same NAME OUTPUT EXPECTED: two token files have the same tokens and documents.
same()
{
    if h5diff "$2" "$3" /tokens >changes 2>&1 && h5diff "$2" "$3" /documents >changes 2>&1; then ok "$1"; else
        not_ok "$1" "$(head -n 3 changes)"; fi
}

for packer in gzip:gz zstd:zst xz:xz bzip2:bz2; do
    program=${packer%:*} ending=${packer#*:}
    if ! command -v "$program" >/dev/null; then
        skip "$program" "it is not installed"
        continue
    fi
    "$program" -c lines.jsonl >"lines.jsonl.$ending"
    "$TRIREME" tokenize "lines.jsonl.$ending" -o packed.h5 >packed 2>err
    is "lines of $program" 0 $?
    same "lines of $program: the same tokens" packed.h5 plain.h5
    "$program" -c one.txt >"one.$ending"
    "$TRIREME" tokenize "one.$ending" -o packed.h5 >out 2>err
    same "a text of $program" packed.h5 one.h5
    bytes=$(wc -c <"lines.jsonl.$ending")
    head -c $((bytes * 2 / 3)) "lines.jsonl.$ending" >"cut.jsonl.$ending"
    rm -f packed.h5
    refused "lines of $program that are cut" "error: cut\\.jsonl\\.$ending cannot be unpacked to its end: .*" \
        "$TRIREME" tokenize "cut.jsonl.$ending" -o packed.h5
    is "leave no file ($program)" 0 "$(find . -maxdepth 1 -name 'packed.h5*' | wc -l)"
    { head -c $((bytes / 3)) "lines.jsonl.$ending" && printf damage &&
        tail -c +$((bytes / 3 + 7)) "lines.jsonl.$ending"; } >"bad.jsonl.$ending"
    refused "damaged lines of $program" "error: bad\\.jsonl\\.$ending" \
        "$TRIREME" tokenize "bad.jsonl.$ending" -o packed.h5
    mkdir -p "no_$program"
    refused "without $program" "and the program that unpacks it, $program, is not installed; install it" \
        env PATH="$PWD/no_$program" "$TRIREME" tokenize "lines.jsonl.$ending" -o packed.h5
done

# The name without its ending and the first bytes say what is in a file.
mkdir folder
cp lines.jsonl.gz folder/b.jsonl.gz
gzip -c one.txt >folder/a.txt.gz
cp one.txt folder/c.gz # some servers unpack what they send
"$TRIREME" tokenize folder -o folder.h5 >out 2>err
is "a folder" "0 20002" "$? $(sed -n 's/.* in \([0-9]*\) documents.*/\1/p' out)"
cp lines.jsonl.gz nameless
"$TRIREME" tokenize nameless --format jsonl -o packed.h5 >out 2>err
same "a name that says nothing" packed.h5 plain.h5
cp lines.jsonl.gz c4.json.gz
"$TRIREME" tokenize c4.json.gz -o packed.h5 >out 2>err
same ".json.gz that is named" packed.h5 plain.h5
cat lines.jsonl.gz lines.jsonl.gz >twice.jsonl.gz
"$TRIREME" tokenize twice.jsonl.gz -o packed.h5 >out 2>err
is "two packed files end to end" "0 40000" "$? $(sed -n 's/.* in \([0-9]*\) documents.*/\1/p' out)"
: | gzip >empty.jsonl.gz
"$TRIREME" tokenize empty.jsonl.gz lines.jsonl -o packed.h5 >out 2>err
same "an empty one beside" packed.h5 plain.h5
"$TRIREME" tokenize one.txt --train-bpe 300 -o plain.json >out 2>err
"$TRIREME" tokenize folder/a.txt.gz --train-bpe 300 -o packed.json >out 2>err
if cmp -s plain.json packed.json; then ok "a tokenizer"; else not_ok "a tokenizer" "differs"; fi
"$TRIREME" tokenize lines.jsonl.gz --valid valid.h5 --valid-fraction 0.1 -o packed.h5 >out 2>err
is "validation of lines" "0 2000" "$? $(sed -n 's/.*; valid.h5: .* in \([0-9]*\) documents.*/\1/p' out)"

# What is refused.
refused "validation of one text" 'a\.txt\.gz is compressed, so that its tail cannot be split off .*; unpack it first' \
    "$TRIREME" tokenize folder/a.txt.gz --valid valid.h5 --valid-fraction 0.1 -o packed.h5
refused "from standard input" 'standard input is compressed; unpack it: gzip -dc FILE | trireme tokenize -' \
    sh -c '"$TRIREME" tokenize - -o packed.h5 <lines.jsonl.gz'
gzip -c lines.jsonl.gz >twice.gz
refused "compressed twice" 'twice\.gz is compressed twice; unpack it once' "$TRIREME" tokenize twice.gz --format text -o packed.h5
tar -czf files.tar.gz one.txt lines.jsonl
refused "an archive" 'files\.tar\.gz is an archive of files; unpack it into a folder first' \
    "$TRIREME" tokenize files.tar.gz -o packed.h5
echo '[{"text": "a"}]' | gzip >list.json.gz
refused "a list" "list\\.json\\.gz is a list in JSON.*: gzip -dc list\\.json\\.gz | jq -c '\\.\\[\\]'" \
    "$TRIREME" tokenize list.json.gz -o packed.h5
printf '\001\000\002\000' | gzip >ids.bin.gz
refused "numbers" 'ids\.bin\.gz has token ids and is compressed; unpack it first: gzip -dk ids\.bin\.gz' \
    "$TRIREME" tokenize ids.bin.gz --format bin --vocab 10 -o packed.h5
finish
