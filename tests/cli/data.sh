#!/bin/sh
# data.sh - data are not trusted: damaged, changing and foreign token files, and what tokenize
# reads and writes.
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
T="timeout -k 5 120 $TRIREME"
M="model.preset=llama-tiny device=cpu data.seq_len=32 train.global_batch=4"

# patch FILE BYTE TEXT: put bytes (printf's escapes) into a file.
patch() {
    printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

# ends NAME PATTERN COMMAND...: training that began ends with code 1, and one line of all ranks says
# why.
ends() {
    name=$1 pattern=$2
    shift 2
    timeout -k 5 120 "$@" >stdout 2>stderr </dev/null
    is "$name" "1 1 1" \
        "$? $(grep -a -c 'trireme: error' stderr) $(grep -a -c "error: .*$pattern" stderr)"
}

# Damage

"$TRIREME" tokenize --verify train.h5 >out 2>err
is "a whole file verifies" "0 1" "$? $(grep -c '^train.h5: whole; .* tokens in 1 document' out)"
at=$(($(wc -c <train.h5) / 2))
cp train.h5 flipped.h5
patch flipped.h5 $at '\377'
cmp -s train.h5 flipped.h5 && patch flipped.h5 $at '\376'
refused "a changed byte is found" 'flipped\.h5 is damaged' "$TRIREME" tokenize --verify flipped.h5
"$TRIREME" tokenize --verify flipped.h5 train.h5 none.h5 train.h5 >out 2>err
is "files behind a bad one are verified" "1 2 1 1 1" "$? $(grep -c '^train.h5: whole' out) $(grep -c 'flipped\.h5 is damaged' err) \
$(grep -c 'none\.h5' err) $(grep -c 'error: 2 of 4 files are no whole token files$' err)"
ends "and ends training" 'flipped\.h5 is damaged: the bytes from [0-9]* on' $T train $M \
    data.train=flipped.h5 train.steps=400 run.dir=run1
# Several ranks may meet the block in the same step: the first of them is named.
timeout -k 5 120 mpirun --oversubscribe -n 3 "$TRIREME" train $M data.train=flipped.h5 \
    train.steps=400 run.dir=run3 run.threads=1 >stdout 2>stderr </dev/null
is "one of several ranks by one line, with rank, file and place" "1 1 1" "$? $(
    grep -a -c 'trireme: error' stderr) $(grep -a -c \
    '^trireme: error: .*rank [0-2] ([^)]*): flipped\.h5 is damaged: the bytes from [0-9]* on' stderr)"
ends "and evaluation while training" 'flipped\.h5 is damaged' $T train $M data.train=train.h5 \
    data.valid=flipped.h5 train.steps=1 run.dir=run
head -c 50000 train.h5 >cut.h5
refused "a file cut short" 'cut\.h5 is truncated: it has 50000 bytes, and [0-9]+ were' $T train $M \
    data.train=cut.h5
mkfifo pipe.h5
refused "a pipe" 'pipe\.h5 is a pipe' $T train $M data.train=pipe.h5
refused "a folder" 'run is a folder' $T train $M data.train=run
refused "a device" 'null is a device' $T train $M data.train=/dev/null
refused "a text: how to make tokens of it" 'trireme tokenize text -o' $T train $M data.train=text
refused "several files, one of which is not there" "data\.train: cannot open token file none\.h5: No such file or directory; .*the working directory, $work" \
    $T train $M data.train=train.h5,none.h5
refused "a pattern" 'patterns are not expanded' $T train $M "data.train=*.h5"
# Whether it is the first open() of a file or HDF5's that fails.
for limit in 40 41 42 43; do
    refused "more token files than a process may have open ($limit)" \
        'cannot open token file .*linked/[0-9]*\.h5: each one stays open, and .*ulimit -Hn' \
        bash -c 'mkdir -p linked; for i in {1..60}; do ln -f train.h5 linked/$i.h5; done
            ulimit -n "$1"; shift; exec "$@" "data.train=$(printf "%s," linked/*.h5 | sed "s/,$//")"' bash $limit $T train $M
