#!/bin/bash
# check.sh - the test command: installs what is missing, builds in a fresh directory, runs all
# that this machine can run, and ends with "N passed, N failed, N skipped".
#
#   tests/check.sh            everything
#   tests/check.sh GROUP...   build, and then only these of: lint unit mpi golden cli slurm
#                             install distcheck
#
# Tests are found, not listed: UNIT_TESTS and MPI_TESTS of the makefile, tests/cli/*.sh,
# tests/slurm/run.sh, tests/golden/run.sh, tests/lint.sh and tests/install.sh.  A script runs in
# the build directory with TRIREME (the program), TRIREME_BUILD, BUILDDIR and srcdir set.  It
# prints `ok NAME`, `not ok NAME: why` or `skip NAME: why` for each of its checks, or nothing;
# exit code 77 with the reason as last line means skipped.  Each has a time limit.
#
# The sources are copied first: nothing is written where they are, and a build that is there
# does no harm.  CHECK_KEEP=1 keeps the copy.  Exit code 0: nothing failed and something passed.
set -u
export LC_ALL=C
top=$(cd "$(dirname "$0")/.." && pwd)
groups=${*:-lint unit mpi golden cli slurm install distcheck}
jobs=$(nproc 2>/dev/null || echo 2)
passed=0 failed=0 skipped=0
exec </dev/null
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-check.XXXXXX") || exit 1
trap 'rm -rf "$work"; exit 1' HUP INT TERM
source=$work/source build=$work/build logs=$work/logs
mkdir "$source" "$build" "$logs" "$work/tmp"

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
    if limited "$seconds" "$log" "$@"; then
        pass "$name"
    else
        fail "$name" "$(why_ended $? "$seconds")" "$log"
        finish
    fi
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

# script NAME SECONDS COMMAND...: a script with checks of its own.
script() {
    name=$1 seconds=$2 log=$logs/$(echo "$1" | tr / -).log failed_before=$failed
    shift 2
    limited "$seconds" "$log" "$@"
    code=$?
    count_lines "$name" "$log"
    case $code in
    0) [ $found -gt 0 ] || pass "$name" ;;
    77) [ $found -gt 0 ] || skip "$name" "$(tail -n 1 "$log")" ;;
    *) [ $failed -gt "$failed_before" ] && [ $code = 1 ] ||
        fail "$name" "$(why_ended $code "$seconds")" "$log" ;;
    esac
}

# A program of cmocka tests, which speaks TAP: "ok 3 - name", "not ok 4 # SKIP name".  It has to
# have said how each one of its plan "1..N" ended.
unit_program() {
    name=unit/${1##*/test_} seconds=300 log=$logs/unit-${1##*/}.log failed_before=$failed
    CMOCKA_MESSAGE_OUTPUT=TAP limited $seconds "$log" "./$1"
    code=$?
    reason=
    of_all=$(grep -a -m1 -oE 'is skipped: .*' "$log" | cut -c13-)
    planned=$(grep -a -m1 -oE '^1\.\.[0-9]+' "$log" | cut -c4-) ended=0
    while read -r line; do
        case $line in
        '# skipped: '* | 'skipped: '*) reason=${line#*skipped: } && continue ;;
        'not ok '*'# SKIP '*) skip "$name/${line##*# SKIP }" "${reason:-${of_all:-no reason given}}" ;;
        'not ok '*' - '*) fail "$name/${line#* - }" "see below" "$log" ;;
        'ok '*' - '*) pass "$name/${line#* - }" ;;
        *) continue ;;
        esac
        reason=
        ended=$((ended + 1))
    done < <(grep -aE '^(ok|not ok|(# )?skipped:) ' "$log")
    if [ $code = 77 ] && [ $ended = 0 ]; then
        skip "$name" "$(tail -n 1 "$log")"
    elif [ $code != 0 ] && [ $code != 77 ] && [ $failed = "$failed_before" ]; then
        fail "$name" "$(why_ended $code $seconds)" "$log"
    elif [ "${planned:-0}" != $ended ] || [ $ended = 0 ]; then
        fail "$name" "$ended of ${planned:-0} tests ended" "$log"
    fi
}

make_variable() { make -s --no-print-directory --eval='print-%: ; @echo $($*)' "print-$1"; }

# The copy of the sources, without what was built or run there.
copy_sources() {
    tar -C "$top" -cf - --exclude=./.git --exclude='./build*' --exclude=./runs --exclude=./data \
        --exclude='*.o' --exclude='*.a' --exclude=.deps --exclude=autom4te.cache \
        --exclude=./config.status --exclude=./Makefile --exclude=./trireme \
        --exclude=./configure --exclude=./src/config/defines.h . | tar -C "$source" -xf -
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
    export OMP_NUM_THREADS=2 OMPI_MCA_rmaps_base_oversubscribe=1
    [ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    copy_sources || exit 1
    cd "$build" || exit 1
    step autogen 300 "$source/autogen.sh"
    step configure 300 "$source/configure" --enable-werror
    step build 900 make -j"$jobs"
    step build-tests 900 make -j"$jobs" check TESTS=
}

run_lint() { script lint 300 "$source/tests/lint.sh"; }
run_unit() { for program in $(make_variable UNIT_TESTS); do unit_program "$program"; done; }
run_mpi() { script mpi 1800 "$source/tests/mpi/run.sh" $(make_variable MPI_TESTS); }
run_slurm() { script slurm 900 "$source/tests/slurm/run.sh"; }
run_install() { script install 300 "$source/tests/install.sh"; }
run_golden() { [ ! -e "$source/tests/golden/run.sh" ] || script golden 600 "$source/tests/golden/run.sh"; }
run_cli() {
    for file in "$source"/tests/cli/*.sh; do
        script "cli/$(basename "$file" .sh)" 600 "$file"
    done
}
run_distcheck() {
    if limited 2400 "$logs/distcheck.log" make -j"$jobs" distcheck; then pass distcheck; else
        fail distcheck "$(why_ended $? 2400)" "$logs/distcheck.log"; fi
}

for group in $groups; do
    declare -F "run_$group" >/dev/null || { echo "check.sh: no group \"$group\"" >&2; exit 1; }
done
prepare
for group in $groups; do
    "run_$group"
done
finish
