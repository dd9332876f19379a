#!/bin/bash
# lint_self.sh - can the rules of lint.sh fail?  A violation of each is seeded into a copy of
# the sources, and lint.sh has to name it.
set -u
export LC_ALL=C
top=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-lint.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
failed=0

lines() { for ((i = 0; i < $1; i++)); do echo "$2"; done; }
function_of() { echo "void $1(void)" && echo "{" && lines $(($2 - 3)) "    $1();" && echo "}"; }

# What a rule finds in the files as they are, in $before; asked once as long as no file changes.
declare -A found_before
lint_before() {
    key="$1 $(find "$work" -type f -printf '%p %s %T@ ')"
    [ -n "${found_before[$key]-}" ] ||
        found_before[$key]=$("$top/tests/lint.sh" -C "$work" "$1" 2>&1)
    before=${found_before[$key]}
}

# seed RULE WORD NAME FILE: FILE, of the lines on standard input, is added; RULE fails and says
# WORD; without FILE it succeeds, or fails without WORD.
seed() {
    rule=$1 word=$2 name=$3 file=$4
    lint_before "$rule"
    mkdir -p "$(dirname "$work/$file")"
    cat >"$work/$file"
    after=$("$top/tests/lint.sh" -C "$work" "$rule" 2>&1)
    rm -f "$work/$file"
    case $before$after in
    "skip $rule:"*) echo "skip lint_self $name: ${before#*: }" ;;
    *)
        if ! printf '%s\n' "$before" | grep -qE "$word" && printf '%s\n' "$after" |
            grep -qE "^not ok $rule" && printf '%s\n' "$after" | grep -qE "$word"; then
            echo "ok lint_self $name"
        else
            failed=1
            echo "not ok lint_self $name: before: $before; after: $after" | tr '\n' ' '
            echo
        fi
        ;;
    esac
}

mkdir -p "$work/src" "$work/io" "$work/tests" "$work/doc" "$work/src/base"
cp "$top/.clang-format" "$work/"
cp "$top/src/base/error.c" "$top/src/base/error.h" "$work/src/base/"

seed layers 'base must not know config' "a layer that looks up" src/base/up.c <<<'#include "config/config.h"'
seed layers 'io must not know program' "io that knows the program" io/up.h <<<'#include "program/program.h"'
seed layers 'execute must not know plan' "neighbours" src/execute/side.c <<<'#include "plan/plan.h"'
seed layers 'device must not know program' "a kernel that knows the program" src/device/cuda/up.cu <<<'#include "program/program.h"'
seed layers 'no folder of the house' "an unknown folder" src/train/far.c <<<'#include "lib/lib.h"'
for home in 'mpi.h io/a.c' 'hdf5.h src/program/a.c' 'dnnl.h src/graph/a.c' 'cblas.h src/device/cpu/a.c' \
    'yaml.h src/config/a.c' 'jansson.h src/train/a.c' 'xxhash.h io/a.c' 'hwloc.h src/comm/a.c' \
    'cuda_runtime_api.h src/comm/mesh.c' 'cublasLt.h src/device/cuda/ops.c' \
    'cudnn.h src/device/cuda/gemm.c' 'nccl.h src/comm/gpu/gpu.c' 'cuda_bf16.h src/graph/a.cu'; do
    seed homes "${home#* }:" "${home% *} away from home" "${home#* }" <<<"#include <${home% *}>"
