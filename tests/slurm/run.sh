#!/bin/sh
# run.sh - trireme under a real Slurm (cluster.sh): batch jobs, srun, signals, requeue, and the
# two wrong starts users make.  Prints `ok`, `not ok` and `skip` lines; 77 when all is skipped.
. "$(dirname "$0")/../cli/helpers.inc"
CLUSTER=$(mktemp -d /tmp/trireme-slurm.XXXXXX) # names of sockets must be short
export CLUSTER
CLUSTER_SELF=$top/tests/slurm/cluster.sh
. "$CLUSTER_SELF"
cleanup() { cluster_stop; }

if reason=$(cluster_check 2>&1); then :; else
    skip "slurm" "$reason"
    exit 77
fi
cluster_start 2>start.err || { not_ok "the cluster starts" "$(tail -n 5 start.err)"; finish; }
ok "the cluster starts"
export TRIREME
unset OMPI_MCA_rmaps_base_oversubscribe

# on_cluster SECONDS COMMAND...
on_cluster() {
    limit=$1
    shift
    cluster_run timeout -k 5 "$limit" "$@" </dev/null
}

# submit NAME ARGUMENT...: of sbatch; its number in $job
submit() {
    job=$(on_cluster 20 sbatch --parsable "$@" 2>submit.err) || {
        not_ok "$name: accepted" "$(cat submit.err)"
        job=
        return 1
    }
}

job_field() {
    on_cluster 10 scontrol show job "$job" | tr ' ' '\n' | sed -n "s/^$1=//p" | head -n 1
}

job_over() {
    case $(job_field JobState) in
    BOOT_FAIL | CANCELLED | COMPLETED | DEADLINE | FAILED | NODE_FAIL | OUT_OF_MEMORY | PREEMPTED | TIMEOUT) ;;
    *) return 1 ;; # also flags of a job that runs, as SIGNALING while Slurm sends it a signal
    esac
}

# over SECONDS: wait for $job, as long or longer.  To ask makes some ten processes: not as often as wait_for does.
over() {
    tries=$(($1 * 8))
    until job_over; do
        [ $((tries -= 1)) -gt 0 ] || { on_cluster 10 scancel --full "$job"; return 1; }
        sleep 0.25
    done
}

# The machine is what we think: two nodes, and messages between them cross the network.
mpicc -O1 -o hello "$top/tests/slurm/hello.c"
on_cluster 60 srun --mpi=pmix -N2 --ntasks-per-node=2 ./hello >hello.out 2>hello.err
is "4 ranks on 2 nodes" 4 "$(grep -c 'of 4 on n[12], local [01] of 2, 2 nodes, data right' hello.out)"
is "which talk by the network" 4 "$(grep -c 'wire used' hello.out)"

# What the batch script asks for and hands to srun, seen through a stand-in.
cat >stand-in <<'END'
#!/bin/sh
[ "$SLURM_PROCID" != 0 ] ||
    echo "tasks $SLURM_NTASKS, gpus ${SLURM_GPUS_ON_NODE:-0}, cores $SLURM_CPUS_PER_TASK, $*"
END
chmod +x stand-in
mkdir -p "a dir"
cp "$top"/jobs/llama*.* "$top"/jobs/gpt2xl*.* "a dir"
name="batch script"
for partition in cpu gpu; do
    if TRIREME=$work/stand-in submit -p $partition "a dir/llama8b_fsdp.sh" a=1 "b=c d"; then
        over 30
        case $partition in cpu) gpus=0 ;; *) gpus=2 ;; esac
        is "$name on nodes with $gpus GPUs each" "tasks 4, gpus $gpus, cores 1, train \
$work/a dir/llama8b_fsdp.yaml run.dir=runs/llama8b_fsdp-$job a=1 b=c d" \
            "$(cat "llama8b_fsdp-$job.out")"
    fi
done

name="batch script of copies"
if TRIREME=$work/stand-in submit -p cpu "a dir/llama8b_hybrid.sh" a=1; then
    over 30
    is "$name, which runs another" "tasks 4, gpus 0, cores 1, train \
$work/a dir/llama8b_hybrid.yaml run.dir=runs/llama8b_hybrid-$job a=1" \
        "$(cat "llama8b_hybrid-$job.out")"
