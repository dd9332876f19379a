#!/bin/sh
# generate_texts.sh - many texts, conversations, ends of texts, models in folders, weights that are
# fetched, and what training writes beside its evaluations.
. "$(dirname "$0")/helpers.inc"

# A model that knows a few answers by heart.
mkdir tok
cp "$top/tests/golden/tokenizers/qwen2.json" tok/tokenizer.json
echo '{"chat_template": "{% for m in messages %}{{'"'<|im_start|>'"' + m.role + '"'\\\\n'"' + m.content + '"'<|im_end|>\\\\n'"'}}{% endfor %}{% if add_generation_prompt %}{{ '"'<|im_start|>assistant\\\\n'"' }}{% endif %}", "eos_token": "<|im_end|>"}' >tok/tokenizer_config.json
for pair in "ping pong" "tick tock" "salt pepper" "left right"; do
    echo '{"messages": [{"role": "user", "content": "'"${pair% *}"'"}, {"role": "assistant", "content": "'"${pair#* }"'"}]}'
done >chats.jsonl
"$TRIREME" tokenize chats.jsonl --tokenizer tok --chat-template chatml -o tok/chats.h5 >out 2>err || cat err
if ! "$TRIREME" train model.preset=llama-tiny model.vocab=390 device=cpu data.train=tok/chats.h5 \
    data.valid=tok/chats.h5 data.seq_len=48 data.packing=documents train.steps=150 train.lr=3e-3 \
    train.global_batch=1 train.eval_every=100 generate.samples=3 generate.temperature=0 \
    generate.tokens=12 model.init_std=0.1 run.dir=run >out 2>err </dev/null; then
    not_ok "train" "$(tail -n 2 err)"
    finish
fi
is "conversations that are kept apart need no word" 0 "$(grep -c 'lays them end to end' err)"
"$TRIREME" train model.preset=llama-tiny model.vocab=390 device=cpu data.train=tok/chats.h5 data.seq_len=16 \
    train.steps=1 run.dir=stream >out 2>err
is "those that are cut do" "0 1" "$? $(grep -c 'data.train has conversations, and data.packing=stream lays them end' err)"
G="$TRIREME generate"

# ---- beside evaluations ----
is "samples at each evaluation, in their order" "100 0 100 1 100 2 150 0 150 1 150 2" \
    "$(sed 's/.*"step": \([0-9]*\), "sample": \([0-9]*\).*/\1 \2/' run/samples.jsonl | tr '\n' ' ' | sed 's/ $//')"
is "in the end the model writes what was to come" "3" "$(tail -n 3 run/samples.jsonl | awk -F'"' '
    { written = reference = ""; for (i = 1; i < NF; i++) { if ($i == "written") written = $(i + 2)
      if ($i == "reference") reference = $(i + 2) }
      n += written != "" && index(reference, written) == 1 } END { print n }')"
is "the first of them in the log" 2 "$(grep -c 'writes {"given": ' run/log.txt)"
"$TRIREME" train run checkpoint.resume=auto train.steps=160 >out 2>err </dev/null
is "a run that goes on adds to the file" "9" "$(wc -l <run/samples.jsonl | tr -d ' ')"
"$TRIREME" train run checkpoint.resume=150 train.steps=152 >out 2>err </dev/null
is "going back to a step keeps the lines behind it with the branch that ends" "9 100 150 152" \
    "$(wc -l <run/branches/0/samples.jsonl | tr -d ' ') $(sed 's/.*"step": \([0-9]*\).*/\1/' run/samples.jsonl | uniq | tr '\n' ' ' | sed 's/ $//')"
refused "samples without data.valid" 'generate.samples continues texts of data.valid' \
    "$TRIREME" train model.preset=llama-tiny data.train=tok/chats.h5 generate.samples=1
refused "samples with sequences that are divided" 'parallel.context 2 set generate.samples=0' \
    "$TRIREME" train model.preset=llama-tiny data.train=tok/chats.h5 data.valid=tok/chats.h5 \
    generate.samples=1 parallel.context=2

# ---- conversations ----
is "an answer" "pong" "$($G run --chat --prompt ping --temperature 0 2>err)"
is "a conversation of lines, each answered with those before it" "pong" \
    "$(printf 'ping\nsalt\n' | $G run --chat --temperature 0 --tokens 10 2>err | head -n 1)"
