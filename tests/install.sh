#!/bin/sh
# install.sh - what make install puts down works from there: the program, the library with its
# header and pkg-config file, the manual, and both modulefiles under the real Lmod.
#
# TRIREME_BUILD names the build directory (default: build/ of the sources).
top=$(cd "$(dirname "$0")/.." && pwd)
build=${TRIREME_BUILD:-$top/build}
failed=0
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-install.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
prefix=$work/prefix

ok() { echo "ok $1"; }
not_ok() {
    failed=1
    echo "not ok $1: $2" | tr '\n' ' '
    echo
}

# check NAME COMMAND...: succeeds.
check() {
    name=$1
    shift
    if "$@" >"$work/log" 2>&1; then ok "$name"; else not_ok "$name" "$(tail -n 3 "$work/log")"; fi
}

# is NAME WANTED GOT
is() {
    if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "wanted '$2', got '$3'"; fi
}

make -C "$build" install prefix="$prefix" >"$work/install.log" 2>&1 ||
    { not_ok "make install" "$(tail -n 5 "$work/install.log")"; exit 1; }
ok "make install"
version=$("$prefix/bin/trireme" --version | cut -d' ' -f2)
# What configure was told about modules is not looked at here, but given to make.
modulefiles() { make -C "$build" install-modulefiles prefix="$prefix" "$@" >"$work/modules.log" 2>&1; }
rm -rf "$prefix/share/modulefiles"
modulefiles module_deps= module_suffix=
modules=$prefix/share/modulefiles

# A staged install has the same files, and they name the place they will be used in.
make -C "$build" install prefix=/opt/trireme module_deps= module_suffix= DESTDIR="$work/stage" >"$work/stage.log" 2>&1
is "a staged install has the same files" "$(cd "$prefix" && find . -type f | sort)" \
    "$(cd "$work/stage/opt/trireme" && find . -type f | sort)"
is "staged files do not name the stage" "" "$(grep -rlI "$work" "$work/stage" | tr '\n' ' ')"
is "installed files do not name the sources" "" \
    "$(grep -rlI "$top" "$prefix" | grep -v 'pkgconfig' | tr '\n' ' ')"

# An mpicc that is named is taken, or refused.
mkdir "$work/configure"
(cd "$work/configure" && "$top/configure" --with-cuda=no MPICC=no-such-mpicc) >"$work/configure.log" 2>&1
is "an MPICC that is not there is refused" 1 "$(grep -c 'MPICC=no-such-mpicc does not run' "$work/configure.log")"

# The manual page is made in the build directory, whatever that is called.
mkdir -p "$work/a build/doc"
make -C "$build" -W doc/metrics.md doc/trireme.1 abs_builddir="$work/a build" >"$work/page.log" 2>&1
is "a build directory has a space in its name" 1 "$(grep -c '^.TH TRIREME 1 ' "$work/a build/doc/trireme.1")"

# Header, library, pkg-config
is "one header is installed" ./include/trireme.h "$(cd "$prefix" && find . -name '*.h')"
cat >"$work/use.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <trireme.h>
int main(int argc, char **argv)
{
    struct trireme_progress progress;
    struct trireme_error error;
    struct trireme *run;
    int locks_before = getenv("HDF5_USE_FILE_LOCKING") != NULL;
    if (trireme_open(&run, NULL, (const char *const *)argv + 1, argc - 1, &error)) {
        fprintf(stderr, "%d: %s\n", error.code, error.text);
        return error.code;
    }
    int failed = 0;
    for (int i = 0; i < 3 && !failed; i++) {
        failed = trireme_train(run, 2, &progress, &error);
        if (!failed && trireme_rank(run) == 0)
            printf("%d %.6f\n", (int)progress.step, progress.loss);
    }
    failed |= trireme_save(run, &error);
    trireme_close(run);
    if (!trireme_open(&run, NULL, (const char *const *)argv + 1, argc - 1, &error))
        failed = 1;
    printf("again: %d %s\n", error.code, error.text);
    return failed || locks_before != (getenv("HDF5_USE_FILE_LOCKING") != NULL);
}
END
PKG_CONFIG_PATH=$prefix/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
export PKG_CONFIG_PATH
is "pkg-config knows the version" "$version" "$(pkg-config --modversion trireme)"
(umask 077 && make -C "$build" install-modulefiles prefix="$work/a prefix") >"$work/spaced.log" 2>&1
is "modulefiles can be read by all, whatever the umask" "3 3" "$(find "$work/a prefix" -type f | wc -l) $(
    find "$work/a prefix" -type f -perm 644 | wc -l)"
is "pkg-config quotes a prefix with a space" 2 "$(PKG_CONFIG_PATH="$work/a prefix/lib/pkgconfig:$PKG_CONFIG_PATH" \
    pkg-config --cflags --libs trireme | grep -o '/a\\ prefix/' | wc -l)"
