#!/bin/bash
# asan.sh - build with AddressSanitizer and UndefinedBehaviorSanitizer, and run the tests.
#
# Run by `make check-asan` in a configured build directory.  Builds in build-asan/ there, with
# the same options of configure; a second run builds only what changed.  FULL=1 runs the MPI
# programs at 1 to 4 ranks instead of 3, all of tests/cli, and all settings of each test (CHECK_SHORT=0).
set -u
export LC_ALL=C
own=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$own/../.." && pwd)
outer=$PWD build=$PWD/build-asan
flags="-O2 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined"
options_more=
export BUILDDIR=$build TRIREME=$build/trireme TRIREME_BUILD=$build

. "$own/build.inc"

# Blocks are filled with bytes that read as NaN, so that what is used before it is written
# shows in a result.  Whole stacks name the function a leak belongs to, which tells MPI's from ours;
# where no MPI is started frame pointers do, and programs that allocate much are not slowed down so.
set_options() {
    options=exitcode=99:allocator_may_return_null=1:detect_stack_use_after_return=1
    options=$options:strict_string_checks=1:max_malloc_fill_size=16777216:malloc_fill_byte=255
    options=$options:fast_unwind_on_malloc=0:quarantine_size_mb=16
    export ASAN_OPTIONS=$options UBSAN_OPTIONS=exitcode=99:print_stacktrace=1
    export LSAN_OPTIONS=suppressions=$own/asan.supp:print_suppressions=0
    export OMPI_MCA_mpi_yield_when_idle=1 srcdir=$source
    if "$TRIREME" --version 2>&1 | grep -q 'LeakSanitizer has encountered a fatal error'; then
        export ASAN_OPTIONS=$options:detect_leaks=0
        echo "skip leaks: they cannot be looked for here (ptrace is not allowed)"
    fi
}

unit_programs() {
    for program in $UNIT_TESTS; do
        OMP_NUM_THREADS=2 ASAN_OPTIONS=$ASAN_OPTIONS:fast_unwind_on_malloc=1 \
            timeout -k 5 $limit "./$program" >one.log 2>&1
        code=$?
        case $code in
        0) echo "ok ${program##*/}" ;;
        77) echo "skip ${program##*/}: $(tail -n 1 one.log)" ;;
        *)
            echo "not ok ${program##*/}: exit code $code"
            grep -a -A 25 -m 1 -E 'ERROR: |runtime error: |\[  FAILED' one.log | sed 's/^/#   /'
            ;;
        esac
    done
}

# script COMMAND...: a script with checks of its own.  What it leaves behind in the background
# would hold a pipe open, hence the file.
script() {
    "$@" >one.log 2>&1
    code=$?
    cat one.log
    [ $code = 0 ] || grep -q '^not ok ' one.log || echo "not ok ${1##*/}: exit code $code"
}

run_all() {
    scripts="commands config faults"
    ranks=3 limit=1200
    export CHECK_SHORT=1
    if [ -n "${FULL-}" ]; then
        scripts=$(cd "$source/tests/cli" && echo *.sh | sed 's/\.sh//g')
        ranks="1 2 3 4" limit=7200 CHECK_SHORT=0
    fi
    unit_programs
    TIMEOUT=600 RANKS=$ranks script "$source/tests/mpi/run.sh" $MPI_TESTS
    RANKS="1 2" script "$own/commands.sh"
    for name in $scripts; do
        script "$source/tests/cli/$name.sh"
    done
}

build
set_options
run_all </dev/null 2>&1 | tee check.log
counts check-asan