done
seed kernels 'a.cu: not of simt.cuh' "a launch by hand" src/device/cuda/a.cu <<<'void f(void) { k<<<1, 1>>>(); }'
seed kernels 'a.cuh: not of simt.cuh' "assembly outside simt.cuh" src/device/cuda/a.cuh <<<'void f() { asm("nop;"); }'
seed kernels 'a.cu: not of simt.cuh' "the CUDA runtime in a kernel file" src/device/cuda/a.cu <<<'void f() { cudaFree(0); }'
seed kernels 'a.cu:1:' "a foreign header in a kernel file" src/device/cuda/a.cu <<<'#include <math.h>'
seed ending 'src/device/cuda/stop.cu' "exit in a kernel file" src/device/cuda/stop.cu <<<'void stop() { exit(3); }'
seed ending 'src/base/stop.c' "exit" src/base/stop.c <<<'void stop(void) { exit(3); }'
seed ending 'src/comm/stop.c' "abort" src/comm/stop.c <<<'void stop(void) { abort(); }'
seed asserts 'src/comm/a.c' "MPI inside assert" src/comm/a.c <<<'void f(void) { assert(MPI_Init(0, 0) == 0); }'
seed asserts 'src/comm/a.c' "assignment inside assert" src/comm/a.c <<<'void f(int i) { assert(i = 1); }'
lines 9 '#if X' | seed preprocessor '#if in' "#if everywhere" src/base/if.c
lines 601 '/* x */' | seed files 'src/base/long.c: 601 lines' "a file too long" src/base/long.c
lines 601 '/* x */' | seed files 'cuda/long.cu: 601 lines' "a kernel file too long" src/device/cuda/long.cu
lines 250 '/* x */' >"$work/src/base/one.c"
lines 250 '/* x */' | seed files 'half of the .c files' "files long by habit" src/base/two.c
rm "$work/src/base/one.c"
lines 20 'x' | seed files 'local.mk: 20 lines' "a make fragment too long" src/base/local.mk
function_of big 101 | seed functions 'big has 101 lines' "a function too long" src/base/big.c
for ((f = 0; f < 9; f++)); do function_of f$f 46; done |
    seed functions 'have 45 lines or more' "functions long by habit" src/base/many.c
mkdir -p "$work/src/device/cuda" && echo '__global__ void twin() {}' >"$work/src/device/cuda/one.cu"
seed kernels 'twin has the name of one' "two kernels of one name" src/device/cuda/two.cu <"$work/src/device/cuda/one.cu"
rm "$work/src/device/cuda/one.cu"
function_of big 101 | seed functions 'big has 101 lines' "a kernel too long" src/device/cuda/big.cu
seed format 'src/device/cuda/odd.cu' "another format of kernels" src/device/cuda/odd.cu <<<'__global__  void f() ;'
seed format 'src/base/odd.c' "another format" src/base/odd.c <<<'int  x ;'
chmod 755 "$work/tests"
seed scripts 'tests/odd.sh: not executable' "a script that cannot be run" tests/odd.sh <<<'#!/bin/sh'
seed scripts 'first line' "a script of nobody" tests/odd.sh <<<'true'
printf '#!/bin/sh\nif true; then\n' | seed scripts 'odd.sh' "a script that does not parse" tests/odd.sh
seed preloads 'tests/odd.sh:1:' "a library preloaded by hand" tests/odd.sh <<<'LD_PRELOAD=$work/odd.so "$TRIREME" plan'
seed keys 'nothing reads train.oars' "a key that nothing reads" src/config/schema.c <<<'{KEY(INT, train.oars)'
printf '/* odd.c - x */\nint x; \n' | seed text 'odd.c: space' "space at the end" src/base/odd.c
printf '/* odd.c - x */\nint x;' | seed text 'odd.c: no newline' "no newline" src/base/odd.c
seed text 'odd.c: line 1' "a file without a purpose" src/base/odd.c <<<'int x;'
seed text 'odd.cu: line 1' "a kernel file without a purpose" src/device/cuda/odd.cu <<<'int x;'
printf '/* odd.c - x */\n/* We told it. */\n' | seed words 'odd.c:told' "a coined word in a comment" src/base/odd.c
printf '/* odd.c - x */\nint room_of(int x);\n' | seed words 'odd.c:room' "a coined word in a name" src/base/odd.c
printf '/* odd.c - x */\nvoid say(int x);\n' | seed words 'odd.c:say' "a function that says" src/base/odd.c
printf '/* odd.cu - x */\nint turn;\n' | seed words 'odd.cu:turn' "a coined word in a kernel" src/device/cuda/odd.cu
printf '/* odd.c - x */\nstruct row { const char *name; int (*run)(int x); };\nstatic const struct row rows[] = {{"a", f}};\n' |
    seed tables 'odd.c: a row of rows' "a row by position" src/base/odd.c
printf '/* odd.c - x */\nstatic const struct { int (*run)(int x); } rows[] = {[1] = {f}};\n' |
    seed tables 'odd.c: a row of a table' "a row by position, of a struct without a name" src/base/odd.c
