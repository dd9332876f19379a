#!/bin/sh
# plan.sh - plans for machines that are not here, in any build, as people read them.
#
# TRIREME_CUDA, where it names a program that was built with CUDA, is compared byte for byte.
. "$(dirname "$0")/../cli/helpers.inc"
M="model.preset=llama-tiny train.global_batch=8"
job=$top/jobs/llama8b_fsdp.yaml

# narrow NAME: no line of out is wider than 100 columns.
narrow() {
    is "$1: at most 100 columns" 0 "$(awk 'length > 100' out | wc -l)"
}

# What README and doc/planning.md show.
"$TRIREME" plan "$job" --ranks 16 --nodes 2 --machine h100 --json here.json >out 2>err
is "plan for 16 H100" "0 1" "$? $(grep -c '^fits on h100' out)"
narrow "plan for 16 H100"
for page in README.md:3 doc/planning.md:5; do
    sed -n '/^    a rank, with one change/,/^$/s/^    //p' "$top/${page%:*}" | grep -vxF ... >shown
    is "${page%:*} shows ${page#*:} lines of it, as they are" "${page#*:} 0" \
        "$(wc -l <shown | tr -d ' ') $(grep -vxFf out shown | wc -l | tr -d ' ')"
done
is "two settings that go together take two lines" 1 \
    "$(grep -A1 '^recompute=full$' out | grep -c '^ recompute_every=2  *[0-9]')"
is "a plan says what its words mean" "11" "$(sed -n '/^what these are/,/^$/p' out | grep -c '^  [a-z]')"
is "parameters that take no bytes are named" "1 1" \
    "$(grep -c '^  parameters .* 0 bytes$' out) $(grep -c '^  parameters  *none: .*masters' out)"
