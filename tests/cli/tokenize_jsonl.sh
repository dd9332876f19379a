#!/bin/sh
# tokenize_jsonl.sh - token files of JSON lines: what becomes of records, masks, threads, bad lines.
. "$(dirname "$0")/helpers.inc"

dataset() { h5dump -y -w 0 -d "$2" "$1" | sed -n 's/^ *\([0-9, ]*\)$/\1/p' | tr -d ' \n'; }

# Few records, token by token.
cat >few.jsonl <<'END'
{"text": "ab"}

{"prompt": "q", "completion": "ab"}
{"text": ""}
{"id": 7, "text": "\u0000"}
END
"$TRIREME" tokenize few.jsonl -o few.h5 >out 2>err
is "few records" "0 1 1 1" "$? $(grep -c '^few.h5: 9 tokens in 3 documents, 8 of them targets; ' out) \
$(grep -c 'records: 2 by text, 1 by prompt and completion$' err) $(grep -c 'left out: 1 empty$' err)"
is "their tokens" "97,98,256,113,97,98,256,0,256" "$(dataset few.h5 tokens)"
is "their mask: all but the prompt" "1,1,1,0,1,1,1,1,1" "$(dataset few.h5 loss_mask)"
is "their documents" "0,3,7,9" "$(dataset few.h5 documents)"
"$TRIREME" tokenize few.jsonl --loss all -o all.h5 >out 2>err
is "--loss all: the same tokens and no mask" "0 0 97,98,256,113,97,98,256,0,256" \
    "$? $(h5dump -n all.h5 | grep -c loss_mask) $(dataset all.h5 tokens)"