fi

name="batch script for two GPUs"
if TRIREME=$work/stand-in submit -p gpu "a dir/llama8b_2gpu_offload.sh" a=1; then
    over 30
    is "$name, which runs another" "tasks 2, gpus 2, cores 1, train \
$work/a dir/llama8b_2gpu_offload.yaml run.dir=runs/llama8b_2gpu_offload-$job a=1" \
        "$(cat "llama8b_2gpu_offload-$job.out")"
fi

name="batch script of three dimensions"
if TRIREME=$work/stand-in submit -p cpu -N 2 "a dir/llama70b_3d.sh" a=1; then
    over 30
    is "$name, which runs another" "tasks 4, gpus 0, cores 1, train \
$work/a dir/llama70b_3d.yaml run.dir=runs/llama70b_3d-$job a=1" \
        "$(cat "llama70b_3d-$job.out")"
fi

for way in llama8b_fsdp gpt2xl_zero3_offload; do
    name="batch script $way of one rank"
    if TRIREME=$work/stand-in TRIREME_RANKS=1 submit -N 1 "a dir/$way.sh"; then
        over 30
        is "$name gives it both cores" "tasks 1, gpus 0, cores 2" "$(cut -d, -f1-3 "$way-$job.out")"
    fi
done

# A job without the environment of the shell that submitted it: srun hands on what the script has set.
cat >environment <<'END'
#!/bin/sh
[ "$SLURM_PROCID" != 0 ] || echo "locking ${HDF5_USE_FILE_LOCKING-not set}"
END
chmod +x environment
for way in llama8b_fsdp gpt2xl_zero3_offload; do
    name="batch script $way with --export=NONE"
    if submit -N 1 --export=TRIREME="$work/environment" "$top/jobs/$way.sh"; then
        over 30
        is "$name hands on its own environment" "locking FALSE" "$(cat "$way-$job.out")"
    fi
    on_cluster 30 salloc -N 1 -n 2 env TRIREME="$work/stand-in" TRIREME_RANKS=2 "$top/jobs/$way.sh" >salloc.out 2>salloc.err
    is "$way within salloc" "0 1" "$? $(grep -c "^tasks 2, gpus 0, cores 1, train $top/jobs/$way.yaml" salloc.out)"
done
name="batch script that sbatch reads from standard input"
job=$(cluster_run timeout 20 sbatch --parsable -N 1 <"$top/jobs/llama8b_fsdp.sh") && over 30
is "$name" 1 "$(grep -c 'give sbatch its name' "llama8b_fsdp-$job.out")"

make_tokens
steps=150
M="model.preset=llama-tiny device=cpu precision=fp32 data.train=train.h5 data.valid=valid.h5
   data.seq_len=32 train.global_batch=8 train.steps=$steps train.warmup_steps=10
   train.schedule=constant
   train.eval_every=50 train.eval_batches=2 run.threads=1"
script=$top/jobs/llama8b_fsdp.sh
# Jobs that train until something happens take eight steps a second: they leave the cores to others.
mpicc -O1 -shared -fPIC -o slow_messages.so "$top/tests/slurm/slow_messages.c"
preload slowly "$work/slow_messages.so"

# A job that is left in peace
name="batch job"
if submit "$script" $M checkpoint.every=60 checkpoint.keep=3; then
    over 60 || echo "# $name did not end in time"
    is "$name ends with 0" "COMPLETED 0:0" "$(job_field JobState) $(job_field ExitCode)"
    whole=runs/llama8b_fsdp-$job
    is "$name trains every step" $steps "$(last_metric $whole step)"
    if "$TRIREME" checkpoint verify "$(newest_checkpoint $whole)" >verify.out 2>&1; then
        ok "$name leaves a whole checkpoint"
    else
        not_ok "$name leaves a whole checkpoint" "$(tail -n 3 "llama8b_fsdp-$job.out")"
    fi
fi

