#!/bin/sh
# signals.sh - signals, closed pipes and lost terminals: what was trained is saved, a start that is
# stopped says so, and the user can always end the program.
#
# SIGNAL_STARTS starts (default 8; make check-chaos makes 40) are signalled at moments spread over a
# start, by SIGNALS in turn (default "TERM USR1 INT").
. "$(dirname "$0")/../cli/helpers.inc"

make_tokens
# In the background of a shell SIGINT is ignored; train is to see it as from a terminal.
defaults=
env --default-signal=INT,HUP true 2>/dev/null && defaults="env --default-signal=INT,HUP"
M="model.preset=llama-tiny device=cpu precision=fp32 data.seq_len=32 train.global_batch=4
   train.steps=100000 train.lr=1e-3 train.schedule=constant run.threads=1"
D="data.train=$work/train.h5"

# alone RUN KEY=VALUE...: one rank in the background; $job is the rank itself.
alone() {
    run=$1
    shift
    $defaults "$TRIREME" train $M run.dir="$run" "$@" >"$run.out" 2>"$run.err" &
    job=$!
}

# Does a process watch for signals yet?  SIGTERM, 15, is blocked then.
is_watching() {
    [ "$(cat "/proc/$1/comm" 2>/dev/null)" != "$(cat /proc/$$/comm)" ] && # a shell that is still to start it
        blocked=$(sed -n 's/^SigBlk:[[:space:]]*//p' "/proc/$1/status") && [ -n "$blocked" ] &&
        [ $((0x$(echo "$blocked" | cut -c13-16) & 0x4000)) != 0 ]
}

# state_saved NAME RUN: its newest checkpoint is of the last step in its metrics.
state_saved() {
    last=$(last_metric "$2" step)
    is "$1: the last step is saved" "$(printf 'step-%08d' "${last:-0}")" \
        "$(basename "$(newest_checkpoint "$2")")"
}

# A reader that leaves: training goes on, and the log tells the rest.
head_of() { # NAME LAUNCHER...
    name=$1
    shift
    ("$@" "$TRIREME" train $M $D train.steps=30 run.log_every=1 run.dir="$name" 2>&1
    echo $? >"$name.code") | head -n 2 >"$name.head"
    is "train | head ($name)" 0 "$(cat "$name.code")"
    state_saved "train | head ($name)" "$name"
    is "train | head ($name): the log goes on" 1 "$(grep -c 'step 30/30' "$name/log.txt")"
}
head_of alone
is "train | head: the reader had its lines" 2 "$(wc -l <alone.head)"

if [ -n "$defaults" ]; then
    for signal in INT HUP; do
        alone "one-$signal" $D
        wait_for 60 has_steps "one-$signal" 5
        kill -$signal $job
        ended
        is "SIG$signal saves" 75 $code
        state_saved "SIG$signal" "one-$signal"
    done
    is "SIGINT: it is said what comes" "1 1" "$(grep -c 'SIGINT: the state will be saved' one-INT.err) $(
        grep -c 'Z trireme: SIGINT: the state will be saved' one-INT/log.txt)"
    # A step of seconds is not waited for.
    alone twice $D train.global_batch=4000
    wait_for 60 has_steps twice 1
    kill -INT $job
    wait_for 10 grep -q 'SIGINT: the state will be saved' twice.err
    interrupted_ns=$(date +%s%N)
    kill -INT $job
    ended
    ms=$((($(date +%s%N) - interrupted_ns) / 1000000))
    step_ms=$(last_metric twice step_ms | cut -d. -f1)
    is "a second SIGINT ends training, without a checkpoint" "130 0" \
        "$code $(newest_checkpoint twice | grep -c .)"
    if [ $ms -lt $((step_ms / 2)) ]; then ok "in the middle of a step"; else
        not_ok "in the middle of a step" "after $ms of $step_ms ms"
    fi
else
    skip "SIGINT and SIGHUP save" "this env cannot reset signals"
