#!/bin/bash
# check.sh - the test command: installs what is missing, makes the dist tarball and builds it in a
# fresh directory, runs all that this machine can run, and ends with "N passed, N failed, N skipped".
#
#   tests/check.sh            everything
#   tests/check.sh GROUP...   build, and then only these of: slurm cli unit mpi install lint dist
#
# Tests are found, not listed: UNIT_TESTS and MPI_TESTS of the makefile, tests/cli/*.sh,
# tests/slurm/run.sh, tests/lint.sh and tests/install.sh.  A script runs in
# the build directory with TRIREME (the program), TRIREME_BUILD, BUILDDIR and srcdir set.  It
# prints `ok NAME`, `not ok NAME: why` or `skip NAME: why` for each of its checks, or nothing;
# exit code 77 with the reason as last line means skipped.  Each has a time limit.
#
# What is tested is the tarball: a file that a release would lack is missed here.  Tests do not
# depend on each other, so several run side by side: two more than there are cores, because many
# wait (CHECK_JOBS sets the number).  A test's lines appear when it has ended; a line every minute
# says what is running.  The group dist comes last, alone: it takes the build apart again.
#
# Nothing is written where the sources are.  CHECK_KEEP=1 keeps what was made.  Exit code 0: nothing
# failed and something passed.
set -u
export LC_ALL=C
top=$(cd "$(dirname "$0")/.." && pwd)
groups=${*:-slurm lint cli unit mpi install dist} # the longest tests first
jobs=$(nproc 2>/dev/null || echo 2)
workers=${CHECK_JOBS:-$((jobs + 2))}
passed=0 failed=0 skipped=0
exec </dev/null
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-check.XXXXXX") || exit 1
trap 'stop_tests; rm -rf "$work"; exit 1' HUP INT TERM
copy=$work/copy source=$work/source build=$work/build logs=$work/logs
mkdir "$copy" "$source" "$work/dist" "$build" "$logs" "$work/tmp"

pass() { passed=$((passed + 1)) && echo "PASS $1"; }
skip() { skipped=$((skipped + 1)) && echo "SKIP $1 ($2)"; }
fail() {
    failed=$((failed + 1))
    echo "FAIL $1: $2"
    [ ! -s "${3-}" ] || tail -n 15 "$3" | sed 's/^/    /'
}

finish() {
    echo "$SECONDS s"
    if [ $failed -gt 0 ] || [ -n "${CHECK_KEEP-}" ]; then
        echo "logs: $logs"
    else
        rm -rf "$work"
    fi
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ] && [ $passed -gt 0 ]
    exit
}

# limited SECONDS LOG COMMAND...
limited() {
    seconds=$1 log=$2
    shift 2
    timeout -k 10 "$seconds" "$@" >"$log" 2>&1
}

why_ended() {
    case $1 in
    124 | 137) echo "not finished after $2 s" ;;
    *) echo "exit code $1" ;;
    esac
}

# step NAME SECONDS COMMAND...: one test; the build cannot go on without it.
step() {
    name=$1 log=$logs/$1.log seconds=$2
    shift 2
    limited "$seconds" "$log" "$@" &
    running[0]=$!
    wait $! # unlike a command in the foreground, a wait ends when a signal comes
    code=$?
    running=()
    [ $code = 0 ] || { fail "$name" "$(why_ended $code "$seconds")" "$log"; finish; }
    pass "$name"
}

# Count the `ok`, `not ok` and `skip` lines of a log as tests of a group; lines "# ..." after a
# `not ok` explain it.
count_lines() {
    found=0 explain=
    while read -r word rest; do
        check=${rest%%:*} why=${rest#*:}
        case "$word $rest" in
        '#'*) [ -z "$explain" ] || echo "    $rest" && continue ;;
        'ok '*) explain= && pass "$1/$rest" ;;
        'not ok '*) explain=yes && fail "$1/${check#ok }" "${why# }" ;;
        'skip '*) explain= && skip "$1/$check" "${why# }" ;;
        esac
        found=$((found + 1))
    done < <(grep -aE '^(ok|not ok|skip|#) ' "$2")
}

# How a script with checks of its own ended: report_script NAME CODE SECONDS LOG
report_script() {
    name=$1 code=$2 seconds=$3 log=$4 failed_before=$failed
    count_lines "$name" "$log"
    case $code in
    0) [ $found -gt 0 ] || pass "$name" ;;
    77) [ $found -gt 0 ] || skip "$name" "$(tail -n 1 "$log")" ;;
    *) [ $failed -gt "$failed_before" ] && [ $code = 1 ] ||
        fail "$name" "$(why_ended $code "$seconds")" "$log" ;;
    esac
}