# Two tensor ranks and two stages, with the learning rate of FULL_SHARD's run above
name="batch job of three dimensions"
if submit -N 2 "$top/jobs/llama70b_3d.sh" $M train.lr=3e-4 parallel.tensor=2 parallel.pipeline=2; then
    over 60 || echo "# $name did not end in time"
    is "$name ends with 0" "COMPLETED 0:0" "$(job_field JobState) $(job_field ExitCode)"
    divided=runs/llama70b_3d-$job
    is "$name trains every step" $steps "$(last_metric $divided step)"
    is "$name comes to the loss of FULL_SHARD" "close" "$(echo "$(last_metric $whole loss) \
        $(last_metric $divided loss)" | awk '{ d = $1 - $2; print d * d < 1e-8 ? "close" : $0 }')"
fi

# One that is stopped in its middle queues itself again and goes on from its own newest checkpoint,
# also where its command asks for a new run, or for one that begins elsewhere.  The first start does
# not end by itself; the second one takes 30 steps more than the first has saved.
cat >endless <<END
#!/bin/sh
for word; do case \$word in run.dir=*) run=\${word#run.dir=} ;; esac; done
saved=\$(ls "\$run/checkpoints" 2>/dev/null | sed -n 's/^step-0*\([1-9][0-9]*\)\$/\1/p' | tail -n 1)
[ "\${SLURM_RESTART_COUNT:-0}" != 0 ] || saved=1000000
exec "$TRIREME" "\$@" train.steps=\$((\${saved:-0} + 30))
END
chmod +x endless
begin=$whole/checkpoints/step-00000060
for how in "" checkpoint.resume=none checkpoint.resume="$begin"; do
    name="signalled job${how:+ with ${how%%/*}}" first=1
    [ "$how" != checkpoint.resume="$begin" ] || first=61
    # shellcheck disable=SC2086
    TRIREME=$work/endless submit "$script" $M $how || continue
    run=runs/llama8b_fsdp-$job out=llama8b_fsdp-$job.out
    all= # or the signal comes to the script's shell as well
    [ "$how" != checkpoint.resume=none ] || all=--full
    # shellcheck disable=SC2086
    if wait_for 30 has_steps $run 10 && on_cluster 10 scancel --signal=USR1 $all "$job"; then
        over 90 || echo "# $name did not end in time"
    fi
    ended="$(job_field JobState) $(job_field ExitCode)"
    if [ "$ended" = "COMPLETED 0:0" ]; then
        ok "$name ends with 0"
    else
        not_ok "$name ends with 0" "$ended $(tail -n 10 "$out" | cut -c 1-200)"
    fi
    is "$name was requeued once, by itself" 1 "$(job_field Restarts)"
    went=$(sed -n "s|.*resumed at step \([0-9]*\) from $run/checkpoints/.*|\1|p" "$out")
    is "$name goes on from its own checkpoint" 1 "$((${went:-0} > first + 8))"
    is "$name trains every step once" "$first-$((went + 30))" "$(steps_of $run)"
    # shellcheck disable=SC2086
    submit "$script" $M train.steps=$((went + 30)) || continue
    over 60 || echo "# an undisturbed job did not end in time"
    peace=runs/llama8b_fsdp-$job
    ended="$(job_field JobState) $(job_field ExitCode)"
    [ "$ended" = "COMPLETED 0:0" ] || not_ok "$name: an undisturbed job ends with 0" \
        "$ended $(tail -n 10 "llama8b_fsdp-$job.out" | cut -c 1-200)"
    is "$name: the same loss to the bit" "$(last_metric $peace loss)" "$(last_metric $run loss)"
    if same_state $peace $run; then
        ok "$name: the same state to the bit"
    else
        not_ok "$name: the same state to the bit" "$(tail -n 3 "$out")"
    fi
done

# One that runs into its time limit, goes on, and is then cancelled.  Slurm looks at limits every
# 30 s: the signal comes 10 to 40 s after the start.
name="job at its time limit"
if TRIREME=$work/slowly submit -t 1 --signal=USR1@20 "$script" $M train.steps=1000000 run.log_every=1000; then
    run=runs/llama8b_fsdp-$job
    if wait_for 90 grep -q 'resumed at step' "llama8b_fsdp-$job.out"; then
        ok "$name saves, is requeued and resumes"
        went=$(sed -n 's/.*resumed at step \([0-9]*\).*/\1/p' "llama8b_fsdp-$job.out")
        wait_for 30 has_steps $run $((went + 10))
    else
        not_ok "$name saves, is requeued and resumes" "$(tail -n 3 "llama8b_fsdp-$job.out")"
    fi
    on_cluster 10 scancel "$job"
    over 30
    is "cancelled job stays cancelled" "CANCELLED 1" "$(job_field JobState) $(job_field Restarts)"
    last=$(last_metric $run step)
    is "cancelled job has saved its last step" "$(printf 'step-%08d' "${last:-0}")" \
        "$(basename "$(newest_checkpoint $run)")"
fi

# One that is asked to save as soon as it starts, every time.
cat >at-once <<'END'
#!/bin/sh
for word; do case $word in run.dir=*) run=${word#run.dir=} ;; esac; done
folder=$run/checkpoints/step-00000020
[ -e "$folder/COMMIT" ] || { mkdir -p "$folder" && : >"$folder/COMMIT"; }
exit 75
END
chmod +x at-once
name="job that saves nothing new"
if TRIREME=$work/at-once submit -t 5 "$top/jobs/gpt2xl_zero3_offload.sh"; then
    wait_for 60 grep -q 'twice in a row: job [0-9]* is not queued again' "gpt2xl_zero3_offload-$job.out"
    over 30
    is "$name is queued again twice at most" "FAILED 75:0 2" \
        "$(job_field JobState) $(job_field ExitCode) $(job_field Restarts)"
    is "$name says that its time limit is too short" 3 \
        "$(grep -c 'the time limit is 00:05:00, and #SBATCH --signal' "gpt2xl_zero3_offload-$job.out")"
    is "$name does not say that state was saved" 2 "$(grep -c 'nothing new was saved (newest checkpoint: step 20)' \
        "gpt2xl_zero3_offload-$job.out")"
fi

# Of a job array the last task has the number of the whole array for its own.
cat >in-array <<'END'
#!/bin/sh
for word; do case $word in run.dir=*) mkdir -p "${word#run.dir=}" ;; esac; done
[ "$SLURM_ARRAY_TASK_ID ${SLURM_RESTART_COUNT:-0}" != "1 0" ] || exit 75
END
chmod +x in-array
# Each has one rank: srun ends another one by SIGTERM, which this script does not block as trireme does, if it has not
# come to its own exit yet.
name="job array"
for way in llama8b_fsdp llama8b_hybrid gpt2xl_zero3_offload; do
    TRIREME_RANKS=1 TRIREME=$work/in-array submit --array=0-1 -N 1 -t 5 "$top/jobs/$way.sh" || continue
    array=$job job=${array}_1
    over 60
    last="$(job_field JobState) $(job_field Restarts)"
    job=${array}_0
    over 30
    is "$name of $way: its last task is queued again, alone" "COMPLETED 1, COMPLETED 0" \
        "$last, $(job_field JobState) $(job_field Restarts)"
    is "$name of $way: its time limit" 1 "$(grep -c 'the time limit is 00:05:00, and' "$way-$array.out")"