is "the process beside the plan is named" 1 "$(grep -c 'each process.*28 to 43 MiB' out)"
# Every command there that is shown with what it prints: the lines are as shown, up to a last "...".
missing_lines() {
    awk 'NR == FNR { out[$0]; next }
        / \.\.\.$/ { sub(/\.\.\.$/, ""); n = length; for (line in out) if (substr(line, 1, n) == $0) next }
        !($0 in out) { count++ }
        END { print count + 0 }' "$1" "$2"
}
awk -v top="$top/" '
    /^    trireme plan/ { n++; shown = 0; more = 0 }
    !/^    / { n += 0; open = 0; next }
    /^    trireme plan/ || more {
        open = 1; more = /\\$/; sub(/^    */, ""); sub(/^trireme /, ""); sub(/ *\\$/, "")
        sub(/jobs\//, top "jobs/"); printf "%s ", $0 >("page" n ".command"); next
    }
    open && !/^    \.\.\.$/ { sub(/^    /, ""); print >("page" n ".shown") }' "$top/doc/planning.md"
for shown in page*.shown; do
    command=$(cat "${shown%.shown}.command")
    # shellcheck disable=SC2086
    "$TRIREME" $command >out 2>err
    cat out err >both
    is "planning.md's $(echo "$command" | cut -c1-60)... prints what is shown" 0 "$(missing_lines both "$shown")"
    narrow "${shown%.shown}"
done
is "planning.md shows three plans with what they print" 3 "$(ls page*.shown | wc -l | tr -d ' ')"
if [ -x "${TRIREME_CUDA:-}" ] && ! "$TRIREME_CUDA" doctor 2>&1 | grep -q 'without CUDA'; then
    "$TRIREME_CUDA" plan "$job" --ranks 16 --nodes 2 --machine h100 --json there.json >out 2>err
    if cmp -s here.json there.json; then ok "the same bytes as a build with CUDA"; else
        not_ok "the same bytes as a build with CUDA" "$(diff here.json there.json | head -n 3)"; fi
else
    skip "the same bytes as a build with CUDA" "TRIREME_CUDA names no such program"
fi

# Other strategies and settings are planned by several threads.
for threads in 1 8; do
    OMP_NUM_THREADS=$threads "$TRIREME" plan "$job" --ranks 16 --nodes 2 --machine h100 \
        train.global_batch=512 --json "by-$threads.json" >"by-$threads.out" 2>err
    is "plan with $threads threads" 0 $?
done
for what in out json; do
    cmp "by-1.$what" "by-8.$what" >differs 2>&1
    is "8 threads plan what 1 plans: $what" "0 " "$? $(cat differs)"
done

# 16 micro-batches in place of 64, to save time: memory is the same.
"$TRIREME" plan "$top/jobs/llama70b_3d.yaml" train.global_batch=32 --ranks 64 --nodes 8 --machine h100 >out 2>err
is "70 B in three dimensions fits 64 H100, and is verified" "0 1 1 1" "$? $(grep -c '^fits on h100' out) \
$(grep -c '^64 ranks on 8 nodes: pipeline 4 x replicate 1 x shard 2 x context 1 x tensor 8$' out) $(grep -c '^verified' out)"

"$TRIREME" plan "$job" --ranks 16 --nodes 2 --machine h100 >whole 2>err
"$TRIREME" plan "$job" --ranks 16 --machine h100 >out 2>err
if cmp -s whole out; then ok "ranks are on as many nodes of the machine as they need"; else
    not_ok "ranks are on as many nodes of the machine as they need" "$(diff whole out | head -n 3)"; fi
is "which is said" 1 "$(grep -c '^16 ranks on 2 nodes: ' out)"
"$TRIREME" plan "$job" --ranks 16 --nodes 1 --machine h100 >out 2>err
is "unless --nodes says another number, with a note on nodes of more GPUs" "1 1 0" \
    "$(grep -c '^16 ranks: ' out) $(grep -c '^nodes of h100 have 8 GPUs, and one has 16 here: ' out) $(grep -c '^nodes of' whole)"
refused "threads of ranks on GPUs" '--threads is of ranks on CPUs' "$TRIREME" plan "$job" --ranks 16 --machine h100 --threads 4

"$TRIREME" plan "$job" --ranks 16 device=cuda >out 2>err
is "plan for GPUs nobody named" "0 1" "$? $(grep -c 'on one GPU a rank' out)"
# A number of tokens where sequences are counted: oneDNN divided by zero.
for device in cpu cuda; do
    refused "more tokens at once than libraries count ($device)" \
        '4194304 sequences of 1024 tokens at once are more than .* train\.micro_batch, or, .*train\.global_batch_tokens$' \
        "$TRIREME" plan model.preset=llama-10m device=$device train.global_batch=4194304 data.seq_len=1024 --ranks 1
done
refused "heads too wide for GPUs" \
    'model\.head_dim is 258; GPUs take 256 at most: change it, or device=cpu$' \
    "$TRIREME" plan "$job" --ranks 1 device=cuda model.head_dim=258
CUDA_VISIBLE_DEVICES= TRIREME_EMULATE_GPUS=0 "$TRIREME" plan "$job" --ranks 16 >out 2>err
is "plan on a machine without GPUs says so first" "0 1 1" \
    "$? $(head -n 1 out | grep -c '^planned for CPUs') $(head -n 2 out | grep -c h100)"
narrow "plan for CPUs"
"$TRIREME" plan $M device=cpu --ranks 2 >out 2>err
is "what was asked for is not explained" 0 "$(grep -c '^planned for CPUs' out)"

for settings in "device=cuda precision=fp16 offload.optimizer=disk offload.params=host" \
    "device=cuda parallel.strategy=HYBRID_SHARD_ZERO2 precision=bf16" "parallel.strategy=HYBRID_SHARD parallel.shard=3 device=cpu"; do
    "$TRIREME" plan $M $settings --ranks 6 --nodes 2 >out 2>err
    is "plan with $settings" 0 $?
    narrow "plan with $settings"
done
"$TRIREME" plan model.preset=gpt2 train.global_batch=64 train.micro_batch=64 data.seq_len=1024 \
    --machine rtx4090 >out 2>&1
is "a plan that does not fit: one line says so, after the plan" "1 1 1" "$? $(grep -c '^does not fit on rtx4090' out) \
$(tail -n 1 out | grep -c '^trireme: error: does not fit on rtx4090: short by .*nearest that fits: train.micro_batch=[0-9]* (.*; [0-9]* tokens/s by forecast)$')"

# A batch of more sequences than a step may have micro-batches: the smallest that is allowed counts.
refused "the nearest that fits has a smaller micro-batch" 'nearest that fits: .*train.micro_batch=[0-9]* .a rank takes' \
    "$TRIREME" plan model.preset=llama-tiny data.seq_len=64 train.global_batch=100000 --node-memory 20

# Machines of a file, and other networks.
printf 'mine:\n  like: h100\n  memory: 20 GiB\ncores:\n  like: h100\n  gpu: ""\n  memory: 1 GiB\n  per_node: 3\n' >machines.yaml
"$TRIREME" plan $M --machine machines.yaml:MINE >out 2>&1
is "a machine of a file" "0 1" "$? $(grep -c '^fits on mine (20.00 GiB)' out)"
"$TRIREME" plan $M --ranks 2 --machine machines.yaml:cores >out 2>&1
is "a machine without GPUs: cores, and their node's memory" "0 0 1" \
    "$? $(grep -c 'one GPU a rank' out) $(grep -c '^fits on a rank.s share of the node, without its process (1.46 GiB)' out)"
"$TRIREME" plan $M --machine titan-rtx precision=fp16 >out 2>&1
is "kernels that do not run there: a plan says so first" "0 1 1" \
    "$? $(head -n 1 out | grep -c 'do not run on titan-rtx') $(grep -c '^fits on titan-rtx' out)"
"$TRIREME" plan $M --machine "$top/tests/golden/published_machines.yaml:h100-triton" >out 2>&1
is "machines of published rows" "0 1" "$? $(grep -c '^fits on h100-triton' out)"
for network in 8x400Gb 8x50GB/s 1x400Gb/s; do
    "$TRIREME" plan model.preset=llama3-8b precision=bf16 parallel.strategy=NO_SHARD --ranks 4 --nodes 2 \
        --machine h200 --network $network 2>&1 | grep '^forecast'
done >forecasts
is "the same network in other words, the same step; a slower one, a longer step" "3 2 1" \
    "$(grep -c ' a step, ' forecasts) $(sort -u forecasts | wc -l | tr -d ' ') \
$(sed 's/.* a step, \([0-9]*\) tokens.*/\1/' forecasts | awk '{ t[NR] = $1 } END { print (t[1] > 1.01 * t[3]) }')"

# Adapters of an 8B on one card of 24 GB: 16 GB are its 16-bit parameters.
lora="model.preset=llama3-8b precision=bf16 recompute=full device=cuda data.seq_len=1024 train.micro_batch=1
    parallel.strategy=NO_SHARD lora.r=16 lora.target_modules=all-linear"
# shellcheck disable=SC2086
"$TRIREME" plan $lora --ranks 1 --machine rtx4090 >out 2>&1
is "adapters of an 8B fit a card of 24 GB" "0 1 1" \
    "$? $(grep -c '^8030261248 of them are frozen' out) $(grep -c '^  device memory  *1[78]\.' out)"
# shellcheck disable=SC2086
"$TRIREME" plan $lora lora.r=16 data.seq_len=8192 train.micro_batch=4 recompute=none --ranks 1 \
    --machine rtx4090 >out 2>&1
is "adapters of an 8B with long sequences do not fit a card of 24 GB" "1 1" "$? $(grep -c '^does not fit on rtx4090' out)"
# Gradients of all scores take more than those of the queries twice over, where logits are few.
for reproducible in true false; do
    "$TRIREME" plan model.preset=llama3-8b model.vocab=512 data.seq_len=8192 device=cuda train.micro_batch=1 \
        train.global_batch=1 precision=bf16 train.reproducible=$reproducible >out 2>&1
    sed -n 's/^ *workspace .* \([0-9]*\) bytes$/\1/p' out | head -n 1
done >workspaces
is "attention that adds up in any order takes less workspace" "2 1" \
    "$(awk '{ w[NR] = $1 } END { print NR, (w[2] < w[1]) }' workspaces)"
# It runs in parts of some heads in 1200 MiB; what a plan leaves of a GPU, but for a sixteenth, training adds.
for where in "" "--machine h100" "--machine h100 train.attention_bytes=700000000" "--machine rtx4090"; do
    "$TRIREME" plan model.preset=llama3-8b model.layers=5 model.vocab=512 data.seq_len=8192 device=cuda \
        train.micro_batch=1 train.global_batch=1 precision=bf16 $where >out 2>&1
    sed -n 's/^ *workspace .* \([0-9]*\) bytes$/\1/p' out | head -n 1
    grep 'to attention' out
done >workspaces
is "attention's backward has what the plan leaves of a GPU" \
    "  of which training gives 3.09 GiB to attention's backward (train.attention_bytes)" "$(grep of workspaces)"
is "the workspace is as large as attention's backward may have" "4 1 1 1 1" "$(grep -v of workspaces |
    awk '{ w[NR] = $1 } END { print NR, (w[1] > 1.2e9 && w[1] < 1.4e9), (w[2] == w[1]), (w[3] < 8e8), (w[4] == w[1]) }')"