done
refused "a weight for one of two files" 'data\.train: 1 of 2 files have a weight' $T train $M \
    data.train=train.h5:0.5,valid.h5
printf hi | "$TRIREME" tokenize - -o short.h5 >out 2>err
refused "a file too short for a sequence, by its name" \
    'data\.valid: short\.h5 has 3 tokens, and one sequence of 32 needs 33' $T train $M \
    data.train=train.h5 data.valid=short.h5
refused "in evaluation too" 'data\.valid: short\.h5 has 3 tokens' $T evaluate $M data.valid=short.h5
refused "a vocabulary too large, by the file's name" \
    'data\.train: the vocabulary of train\.h5 \(tokenizer "bytes"\) is 257, the model.s is 100' \
    $T train $M data.train=train.h5,valid.h5 model.vocab=100
refused "weights in evaluation" 'data\.valid: weights are for training' $T train $M \
    data.train=train.h5 data.valid=valid.h5:1

# A file that is named twice, whatever its names: one line of all ranks, where no weights say that it is meant.
ln train.h5 hard.h5
ln -s train.h5 soft.h5
cp train.h5 copy.h5
# named NAME TRAIN VALID LINE...: what is warned of, by two ranks and by a plan.
named() {
    name=$1 files="data.train=$2 data.valid=$3"
    shift 3
    for line; do printf 'trireme: warning: %s\n' "$line"; done >wanted
    # shellcheck disable=SC2086
    ranks 2 "$TRIREME" train $M $files train.steps=2 run.dir=named run.fresh=true >out 2>err
    code=$?
    # shellcheck disable=SC2086
    "$TRIREME" plan $M $files --ranks 2 >out 2>plan.err
    is "$name" "0 0 $(cat wanted)" "$code $? $(grep 'warning: data' err)"
    is "$name: a plan says so too" "0 $(cat wanted)" "0 $(grep 'warning: data' plan.err)"
}
named "a file that is named twice" train.h5,train.h5 valid.h5 \
    'data.train names one file 2 times (train.h5): each epoch reads it 2 times'
named "links of a file" copy.h5,train.h5,hard.h5,soft.h5 valid.h5 \
    'data.train names one file 3 times (train.h5, also as hard.h5): each epoch reads it 3 times'
named "a file that is named twice in evaluation" train.h5 valid.h5,./valid.h5 \
    'data.valid names one file 2 times (valid.h5, also as ./valid.h5): each evaluation reads it 2 times'
ranks 2 "$TRIREME" evaluate named data.valid=valid.h5,./valid.h5 >out 2>err
is "evaluate says so too" "0 $(cat wanted)" "$? $(grep 'warning: data' err)"
named "a file that is trained and evaluated on" copy.h5,train.h5 valid.h5,soft.h5 \
    'data.valid names soft.h5, which is a file of data.train, named there train.h5: its loss is of what is learned, and says little of other text'
named "weights mean it" train.h5:0.7,hard.h5:0.3 valid.h5
named "samples mean it" train.h5,train.h5:samples=40 valid.h5
named "a copy is another file" train.h5,copy.h5 valid.h5

# A file that is cut while it is read: one line, not a signal.
cp train.h5 shrinks.h5
timeout -k 5 120 "$TRIREME" train $M data.train=shrinks.h5 train.steps=100000 run.dir=shrinks \
    run.threads=1 >out 2>err &
job=$!
if wait_for 60 has_steps shrinks 3; then
    truncate -s 20000 shrinks.h5
    ended
    is "a file that shrinks while it is read" "1 1" \
        "$code $(grep -c 'error: .*shrinks\.h5 was truncated after it was opened' err)"
    is "the last step before a file shrank is saved" "$(last_metric shrinks step)" \
        "$(basename "$(newest_checkpoint shrinks)" | sed 's/step-0*//')"
