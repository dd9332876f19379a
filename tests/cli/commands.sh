#!/bin/sh
# commands.sh - the program's other commands: what they print, refuse and return.
. "$(dirname "$0")/../cli/helpers.inc"

refused "unknown command" 'no command .trian' "$TRIREME" trian
while read -r word command; do
    refused "$word, as other programs call it" "no command .$word.; did you mean $command\?" "$TRIREME" "$word"
done <<'END'
eval evaluate
resume train
sample generate
estimate-memory plan
ckpt checkpoint
END
refused "a command like none" 'no command .zzz.; trireme --help lists them' "$TRIREME" zzz
"$TRIREME" >out 2>err
is "no command: usage on stderr, code 1" "1 0 yes" \
    "$? $(wc -c <out | tr -d ' ') $(grep -q usage err && echo yes)"
"$TRIREME" --help >out 2>err
is "--help: usage on stdout, code 0" "0 0 yes" \
    "$? $(wc -c <err | tr -d ' ') $(grep -q usage out && echo yes)"
is "--help: no long lines" "none" "$(awk 'length > 112 { print; found = 1 } END { if (!found) print "none" }' out)"
"$TRIREME" plan --help >out 2>err
is "plan --help: its usage" "0 0 1" \
    "$? $(wc -c <err | tr -d ' ') $(tr -d '\n' <out | grep -c '^  trireme plan \[.*--machine')"
cp out plan.help
for help in help --help -h; do
    "$TRIREME" $help plan >out 2>err
    is "$help plan: the same" "0 0" "$? $(cmp plan.help out >&2; echo $?)"
done
"$TRIREME" --version >out 2>err
is "--version" "0 trireme" "$? $(cut -d' ' -f1 out)"

# tokenize
printf 'Three banks of oars.\n' >one.txt
: >nothing.txt
printf '\000\377\200binary\n' >binary.txt
refused "tokenize without an output" '\-o' "$TRIREME" tokenize one.txt
refused "tokenize without an input" 'input' "$TRIREME" tokenize -o out.h5
refused "tokenize a missing file" 'missing\.txt' "$TRIREME" tokenize missing.txt -o out.h5
refused "tokenize with an unknown tokenizer" 'bytes' \
    "$TRIREME" tokenize one.txt --tokenizer bites -o out.h5
if [ -e out.h5 ]; then not_ok "a refused tokenize leaves no file" out.h5; else
    ok "a refused tokenize leaves no file"; fi
"$TRIREME" tokenize one.txt - -o out.h5 <binary.txt >out 2>err
is "tokenize any bytes" 0 $?
count=$(h5dump -H -d tokens out.h5 | sed -n 's/.*SIMPLE { ( \([0-9]*\) ).*/\1/p')
is "a token per byte, one more per document" $(($(cat one.txt binary.txt | wc -c) + 2)) "$count"
cp out.h5 before.h5
"$TRIREME" tokenize one.txt - -o out.h5 <binary.txt >out 2>err
is "tokenize again" 0 $?
if h5diff before.h5 out.h5 >changes 2>&1; then ok "the same file again"; else
    not_ok "the same file again" "$(cat changes)"; fi

"$TRIREME" tokenize one.txt -o new/folder/out.h5 >out 2>err
is "tokenize into a folder that is made" "0 yes" "$? $([ -s new/folder/out.h5 ] && echo yes)"

refused "tokenize on two ranks" 'tokenize is for one process, and mpirun started 2; .*--threads N' \
    mpirun --oversubscribe -n 2 "$TRIREME" tokenize one.txt -o ranks.h5
# shellcheck disable=SC2016
refused "the line of a rank that starts late" 'tokenize is for one process' \
    mpirun --oversubscribe -n 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || sleep 1.5; exec "$@"' sh \
    "$TRIREME" tokenize one.txt -o ranks.h5
[ ! -e ranks.h5 ] && ok "a refused tokenize leaves no file" || not_ok "a refused tokenize leaves no file" ranks.h5
refused "plan on two ranks" 'plan is for one process, and mpirun started 2; .*--ranks N' \
    mpirun --oversubscribe -n 2 "$TRIREME" plan model.preset=llama-tiny
