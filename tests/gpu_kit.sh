#!/bin/bash
# gpu_kit.sh - all that a bare machine with a GPU needs to build, test and measure trireme without a
# network: sources, programs built here, and MPI, HDF5 and the small libraries in one folder.
#
#   tests/gpu_kit.sh DEST [TARBALL]
#
# DEST then holds
#   trireme-VERSION.tar.xz  `make dist`, whose times are in order: no autotools are needed
#   bundle.tar.xz           Open MPI, HDF5, libyaml, jansson, xxHash, hwloc, cmocka, make, pkg-config;
#                           `. bundle/env.sh` makes them usable in place
#   programs.tar.xz         trireme, the tests of the GPU and the measurements, for sm_90, stripped
#   README                  the commands for 45 and for 15 minutes with a card
# and their sizes are printed.  The other machine brings CUDA (the toolkit, or Python's packages), a C
# and C++ compiler to build there, and a glibc not older than this one's.
#
# Needs: Debian or Ubuntu with a network, nvcc here, and autotools unless TARBALL (a `make dist`) is
# given.  CUDA_ARCHS (default 90), NVCC and CC go to configure.  Exit code 77, with the reason, where
# something of this is missing.
set -euo pipefail
export LC_ALL=C
top=$(cd "$(dirname "$0")/.." && pwd)
[[ ${1--} != -* ]] || { sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2 && exit 1; }
mkdir -p "$1" && dest=$(cd "$1" && pwd) && tarball=${2-}
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-kit.XXXXXX")
trap 'rm -rf "$work"' EXIT
jobs=$(nproc)

missing() { echo "gpu_kit.sh: $1" && exit 77; }
command -v apt-get dpkg-deb >/dev/null || missing "packages come from Debian or Ubuntu: no apt-get"
command -v "${NVCC:-nvcc}" >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || missing "no nvcc"

say() { echo "# $SECONDS s: $1"; }

# ---- the bundle ----

packages=(openmpi-bin openmpi-common libopenmpi3 libopenmpi-dev libhwloc15 libhwloc-dev libpmix2
    libhdf5-openmpi-103-1 libhdf5-openmpi-dev libyaml-0-2 libyaml-dev libjansson4 libjansson-dev
    libxxhash0 libxxhash-dev libpcre2-8-0 libpcre2-dev libutf8proc2 libutf8proc-dev
    libcmocka0 libcmocka-dev make pkgconf pkgconf-bin libpkgconf3)