else
    kill $job
    not_ok "a file that shrinks while it is read" "no step: $(tail -n 3 err)"
fi

# A disk that fails while it is read: one line, and the node's fault.  Reading fails once the file has
# the name that preload.c looks for.
cp train.h5 eio.h5
if ${CC:-cc} -std=gnu11 -O1 -D_GNU_SOURCE -shared -fPIC -o preload.so "$top/tests/chaos/preload.c" \
    2>cc.log; then
    preload bad_disk "$work/preload.so"
    CHAOS_CALL=pread CHAOS_PATH=$work/unreadable CHAOS_P=1 CHAOS_ERRNO=5 \
        timeout -k 5 120 ./bad_disk train $M data.train=eio.h5 train.steps=100000 run.dir=eio \
        run.threads=1 >out 2>err &
    job=$!
    wait_for 60 has_steps eio 3
    mv eio.h5 unreadable
    ended
    is "a disk that fails while it is read" "95 1 1" "$code $(grep -c 'error' err) $(grep -c \
        '^trireme: error: .*cannot read eio\.h5 at byte [0-9]*: Input/output error' err)"
else
    skip "a disk that fails while it is read" "no compiler: $(head -n 1 cc.log)"
fi

# Files of other programs

python=
for candidate in ${TRIREME_PYTHON:-} python3 /usr/bin/python3; do
    if [ -z "$python" ] && "$candidate" -c 'import h5py, numpy' 2>/dev/null; then
        python=$candidate
    fi
done
if [ -z "$python" ]; then
    skip "the page's own file" "no Python with h5py and numpy (TRIREME_PYTHON names one)"
else
    sed -n '/^```python$/,/^```$/{/^```/d;p}' "$top/doc/token-files.md" >page.py
    "$python" page.py >out 2>&1
    is "the page's script runs" 0 $?
    V="$M model.vocab=32000 data.train=mine.h5 train.steps=2"
    mpirun --oversubscribe -n 2 $T train $V run.dir=plain run.threads=1 >out 2>err
    is "the page's file trains, with one warning on two ranks" "0 1 1" \
        "$? $(grep -c warning err) $(grep -c 'warning: mine\.h5 .*tokenize --seal mine\.h5' err)"
    # Without checksums and hash a file is known by a sample: other tokens of the same size are named.
    cp mine.h5 other.h5
    "$python" -c "import h5py; t = h5py.File('other.h5', 'r+')['tokens']; t[:] = t[:][::-1]"
    cp -r plain swapped && cp mine.h5 kept.h5
    $T train $V run.dir=swapped train.steps=3 >out 2>err
    is "the same data are no change" "0 0" "$? $(grep -c 'data.train' err)"
    cp other.h5 mine.h5
    $T train $V run.dir=swapped train.steps=4 >out 2>err
    is "other data under the same name, unsealed" "0 1" \
        "$? $(grep -c 'settings changed since step 3: data.train mine.h5 -> mine.h5 (other contents)' err)"
    cp kept.h5 mine.h5
    chmod 640 mine.h5
    ln -s mine.h5 link.h5
    "$TRIREME" tokenize --seal link.h5 >out 2>err
    is "a file without checksums is sealed under its name" "0 1 -rw-r-----" \
        "$? $(grep -c 'whole; 14000 tokens in 2 documents.*my-tokenizer.*32000, loss mask$' out) \
$(ls -l mine.h5 | cut -c1-10)"
    [ -L link.h5 ] && ok "a link to it stays one" || not_ok "a link to it stays one" "$(ls -l link.h5)"
    cp mine.h5 once.h5
    "$TRIREME" tokenize --seal mine.h5 >out 2>err
    cmp -s mine.h5 once.h5
    is "sealing again changes nothing" "0" "$?"
    mpirun --oversubscribe -n 2 $T train $V run.dir=sealed run.threads=1 >out 2>err
    is "a sealed file trains without a warning" "0 0" "$? $(grep -c warning err)"
    is "on the same numbers" "$(last_metric plain loss)" "$(last_metric sealed loss)"
    cp -r plain since
    $T train $V run.dir=since train.steps=3 >out 2>err
    is "sealing is no change of the data" "0 0" "$? $(grep -c 'data.train' err)"
    refused "generate by a tokenizer that is not here" \
        'plain/checkpoints/step-00000002 was trained on tokens of .my-tokenizer.*--tokenizer bytes' \
        "$TRIREME" generate plain --prompt x
    timeout 60 "$TRIREME" generate plain --prompt x --tokens 3 --tokenizer bytes device=cpu >out 2>err
    is "generate by bytes, where they are asked for" 0 $?
    cat >look.py <<'END'