for command in "config model.preset=llama-tiny" "convert run folder" "tensorboard run -o curves"; do
    refused "${command%% *} on two ranks" "${command%% *} is for one process, and mpirun started 2" \
        mpirun --oversubscribe -n 2 "$TRIREME" $command
done
refused "doctor with a wrong option, on three ranks" 'quick is for doctor --measure' \
    mpirun --oversubscribe -n 3 "$TRIREME" doctor --quick
refused "an option in place of a value" '--measure wants a value, not the option --quick: .*--measure=FILE' \
    "$TRIREME" doctor --measure --quick
refused "an option with a value in place of a value" '--stop wants a value, not the option --tokens=3: .*--stop=TEXT' \
    "$TRIREME" generate run --stop --tokens=3 --prompt a
for command in --version --help "plan --help" "config --show"; do
    "$TRIREME" $command >/dev/full 2>err
    is "$command with nowhere to write" "1 1" "$? $(grep -c 'error: standard output: No space left' err)"
done
mkdir broken && : >broken/checkpoints
refused "a file in place of the folder of checkpoints" 'broken/checkpoints.*Not a directory' "$TRIREME" plan broken
rm -r broken
SLURM_NTASKS=4 "$TRIREME" tokenize one.txt -o ranks.h5 >out 2>err
is "in the script of a job it is one process" 0 $?

# generate and checkpoint, on a model of two steps
make_tokens
M="model.preset=llama-tiny device=cpu data.train=train.h5 data.seq_len=32 train.steps=2
   train.global_batch=2 run.dir=run"
refused "generate without a checkpoint" 'checkpoint' "$TRIREME" generate --prompt x
refused "generate from a missing checkpoint" 'nowhere' "$TRIREME" generate nowhere --prompt x
refused "a run that is not there: where its path begins" "runs/none: No such file.*directory, $work" \
    "$TRIREME" evaluate runs/none
refused "a checkpoint that is not there" "runs/none: No such file.*directory, $work" \
    "$TRIREME" checkpoint ls runs/none
refused "generate from a model that nobody has brought" 'not in the cache of .*; bring it there: hf download meta/none$' \
    "$TRIREME" generate meta/none --prompt x