"$TRIREME" tokenize - --format jsonl -o stdin.h5 <few.jsonl >out 2>err
is "from standard input" "0 97,98,256,113,97,98,256,0,256" "$? $(dataset stdin.h5 tokens)"
"$TRIREME" tokenize - -o stdin.h5 <few.jsonl >out 2>err
is "as a text from standard input: a warning" "0 1 1" "$? $(wc -l <err | tr -d ' ') \
$(grep -c 'warning: standard input begins with a line of JSON.*--format jsonl' err)"
cp few.jsonl few.txt
"$TRIREME" tokenize few.txt -o text.h5 >out 2>err
is "as a file of text, too" "0 1" "$? $(grep -c 'warning: few\.txt begins with a line of JSON' err)"
"$TRIREME" tokenize few.txt --format text -o text.h5 >out 2>err
is "unless a text was asked for" "0 0" "$? $(grep -c warning err)"
printf '{"not": json}\n{ int a; }\n' >code.txt
"$TRIREME" tokenize code.txt -o text.h5 >out 2>err
is "a bracket makes no JSON" "0 0" "$? $(grep -c warning err)"
printf '\357\273\277{"body": "x"}\r\n{"body": "y", "text": 3}' >body.jsonl
"$TRIREME" tokenize body.jsonl --field body -o body.h5 >out 2>err
is "another field; byte order mark, other line ends" "0 120,256,121,256" "$? $(dataset body.h5 tokens)"
printf '\357\273\277a\357\273\277' >mark.txt
"$TRIREME" tokenize mark.txt -o mark.h5 >out 2>err
is "a byte order mark is no text, at its start alone" "0 97,239,187,191,256" "$? $(dataset mark.h5 tokens)"
"$TRIREME" tokenize - -o mark.h5 <mark.txt >out 2>err
is "of standard input too" "0 97,239,187,191,256" "$? $(dataset mark.h5 tokens)"
cat mark.txt | "$TRIREME" tokenize - -o mark.h5 >out 2>err
is "of a pipe too" "0 97,239,187,191,256" "$? $(dataset mark.h5 tokens)"
"$TRIREME" tokenize mark.txt -o mark.h5 --valid tail.h5 --valid-fraction 0.5 >out 2>err
is "not at the start of what is split off" "0 97,256 239,187,191,256" "$? $(dataset mark.h5 tokens) $(dataset tail.h5 tokens)"
printf '\357\273\277' >alone.txt
"$TRIREME" tokenize alone.txt mark.txt -o mark.h5 >out 2>err
is "a mark alone is an empty file" "0 97,239,187,191,256 1" "$? $(dataset mark.h5 tokens) $(cat out err | grep -c '1 empty')"
for i in 1 2 3 4; do printf '\357\273\277x\n' >marked$i.txt; done
"$TRIREME" tokenize marked?.txt --train-bpe 262 -o marked.json >out 2>err
is "no pair of it is learned" "0 0" "$? $(tr -d ' \n' <marked.json | sed 's/.*"merges"://' | grep -c '»')"
{ yes text | head -c 9000; printf 'a\0b\0'; } >zeros.txt
"$TRIREME" tokenize few.txt zeros.txt --format text -o zeros.h5 >out 2>err
is "bytes of 0 behind the first ones: a warning" "0 1" "$? $(grep -c 'warning: 2 bytes of 0 are in texts, first in zeros\.txt, which may be no text' err)"
"$TRIREME" tokenize few.txt -o zeros.h5 >out 2>err
is "no byte of 0: none" 0 "$(grep -c 'bytes of 0' err)"
echo '{"q": "?", "a": "!"}' >parts.jsonl
"$TRIREME" tokenize parts.jsonl --prompt-field q --completion-field a -o parts.h5 >out 2>err
is "parts by other names" "0 0,1,1" "$? $(dataset parts.h5 loss_mask)"
cat >alpaca.jsonl <<'END'
{"instruction": "Add.", "input": "1 1", "output": "2"}
{"instruction": "Go.", "input": "", "output": "ok"}
END
"$TRIREME" tokenize alpaca.jsonl -o alpaca.h5 >out 2>err
is "Alpaca's records: their form, and the answers as targets" "0 1 5" "$? $(h5dump -d tokens \
    -y -w 0 alpaca.h5 | sed -n 's/^ *\([0-9, ]*\)$/\1/p' | tr ', ' '\n' | grep -v '^$' | awk '
    $1 < 256 { printf "%c", $1 }' | tr '\n' '/' | grep -cF 'provides further context. Write a response that '\
'appropriately completes the request.//### Instruction:/Add.//### Input:/1 1//### Response:2Below is an '\
'instruction that describes a task. Write a response that appropriately completes the request.//### '\
'Instruction:/Go.//### Response:ok') $(dataset alpaca.h5 loss_mask | tr ',' '\n' | grep -c 1)"
"$TRIREME" tokenize few.jsonl --max-tokens 3 -o short.h5 >out 2>err
is "long documents are cut" "0 1 97,98,256,113,97,98,0,256" \
    "$? $(grep -c 'cut 1 documents to 3 tokens' err) $(dataset short.h5 tokens)"
"$TRIREME" tokenize few.jsonl --max-tokens 3 --drop-long -o short.h5 >out 2>err
is "long documents are left out with --drop-long" "0 1 97,98,256,0,256" \
    "$? $(grep -c 'left out: 1 empty, 1 longer than 3 tokens' err) $(dataset short.h5 tokens)"
"$TRIREME" tokenize few.jsonl --max-tokens 1 -o short.h5 >out 2>err
is "of a prompt alone nothing is learned" "0 1 97,0" \
    "$? $(grep -c '1 with nothing to learn' err) $(dataset short.h5 tokens)"

# Many: blocks, threads, the order, validation.
awk 'BEGIN { for (i = 1; i <= 30000; i++) {
    s = ""; for (k = 0; k < i * 7919 % 11; k++) s = s sprintf("w%d ", i * k)
    if (i % 3) printf "{\"text\": \"%d %s\"}\n", i, s
    else printf "{\"prompt\": \"%d\", \"completion\": \"%s.\"}\n", i, s } }' >many.jsonl