import h5py, numpy
file = h5py.File("mine.h5")
t = numpy.concatenate([numpy.arange(5000) * 7 % 32000, numpy.arange(9000) * 11 % 32000])
assert (file["tokens"][:] == t).all() and list(file["documents"]) == [0, 5000, 14000]
assert file["loss_mask"][:].sum() == 13900 and not file["loss_mask"][5000:5100].any()
assert file.attrs["maximum"] == t.max() and file.attrs["format"] == 2
END
    "$python" look.py >out 2>&1
    is "h5py reads the sealed file" "0 " "$? $(head -c 300 out)"
    # what a program may do wrongly
    while read -r set index value words; do
        "$python" page.py
        "$python" -c "import h5py; h5py.File('mine.h5', 'r+')['$set'][$index] = $value"
        refused "made wrongly: $set[$index] is $value" "mine\.h5.* $words" \
            "$TRIREME" tokenize --seal mine.h5
    done <<'END'
tokens 7 32000 token 7 is 32000, outside the vocabulary of 32000
tokens 13999 65535 token 13999 is 65535, outside
loss_mask 9 2 loss_mask is 2 at token 9
documents 0 1 the documents begin at token 1
documents 1 15000 document 1 begins at token 15000
documents 2 13999 and end at 13999 of 14000
END
    is "files made wrongly leave nothing beside them" "0" "$(ls | grep -c partial)"
    # every window has a token that the model has no row for, whatever `maximum` says
    "$python" page.py
    "$python" -c "import h5py; h5py.File('mine.h5', 'r+')['tokens'][::16] = 40000"
    ends "a token outside the vocabulary ends training" \
        'mine\.h5: token [0-9]* is 40000, outside the vocabulary of 32000' $T train $V run.dir=beyond

    # no target at all: there is no loss, and it is said
    "$python" page.py
    "$python" -c "import h5py; h5py.File('mine.h5', 'r+')['loss_mask'][:] = 0"
    $T train $V data.valid=mine.h5 run.dir=masked run.log_every=1 >out 2>err
    is "all masked: a line for each step says that there is no loss" "0 2 2 1" "$? \
$(grep -c 'warning: step [12]: no targets: all its tokens are masked' err) \
$(grep -c 'step [12]/2  loss none (no targets)' err) \
$(grep -c 'valid none (no targets)' err)"
    is "all masked: losses are null in the metrics" "2 1" \
        "$(grep -c '"loss": null' masked/metrics.jsonl) $(grep -c '"eval_loss": null' masked/metrics.jsonl)"
    $T train $V data.train=mine.h5 train.steps=104 run.dir=quiet >out 2>err
    is "of many such steps the first ten are told of, and the hundredth" "0 11 1 1" "$? \
$(grep -c 'warning: step [0-9]*: no targets' err) \
$(grep -c 'step 10: no targets.*(10 steps so far; further ones are reported at the 100th' err) \
$(grep -c 'step 100: no targets.*(100 steps so far)$' err)"
    $T evaluate masked >out 2>err
    is "nor does evaluate invent one" "1 1 0" \
        "$? $(grep -c 'error: mine\.h5: no targets: all that was read is masked' err) $(wc -l <out | tr -d ' ')"
    "$python" -c "import h5py; f = h5py.File('chunked.h5', 'w'); f.attrs['format'] = 1