if timeout 60 "$TRIREME" train $M >out 2>err; then
    ok "train two steps"
    checkpoint=$(newest_checkpoint run)
    # MPI's folder there would be that of every process of this user that runs alone.
    TMPDIR=$work/train.h5 timeout 60 "$TRIREME" train $M run.dir=alone >out 2>err
    is "one process needs no folder of MPI's" 0 $?
    timeout 60 "$TRIREME" generate "$checkpoint" --prompt "int " --tokens 20 --seed 3 >a 2>err
    is "generate" 0 $?
    timeout 60 "$TRIREME" generate "$checkpoint" --prompt "int " --tokens 20 --seed 3 >b 2>err
    if [ -s a ] && cmp -s a b; then ok "generate: same seed, same text"; else
        not_ok "generate: same seed, same text" "$(head -c 60 a) / $(head -c 60 b)"; fi
    "$TRIREME" checkpoint ls run/checkpoints >out 2>err
    is "checkpoint ls names it" "0 1" "$? $(grep -c step-00000002 out)"
    refused "checkpoint on two ranks" 'checkpoint is for one process, and mpirun started 2' \
        mpirun --oversubscribe -n 2 "$TRIREME" checkpoint ls run
    refused "train from a checkpoint, by its path alone" \
        "; a new run starts from it by: trireme train run checkpoint.resume=$checkpoint run.dir=NEW$" \
        "$TRIREME" train "$checkpoint"
    timeout 60 "$TRIREME" train run checkpoint.resume="$checkpoint" run.dir=from train.steps=3 >out 2>err
    is "what it says works" "0 step-00000003" "$? $(basename "$(newest_checkpoint from)")"
    refused "the newest checkpoint, by another program's word" 'latest: no checkpoint.*; checkpoint.resume=auto is the newest' \
        "$TRIREME" train $M run.dir=never checkpoint.resume=latest
    "$TRIREME" checkpoint verify "$checkpoint" >out 2>err
    is "checkpoint verify: whole" 0 $?
    "$TRIREME" checkpoint show "$checkpoint" >out 2>err
    is "checkpoint show" 0 $?
    timeout 60 "$TRIREME" evaluate $M data.valid=valid.h5 >out 2>err
    is "evaluate" 0 $?
    timeout 60 "$TRIREME" evaluate $M data.valid=valid.h5 train.lr=9 seed=4 parallel.strategy=NO_SHARD \
        parallel.layout=given parallel.backward_prefetch=BACKWARD_POST checkpoint.every=3 checkpoint.async=true train.decay_steps=0 >more.out 2>err
    is "evaluate names keys that change nothing" "1 $(cat out)" \
        "$(grep -c 'warning: these keys are of training, and change nothing here: .*train\.lr, seed, parallel\.layout, parallel\.backward_prefetch, checkpoint\.every, checkpoint\.async, train\.decay_steps$' err) $(cat more.out)"

    "$TRIREME" config --show | sed -n 's/^\([a-z0-9_.]*\) (.*/\1=/p' >keys
    sed -n '/} keys\[\] = {/,/^};/s/^ *{"\([^"]*\)".*/\1/p' "$top/src/cli/unused.c" >unused
    is "the keys that change nothing are read from their table" yes "$([ -s unused ] && echo yes)"
    is "all of them are keys, or beginnings of keys" "none is not" \
        "$(while read -r key; do grep -q "^$(echo "$key" | sed 's/\./\\./g')" keys || echo "$key"; done <unused |
            grep . || echo none is not)"

    # A start that cannot be leaves the run as it was.
    cat run/config.yaml run/plan.json run/metrics.jsonl >before
    refused "another model for the run" 'step-00000002.*holds the model llama-tiny' "$TRIREME" train $M model.hidden=128 \
        train.steps=3
    refused "data that are gone" 'gone\.h5' "$TRIREME" train $M data.train=gone.h5 train.steps=3
    if cat run/config.yaml run/plan.json run/metrics.jsonl | cmp -s before -; then
        ok "a refused start leaves the run as it was"
    else
        not_ok "a refused start leaves the run as it was" "its files have changed"
    fi

    # One flipped bit in the middle of the data is found.
    cp -r "$checkpoint" broken
    shard=$(ls -S broken/shard-* | head -n 1)
    middle=$(($(wc -c <"$shard") / 2))
    byte=$(od -An -tu1 -j $middle -N 1 "$shard" | tr -d ' ')
    printf "\\$(printf %o $((byte ^ 1)))" | dd of="$shard" bs=1 seek=$middle conv=notrunc 2>/dev/null
    refused "checkpoint verify: a flipped bit" 'shard-00000' "$TRIREME" checkpoint verify broken
    cp -r "$checkpoint" torn
    rm torn/COMMIT
    refused "checkpoint verify: not committed" 'torn.*commit|commit.*torn' "$TRIREME" checkpoint verify torn
else
    not_ok "train two steps" "$(tail -n 3 err)"
fi

"$TRIREME" doctor >out 2>err
is "doctor" 0 $?
is "each line has its name once: of NCCL its version, or none" 1 "$(grep -cE '^  NCCL  +([0-9.]+( \(built for [0-9.]+\))?|none)$' out)"
is "as many open files as the hard limit allows" "files $(ulimit -Hn)," \
    "$(ulimit -Sn 100; "$TRIREME" doctor 2>err | grep -o 'files [a-z0-9]*,')"
# Open MPI, hwloc and oneDNN crash where a process has little address space.
# shellcheck disable=SC2016
limited='ulimit -v $(($1 << 10)) && shift && exec "$@"'
small='error: a process may have 384 MiB of address space on .* may crash with less than 1024 MiB: ulimit -v unlimited$'
if can_limit_space; then
    refused "train in a small address space" "$small" sh -c "$limited" sh 384 "$TRIREME" train $M run.dir=small
    refused "doctor in a small address space" "$small" sh -c "$limited" sh 384 "$TRIREME" doctor
    refused "doctor --gpu, too" "$small" sh -c "$limited" sh 384 "$TRIREME" doctor --gpu
    refused "one line for the ranks of a node" "$small" \
        mpirun --oversubscribe -n 3 sh -c "$limited" sh 384 "$TRIREME" train $M run.dir=small
    is "which makes no run" 0 "$(ls -d small 2>/dev/null | wc -l)"
    for command in version "config --show train.lr" "plan $M"; do
        is "${command%% *} in a small address space" 0 "$(sh -c "$limited" sh 384 "$TRIREME" $command >/dev/null 2>&1; echo $?)"
    done
    is "train in one that suffices" 0 \
        "$(sh -c "$limited" sh 1024 "$TRIREME" train $M run.threads=1 run.dir=limited >out 2>err; echo $?)"
