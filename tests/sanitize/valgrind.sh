#!/bin/bash
# valgrind.sh - memcheck on every command of a short run on one rank; needs a built trireme.
#
# Run by `make check-valgrind`.  Valgrind's processor has no AVX-512: the avx2 kernels run, ours
# and the library's, as on a machine without.
set -u
own=$(cd "$(dirname "$0")" && pwd)
: "${TRIREME:=$PWD/trireme}"
export TRIREME RANKS=1 LIMIT=300
if ! command -v valgrind >/dev/null; then
    echo "skip check-valgrind: no valgrind found"
    exit 77
fi
export RUNNER="valgrind -q --error-exitcode=99 --leak-check=full --keep-debuginfo=yes
    --show-leak-kinds=definite,possible --errors-for-leak-kinds=definite,possible
    --num-callers=40 --gen-suppressions=all --fair-sched=try --suppressions=$own/valgrind.supp"
lines=$("$own/commands.sh" 2>&1 | tee /dev/stderr)
failed=$(grep -c '^not ok ' <<<"$lines") passed=$(grep -c '^ok ' <<<"$lines")
echo "check-valgrind: $passed passed, $failed failed, $SECONDS s"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