f['documents'] = [0, 100]; f.create_dataset('tokens', (100,), '<u2', chunks=(10,))"
    refused "a chunked dataset" 'chunked\.h5.*(type uint64|contiguous)' $T train $M \
        data.train=chunked.h5
fi

# What tokenize reads and writes

cp text corpus.txt
ln corpus.txt hard.txt
ln -s corpus.txt soft.txt
for name in corpus.txt ./corpus.txt hard.txt soft.txt "$work/corpus.txt"; do
    refused "-o $(basename "$name") is the input" 'is an input, and would be overwritten' \
        "$TRIREME" tokenize corpus.txt -o "$name"
done
refused "standard input is the output" 'is an input' sh -c '"$0" tokenize - -o corpus.txt <corpus.txt' \
    "$TRIREME"
refused "--valid is the input" 'is an input' "$TRIREME" tokenize corpus.txt -o x.h5 \
    --valid hard.txt --valid-fraction 0.1
refused "one output under two names" 'same file' "$TRIREME" tokenize corpus.txt -o x.h5 \
    --valid ./x.h5 --valid-fraction 0.1
echo notes >notes.txt
refused "another text is not replaced" 'notes\.txt is there' "$TRIREME" tokenize corpus.txt \
    -o notes.txt
refused "a folder that is missing is not taken for a file" 'newdir/ is a folder; name a file' "$TRIREME" tokenize corpus.txt \
    -o newdir/
refused "nor by --train-bpe" 'newdir/ is a folder; name a file' "$TRIREME" tokenize corpus.txt --train-bpe 300 -o newdir/
is "and it is not made" no "$([ -e newdir ] || echo no)"
# A device of our own: the machine's would be gone if root's tokenize replaced it.
if mknod device c 1 3 2>/dev/null; then
    refused "a device is not replaced" 'is a device' "$TRIREME" tokenize corpus.txt -o device
    [ -c device ] && ok "a device that is not replaced is as it was" || not_ok "a device that is not replaced is as it was" "$(ls -l device)"
else
    skip "a device is not replaced" "devices cannot be made here"
fi
cmp -s text corpus.txt && ok "the inputs are as they were" ||
    not_ok "the inputs are as they were" "$(ls -l corpus.txt)"
refused "a token file and a text" 'joined with token files alone, which text is not' "$TRIREME" tokenize train.h5 text -o x.h5
refused "no folder elsewhere is made" 'no folder .*/absent' "$TRIREME" tokenize corpus.txt \
    -o "$work/absent/x.h5"
[ ! -e absent ] && [ ! -e x.h5 ] && ok "none of these left a file" ||
    not_ok "none of these left a file" "$(ls -d absent x.h5 2>&1)"

mkdir -p tree/.git tree/sub
echo "one" >tree/a.txt
echo "two" >tree/sub/b
echo "hidden" >tree/.hidden
echo "ref" >tree/.git/HEAD
printf 'PK\000\001' >tree/sub/c.bin
cp train.h5 tree/d.h5
ln -s nowhere tree/link
"$TRIREME" tokenize tree -o tree/d.h5 >out 2>err
is "a folder: text alone, and one line of the rest" "0 1 1 2" "$? $(wc -l <err | tr -d ' ') \
$(grep -c 'skipped 2 that are not text (tree/d\.h5, \.\.\.), 2 hidden (tree/\.git, \.\.\.), 1 link to a file that is not there (tree/link)' err) \
$(sed -n 's/.* tokens in \([0-9]*\) documents.*/\1/p' out)"
refused "a link to nothing" 'tree/link: it is a link to a file that is not there$' "$TRIREME" tokenize tree/link -o x.h5
: >empty.h5
refused "an empty file is no token file" 'empty\.h5 is empty, and so no token file$' \
    "$TRIREME" train model.preset=llama-tiny data.train=empty.h5 run.dir=none