"$TRIREME" tokenize many.jsonl -o many1.h5 --threads 1 >out 2>err
is "many records" "0 1" "$? $(grep -c 'in 30000 documents' out)"
for n in 2 7; do
    "$TRIREME" tokenize many.jsonl -o "many$n.h5" --threads $n >out 2>err
    if h5diff many1.h5 "many$n.h5" >changes 2>&1; then ok "$n threads, the same file"; else
        not_ok "$n threads, the same file" "$(head -c 200 changes)"; fi
done
"$TRIREME" tokenize many.jsonl -o some.h5 --valid held.h5 --valid-fraction 0.01 --threads 3 >out 2>err
is "every 100th document is for validation" "0 1" \
    "$? $(grep -c '^some.h5: .* in 29700 documents.*; held.h5: .* in 300 documents' out)"
is "the first of them is the 100th" "49,48,48,32" "$(dataset held.h5 tokens | cut -d, -f1-4)"
echo one >single.txt
refused "a share of one document" 'valid-fraction 0\.05 of 1 document is none: raise it' \
    "$TRIREME" tokenize single.txt -o x.h5 --valid y.h5 --valid-fraction 0.05
refused "a share that is no document" 'valid-fraction 0\.1 of 3 documents is none' \
    "$TRIREME" tokenize few.jsonl -o some.h5 --valid none.h5 --valid-fraction 0.1

# Bad lines: the first by its place in the file, whichever thread saw it first.
sed -e '20000s/.*/{"text": 5}/' -e '29000s/.*/{"text": "/' -e '25000s/.*/[]/' many.jsonl >bad.jsonl
printf '{"text": "\377"}\n' >>bad.jsonl
for n in 1 4; do
    refused "a bad line is named, $n threads" '^trireme: error: bad\.jsonl:20000: field "text" is a number' \
        "$TRIREME" tokenize bad.jsonl -o bad.h5 --threads $n
done
[ ! -e bad.h5 ] && ok "a bad line leaves no file" || not_ok "a bad line leaves no file" "$(ls bad*)"
"$TRIREME" tokenize bad.jsonl -o bad.h5 --skip-bad --threads 2 >out 2>err
is "--skip-bad counts them" "0 1 1" "$? $(grep -c 'in 29997 documents' out) \
$(grep -c 'warning: left out 4 lines that cannot be used, first bad\.jsonl:20000: field' err)"
tail -n 1 bad.jsonl >utf8.jsonl
refused "broken UTF-8" 'utf8\.jsonl:1: not JSON: column' "$TRIREME" tokenize utf8.jsonl -o x.h5
refused "nothing but bad lines" 'no document is left for x\.h5: 0 empty, 1 bad.*utf8\.jsonl:1' \
    "$TRIREME" tokenize utf8.jsonl --skip-bad -o x.h5
echo '{"title": "t", "body": "b"}' >other.jsonl
refused "no known field" 'other\.jsonl:1: no field "text".*it has title, body' \
    "$TRIREME" tokenize other.jsonl -o x.h5
while IFS='|' read -r prompt answer record; do
    echo "$record" >advice.jsonl
    refused "fields by other names: $prompt" "it has .*: name the two .*--prompt-field $prompt --completion-field $answer" \
        "$TRIREME" tokenize advice.jsonl -o x.h5
    "$TRIREME" tokenize advice.jsonl --prompt-field $prompt --completion-field $answer -o advice.h5 >out 2>err
    is "with those the prompt is no target" "0 1" "$? $(h5dump -H advice.h5 | grep -c loss_mask)"
done <<'END'
prompt|response|{"prompt": "a", "response": "b"}
instruction|response|{"instruction": "a", "response": "b", "category": "c"}
question|answer|{"id": 1, "question": "a", "answer": "b"}
END
while IFS='|' read -r options record; do
    echo "$record" >advice.jsonl
    refused "preferences: $options" "preferences, which trireme does not train by; $options trains the chosen" \
        "$TRIREME" tokenize advice.jsonl -o x.h5
