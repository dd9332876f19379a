#!/bin/bash
# tsan.sh - build with ThreadSanitizer, and run what has several threads.
#
# Run by `make check-tsan` in a configured build directory.  Builds in build-tsan/ there, with the
# same options of configure but without CUDA; a second run builds only what changed.  The threads
# are those of communication and of files; a parallel loop has one, because OpenMP's own barriers
# are unknown to the sanitizer.
set -u
export LC_ALL=C
own=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$own/../.." && pwd)
outer=$PWD build=$PWD/build-tsan
flags="-O1 -g -fsanitize=thread"
options_more=--with-cuda=no
export BUILDDIR=$build TRIREME=$build/trireme TRIREME_BUILD=$build

. "$own/build.inc"

unit_programs="test_thread test_swap"
mpi_programs="test_comm_group test_comm_world test_offload test_checkpoint test_any"

# What is found goes to files, for mpirun would mix the texts of the ranks.
set_options() {
    export TSAN_OPTIONS=suppressions=$own/tsan.supp:exitcode=98:log_path=$build/found
    export OMP_NUM_THREADS=1 ANY=20 srcdir=$source
}

# outcome NAME CODE: one line, and what was found.
outcome() {
    if [ "$2" = 0 ] && ! ls found.* >/dev/null 2>&1; then
        echo "ok $1"
    else
        echo "not ok $1: exit code $2"
        cat found.* 2>/dev/null | head -n 60 | sed 's/^/#   /'
    fi
    rm -f found.*
}

# Addresses are not laid out by chance: the sanitizer needs some for itself.
one() {
    name=$1
    shift
    timeout -k 5 600 setarch -R "$@" >one.log 2>&1
    outcome "$name" $?
}

run_all() {
    rm -f found.*
    for program in $unit_programs; do
        one "$program" "tests/unit/$program"
    done
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    for program in $mpi_programs; do
        for ranks in 2 3; do
            one "$program ($ranks ranks)" mpirun --oversubscribe -n "$ranks" "tests/mpi/$program"
        done
    done
}

build
set_options
run_all </dev/null 2>&1 | tee check.log
counts check-tsan