done

# One that loses a rank
name="job with a killed rank"
if TRIREME=$work/slowly submit "$script" $M train.steps=1000000 run.log_every=1000; then
    run=runs/llama8b_fsdp-$job
    wait_for 30 has_steps $run 10
    kill -KILL "$(pgrep -f "^$TRIREME train .*run.dir=$run " | tail -n 1)"
    over 40 || echo "# $name did not end in time"
    is "$name has failed and is not queued again" "FAILED 0" \
        "$(job_field JobState) $(job_field Restarts)"
    # A newer Slurm puts the ranks of a node together, once it has killed the other one as well.
    if grep -qE 'tasks? [0-3](-[0-3])?: Killed' "llama8b_fsdp-$job.out"; then
        ok "$name: the rank is named"
    else
        not_ok "$name: the rank is named" "$(tail -n 3 "llama8b_fsdp-$job.out")"
    fi
fi

# One that is suspended for longer than run.hang_seconds
name="suspended job"
if TRIREME=$work/slowly submit "$script" $M train.steps=1000000 run.log_every=1000 run.hang_seconds=5; then
    run=runs/llama8b_fsdp-$job
    wait_for 60 has_steps $run 10
    on_cluster 10 scontrol suspend "$job"
    sleep 1
    before=$(last_metric $run step)
    sleep 12
    at=$(last_metric $run step)
    is "$name stands still" "$before" "$at"
    on_cluster 10 scontrol resume "$job"
    if wait_for 30 has_steps $run $((at + 20)); then
        ok "$name goes on"
    else
        not_ok "$name goes on" "$(tail -n 3 "llama8b_fsdp-$job.out")"
    fi
    on_cluster 10 scancel "$job"
    over 40 || echo "# $name did not end in time"