# How a program of cmocka tests ended.  It speaks TAP: "ok 3 - name", "not ok 4 # SKIP name", and
# has to have said how each one of its plan "1..N" ended.
report_unit() {
    name=$1 code=$2 seconds=$3 log=$4 failed_before=$failed
    reason=
    of_all=$(grep -a -m1 -oE 'is skipped: .*' "$log" | cut -c13-)
    planned=$(grep -a -m1 -oE '^1\.\.[0-9]+' "$log" | cut -c4-) ended=0
    while read -r line; do
        case $line in
        '# skipped: '* | 'skipped: '*) reason=${line#*skipped: } && continue ;;
        'not ok '*'# SKIP '*)
            why=${reason:-$of_all}
            if [ -n "$why" ]; then
                skip "$name/${line##*# SKIP }" "$why"
            else
                fail "$name/${line##*# SKIP }" "skipped, and no reason given" "$log"
            fi
            ;;
        'not ok '*' - '*) fail "$name/${line#* - }" "see below" "$log" ;;
        'ok '*' - '*) pass "$name/${line#* - }" ;;
        *) continue ;;
        esac
        reason=
        ended=$((ended + 1))
    done < <(grep -aE '^(ok|not ok|(# )?skipped:) ' "$log")
    if [ "$code" = 77 ] && [ $ended = 0 ]; then
        skip "$name" "$(tail -n 1 "$log")"
    elif [ "$code" != 0 ] && [ "$code" != 77 ] && [ $failed = "$failed_before" ]; then
        fail "$name" "$(why_ended "$code" "$seconds")" "$log"
    elif [ "${planned:-0}" != $ended ] || [ $ended = 0 ]; then
        fail "$name" "$ended of ${planned:-0} tests ended" "$log"
    fi
}

# The queue of tests, and those that run, by number.
test_kind=() test_name=() test_seconds=() test_command=() test_log=()
running=() # process numbers

# later KIND NAME SECONDS COMMAND: put a test (script or unit) into the queue.
later() {
    test_kind+=("$1") test_name+=("$2") test_seconds+=("$3") test_command+=("$4")
    test_log+=("$logs/${2//\//-}")
}

# Each test has a TMPDIR of its own: of two mpirun of Open MPI 4 that make their folder there in the
# same moment, one ends with "unable to create the desired directory: File exists".
start_test() {
    base=${test_log[$1]}
    (
        export TMPDIR=$work/tmp/$1
        mkdir "$TMPDIR"
        # shellcheck disable=SC2086
        limited "${test_seconds[$1]}" "$base.log" ${test_command[$1]}
        echo $? >"$base.partial"
        times >"$base.times" # of the shell, then of its children: "0m1.5s 0m0.2s"
        awk -F'[ms ]' -v name="${test_name[$1]}" \
            'NR == 2 { print int(60 * $1 + $2 + 60 * $4 + $5), name }' "$base.times" >>"$logs/seconds"
        mv "$base.partial" "$base.code"
    ) &
    running[$1]=$!
}

stop_tests() {
    for i in "${!running[@]}"; do
        pkill -TERM -P "${running[$i]}"
    done
    wait
}

# Report the tests that have ended since.  Returns 1 where none has.
collect_tests() {
    some=1
    for i in "${!running[@]}"; do
        base=${test_log[$i]}
        [ -e "$base.code" ] || continue
        wait "${running[$i]}"
        unset "running[$i]"
        "report_${test_kind[$i]}" "${test_name[$i]}" "$(cat "$base.code")" "${test_seconds[$i]}" \
            "$base.log"
        done_count=$((done_count + 1)) some=0
    done
    return $some
}

say_running() {
    names=
    for i in "${!running[@]}"; do names="$names ${test_name[$i]}"; done
    echo "# $SECONDS s, $done_count of ${#test_name[@]} done, running:$names"
}