else
    skip "trireme in a small address space" "AddressSanitizer reserves terabytes of it"
fi
# cuBLASLt's start is long: only what needs it loads it, and says so where it cannot.
"$TRIREME" doctor >out 2>err
major=$(sed -n 's/^ *CUDA .*cuBLASLt \([0-9]*\)\..*/\1/p' out)
if [ -n "$major" ]; then
    is "a start without cuBLASLt" 0 "$(LD_DEBUG=libs "$TRIREME" --version 2>&1 | grep -c cublasLt)"
    mkdir no_library && : >"no_library/libcublasLt.so.$major"
    LD_LIBRARY_PATH=$PWD/no_library "$TRIREME" doctor >out 2>err
    is "cuBLASLt cannot be loaded" 1 "$(grep -c '^ *CUDA .*no cuBLASLt' out)"
else
    skip "a start without cuBLASLt" "built without CUDA"
fi
"$TRIREME" plan $M --ranks 4 >out 2>err
is "plan for 4 ranks" 0 $?
for recompute in none gathered selective full; do
    "$TRIREME" plan $M recompute=$recompute parallel.tensor=2 --ranks 2 >out 2>err
    is "plan with recompute=$recompute" 0 $?
    sed -n 's/^ *activations .* \([0-9]*\) bytes$/\1/p' out | head -n 1 >>activations
done
if sort -rnuc activations && [ "$(wc -l <activations)" = 4 ]; then
    ok "the less is kept, the fewer bytes of activations"
else
    not_ok "the less is kept, the fewer bytes of activations" "$(tr '\n' ' ' <activations)"
fi
"$TRIREME" plan $M recompute=gathered >out 2>err
is "recompute=gathered where no rows are gathered" "1 1" \
    "$? $(grep -c 'recompute gathered is of rows that tensor or context ranks gather' err)"
"$TRIREME" plan $M --ranks 4 --nodes 2 --json plan.json >out 2>err
is "plan: a column per strategy" "6 6" "$(grep -c '"chosen"' plan.json) $(sed -n \
    's/^a rank of//p' out | wc -w)"
is "plan: the numbers a rank sends" "1.50 P 1.50 P 1.50 P" "$(sed -n 's/^in parameters *//p' out |
    awk '{ print $1, $2, $3, $4, $5, $6 }')"
refused "plan for a node without room" 'does not fit.*nearest that fits: [a-z]' \
    "$TRIREME" plan $M --ranks 4 --node-memory 0.2138 parallel.strategy=NO_SHARD
refused "train without room, before anything is read" \
    'GiB of the node.s memory a rank.*(nearest that fits: [0-9]+ ranks|nothing fits)' "$TRIREME" train device=cpu \
    model.preset=llama3-70b data.train=gone.h5 run.dir=huge