"$TRIREME" plan $M --machine machines.yaml:mine --fewest --json fewest.json >out 2>err
is "the fewest ranks: a line for each place of state, and the same as JSON" "0 4 4 1" "$? $(grep -cE '^(nothing|optimizer state|and gradients|and parameters)  *1 ' out) \
$(grep -c '"ranks": 1,' fewest.json) $(grep -c 'was not limited: --node-memory' out)"
"$TRIREME" plan $M --machine machines.yaml:cores --fewest >out 2>err
is "the fewest ranks of processors" "0 1 0" "$? $(grep -c '^nothing  *1 ' out) $(grep -c '^optimizer state' out)"
refused "the fewest ranks of no machine" '--fewest: of which machine' "$TRIREME" plan $M --fewest
refused "the fewest of so many ranks" 'leave out --ranks' "$TRIREME" plan $M --machine h100 --fewest --ranks 4
refused "the fewest and the fastest" 'one after the other' "$TRIREME" plan $M --machine h100 --fewest --search
refused "the fewest as a picture" '--fewest writes no schedule' "$TRIREME" plan $M --machine h100 --fewest --schedule-svg x.svg
# In a pipeline a change is told of the same rank, though another one may then need the most.
J="$top/jobs/llama70b_3d.yaml train.global_batch=32 --ranks 64 --nodes 8"
"$TRIREME" plan $J >out 2>err
is "a change of a pipeline: what a rank computes" yes "$(sed -n 's/^recompute=full  .* +\([0-9.]*\) %$/\1/p' out |
    awk '$1 > 20 && $1 < 30 { print "yes" }')"
