#!/bin/bash
# fuzz.sh - libFuzzer on what trireme reads: make check-fuzz in a configured build directory.
#
#   FUZZ_SECONDS=60 FUZZ_TARGETS="config json" make check-fuzz
#
# Each target starts from tests/fuzz/corpus/TARGET and what earlier calls found worth keeping in
# fuzz/TARGET here, and runs for FUZZ_SECONDS with AddressSanitizer and UndefinedBehaviorSanitizer.
# What breaks it is left as fuzz/TARGET-*; `fuzz/TARGET FILE` repeats it.  Needs clang.
set -u
export LC_ALL=C
own=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$own/../.." && pwd)
: "${FUZZ_SECONDS:=60}" "${FUZZ_TARGETS:=config overrides translate json tokens tokenizer index safetensors hf jsonl npy megatron machine}"
command -v clang >/dev/null || { echo "skip fuzz: no clang"; exit 77; }
mkdir -p fuzz/objects
failed=0

hdf5_name=$(pkg-config --exists hdf5-serial && echo hdf5-serial || echo hdf5)
hdf5_flags=$(pkg-config --cflags "$hdf5_name") hdf5_libs=$(pkg-config --libs "$hdf5_name")
mpi=$(pkg-config --cflags ompi-c 2>/dev/null || mpicc --showme:compile)
flags="-std=gnu11 -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined
    -fno-sanitize-recover=undefined -Wno-unknown-attributes -D_GNU_SOURCE -I$source/src -I$source
    -Isrc $mpi"

# The folders that read what others wrote, and the targets.  After a header has changed, everything is
# compiled again: objects that disagree on a struct fail at what is right.
# shellcheck disable=SC2086
compile() {
    [ -e fuzz/objects/compiled ] || touch -d @0 fuzz/objects/compiled
    changed=$(find "$source/src" "$source/io" "$own" src -name '*.h' -newer fuzz/objects/compiled)
    [ -z "$changed" ] || rm -f fuzz/objects/*.o
    touch fuzz/objects/compiled
    for file in "$source"/src/base/*.c "$source"/src/config/*.c "$source"/io/*.c \
        "$source"/src/simulate/machine*.c src/simulate/machine_text.c "$own"/fuzz.c; do
        name=${file#"$source"/}
        object=fuzz/objects/$(echo "${name%.c}" | tr / -).o
        [ "$object" -nt "$file" ] ||
            clang $flags -fsanitize=fuzzer-no-link $hdf5_flags -c -o "$object" "$file" || return 1
    done
    for target in $FUZZ_TARGETS; do
        clang $flags $hdf5_flags -fsanitize=fuzzer -o "fuzz/$target" "$own/fuzz_$target.c" fuzz/objects/*.o \
            $hdf5_libs -lyaml -ljansson -lxxhash -lpcre2-8 -lutf8proc -lm -lpthread || return 1
    done
}

run_target() {
    mkdir -p "fuzz/corpus-$1"
    "fuzz/$1" -max_total_time="$FUZZ_SECONDS" -timeout=20 -rss_limit_mb=3000 -print_final_stats=1 \
        -artifact_prefix="fuzz/$1-" "fuzz/corpus-$1" "$own/corpus/$1" >"fuzz/$1.log" 2>&1
    code=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "fuzz/$1.log")
    if [ $code = 0 ] && [ "${runs:-0}" -gt 0 ]; then
        echo "ok fuzz $1: $runs inputs in $FUZZ_SECONDS s"
    else
        failed=1
        echo "not ok fuzz $1: exit code $code, see fuzz/$1.log: $(grep -m1 -E 'ERROR|runtime error' "fuzz/$1.log")"
    fi
}

compile || { echo "not ok fuzz: does not compile"; exit 1; }
for target in $FUZZ_TARGETS; do
    run_target "$target"
done
exit $failed