for config in "$top"/jobs/*.yaml; do
    name=$(basename "$config" .yaml) nodes=2
    [ "$name" != llama70b_3d ] || nodes=16
    preset= # of a job whose model is a folder that is not here
    ! grep -q '^  path: ' "$config" || preset=model.preset=llama3-8b
    if "$TRIREME" plan "$config" $preset device=cpu data.valid= train.eval_every=0 train.eval_batches=0 \
        train.eval_micro_batch=0 --ranks $((2 * nodes)) --nodes $nodes \
        >out 2>err && grep -q '^verified' out; then ok "plan of the job $name"; else
        not_ok "plan of the job $name" "$(tail -n 1 err)"; fi
    mkdir -p stand-in data
    printf '#!/bin/sh\necho "$@"\n' >stand-in/mpirun
    chmod +x stand-in/mpirun
    is "the job $name without Slurm" \
        "--oversubscribe --bind-to none -n 2 $TRIREME train $config run.dir=runs/$name a=b" \
        "$(PATH=$PWD/stand-in:$PATH TRIREME_RANKS=2 "${config%.yaml}.sh" a=b 2>&1)"
done
refused "shards that do not divide the ranks" 'shard 5 .*12 ranks.*parallel.shard=4 or parallel.shard=6 would' \
    "$TRIREME" plan $M --ranks 12 parallel.strategy=HYBRID_SHARD parallel.shard=5
refused "copies that do not make the ranks" 'parallel.replicate=3 .*would' \
    "$TRIREME" plan $M --ranks 12 parallel.strategy=HYBRID_SHARD parallel.shard=4 \
    parallel.replicate=2
refused "chunks of rows that nobody exchanges" \
    'parallel.tensor_overlap is of ranks that divide layers, and parallel.tensor is 1' \
    "$TRIREME" plan $M parallel.tensor_overlap=4
refused "gathers of stages that nobody has" \
    'parallel.pipeline_reshard is of several stages, and parallel.pipeline is 1.*leave it at false' \
    "$TRIREME" plan $M parallel.pipeline_reshard=true
for strategy in NO_SHARD SHARD_OPTIM SHARD_GRAD_OP HYBRID_SHARD_ZERO2; do
    refused "gathers for each use, which $strategy has none of" \
        'parallel.pipeline_reshard is of parallel.strategy FULL_SHARD and HYBRID_SHARD.*leave it at false' \
        "$TRIREME" plan $M --ranks 4 parallel.pipeline=2 parallel.pipeline_reshard=true parallel.strategy=$strategy
done
"$TRIREME" plan $M --ranks 4 parallel.pipeline=2 parallel.pipeline_reshard=true >out 2>err
is "a table of strategies has those without such gathers" "0 1" \
    "$? $(grep -c 'NO_SHARD SHARD_OPTIM SHARD_GRAD_OP *FULL_SHARD\*' out)"
refused "a format of sums that nobody takes" 'parallel.tensor_reduce_dtype is of ranks that divide' \
    "$TRIREME" plan $M parallel.tensor_reduce_dtype=fp32
refused "more ranks than heads" 'parallel.tensor 16 does not fit model.heads 4, of which.*; parallel.tensor=4 would$' \
    "$TRIREME" plan $M --ranks 16 parallel.tensor=16
refused "a batch in tokens where it is in sequences" \
    'global_batch of 524288 sequences is 524288 micro-batches .* at most 65536 .* train.global_batch_tokens$' \
    "$TRIREME" plan $M train.global_batch=524288 train.micro_batch=1
refused "more sequences than can be counted" 'global_batch of 125000000000 sequences is 125000000000 micro' \
    "$TRIREME" plan $M data.seq_len=8 train.global_batch=0 train.global_batch_tokens=1000000000000 train.micro_batch=1
refused "more stages than units" 'parallel.pipeline is 6, but the model has 4 units .*4 is the most that fits' \
    "$TRIREME" plan $M --ranks 6 parallel.pipeline=6
refused "more stages on each rank than units" \
    'pipeline is 2 with 6 stages in all, but the model has 4 units .*virtual_stages=2 is the most' \
    "$TRIREME" plan $M --ranks 2 parallel.pipeline=2 parallel.schedule=interleaved_1f1b parallel.virtual_stages=3
refused "more pairs of stages than units" \
    'pipeline is 3 with 6 stages in all, but the model has 4 units .*1f1b has one stage a rank, or parallel.pipeline=2 is the most' \
    "$TRIREME" plan $M --ranks 3 parallel.pipeline=3 parallel.schedule=zb_v
refused "several stages on a rank, for 1f1b" 'leave it at 1, or set parallel.schedule=interleaved_1f1b' \
    "$TRIREME" plan $M --ranks 2 parallel.pipeline=2 parallel.virtual_stages=2
for stages in 2,1 1,1,2 4 4,0 2,2, 2:2 x 9999999999,1 1,99999999999999999999; do
    refused "stages of $stages units" "parallel.stages \"$stages\" is not how many units each of 2 stages" \
        "$TRIREME" plan $M --ranks 2 parallel.pipeline=2 "parallel.stages=$stages"
done
printf 'parallel:\n  stages: [1, 3]\n' >stages.yaml
is "stages as a list" 0 "$("$TRIREME" plan stages.yaml $M --ranks 2 parallel.pipeline=2 >out 2>err; echo $?)"
is "stages in brackets" 0 "$("$TRIREME" plan $M --ranks 2 parallel.pipeline=2 'parallel.stages=[3, 1]' >out 2>err; echo $?)"
printf '0F0,0F1,0B0,0B1\n1F0,1F1,1B0\n' >wrong.csv
refused "a schedule that lacks an action" 'wrong.csv: rank 1 lacks 1B1$' \
    "$TRIREME" plan $M --ranks 2 parallel.pipeline=2 parallel.schedule=wrong.csv train.global_batch=2 \
    train.micro_batch=1 train.split_batches=true
printf '0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n' >right.csv
is "a schedule from a file" 0 "$("$TRIREME" plan $M --ranks 2 parallel.pipeline=2 \
    parallel.schedule=right.csv train.global_batch=2 train.micro_batch=1 train.split_batches=true >out 2>err; echo $?)"
refused "a schedule nobody knows" 'parallel.schedule: unknown value "zb_h2"; did you mean zb_h1' \
    "$TRIREME" plan $M parallel.schedule=zb_h2
refused "ranks of a node that a copy of the model cannot be divided among" \
    'parallel.tensor that divides the 4 ranks of a node, not 3' \
    "$TRIREME" plan $M --ranks 12 --nodes 3 parallel.strategy=HYBRID_SHARD parallel.tensor=3
refused "ranks of a node that share sequences, and not all of them" \
    'parallel.context that divides the 4 ranks of a node, not 3' \
    "$TRIREME" plan $M --ranks 12 --nodes 3 parallel.strategy=HYBRID_SHARD parallel.context=3
for case in "1 4 2 2" "2 8 2 4" "1 4 1 4" "2 8 4 2" "2 8 1 4"; do
    set -- $case
    is "HYBRID_SHARD, a copy per node: $2 ranks on $1 node(s), pipeline $3" "$4" \
        "$("$TRIREME" plan $M --ranks "$2" --nodes "$1" parallel.strategy=HYBRID_SHARD \
            parallel.pipeline="$3" train.global_batch=24 2>err | sed -n 's/.* ranks.*: .* x shard \([0-9]*\) x .*/\1/p')"
