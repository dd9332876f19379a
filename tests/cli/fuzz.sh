#!/bin/sh
# fuzz.sh - every file of tests/fuzz/corpus is read or refused as its target promises; make check-fuzz
# looks for more.
. "$(dirname "$0")/helpers.inc"
: "${TRIREME_BUILD:=$top/build}"
for folder in "$top"/tests/fuzz/corpus/*; do
    target=${folder##*/}
    if "$TRIREME_BUILD/tests/fuzz/replay_$target" "$folder"/* >replay.log 2>&1; then
        ok "corpus of $target"
    else
        not_ok "corpus of $target" "$(tail -n 3 replay.log)"
    fi
done
finish