unpack_packages() {
    mkdir "$work/packages"
    (cd "$work/packages" && apt-get download -q -o APT::Sandbox::User=root "${packages[@]}" \
        >"$work/download.log" 2>&1) || missing "apt-get download: $(tail -n 1 "$work/download.log")"
    for package in "$work"/packages/*.deb; do dpkg-deb -x "$package" "$bundle"; done
    [ ! -d "$bundle/lib" ] || { cp -a "$bundle/lib/." "$bundle/usr/lib/" && rm -rf "$bundle/lib"; }
    rm -rf "$bundle"/usr/share/{doc,man,lintian,info,locale,bash-completion} "$bundle"/{sbin,var} \
        "$bundle/usr/sbin" "$libs/fortran"
    find "$bundle" -name '*.a' -delete
    # Networks and languages that a single machine and C do not need.
    rm -f "$libs"/openmpi/lib/openmpi3/*{_ofi,_ucx,_psm,_psm2,_usnic,_openib,_verbs,_portals4}*.so \
        "$libs"/openmpi/lib/openmpi3/*{_cuda,_knem,_netlink}*.so \
        "$libs"/openmpi/lib/lib{mpi_java,mpi_usempi,mpi_mpifh,oshmem,mpi_cxx}*.so* \
        "$libs"/openmpi/lib/libmca_common_{ofi,ucx,verbs}*
}

# Libraries that those need, and no more, from this machine: round by round, as they need others.
add_needed() {
    for round in 1 2 3 4 5 6; do
        added=
        for name in libgomp.so.1 $(find "$bundle" -name '*.so*' -type f -exec objdump -p {} + 2>/dev/null |
            awk '/NEEDED/ {print $2}' | sort -u); do
            case $name in
            libc.so* | libm.so* | libpthread* | libdl.so* | librt.so* | libresolv* | libutil*) continue ;;
            ld-linux* | libgcc_s* | libstdc++*) continue ;;
            esac
            [ -z "$(find "$bundle" -name "$name" -print -quit)" ] || continue
            for folder in /usr/lib/x86_64-linux-gnu /lib/x86_64-linux-gnu; do
                [ -e "$folder/$name" ] || continue
                cp -L "$folder/$name" "$libs/$name" && added=yes
                break
            done
        done
        [ -n "$added" ] || break
    done
}

# Debian picks MPI and HDF5 by alternatives, which a folder has not: link the plain names.
link_names() {
    ln -sfn opal_wrapper "$bundle/usr/bin/mpicc"
    ln -sfn orterun "$bundle/usr/bin/mpirun"
    ln -sfn pkgconf "$bundle/usr/bin/pkg-config"
    ln -sfn openmpi/lib/libmpi.so "$libs/libmpi.so"
    ln -sfn hdf5/openmpi/libhdf5.so "$libs/libhdf5.so"
    wrapper=$bundle/usr/share/openmpi
    [ -e "$wrapper/mpicc-wrapper-data.txt" ] ||
        cp "$wrapper/mpicc.openmpi-wrapper-data.txt" "$wrapper/mpicc-wrapper-data.txt"
}

write_env() {
    cat >"$bundle/env.sh" <<'ENV'
bundle=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
libs=$bundle/usr/lib/x86_64-linux-gnu
# What a program that has nothing to do with the bundle is to see, such as PyTorch.
export TRIREME_PLAIN_LIBRARY_PATH=${TRIREME_PLAIN_LIBRARY_PATH-${LD_LIBRARY_PATH-}}
LD_LIBRARY_PATH=$TRIREME_PLAIN_LIBRARY_PATH
# cuDNN's kernels are compiled at run time by NVRTC, which looks for a part of itself by name alone.
cudnn=
for cuda in "${CUDA_HOME:-/usr/local/cuda}"/lib64 "${CUDA_HOME:-/usr/local/cuda}"/lib; do
    [ ! -d "$cuda" ] || LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$cuda
    [ ! -e "$cuda/libcudnn.so.9" ] || cudnn=$cuda
done
if [ -z "$cudnn" ]; then # a toolkit without it: Python's packages
    for cuda in $(python3 -c 'import importlib.util as i; print(*i.find_spec("nvidia").submodule_search_locations)' \
        2>/dev/null); do
        for folder in "$cuda"/*/lib; do
            [ ! -d "$folder" ] || LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
        done
    done
fi
export PATH=$bundle/usr/bin:$PATH
export LD_LIBRARY_PATH=$libs:$libs/openmpi/lib:$libs/hdf5/openmpi${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LIBRARY_PATH=$libs:$libs/openmpi/lib:$libs/hdf5/openmpi${LIBRARY_PATH:+:$LIBRARY_PATH}
includes=$bundle/usr/include
export CPATH=$includes:$includes/x86_64-linux-gnu:$includes/hdf5/openmpi:$libs/openmpi/include${CPATH:+:$CPATH}
export OPAL_PREFIX=$bundle/usr OPAL_LIBDIR=$libs/openmpi/lib OPAL_DATADIR=$bundle/usr/share
export OPAL_INCLUDEDIR=$libs/openmpi/include OPAL_PKGDATADIR=$bundle/usr/share/openmpi
export OPAL_SYSCONFDIR=$bundle/etc/openmpi OPAL_PKGLIBDIR=$libs/openmpi/lib/openmpi3
export PMIX_INSTALL_PREFIX=$libs/pmix2 PMIX_MCA_pcompress_base_silence_warning=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp
export OMPI_MCA_btl_vader_single_copy_mechanism=none
ENV
}

make_bundle() {
    bundle=$work/bundle libs=$work/bundle/usr/lib/x86_64-linux-gnu
    mkdir "$bundle"
    unpack_packages
    link_names
    add_needed
    write_env
}

# ---- the sources, and programs built from them with the bundle, as the other machine would ----

make_tarball() {
    [ -z "$tarball" ] || { cp -p "$tarball" "$dest/" && return; }
    mkdir "$work/dist"
    tar -C "$top" -cf - --exclude=./.git --exclude='./build*' --exclude='*.o' --exclude='*.a' . |
        tar -C "$work/dist" -xf -
    (cd "$work/dist" && { [ ! -e "$top/.git" ] || ./autogen.sh; } && mkdir -p kit && cd kit &&
        ../configure --with-cuda=no && make dist) >"$work/dist.log" 2>&1 ||
        { tail -n 5 "$work/dist.log" && exit 1; }
    cp -p "$work"/dist/kit/trireme-*.tar.xz "$dest/"
}

make_variable() { make -s --no-print-directory --eval='print-%: ; @echo $($*)' "print-$1"; }

build_programs() {
    mkdir "$work/source" "$work/source/build" "$work/programs"
    tar -C "$work/source" --strip-components=1 -xf "$dest"/trireme-*.tar.xz
    (
        . "$work/bundle/env.sh"
        export PKG_CONFIG_LIBDIR=$work # this machine's own libraries are not to be found
        cd "$work/source/build"
        ../configure --with-cuda=yes --with-onednn=no --with-blas=no "CUDA_ARCHS=${CUDA_ARCHS:-90}" \
            ${NVCC:+"NVCC=$NVCC"} ${CC:+"CC=$CC"}
        tests=$(make_variable UNIT_TESTS | tr ' ' '\n' | grep '/test_cuda_' | grep -v _emulated)
        echo "$tests" >"$work/programs/programs"
        make -j"$jobs" trireme $tests tests/mpi/test_comm_device tests/bench/gemm_rate \
            tests/bench/attention_rate
        for program in trireme $tests tests/mpi/test_comm_device tests/bench/{gemm,attention}_rate; do
            mkdir -p "$work/programs/$(dirname "$program")"
            strip -o "$work/programs/$program" "$program"
        done
        cp tests/unit/described_gpu.so "$work/programs/tests/unit/"
    ) >"$dest/build.log" 2>&1 & # not as part of a list, in which set -e means nothing
    wait $! || { tail -n 12 "$dest/build.log" && exit 1; }
    rm "$dest/build.log"
    echo "$(basename "$dest"/trireme-*.tar.xz) for sm_${CUDA_ARCHS:-90}" >"$work/programs/built"
}

write_readme() {
    cat >"$dest/README" <<'README'
KIT is this folder, OUT an empty one for results.  Every call ends with one file of results,
OUT/*.tar.gz, also when it is ended from outside; it is written after every group.  Wanted there: CUDA
with cuDNN, cuBLASLt, NCCL and NVRTC; gcc, g++; Python with PyTorch.

Once on every new machine:
  mkdir -p /t && cd /t && for f in $KIT/*.tar.xz; do tar xf $f; done
  export TRIREME_BUNDLE=/t/bundle; cd trireme-*/; nvidia-smi

Fifteen minutes: nothing is built there, and the figure that counts has most of the time
  timeout 230 tests/gpu.sh --build /t/programs --out $OUT/results --only unit --limit 210
  timeout 520 tests/gpu.sh --build /t/programs --out $OUT/results --only bench --limit 500
and `--only train` or `8b` with what is left.

Forty-five minutes, in five calls:
1. Does it build, is it right?  (10 minutes)
  CONFIGURE_FLAGS='CUDA_ARCHS=90 --with-onednn=no --with-blas=no' timeout 560 \
      tests/gpu.sh --out $OUT/results --only build,unit --limit 275
2. The figure that counts: attention's kernels, Llama-3-8B's layers against PyTorch  (10 minutes)
  timeout 580 tests/gpu.sh --out $OUT/results --only bench --limit 560
3. Right from end to end, and all of Llama-3-8B in memory  (10 minutes)
  timeout 580 tests/gpu.sh --out $OUT/results --only train,8b --limit 285
4. Ranks that share the GPU; smaller models against PyTorch  (10 minutes)
  timeout 580 tests/gpu.sh --out $OUT/results --only mpi,small --limit 285
5. With what is left: generation, and every kernel under the sanitizer
  timeout 580 tests/gpu.sh --out $OUT/results --only generate,sanitize --limit 285

Where nothing can be built, or on a second machine: the same commands with `--build /t/programs`, and
without `build` in the first.
Should test_cuda_sdpa alone fail in 1: configure with --with-cudnn=no too (attention by trireme's own
kernels), and see `CUDNN_LOGLEVEL_DBG=2 build-gpu/tests/unit/test_cuda_sdpa`.
A call that was cut short goes on with --resume.
README
}

say "libraries" && make_bundle
say "sources" && make_tarball
say "programs" && build_programs
say "packing"
XZ_OPT=-6 tar -C "$work" -cJf "$dest/bundle.tar.xz" bundle
# Every program holds the same kernels, packed: a dictionary that reaches the last of them.
XZ_OPT=--lzma2=preset=6,dict=64MiB tar -C "$work" -cJf "$dest/programs.tar.xz" programs
write_readme
say "done"
(cd "$dest" && du -ch --apparent-size trireme-*.tar.xz bundle.tar.xz programs.tar.xz README)