fi
# What LSF and Grid Engine send before they kill a job.
for signal in USR2 XCPU; do
    alone "one-$signal" $D
    wait_for 60 has_steps "one-$signal" 5
    kill -$signal $job
    ended
    is "SIG$signal saves" "75 1" "$code $(grep -c "SIG$signal: the state will be saved" "one-$signal.err")"
    state_saved "SIG$signal" "one-$signal"
done
nohup "$TRIREME" train $M $D run.dir=nohup >nohup.out 2>nohup.err &
job=$!
wait_for 60 has_steps nohup 5
kill -HUP $job
now=$(last_metric nohup step)
if wait_for 30 has_steps nohup $((now + 20)); then
    ok "under nohup SIGHUP means nothing"
else
    not_ok "under nohup SIGHUP means nothing" "$(tail -n 2 nohup.err)"
fi
kill -TERM $job
ended
is "under nohup SIGTERM saves" 75 $code

# In an evaluation, which may be long, the state is saved at once, and the next start evaluates it.
# This one takes seconds; a signal that comes before it, in step 5, has the same end.
V="$D data.valid=$work/train.h5,$work/train.h5 train.eval_every=5 train.eval_micro_batch=1"
for end in 5 7; do
    "$TRIREME" train $M $V train.steps=$end run.dir=whole-$end >whole.out 2>whole.err
    alone evaluates $V train.steps=$end
    wait_for 60 has_steps evaluates 4
    kill -USR1 $job
    ended
    is "a signal in the evaluation of step 5 of $end saves" "75 0" \
        "$code $(grep -c eval_loss evaluates/metrics.jsonl)"
    state_saved "a signal in an evaluation" evaluates
    "$TRIREME" train $M $V train.steps=$end run.dir=evaluates >out 2>err
    is "the next start evaluates step 5 of $end" "0 1" \
        "$? $(grep -c 'the evaluation of step 5, which a stop had interrupted: valid' err)"
    is "with the same losses" "$(sed -n 's/.*"eval_loss": *\([^,}]*\).*/\1/p' whole-$end/metrics.jsonl | xargs)" \
        "$(sed -n 's/.*"eval_loss": *\([^,}]*\).*/\1/p' evaluates/metrics.jsonl | xargs)"
    "$TRIREME" train $M $V train.steps=$end run.dir=evaluates >out 2>err
    is "a start after the evaluation of step 5 of $end does nothing" "0 1 0" \
        "$? $(grep -c 'nothing to do' err) $(grep -c 'evaluation of step' err)"
    rm -r evaluates
done
alone evaluates $V train.steps=5 checkpoint.keep_best=true
wait_for 60 has_steps evaluates 4
kill -USR1 $job
ended
"$TRIREME" train $M $V train.steps=5 run.dir=evaluates checkpoint.keep_best=true train.eval_batches=3 >out 2>err
is "one that became shorter is made up for, too" "0 1 step-00000005" \
    "$? $(grep -c eval_loss evaluates/metrics.jsonl) $(readlink evaluates/checkpoints/best)"

# While samples are written, too: none of that evaluation are then, and its next start makes all of
# it.  The texts of one evaluation take a third of the whole run or more.
V="$D data.valid=$work/valid.h5 train.eval_every=5 train.steps=7 generate.samples=8"
L="generate.tokens=40000 generate.min_tokens=40000"
began=$(date +%s%N)
"$TRIREME" train $M $V $L run.dir=told >told.out 2>told.err
whole_ms=$((($(date +%s%N) - began) / 1000000))
alone tells $V $L
wait_for 60 has_steps tells 4
sleep 0.7
stopped_ns=$(date +%s%N)
kill -USR1 $job
ended
ms=$((($(date +%s%N) - stopped_ns) / 1000000))
is "a signal while samples are written saves" "75 5 0" "$code $(last_metric tells step) $(wc -l <tells/samples.jsonl)"
state_saved "a signal while samples are written" tells
if [ $ms -lt $((whole_ms / 4)) ]; then ok "at once"; else not_ok "at once" "after $ms ms of $whole_ms"; fi
"$TRIREME" train $M $V $L run.dir=tells >out 2>err
is "the next start writes them" "0 1" "$? $(grep -c 'the evaluation of step 5, which a stop had interrupted: valid' err)"
if cmp told/samples.jsonl tells/samples.jsonl >cmp.log 2>&1; then ok "the same ones"; else
    not_ok "the same ones" "$(cat cmp.log)"