mkdir -p hub/data
printf -- '---\nlicense: mit\n---\n# Questions\n' >hub/README.md
refused "a folder of a dataset without its data" 'there is no file in hub, but for hidden ones and a dataset.s README.md, which are left out$' \
    "$TRIREME" tokenize hub -o x.h5
echo '{"text": "one"}' >hub/data/train.jsonl
echo "read me" >hub/data/README.md
"$TRIREME" tokenize hub -o x.h5 >out 2>err
is "the page that describes a dataset is no document, another README.md is" "0 1 2" \
    "$? $(grep -c 'skipped 1 that describes a dataset (hub/README\.md)$' err) \
$(sed -n 's/.* tokens in \([0-9]*\) documents.*/\1/p' out)"
rm hub/data/README.md
"$TRIREME" tokenize hub --format jsonl -o x.h5 >out 2>err
is "nor is it read as another format" "0 1" "$? $(sed -n 's/.* tokens in \([0-9]*\) document.*/\1/p' out)"
"$TRIREME" tokenize hub/README.md -o x.h5 >out 2>err
is "a page that is named is" "0 0" "$? $(wc -l <err | tr -d ' ')"
refused "nothing but bytes" 'no input is text.*c\.bin' "$TRIREME" tokenize tree/sub/c.bin -o x.h5
mkdir empty
refused "a folder without a file" 'no input: there is no file in empty$' "$TRIREME" tokenize empty -o x.h5
"$TRIREME" tokenize - -o bytes.h5 <tree/sub/c.bin >out 2>err
is "standard input takes any bytes" "0 5" "$? $(sed -n 's/.*: \([0-9]*\) tokens.*/\1/p' out)"
mkdir json
echo '{"text": "x"}' >json/some.json
"$TRIREME" tokenize json -o json.h5 >out 2>err
is "JSON in a folder is warned of" "0 1 15" "$? $(grep -c 'warning: json/some\.json: JSON.*jsonl' err) \
$(sed -n 's/.*: \([0-9]*\) tokens.*/\1/p' out)"

# Two at once to one output: the file of one of them, whole.
head -c 30000000 /dev/zero | tr '\000' a >big-a
head -c 30000000 /dev/zero | tr '\000' b >big-b
"$TRIREME" tokenize big-a -o two.h5 >out-a 2>&1 &
first=$!
"$TRIREME" tokenize big-b -o two.h5 >out-b 2>&1
second=$?
wait $first
is "two at once both end well" "0 0" "$? $second"
"$TRIREME" tokenize --verify two.h5 >out 2>err
is "with one whole file" "0 0" "$? $(ls | grep -c partial)"
tokens=$(h5dump -d tokens -s 1000 -c 1 two.h5 | sed -n 's/.*(1000): *//p')
is "of one of them" 30000001 \
    "$(sed -n "s/^two\.h5: whole; \([0-9]*\) tokens in 1 .*/\1/p" out)"
case $tokens in
97 | 98) ok "the one whole file has the letters of one of them" ;;
*) not_ok "the one whole file has the letters of one of them" "token 1000 is '$tokens'" ;;
esac

# Outputs that are links: what they lead to is written.
mkdir elsewhere
ln -s elsewhere/t.h5 t.h5 && ln -s elsewhere/v.h5 v.h5 && ln -s elsewhere/bpe.json bpe.json
for file in 1 2; do
    "$TRIREME" tokenize corpus.txt -o t.h5 --valid v.h5 --valid-fraction 0.5 >out 2>err &&
        "$TRIREME" tokenize corpus.txt --train-bpe 300 -o bpe.json >out 2>err
    is "outputs that are links, written $file times" "0 elsewhere/bpe.json elsewhere/t.h5 elsewhere/v.h5 0" \
        "$? $(readlink bpe.json t.h5 v.h5 | xargs) $("$TRIREME" tokenize --verify elsewhere/t.h5 elsewhere/v.h5 >out; echo $?)"
