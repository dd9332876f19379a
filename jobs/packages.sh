#!/bin/sh
# packages.sh SET... - install the packages of the named sets that a Debian 12 or 13 machine lacks.
#   build  to compile trireme      run    to start it on several ranks
#   test   for tests/check.sh      slurm  for a virtual Slurm cluster
#   text   English to train on
# If all are there, it installs nothing, asks no server and needs no root.  --list prints the names of the
# packages instead.  On other systems than Debian it prints what to provide and succeeds; configure then
# names what is missing.
set -eu

packages_of()
{
    case $1 in
    build)
        echo autoconf automake gcc libc6-dev make pkg-config xz-utils
        echo libopenmpi-dev libhdf5-dev libdnnl-dev libyaml-dev libjansson-dev
        echo libxxhash-dev libhwloc-dev libpcre2-dev libutf8proc-dev
        ;;
    run) echo openmpi-bin openssh-client ;;
    test)
        echo libcmocka-dev libopenblas-dev hdf5-tools valgrind python3-h5py g++
        echo lmod tcl man-db groff-base clang-format universal-ctags procps diffutils
        echo gzip zstd xz-utils bzip2 libxml2-utils
        ;;
    text) echo debian-reference-en ;;
    slurm) echo slurmctld slurmd slurm-client munge iproute2 util-linux procps ;;
    *)
        echo "packages.sh: no set \"$1\": build, run, test, text, slurm" >&2
        return 1
        ;;
    esac
}

installed()
{
    dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q ' ok installed$'
}

# Install packages without starting their daemons: tests start their own.
quietly_install()
{
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod 755 $policy
        trap 'rm -f $policy' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q -o Acquire::Retries=3 update </dev/null
    apt-get -q -y -o Acquire::Retries=3 install --no-install-recommends "$@" </dev/null
}

list=
if [ "${1-}" = --list ]; then
    list=yes
    shift
fi
[ $# -gt 0 ] || set -- build
wanted=
for set_name; do
    wanted="$wanted $(packages_of "$set_name")"
done
if [ -n "$list" ]; then
    printf '%s\n' $wanted | sort -u
    exit
fi
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "packages.sh: not a Debian system; provide what these packages hold:" $wanted >&2
    exit 0
fi
missing=
for package in $(printf '%s\n' $wanted | sort -u); do
    installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
    echo "packages.sh: missing:$missing" >&2
    echo "packages.sh: run as root: apt-get install --no-install-recommends$missing" >&2
    exit 1
fi
echo "packages.sh: installing$missing"
quietly_install $missing