is "two answers" 2 "$(printf 'ping\nsalt\n' | $G run --chat --temperature 0 --tokens 10 2>err | wc -l | tr -d ' ')"
printf 'ping\ntick\n' | $G run --chat --temperature 0.7 --seed 3 --tokens 10 >talk 2>err
printf '\nping\n \t\r\n\ntick\n  ' | $G run --chat --temperature 0.7 --seed 3 --tokens 10 >blanks 2>err
is "blank lines are passed over" "0 $(cat talk)" "$? $(cat blanks)"
is "nothing but a blank line" "0 0" "$(echo | $G run --chat >out 2>err; echo $?) $(wc -c <out | tr -d ' ')"
if command -v script >/dev/null; then
    { echo; echo ' '; echo ping; } | script -qec "$G run --chat --temperature 0" /dev/null >out 2>&1
    is "a terminal asks again after a blank line" "0 1" "$? $(grep -c '^> > > pong' out)"
else
    skip "a terminal asks again after a blank line" "script is not installed"
fi
is "on two ranks the same" "pong" "$(ranks 2 "$TRIREME" generate run --chat --prompt ping --temperature 0 device=cpu 2>err)"
is "the template by its name" "tock" \
    "$($G run --chat --chat-template chatml --prompt tick --temperature 0 2>err)"

# ---- the template is that of the run's data, also where the tokenizer's folder has another one ----
cp -r tok other && mkdir moved
"$TRIREME" tokenize --verify tok/chats.h5 >out 2>err
is "the token file names the template" 1 "$(grep -c ', chat template chatml, loss mask' out)"
is "so does the checkpoint" 1 "$(grep -c '"chat_template": "chatml"' run/checkpoints/step-00000152/meta.json)"
is "generate takes it, and says so" "pong 1" "$($G run --chat --prompt ping --temperature 0 2>err) $(
    grep -c "conversations by chat template chatml, as the run's data has it" err)"
"$TRIREME" convert run same >out 2>err
is "an exported folder with the same one: no word" "0 0" "$? $(grep -c 'chat template' err)"
mv tok/tokenizer_config.json moved
cp "$top/tests/golden/chat_templates/qwen2.5/Qwen2.5-7B-Instruct.jinja" tok/chat_template.jinja
is "generate takes it where the folder has another one" "pong 1" "$($G run --chat --prompt ping --temperature 0 2>err) $(
    grep -c "conversations by chat template chatml, as the run's data has it" err)"
$G run --chat --chat-template qwen2.5 --prompt ping --temperature 0 --tokens 2 >out 2>err
is "another one by name: a warning" "0 1" \
    "$? $(grep -c 'warning: .*trained on conversations by chat template chatml, and --chat-template is qwen2\.5' err)"
"$TRIREME" convert run exported >out 2>err
is "an exported folder with another one: a warning on one line" "0 1" "$? $(grep -c \
    'warning: exported: the run.s data has conversations by chat template chatml, and exported has qwen2\.5; .*give them the program of chatml' err)"
$G exported --chat --prompt ping --temperature 0 --tokens 2 device=cpu >out 2>err
is "of a folder it is the folder's" "0 1" \
    "$? $(grep -c "conversations by chat template qwen2\.5, as the tokenizer's folder has it" err)"
"$TRIREME" train model.path=exported lora.r=2 device=cpu data.train=tok/chats.h5 data.seq_len=48 train.steps=1 \
    train.global_batch=1 run.dir=adapted >out 2>err </dev/null && "$TRIREME" convert adapted adapter >out 2>err
is "an adapter whose model has another one, too" "0 1" \
    "$? $(grep -c 'warning: adapter: .*by chat template chatml, and exported has qwen2\.5' err)"
rm tok/chat_template.jinja
"$TRIREME" convert run bare >out 2>err
is "and with none" "0 1" "$? $(grep -c 'warning: bare: .*by chat template chatml, and bare has none, or another one' err)"
echo '{{ messages }}' >tok/chat_template.jinja
is "one that is not known does not matter" "pong" "$($G run --chat --prompt ping --temperature 0 2>err)"
rm tok/chat_template.jinja && mv moved/tokenizer_config.json tok
"$TRIREME" tokenize chats.jsonl --tokenizer tok --chat-template qwen2.5 -o tok/qwen.h5 >out 2>err
"$TRIREME" train model.preset=llama-tiny model.vocab=390 device=cpu data.train=tok/chats.h5,tok/qwen.h5 data.seq_len=48 \
    train.steps=1 train.global_batch=1 run.dir=mixed >out 2>err </dev/null