done
ln -s twin.h5 twin.h5
refused "a link to itself" 'twin.h5: these links lead round' "$TRIREME" tokenize corpus.txt -o twin.h5
ln -s t.h5 same.h5
refused "two links to one file" 'name the same file' "$TRIREME" tokenize corpus.txt -o t.h5 --valid same.h5 --valid-fraction 0.5

# A planted link with the name of a temporary file is not followed.  The shell that plants it becomes
# the program, so that its number is known.
mkdir plant
boot=$(cut -c1-13 /proc/sys/kernel/random/boot_id)
for suffix in .head .documents .mask ""; do
    echo precious >victim
    SUFFIX=$suffix BOOT=$boot sh -c \
        'ln -s ../victim "plant/x.h5.partial-$BOOT-$$-0$SUFFIX" && exec "$0" "$@"' \
        "$TRIREME" tokenize corpus.txt -o plant/x.h5 >out 2>err
    is "a link planted at a file's name$suffix is not followed" "0 precious" "$? $(cat victim)"
done
"$TRIREME" tokenize --verify plant/x.h5 >out 2>err
is "a file written beside a planted link is whole" 0 $?

# What a killed tokenize left is removed by the next to the same path, and nothing else: not what a
# process that lives writes, nor what another node or an earlier boot may have left.
mkdir left
mkfifo feed
"$TRIREME" tokenize - -o left/x.h5 <feed >live.out 2>live.err &
job=$!
exec 3>feed
has_partial() { ls left/x.h5.partial-* >/dev/null; }
wait_for 30 has_partial
partial=$(ls left/x.h5.partial-*)
"$TRIREME" tokenize corpus.txt -o left/x.h5 >out 2>err
is "beside a tokenize that lives" "0 0 $partial" "$? $(wc -l <err | tr -d ' ') $(ls left/x.h5.partial-*)"
kill -KILL $job
wait $job 2>/dev/null
exec 3>&-
kept="left/x.h5.partial-$boot-1-x left/x.h5.partial-00000000-0000-$job-0 left/x.h5.partial-$job-0"
touch "$partial.head" $kept "left/y.h5.partial-$boot-$job-0"
"$TRIREME" tokenize corpus.txt -o left/x.h5 >out 2>err
is "what a killed tokenize left is removed, and said" "0 1 2" \
    "$? $(grep -c 'removed 2 unfinished files of a tokenize to left/x\.h5 that was killed' err) $(wc -l <err)"
is "unfinished files that may be another's stay, and are said" "1 $(echo $kept | tr ' ' '\n' | sort | xargs)" \
    "$(grep -c 'warning: beside left/x\.h5 there are 3 unfinished files of other nodes' err) $(
        ls left/x.h5.partial-* | sort | xargs)"
is "nor what is of another path" 1 "$(ls left/y.h5.partial-* | wc -l)"

# Tokens are numbers, and another tokenizer's are as good as any to everything but the model.
head -c 40000 text >corpus.txt
{
    "$TRIREME" tokenize corpus.txt --train-bpe 300 -o bpe/tokenizer.json &&
        "$TRIREME" tokenize corpus.txt --tokenizer bpe -o bpe.h5
} >out 2>err || cat err
W="$M model.vocab=300 train.steps=1 train.schedule=constant"
refused "data.valid of another tokenizer than data.train" \
    'data.train \(bpe.h5\) was made with tokenizer "byte-bpe-.*" and data.valid \(valid.h5\) with "bytes"' \
    "$TRIREME" train $W data.train=bpe.h5 data.valid=valid.h5 run.dir=both