fi

# After the last step: the answer says that all is saved and what is being written, which the same
# command makes where it is killed.
if mpicc -shared -fPIC -o bad_node.so "$top/tests/cli/bad_node.c" -ldl 2>cc.log; then
    E="$D train.steps=3 checkpoint.export_hf=true run.dir=exports"
    preload bad_node "$work/bad_node.so"
    BAD_RANK=0 BAD_FILE=hf.partial BAD_MS=60000 \
        mpirun --oversubscribe -n 1 ./bad_node train $M $E >exports.out 2>exports.err &
    job=$!
    wait_for 60 test -e exports/hf.partial
    rank=$(rank_pids $job)
    kill -TERM $rank
    wait_for 10 grep -q '^trireme: SIGTERM' exports.err
    kill -KILL $rank
    ended
    is "a signal after the last step is answered with what is true" \
        "training is over, and its state is saved; the model is being written to exports/hf: where that is cut short, \
run me again" "$(sed -n 's/^trireme: SIGTERM: //p' exports.err)"
    "$TRIREME" train $M $E >out 2>err
    is "an export cut short by a signal is written by the same command" "0 model.safetensors" "$? $(ls exports/hf | grep safetensors)"
else
    skip "a signal after the last step" "no mpicc: $(head -n 1 cc.log)"
fi

# The last line says how to go on: the same command would set the run aside, or be refused.
stopped() { # NAME WORDS KEY=VALUE...: a run that is stopped says WORDS after "saved at step N, "
    name=$1 words=$2
    shift 2
    rm -f again.err
    alone again $D run.log_every=1 "$@"
    wait_for 60 grep -q '^trireme: step' again.err
    kill -TERM $job
    ended
    is "stopped, $name: how to go on" "75 $words" \
        "$code $(sed -n 's/^trireme: asked to stop: state saved at step [0-9]*, //p' again.err)"
}
stopped "plain" "run me again"
stopped "run.fresh=true" "run me again without run.fresh=true" run.fresh=true
step=$(last_metric again step)
stopped "and again without it" "run me again"
grep -q "resumed at step $step from again/" again.err && ok "goes on from there" ||
    not_ok "goes on from there" "$(tail -n 3 again.err)"
export SLURM_JOB_ID=77
stopped "run.fresh=true in a job" "requeue this job, or run me again without run.fresh=true" \
    run.fresh=true checkpoint.resume=auto
unset SLURM_JOB_ID
rm -r again
stopped "checkpoint.resume=none" "run me again with checkpoint.resume=auto" checkpoint.resume=none
rm -r again
stopped "both" "run me again without run.fresh=true and with checkpoint.resume=auto" \
    checkpoint.resume=none run.fresh=true

# A start that is stuck in a file that does not open: two seconds without computing.
is_stuck() {
    is_watching "$1" && before=$(cut -d' ' -f14,15 "/proc/$1/stat") && sleep 2 &&
        [ "$(cut -d' ' -f14,15 "/proc/$1/stat")" = "$before" ]
}
cat >stuck.c <<'END'
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    while (strstr(path, "closed/log.txt"))
        pause();
    return openat(AT_FDCWD, path, flags, mode);
}
END
if ! ${CC:-cc} -shared -fPIC -o stuck.so stuck.c 2>cc.log; then
    skip "a start in a stuck file" "no compiler: $(head -n 1 cc.log)"