is "ZeRO's formula, of what a stage and a tensor rank have" yes "$(awk '/^ZeRO/ && $3 > 16 && $3 < 48 { print "yes" }' out)"

# Attention that cuDNN has not is slower.
step_of() {
    "$TRIREME" plan "$top/jobs/llama8b_fsdp.yaml" --ranks 8 --machine h100 "$@" --json own.json >out 2>err
    sed -n 's/.*"step_ms": *\([0-9.]*\).*/\1/p' own.json | head -n 1
    rm -f own.json
}
plain=$(step_of)
for form in data.packing=documents model.attention_dropout=0.1 parallel.context=2; do
    is "$form takes longer" yes "$(awk -v a="$plain" -v b="$(step_of $form)" 'BEGIN { if (a > 0 && b > 1.1 * a) print "yes" }')"
done

# A file that cannot be written leaves what was there, and nothing beside it.  An empty file and what
# trireme wrote itself are replaced, nothing else is, and a folder that is missing is found before.
echo "lr,1e-3" >notes
for option in --json --trace --timeline-svg --schedule-svg --schedule-csv; do
    kept=kept.csv
    : >$kept
    for time in first again; do
        "$TRIREME" plan $M --machine h100 --ranks 2 parallel.pipeline=2 $option $kept >out 2>err
        is "$option over its own file, $time" "0 yes" "$? $([ -s $kept ] && echo yes)"
    done
    cp notes notes.csv
    refused "$option over another file" "$option: notes.csv is there, and is no .* of trireme's; remove it, or name" \
        "$TRIREME" plan $M --machine h100 --ranks 2 parallel.pipeline=2 $option notes.csv
    is "$option: that file is as it was" "$(cat notes)" "$(cat notes.csv)"
    refused "$option in a folder that is missing" "$option: cannot create none/x.csv: No such file" \
        "$TRIREME" plan $M --machine h100 --ranks 2 parallel.pipeline=2 $option none/x.csv
    refused "$option to a folder that is missing" "$option: none/ is a folder; name a file" \
        "$TRIREME" plan $M --machine h100 --ranks 2 parallel.pipeline=2 $option none/
    for path in /dev/stdout shown; do
        refused "$option $path, where standard output is a file" \
            "$option: $path is the file that standard output goes to, where the plan itself is printed; name" \
            sh -c '"$@" >shown' sh "$TRIREME" plan $M --machine h100 --ranks 2 parallel.pipeline=2 $option $path
    done
    rm -f $kept
