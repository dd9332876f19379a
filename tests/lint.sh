#!/bin/bash
# lint.sh - the rules of the house, kept by machine.
#
#   lint.sh                  every rule on these sources, then lint_self.sh: can they fail?
#   lint.sh [-C DIR] RULE... some rules, on the sources in DIR
#
# A rule is a function that prints what breaks it, one line each; silence is success.
# Exit code 77 of a rule: a tool is missing, named by what it printed.
set -u
export LC_ALL=C
top=$(cd "$(dirname "$0")/.." && pwd)
rules="layers circles homes kernels ending asserts preprocessor files functions format scripts preloads keys text \
    words tables public globals names"

# Files whose suffix matches; those of C and those for GPUs obey the same rules.
code='c|h|cc|cu|cuh'
found_in() { suffix=$1 && shift && find "$@" -name m4 -prune -o -type f -print | grep -E "\.($suffix)$" | sort; }
product() { found_in "${1-$code}" src io; }
sources() { found_in "${1-$code}" src io tests doc; }

# The product's code without its comments, each file at its place under $bare, lines kept; made once,
# by Perl, which automake needs too.
bare=$(mktemp -d "${TMPDIR:-/tmp}/trireme-bare.XXXXXX") || exit 1
trap 'rm -rf "$bare"' EXIT
trap 'exit 1' HUP INT TERM
make_bare() {
    [ ! -e "$bare/made" ] || return 0
    touch "$bare/made"
    product | sed "s|^\(.*\)/[^/]*|$bare/\1|" | sort -u | xargs -r mkdir -p
    product | to=$bare perl -ne 'chomp; my $name = $_; local $/;
        open my $in, "<", $name or die "$name: $!"; my $text = <$in>;
        $text =~ s{("(?:[^"\\\n]|\\.)*"|\x27(?:[^\x27\\\n]|\\.)*\x27)|(/\*.*?\*/|//[^\n]*)}
                  {defined $1 ? $1 : " " . $2 =~ tr/\n//cdr}gse;
        open my $out, ">", "$ENV{to}/$name" or die "$name: $!"; print $out $text'
}
bare() { make_bare && cat "$bare/$1"; }

# Matches of a pattern in code; the rest of the arguments are files that may have it.
only_in() {
    pattern=$1 message=$2 allowed=$3
    make_bare
    product | grep -vE "$allowed" | (cd "$bare" && xargs -r grep -m 1 -E "$pattern" /dev/null) |
        sed "s|^\([^:]*\):|\1: $message: |"
}

# A file includes its own folder and folders below it, nothing else of the house.
rule_layers()
{
    grep -nE '^ *# *include *"' $(product) /dev/null | awk -F: '
        BEGIN {
            n = split("base config device comm io graph model segment program verify simulate execute train doctor cli", order, " ")
            for (i = 1; i <= n; i++) level[order[i]] = i
            level["plan"] = level["execute"]
        }
        {
            split($1, path, "/")
            own = path[1] == "src" ? path[2] : path[1]
            match($3, /"[^"]*"/)
            name = substr($3, RSTART + 1, RLENGTH - 2)
            if (name !~ /\//) next
            split(name, parts, "/")
            to = parts[1]
            if (!(to in level))
                print $1 ":" $2 ": " name ": no folder of the house"
            else if (to != own && level[to] >= level[own])
                print $1 ":" $2 ": " own " must not know " to
        }'
}

# Files whose calls would go in a circle by design: those of a table, of its rows, as a driver is of its
# ops and a link to a GPU of its transports; autodiff appends ops, whose rules call it; and a catalog
# has what it has read checked.
tables='src/graph/autodiff src/cli/commands src/execute/execute src/execute/executor src/device/cuda/driver
    src/comm/gpu/link io/catalog'

# No file calls another that calls it, straight or by others: what is called is below.  The calls are
# those in the objects.
rule_circles()
{
    build=${TRIREME_BUILD:-build}
    objects=$(cd "$build" 2>/dev/null && find src io -name '*.o' 2>/dev/null)
    if [ -z "$objects" ]; then
        echo "no objects in $build"
        return 77
    fi
    (cd "$build" && nm -A $objects) | sed -nE 's|^(.*/)([^/:]*-)?([^/:]*)\.o:[0-9a-f ]* ([TDRBU]) ([^ ]*)$|\1\3 \4 \5|p' |
        tables=$tables awk '
        BEGIN { n = split(ENVIRON["tables"], t, " "); for (i = 1; i <= n; i++) table[t[i]] = 1 }
        $2 != "U" { home[$3] = home[$3] == "" || home[$3] == $1 ? $1 : "several"; next }
        !table[$1] { file[++calls] = $1; name[calls] = $3 }
        END { for (i = 1; i <= calls; i++) if (home[name[i]] != "" && home[name[i]] != "several")
                  print file[i], home[name[i]] }' |
        sort -u | tsort 2>&1 >/dev/null | sed -n 's/^tsort: \(src\|io\)/\1/p' | tr '\n' ' ' |
        sed 's/ $/: they call one another in a circle\n/'
}

# Every outside library is known to one place.
rule_homes()
{
    while read -r header home; do
        product | grep -vE "^($home)\$" |
            xargs -r grep -nE "^ *# *include *[<\"]$header[>\"]" |
            home=$home awk '{ print $0 "  (its home is " ENVIRON["home"] ")" }'
    done <<'END'
mpi(-ext)?\.h src/comm/.*
hdf5\.h|H5.*\.h io/h5(_.*)?\.[ch]
dnnl.*\.h|oneapi/.*\.h src/device/cpu/(gemm.*\.c|onednn\.[ch])
cblas\.h|mkl.*\.h src/device/cpu/gemm.*\.c
yaml\.h src/config/yaml\.c
jansson\.h src/base/json\.c
xxhash\.h src/base/hash\.c
pcre2\.h io/tokenizer_regex\.c
utf8proc\.h io/tokenizer_unicode\.c
hwloc\.h|hwloc/.*\.h src/comm/topology\.c
cuda.*\.h|device/cuda/.*\.h src/device/cuda/.*
cublas.*\.h src/device/cuda/(gemm|cublaslt)\.[ch]
cudnn.*\.h src/device/cuda/sdpa_.*\.[ch]
nccl.*\.h src/comm/gpu/nccl.*\.[ch]
END
}

# Kernels use what simt.cuh offers and nothing else, so that they run on the emulated GPU too.
rule_kernels()
{
    product 'cu|cuh' | grep -v '/simt\.cuh$' | while read -r file; do
        bare "$file" | grep -nE '<<<|\basm\b|\bcuda[A-Z][[:alnum:]]* *\(' |
            sed "s|^[0-9]*:|$file: not of simt.cuh: |"
        grep -nE '^ *# *include *<' "$file" | sed "s|^|$file:|; s|\$|  (simt.cuh has what kernels use)|"
    done
    # Templates of kernels are linked by name: of two alike one would be lost.
    product cu | while read -r file; do
        bare "$file" | tr -s ' \n' ' ' |
            grep -oE '(static )?__global__ void (__launch_bounds__\([^)]*\) )?\w+' |
            grep -v '^static' | sed "s|.* ||; s|\$| $file|"
    done | sort -u | awk '$1 == last { print $2 ": kernel " $1 " has the name of one in " where }
                          { last = $1; where = $2 }'
}

# Functions return; only main, the end of the world and the end of memory end the process.
rule_ending()
{
    only_in '(^|[^_[:alnum:]])(exit|_exit|_Exit|quick_exit|abort) *\(' 'ends the process' \
        '^src/(cli/main|comm/world_end|base/array)\.c$'
}

rule_asserts()
{
    only_in '(^|[^_[:alnum:]])assert *\(.*(MPI_|\+\+|--|[^=!<>]=[^=])' 'work inside assert' '^$'
}

# At most one #if per thousand lines: variation goes through tables.
rule_preprocessor()
{
    lines=$(cat $(product 'c|cu') /dev/null | wc -l)
    ifs=$(cat $(product 'c|cu') /dev/null | grep -cE '^ *# *(if|ifdef|ifndef)\b')
    [ "$ifs" -le $((lines / 1000 + 1)) ] || echo "$ifs #if in $lines lines"
}

rule_files()
{
    wc -l $(sources) | awk '$2 != "total" && $1 > 600 { print $2 ": " $1 " lines, at most 600" }'
    product 'c|cu' | xargs wc -l | awk '$2 != "total" { print $1 }' | sort -n |
        awk '{ a[NR] = $1 } END { m = a[int((NR + 1) / 2)]
                                  if (m >= 200) print "half of the .c files have " m " lines or more" }'
    for file in $(find . -name '*.mk' -o -name configure.ac | grep -v '^./build' | sort); do
        case $file in
        *.ac) most=130 ;;
        ./tests/*) most=30 ;;
        *) most=20 ;;
        esac
        [ "$(wc -l <"$file")" -lt $most ] || echo "$file: $(wc -l <"$file") lines, under $most"
    done
}

rule_functions()
{
    if ! ctags --version 2>/dev/null | grep -q 'Universal Ctags'; then
        echo "no universal-ctags"
        return 77
    fi
    ctags -x --languages=C,C++,CUDA --langmap=C:.c,C++:.cc,CUDA:.cu.cuh --kinds-C=f --kinds-C++=f \
        --kinds-CUDA=f --_xformat='%F %n %{end} %N' $(sources 'c|cc|cu|cuh') 2>/dev/null | awk '
        $3 != "" { size = $3 - $2 + 1; all++; small += size < 45
                   if (size > 100) print $1 ":" $2 ": " $4 " has " size " lines, at most 100" }
        END { if (!all) print "ctags found no function"
              else if (small * 10 < all * 9)
                  print all - small " of " all " functions have 45 lines or more" }'
}

rule_format()
{
    if ! clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
        echo "no clang-format 14"
        return 77
    fi
    sources | xargs clang-format --style=file --dry-run -Werror 2>&1 | grep 'error:' |
        sort -t: -k1,1 -u
}

# Scripts parse, may be run, and say what runs them.
rule_scripts()
{
    find . -name '*.sh' -type f -o -path './.ci/run' | grep -vE '^./build|/m4/' | sort | while read -r file; do
        case $(head -n 1 "$file") in
        '#!/bin/sh') sh -n "$file" 2>&1 ;;
        '#!/bin/bash') bash -n "$file" 2>&1 ;;
        *) echo "$file: first line is neither #!/bin/sh nor #!/bin/bash" ;;
        esac
        [ -x "$file" ] || echo "$file: not executable"
    done
}

# Libraries are preloaded in a way that sanitizers allow.
rule_preloads()
{
    grep -rn 'LD_PRELOAD[=]' tests --include='*.sh' --include='*.inc' --include='*.py' --include='*.mk' |
        grep -vE '^tests/(cli/helpers\.inc|lint_self\.sh):' | sed 's/$/  (preload of tests\/cli\/helpers.inc does it)/'
}

# No key is accepted and ignored.
rule_keys()
{
    [ -e src/config/schema.c ] || return 0
    members=$(product | grep -vE '^src/config/(config|schema(_[a-z]*)?|presets)\.[ch]$' |
        xargs -r grep -ohE '(->|\.)[a-z_0-9]+' | sed 's/^->//; s/^\.//' | sort -u)
    grep -ohE 'KEY\([^)]*, [a-z_0-9.]+\)' src/config/schema*.c |
        sed 's/.*, \(.*\))/\1/' | grep -vx field | while read -r key; do
        grep -qx "${key##*.}" <<<"$members" || echo "src/config: nothing reads $key"
    done
}

# Plain text, one newline at the end, a purpose first; structs are called struct.
rule_text()
{
    files=$(sources; find . -name '*.sh' -o -name '*.mk' -o -name '*.ac' -o -name '*.in' |
        grep -vE '^./build|/m4/|Makefile\.in|defines\.h\.in')
    grep -nE '[[:space:]]$' $files | sed 's/:.*$/: space at the end of a line/' | sort -u
    printf '%s\n' $files | xargs perl -0777 -ne '
        print "$ARGV: no newline at the end\n" if !/\n\z/;
        next if $ARGV !~ m{([^/]*\.([ch]|cc|cuh?))$};
        print "$ARGV: line 1 does not say: /* $1 - why it exists\n" if !m{\A/\* \Q$1\E - }'
    only_in '^ *typedef (struct|enum|union)' 'typedef' '^$'
}

# Words that were coined here, where the field has its own: in comments and names, not in what is
# printed.  Names are words joined by '_'.  The few exceptions are FILE:WORD below.
in_words() {
    product | xargs -r perl -ne 's/"([^"\\]|\\.)*"//g; tr/_/ /;
        print "$ARGV:$&\n" while /\b(?:$ENV{words})\b/gi'
}

rule_words()
{
    coined='marks?|tapes?|turns?|rooms?|paces?|told|tells?'
    allowed='src/config/yaml\.c:mark' # libyaml's
    make_bare
    {
        words=$coined in_words
        (cd "$bare" && words='say|says|said|speaks?' in_words)
    } | sort -u | grep -vxE "$allowed" | sed 's/$/: a coined word; doc\/development.md lists the field'"'"'s/'
}

# Rows of tables of functions name their fields: one that is added elsewhere moves none.
rule_tables()
{
    make_bare
    product | (cd "$bare" && xargs -r perl -ne 'print "\@file $ARGV\n" if $. == 1; print; close ARGV if eof') | awk '
        # A struct with a member that is a pointer to a function, and an initialiser.
        function functions(text) { return text ~ /\(\*[a-z_0-9]+\)\(/ }
        # text begins after the first {; an array has its rows one deeper
        function check(name, text,   at, depth, deepest, c, before) {
            depth = 1
            deepest = 1 + (name ~ /\[/)
            before = "{"
            for (at = 1; at <= length(text) && depth; at++) {
                c = substr(text, at, 1)
                if (c == " ") continue
                if (depth == 1 && deepest == 2 && c ~ /[A-Z]/) return # a macro makes rows
                if (before == "{" && depth <= deepest && c !~ /[.\[{}]/ && substr(text, at, 2) !~ /^0[ }]/) {
                    print where[f] ": a row of " name " does not name its fields"
                    return
                }
                depth += (c == "{") - (c == "}")
                before = c
            }
        }
        /^@file / { where[++files] = $2; next }
        { gsub(/"([^"\\]|\\.)*"/, "\"\""); gsub(/\t/, " "); text[files] = text[files] " " $0 }
        END {
            for (f = 1; f <= files; f++)
                for (rest = text[f]; match(rest, /struct [a-z_0-9]+ *\{[^{}]*\}/); rest = substr(rest, RSTART + RLENGTH)) {
                    body = substr(rest, RSTART, RLENGTH)
                    split(body, word, /[ {]+/)
                    if (functions(body)) table[word[2]] = 1
                }
            for (f = 1; f <= files; f++) {
                for (rest = text[f]; match(rest, /struct [a-z_0-9]+ [a-z_0-9]+(\[[^]]*\])* = *\{/); rest = after) {
                    split(substr(rest, RSTART, RLENGTH), word, / +/)
                    after = substr(rest, RSTART + RLENGTH)
                    if (word[2] in table) check(word[3], after)
                }
                for (rest = text[f]; match(rest, /struct *\{[^{}]*\} *[a-z_0-9]+(\[[^]]*\])* = *\{/); rest = after) {
                    body = substr(rest, RSTART, RLENGTH)
                    after = substr(rest, RSTART + RLENGTH)
                    if (functions(body)) check(body ~ /\] *= *\{$/ ? "a table []" : "a struct", after)
                }
                for (rest = text[f]; match(rest, /\(\*const [a-z_0-9]+\[[^]]*\]\)\([^()]*\) = *\{/); rest = after) {
                    body = substr(rest, RSTART, RLENGTH)
                    after = substr(rest, RSTART + RLENGTH)
                    sub(/^\(\*const /, "", body)
                    sub(/\[.*/, "", body)
                    check(body, after)
                }
            }
        }'
}