is "files by two templates: a warning" "0 1" "$? $(grep -c \
    'warning: data\.train: the conversations of tok/chats\.h5 are by chat template chatml, and those of tok/qwen\.h5 by qwen2\.5' err)"
"$TRIREME" train model.preset=llama-tiny model.vocab=390 device=cpu data.train=tok/chats.h5 data.valid=tok/qwen.h5 \
    data.seq_len=48 train.steps=1 train.global_batch=1 run.dir=mixed2 >out 2>err </dev/null
is "evaluation by another one, too" "0 1" "$? $(grep -c 'warning: data\.valid: the conversations of tok/qwen\.h5' err)"
"$TRIREME" tokenize tok/chats.h5 tok/chats.h5 -o joined.h5 >out 2>err
"$TRIREME" tokenize --verify joined.h5 >>out 2>>err
is "joined files keep it" "1 0" "$(grep -c ', chat template chatml,' out) $(grep -c warning err)"
"$TRIREME" tokenize tok/chats.h5 tok/qwen.h5 -o joined.h5 >out 2>err
"$TRIREME" tokenize --verify joined.h5 >>out 2>>err
is "files of two, joined, name none, with a warning" "0 1" "$(grep -c ', chat template' out) $(
    grep -c 'warning: tok/chats\.h5 has conversations by chat template chatml, and tok/qwen\.h5 by qwen2\.5' err)"
echo '{"text": "plain"}' >plain.jsonl
"$TRIREME" tokenize plain.jsonl --tokenizer tok -o plain.h5 >out 2>err
"$TRIREME" tokenize --verify plain.h5 >out 2>err
is "texts have none, whatever the folder has" "1 0" "$(grep -c 'plain\.h5: whole' out) $(grep -c 'chat template' out)"
mv other padded
echo '{"eos_token_id": [99999, 386]}' >padded/generation_config.json
is "an end of texts that is no token: a warning" "pong 1" "$($G run --tokenizer padded --chat --prompt ping --temperature 0 2>err) $(
    grep -c 'warning: generation_config.json beside padded/tokenizer.json has 99999 as eos_token_id' err)"
refused "a template that is none" 'chat-template nosuch: there are .*chatml' \
    $G run --chat --chat-template nosuch --prompt x
refused "a template without a conversation" 'chat-template is of conversations: --chat' \
    $G run --chat-template chatml --prompt x

# ---- many texts ----
sed 's/, {"role": "assistant".*/]}/' chats.jsonl >questions.jsonl
$G run --prompts questions.jsonl --chat --temperature 0 --batch 3 >answers.jsonl 2>err
is "a line for each, in their order" "pong tock pepper right" \
    "$(sed 's/.*"completion": "\([^"]*\)".*/\1/' answers.jsonl | tr '\n' ' ' | sed 's/ $//')"
is "each with its line and its messages" "4 1" "$(grep -c '^{"line": [1-4], "messages": \[{"role": "user", "content": "[a-z]*"}\], "completion"' answers.jsonl) \
$(grep -c '^{"line": 3, .*"content": "salt"' answers.jsonl)"
is "which end by themselves" 4 "$(grep -c '"end": "stop"' answers.jsonl)"
for batch in 1 2 4; do
    $G run --prompts questions.jsonl --chat --temperature 0.7 --seed 5 --batch $batch >batch.$batch 2>err
done
is "drawn alike, however many at a time" "same same" \
    "$(cmp -s batch.1 batch.2 && echo same) $(cmp -s batch.1 batch.4 && echo same)"
printf 'ping\n\n  \ntick tock\n' >lines.txt
$G run --prompts lines.txt --tokens 3 >out 2>err
is "a prompt a line, blank ones left out" '"ping" "tick tock"' \
    "$(sed 's/.*"prompt": \("[^"]*"\).*/\1/' out | tr '\n' ' ' | sed 's/ $//')"
is "lines of prompts are counted" "1 4" "$(sed 's/^{"line": \([0-9]*\), .*/\1/' out | xargs)"
for name in questions.jsonl lines.txt; do
    { printf '\357\273\277'; cat $name; } >mark-$name
    for file in $name mark-$name; do
        $G run --prompts $file --chat --temperature 0 --tokens 3 >$file.out 2>err || cat err
    done
    is "a byte order mark is no prompt: $name" "1 same" "$(head -n 1 mark-$name.out | grep -c ping) $(
        cmp -s $name.out mark-$name.out && echo same)"
done
is "in standard input neither" "$(printf ping | $G run --temperature 0 --tokens 3 2>err)" \
    "$(printf '\357\273\277ping' | $G run --temperature 0 --tokens 3 2>err)"
echo '{"text": 3}' >bad.jsonl
refused "a line that is no prompt" 'bad\.jsonl:1' $G run --prompts bad.jsonl
echo '{"question": "a"}' >bad.jsonl
refused "a line without a prompt" 'bad\.jsonl:1: .* it has question: give prompt, text or messages$' \
    $G run --prompts bad.jsonl
refused "conversations without a template" 'questions\.jsonl:1.*--chat' $G run --prompts questions.jsonl
refused "no file" 'nosuch\.jsonl: No such file' $G run --prompts nosuch.jsonl
refused "a file without a prompt" 'has no prompt' $G run --prompts /dev/null
refused "two sources" 'both say what is to be continued' $G run --prompts lines.txt --prompt x

printf 'ping\ntick\n' >said.txt
is "what users say, a line each, is the prompt" 1 "$($G run --prompts said.txt --chat --tokens 2 2>err |
    grep -c '^{"line": 2, "prompt": "tick", "completion"')"