done
refused "two files of one name" '--json and --trace name one file, ./one; name two' \
    "$TRIREME" plan $M --machine h100 --ranks 2 --trace ./one --json one
is "neither is written" 0 "$(ls one 2>/dev/null | wc -l)"
"$TRIREME" plan $M --machine h100 --ranks 2 --trace /dev/null --json /dev/null >out 2>err
is "but both to a device" "0 0" "$? $(wc -c <err | tr -d ' ')"
"$TRIREME" plan $M --machine h100 --ranks 2 --json /dev/stdout 2>err | cat >out
is "--json to standard output that is a pipe: both are there" "0 1 1" \
    "$(wc -c <err | tr -d ' ') $(grep -c '^fits on h100' out) $(grep -c '^{$' out)"
"$TRIREME" plan $M --machine h100 --ranks 2 --json /dev/null >out 2>err
is "--json to a device" "0 0" "$? $(wc -c <err | tr -d ' ')"
for option in --json --trace --timeline-svg --schedule-svg; do
    "$TRIREME" plan $M --machine h100 --ranks 2 parallel.pipeline=2 $option kept >out 2>err && cp kept before
    said=$(trap '' XFSZ; ulimit -f 0
        "$TRIREME" plan $M --machine h100 --ranks 2 parallel.pipeline=2 $option kept 2>&1 >/dev/null)
    is "$option with no space" "1 1 0 kept" \
        "$? $(echo "$said" | grep -c 'cannot write kept: File too large') $(cmp before kept >&2; echo $?) $(ls -d kept*)"
    rm -f kept
done
"$TRIREME" plan $M >/dev/full 2>err
is "a plan that cannot be written" "1 1" "$? $(grep -c 'the plan cannot be written: No space' err)"

# numbers NAME FILE: the numbers of members NAME in a plan's JSON, one a line.
numbers() { sed -n "s/^ *\"$1\": *\([-+0-9.e]*\),*\$/\1/p" "$2"; }

# node_with MIB: the verdict on a node that has so much for each of two ranks, beside what they need.
node_with() {
    gib=$(awk -v need="$(numbers total_bytes here.json | head -n 1)" -v more="$1" \
        'BEGIN { printf "%.6f", 2 * (need / 2 ^ 20 + more) / 1024 }')
    "$TRIREME" plan $M --ranks 2 --node-memory "$gib" 2>&1 | sed -n "s/ on a rank's share of the node.*//p"
}
"$TRIREME" plan $M --ranks 2 --json here.json >out 2>&1
is "a node has to hold the processes, too" "does not fit, fits" "$(node_with 42), $(node_with 45)"
# A node whose processes take all of it: with the sizes, and no word of other layouts.
taken='no memory of a node is left for training: it has 204\.80 MiB for 8 ranks, and the process of one takes 4[0-9.]* MiB; fewer'
refused "a node whose processes take all of it" "$taken" "$TRIREME" plan $M --ranks 8 --node-memory 0.2
is "says so beside the plan, too" "1 0" "$(tr '\n' ' ' <stdout | tr -s ' ' | grep -c "does not fit: $taken") $(grep -c 'nothing fits\|(1 B)' stdout)"
for how in --search "parallel.layout=auto"; do
    refused "$how on such a node" "$taken" "$TRIREME" plan $M --machine h100 --ranks 8 --node-memory 0.2 $how
done
"$TRIREME" plan $M --machine h100 --search --nodes 1-2 --node-memory 0.2 >out 2>err
is "a search over nodes has it in each row" "0 2" "$? $(tr '\n' ' ' <out | tr -s ' ' | grep -o "$taken" | wc -l)"
refused "the fewest ranks on a node that holds no process" \
    'it has 20\.48 MiB for 1 rank, and the process of one takes .*; take a node that has more' \
    "$TRIREME" plan $M --machine h100 --fewest --node-memory 0.02
refused "a node whose processes list too many micro-batches" 'a larger train\.micro_batch leaves some' "$TRIREME" plan $M \
    --node-memory 0.1 data.seq_len=8 train.micro_batch=1 train.global_batch=8000