done
refused "stages of parts of several nodes, with a copy of the model per node" \
    'whole stages on a node; name parallel.shard, a divisor of the 8 ranks of a stage' \
    "$TRIREME" plan $M --ranks 24 --nodes 4 parallel.strategy=HYBRID_SHARD parallel.pipeline=3
refused "more ranks that divide layers than a stage on a node has" \
    'parallel.tensor that divides the 2 ranks of a stage, not 4' \
    "$TRIREME" plan $M --ranks 4 parallel.strategy=HYBRID_SHARD parallel.pipeline=2 parallel.tensor=4
refused "a sequence that is not cut into equal chunks" \
    'into 6 equal parts, which data.seq_len 17 does not have; data.seq_len=18 is the nearest.*; parallel.context=1 would$' \
    "$TRIREME" plan $M --ranks 3 parallel.context=3 data.seq_len=17
refused "matrices that ranks divide, for muon" 'muon needs whole matrices' \
    "$TRIREME" plan $M --ranks 2 parallel.tensor=2 train.optimizer=muon
# Advice is followed: what is named has to work.
for wrong in "4 parallel.shard=2" "4 parallel.shard=3" "6 parallel.strategy=SHARD_GRAD_OP parallel.shard=2" \
    "4 parallel.strategy=NO_SHARD parallel.replicate=3" "12 parallel.strategy=HYBRID_SHARD parallel.shard=5" \
    "12 parallel.strategy=HYBRID_SHARD parallel.shard=4 parallel.replicate=2" \
    "4 parallel.tensor=3" "12 parallel.tensor=5" "16 parallel.tensor=16" "6 parallel.tensor=4 parallel.shard=3" \
    "6 parallel.pipeline=4" "4 parallel.pipeline=3 parallel.tensor=2" "6 parallel.context=4 data.seq_len=24" \
    "12 parallel.context=3 data.seq_len=16" "4 parallel.context=2 data.seq_len=17"; do
    # shellcheck disable=SC2086
    set -- $wrong
    n=$1
    shift
    refused "$* on $n ranks: advice" '; parallel\..* would$' "$TRIREME" plan $M --ranks "$n" "$@"
    for setting in $(sed -n 's/.*; \(.*\) would$/\1/p' stderr | sed 's/ or / /g'); do
        if "$TRIREME" plan $M --ranks "$n" "$@" "$setting" >out 2>err; then
            ok "$* on $n ranks: $setting works"
        else
            not_ok "$* on $n ranks: $setting works" "$(cat err)"
        fi
    done