printf '/* odd.c - x */\nstruct row { int (*run)(int x); };\nconst struct row one = {f};\n' |
    seed tables 'odd.c: a row of one' "a struct of functions by position" src/base/odd.c
printf '/* odd.c - x */\nstatic int (*const calls[])(int x) = {f};\n' |
    seed tables 'odd.c: a row of calls' "functions by position" src/base/odd.c
printf '/* ok.c - x */\nstruct ok { int (*run)(int x); };\nstatic const struct ok oks[] = {[1] = {.run = f}, {.run = f}};\n' >"$work/src/base/ok.c"
found=$("$top/tests/lint.sh" -C "$work" tables | grep -c '^#')
if [ "$found" = 0 ]; then echo "ok lint_self rows that name their fields"; else
    failed=1
    echo "not ok lint_self rows that name their fields: $found found"
fi
rm "$work/src/base/ok.c"
echo 'include_HEADERS = src/trireme.h' >"$work/Makefile.am"
printf '/* trireme.h - x */\nint trireme_open(int x);\n' >"$work/src/trireme.h"
seed public 'local.mk:1:include_HEADERS' "another header installed" src/base/local.mk <<<'include_HEADERS += src/base/error.h'
rm "$work/src/trireme.h"
printf '/* trireme.h - x */\n#include "base/error.h"\n' | seed public 'trireme.h:2:' "a public header that needs a private one" src/trireme.h
printf '/* trireme.h - x */\nint open_run(int x);\n' | seed public 'trireme.h: a name without' "a public name without the prefix" src/trireme.h
rm "$work/Makefile.am"
printf '/* odd.c - x */\ntypedef struct x x;\n' | seed text 'odd.c: typedef' "typedef" src/base/odd.c
echo 'int counter = 1; const int fixed = 2; static int hidden; int *f(void) { return &hidden; }
      const char *const names[] = {"a"}; int of_nvcc __asm__("_ZL20__cudaFatCubinHandle") = 1;' >"$work/g.c"
if cc -c -o "$work/g.o" "$work/g.c" && ar crs "$work/g.a" "$work/g.o"; then
    TRIREME_BUILD=$work/build
    export TRIREME_BUILD
    mkdir "$work/build" && echo >"$work/e.c" && cc -c -o "$work/e.o" "$work/e.c"
    ar crs "$work/build/libtrireme.a" "$work/e.o"
    seed globals 'counter' "a variable" build/libtrireme.a <"$work/g.a"
    mkdir -p "$work/build/src/base" && echo 'int base_x(void) { return 1; }' >"$work/src/base/odd.c"
    cc -c -o "$work/odd.o" "$work/src/base/odd.c" && cp "$work/odd.o" "$work/build/src/base/a-odd.o"
    cc -Dbase_x=row_x -c -o "$work/odd.o" "$work/src/base/odd.c"
    seed names 'src/base: row_x: no prefix' "a function of no thing" build/src/base/b-odd.o <"$work/odd.o"
    printf '/* odd.h - x */\nstruct oar {\n    int x;\n};\n' | seed names 'src/base: oar: no prefix' "a struct of no thing" src/base/odd.h
    echo 'int base_x(void); int base_y(void) { return base_x(); }' >"$work/even.c"
    cc -c -o "$work/build/src/base/a-even.o" "$work/even.c"
    echo 'int base_y(void); int base_z(void) { return base_y(); }' >"$work/odd.c"
    cc -c -o "$work/odd.o" "$work/odd.c"
    seed circles 'src/base/even src/base/odd|src/base/odd src/base/even' "two files that call each other" \
        build/src/base/b-odd.o <"$work/odd.o"
    rm -r "$work/src/base/odd.c" "$work/build/src"
    echo 'static volatile sig_atomic_t hidden;' >"$work/src/base/flag.c"
    cp "$work/g.a" "$work/build/libtrireme.a"
    found=$("$top/tests/lint.sh" -C "$work" globals | grep -c '^#')
    if [ "$found" = 1 ]; then echo "ok lint_self variables, not constants and flags"; else
        failed=1
        echo "not ok lint_self variables, not constants and flags: $found found"
    fi
fi
exit $failed