# ---- pipelines ----
P="model.preset=llama-tiny model.layers=6 device=cpu train.global_batch=6 train.micro_batch=1 parallel.pipeline=3"

sum() { awk '{ n += $1 } END { print n }'; }

for schedule in naive 1f1b zb_h1 zb_v interleaved_1f1b; do
    "$TRIREME" plan $P parallel.schedule=$schedule --ranks 6 --json named.json --schedule-csv $schedule.csv \
        --schedule-svg $schedule.svg >out 2>err
    is "plan of $schedule" "0 0" "$? $(wc -c <err | tr -d ' ')"
    narrow "plan of $schedule"
    "$TRIREME" plan $P parallel.schedule=$schedule.csv --ranks 6 --json read.json --schedule-csv again.csv >out2 2>err
    is "$schedule, written and read: the same schedule" "$(cat $schedule.csv)" "$(cat again.csv)"
    for file in named read; do
        sed -n '/^  "rank": /,/^  "strategies"/p' $file.json >$file.ranks
    done
    is "$schedule, written and read: the same bytes and instructions" 1 \
        "$(cmp named.ranks read.ranks && grep -c '"pipeline"' read.ranks)"
    is "$schedule: a box for each action" "$(tr ',' '\n' <$schedule.csv | sort)" \
        "$(sed -n 's/.*<title>\([0-9]*[A-Z][0-9]*\)<.*/\1/p' $schedule.svg | sort)"
    is "$schedule: the picture has no scripts and a row for each rank" "0 3" \
        "$(grep -ciE 'script|href|onload' $schedule.svg) $(grep -c '>rank [0-9]*<' $schedule.svg)"
    sed -n '/"pipeline"/,$p' named.ranks >rows
    is "$schedule: the one that needs most is marked" "$(numbers memory_bytes rows | sort -n | tail -n 1)" \
        "$(numbers memory_bytes rows | sed -n "$(awk '/^each rank of the pipeline/ { at = NR + 1 }
            at && /largest$/ { print NR - at; exit }' out)p")"
    is "$schedule: units and parameters are those of the model" "8 $(numbers parameters named.json | head -n 1)" \
        "$(numbers units rows | sum) $(numbers parameters rows | sum)"
    is "$schedule: activations are those of its ranks" "$(numbers activations named.ranks | sed -n 'n;p')" \
        "$(numbers activation_bytes rows)"
    is "$schedule: what ranks wait is in the picture" "$(numbers waits rows | awk '{ printf "%.1f %% ", 100 * $1 }')" \
        "$(sed -n 's/.*>\([0-9.]* %\)<.*/\1/p' $schedule.svg | tr '\n' ' ')"
    if command -v xmllint >/dev/null; then
        xmllint --noout $schedule.svg 2>err
        is "$schedule: the picture is XML" 0 $?
    else
        skip "$schedule: the picture is XML" "xmllint is not installed"
    fi
done
cp 1f1b.csv 'a&b<c>.csv'
"$TRIREME" plan $P 'parallel.schedule=a&b<c>.csv' --ranks 6 --schedule-svg odd.svg >out 2>err
is "a file's name in a picture" 2 "$(grep -c 'a&amp;b&lt;c&gt;.csv: 3 ranks' odd.svg)"
"$TRIREME" plan $M --ranks 2 device=cpu >out 2>err
is "without a pipeline there is no such table" 0 "$(grep -c 'rank of the pipeline' out)"
refused "a schedule under a name that is not read" 'name it order.txt.csv' "$TRIREME" plan $P --ranks 3 --schedule-csv order.txt
refused "a picture in no folder" 'cannot create no/such.svg' "$TRIREME" plan $P --ranks 3 --schedule-svg no/such.svg
refused "a picture on a full disk" 'cannot write /dev/full' "$TRIREME" plan $P --ranks 3 --schedule-svg /dev/full
refused "fewer ranks than nodes" 'ranks 2 .*nodes 4' "$TRIREME" plan $M --ranks 2 --nodes 4
refused "half a rank" 'ranks 2\.5.*whole' "$TRIREME" plan $M --ranks 2.5
refused "train for a GPU without one" 'no GPU to use: .*device=cpu needs none' env CUDA_VISIBLE_DEVICES= TRIREME_EMULATE_GPUS=0 \
    "$TRIREME" train $M device=cuda data.train=none.h5
# ---- the step that is forecast, as a trace and as a picture ----

# instructions TRACE: of each event rank, lane, name and bytes.
instructions() {
    sed 's/}, {/\n/g' "$1" | sed -E 's/"ts": [^,]*, "dur": [0-9.e+-]*//; s/[]}]*$//' |
        grep '"ph": "X"' | sort
}
make_text
"$TRIREME" tokenize text -o text.h5 >out 2>err
S="$M device=cpu data.train=text.h5 data.seq_len=64 train.micro_batch=2 train.steps=2"
# shellcheck disable=SC2086
mpirun -n 2 "$TRIREME" train $S run.trace=2 run.dir=traced checkpoint.every=0 >out 2>err
# shellcheck disable=SC2086
"$TRIREME" plan $S --ranks 2 --machine machines.yaml:cores --trace step.json --timeline-svg step.svg >out 2>err
is "a forecast step has the ranks, lanes, names and bytes of one that runs" "0 0" \
    "$? $(instructions traced/trace.json >ran && instructions step.json | cmp - ran >&2; echo $?)"
is "a forecast step has as many events as one that runs" 1 "$(awk 'END { print (NR > 200) }' ran)"
is "the picture has a row for each rank, a scale in ms and no scripts" "2 1 0" \
    "$(grep -c '>rank [0-9]*<' step.svg) $(grep -c ' ms</text>' step.svg | awk '{ print ($1 > 4) }') $(grep -ciE 'script|href|onload' step.svg)"
if command -v xmllint >/dev/null; then
    xmllint --noout step.svg 2>err
    is "the picture of a step is XML" 0 $?
else
    skip "the picture of a step is XML" "xmllint is not installed"
fi
refused "a step of no machine" '--trace: how long a step takes on which machine' "$TRIREME" plan $M --trace x.json
refused "a picture of a step of no machine" '--timeline-svg: how long' "$TRIREME" plan $M --timeline-svg x.svg
for option in --trace --timeline-svg; do
    refused "$option of a search" 'no schedule and no step' "$TRIREME" plan $M --machine h100 --search $option x.json
    refused "$option of the fewest" 'no schedule and no step' "$TRIREME" plan $M --machine h100 --fewest $option x.json
done
refused "a step in no folder" 'cannot (create|open).*no/such' "$TRIREME" plan $M --machine h100 --trace no/such.json
refused "a picture of a step on a full disk" 'cannot write /dev/full' "$TRIREME" plan $M --machine h100 --timeline-svg /dev/full
# ---- the published examples of two GPUs of 24 GB, see tests/bench/examples ----
chatbot="model.family=gpt2 model.layers=18 model.hidden=1280 model.heads=32 model.kv_heads=32 model.ffn=5120
    model.vocab=8008 model.max_seq_len=128 model.tie_embeddings=true data.seq_len=78 precision=fp16 device=cuda
    train.global_batch=200 train.micro_batch=100 parallel.strategy=NO_SHARD"
titan="--ranks 2 --machine titan-rtx --node-memory 60"
# shellcheck disable=SC2086
"$TRIREME" plan $chatbot $titan --json chatbot.json >out 2>err
is "chatbot: DDP takes its 100 pairs, ZeRO-2 its 200, and more than DDP" "0 1 1 1" "$? $(numbers largest_micro_batch chatbot.json |
    awk '{ n[NR] = $1 } END { print (n[1] >= 100), (n[3] >= 200), (n[3] > n[1]) }')"