done
refused "plan for a machine nobody knows" 'h2000.*h200' "$TRIREME" plan $M --machine h2000
refused "plan for a machine by half its name" 'there is no machine and no file "a100"; did you mean a100-80\? known are' "$TRIREME" plan $M --machine a100
refused "plan for another machine than any" '"v100"; known' "$TRIREME" plan $M --machine v100
refused "two tensor ranks on one" '; start 2 ranks: mpirun -n 2 trireme \.\.\., or plan with --ranks 2; one rank needs parallel.tensor=1$' \
    "$TRIREME" train $M parallel.tensor=2 run.dir=never
refused "two by two ranks on three" 'does not make 3 ranks.*; parallel.layout=auto finds degrees that do$' \
    "$TRIREME" plan $M --ranks 3 parallel.tensor=2 parallel.pipeline=2
refused "two by three ranks on one" '; start 6 ranks: mpirun -n 6 ' \
    "$TRIREME" train $M parallel.strategy=HYBRID_SHARD parallel.shard=2 parallel.replicate=3 run.dir=never
refused "shared GPUs on CPUs" 'comm.share_gpu is of ranks on GPUs' "$TRIREME" train $M run.dir=never comm.share_gpu=true
printf 'mine:\n  like: h100\n  memory: 60 GiB\ncores:\n  like: h100\n  gpu: ""\n  memory: 1 GiB\n' >machines.yaml
printf 'mine:\n  like: h100\n  memry: 60 GiB\n' >wrong.yaml
refused "plan for a machine of a file that is not there" 'there is no machine and no file "none.yaml"; known are' \
    "$TRIREME" plan $M --machine none.yaml
refused "plan for a machine that the file lacks" 'machines.yaml: .*"my".*it has mine, cores' \
    "$TRIREME" plan $M --machine machines.yaml:my
refused "plan for one of several machines" 'machines.yaml has several machines .mine, cores.' \
    "$TRIREME" plan $M --machine machines.yaml
refused "plan for a machine with a misspelt key" 'wrong.yaml:3: mine: unknown key "memry".*"memory"' \
    "$TRIREME" plan $M --machine wrong.yaml
for network in 8x 8 8x400Gx x400Gb 0x400Gb 8x0Gb 8x4s 8x400; do
    refused "plan with a network of $network" "^trireme: error: --network: .*$network" \
        "$TRIREME" plan $M --machine h100 --network $network
done
refused "a network without a unit is told which" '"8x400" has no unit: 8x400Gb' "$TRIREME" plan $M --machine h100 --network 8x400
refused "nodes without ranks" '--nodes 4 needs the number of ranks on them: --ranks N' "$TRIREME" plan $M --nodes 4
refused "plan with a network of no machine" 'which machine.*--machine' "$TRIREME" plan $M --network 8x400Gb
refused "plan in a format that the GPU lacks" 'titan-rtx has no products in bf16.*fp32, fp16' \
    "$TRIREME" plan $M --machine titan-rtx device=auto precision=bf16
refused "plan for cores on GPUs" 'cores is without GPUs.*cuda' "$TRIREME" plan $M --machine machines.yaml:cores device=cuda
refused "plan for a GPU on the CPU" 'h200.*cpu' "$TRIREME" plan $M device=cpu --machine h200
finish