# shellcheck disable=SC2046
check "a program compiles and links by pkg-config" \
    cc -Wall -Wextra -Werror -o "$work/use" "$work/use.c" $(pkg-config --cflags --libs trireme)
for language in "c -std=c99" "c++ -std=c++11"; do
    # shellcheck disable=SC2086
    check "the header compiles alone as ${language% *}" \
        cc -Wall -Wextra -Werror -pedantic -fsyntax-only -x $language "$prefix/include/trireme.h"
done

# That program trains as `trireme train` does, two steps at a time.
cd "$work" || exit 1
settings="model.preset=llama-tiny data.train=text.h5 data.seq_len=16 train.global_batch=4
    train.steps=5 checkpoint.every=0 device=cpu run.threads=1"
losses() { sed -n 's/^{"step": \([0-9]*\),.*"loss": \([0-9.]*\),.*/\1 \2/p' "$1"; }
seq 500 >text.txt
check "a text is tokenized" "$prefix/bin/trireme" tokenize text.txt -o text.h5
# shellcheck disable=SC2086
check "the program trains" ./use $settings run.dir=own checkpoint.export_hf=true
cp log steps
# shellcheck disable=SC2086
check "trireme train does" "$prefix/bin/trireme" train $settings run.dir=other
is "a second run in the same process is an error" 1 "$(grep -c "^again: 1 .*a process opens one run, once" steps)"
is "five steps" "1 2 3 4 5" "$(losses own/metrics.jsonl | cut -d' ' -f1 | paste -sd' ')"
is "trireme train comes to the same losses as the program" "$(losses other/metrics.jsonl)" "$(losses own/metrics.jsonl)"
is "the program reads the losses that the run wrote" "$(losses other/metrics.jsonl | awk '$1 != 1 && $1 != 3 { printf "%d %.6f\n", $1, $2 }')" \
    "$(grep -E '^[0-9]+ [0-9.]+$' steps)"
is "the last state of the program's run is saved" step-00000005 "$(ls own/checkpoints)"
is "and the model is exported" "config.json model.safetensors" "$(ls own/hf | paste -sd' ')"
./use model.preset=llama-tiny data.tran=text.h5 >refused 2>&1
is "a wrong setting is its error" "1 1: data.tran" "$? $(sed -n 's/^\(1: \).*\(data\.tran\).*/\1\2/p' refused | head -n 1)"
cd "$top" || exit 1

for file in "$prefix"/share/trireme/jobs/*.yaml; do
    instead= # of a model's folder, which is not here
    if grep -q '^  path:' "$file"; then instead=model.preset=llama3-8b; fi
    # shellcheck disable=SC2086
    check "trireme config takes ${file##*/}" "$prefix/bin/trireme" config "$file" $instead
done

# Manual
for page in man1/trireme.1 man5/trireme-config.5; do
    man --warnings -E UTF-8 -l "$prefix/share/man/$page" >"$work/page" 2>"$work/log"
    is "$page renders without warnings" "" "$(head -n 3 "$work/log")"
    if [ "$(wc -l <"$work/page")" -gt 50 ]; then ok "$page has content"; else
        not_ok "$page has content" "$(wc -l <"$work/page") lines"; fi
done
for command in $("$prefix/bin/trireme" --help | sed -n 's/^  trireme \([a-z]*\).*/\1/p' | sort -u); do
    grep -q "^\.B $command\$" "$prefix/share/man/man1/trireme.1" || absent="${absent-} $command"
done
is "trireme(1) describes every command" "" "${absent-}"
for key in $("$prefix/bin/trireme" config --show | sed -n 's/^\([a-z.0-9_]*\) (.*/\1/p'); do
    grep -q "^\.B $key\$" "$prefix/share/man/man5/trireme-config.5" || unsaid="${unsaid-} $key"
done
is "trireme-config(5) describes every key" "" "${unsaid-}"

# Documents and completion
docs=$prefix/share/doc/trireme
for file in README.md LICENSE NEWS; do
    check "$file is installed" test -s "$docs/$file"