# shellcheck disable=SC2086
"$TRIREME" plan "$top/jobs/gpt2xl_zero3_offload.yaml" device=cuda $titan --json xl.json >out 2>err
is "gpt2-xl: all offloaded, the 16 blocks fit, and more do" "0 1" \
    "$? $(numbers largest_micro_batch xl.json | awk '$1 >= 16 { n++ } END { print (n >= 1) }')"
# shellcheck disable=SC2086
"$TRIREME" plan "$top/jobs/gpt2xl_zero3_offload.yaml" device=cuda offload.optimizer=none offload.params=none \
    offload.gradients=none parallel.strategy=NO_SHARD train.micro_batch=1 $titan --json xl.json >out 2>err
is "gpt2-xl: DDP is out of memory at one block" "1 0 1" \
    "$? $(numbers largest_micro_batch xl.json | head -n 1) $(grep -c '^trireme: error: does not fit on titan-rtx' err)"

# Gradients in bf16 are those of one micro-batch; with split_batches=false the batch is a rank's.
for change in train.grad_dtype=bf16 train.split_batches=false; do
    "$TRIREME" plan model.preset=llama-124m precision=bf16 train.global_batch=8 --ranks 1 --machine h100 \
        --json as-is.json >out 2>err
    "$TRIREME" plan model.preset=llama-124m precision=bf16 train.global_batch=8 --ranks 1 --machine h100 \
        "$change" --json changed.json >out 2>err
    is "largest micro-batch with $change: nearly the same" "0 4 0" "$? $(
        for name in micro eval_micro; do
            for file in as-is changed; do echo "$(numbers largest_${name}_batch $file.json | head -n 1) $name"; done
        done | awk '{ n++; first = NR % 2 ? $1 : first; if ($1 < 400 || $1 > first * 1.02) far++ } END { print n, far + 0 }')"