else
    preload stuck_trireme "$work/stuck.so"
    TRIREME=$work/stuck_trireme alone closed $D
    wait_for 30 is_stuck $job
    kill -TERM $job
    ended
    is "a start in a stuck file is ended by SIGTERM" 143 $code
    is "a start in a stuck file ends with one line" 1 "$(grep -c '^trireme: ' closed.err)"
    if [ -n "$defaults" ]; then
        TRIREME=$work/stuck_trireme alone closed $D
        wait_for 30 is_stuck $job
        kill -INT $job
        sleep 0.2
        kill -INT $job
        ended
        is "a start in a stuck file is ended by a second SIGINT at once" 130 $code
        is "without a word" 0 "$(grep -c '^trireme: ' closed.err)"
    fi
fi

# On a terminal the answer replaces the line of progress.
if command -v script >/dev/null && script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    cat >pty.sh <<'END'
"$TRIREME" train $M $D run.dir=pty &
tries=600
until [ "$(wc -l <pty/metrics.jsonl)" -gt 20 ] || [ $((tries -= 1)) = 0 ]; do sleep 0.1; done 2>/dev/null
kill -TERM $!
wait $!
END
    export TRIREME M D
    TERM=xterm timeout 300 script -qec "sh pty.sh" /dev/null </dev/null >pty.out 2>&1
    is "the answer replaces the line of progress" "75 1 1" "$? $(grep -c 'trireme: SIGTERM' pty.out) $(
        grep -c "$(printf '\r\033')\[Ktrireme: SIGTERM: the state will be saved" pty.out)"
else
    skip "the answer on a terminal" "no script that gives one"
fi

# Starts that are signalled at some moment: before training with nothing to resume by one line, else
# and after by 75.  The moments are spread over a fifth more than a start took.
[ -n "$defaults" ] && : "${SIGNALS:=TERM USR1 INT}" || SIGNALS="TERM USR1"
starts=${SIGNAL_STARTS:-8}
alone timed $D
wait_for 30 is_watching $job
began=$(date +%s%N)
wait_for 30 has_steps timed 1
start_ms=$((($(date +%s%N) - began) / 1000000))
kill -TERM $job
ended
early=0 late=0 bad= set_aside=$SIGNALS
for i in $(seq "$starts"); do
    [ -n "$set_aside" ] || set_aside=$SIGNALS
    signal=${set_aside%% *}
    set_aside=${set_aside#"$signal"} set_aside=${set_aside# }
    kept=$([ $((i % 4)) -gt 1 ] && echo timed || echo fresh-$i)
    alone "$kept" $D
    wait_for 30 is_watching $job
    sleep "$(awk "BEGIN { print ($i - 1) * 1.2 * $start_ms / 1000 / $starts }")"
    kill -$signal $job
    ended
    lines=$(grep -c 'before training began' "$kept.err")
    early=$((early + lines)) late=$((late + 1 - lines))
    case $code.$lines.$(newest_checkpoint "$kept" | grep -c .).$signal in
    75.[01].1.* | 143.1.0.TERM | 138.1.0.USR1 | 130.1.0.INT) ;;
    *) bad="$bad $i:$signal:$kept:$code:$lines" ;;
    esac
done
# A start on a quiet machine may be over before the first of these signals: then one that comes as
# soon as the process watches.
for i in $(seq 20); do
    [ $early = 0 ] || break
    alone "soon-$i" $D
    until is_watching $job 2>/dev/null; do [ -e /proc/$job ] || break; done
    kill -TERM $job
    ended
    early=$(grep -c 'before training began' "soon-$i.err")
done
echo "# $starts starts of $start_ms ms: $early signals before training, $late in it"
is "signals during a start end with 75, or by one line where nothing is saved" none "${bad:-none}"
if [ $early -gt 0 ]; then ok "some of them came before training"; else
    not_ok "some of them came before training" "none of them did"
fi

# The same under mpirun: a signal to one rank during the start is one for all.
ranks 2 "$TRIREME" train $M $D train.steps=5 run.dir=two >two.out 2>two.err ||
    not_ok "a run of two ranks to begin with" "$(tail -n 3 two.err)"
