#!/bin/bash
# gpu.sh - everything that needs a real GPU, in one command, from the sources or an unpacked
# `make dist`, without a network: build with CUDA, then test and measure.
#
#   tests/gpu.sh [--build DIR] [--out DIR] [--only GROUP,...] [--limit SECONDS] [--resume]
#
# Groups, what matters most first; each has SECONDS (default 540), what is left of it is skipped:
#   build     configure and make; kept and continued in DIR (default build-gpu)
#   unit      tests/unit/test_cuda_* on the GPU
#   bench     tests/bench/attention_rate; layers of Llama-3-8B against PyTorch, kernel by kernel
#   train     doctor; tests/cli/cuda*.sh with the real program; what `trireme plan` needs of the machine
#   8b        Llama-3-8B on one GPU: what the driver counts against what the plan says
#   mpi       tests/mpi/test_comm_device at 1, 2 and 4 ranks, which share a GPU where there is one
#   small     smaller models against PyTorch
#   generate  Llama-3-8B and a smaller model continue texts, against transformers
#   sanitize  the op tests under compute-sanitizer: memcheck, synccheck, racecheck
#
# MPI, HDF5 and the small libraries come from the environment, or from a folder TRIREME_BUNDLE with
# an env.sh, such as tests/gpu_kit.sh makes; CUDA's from the toolkit of nvcc or from Python's
# packages.  DIR may be the kit's folder of programs built elsewhere.  CONFIGURE_FLAGS go to
# configure.  A Python with torch is TRIREME_PYTHON or python3.
#
# Logs and figures (JSON) are left in --out (default DIR/results), and all of them in one file beside
# it, OUT.tar.gz, after every group and also when the script is ended from outside.  With --resume
# groups that ended in time before are left out.
#
# Prints `ok`, `not ok` and `skip` lines and ends with "N passed, N failed, N skipped".  Exit code
# 0: nothing failed; 77: built and linked, but no GPU is here.
set -u
export LC_ALL=C
top=$(cd "$(dirname "$0")/.." && pwd)
build=build-gpu out= groups="build unit bench train 8b mpi small generate sanitize" limit=540 resume=
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2 ;;
    --out) out=$2 ;;
    --only) groups=${2//,/ } ;;
    --limit) limit=$2 ;;
    --resume) resume=yes && shift && continue ;;
    *) sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2 && exit 1 ;;
    esac
    shift 2 || exit 1
done
mkdir -p "$build" || exit 1
build=$(cd "$build" && pwd)
mkdir -p "${out:=$build/results}" || exit 1
out=$(cd "$out" && pwd)
cd "$build" || exit 1
passed=0 failed=0 skipped=0 ends=0 running=
if [ -n "${TRIREME_BUNDLE-}" ]; then . "$TRIREME_BUNDLE/env.sh" || exit 1; fi
jobs=$(nproc 2>/dev/null || echo 2)
export OMPI_MCA_rmaps_base_oversubscribe=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
[ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec </dev/null

ok() { passed=$((passed + 1)) && echo "ok $1"; }
skip() { skipped=$((skipped + 1)) && echo "skip $1: $2"; }
not_ok() {
    failed=$((failed + 1))
    echo "not ok $1: $2"
    [ ! -s "${3-}" ] || tail -n 12 "$3" | sed 's/^/#   /'
}

# Everything there is so far in one file, whole at any time.
pack() {
    tar -C "$(dirname "$out")" -czf "$out.tar.gz.partial" "$(basename "$out")" &&
        mv "$out.tar.gz.partial" "$out.tar.gz"
}

ended_from_outside() {
    trap '' TERM INT HUP
    [ -z "$running" ] || kill -TERM "$running" 2>/dev/null
    echo "ended from outside after $SECONDS s; $passed passed, $failed failed, $skipped skipped" |
        tee "$out/ended"
    pack
    exit 1
}
trap ended_from_outside TERM INT HUP

finish() {
    pack
    echo "$SECONDS s; logs and figures: $out and $out.tar.gz"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ] || exit 1
    exit "${1:-0}"
}

left() { echo $((ends - SECONDS)); }

# limited MOST LOG COMMAND...: for MOST seconds, or what the group has left; 77: nothing is left
limited() {
    most=$1 log=$2
    shift 2
    [ "$(left)" -gt 0 ] || return 77
    [ "$(left)" -gt "$most" ] || most=$(left)
    if [ "$(type -t "$1")" = function ]; then set -- bash -c '"$@"' "$1" "$@"; fi
    timeout -k 10 "$most" "$@" >"$log" 2>&1 &
    running=$! # in the background, so that a signal is answered at once
    wait $running
    code=$?
    running=
    return $code
}

why_ended() {
    case $1 in
    124 | 137) echo "not finished after $most s" ;;
    *) echo "exit code $1" ;;
    esac
}

