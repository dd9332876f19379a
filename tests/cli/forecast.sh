#!/bin/bash
# forecast.sh - what a run makes of its forecast: forecast.json and its line, the machine that is
# named, and the line that names a rank which is slowed by loops on its core.
. "$(dirname "$0")/../cli/helpers.inc"

: "${TRIREME_CUDA:=$(dirname "$TRIREME")/trireme-emulated}"
make_tokens
M="model.preset=llama-tiny device=cpu data.train=$work/train.h5 data.seq_len=64 train.global_batch=8
   run.threads=1"

# compared RUN MEMBER: of the comparisons in a run's metrics, one a line.
compared() { sed -n 's/.*"compared": {\(.*\)}.*/\1/p' "$1/metrics.jsonl" |
    sed "s/.*\"$2\": *\"\{0,1\}\([^,}\"]*\).*/\1/"; }

# A machine for which it is slow, and one for which it is fast.
machine() {
    echo "$1:
  memory: 1 GiB
  per_node: 4
  peak: {fp32: $2}
  attention: {forward: 0.5, backward: 0.5}
  bandwidth: $3
  bandwidth_efficiency: 0.5
  node: {bandwidth: 100 GB/s, efficiency: 1, latency: 0 s}
  network: {bandwidth: 100 GB/s, ports: 1, efficiency: 1, latency: 0 s}
  beside: {compute: 1, transfer: 1}
  host: {link: 1 GB/s, bandwidth: 1 GB/s}
  disk: {read: 1 GB/s, write: 1 GB/s}"
}
{ machine fast "100 Tflop/s" "10 TB/s"; machine slow "0.01 Gflop/s" "1 MB/s"; } >machines.yaml

# The forecast is that of the plan, and the run is compared with it.
"$TRIREME" train $M run.machine=machines.yaml:fast train.steps=11 run.dir=fast \
    >fast.out 2>fast.err
is "a run with a machine" 0 $?
"$TRIREME" plan $M --ranks 1 --machine machines.yaml:fast --json plan.json >plan.out 2>&1
is "forecast.json has the step of the plan" "$(sed -n 's/ *"step_ms": \([0-9.e-]*\),/\1/p' plan.json |
    awk 'NR == 1 { printf "%.6g", $1 }')" "$(sed -n 's/ *"step_s": \([0-9.e-]*\),/\1/p' fast/forecast.json |
    awk '{ printf "%.6g", 1000 * $1 }')"
is "a line of the log has the forecast" 1 "$(grep -c 'trireme: forecast: .* a step, [0-9]* tokens/s (machine fast)' fast.err)"
# Beside other programs it may wait for its core longer than it computes too long.
case $(compared fast cause) in
cores) said="all ranks wait .* of it for a core; likely other programs there" ;;
*) said="all ranks compute at .* of the speed of fast" ;;
esac
is "a machine that computes slower than it is described to" 1 "$(
    grep -c "warning: step takes .*, forecast .* (+.* %): $said" fast.err)"
is "the same line is in the metrics" 1 "$(grep -cF "$(sed -n 's/.*warning: \(step takes.*\)/\1/p' fast.err)" \
    fast/metrics.jsonl)"
"$TRIREME" train $M run.machine=machines.yaml:slow train.steps=11 run.dir=slow \
    >slow.out 2>slow.err
is "one that is faster" "0 faster 1" "$? $(compared slow cause) $(
    grep -c 'trireme: step takes .*: faster than machine slow is described to be' slow.err)"
"$TRIREME" train $M run.machine=off train.steps=12 run.dir=never \
    >never.out 2>never.err
is "never compared" "0 0 0" "$? $(grep -c 'step takes' never.err) $(compared never cause | wc -l)"
"$TRIREME" train $M train.steps=12 run.dir=plain >plain.out 2>plain.err
is "without a machine one rank has nothing to be compared with" "0 0 0 no" "$? $(
    grep -c 'step takes\|forecast:' plain.err) $(compared plain cause | wc -l) $(
    [ -e plain/forecast.json ] && echo yes || echo no)"

# All members of a comparison are documented.
ranks 2 "$TRIREME" train $M run.machine=machines.yaml:fast train.steps=10 \
    run.dir=two >two.out 2>two.err
is "a run on two ranks" 0 $?
sed -n 's/^| `\([a-z_]*\)` .*| compared |.*/\1/p' "$top/doc/metrics.md" | sort >documented
sed -n 's/.*\("compared": .*\)/\1/p' two/metrics.jsonl | grep -oE '"[a-z_]+": ' | tr -d '": ' | sort -u |
    cat - <(printf '%s\n' rank node) | sort -u >written