is "what users say, a line each" "pong tock" "$($G run --prompts said.txt --chat --temperature 0 2>err |
    sed 's/.*"completion": "\([^"]*\)".*/\1/' | tr '\n' ' ' | sed 's/ $//')"
echo '{"instruction": "a", "input": "b", "output": "c"}' >task.jsonl
refused "an instruction" 'task\.jsonl:1: instruction, input and output are for training' \
    $G run --prompts task.jsonl --chat
printf '{"prompt": "a\\u0000\\u00e9"}\n' >odd.jsonl
is "a prompt with U+0000 comes back whole" '"prompt": "a\u0000é"' \
    "$($G run --prompts odd.jsonl --tokens 2 2>err | cut -d, -f2 | sed 's/^ //')"
$G run --prompt "$(cat chats.jsonl)" --tokens 2 >out 2>err
is "a prompt longer than the context is named" 1 "$(grep -c 'longest prompt has .* tokens, the context 48' err)"
printf '%s\nping\n' "$(cat chats.jsonl | tr '\n' ' ')" >long.txt
$G run --chat --tokens 2 <long.txt >out 2>err
is "a conversation longer than the context, once" 1 \
    "$(grep -c 'longest prompt has .* tokens, the context 48: its first [0-9]* are not read' err)"
$G run --prompt x --tokens 5 >/dev/full 2>err
is "nowhere to write" "1 1" "$? $(grep -c 'standard output: No space left' err)"
# shellcheck disable=SC2016
mpirun --oversubscribe -n 2 sh -c '"$@" >/dev/full; echo $? >code.$OMPI_COMM_WORLD_RANK' sh \
    $G run --prompt x --tokens 5 2>err
is "nowhere to write, on both ranks" "1 1 1" "$(cat code.0) $(cat code.1) $(grep -c 'standard output: No space left' err)"
printf 'ping\nping\n' | $G run --chat --tokens 5 >/dev/full 2>err
is "nor in a conversation" "1 1 1" "$? $(grep -c 'error: standard output: No space left' err) $(grep -c error: err)"

# ---- ends ----
all=$($G run --prompt "<a" --temperature 0 --tokens 20 --min-tokens 20 2>err)
cut=$(echo "$all" | cut -c9-11)
is "--stop ends a text before it" \
    "$(echo "$all" | awk -v s="$cut" '{ print substr($0, 1, 2 + index(substr($0, 3), s) - 1) }')" \
    "$($G run --prompt "<a" --temperature 0 --tokens 20 --min-tokens 20 --stop "$cut" 2>err)"
is "the first of several" \
    "$($G run --prompt "<a" --temperature 0 --tokens 20 --min-tokens 20 --stop "$cut" 2>err)" \
    "$($G run --prompt "<a" --temperature 0 --tokens 20 --min-tokens 20 --stop nosuchtext --stop="$cut" 2>err)"