# One header is installed; it needs none of ours, and what it declares is called trireme.
rule_public()
{
    [ -e src/trireme.h ] || return 0
    grep -nE '_HEADERS *\+?=|INSTALL_HEADER' Makefile.am $(find . -name '*.mk' | grep -v '^./build') |
        grep -v '^Makefile.am:[0-9]*:include_HEADERS = src/trireme\.h$' | sed 's/$/  (src\/trireme.h alone is installed)/'
    grep -nE '^ *# *include *"' src/trireme.h | sed 's|^|src/trireme.h:|'
    bare src/trireme.h | grep -oE '\b[a-zA-Z_0-9]+ *\(|\b(struct|enum) [a-z_0-9]+|#define [A-Za-z_0-9]+' |
        grep -vE 'TRIREME_|trireme|__' | sed 's|^|src/trireme.h: a name without trireme_: |'
}

# The library holds no variables, only const tables, the flags that signal handlers set, the count and
# the list of base/alive.c, how base/array.c ends the process, what base/log.c shares among threads, and what
# device/cuda/cublaslt.c has loaded.
rule_globals()
{
    library=${TRIREME_BUILD:-build}/libtrireme.a
    if [ ! -f "$library" ]; then
        echo "no $library"
        return 77
    fi
    objdump -t "$library" | awk '
        / file format / { object = $1; sub(/:$/, "", object) }
        / O \.t?(data|bss)[.[:alnum:]_]*/ && !/ \.data\.rel\.ro/ { print object " " $NF }' |
        grep -vE ' _Z[GVZL0-9]*__(device_stub__|fatDeviceText|cudaFatCubinHandle)' | # of nvcc
        grep -vw -e __func__ -e array_end -e "libtrireme_a-alive.o calls" -e "libtrireme_a-log.o shared" -e "libtrireme_a-background.o background" -e cublaslt $(product c | xargs sed -n \
            's/^static volatile sig_atomic_t \([a-z_]*\);$/-e \1/p')
}