done
links_of() { grep -o ']([^)#:]*\.md[)#]' "$1" | tr -d '[]()#' | sort -u; }
is "README.md links to documents" doc/performance.md "$(links_of "$docs/README.md" | grep performance)"
for page in "$docs"/*.md "$docs"/doc/*.md; do
    for link in $(links_of "$page"); do
        [ -s "${page%/*}/$link" ] || dead="${dead-} ${page#"$docs"/}:$link"
    done
done
is "links between documents lead to installed files" "" "${dead-}"
is "bash's completion is installed" "complete -F _trireme trireme" \
    "$(bash -c '. "$1"; complete -p trireme' - "$prefix/share/bash-completion/completions/trireme" 2>&1)"

# Modulefiles: the shell that loads them has neither the program nor the paths otherwise.
lmod=/usr/share/lmod/lmod/init/bash
cat >"$work/load" <<'END'
set -e
. "$lmod" >/dev/null
module --force purge >/dev/null 2>&1
unset MANPATH PKG_CONFIG_PATH
module use "$modules"
module load trireme
echo "program $(command -v trireme)"
echo "runs $(trireme --version)"
echo "pkg-config $(pkg-config --modversion trireme)"
echo "manual $(man -w trireme)"
echo "system manual $(manpath 2>/dev/null | tr : '\n' | grep -c '^/usr/share/man$')"
echo "jobs $(test -x "$TRIREME_JOBS/llama8b_fsdp.sh" && echo found)"
module load trireme
echo "loaded $(module -t list 2>&1 | grep trireme)"
echo "whatis $(module whatis trireme 2>&1 | grep -c 'Version: ')"
echo "help $(module help trireme 2>&1 | grep -c 'trireme --help')"
module unload trireme
echo "unloaded $(echo "$PATH:$MANPATH:$PKG_CONFIG_PATH" | grep -c "$prefix" || true)"
END
cat >"$work/wanted" <<END
program $prefix/bin/trireme
runs trireme $version
pkg-config $version
manual $prefix/share/man/man1/trireme.1
system manual 1
jobs found
loaded trireme/$version
whatis 1
help 1
unloaded 0
END
load() {
    env -i HOME="$work" PATH=/usr/local/bin:/usr/bin:/bin TERM=dumb LMOD_SYSTEM_DEFAULT_MODULES= \
        lmod=$lmod modules="$2" prefix="$prefix" bash "$work/load" >"$work/got" 2>"$work/log"
    is "$1" "$(cat "$work/wanted")" "$(cat "$work/got" "$work/log")"
}
if [ -r $lmod ]; then
    load "module load finds the installed program (Lua)" "$modules"
    mkdir -p "$work/tcl/trireme"
    cp "$modules/trireme/$version" "$work/tcl/trireme/"
    load "module load finds the installed program (Tcl)" "$work/tcl"
else
    echo "skip module load: Lmod is not installed"
fi

# MANPATH of before, with the empty entry that stands for the system's pages, is there after unload.
cat >"$work/unload" <<'END'
pages() { manpath -q | tr : '\n' | grep . | sort -u; }
. "$lmod" >/dev/null
module --force purge >/dev/null 2>&1
for MANPATH in /usr/share/lmod/lmod/share/man: /opt/man; do
    export MANPATH
    module use "$modules"
    before=$(pages)
    module load trireme
    echo "loaded $(pages | grep -c "^$prefix/share/man$")"
    module unload trireme
    [ "$before" = "$(pages)" ] && echo "as before" || echo "$MANPATH: $(pages | tr '\n' ' ')"
done
END
# Modules that are named with --with-module-deps are loaded by it; a suffix tells builds apart.
cat >"$work/needs" <<'END'
. "$lmod" >/dev/null
module --force purge >/dev/null 2>&1
module use "$modules"
[ "$needed" = loaded ] && module load ompi/4.1 cuda/13
module load trireme 2>/dev/null
module -t list 2>&1 | sort | tr '\n' ' '
END
within() {
    env -i HOME="$work" PATH=/usr/local/bin:/usr/bin:/bin TERM=dumb LMOD_SYSTEM_DEFAULT_MODULES= \
        lmod=$lmod modules="$2" prefix="$prefix" needed="${3-}" bash "$work/$1" 2>&1
}
if [ -r $lmod ]; then
    wanted=$(printf 'loaded 1\nas before\nloaded 1\nas before')
    is "module unload leaves MANPATH as it was (Lua)" "$wanted" "$(within unload "$modules")"
    is "module unload leaves MANPATH as it was (Tcl)" "$wanted" "$(within unload "$work/tcl")"
    for name in ompi/4.1 cuda/13; do
        mkdir -p "$work/deps/${name%/*}"
        echo 'whatis("x")' >"$work/deps/$name.lua"
    done
    modulefiles moduledir="$work/deps" module_deps="ompi/4.1 cuda/13" module_suffix=-gpu
    is "module load loads what it was built with (Lua)" "cuda/13 ompi/4.1 trireme/$version-gpu " \
        "$(within needs "$work/deps")"
    rm "$work/deps/trireme/"*.lua
    is "module load wants what it was built with (Tcl)" "cuda/13 ompi/4.1 trireme/$version-gpu " \
        "$(within needs "$work/deps" loaded)"
    is "module load fails without what it was built with (Tcl)" 0 "$(within needs "$work/deps" | grep -c trireme)"
fi

modulefiles module_deps= module_suffix=
make -C "$build" uninstall prefix="$prefix" module_suffix= >/dev/null 2>&1
is "make uninstall leaves no file" "" "$(find "$prefix" -type f | tr '\n' ' ')"
exit $failed