done <<'END'
--prompt-field prompt --completion-field chosen|{"prompt": "a", "chosen": "b", "rejected": "c"}
--field chosen|{"chosen": "b", "rejected": "c"}
--field chosen|{"prompt": "a", "chosen": [], "rejected": []}
END
echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' >chat.jsonl
echo '{"input_ids": [1, 2], "attention_mask": [1, 1], "labels": [-100, 2]}' >ids.jsonl
refused "token ids" 'ids\.jsonl:1: .*token ids with masks of their own.*doc/token-files\.md, "Making one with Python"' \
    "$TRIREME" tokenize ids.jsonl -o x.h5
refused "a conversation without a template" 'chat\.jsonl:1: bytes: .*--chat-template NAME, of llama2' \
    "$TRIREME" tokenize chat.jsonl -o x.h5
refused "an unknown template" 'no chat template "nobody"; there are: llama2' \
    "$TRIREME" tokenize chat.jsonl --chat-template nobody -o x.h5
refused "a template of another model" 'chatml has the tokens <\|im_start\|>, <\|im_end\|>, which tokenizer bytes has not' \
    "$TRIREME" tokenize chat.jsonl --chat-template chatml -o x.h5

# A template of the tokenizer's folder is named where it was used, and where it was not.
mkdir chatml
cp "$top/tests/golden/tokenizers/qwen2.json" chatml/tokenizer.json
echo '{"chat_template": "{% for m in messages %}{{'"'<|im_start|>'"' + m.role + '"'\\\\n'"' + m.content + '"'<|im_end|>\\\\n'"'}}{% endfor %}{% if add_generation_prompt %}{{ '"'<|im_start|>assistant\\\\n'"' }}{% endif %}", "eos_token": "<|im_end|>"}' >chatml/tokenizer_config.json
"$TRIREME" tokenize chat.jsonl --tokenizer chatml -o x.h5 >out 2>err
is "conversations have the template of the folder" "0 1 0" \
    "$? $(grep -c 'conversations by chat template chatml' err) $(grep -c 'plain text' err)"
head -n 3 few.jsonl | tail -n 1 >prompt.jsonl
"$TRIREME" tokenize prompt.jsonl --tokenizer chatml -o x.h5 >out 2>err
is "prompts have not, and the option for it is named" "0 0 1" \
    "$? $(grep -c 'conversations by' err) $(grep -c 'plain text.*--chat-template chatml' err)"
"$TRIREME" tokenize prompt.jsonl --tokenizer chatml --chat-template chatml -o x.h5 >out 2>err
is "with it they are conversations" "0 0" "$? $(grep -c 'plain text' err)"
rm -f x.h5

# What is refused with a way out.
echo ' [{"text": "a"}]' >list.json
refused "a list in JSON" "list\.json is a list in JSON.*jq -c '\.\[\]' list\.json" \
    "$TRIREME" tokenize list.json -o x.h5
: >table.parquet
printf 'PK\003\004\000' >ids.npz
refused "arrays of numpy" 'ids\.npz holds arrays of numpy; .*numpy\.save' "$TRIREME" tokenize ids.npz -o x.h5
printf '{\n  "text": "a"\n}\n' >lines.json
refused "an object over several lines" 'lines\.json:1: a line holds a whole JSON object.*jq -c \. FILE' \
    "$TRIREME" tokenize lines.json -o x.h5
echo '{"text": ["a", "b"]}' >texts.jsonl
refused "a list of texts" 'texts\.jsonl:1: field "text" is a list of texts.*a line of its own' \
    "$TRIREME" tokenize texts.jsonl -o x.h5