run_tests() {
    next=0 done_count=0 said=$SECONDS
    while [ $done_count -lt ${#test_name[@]} ]; do
        while [ $next -lt ${#test_name[@]} ] && [ ${#running[@]} -lt "$workers" ]; do
            start_test $next
            next=$((next + 1))
        done
        if collect_tests; then said=$SECONDS; else sleep 0.2; fi
        if [ $((SECONDS - said)) -ge 60 ]; then
            say_running
            said=$SECONDS
        fi
    done
}

say_costs() {
    echo "# tests ended after $SECONDS s"
    awk '{ sum += $1 } END { print "# CPU seconds of all tests: " sum + 0 }' "$logs/seconds"
    echo "# most of them: $(sort -rn "$logs/seconds" | head -n 40 | paste -sd, | sed 's/,/, /g')"
}

make_variable() { make -s --no-print-directory --eval='print-%: ; @echo $($*)' "print-$1"; }

# The copy of the sources, without what was built or run there.
copy_sources() {
    tar -C "$top" -cf - --exclude=./.git --exclude='./build*' --exclude=./runs --exclude=./data \
        --exclude='*.o' --exclude='*.a' --exclude=.deps --exclude=autom4te.cache \
        --exclude=./config.status --exclude=./Makefile --exclude=./trireme \
        --exclude=./configure --exclude=./src/config/defines.h . | tar -C "$copy" -xf -
}

prepare() {
    "$top/jobs/packages.sh" build run test slurm >"$logs/packages.log" 2>&1
    case $? in
    0) pass packages ;;
    *) if [ "$(id -u)" = 0 ]; then
        fail packages "not installed" "$logs/packages.log"
    else
        skip packages "$(head -n 1 "$logs/packages.log")"
    fi ;;
    esac
    unset MAKEFLAGS MAKELEVEL MFLAGS DESTDIR PKG_CONFIG_PATH MANPATH CDPATH
    for variable in $(env | sed -n 's/^\(\(SLURM\|OMPI\|PMIX\|PRTE\)_[A-Z_]*\)=.*/\1/p'); do
        unset "$variable"
    done
    export TMPDIR=$work/tmp HOME=${HOME:-$work/tmp} srcdir=$source BUILDDIR=$build
    export TRIREME=$build/trireme TRIREME_BUILD=$build
    # The verdicts of self-checks, as long as a test on the emulated GPU; of this build, and not the user's.
    export XDG_CACHE_HOME=$work/cache
    # Threads that wait sleep at once: several tests share each core, and one that looks again and again
    # takes the core from the thread that it waits for.
    export OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive OMPI_MCA_rmaps_base_oversubscribe=1
    export CHECK_SHORT=1 # fewer settings; make check-long and check-whole try all
    [ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    for python in ${TRIREME_PYTHON-} python3 /usr/bin/python3; do
        "$python" -c 'import h5py' 2>/dev/null && export TRIREME_PYTHON=$python && break
    done
    copy_sources || exit 1
    cd "$work/dist" || exit 1
    step autogen 300 "$copy/autogen.sh"
    step configure 300 "$copy/configure" --enable-werror
    step make-dist 300 make dist XZ_OPT=-1
    tar -C "$source" --strip-components=1 -xf trireme-*.tar.* || exit 1
    cd "$build" || exit 1
    # Without debugging information: it takes a tenth of compiling, and each of 200 programs 10 MB.
    step configure-dist 300 "$source/configure" --enable-werror CUDA_ARCHS=90 CFLAGS=-O2 CXXFLAGS=-O2
    step build 900 make -j"$jobs"
    step build-tests 900 make -j"$jobs" check TESTS=
    echo "# built after $SECONDS s"
}

queue_slurm() { later script slurm 1200 "$source/tests/slurm/run.sh"; }
queue_cli() {
    for file in "$source"/tests/cli/*.sh; do
        later script "cli/$(basename "$file" .sh)" 900 "$file"
    done
}
# On emulated GPUs 4 ranks; make check-mpi has 1 to 3 too.
queue_mpi() {
    for program in $(make_variable MPI_TESTS); do
        case $program in *_emulated) counts=4 ;; *) counts="4 3 2 1" ;; esac
        for ranks in $counts; do
            later script "mpi/${program##*/test_}/$ranks" 900 \
                "env RANKS=$ranks TIMEOUT=600 $source/tests/mpi/run.sh $program"
        done
    done
}
queue_unit() {
    export CMOCKA_MESSAGE_OUTPUT=TAP
    for program in $(make_variable UNIT_TESTS); do
        later unit "unit/${program##*/test_}" 600 "./$program"
    done
}
queue_install() { later script install 300 "$source/tests/install.sh"; }
queue_lint() { later script lint 600 "$copy/tests/lint.sh"; }

# What the automake target distcheck asks of a tarball beside its build, tests, installation and
# removal, which ran above: it makes itself again, and distclean leaves nothing.
queue_dist() { :; }
check_dist() {
    step make-dist-again 300 make dist XZ_OPT=-1
    differs=$(diff <(tar -tf "$work"/dist/trireme-*.tar.* | sort) <(tar -tf trireme-*.tar.* | sort))
    if [ -z "$differs" ]; then pass "dist/the same files"; else
        fail "dist/the same files" "$(echo "$differs" | head -n 10 | tr '\n' ' ')"; fi
    rm -f trireme-*.tar.*
    step distclean 300 make distclean
    left=$(find . -type f | head -n 10 | tr '\n' ' ')
    if [ -z "$left" ]; then pass "dist/distclean leaves no file"; else
        fail "dist/distclean leaves no file" "$left"; fi
}

for group in $groups; do
    declare -F "queue_$group" >/dev/null || { echo "check.sh: no group \"$group\"" >&2; exit 1; }
done
prepare
for group in $groups; do
    "queue_$group"
done
run_tests
say_costs
case " $groups " in *' dist '*) check_dist ;; esac
finish