# step NAME MOST COMMAND...: one test by its exit code
step() {
    name=$1 log=$out/${1//[ \/]/-}.log most=$2
    shift 2
    limited "$most" "$log" "$@"
    code=$?
    case $code in
    0) ok "$name" ;;
    77) skip "$name" "$([ "$(left)" -gt 0 ] && tail -n 1 "$log" || echo "no time left")" ;;
    *) not_ok "$name" "$(why_ended $code)" "$log" && return 1 ;;
    esac
}

make_variable() { make -s --no-print-directory --eval='print-%: ; @echo $($*)' "print-$1"; }

device_programs() {
    [ ! -r programs ] || { cat programs && return; } # built elsewhere
    for program in $(make_variable UNIT_TESTS); do
        case $program in
        *_emulated) ;;
        */test_cuda_*) echo "$program" ;;
        esac
    done
}

# outcomes NAME LOG CODE: of a script that prints them itself; its exit code counts where no line says
# why.
outcomes() {
    name=$1 log=$2 code=$3 failed_before=$failed lines=0
    while read -r line; do
        lines=$((lines + 1))
        case $line in
        'ok '*) ok "$name: ${line#ok }" ;;
        'skip '*) skip "$name: $(echo "${line#skip }" | cut -d: -f1)" "${line#*: }" ;;
        '#'*) echo "$line" ;;
        *) not_ok "$name: $(echo "${line#not ok }" | cut -d: -f1)" "${line#*: }" ;;
        esac
    done < <(grep -aE '^(ok|not ok|skip|#  ) ' "$log" 2>/dev/null)
    case $code in
    0) [ $lines -gt 0 ] || ok "$name" ;;
    77) skip "$name" "$([ "$(left)" -gt 0 ] && tail -n 1 "$log" || echo "no time left")" ;;
    *) [ $failed -gt $failed_before ] && [ $code = 1 ] ||
        not_ok "$name" "$(why_ended $code)" "$log" ;;
    esac
}

# script NAME MOST COMMAND...: one that prints outcomes itself
script() {
    script=$1 most=$2
    shift 2
    limited "$most" "$out/${script//[ \/]/-}.log" "$@"
    outcomes "$script" "$out/${script//[ \/]/-}.log" $?
}

run_build() {
    if [ -r programs ]; then
        skip build "built elsewhere: $(cat built 2>/dev/null)"
        return
    fi
    [ -x "$top/configure" ] || step autogen 120 "$top/autogen.sh" || finish
    # A cuDNN or a NCCL is part of what is tested: without them configure's summary says why.
    [ -s config.status ] ||
        step configure 180 "$top/configure" --with-cuda=yes ${CONFIGURE_FLAGS-} || finish
    tail -n 18 "$out/configure.log" 2>/dev/null | grep -E '^    [A-Za-z]' | sed 's/^ */# /'
    step build "$limit" make -j"$jobs" || finish
    step build-tests "$limit" make -j"$jobs" $(device_programs) tests/mpi/test_comm_device \
        tests/bench/gemm_rate tests/bench/attention_rate || finish
}

# run_program LOG-FOLDER PROGRAM: one of cmocka's in TAP; its exit code is kept beside its log
run_program() {
    log=$1/${2##*/}.log
    CMOCKA_MESSAGE_OUTPUT=TAP timeout --foreground -k 10 300 "./$2" >"$log" 2>&1
    echo $? >"$log.code"
}
export -f run_program

# Most of a test's time goes to the CPU it is compared with, so some of them share the GPU.  A line
# for each test of a program, and as many as it planned.
run_unit() {
    rm -f "$out"/test_cuda_*.log "$out"/test_cuda_*.code
    device_programs >"$out/unit-programs"
    limited "$limit" "$out/unit.log" xargs -a "$out/unit-programs" -P "$(((jobs + 1) / 2))" \
        -I PROGRAM bash -c 'run_program "$1" PROGRAM' run_program "$out"
    while read -r program; do
        log=$out/${program##*/}.log
        code=$(cat "$log.code" 2>/dev/null || echo 124) before=$failed most=$limit
        planned=$(grep -a -m1 -oE '^1\.\.[0-9]+' "$log" 2>/dev/null | cut -c4-) ended=0
        while read -r line; do
            ended=$((ended + 1))
            case $line in
            *'# SKIP '*) skip "${program##*/} ${line##*# SKIP }" "it says so" ;;
            'not ok '*) not_ok "${program##*/} ${line#* - }" "see $log" "$log" ;;
            *) ok "${program##*/} ${line#* - }" ;;
            esac
        done < <(grep -aE '^(ok|not ok) [0-9]' "$log" 2>/dev/null)
        if [ ! -e "$log" ]; then
            skip "${program##*/}" "no time left"
        elif [ "$code" = 77 ] && [ $ended = 0 ]; then
            skip "${program##*/}" "it says so: $(tail -n 1 "$log")"
        elif [ "${planned:-0}" != $ended ] ||
            { [ "$code" != 0 ] && [ "$code" != 77 ] && [ $failed = $before ]; }; then
            not_ok "${program##*/}" "$(why_ended "$code"), $ended of ${planned:-0} tests ended" "$log"
        fi
    done <"$out/unit-programs"
}