# What exported names of a folder may begin with besides its own name, that of the folder above and
# those of its files: the things that it is about.  A digit or '_' follows, or nothing.
things='
src/base         exit js            # exit codes; json_ is a prefix of jansson itself
src/config       preset             # rows of presets.c
src/comm         kind queue transfer # what travels (transport.h)
src/device       adamw attention column dropout experts gemm momentum muon order pack polynomial qk rope rounding route routes row sequence sgd # what ops take, a struct each (ops.h)
src/device/cuda  fp                 # numbers (simt.cuh)
src/segment      unit               # units.h
src/program      instr pass         # instructions; the passes that write them
src/verify       addend addends value # of sums; what buffers hold (values.h)
src/execute      async copy executor run step # execute_async.h, copies; a program and its step
src/train        run speed          # files of a run directory; progress.h
'

# Exported names, and tags of structs and enums in headers, begin with the name of their file or
# folder, or of a thing of the folder.  Exported names are those in the objects, so that macros hide
# none.  device/cuda/cublaslt.c defines cuBLASLt's own.
rule_names()
{
    build=${TRIREME_BUILD:-build}
    objects=$(cd "$build" 2>/dev/null && find src io -name '*.o' 2>/dev/null | while read -r object; do
        source=${object%/*}/${object##*[-/]} # libtrireme_a-error.o and cpu/libcpu_avx2_a-norm.o
        compgen -G "$top/${source%.o}.c*" >/dev/null && echo "$object"
    done)
    if [ -z "$objects" ]; then
        echo "no objects in $build"
        return 77
    fi
    {
        echo "$things" | sed 's/#.*//; s/^./prefixes &/'
        product | sed -n 's|\(.*\)/\([^/]*\)\..*|prefixes \1 \2|p' | sed 's/_private$//'
        (cd "$build" && nm -A --defined-only $objects) |
            sed -nE '/ (_Z|cublasLt)/d; s|^(.*)/[^/]*:[0-9a-f]* [TDRB] ([a-zA-Z].*)|name \1 \2|p'
        for header in $(product 'h|cuh'); do
            bare "$header" | sed -nE 's/^(struct|enum) ([A-Za-z_0-9]+)( \{|;).*/\2/p' |
                sed "s|^|tag ${header%/*} |"
        done
    } | awk '
        NF == 0 { next }
        $1 == "prefixes" { for (i = 3; i <= NF; i++) known[$2] = known[$2] " " $i; next }
        # A struct that other folders only mention belongs to the one that has its prefix.
        { where[$3] = $2; ok[$3] += accepted($2, $3) }
        END { for (name in ok) if (!ok[name]) print where[name] ": " name ": no prefix of the folder" }
        function accepted(folder, name,    n, i, part, path, all) {
            n = split(folder, part, "/")
            for (i = 1; i <= n; i++) {
                path = i == 1 ? part[1] : path "/" part[i]
                if (i > 1 || n == 1) all = all known[path] " " part[i]
            }
            n = split(all, part, " ")
            for (i = 1; i <= n; i++) if (name ~ "^" part[i] "([0-9]|_|$)") return 1
            return 0
        }' | sort
}

run_rules() {
    bad=0
    for rule in "$@"; do
        problems=$("rule_$rule" 2>&1)
        rc=$?
        if [ $rc = 77 ]; then
            echo "skip $rule: $problems"
        elif [ -z "$problems" ]; then
            echo "ok $rule"
        else
            bad=1
            echo "not ok $rule: $(printf '%s\n' "$problems" | head -n 1)" \
                "($(printf '%s\n' "$problems" | wc -l) in all)"
            printf '%s\n' "$problems" | sed 's/^/#   /'
        fi
    done
    return $bad
}

if [ "${1-}" = -C ]; then
    top=$2
    shift 2
fi
cd "$top" || exit 1
if [ $# -gt 0 ]; then
    run_rules "$@"
    exit
fi
run_rules $rules
failed=$?
tests/lint_self.sh || failed=1
exit $failed