fi

# Slurm lets MPI_Init of one node end while that of another has not (src/comm/pmix.c).
name="rank that is late in MPI_Init"
mpicc -O1 -shared -fPIC -o late_start.so "$top/tests/slurm/late_start.c" -ldl -lpthread
preload starts_late "$work/late_start.so"
on_cluster 60 srun --mpi=pmix -N2 --ntasks-per-node=2 "$work/starts_late" train $M run.dir=late train.warmup_steps=0 \
    train.steps=3 >late.out 2>&1
code=$?
is "$name: the others wait for it" "0 3" "$code $(last_metric late step)"
[ $code = 0 ] || tail -n 5 late.out | sed 's/^/# /'

# By hand
on_cluster 90 srun --mpi=pmix -N2 --ntasks-per-node=2 "$TRIREME" train $M \
    run.dir=by-hand train.warmup_steps=0 train.steps=20 >hand.out 2>hand.err
is "srun by hand" "0 20" "$? $(last_metric by-hand step)"

for way in block cyclic; do
    on_cluster 90 srun --mpi=pmix -N2 --ntasks-per-node=2 --distribution=$way "$TRIREME" train $M \
        run.dir=placed-$way train.warmup_steps=0 train.steps=2 >placed.out 2>placed.err
    is "nodes are named once, ranks placed in a $way way" "0 1" \
        "$? $(grep -c ' on 2 nodes (n1, n2)[,;]' placed-$way/log.txt)"
done

# Weights that one rank of each node reads for it
"$TRIREME" convert by-hand folder >convert.out 2>&1
for how in each node; do
    on_cluster 90 srun --mpi=pmix -N2 --ntasks-per-node=2 "$TRIREME" train model.path=folder device=cpu \
        data.train=train.h5 data.seq_len=32 train.global_batch=8 parallel.strategy=HYBRID_SHARD \
        model.loading=$how model.sync_module_states=true run.threads=1 run.dir=$how train.steps=3 >$how.out 2>$how.err
    is "weights on two nodes, model.loading=$how" "0 3" "$? $(last_metric $how step)"
done
if same_state each node; then ok "the same state to the bit"; else
    not_ok "the same state to the bit" "$(tail -n 3 node.err)"; fi

# Ranks that divide layers, on one node and on two
on_cluster 90 srun --mpi=pmix -N2 --ntasks-per-node=2 "$TRIREME" train $M parallel.tensor=2 \
    parallel.tensor_overlap=2 run.dir=near train.warmup_steps=0 train.steps=3 >near.out 2>near.err
is "tensor ranks of one node" "0 3 0" "$? $(last_metric near step) $(grep -c 'divide layers' near.err)"
on_cluster 90 srun --mpi=pmix -N2 --ntasks-per-node=2 "$TRIREME" train $M parallel.tensor=4 \
    run.dir=far train.warmup_steps=0 train.steps=3 >far.out 2>far.err
is "tensor ranks of two nodes are warned of, once" "0 3 1" "$? $(last_metric far step) $(grep -cE \
    'warning: ranks 0 \(n1\) and 2 \(n2\) divide layers, on different nodes' far.err)"