is "what a comparison writes is documented" "$(tr '\n' ' ' <documented)" "$(tr '\n' ' ' <written)"
is "bytes are as planned" "$(compared two planned_sent_bytes)" "$(compared two sent_bytes)"

# What cannot be is refused, before the run begins.
refused "a machine that is misspelt" 'run.machine.*no machine and no file "h10"; did you mean h100\? known are' \
    "$TRIREME" train $M run.dir=no run.machine=h10
refused "a file that is not there" 'run.machine.*no file' "$TRIREME" train $M run.dir=no run.machine=no.yaml
refused "a file of two" 'run.machine.*several machines' \
    "$TRIREME" train $M run.dir=no run.machine=machines.yaml
refused "a GPU for a run on processors" 'run.machine h100 is a GPU, but device is cpu; name a machine of processors, .*, or set device=cuda' \
    "$TRIREME" train $M run.dir=no run.machine=h100
refused "a format that it lacks" 'run.machine fast has no products in bf16' \
    "$TRIREME" train $M precision=bf16 run.dir=no run.machine=machines.yaml:fast
refused "a network of no machine" 'run.machine auto@8x400Gb: the network of which machine' \
    "$TRIREME" train $M run.dir=no run.machine=auto@8x400Gb
refused "a network that is none" 'run.machine.*such as 8x400Gb' \
    "$TRIREME" train $M run.dir=no run.machine=machines.yaml:fast@fast
is "a network that is none: nothing was written" no "$([ -e no ] && echo yes || echo no)"

# On GPUs the measured steps are CUDA graphs with events around them.
if [ -x "$TRIREME_CUDA" ]; then
    TRIREME_EMULATE_GPUS=2 ranks 2 "$TRIREME_CUDA" train $M device=cuda run.machine=h100@4x100Gb \
        train.steps=11 run.dir=gpu >gpu.out 2>gpu.err
    code=$? cause=$(compared gpu cause)
    [ "$cause" != rank ] || cause=compute # on a busy machine one of the two computes slower still
    is "two emulated GPUs, which are no H100" "0 compute 1" "$code $cause $(
        grep -c 'forecast: .*, MFU .* (machine h100)' gpu.err)"
    is "two emulated GPUs: bytes are as planned" "$(compared gpu planned_sent_bytes)" \
        "$(compared gpu sent_bytes)"
else
    skip "the emulated GPU" "no $TRIREME_CUDA"
fi

# Two ranks, each on a core of its own, and loops beside the second one: more than other tests put
# beside the first one at the same time.
cores=$(taskset -pc $$ 2>/dev/null | sed 's/.*: //' | tr ',' '\n' |
    awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i }' | head -n 2 | xargs)
loops=
job=
cleanup() { [ -z "$loops$job" ] || kill $loops $job 2>/dev/null; }
if [ "${cores#* }" != "$cores" ]; then
    cat >bound <<'END2'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 0 ] && core=${cores% *} || core=${cores#* }
exec taskset -c "$core" "$@"
END2
    chmod +x bound
    export cores
    mpirun --oversubscribe --bind-to none -n 2 ./bound "$TRIREME" train $M \
        data.seq_len=128 train.steps=1000000 run.log_every=1000 run.dir=beside \
        >beside.out 2>beside.err &
    job=$!
    has_begun() { [ -s beside/metrics.jsonl ] || ! kill -0 $job; }
    wait_for 60 has_begun # without the loops, beside which starting takes half a minute
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
        taskset -c "${cores#* }" sh -c 'while :; do :; done' &
        loops="$loops $!"
    done
    # Its pieces are short: it may be their thread that waits, or that of its communication.
    named="warning: step takes .*: rank 1 on node $(uname -n) \(computes\|waits\) .*likely other programs"
    is_named() { grep -q "$named" beside.err || ! kill -0 $job; }
    wait_for 120 is_named
    if grep -q "$named" beside.err; then
        ok "a rank slowed by loops beside it is named"
    else
        not_ok "a rank slowed by loops beside it is named" "$(head -n 5 beside.err | cut -c 1-300)"
    fi
    is "a rank slowed by loops beside it is in the metrics" "1" "$(compared beside rank | grep -x 1 | head -n 1)"
    before=$(compared beside measured_step_ms | wc -l)
    kill $loops
    wait $loops 2>/dev/null
    loops=
    more() { [ "$(compared beside measured_step_ms | wc -l)" -gt "$before" ]; }
    is_over() { more || ! kill -0 $job; }
    wait_for 60 is_over
    if more; then
        ok "when they end, ranks are compared again"
    else
        not_ok "when they end, ranks are compared again" "$(tail -n 1 beside/metrics.jsonl)"
    fi
    kill -KILL $(rank_pids $job)
    ended
    job=
else
    skip "a rank slowed by loops beside it" "two cores are needed"
fi
finish