done

# Six heads among four ranks: the table is of those with two.
"$TRIREME" plan model.preset=llama-tiny model.heads=6 model.kv_heads=6 model.head_dim=16 parallel.tensor=4 \
    --ranks 4 >out 2>err
is "unequal parts: the table is of the largest" "0 3 1" "$? $(awk '$1 == "total" && NF == 5 {
    n++; size = $2 " " $3; if (!most || $4 + 0 > bytes) { most = size; bytes = $4 + 0 } }
    $1 == "total" && NF > 5 { print n, ($(NF - 1) " " $NF) == most }' out)"

# What is nearest has a layout on the ranks that there are.
refused "shards of a hybrid, beside tensor ranks" 'nearest that fits: parallel.shard=8 .a rank' "$TRIREME" plan \
    model.preset=llama3-70b precision=bf16 data.seq_len=2048 train.global_batch=16 train.micro_batch=1 \
    parallel.strategy=HYBRID_SHARD parallel.tensor=2 recompute=full --machine h100 --gpus 32 --nodes 4
G="model.preset=llama3-8b precision=bf16 train.grad_dtype=bf16 train.global_batch=64 --machine h100"
# shellcheck disable=SC2086
refused "gradients in bf16 stay of one micro-batch" 'nearest that fits: recompute=full .a rank' \
    "$TRIREME" plan $G data.seq_len=8192 --gpus 8 train.micro_batch=8 parallel.strategy=FULL_SHARD
# shellcheck disable=SC2086
"$TRIREME" plan $G data.seq_len=2048 --fewest train.micro_batch=16 >out 2>err
is "the fewest ranks for gradients in bf16" "0 nothing 2" "$? $(awk '$1 == "nothing" { print $1, $2 }' out)"

# Epochs are as many steps as training makes of them, where the data is here.
head -c 20000 text >little
"$TRIREME" tokenize little -o little.h5 >out 2>err
E="model.preset=llama-tiny data.train=little.h5 data.seq_len=64 train.epochs=2 train.global_batch=3"
"$TRIREME" train $E device=cpu run.dir=epochs >out 2>err
"$TRIREME" plan $E --machine h100 >out 2>err
is "the length of train.epochs" "train.epochs 2, $(last_metric epochs step) steps" \
    "$(sed -n 's/.*10^9 tokens.*; \(train.epochs 2, [0-9]* steps\): [0-9.]* m*s,.*/\1/p' out)"
"$TRIREME" plan $E --ranks 2 --machine h100 >epochs.out 2>err
"$TRIREME" plan $E --ranks 2 --machine h100 train.epochs=0 train.steps=7 >steps.out 2>err
is "a plan of train.epochs is that of as many train.steps" "1 train.steps 7: " "$(diff epochs.out steps.out | grep -c '^>') \
$(diff epochs.out steps.out | sed -n 's/^> .*10^9 tokens.*; \(train.steps 7: \).*/\1/p')"
"$TRIREME" plan $E data.train=elsewhere.h5 --machine h100 >out 2>err
is "of data that is not here" 1 "$(grep -c '10^9 tokens.*train.epochs 2: not known: .*elsewhere.h5' out)"
finish