refused "--stop without a text" 'an empty text ends every text' $G run --prompt x --stop=
short=$($G run --chat --prompt ping --temperature 0 2>err | wc -c)
long=$($G run --chat --prompt ping --temperature 0 --min-tokens 12 2>err | wc -c)
is "--min-tokens goes on where a text would end" yes "$([ "$long" -gt "$short" ] && echo yes)"
is "--top-p 0 takes the likeliest" "pong" "$($G run --chat --prompt ping --temperature 2 --top-p 0 2>err)"
refused "fewer tokens than the fewest" 'min-tokens \(9\) is above --tokens \(3\)' \
    $G run --prompt x --min-tokens 9 --tokens 3
refused "--top-p above 1" 'top-p 1.5: a number from 0 to 1' $G run --prompt x --top-p 1.5

# ---- folders, and weights that are fetched ----
"$TRIREME" convert run model >out 2>err
cp tok/* model
is "a folder of Hugging Face's" "pong" "$($G model --chat --prompt ping --temperature 0 device=cpu 2>err)"
rm model/tokenizer.json
refused "a folder without a tokenizer" 'tokenizer\.json.*name the model.s tokenizer: --tokenizer FILE' $G model --prompt x
cp tok/tokenizer.json model
echo '{"eos_token_id": 386' >model/generation_config.json
refused "a folder whose tokenizer is there, and a file beside it wrong" \
    'model/generation_config\.json:[0-9]*:[0-9]*: [^;]* near end of file$' $G model --prompt x
rm model/generation_config.json
for to in host disk; do
    is "parameters on the $to: the same answer" "pepper" \
        "$($G run --chat --prompt salt --temperature 0 offload.params=$to device=cpu 2>err)"
done
is "which leaves nothing in the run, nor here" "0 0" "$(ls -d run/offload runs 2>/dev/null | wc -l) $(ls -d rank-* 2>/dev/null | wc -l)"
# ---- on several ranks ----
ranks() { timeout -k 5 200 mpirun --oversubscribe --bind-to none -n "$@" </dev/null; }
refused "a layout, which generate makes itself" 'parallel.context=2 has no effect: generate divides' \
    $G run parallel.context=2 --prompt x --tokens 1
ranks 2 "$TRIREME" generate run device=cpu --prompt "$(head -c 300 chats.jsonl)" --tokens 1 >out 2>err
is "a prompt that is too long: one warning of all ranks" "0 1" "$? $(grep -c 'the longest prompt has' err)"
ranks 2 "$TRIREME" generate run device=cpu --chat --prompt "$(head -c 300 chats.jsonl)" --tokens 1 >out 2>err
is "a conversation that is too long: one warning of all ranks" "0 1" "$? $(grep -c 'the longest prompt has' err)"
S="device=cpu data.train=tok/chats.h5 data.valid=tok/chats.h5 data.seq_len=48 data.packing=documents
   model.preset=llama-tiny model.vocab=390 train.steps=4 generate.samples=2 generate.temperature=0 generate.tokens=3
   run.threads=1 model.init_std=0.1"
"$TRIREME" train $S run.dir=whole >out 2>err
for chunks in off 2; do
    ranks 2 "$TRIREME" train $S parallel.tensor=2 parallel.tensor_overlap=$chunks run.dir=chunks-$chunks >out 2>err
    is "samples of tensor ranks, parallel.tensor_overlap=$chunks" "0 2" "$? $(cat chunks-$chunks/samples.jsonl 2>/dev/null | wc -l | tr -d ' ')"
done
is "are those of one rank" "$(cat whole/samples.jsonl)" "$(cat chunks-2/samples.jsonl)"
ranks 2 "$TRIREME" train $S generate.samples=0 parallel.tensor=2 recompute=gathered run.dir=gathered >out 2>err
is "a run that computes gathered rows again" 0 $?
"$TRIREME" evaluate gathered >out 2>err
is "a run that computes gathered rows again is evaluated by one rank" 0 $?
ranks 2 "$TRIREME" evaluate whole parallel.context=2 >out 2>err
is "parts of sequences, too, of a run with samples" 0 $?

refused "an adapter's folder, which is no model" 'nosuch' $G nosuch/model --prompt x
finish