other='warning: data\.[a-z]* was made with tokenizer "bytes", and the tokenizer of .* is "byte-bpe-'
# other NAME COUNT COMMAND...: it succeeds, and warns COUNT times
other() {
    name=$1 count=$2
    shift 2
    $T "$@" >out 2>err
    is "$name" "0 $count" "$? $(grep -c "$other" err)"
}
other "its own tokenizer" 0 train $W data.train=bpe.h5 run.dir=numbered
refused "a run does not go on with tokens of another" \
    'data.train was made with tokenizer "bytes", and this run was trained with "byte-bpe-.*another run, run.dir=NEW, .*resume=.*step-00000001' \
    "$TRIREME" train $W data.train=train.h5 run.dir=numbered train.steps=2
refused "nor from a checkpoint of its own" 'this run was trained with "byte-bpe-' \
    "$TRIREME" train $W data.train=train.h5 run.dir=numbered train.steps=2 checkpoint.resume=1
is "and is as it was" "1 1" "$(wc -l <numbered/metrics.jsonl) $(ls numbered/checkpoints | wc -l)"
other "another run begins from its checkpoint" 1 train $W data.train=train.h5 run.dir=other-tokens \
    checkpoint.resume=numbered/checkpoints/step-00000001 train.steps=2
other "and goes on" 0 train $W data.train=train.h5 run.dir=other-tokens train.steps=3
other "evaluate with tokens of another" 1 evaluate numbered/checkpoints/step-00000001 data.valid=valid.h5
other "and with its own" 0 evaluate numbered/checkpoints/step-00000001 data.valid=bpe.h5
other "a run's weights, and tokens of another" 1 train $M data.train=train.h5 train.steps=1 \
    model.path=numbered/checkpoints/step-00000001 model.preset= run.dir=from-run
$T convert numbered/checkpoints/step-00000001 folder >out 2>err
is "a model converted without its tokenizer, which is elsewhere" "0 1" \
    "$? $(grep -c 'warning: folder has no tokenizer: the run.s data was made with "byte-bpe-' err)"
cp bpe/tokenizer.json folder/
other "a folder's weights, and tokens of another" 1 train $M data.train=train.h5 train.steps=1 model.path=folder \
    model.preset= run.dir=from-folder
other "and of its own" 0 train $M data.train=bpe.h5 train.steps=1 model.path=folder model.preset= run.dir=own

# A file that is written to in place while a run reads it: its blocks are whole, and those of other data.
cp text began.txt && tr 'a-m' 'n-z' <text >other.txt
for file in began other; do "$TRIREME" tokenize $file.txt -o $file.h5 >out 2>err || cat err; done
is "two files of one size" "$(wc -c <began.h5)" "$(wc -c <other.h5)"
cp began.h5 used.h5
saves() { [ "$(grep -c ' saved ' used.err)" -ge "$1" ]; }
"$TRIREME" train $M data.train=used.h5 train.steps=1000000 checkpoint.every=20 checkpoint.keep=2 run.dir=used >out 2>used.err &
trainer=$!
wait_for 60 saves 2
is "nothing is said of a file that stays" 0 "$(grep -c 'was changed' used.err)"
kill -STOP $trainer # it would find blocks of the one and checksums of the other
dd if=other.h5 of=used.h5 conv=notrunc 2>/dev/null
kill -CONT $trainer
wait_for 60 saves $(($(grep -c ' saved ' used.err) + 4))
kill -TERM $trainer
wait $trainer
code=$?
if grep -q 'used\.h5 is damaged' used.err; then # it was stopped between a block and its checksum
    ok "one that is overwritten ends the run"
else
    is "one that is overwritten is named once, and the run goes on" "75 1 1" "$code $(grep -c 'was changed' used.err) \
$(grep -c 'warning: data.train: used.h5 was changed at 2.*, while it was in use: .*; to train on what it was, ' used.err)"
fi
finish