# A link that is slower than it was when the machine was measured: 50 Mbit/s to n2
name="link slowed by traffic shaping"
on_cluster 60 srun --mpi=pmix -N2 --ntasks-per-node=1 "$TRIREME" doctor --measure two.yaml --quick \
    >measure.out 2>&1
is "two nodes are measured" "0 6" "$? $(sed -n '/^  transfers:/,$p' two.yaml | grep -E ', *2, *2, ' |
    sed 's/.*\[\([a-z_]*\),.*/\1/' | sort -u | wc -l)"
if ! shaped=$(on_cluster 10 tc qdisc add dev n2 root tbf rate 50mbit burst 64kb latency 400ms 2>&1); then
    skip "$name" "tc cannot shape here: $(echo "$shaped" | tail -n 1)"
else
    on_cluster 90 srun --mpi=pmix -N2 --ntasks-per-node=1 "$TRIREME" train $M run.machine=two.yaml \
        run.dir=shaped train.warmup_steps=0 train.steps=10 >shaped.out 2>shaped.err
    is "$name: the run" "0 10" "$? $(last_metric shaped step)"
    said=$(grep -aE 'trireme: (warning: )?step takes' shaped.err)
    case $said in
    *"between nodes n1 and n2 move "*" MB/s, planned "*"likely TCP over eth0"*) ok "$name is named" ;;
    *) not_ok "$name is named" "$said" ;;
    esac
    is "$name is in the metrics" 1 "$(grep -c '"compared": {"cause": "transfer"' shaped/metrics.jsonl)"
    on_cluster 10 tc qdisc del dev n2 root
fi

# Wrong starts
printf '#!/bin/sh\nexec "%s" run srun "$@"\n' "$CLUSTER_SELF" >srun
chmod +x srun
refused "srun without --mpi=pmix: one line says so" 'srun --mpi=pmix' \
    "$work/srun" --mpi=none -N2 --ntasks-per-node=2 "$TRIREME" train $M run.dir=never
# An MPI that was not built for PMI-2 ends the job in its own words, of which none says what to do here.
if on_cluster 10 srun --mpi=list 2>&1 | grep -q pmi2; then
    on_cluster 60 srun --mpi=pmi2 -N2 --ntasks-per-node=2 "$TRIREME" train $M run.dir=never >out 2>err
    is "srun --mpi=pmi2: one line says what to do, before MPI starts" 1 \
        "$(grep -c '^trireme: srun starts MPI by PMI-2 .*start with srun --mpi=pmix$' err)"
else
    skip "srun --mpi=pmi2" "this Slurm has none"
fi
# One process: of srun without PMIx, several after one another in one task of srun, and none of salloc's.
cat >several <<END
#!/bin/sh
for steps in 1 2 3; do "$TRIREME" train \$* train.steps=\$steps || exit; done
END
chmod +x several
for way in none pmix; do
    # shellcheck disable=SC2086
    on_cluster 60 srun --mpi=$way -N1 -n1 ./several $M run.dir=alone-$way >out 2>err
    is "three processes in one task of srun --mpi=$way" "0 1-3" "$? $(steps_of alone-$way)"
done
printf '#!/bin/sh\nexec "%s" run salloc "$@"\n' "$CLUSTER_SELF" >salloc
chmod +x salloc
# shellcheck disable=SC2086
"$work/salloc" -Q -N2 "$TRIREME" train $M run.dir=never >out 2>err </dev/null
is "one process in a job of two nodes is refused" "1 1" \
    "$? $(grep -c 'this Slurm job has 2 nodes but trireme was started without srun' err)"
refused "srun with a misspelt key: one line" 'train\.stpes.*train\.steps' \
    "$work/srun" --mpi=pmix -N2 --ntasks-per-node=2 "$TRIREME" train $M train.stpes=3
name="job with a misspelt key"
if submit "$script" $M train.stpes=3; then
    over 30
    is "$name is not queued again" "FAILED 1:0 0" \
        "$(job_field JobState) $(job_field ExitCode) $(job_field Restarts)"
fi
finish