run_mpi() {
    RANKS="1 2 4" TIMEOUT=240 BUILDDIR=$build script mpi "$limit" "$top/tests/mpi/run.sh" \
        tests/mpi/test_comm_device
}

# run_script LOG-FOLDER SCRIPT: its exit code is kept beside its log
run_script() {
    log=$1/${2##*/}.log
    timeout --foreground -k 10 580 "$2" >"$log" 2>&1
    echo $? >"$log.code"
}
export -f run_script

# What trains on a GPU: most of its time goes to programs that start, so that all share the GPU.
run_train() {
    step doctor 120 ./trireme doctor && sed 's/^/# /' "$out/doctor.log"
    step "doctor gpu" 120 ./trireme doctor --gpu && sed "s/^/# /" "$out/doctor-gpu.log"
    step "doctor 2 ranks" 120 mpirun --oversubscribe -n 2 ./trireme doctor
    rm -f "$out"/cuda*.sh.log "$out"/cuda*.sh.log.code
    printf '%s\n' cuda.sh cuda_precision.sh cuda_ranks.sh >"$out/train-scripts"
    most=$limit
    TRIREME=$build/trireme TRIREME_CUDA=$build/trireme limited "$limit" "$out/train.log" \
        xargs -a "$out/train-scripts" -P 3 -I SCRIPT \
        bash -c 'run_script "$@"' run_script "$out" "$top/tests/cli/SCRIPT"
    while read -r name; do
        log=$out/$name.log
        if [ -e "$log" ]; then
            outcomes "$name" "$log" "$(cat "$log.code" 2>/dev/null || echo 124)"
        else
            skip "$name" "no time left"
        fi
    done <"$out/train-scripts"
    step measure 240 ./trireme doctor --measure "$out/machine.yaml" &&
        sed 's/^/# /' "$out/measure.log"
}

# Kernels of libraries are slow under these tools and not ours, and cuDNN's do with barriers what
# synccheck takes for an error: of cuDNN none is looked at, and racecheck and synccheck see the
# programs of our own kernels alone.
run_sanitize() {
    sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)
    if [ -z "$sanitizer" ]; then
        skip sanitize "no compute-sanitizer"
        return
    fi
    for tool in memcheck synccheck racecheck; do
        for program in $(device_programs); do
            name=${program##*/test_cuda_}
            case $tool$name in
            *ops* | *attention | *simt | memcheckgemm | memcheckstreams) ;;
            *) continue ;;
            esac
            step "$tool $name" 240 "$sanitizer" --tool $tool --error-exitcode 99 \
                --kernel-name-exclude kernel_substring=cudnn "./$program"
        done
    done
}

# some_steps N RUN COMMAND...: until the run has N lines of metrics, then it is ended from outside:
# saving a large model takes longer than what is tested.
some_steps() {
    wanted=$1 metrics=$2/metrics.jsonl
    shift 2
    env -u OMP_NUM_THREADS "$@" &
    trap 'kill -KILL $!; exit 1' TERM
    while kill -0 $! 2>/dev/null; do
        if [ -e "$metrics" ] && [ "$(wc -l <"$metrics")" -ge "$wanted" ]; then
            kill -KILL $!
            return 0
        fi
        sleep 0.2
    done
    return 1
}
export -f some_steps

SAVED_8B_GB=97 # a checkpoint of all of it, for which a run looks before it trains

run_8b() {
    folder=$(mktemp -d "${TMPDIR:-/tmp}/trireme-8b.XXXXXX") || return
    cat "$top"/src/*/*.c >"$folder/text"
    keys="model.preset=llama3-8b precision=bf16 recompute=full device=cuda data.seq_len=2048
        train.global_batch=1 train.micro_batch=1 train.steps=1000 train.schedule=constant
        data.train=$folder/train.h5 checkpoint.every=0 checkpoint.resume=none"
    ./trireme tokenize "$folder/text" -o "$folder/train.h5" >"$out/8b-plan.log" 2>&1 &&
        ./trireme plan $keys --ranks 1 >>"$out/8b-plan.log" 2>&1
    free_gb=$(($(df --output=avail -B1 "$folder" | tail -n 1) / 1000000000))
    if [ $free_gb -lt $SAVED_8B_GB ]; then
        skip "Llama-3-8B on one GPU" "a run needs $SAVED_8B_GB GB to save in, and $free_gb are free"
    elif grep -q '^fits' "$out/8b-plan.log"; then
        nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -lms 200 \
            >"$out/8b-used.log" 2>/dev/null &
        watcher=$!
        step "Llama-3-8B, 4 steps on one GPU" 400 some_steps 4 "$folder/run" \
            ./trireme train $keys run.dir="$folder/run"
        kill $watcher 2>/dev/null
        cp "$folder/run/metrics.jsonl" "$out/8b-metrics.jsonl" 2>/dev/null
        peak_is_planned "$(sed -n 's/^ *device memory .* \([0-9]*\) bytes$/\1/p' "$out/8b-plan.log")" \
            "$(sed -n 's/.*"gpu_peak_bytes": *\([0-9]*\).*/\1/p' "$out/8b-metrics.jsonl" | tail -n 1)"
    else
        skip "Llama-3-8B on one GPU" "$(grep -E 'fit|error' "$out/8b-plan.log" | tail -n 1)"
    fi
    rm -rf "$folder"
}