printf 'text\na,b\n' >table.csv
cp table.csv table.tsv
refused "a table" 'table\.csv is a table.*read_csv\("table\.csv"\)\.to_json.*--format text$' \
    "$TRIREME" tokenize table.csv -o x.h5
refused "a table with tabs" 'read_csv\("table\.tsv", sep="\\t"\)' "$TRIREME" tokenize table.tsv -o x.h5
is "as text it is taken" 0 "$("$TRIREME" tokenize table.csv --format text -o x.h5 >out 2>err; echo $?)"
mkdir -p tables
mv table.csv tables/
"$TRIREME" tokenize tables -o x.h5 >out 2>err
is "in a folder too, with a warning" "0 1" "$? $(grep -c 'tables/table.csv: a table in a folder' err)"
rm -f x.h5
refused "Parquet" 'table\.parquet is Parquet.*to_json' "$TRIREME" tokenize table.parquet -o x.h5
mkdir -p saved/train
echo '{"splits": ["train"]}' >saved/dataset_dict.json
printf '\377\377\377\377\000\001' >saved/train/data-00000-of-00001.arrow
refused "a folder of Arrow" 'saved/train/data-00000-of-00001\.arrow is Arrow.*datasets\.Dataset\.from_file.*to_json' \
    "$TRIREME" tokenize saved -o x.h5
refused "Arrow" 'arrow is Arrow' "$TRIREME" tokenize saved/train/data-00000-of-00001.arrow -o x.h5
refused "an option without a use" '\-\-field is for JSON lines, and there are none' \
    "$TRIREME" tokenize few.jsonl --format text --field a -o x.h5
refused "two ways to name fields" 'one or the other' "$TRIREME" tokenize few.jsonl --field a \
    --prompt-field b -o x.h5
refused "an unknown format" 'format csv: it must be one of auto, text' "$TRIREME" tokenize few.jsonl \
    --format csv -o x.h5
[ ! -e x.h5 ] && ok "none of these left a file" || not_ok "none of these left a file" "$(ls x.h5)"

# Training counts the targets: each record has 5 tokens of 16 that are one.
awk 'BEGIN { for (i = 0; i < 41; i++)
    printf "{\"prompt\": \"prompt %04d\", \"completion\": \"%04d\"}\n", i, i * 7 }' >pairs.jsonl
"$TRIREME" tokenize pairs.jsonl -o pairs.h5 >out 2>err
is "pairs of prompt and completion" "0 1" "$? $(grep -c '656 tokens in 41 documents, 205 of them targets' out)"
"$TRIREME" tokenize pairs.jsonl --loss all -o whole.h5 >out 2>err
for data in pairs whole; do
    timeout 120 "$TRIREME" train model.preset=llama-tiny device=cpu data.train=$data.h5 data.seq_len=16 \
        train.steps=40 train.global_batch=1 run.dir=run-$data >out 2>err
    is "training on $data.h5" 0 $?
done
is "a step has its record's targets and no other" "5" \
    "$(sed -n 's/.*"tokens": *\([0-9]*\),.*/\1/p' run-pairs/metrics.jsonl | sort -u | xargs)"
timeout 60 "$TRIREME" train run-pairs train.steps=41 >out 2>err
is "which a run that goes on has counted" "0 41 205" \
    "$? $(last_metric run-pairs step) $(last_metric run-pairs tokens_total)"
is "without a mask all of them" "16" \
    "$(sed -n 's/.*"tokens": *\([0-9]*\),.*/\1/p' run-whole/metrics.jsonl | sort -u | xargs)"
timeout 60 "$TRIREME" evaluate run-pairs data.valid=pairs.h5 >pairs.out 2>err
timeout 60 "$TRIREME" evaluate run-pairs data.valid=whole.h5 >whole.out 2>err
if [ -s pairs.out ] && ! cmp -s pairs.out whole.out; then ok "the loss is that of the targets"; else
    not_ok "the loss is that of the targets" "$(cat pairs.out whole.out)"; fi
finish