mpirun --oversubscribe -n 2 "$TRIREME" train $M $D run.dir=two >two.out 2>two.err &
job=$!
second_watches() { is_watching "$(rank_pids $job | tail -n 1)"; }
wait_for 30 second_watches
kill -TERM "$(rank_pids $job | tail -n 1)"
ended
is "a signal to one rank of two in the start" 75 $code
is "of which launchers may be the sender" "$(grep -c 'before training began' two.err)" \
    "$(grep -c 'before training began (mpirun or srun also sends signals where another rank' two.err)"
# And one to the second rank, while samples are written.
L="generate.tokens=1000000 generate.min_tokens=1000000"
mpirun --oversubscribe -n 2 "$TRIREME" train $M $V $L run.dir=two-tell >two.out 2>two.err &
job=$!
wait_for 60 has_steps two-tell 4
sleep 0.7
kill -USR1 "$(rank_pids $job | tail -n 1)"
ended
is "a signal to one rank of two while samples are written" "75 5 0" \
    "$code $(last_metric two-tell step) $(wc -l <two-tell/samples.jsonl)"
ranks 2 "$TRIREME" train $M $V generate.tokens=9 run.dir=two-tell >two.out 2>two.err
is "the next start of both writes them" "0 16" "$? $(wc -l <two-tell/samples.jsonl)"
# Ctrl-C at mpirun reaches the ranks as SIGTERM, and mpirun itself ends with 1.  How long it waits then
# is said, and SIGUSR1, which it passes on, is not followed by SIGKILL.
answer() { sed -n "s/^trireme: $1: the state will be saved after this step//p" two.err; }
V=OMPI_MCA_odls_base_sigkill_timeout
gone="; where another rank has ended, nothing is saved, and the last line of that rank or the launcher's says why"
stopped="; if mpirun was stopped (Ctrl-C), it kills the ranks after"
takes="where a step and saving take longer"
# signal_two SIGNAL WHOM OPTION...: a signal to two ranks that train, at mpirun or the first rank
signal_two() {
    signal=$1 whom=$2
    shift 2
    mpirun --oversubscribe "$@" -n 2 "$TRIREME" train $M $D run.dir=two >two.out 2>two.err &
    job=$!
    wait_for 60 has_steps two "$(($(wc -l <two/metrics.jsonl) + 5))"
    case $whom in mpirun) kill -$signal $job ;; rank) kill -$signal "$(rank_pids $job | head -n 1)" ;; esac
    ended
}
if [ "$(mpirun --oversubscribe -n 1 sh -c 'echo "$PRTE_LAUNCHED"')" = 1 ]; then
    # Open MPI 5: 0.25 s, whatever is set, and it prints no line that comes after the signal.
    for signal in HUP TERM; do
        signal_two $signal mpirun
        is "SIG$signal to mpirun" 1 $code
    done
    skip "SIGHUP and SIGTERM to mpirun save" "the mpirun of Open MPI 5 kills ranks after 0.25 s"
    signal_two TERM rank --mca odls_base_sigkill_timeout 3
    is "the same command goes on" "75 1" "$code $(grep -c 'resumed at step' two.err)"
    is "a signal's answer says when mpirun kills, and what to do" \
        "$gone$stopped 0.25 s: $takes, send mpirun SIGUSR1, which leaves time" "$(answer SIGTERM)"
else
    signal_two HUP mpirun
    state_saved "SIGHUP to mpirun" two
    is "a signal's answer says when mpirun kills, and what to do" \
        "$gone$stopped 1 s: $takes, set $V to their seconds, or send mpirun SIGUSR1, which leaves time" \
        "$(answer SIGTERM)"
    signal_two TERM mpirun --mca odls_base_sigkill_timeout 3
    state_saved "SIGTERM to mpirun" two
    is "where the time is set, it is said" "$gone$stopped 3 s ($V)" "$(answer SIGTERM)"
fi
signal_two USR1 mpirun
is "SIGUSR1 to mpirun saves" "75 ." "$code $(answer SIGUSR1)."
state_saved "SIGUSR1 to mpirun" two
finish
