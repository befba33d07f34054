# Builds programs for other machines: for x86_64 and aarch64 with a glibc not older than GLIBC_FLOOR, and static ones with musl. Sourced, never run.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

GLIBC_FLOOR=2.31
ZIG=0.17.1
ZIGBUILD=0.24.0

# debian_arch ARCH: Debian's name of the architecture.
debian_arch() { case $1 in x86_64) echo amd64 ;; aarch64) echo arm64 ;; esac; }

# need_cross ARCH: the linker, the compiler's libraries, and libudev of that architecture.
need_cross() {
    local debian; debian=$(debian_arch "$1")
    if [ "$debian" != "$(dpkg --print-architecture)" ] && ! dpkg --print-foreign-architectures | grep -qx "$debian"; then
        say "adding the architecture $debian to dpkg"
        is_root || die "as root: dpkg --add-architecture $debian"
        dpkg --add-architecture "$debian"
        apt-get update -qq || say "apt-get update had errors; going on with the lists that are there"
    fi
    need_packages python3-venv pkg-config "libudev-dev:$debian"
    if [ "$debian" != "$(dpkg --print-architecture)" ]; then need_packages qemu-user-static; fi
    local linker=$TOOLS/zig-$ZIG
    if [ ! -x "$linker/bin/cargo-zigbuild" ]; then
        say "installing the linker: ziglang $ZIG, cargo-zigbuild $ZIGBUILD (Python packages)"
        rm -rf "$linker"
        /usr/bin/python3 -m venv "$linker"
        "$linker/bin/pip" install --quiet "ziglang==$ZIG" "cargo-zigbuild==$ZIGBUILD" || { rm -rf "$linker"; die "pip install ziglang cargo-zigbuild"; }
    fi
    PATH=$linker/bin:$PATH
}

# need_target TRIPLE: the standard library of that target.
need_target() {
    [ -d "$(rustc --print target-libdir --target "$1")" ] || { say "installing Rust's library for $1"; rustup target add "$1"; }
}

# run_on ARCH: the words before a program of that architecture.
run_on() { if [ "$1" != "$(uname -m)" ]; then echo "qemu-$1-static"; fi; }

# Paths of this machine are not in the programs, so that they are the same wherever they are built.
remapped() { echo "--remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"; }

# cross ARCH COMMAND ARGUMENT...: cargo for that architecture.
cross() {
    local arch=$1
    need_target "$arch-unknown-linux-gnu"
    # This machine's libudev, which is only linked against, may need a newer glibc than the floor.
    RUSTFLAGS="$(remapped) -Clink-arg=-Wl,--allow-shlib-undefined" PKG_CONFIG_ALLOW_CROSS=1 PKG_CONFIG_LIBDIR=/usr/lib/$arch-linux-gnu/pkgconfig \
        cargo-zigbuild "$2" --locked --target "$arch-unknown-linux-gnu.$GLIBC_FLOOR" "${@:3}"
}

# test_model ARCH: the unit tests of the model, as a program of that architecture; in QEMU where it is another one than this machine's.
test_model() {
    local arch=$1 runner
    need_cross "$arch"
    runner=$(run_on "$arch")
    (
        if [ -n "$runner" ]; then export "CARGO_TARGET_${arch^^}_UNKNOWN_LINUX_GNU_RUNNER=$runner"; fi
        # Debug information only costs time here.
        export CARGO_PROFILE_DEV_DEBUG=false
        local member members=()
        for member in text finding kernel-log smart fscheck model; do members+=(-p "diskvitals-$member"); done
        cross "$arch" test --quiet --lib "${members[@]}"
    )
}

# static_programs COMMAND ARCH [ARGUMENT...]: cargo for each static program; none of them needs libudev.
static_programs() {
    local command=$1 arch=$2 program
    need_target "$arch-unknown-linux-musl"
    for program in "${STATIC_PROGRAMS[@]}"; do
        RUSTFLAGS=$(remapped) cargo-zigbuild "$command" --quiet --locked --target "$arch-unknown-linux-musl" --package "$(package_of "$program")" --bins "${@:3}" || return
    done
}

# build_static ARCH: into target/ARCH-unknown-linux-musl/release.
build_static() {
    local arch=$1 program
    static_programs build "$arch" --release
    for program in "${STATIC_PROGRAMS[@]}"; do check_static "target/$arch-unknown-linux-musl/release/$program"; done
}

# check_static PROGRAM: it needs no loader and no library.
check_static() {
    local needed; needed=$(readelf --wide --program-headers --dynamic "$1" | grep -E 'INTERP|\(NEEDED\)' || true)
    [ -z "$needed" ] || die "$1 is not static: $needed"
}

# check_floor PROGRAM...: no symbol of a glibc newer than the floor.
check_floor() {
    local program newest
    for program; do
        newest=$(readelf --wide --version-info "$program" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
        [ -n "$newest" ] || die "$program has no symbol of glibc: what it needs is not known"
        [ "$(printf '%s\n' "${newest#GLIBC_}" "$GLIBC_FLOOR" | sort -V | tail -n 1)" = "$GLIBC_FLOOR" ] || die "$program needs $newest, newer than $GLIBC_FLOOR"
    done
}