# peak_is_planned PLANNED PEAK: what the driver counts is at most what was planned with its reserve
peak_is_planned() {
    used=$(sort -n "$out/8b-used.log" 2>/dev/null | tail -n 1)
    echo "# planned with reserve ${1:-?} bytes, CUDA's peak ${2:-?}, nvidia-smi's ${used:-?} MiB"
    [ -z "${1-}" ] || [ -z "${2-}" ] ||
        echo "# the peak is $((($1 - $2) / 1048576)) MiB below what was planned (negative: above)"
    if [ -n "${1-}" ] && [ -n "${2-}" ] && [ "$2" -le "$1" ] && [ "$2" -gt $(($1 / 2)) ]; then
        ok "the peak is within the plan"
    else
        not_ok "the peak is within the plan" "planned ${1:-?}, peak ${2:-?} bytes, $(((${2:-0} - ${1:-0}) / 1048576)) MiB apart"
    fi
}

# against_torch NAME ROUNDS CASE...
against_torch() {
    log_name=$1 rounds=$2 budget=$(($(left) - 20))
    shift 2
    step "$log_name" "$limit" env -u OMP_NUM_THREADS PYTHONUNBUFFERED=1 \
        "${TRIREME_PYTHON:-python3}" "$top/tests/bench/gpu_vs_torch" --build "$build" \
        $(printf -- '--case %s ' "$@") --rounds "$rounds" --json "$out/$log_name.json" \
        --budget $((budget > 30 ? budget : 30))
    sed 's/^/# /' "$out/$log_name.log"
}

run_bench() {
    step "attention_rate" 120 tests/bench/attention_rate --json "$out/attention_rate.json"
    sed 's/^/# /' "$out/attention_rate.log"
    against_torch llama3-8b-vs-torch 2 llama3-8b
}

run_small() { against_torch small-vs-torch 1 llama-1.3b llama-124m; }

# against_transformers NAME MOST OPTION...
against_transformers() {
    log_name=$1 most_seconds=$2
    shift 2
    step "$log_name" "$most_seconds" env -u OMP_NUM_THREADS PYTHONUNBUFFERED=1 \
        "${TRIREME_PYTHON:-python3}" "$top/tests/bench/generate_vs_transformers" --build "$build" \
        --device cuda --precision bf16 --rounds 1 --threads "$(((jobs + 1) / 2))" "$@"
    sed 's/^/# /' "$out/$log_name.log"
}

run_generate() {
    against_transformers generate-short 200 --model llama-1.3b --batch 1 --batch 8 --batch 64
    against_transformers generate-long 200 --model llama-1.3b --batch 1 --batch 8 --prompt 2000
    against_transformers generate-8b 300 --model llama3-8b --batch 1 --batch 8 --batch 64
}

# A folder of programs that was cut short would fail program by program.
if [ -r programs ]; then
    for program in trireme $(cat programs) tests/mpi/test_comm_device tests/bench/gemm_rate \
        tests/bench/attention_rate; do
        [ -x "$program" ] || { echo "gpu.sh: $build lacks $program: unpack it again" >&2 && exit 1; }
    done
fi
for group in $groups; do
    declare -F "run_$group" >/dev/null || { echo "gpu.sh: no group \"$group\"" >&2 && exit 1; }
done
for group in $groups; do
    ends=$((SECONDS + limit))
    if [ -n "$resume" ] && [ -e "$out/done-$group" ] && [ "$group" != build ]; then
        skip "$group" "it ended before"
        continue
    fi
    if [ "$group" != build ] && ! ./trireme doctor 2>/dev/null | grep -q '^  GPU 0 '; then
        echo "no GPU: $(./trireme doctor 2>/dev/null | sed -n 's/^  GPUs  *//p')"
        finish 77
    fi
    "run_$group"
    [ "$(left)" -le 0 ] || touch "$out/done-$group"
    pack
done
finish
